"""Mean and scatter that add up: the only thing this package ever learns from data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas

from cpcapp import _moments_files
from cpcapp._blocks import (
    SNIFFED,
    cut,
    is_far,
    mean_of,
    mirror,
    needs_no_centring,
    plain_mean_of,
    quiet,
    rank_one,
    sum_or_none,
    weight_of,
)
from cpcapp._dask_blocks import sum_blocks
from cpcapp._removal import LeftOver, drop_rows, removal_rounding, require_digits
from cpcapp._rows import (
    FeatureRangeError,
    NonFiniteError,
    as_rows,
    raise_if_not_finite,
    require_finite,
)
from cpcapp._sources import kind_of, weighted_row_chunks
from cpcapp._weights import LEAST_WEIGHT, drop_zero_weights

__all__ = ["FeatureRangeError", "FloatArray", "Moments", "NonFiniteError", "Spread"]

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
# Deviations below this fraction of the mean are rounding, not variation.
_CONSTANT = 1e3 * np.finfo(np.float64).eps
# Between these a variance, and a covariance of 1e-16 of it, is neither infinite nor 0. They leave
# room for deviations of 1e-150 to 1e150, the range that messages give.
_LEAST_VARIANCE, _MOST_VARIANCE = 1e-304, 1e304

_FORMS = ("auto", "scatter")


@dataclass(frozen=True)
class Spread:
    """How much each feature varies, as `Moments.spread` computes it.

    Attributes
    ----------
    variance : ndarray of shape (n_features,)
        With ``ddof=0``.
    constant : ndarray of bool of shape (n_features,)
        Which features do not vary beyond rounding.
    out_of_range : ndarray of bool of shape (n_features,)
        Which features are too large or too small to be squared, so that it is not known how much
        they vary.
    """

    variance: FloatArray
    constant: NDArray[np.bool_]
    out_of_range: NDArray[np.bool_]


def find_spread(variance: FloatArray, mean: FloatArray) -> Spread:
    """Return what variances say beside the means of their features; see `Moments.spread`."""
    size = np.abs(mean)
    inside = (variance >= _LEAST_VARIANCE) & (variance <= _MOST_VARIANCE)
    if np.count_nonzero(inside) == len(variance) > 0:
        constant = np.sqrt(variance) <= _CONSTANT * size
        return Spread(variance, constant, np.zeros(len(size), dtype=bool))
    constant = np.sqrt(np.maximum(variance, 0.0)) <= _CONSTANT * size
    # Squares of small deviations are 0, as if the feature were constant: then its mean tells.
    lost = (variance < _LEAST_VARIANCE) & np.where(constant, (size > 0) & (size < 1e-150), True)
    return Spread(variance, constant, lost | ~(variance <= _MOST_VARIANCE))


class Moments:
    """Sample count, mean and scatter of a data set that arrives in pieces.

    The scatter is the sum of ``(x - mean)(x - mean)ᵀ`` over the samples. Pieces may have any
    size and come in any order; the result is that of one pass over all the data, without the
    cancellation of ``Σxxᵀ - n·mean·meanᵀ``.

    While there are fewer samples than features the rows themselves are the smallest exact form
    of the scatter, and they are what is kept (``is_thin``), so that 300 samples of 20,000
    features never become a 20,000 x 20,000 matrix. From then on only the scatter is kept. Sparse
    rows of 2000 features or more are kept further, while they store no more than a quarter as many
    values as the scatter has.

    Parameters
    ----------
    form : {"auto", "scatter"}, default="auto"
        ``"scatter"`` goes to the ``(n_features, n_features)`` matrix at once. Choose it if the
        moments are handed on (``save``) and single rows must not be.

    Attributes
    ----------
    n_samples : int
        With weights Kish's effective number, ``(Σw)² / Σw²``, rounded: what shrinkage and tests
        go by. It does not change if all weights are multiplied by a number.
    total_weight : float
        ``Σw``, by which the scatter is divided. Without weights the number of samples.
    n_features : int or None
        None before the first chunk.
    mean : ndarray of shape (n_features,) or None
    is_thin : bool

    Notes
    -----
    Everything is computed in float64, float32 chunks too. Sparse chunks are never made dense.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import Moments
    >>> X = np.random.default_rng(0).normal(loc=1e6, size=(1000, 3))
    >>> a = Moments().update(X[:100]).update(X[100:450])
    >>> b = Moments().update(X[450:])
    >>> bool(np.allclose((a + b).covariance(), np.cov(X.T, ddof=0), rtol=1e-10))
    True
    """

    def __init__(self, *, form: str = "auto") -> None:
        if form not in _FORMS:
            raise ValueError(f"form={form!r} must be one of {', '.join(map(repr, _FORMS))}")
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

    @classmethod
    def of(cls, data: Any, *, sample_weight: Any = None, form: str = "auto") -> Self:
        """Return the moments of an array, a sparse matrix, a memory map or an iterable of those.

        Unlike ``update`` this reads the data once only: there is nothing to lose if a bad value
        turns up half way.

        Parameters
        ----------
        data : array-like or sparse matrix of shape (n, n_features), or an iterable of those
            Also a dataset of h5py or zarr, Arrow data (a table, batches, a Parquet file, a data
            set of many), a torch tensor and a CuPy array: they are read in chunks. The blocks of a
            Dask array or dataframe are added up by a tree, on a cluster if there is a client.
        sample_weight : array-like of shape (n,), float, or an iterable of those, optional
            As in `update`.
        form : {"auto", "scatter"}, default="auto"

        Returns
        -------
        Moments

        Examples
        --------
        >>> import numpy as np
        >>> Moments.of(np.arange(10.0).reshape(5, 2) for _ in range(3)).n_samples
        15
        """
        _refuse_moments(data)
        if kind_of(data) == "dask":
            found: Self = sum_blocks(data, partial(_of_block, cls, form), sample_weight)
            return found
        self = cls(form=form)
        for chunk, weights in weighted_row_chunks(data, sample_weight):
            with quiet():
                self._absorb(*drop_zero_weights(self._check(chunk), weights))
        return self

    @classmethod
    def from_covariance(cls, covariance: ArrayLike, n_samples: int, mean: ArrayLike = 0.0) -> Self:
        """Return moments with a given covariance (``ddof=0``), for example a population's.

        Examples
        --------
        >>> import numpy as np
        >>> Moments.from_covariance(np.diag([2.0, 3.0]), n_samples=100).variance()
        array([2., 3.])
        """
        cov = np.asarray(covariance, dtype=np.float64)
        if cov.ndim != 2 or cov.shape[0] != cov.shape[1] or cov.shape[0] == 0:
            raise ValueError(f"covariance has shape {cov.shape}; it must be square")
        if not np.isfinite(cov).all() or not np.allclose(cov, cov.T, rtol=1e-8, atol=0):
            raise ValueError("covariance must be finite and symmetric")
        if n_samples < 1:
            raise ValueError(f"n_samples={n_samples} must be at least 1")
        self = cls(form="scatter")
        self._start(cov.shape[0])
        self.total_weight = self._squared_weight = float(int(n_samples))
        self.mean = np.broadcast_to(np.asarray(mean, dtype=np.float64), cov.shape[0]).copy()
        self._scatter = np.asfortranarray(cov * n_samples)
        return self

    @classmethod
    def from_scatter(cls, scatter: FloatArray, like: Moments, mean: FloatArray) -> Self:
        """Return moments with a given scatter and mean, and the weights of others.

        Examples
        --------
        >>> import numpy as np
        >>> like = Moments.of(np.ones((4, 3)))
        >>> Moments.from_scatter(np.array([[8.0]]), like, np.zeros(1)).covariance()
        array([[2.]])
        """
        self = cls(form="scatter")
        self._set_mean(np.asarray(mean, dtype=np.float64), np.zeros(len(mean)))
        self.total_weight, self._squared_weight = like.total_weight, like._squared_weight
        self._scatter = np.array(scatter, dtype=np.float64, order="F")
        return self

    @classmethod
    def from_centred_rows(cls, rows: FloatArray, like: Moments, mean: FloatArray) -> Self:
        """Return thin moments of other rows than ``like.centred_rows()``, with the same weights.

        Examples
        --------
        >>> import numpy as np
        >>> like = Moments.of(np.eye(2, 3))
        >>> Moments.from_centred_rows(2.0 * like.centred_rows(), like, like.mean).variance()
        array([1., 1., 0.])
        """
        self = cls(form=like.form)
        self._start(rows.shape[1])
        start = 0
        for block, weights in zip(like._rows, like._row_weights, strict=True):
            own = rows[start : start + block.shape[0]]
            start += block.shape[0]
            self._keep(
                (own if weights is None else own / np.sqrt(weights)[:, None]) + mean, weights
            )
        return self

    @property
    def n_samples(self) -> int:
        """Number of samples; with weights Kish's effective number, rounded."""
        if self.total_weight == 0.0:
            return 0
        # (Σw)²/Σw², in an order that is exact without weights.
        return max(1, round(self.total_weight / self._squared_weight * self.total_weight))

    @property
    def is_weighted(self) -> bool:
        """Whether any sample has another weight than 1."""
        return self.total_weight != self._squared_weight or any(
            weights is not None for weights in self._row_weights
        )

    @property
    def n_features(self) -> int | None:
        """Number of features, or None before the first chunk."""
        return None if self.mean is None else int(self.mean.shape[0])

    @property
    def is_thin(self) -> bool:
        """Whether the rows are still kept in place of the scatter matrix."""
        return self._scatter is None

    def __repr__(self) -> str:
        kept = "rows" if self.is_thin else "scatter"
        return f"Moments(n_samples={self.n_samples}, n_features={self.n_features}, kept={kept})"

    # -- reading data ----------------------------------------------------------------------

    def update(self, chunk: Any, sample_weight: Any = None) -> Self:
        """Add samples.

        Parameters
        ----------
        chunk : array-like or sparse matrix of shape (n, n_features), or an iterable of those
            A chunk with NaN, infinity, masked values, text or another number of features raises
            ``ValueError`` and leaves the moments as they were.
        sample_weight : array-like of shape (n,), float, or an iterable of those, optional
            Weights of at least 0; for an iterable of chunks an iterable too. A whole number
            counts for mean and covariance as that many copies of the sample, and 0 as none.

        Returns
        -------
        Moments
            itself.

        Examples
        --------
        >>> import numpy as np
        >>> m = Moments().update(np.array([[0.0], [3.0]]), sample_weight=[2, 1])
        >>> m.mean, m.covariance(), m.n_samples
        (array([1.]), array([[2.]]), 2)
        """
        _refuse_moments(chunk)
        if kind_of(chunk) == "dask":
            return self.__iadd__(type(self).of(chunk, sample_weight=sample_weight))
        for piece, weights in weighted_row_chunks(chunk, sample_weight):
            rows, weights = drop_zero_weights(self._check(piece), weights)
            with quiet():
                require_finite(rows)
                self._absorb(rows, weights)
        return self

    def _check(self, chunk: Any) -> Any:
        rows = as_rows(chunk)
        if self.mean is not None and rows.shape[1] != self.mean.shape[0]:
            raise ValueError(
                f"chunk has {rows.shape[1]} features, but the moments have {self.mean.shape[0]}"
            )
        return rows

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
            centred, shift = _centre_full_columns(rows)
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
        if weights is not None or self.is_weighted:  # no solver multiplies with weighted rows
            return False
        stored = sum(int(block.nnz) for block in blocks)
        return stored <= _SPARSE_ROWS_SHARE * int(m) ** 2

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
        shifted, shift = _centre_full_columns(block)
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

    # -- adding up -------------------------------------------------------------------------

    def copy(self) -> Self:
        """Return an independent copy."""
        new = type(self)(form=self.form)
        new.total_weight, new._squared_weight = self.total_weight, self._squared_weight
        new.mean = None if self.mean is None else self.mean.copy()
        new._low = self._low  # not changed in place, and neither are these
        new._rows, new._row_weights = list(self._rows), list(self._row_weights)
        new._rounding = self._rounding
        new._scatter = None if self._scatter is None else self._scatter.copy(order="F")
        return new

    def __add__(self, other: Moments) -> Self:
        if not isinstance(other, Moments):
            return NotImplemented
        return self.copy().__iadd__(other)

    def __radd__(self, other: object) -> Self:
        return self if other == 0 else NotImplemented  # so that sum() works

    def __iadd__(self, other: Moments) -> Self:
        if not isinstance(other, Moments):
            return NotImplemented
        if other.mean is None:
            return self
        if self.mean is not None and self.mean.shape != other.mean.shape:
            raise ValueError(
                f"can't add moments of {self.n_features} and of {other.n_features} features"
            )
        self._rounding = sum_or_none(self._rounding, other._rounding)
        if other.is_thin:
            for block, weights in list(zip(other._rows, other._row_weights, strict=True)):
                self._absorb(block, weights)
            return self
        if self.mean is None:
            self._start(len(other.mean))
        self._fold()
        assert self._scatter is not None and other._scatter is not None and other._low is not None
        self._scatter += other._scatter
        weight = other.total_weight
        step = self._mean_step(other.mean, other._low)
        rank_one(self._scatter, step, self._merge_weight(weight))
        self._move_mean(weight, other._squared_weight, other.mean, other._low)
        return self

    # -- taking away -----------------------------------------------------------------------

    def remove(self, chunk: Any, sample_weight: Any = None) -> Self:
        """Take samples away that were added before, for example those that left a window.

        Parameters
        ----------
        chunk, sample_weight
            As they were given to `update`; how they were divided into chunks does not matter.

        Returns
        -------
        Moments
            itself.

        Raises
        ------
        ValueError
            If these samples can't have been added before, or if a feature varies so much less
            without them that fewer than six digits of its variance would be left. The moments
            stay as they were. Add up the samples that remain in new `Moments` then.

        Examples
        --------
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(300, 2))
        >>> window = Moments.of(X[:200]).update(X[200:]).remove(X[:100])
        >>> bool(np.allclose(window.covariance(), np.cov(X[100:].T, ddof=0), rtol=1e-12))
        True
        """
        return self.__isub__(type(self).of(chunk, sample_weight=sample_weight))

    def __sub__(self, other: Moments) -> Self:
        if not isinstance(other, Moments):
            return NotImplemented
        return self.copy().__isub__(other)

    def __isub__(self, other: Moments) -> Self:
        if not isinstance(other, Moments):
            return NotImplemented
        if other.mean is None:
            return self
        if self.mean is None or self.mean.shape != other.mean.shape:
            raise ValueError(
                f"can't take moments of {other.n_features} features from those of {self.n_features}"
            )
        left = LeftOver.of(self, other)
        if left.is_empty:
            self._clear()
        elif self.is_thin and other.is_thin and self._drop(other):
            pass
        else:
            self._subtract(other, left)
        return self

    def _drop(self, other: Moments) -> bool:
        """Drop the rows of other, if they are all here."""
        found = drop_rows(self._rows, self._row_weights, other._rows, other._row_weights)
        if found is None:
            return False
        assert self.mean is not None
        m, rounding = len(self.mean), self._rounding
        self._clear()
        self._start(m)
        self._rounding = rounding
        for rows, weights in found:
            self._keep(rows, weights)
        return True

    def _subtract(self, other: Moments, left: LeftOver) -> None:
        constant = self.constant_features()
        before = self._lower()
        assert self.mean is not None and self._low is not None
        assert other.mean is not None and other._low is not None
        # S_a = S_ab - S_b - (n_ab n_b / n_a) δδᵀ with δ the mean of b less that of both.
        step = self._mean_step(other.mean, other._low)
        after = np.asfortranarray(before - other._lower())
        rank_one(after, step, -self.total_weight * other.total_weight / left.weight)
        rounding = removal_rounding(self._rounding, before.diagonal())
        if left.is_single:
            after[:] = 0.0  # what is there is rounding
        else:
            require_digits(after.diagonal(), np.where(constant, 0.0, rounding))
        # A feature that was constant before has rounding of either sign.
        diagonal = np.diag_indices_from(after)
        after[diagonal] = np.maximum(after[diagonal], 0.0)
        mean, low = self.mean, self._low - step * (other.total_weight / left.weight)
        self._clear()
        self._set_mean(mean, low)
        self.total_weight, self._squared_weight = left.weight, left.squared
        self._scatter, self._rounding = after, rounding

    def decay(self, factor: float) -> Self:
        """Multiply the weight of all samples so far, so that later ones count for more.

        Called before each chunk this is exponential forgetting: a chunk that came ``t`` chunks
        ago has the weight ``factor**t``. Mean and covariance stay; ``total_weight`` shrinks.

        Parameters
        ----------
        factor : float
            Above 0, at most 1.

        Returns
        -------
        Moments
            itself.

        Examples
        --------
        >>> import numpy as np
        >>> m = Moments()
        >>> for level in (0.0, 0.0, 8.0):
        ...     m = m.decay(0.5).update(np.full((100, 1), level))
        >>> m.mean.round(2)  # (1/4 · 0 + 1/2 · 0 + 1 · 8) / (1/4 + 1/2 + 1)
        array([4.57])
        """
        if not (isinstance(factor, Real) and 0.0 < float(factor) <= 1.0):
            raise ValueError(f"factor={factor!r} must be above 0 and at most 1")
        factor = float(factor)
        if 0.0 < self.total_weight * factor < LEAST_WEIGHT:
            raise ValueError(
                f"factor={factor!r} would leave a weight of {self.total_weight * factor:g}; add "
                "samples between, or start with new Moments"
            )
        self.total_weight *= factor
        self._squared_weight *= factor**2
        self._row_weights = [
            factor * (np.ones(rows.shape[0]) if weights is None else weights)
            for rows, weights in zip(self._rows, self._row_weights, strict=True)
        ]
        if self._scatter is not None:
            self._scatter *= factor
        if self._rounding is not None:
            self._rounding = self._rounding * factor
        return self

    # -- results ---------------------------------------------------------------------------

    def scatter(self) -> FloatArray:
        """Return the scatter, ``(n_features, n_features)``, as a new symmetric matrix."""
        self._require_samples()
        whole = self._lower().copy(order="F")
        mirror(whole)
        return whole

    def covariance(self, *, ddof: int = 0) -> FloatArray:
        """Return the covariance, ``scatter / (n_samples - ddof)``.

        The default is the paper's ``R = ZZᵀ/N``. With weights it is ``scatter / total_weight``,
        times ``n_samples / (n_samples - ddof)``.
        """
        self._require_samples()
        if self.n_samples <= ddof:
            raise ValueError(f"ddof={ddof} must be below n_samples={self.n_samples}")
        whole = self.scatter()
        whole /= self.total_weight * (1.0 - ddof / self.n_samples)
        return whole

    def variance(self) -> FloatArray:
        """Return the variance (``ddof=0``) of each feature, ``(n_features,)``.

        See `spread` for where it is rounding, and where it can't be told.
        """
        self._require_samples()
        if self._scatter is not None:
            return self._scatter.diagonal() / self.total_weight
        assert self.mean is not None
        total = np.zeros_like(self.mean)
        with quiet():
            for block, weights in zip(self._rows, self._row_weights, strict=True):
                weight, _ = weight_of(block, weights)
                if sp.issparse(block):
                    shifted, shift = _centre_full_columns(block)
                    # Σ(x-m)² = Σx² - 2mΣx + n·m², x and m both shifted
                    rest = -self._mean_step(shift)
                    sums = weight * mean_of(shifted, weights)
                    squares = weight * mean_of(shifted.power(2), weights)
                    total += squares - 2 * rest * sums + weight * rest**2
                else:
                    total += weight * mean_of(self._mean_step(block) ** 2, weights)
        return np.maximum(total, 0.0) / self.total_weight

    def moved(self, mean: ArrayLike) -> Self:
        """Return the moments of the same samples, moved to another mean.

        Parameters
        ----------
        mean : array-like of shape (n_features,)

        Returns
        -------
        Moments
            New ones; these stay as they were.

        Examples
        --------
        >>> import numpy as np
        >>> m = Moments.of(np.array([[1.0], [3.0]])).moved([0.0])
        >>> m.mean, m.variance()
        (array([0.]), array([1.]))
        """
        self._require_samples()
        assert self.mean is not None
        to = np.asarray(mean, dtype=np.float64)
        if to.shape != self.mean.shape:
            raise ValueError(f"mean has shape {to.shape}; it must be {self.mean.shape}")
        if not np.isfinite(to).all():
            raise ValueError("mean must be finite")
        if self.is_thin:
            return type(self).from_centred_rows(self.centred_rows(), self, to)
        new = self.copy()
        new._set_mean(to, np.zeros_like(to))
        return new

    def rescaled(self, scale: ArrayLike) -> Self:
        """Return the moments of the same samples in other units, ``x / scale``.

        Parameters
        ----------
        scale : array-like of shape (n_features,)
            Above 0.

        Returns
        -------
        Moments
            New ones; these stay as they were.

        Examples
        --------
        >>> import numpy as np
        >>> m = Moments.of(np.random.default_rng(0).normal(3.0, 2.0, size=(50, 2)))
        >>> m.rescaled(np.sqrt(m.variance())).variance().round(12)
        array([1., 1.])
        """
        self._require_samples()
        assert self.mean is not None
        units = np.asarray(scale, dtype=np.float64)
        if units.shape != self.mean.shape:
            raise ValueError(f"scale has shape {units.shape}; it must be {self.mean.shape}")
        if not (np.isfinite(units).all() and (units > 0).all()):
            raise ValueError("scale must be finite and above 0")
        new = type(self)(form=self.form)
        new.total_weight, new._squared_weight = self.total_weight, self._squared_weight
        assert self._low is not None
        new._set_mean(self.mean / units, self._low / units)
        new._rounding = None if self._rounding is None else self._rounding / units**2
        new._row_weights = list(self._row_weights)
        if self._scatter is not None:
            new._scatter = np.asfortranarray(self._scatter / units / units[:, None])
        new._rows = [
            sp.csr_array(block.multiply(1.0 / units)) if sp.issparse(block) else block / units
            for block in self._rows
        ]
        return new

    def constant_features(self) -> NDArray[np.bool_]:
        """Return which features do not vary beyond rounding, ``(n_features,)``."""
        return self.spread().constant

    def spread(self) -> Spread:
        """Return the variance of each feature, and which features are constant.

        Examples
        --------
        >>> import numpy as np
        >>> spread = Moments.of(np.array([[1.0, 0.1], [3.0, 0.1], [5.0, 0.1]])).spread()
        >>> spread.constant
        array([False,  True])
        """
        variance = self.variance()
        assert self.mean is not None
        return find_spread(variance, self.mean)

    def centred_rows(self) -> FloatArray:
        """Return ``A`` of shape (n_rows, n_features) with ``AᵀA`` the scatter.

        Only while ``is_thin``, and dense. Rows are multiplied by the root of their weight.
        """
        if not self.is_thin or self.mean is None:
            raise ValueError("the rows are no longer kept: the moments hold the scatter only")
        centred = [
            self._mean_step(rows.toarray() if sp.issparse(rows) else rows) for rows in self._rows
        ]
        for rows, weights in zip(centred, self._row_weights, strict=True):
            if weights is not None:
                rows *= np.sqrt(weights)[:, None]
        return np.concatenate(centred)

    def _lower(self) -> FloatArray:
        """Return the scatter, valid in its lower triangle; not a copy unless thin."""
        if self._scatter is not None:
            return self._scatter
        whole = self.copy()
        whole._fold()
        assert whole._scatter is not None
        return whole._scatter

    def _take_covariance(self) -> FloatArray:
        """Hand over the covariance (lower triangle) without a copy; the moments are empty then."""
        self._fold()
        assert self._scatter is not None
        taken = self._scatter
        taken /= self.total_weight
        self._clear()
        return taken

    def _require_samples(self) -> None:
        if self.n_samples == 0:
            raise ValueError("the moments hold no samples yet; call update first")

    # -- files -----------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the moments to ``path``, a NumPy ``.npz`` archive without pickles.

        While ``is_thin`` this includes the rows; see ``form`` to prevent that.

        Examples
        --------
        >>> import numpy as np, tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> Moments.of(np.eye(3)).save(folder / "eye.npz")
        >>> Moments.load(folder / "eye.npz").n_samples
        3
        """
        self._require_samples()
        content = {"form": np.array(self.form), "n_samples": np.array(self.n_samples)}
        weights = (self.total_weight, self._squared_weight) if self.is_weighted else None
        arrays = {"mean": self.mean, "mean_low": self._low, "rounding": self._rounding}
        content |= {name: value for name, value in arrays.items() if value is not None}
        if self._scatter is not None:
            content["scatter"] = self._scatter
            _moments_files.write(path, content, weights)
        else:
            _moments_files.write(path, content, weights, self._rows, self._row_weights)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read moments that ``save`` wrote.

        Raises
        ------
        ValueError
            If the file is damaged or of another kind.
        """
        with _moments_files.reading(path) as content:
            self = cls(form=content.form)
            self.total_weight, self._squared_weight = content.weights
            self._set_mean(content.mean, content.mean_low)
            self._rounding = content.rounding
            self._scatter = content.scatter
            self._rows, self._row_weights = content.rows, content.row_weights
        return self


