"""Rows into mean and scatter: the arithmetic of `cpcapp.Moments`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import blas

from cpcapp.moments.blocks import (
    SNIFFED,
    centre_full_columns,
    cut,
    is_far,
    mean_of,
    needs_no_centring,
    plain_mean_of,
    rank_one,
    weight_of,
)
from cpcapp.moments.rows import raise_if_not_finite

FloatArray = NDArray[np.float64]

# A block of this many rows is tall enough for syrk to run at full speed; its centred copy is
# the only one ever made.
_DENSE_BLOCK = 1024
# Where no centring is needed nothing is copied, and blocks may be larger.
_RAW_BLOCK = 8192
# The cancellation left in a sparse block is at most its row count times the rounding unit.
_SPARSE_BLOCK = 65_536
# Sparse rows of at least this many features are kept beyond as many samples, up to this many stored
# values for each entry of the scatter. A value takes 12 bytes with its place, so that the rows take
# at most 3/8 of the memory of the scatter; benchmarks/results/sparse.md has the times.
_SPARSE_ROWS_FROM = 2000
_SPARSE_ROWS_SHARE = 0.25


class Accumulator:
    """Mean and scatter while rows come in; `cpcapp.Moments` is its public face.

    As long as that is smaller, the rows are kept in place of the scatter.

    Parameters
    ----------
    form : {"auto", "scatter"}
        ``"scatter"`` never keeps rows.
    """

    def __init__(self, form: str) -> None:
        self.form = form
        self.mean: FloatArray | None = None
        self._clear()

    def _clear(self) -> None:
        self.total_weight = 0.0
        self._squared_weight = 0.0
        self.mean = None
        # The mean to twice the digits is mean + low: of a mean of 1e12 float64 keeps only the
        # fourth decimal, which is too coarse to merge two blocks by.
        self._low: FloatArray | None = None
        self._rows: list[Any] = []
        self._row_weights: list[FloatArray | None] = []  # of each block; None if all are 1
        # How far variances may be off (times total_weight) since samples were removed.
        self._rounding: FloatArray | None = None
        self._scatter: FloatArray | None = None  # lower triangle, Fortran order: what syrk fills

    def _start(self, n_features: int) -> None:
        self.mean, self._low = np.zeros(n_features), np.zeros(n_features)

    def _absorb(self, rows: Any, weights: FloatArray | None = None) -> None:
        n, m = rows.shape
        if n == 0:
            return
        if self.mean is None:
            self._start(m)
        if self._keeps(rows, weights):
            self._keep(rows.copy() if sp.issparse(rows) else np.array(rows, np.float64), weights)
            return
        self._fold()
        self._add(rows, weights)

    def _keep(self, rows: Any, weights: FloatArray | None) -> None:
        """Keep rows as they are."""
        if sp.issparse(rows):
            centred, shift = centre_full_columns(rows)
        else:
            shift = mean_of(rows, weights)
            centred = rows - shift
        raise_if_not_finite(shift)
        rest = mean_of(centred, weights)
        raise_if_not_finite(rest)
        self._append(rows, weights)
        self._move_mean(*weight_of(rows, weights), shift, rest)

    def _keeps(self, rows: Any, weights: FloatArray | None) -> bool:
        """Return whether these rows and all before them are a smaller form than the scatter."""
        if self.form != "auto" or self._scatter is not None:
            return False
        n, m = rows.shape
        if sum(block.shape[0] for block in self._rows) + n < m:
            return True
        blocks = [*self._rows, rows]
        if m < _SPARSE_ROWS_FROM or not all(sp.issparse(block) for block in blocks):
            return False
        if weights is not None or self._is_weighted():  # no solver multiplies with weighted rows
            return False
        stored = sum(int(block.nnz) for block in blocks)
        return stored <= _SPARSE_ROWS_SHARE * int(m) ** 2

    def _is_weighted(self) -> bool:
        return self.total_weight != self._squared_weight or any(
            weights is not None for weights in self._row_weights
        )

    def _append(self, rows: Any, weights: FloatArray | None) -> None:
        self._rows.append(rows)
        self._row_weights.append(weights)
        # Sparse blocks of like size are joined, as digits carry: of many small chunks there are
        # never more than a few blocks.
        while len(self._rows) > 1 and all(sp.issparse(block) for block in self._rows[-2:]):
            weighted = any(its is not None for its in self._row_weights[-2:])
            if weighted or self._rows[-2].shape[0] > self._rows[-1].shape[0]:
                break
            self._rows[-2:] = [sp.csr_array(sp.vstack(self._rows[-2:], format="csr"))]
            del self._row_weights[-1]

    def _fold(self) -> None:
        """Turn the rows kept so far into a scatter matrix."""
        if self._scatter is not None or self.mean is None:
            return
        m = self.mean.shape[0]
        blocks = list(zip(self._rows, self._row_weights, strict=True))
        if blocks:
            rounding = self._rounding
            self._clear()
            self._start(m)
            self._rounding = rounding
        self._scatter = np.zeros((m, m), order="F")
        for block, weights in blocks:
            self._add(block, weights)

    def _add(self, rows: Any, weights: FloatArray | None = None) -> None:
        n, m = rows.shape
        if sp.issparse(rows):
            for start in range(0, n, _SPARSE_BLOCK):
                stop = start + _SPARSE_BLOCK
                self._add_sparse(rows[start:stop], cut(weights, start, stop))
            return
        work = None
        for start in range(0, n, _RAW_BLOCK):
            large = rows[start : start + _RAW_BLOCK]
            plain = weights is None and large.dtype == np.float64 and large.flags.c_contiguous
            if plain and len(large) > SNIFFED:
                mean = plain_mean_of(large)
                if needs_no_centring(large, mean):
                    self._add_raw(large, mean)
                    continue
            if work is None:
                # One for all blocks: fresh pages would cost as much as the products.
                work = np.empty((min(n, _DENSE_BLOCK) + 1, m))
            for first in range(0, len(large), _DENSE_BLOCK):
                block = large[first : first + _DENSE_BLOCK]
                its = cut(weights, start + first, start + first + _DENSE_BLOCK)
                self._add_centred(block, work[: len(block) + 1], its)

    def _add_raw(self, block: NDArray[Any], mean: FloatArray) -> None:
        """Add rows as they are, without a centred copy."""
        self._scatter = blas.dsyrk(1.0, block.T, beta=1.0, c=self._scatter, lower=1, overwrite_c=1)
        n = float(len(block))
        self._merge_uncentred(n, n, mean, mean)

    def _add_centred(
        self, block: NDArray[Any], work: FloatArray, weights: FloatArray | None
    ) -> None:
        n = len(block)
        shift = mean_of(block, weights)
        raise_if_not_finite(shift)
        np.subtract(block, shift, out=work[:n])
        rest = np.zeros_like(shift)
        if is_far(shift, work[:n]):
            # The mean is off by its own rounding; what is left of it is exact.
            rest = mean_of(work[:n], weights)
            work[:n] -= rest
        if weights is not None:
            work[:n] *= np.sqrt(weights)[:, None]
        weight, squared = weight_of(block, weights)
        # S_ab = S_a + S_b + (n_a n_b / n_ab) δδᵀ: the last term rides along as one more row.
        step = self._mean_step(shift, rest)
        np.multiply(step, np.sqrt(self._merge_weight(weight)), out=work[n])
        self._scatter = blas.dsyrk(1.0, work.T, beta=1.0, c=self._scatter, lower=1, overwrite_c=1)
        self._move_mean(weight, squared, shift, rest)

    def _merge_uncentred(
        self,
        weight: float,
        squared: float,
        offset: FloatArray,
        mean: FloatArray,
        low: FloatArray | float = 0.0,
    ) -> None:
        """Finish adding a block whose products were added about ``mean + low - offset``."""
        raise_if_not_finite(mean)
        assert self._scatter is not None
        rank_one(self._scatter, offset, -weight)
        if self.total_weight > 0.0:
            rank_one(self._scatter, self._mean_step(mean, low), self._merge_weight(weight))
        self._move_mean(weight, squared, mean, low)

    def _add_sparse(self, block: Any, weights: FloatArray | None) -> None:
        shifted, shift = centre_full_columns(block)
        offset = mean_of(shifted, weights)
        raise_if_not_finite(offset)
        if weights is not None:
            shifted = sp.csr_array(shifted.multiply(np.sqrt(weights)[:, None]))
        gram = (shifted.T @ shifted).toarray()
        assert self._scatter is not None
        self._scatter += gram.T
        self._merge_uncentred(*weight_of(block, weights), offset, shift, offset)

    def _merge_weight(self, weight: float) -> float:
        return self.total_weight * weight / (self.total_weight + weight)

    def _mean_step(self, mean: FloatArray, low: FloatArray | float = 0.0) -> FloatArray:
        assert self.mean is not None and self._low is not None
        return (mean - self.mean) + (low - self._low)

    def _move_mean(
        self, weight: float, squared: float, mean: FloatArray, low: FloatArray | float = 0.0
    ) -> None:
        assert self.mean is not None and self._low is not None
        self.total_weight += weight
        self._squared_weight += squared
        if self.total_weight == weight:
            self._set_mean(mean, low)  # a step from 0 has fewer digits
        else:
            step = self._mean_step(mean, low)
            self._set_mean(self.mean, self._low + step * (weight / self.total_weight))

    def _set_mean(self, mean: FloatArray, low: FloatArray | float) -> None:
        """Set the mean to ``mean + low``, and ``low`` to the digits that do not fit."""
        if isinstance(low, float) and low == 0.0:
            self.mean, self._low = mean.copy(), np.zeros(len(mean))
            return
        self.mean = mean + low
        part = self.mean - mean
        self._low = (mean - (self.mean - part)) + (low - part)
