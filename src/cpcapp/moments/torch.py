"""Moments and contrasts of torch tensors, on the device where the tensors are.

Float32 data is multiplied in float32, a thousand rows at a time, and added up in float64;
float64 data is multiplied in float64. Needs the extra ``torch``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from cpcapp.moments.moments import FloatArray, Moments, Spread
from cpcapp.moments.rows import NonFiniteError
from cpcapp.moments.spread import find_spread
from cpcapp.moments.weights import check_weights

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise ImportError(
        "cpcapp.moments.torch needs torch; install it with: pip install 'cpcapp[torch]'"
    ) from error

__all__ = ["DeviceMoments", "Tensor", "check_device", "moments_of_tensor", "torch"]

# Rows of one matrix product. In float32 its rounding grows with this number.
_ROWS = 1024
# Of a symmetric matrix only so many panels above the diagonal are computed, which is 7/12 of it.
# Narrow ones would be slow.
_PANELS, _LEAST_PANEL = 6, 256
# Numbers in the centred copy of some rows, and in the products that are added up together.
_MAX_ROWS_NUMBERS, _MAX_PRODUCT_NUMBERS = 1 << 27, 1 << 27


def check_device(device: Any) -> torch.device:
    """Return a device, or raise ``ValueError`` unless torch can compute there in float64.

    Examples
    --------
    >>> check_device("gpu")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: device='gpu' can't be used here; use 'cpu', or 'cuda' with an NVIDIA card ...
    """
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
        return torch.device(device)
    except Exception as error:  # torch has many, and some are AssertionError
        reason = " ".join(str(error).split())[:100]
        raise ValueError(
            f"device={str(device)!r} can't be used here; use 'cpu', or 'cuda' with an NVIDIA card "
            f"and its driver ({reason})"
        ) from error


def moments_of_tensor(
    x: Any, weights: Any = None, *, allow_tf32: bool = False, double: bool = False
) -> Moments:
    """Return the moments of a tensor, computed on its device.

    Parameters
    ----------
    x : tensor of shape (n, n_features)
        Float64 is multiplied in float64, all else in float32; sums are float64.
    weights : tensor or array-like of shape (n,), optional
    allow_tf32 : bool, default=False
        Multiply in TF32 where the device has it: faster, but correlations are off by 1e-5.
    double : bool, default=False
        Multiply in float64 whatever the type of ``x``. The result is that of NumPy to 1e-12. Cards
        for data centres do that as fast as float32; others take up to 64 times as long.

    Returns
    -------
    Moments
        With fewer rows than features those of the rows themselves, as `Moments.of` gives them.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from cpcapp import Moments
    >>> X = np.random.default_rng(0).normal(3.0, 2.0, size=(500, 4))
    >>> found = moments_of_tensor(torch.from_numpy(X))
    >>> bool(np.allclose(found.covariance(), Moments.of(X).covariance(), rtol=1e-12))
    True
    """
    rows = _check_rows(x)
    if len(rows) < rows.shape[1]:
        given = weights.cpu().numpy() if isinstance(weights, Tensor) else weights
        return Moments.of(rows.cpu().numpy(), sample_weight=given)
    found = DeviceMoments(rows.device, allow_tf32=allow_tf32, double=double)
    return found.update(rows, weights).to_moments()


class DeviceMoments:
    """Sample count, mean and scatter that stay on a device until they are asked for.

    Adds up like `cpcapp.Moments`. `cpcapp.solve_contrast` takes them as they are, and solves on
    their device.

    Parameters
    ----------
    device : torch.device or str, default="cuda"
    allow_tf32, double : bool, default=False
        As for `moments_of_tensor`.

    Examples
    --------
    >>> import torch
    >>> from cpcapp import solve_contrast
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch...>
    >>> target, background = DeviceMoments("cpu"), DeviceMoments("cpu")
    >>> for _ in range(3):
    ...     background.update(torch.randn(400, 3) * torch.tensor([9.0, 1.0, 1.0]))
    ...     target.update(torch.randn(400, 3) * torch.tensor([9.0, 1.0, 4.0]))
    DeviceMoments(n_samples=400, n_features=3, device='cpu')
    DeviceMoments(n_samples=400, n_features=3, device='cpu')
    DeviceMoments(n_samples=800, n_features=3, device='cpu')
    DeviceMoments(n_samples=800, n_features=3, device='cpu')
    DeviceMoments(n_samples=1200, n_features=3, device='cpu')
    DeviceMoments(n_samples=1200, n_features=3, device='cpu')
    >>> int(abs(solve_contrast(target, background, 1).filters[:, 0]).argmax())
    2
    """

    # The rows are never kept.
    is_thin = False

    def __init__(
        self, device: Any = "cuda", *, allow_tf32: bool = False, double: bool = False
    ) -> None:
        self.device = check_device(device)
        self.allow_tf32, self.double = allow_tf32, double
        self.total_weight = 0.0
        self._squared_weight = 0.0
        # The mean is mean + low, as in `Moments`; the scatter is valid on and above its diagonal.
        self._mean: Tensor | None = None
        self._low: Tensor | None = None
        self._scatter: Tensor | None = None

    @classmethod
    def of(cls, moments: Moments, device: Any = "cuda", **options: Any) -> Self:
        """Return moments of NumPy as moments on a device.

        Examples
        --------
        >>> DeviceMoments.of(Moments.of(np.eye(3)), "cpu").n_samples
        3
        """
        self = cls(device, **options)
        if moments.mean is None:
            return self
        # In Fortran order the lower triangle is the upper one of the transpose.
        scatter = torch.from_numpy(moments._lower().T)
        self._scatter = scatter.to(self.device, copy=True)
        self._mean = torch.from_numpy(moments.mean).to(self.device, copy=True)
        low = np.zeros_like(moments.mean) if moments._low is None else moments._low
        self._low = torch.from_numpy(np.array(low)).to(self.device)
        self.total_weight, self._squared_weight = moments.total_weight, moments._squared_weight
        return self

    @property
    def n_samples(self) -> int:
        """Number of samples; with weights Kish's effective number, rounded."""
        if self.total_weight == 0.0:
            return 0
        return max(1, round(self.total_weight / self._squared_weight * self.total_weight))

    @property
    def n_features(self) -> int | None:
        """Number of features, or None before the first chunk."""
        return None if self._mean is None else int(self._mean.shape[0])

    @property
    def is_weighted(self) -> bool:
        """Whether any sample has another weight than 1."""
        return self.total_weight != self._squared_weight

    def __repr__(self) -> str:
        return (
            f"DeviceMoments(n_samples={self.n_samples}, n_features={self.n_features}, "
            f"device='{self.device}')"
        )

    # -- reading data ----------------------------------------------------------------------

    def update(self, chunk: Any, weights: Any = None) -> Self:
        """Add samples.

        Parameters
        ----------
        chunk : tensor of shape (n, n_features)
            Moved to the device of the moments if it is elsewhere. One with NaN or infinity raises
            ``ValueError`` and leaves the moments as they were.
        weights : tensor or array-like of shape (n,), optional
            At least 0.

        Returns
        -------
        DeviceMoments
            itself.
        """
        rows = _check_rows(chunk)
        n, width = rows.shape
        if self._mean is not None and width != self.n_features:
            raise ValueError(f"chunk has {width} features, but the moments have {self.n_features}")
        if isinstance(weights, Tensor):
            weights = weights.detach().cpu().numpy()
        values = check_weights(weights, n, "weights")
        if not n:
            return self
        if values is not None:
            _checked_mean(rows)
        if values is not None and not values.all():
            kept = np.flatnonzero(values)
            rows, values = rows[torch.from_numpy(kept).to(rows.device)], values[kept]
        if not len(rows):
            return self
        if self._mean is None:
            self._start(width)
        together = self._rows_together(width)
        starts = range(0, len(rows), together)
        blocks = [rows[start : start + together] for start in starts]
        # All means before anything is added: a bad value anywhere changes nothing.
        means = [None if values is not None else _checked_mean(block) for block in blocks]
        with _matrix_products(self.allow_tf32):
            for start, block, mean in zip(starts, blocks, means, strict=True):
                part = None if values is None else values[start : start + together]
                self._add(block.to(self.device), part, mean)
        return self

    def _start(self, width: int) -> None:
        exact: dict[str, Any] = {"dtype": torch.float64, "device": self.device}
        self._mean, self._low = torch.zeros(width, **exact), torch.zeros(width, **exact)
        self._scatter = torch.zeros((width, width), **exact)

    def _rows_together(self, width: int) -> int:
        groups = max(1, _MAX_PRODUCT_NUMBERS // (width * panel_width(width)))
        groups = min(groups, max(1, _MAX_ROWS_NUMBERS // (width * _ROWS)))
        return groups * _ROWS

    def _add(self, rows: Tensor, weights: FloatArray | None, mean: Tensor | None) -> None:
        exact = self.double or rows.dtype in (torch.float64, torch.int32, torch.int64)
        rows = rows.to(torch.float64 if exact else torch.float32)
        weight = squared = float(len(rows))
        shares: Tensor | None = None
        if weights is not None:
            weight, squared = float(weights.sum()), float(weights @ weights)
            shares = torch.from_numpy(weights / weight).to(self.device)
        mean = _mean_of(rows, shares) if mean is None else mean.to(self.device)
        # Rounded to the type of the rows, so that the difference is exact where they are alike.
        shift = mean.to(rows.dtype)
        centred = rows - shift
        # What rounding has left of the mean. In float64 the mean itself is rounded.
        rest = _mean_of(centred, shares) if exact else mean - shift.double()
        if weights is not None:
            roots = torch.from_numpy(np.sqrt(weights)).to(self.device)
            centred *= roots[:, None].to(centred.dtype)
        self._add_products(centred)
        self._merge(weight, squared, shift.double(), rest)

    def _add_products(self, centred: Tensor) -> None:
        """Add ``Σ ccᵀ`` to the upper triangle, panel by panel."""
        assert self._scatter is not None
        n, width = centred.shape
        step = panel_width(width)
        whole = n // _ROWS * _ROWS
        groups = [centred[:whole].view(-1, _ROWS, width), centred[None, whole:]]
        for group in groups:
            if not group.shape[0] * group.shape[1]:
                continue
            for start in range(0, width, step):
                left = group[:, :, start : start + step].transpose(1, 2)
                panel = self._scatter[start : start + step, start:]
                if len(group) == 1:
                    panel += left[0] @ group[0, :, start:]
                else:
                    panel += (left @ group[:, :, start:]).sum(dim=0, dtype=torch.float64)

    def _merge(self, weight: float, squared: float, mean: Tensor, rest: Tensor) -> None:
        """Finish adding rows of mean ``mean + rest`` whose products were added about ``mean``."""
        assert self._mean is not None and self._low is not None
        step = (mean - self._mean) + (rest - self._low)
        merged = self.total_weight * weight / (self.total_weight + weight)
        # S_ab = S_a + S_b + (n_a n_b / n_ab) δδᵀ, and S_b = Σccᵀ - n_b·rest·restᵀ.
        self._add_rank_one((-weight, rest), (merged, step))
        first = self.total_weight == 0.0
        self.total_weight += weight
        self._squared_weight += squared
        if first:
            self._set_mean(mean, rest)
        else:
            self._set_mean(self._mean, self._low + step * (weight / self.total_weight))

    def _add_rank_one(self, *terms: tuple[float, Tensor]) -> None:
        assert self._scatter is not None
        right = torch.stack([vector for _, vector in terms])
        left = torch.stack([factor * vector for factor, vector in terms])
        step = panel_width(right.shape[1])
        for start in range(0, right.shape[1], step):
            panel = self._scatter[start : start + step, start:]
            panel.addmm_(left[:, start : start + step].T, right[:, start:])

    def _set_mean(self, mean: Tensor, low: Tensor) -> None:
        self._mean = mean + low
        part = self._mean - mean
        self._low = (mean - (self._mean - part)) + (low - part)

    # -- adding up -------------------------------------------------------------------------

    def copy(self) -> Self:
        """Return an independent copy."""
        new = type(self)(self.device, allow_tf32=self.allow_tf32, double=self.double)
        new.total_weight, new._squared_weight = self.total_weight, self._squared_weight
        new._mean, new._low = self._mean, self._low  # never changed in place
        new._scatter = None if self._scatter is None else self._scatter.clone()
        return new

    def __add__(self, other: DeviceMoments) -> Self:
        if not isinstance(other, DeviceMoments):
            return NotImplemented
        return self.copy().__iadd__(other)

    def __radd__(self, other: object) -> Self:
        return self if other == 0 else NotImplemented  # so that sum() works

    def __iadd__(self, other: DeviceMoments) -> Self:
        if not isinstance(other, DeviceMoments):
            return NotImplemented
        if other._mean is None:
            return self
        if self._mean is None:
            self._start(len(other._mean))
        if self.n_features != other.n_features:
            raise ValueError(
                f"can't add moments of {self.n_features} and of {other.n_features} features"
            )
        assert self._scatter is not None and other._scatter is not None and other._low is not None
        self._scatter += other._scatter.to(self.device)
        mean, low = other._mean.to(self.device), other._low.to(self.device)
        # Its scatter is about its mean already: nothing is left to take off.
        self._merge_centred(other.total_weight, other._squared_weight, mean, low)
        return self

    def _merge_centred(self, weight: float, squared: float, mean: Tensor, low: Tensor) -> None:
        # Σccᵀ about the mean itself is Σccᵀ about mean + low less n·low·lowᵀ, which _merge takes.
        self._add_rank_one((weight, low))
        self._merge(weight, squared, mean, low)

    # -- results ---------------------------------------------------------------------------

    @property
    def mean(self) -> FloatArray | None:
        """The mean as a NumPy array, (n_features,); None before the first chunk."""
        return None if self._mean is None else self._mean.cpu().numpy()

    def covariance(self) -> Tensor:
        """Return the covariance on the device, (n_features, n_features), float64, as a new one."""
        if self._scatter is None:
            raise ValueError("the moments hold no samples yet; call update first")
        upper = torch.triu(self._scatter / self.total_weight)
        return upper + torch.triu(upper, 1).T

    def spread(self) -> Spread:
        """Return the variance of each feature, and which features are constant."""
        if self._scatter is None or self._mean is None:
            raise ValueError("the moments hold no samples yet; call update first")
        variance = self._scatter.diagonal().clamp(min=0.0) / self.total_weight
        return find_spread(variance.cpu().numpy(), self._mean.cpu().numpy())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the moments to a file, which `Moments.load` reads."""
        self.to_moments().save(path)

    def to_moments(self) -> Moments:
        """Return the moments as those of NumPy.

        Examples
        --------
        >>> DeviceMoments("cpu").update(torch.tensor([[1.0], [3.0]])).to_moments().covariance()
        array([[1.]])
        """
        found = Moments(form="scatter")
        if self._scatter is None or self._mean is None or self._low is None:
            return found
        found._set_mean(self._mean.cpu().numpy(), self._low.cpu().numpy())
        found.total_weight, found._squared_weight = self.total_weight, self._squared_weight
        found._scatter = np.asfortranarray(self._scatter.to("cpu", copy=True).numpy().T)
        return found


def panel_width(n_features: int) -> int:
    """Return how many rows of the scatter are computed at a time.

    Examples
    --------
    >>> panel_width(784), panel_width(12288)
    (256, 2048)
    """
    # Whole tiles of 128, of which products are made.
    return max(_LEAST_PANEL, -(-n_features // (128 * _PANELS)) * 128)


def _mean_of(rows: Tensor, shares: Tensor | None) -> Tensor:
    """Return the mean of each column in float64, by the shares of the rows if there are any."""
    if shares is None:
        return rows.sum(dim=0, dtype=torch.float64) / len(rows)
    return shares @ rows.double()


def _check_rows(x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"x is a {type(x).__name__}; it must be a torch tensor")
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"x has shape {tuple(x.shape)}; it must be (n_samples, n_features)")
    if x.is_complex():
        raise ValueError(f"x has type {x.dtype}; it must be real")
    return x.detach()


def _checked_mean(rows: Tensor) -> Tensor:
    """Return the mean of each column in float64, or raise if a value is NaN or infinite."""
    # NaN and infinity stay what they are in a sum. What overflows in it can't be squared either.
    mean = _mean_of(rows, None)
    if not bool(mean.isfinite().all()):
        raise NonFiniteError(np.flatnonzero(~mean.isfinite().cpu().numpy()))
    return mean


@contextmanager
def _matrix_products(allow_tf32: bool) -> Iterator[None]:
    """Multiply float32 as told, whatever the settings of the process, and restore those."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allow_tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