def _refuse_moments(data: Any) -> None:
    if isinstance(data, Moments):
        raise TypeError("data is Moments already; add moments with +")


def _of_block(cls: type[Moments], form: str, block: Any, weights: Any) -> Moments:
    return cls.of(block, sample_weight=weights, form=form)


def _centre_full_columns(block: Any) -> tuple[Any, FloatArray]:
    """Return the block with every column that is stored in all rows centred, and the shifts.

    ``Σx² - n·mean²`` loses at most a factor ``1/(1 - filling)`` of precision in a column with
    zeros in it, but all of it in a full column of large mean; those can be centred and stay as
    sparse as they were.
    """
    n, m = block.shape
    shift = np.zeros(m)
    # Rows without a column in common, as a few of sparse data are, leave no column full.
    common = block.indices[: block.indptr[1]]
    for row in range(1, min(n, SNIFFED)):
        if len(common) == 0:
            break
        stored = block.indices[block.indptr[row] : block.indptr[row + 1]]
        common = np.intersect1d(common, stored, assume_unique=True)
    if len(common) == 0:
        return block, shift
    full = np.bincount(block.indices, minlength=m) == n
    if not full.any():
        return block, shift
    sums = np.asarray(block.sum(axis=0)).ravel()
    shift[full] = sums[full] / n
    centred = sp.csr_array((block.data - shift[block.indices], block.indices, block.indptr), (n, m))
    return centred, shift
