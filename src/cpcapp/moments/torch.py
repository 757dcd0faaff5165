"""Moments and contrasts of torch tensors, on the device where the tensors are.

Float32 data is multiplied in float32, a thousand rows at a time, and added up in float64;
float64 data is multiplied in float64. Needs the extra ``torch``.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from cpcapp.moments.moments import AdditiveMoments, Moments
from cpcapp.moments.rows import FloatArray, NonFiniteError, check_weights, drop_zero_weights

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise ImportError(
        "cpcapp.moments.torch needs torch; install it with: pip install 'cpcapp[torch]'"
    ) from error

__all__ = ["DeviceMoments", "Tensor", "check_device", "torch"]

# Rows of one matrix product. In float32 its rounding grows with this number.
_ROWS = 1024
# Of a symmetric matrix only so many panels above the diagonal are computed, which is 7/12 of it.
# Narrow ones would be slow.
_PANELS, _LEAST_PANEL = 6, 256
# Numbers in the centred copy of some rows, and in the products that are added up together.
_MAX_ROWS_NUMBERS, _MAX_PRODUCT_NUMBERS = 1 << 27, 1 << 27


def check_device(device: Any) -> torch.device:
    """Return a device, or raise ``ValueError`` unless torch can compute there in float64."""
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
        return torch.device(device)
    except Exception as error:  # torch has many, and some are AssertionError
        reason = " ".join(str(error).split())[:100]
        raise ValueError(
            f"device={str(device)!r} can't be used here; use 'cpu', or 'cuda' with an NVIDIA card "
            f"and its driver ({reason})"
        ) from error


class DeviceMoments(AdditiveMoments):
    """Sample count, mean and scatter that stay on a device until they are asked for.

    Adds up like `cpcapp.Moments`. `cpcapp.solve_contrast` takes them as they are, and solves on
    their device. Only float64 is multiplied in float64, all else in float32; with ``allow_tf32`` in
    TF32 where the device has it: faster, but correlations are off by 1e-5. With ``double`` all is
    multiplied in float64, and the result is that of NumPy to 1e-12. Cards for data centres do that
    as fast as float32; others take up to 64 times as long.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 2.0]])
    >>> DeviceMoments("cpu").update(x).update(2 * x).to_moments().variance()
    array([3.5, 1. ])
    """

    # The rows are never kept.
    is_thin = False

    def __init__(
        self, device: Any = "cuda", *, allow_tf32: bool = False, double: bool = False
    ) -> None:
        self.device = check_device(device)
        self.allow_tf32, self.double = allow_tf32, double
        self._clear()  # the scatter is valid on and above its diagonal

    @classmethod
    def of(cls, moments: Moments, device: Any = "cuda", **options: Any) -> Self:
        """Return moments of NumPy as moments on a device."""
        self = cls(device, **options)
        if moments.mean is None:
            return self
        # In Fortran order the lower triangle is the upper one of the transpose.
        arrays = (moments._lower().T, moments._mean, moments._low)
        scatter, mean, low = (
            torch.from_numpy(np.ascontiguousarray(a)).to(self.device, copy=True) for a in arrays
        )
        weights = moments.total_weight, moments._squared_weight
        return self._fill(scatter, weights, mean, low)

    @property
    def mean(self) -> FloatArray | None:  # type: ignore[override]
        """The mean as a NumPy array, (n_features,); None before the first chunk."""
        return None if self._mean is None else self._mean.cpu().numpy()

    def __repr__(self) -> str:
        return (
            f"DeviceMoments(n_samples={self.n_samples}, n_features={self.n_features}, "
            f"device='{self.device}')"
        )

    # -- reading data ----------------------------------------------------------------------

    def update(self, chunk: Any, weights: Any = None) -> Self:
        """Add a tensor of rows from anywhere, and return the moments themselves.

        One with NaN or infinity raises ``ValueError`` and leaves the moments as they were.
        """
        if not isinstance(chunk, Tensor):
            raise TypeError(f"chunk is a {type(chunk).__name__}; it must be a torch tensor")
        if chunk.ndim != 2 or chunk.shape[1] == 0:
            raise ValueError(
                f"chunk has shape {tuple(chunk.shape)}; it must be (n_samples, n_features)"
            )
        if chunk.is_complex():
            raise ValueError(f"chunk has type {chunk.dtype}; it must be real")
        rows = chunk.detach()
        self._require_width(rows.shape[1])
        rows, values = drop_zero_weights(rows, host_weights(weights, len(rows)))
        width = rows.shape[1]
        # As many rows at once as memory is set aside for.
        groups = min(_MAX_PRODUCT_NUMBERS // panel_width(width), _MAX_ROWS_NUMBERS // _ROWS)
        together, blocks = max(1, groups // width) * _ROWS, []
        # All means before anything is added: a bad value anywhere changes nothing.
        for start in range(0, len(rows), together):
            block = rows[start : start + together]
            given = None if values is None else values[start : start + together]
            mean = _mean_of(block, given)
            if not bool(mean.isfinite().all()):
                raise NonFiniteError(np.flatnonzero(~mean.isfinite().cpu().numpy()))
            blocks.append((block, given, mean))
        if blocks and self._scatter is None:
            self._scatter = torch.zeros((width, width), dtype=torch.float64, device=self.device)
        # Float32 is multiplied as told, whatever the settings of the process.
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self.allow_tf32 else "highest")
        try:
            for block, given, mean in blocks:
                self._add_block(block.to(self.device), given, mean.to(self.device))
        finally:
            torch.set_float32_matmul_precision(before)
        return self

    def _add_block(self, rows: Tensor, weights: FloatArray | None, mean: Tensor) -> None:
        exact = self.double or rows.dtype in (torch.float64, torch.int32, torch.int64)
        rows = rows.to(torch.float64 if exact else torch.float32)
        # Rounded to the type of the rows, so that the difference is exact where they are alike.
        shift = mean.to(rows.dtype)
        centred = rows - shift
        # What rounding has left of the mean. In float64 the mean itself is rounded.
        low = _mean_of(centred, weights) if exact else mean - shift.double()
        weight = squared = float(len(rows))
        if weights is not None:
            weight, squared = float(weights.sum()), float(weights @ weights)
            centred *= torch.from_numpy(np.sqrt(weights)).to(centred)[:, None]
        self._add_products(centred)
        # Σ(x-x̄)(x-x̄)ᵀ = Σ(x-s)(x-s)ᵀ - n(x̄-s)(x̄-s)ᵀ
        self._add_outer(-weight, low)
        self._merge(weight, squared, shift.double(), low)

    def _add_products(self, centred: Tensor) -> None:
        """Add ``Σ ccᵀ`` to the upper triangle, panel by panel, in float64 between products."""
        n, width = centred.shape
        whole = n // _ROWS * _ROWS
        for group in (centred[:whole].view(-1, _ROWS, width), centred[None, whole:]):
            if group.shape[0] * group.shape[1] == 0:
                continue
            for start, panel in self._panels():
                left = group[:, :, start : start + len(panel)].transpose(1, 2)
                if len(group) == 1:
                    panel += left[0] @ group[0, :, start:]
                else:
                    panel += (left @ group[:, :, start:]).sum(dim=0, dtype=torch.float64)

    def _add_outer(self, weight: float, vector: Tensor) -> None:
        for start, panel in self._panels():
            panel.addr_(vector[start : start + len(panel)], vector[start:], alpha=weight)

    def _panels(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the parts of the scatter from its diagonal on, and where each starts."""
        step = panel_width(len(self._scatter))
        for start in range(0, len(self._scatter), step):
            yield start, self._scatter[start : start + step, start:]

    # -- adding up -------------------------------------------------------------------------

    def copy(self) -> Self:
        """Return an independent copy."""
        new = copy.copy(self)  # the mean is never changed in place
        new._scatter = None if self._scatter is None else self._scatter.clone()
        return new

    def __iadd__(self, other: Any) -> Self:
        if not isinstance(other, DeviceMoments):
            return NotImplemented
        if other._mean is None:
            return self
        self._require_width(other.n_features)
        if self._scatter is None:
            self._scatter = other._scatter.to(self.device, copy=True)
        else:
            self._scatter += other._scatter.to(self.device)
        mean, low = other._mean.to(self.device), other._low.to(self.device)
        self._merge(other.total_weight, other._squared_weight, mean, low)
        return self

    # -- results ---------------------------------------------------------------------------

    def covariance(self) -> Tensor:
        """Return the covariance on the device, (n_features, n_features), float64, as a new one."""
        self._require_samples()
        upper = torch.triu(self._scatter / self.total_weight)
        return upper + torch.triu(upper, 1).T

    def variance(self) -> FloatArray:
        """Return the variance (``ddof=0``) of each feature, as a NumPy array."""
        self._require_samples()
        variance = self._scatter.diagonal().clamp(min=0.0) / self.total_weight
        return np.asarray(variance.cpu().numpy())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the moments to a file, which `Moments.load` reads."""
        self.to_moments().save(path)

    def to_moments(self) -> Moments:
        """Return the moments as those of NumPy."""
        moments = Moments(form="scatter")
        if self._mean is None:
            return moments
        mean, low = self._mean.cpu().numpy(), self._low.cpu().numpy()
        scatter = np.asfortranarray(self._scatter.to("cpu", copy=True).numpy().T)
        return moments._fill(scatter, (self.total_weight, self._squared_weight), mean, low)


def host_weights(weights: Any, n_rows: int) -> FloatArray | None:
    """Return checked weights as an array of NumPy: there are few of them."""
    if isinstance(weights, Tensor):
        weights = weights.detach().cpu().numpy()
    return check_weights(weights, n_rows, "weights")


def panel_width(n_features: int) -> int:
    """Return how many rows of the scatter are computed at a time."""
    # Whole tiles of 128, of which products are made.
    return max(_LEAST_PANEL, -(-n_features // (128 * _PANELS)) * 128)


def _mean_of(rows: Tensor, weights: FloatArray | None) -> Tensor:
    """Return the mean of each column in float64."""
    if weights is None:
        return rows.sum(dim=0, dtype=torch.float64) / len(rows)
    return torch.from_numpy(weights / weights.sum()).to(rows.device) @ rows.double()
