"""The dense algebra of a contrast on a device, by torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.contrast.dense import count_rank, has_full_rank
from cpcapp.moments.moments import FloatArray, Moments
from cpcapp.moments.torch import DeviceMoments, Tensor, check_device, torch


class TorchAlgebra:
    """`cpcapp.contrast.dense.DenseAlgebra` on a device, in float64.

    Matrices are full. Filters come and go as NumPy arrays: they are small beside a matrix.

    Parameters
    ----------
    device : torch.device or str
    """

    solver = "dense"

    def __init__(self, device: Any) -> None:
        self.device = check_device(device)

    def covariance(self, moments: Any, constant: NDArray[np.bool_], overwrite: bool) -> Tensor:
        """Return the covariance, 0 for constant features, free to be changed."""
        if isinstance(moments, Moments):
            moments = DeviceMoments.of(moments, self.device)
        covariance: Tensor = moments.covariance().to(self.device)
        if constant.any():
            at = torch.from_numpy(constant).to(self.device)
            covariance[at, :] = 0.0
            covariance[:, at] = 0.0
        return covariance

    def copy(self, a: Tensor) -> Tensor:
        """Return a copy."""
        return a.clone()

    def load(self, a: Tensor, weight: float, diagonal: FloatArray) -> None:
        """Make ``weight · A + diag(diagonal)`` of a matrix, in place."""
        a *= weight
        a.diagonal().add_(self._up(diagonal))

    def traces(self, a: Tensor, units: FloatArray) -> tuple[float, float]:
        """Return the traces of a matrix in units, and of its square."""
        scaled = self._in_units(a, units)
        return float(scaled.trace()), float(torch.linalg.vector_norm(scaled) ** 2)

    def spectrum(self, a: Tensor, units: FloatArray) -> FloatArray:
        """Return the eigenvalues of a matrix in units."""
        return _down(torch.linalg.eigvalsh(self._in_units(a, units)))

    def cholesky(self, a: Tensor) -> Tensor | None:
        """Return the lower factor, or None if singular to rounding."""
        lower, failed = torch.linalg.cholesky_ex(a)
        if int(failed):
            return None
        return lower if has_full_rank(_down(lower.diagonal()), _down(a.diagonal())) else None

    def rank(self, a: Tensor) -> int:
        """Return the numerical rank."""
        diagonal = _down(a.diagonal())
        return count_rank(self.spectrum(a, np.where(diagonal > 0.0, diagonal, 1.0)))

    def reduce(self, a: Tensor, lower: Tensor) -> Tensor:
        """Return ``L⁻¹ A L⁻ᵀ``."""
        half = torch.linalg.solve_triangular(lower, a, upper=False)
        c = torch.linalg.solve_triangular(lower, half.T, upper=False)
        return (c + c.T) / 2.0

    def top(
        self, c: Tensor, k: int, again: Callable[[], Tensor] | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the ``k`` largest eigenpairs, descending."""
        values, vectors = torch.linalg.eigh(c)
        found = _down(vectors[:, -k:].flip(1))
        return _down(values[-k:].flip(0)), np.asfortranarray(found)

    def largest(self, a: Tensor) -> float:
        """Return the largest eigenvalue."""
        return float(torch.linalg.eigvalsh(a)[-1])

    def solve(self, lower: Tensor, x: FloatArray, transposed: bool = False) -> FloatArray:
        """Return ``L⁻¹ x`` or ``L⁻ᵀ x``."""
        factor = lower.T if transposed else lower
        return _down(torch.linalg.solve_triangular(factor, self._up(x), upper=transposed))

    def times_lower(self, lower: Tensor, x: FloatArray) -> FloatArray:
        """Return ``L x``."""
        return _down(lower @ self._up(x))

    def times(self, c: Tensor, x: FloatArray) -> FloatArray:
        """Return ``C x``."""
        return _down(c @ self._up(x))

    def subtract(self, c: Tensor, p: FloatArray, y: FloatArray) -> Tensor:
        """Return ``C - p yᵀ - y pᵀ``."""
        product = self._up(p) @ self._up(y).T
        return c - product - product.T

    def freedom(self, lower: Tensor, diagonal: FloatArray) -> float:
        """Return ``tr((LLᵀ - D)(LLᵀ)⁻¹)``."""
        if not diagonal.any():
            return float(len(lower))
        roots = torch.diag(self._up(np.sqrt(diagonal)))
        part = torch.linalg.solve_triangular(lower, roots, upper=False)
        return len(lower) - float(torch.linalg.vector_norm(part) ** 2)

    def difference(self, a: Tensor, b: Tensor, alpha: float, units: FloatArray) -> Tensor:
        """Return ``A - αB`` in units, as a new matrix."""
        return self._in_units(a - alpha * b, units)

    @contextmanager
    def kept(self, *matrices: Tensor) -> Iterator[list[Tensor]]:
        """Give copies of the matrices."""
        yield [matrix.clone() for matrix in matrices]

    def _up(self, values: FloatArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def _in_units(self, a: Tensor, units: FloatArray) -> Tensor:
        scale = self._up(1.0 / np.sqrt(units))
        return a * scale[:, None] * scale


def _down(values: Tensor) -> FloatArray:
    return np.asarray(values.cpu().numpy())
