"""Mean and scatter that add up: the only thing this package ever learns from data."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas

from cpcapp.moments import file as moments_file
from cpcapp.moments.rows import (
    LEAST_WEIGHT,
    FeatureRangeError,
    FloatArray,
    NonFiniteError,
    listed,
)

__all__ = ["FeatureRangeError", "FloatArray", "Moments", "NonFiniteError", "Spread"]

# Tall enough for a product to run at full speed; no more rows are ever copied, but for 1 MB.
_DENSE_BLOCK, _DENSE_VALUES = 1024, 1 << 17
# The cancellation left in a sparse block is at most its row count times the rounding unit.
_SPARSE_BLOCK = 65_536
# Sparse rows of at least this many features are kept beyond as many samples, up to this many stored
# values for each entry of the scatter. A value takes 12 bytes with its place, so that the rows take
# at most 3/8 of the memory of the scatter; benchmarks/results/sparse.md has the times.
_SPARSE_ROWS_FROM, _SPARSE_ROWS_SHARE = 2000, 0.25
# Rows of a block by which it is shifted before it is squared. A mean of up to so many deviations of
# these rows costs at most three digits of a variance: s rows show at least s/n of the variance of n
# rows about the same point.
_SHIFT_ROWS, _NEAR = 64, 4.0
# Deviations below this fraction of the mean are rounding, not variation.
_CONSTANT = 1e3 * np.finfo(np.float64).eps
# Between these a variance, and a covariance of 1e-16 of it, is neither infinite nor 0. They leave
# room for deviations of 1e-150 to 1e150, the range that messages give.
_LEAST_VARIANCE, _MOST_VARIANCE = 1e-304, 1e304
# Samples taken away: a sum of squares is exact to a few rounding units, measured up to 64, and six
# digits of each variance must be left. Weights are sums too: a smaller share of them is nothing.
_ROUNDING, _DIGITS, _NO_WEIGHT = 64.0 * float(np.finfo(np.float64).eps), 1e6, 1e-12


@dataclass(frozen=True)
class Spread:
    """How much each feature varies."""

    variance: FloatArray  # with ddof=0; 0 where it is rounding
    constant: NDArray[np.bool_]  # which features do not vary beyond rounding
    # Which are too large or too small to be squared, so that it is not known how much they vary.
    out_of_range: NDArray[np.bool_]


class AdditiveMoments:
    """Weights and mean of samples, on a CPU or a device; the scatter is the subclass's.

    The mean is kept to twice the digits, as ``_mean + _low``: of a mean of 1e12 float64 keeps only
    the fourth decimal, which is too coarse to merge two blocks by.
    """

    # What a subclass has besides.
    mean: FloatArray | None
    copy: Callable[[], Self]
    variance: Callable[[], FloatArray]
    _add_outer: Callable[[float, Any], None]  # adds ``weight · vector vectorᵀ`` to the scatter
    __iadd__: Callable[[Any], Self]

    def _clear(self) -> None:
        self.total_weight = self._squared_weight = 0.0
        self._mean: Any = None
        self._low: Any = None
        self._scatter: Any = None

    @property
    def effective_samples(self) -> float:
        """Kish's effective number of samples, ``(Σw)² / Σw²``; without weights their number."""
        if self.total_weight == 0.0:
            return 0.0
        return self.total_weight / self._squared_weight * self.total_weight  # exact without weights

    @property
    def n_samples(self) -> int:
        """Number of samples; with weights Kish's effective number, rounded."""
        return max(round(self.effective_samples), int(self.total_weight > 0.0))

    @property
    def n_features(self) -> int | None:
        """Number of features, or None before the first chunk."""
        return None if self._mean is None else int(self._mean.shape[0])

    def __add__(self, other: Any) -> Self:
        return self.copy().__iadd__(other) if isinstance(other, type(self)) else NotImplemented

    def __radd__(self, other: object) -> Self:
        return self if other == 0 else NotImplemented  # so that sum() works

    def spread(self) -> Spread:
        """Return the variance of each feature, and which features are constant."""
        variance, size = self.variance(), np.abs(self.mean)  # type: ignore[arg-type]
        constant = np.sqrt(variance) <= _CONSTANT * size
        # Squares of small deviations are 0, as if the feature were constant: then its mean tells.
        lost = (variance < _LEAST_VARIANCE) & np.where(constant, (size > 0) & (size < 1e-150), True)
        outside = lost | ~(variance <= _MOST_VARIANCE)
        return Spread(np.where(constant, 0.0, variance), constant, outside)

    def _require_width(self, n_features: int | None) -> None:
        if self._mean is not None and n_features != len(self._mean):
            raise ValueError(
                f"can't add {n_features} features to moments of {self.n_features} features"
            )

    def _require_samples(self) -> None:
        if self.total_weight == 0.0:
            raise ValueError("the moments hold no samples yet; call update first")

    def _merge(self, weight: float, squared: float, mean: Any, low: Any) -> None:
        """Count samples of mean ``mean + low`` whose scatter about it has been added already."""
        total = self.total_weight + weight
        if self.total_weight > 0.0:
            step = (mean - self._mean) + (low - self._low)
            # S_ab = S_a + S_b + (n_a n_b / n_ab) δδᵀ
            self._add_outer(self.total_weight * weight / total, step)
            mean, low = self._mean, self._low + step * (weight / total)
        self._set_mean(mean, low)
        self.total_weight, self._squared_weight = total, self._squared_weight + squared

    def _fill(self, scatter: Any, weights: tuple[float, float], mean: Any, low: Any = 0.0) -> Self:
        """Become moments of this scatter, these Σw and Σw², and the mean ``mean + low``."""
        self.total_weight, self._squared_weight = weights
        self._scatter = scatter
        self._set_mean(mean, low)
        return self

    def _set_mean(self, mean: Any, low: Any) -> None:
        """Set the mean to ``mean + low``, and ``_low`` to the digits that do not fit."""
        self._mean = mean + low
        part = self._mean - mean
        self._low = (mean - (self._mean - part)) + (low - part)


class Moments(AdditiveMoments):
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
        if form not in ("auto", "scatter"):
            raise ValueError(f"form={form!r} must be one of 'auto', 'scatter'")
        self.form = form
        self._clear()

    def _clear(self) -> None:
        super()._clear()
        # The scatter is a lower triangle in Fortran order, what BLAS fills; or in its place the
        # blocks of rows as they were given, each with its weights or None.
        self._kept: list[tuple[Any, FloatArray | None]] = []
        # How far the diagonal of the scatter may be off since samples were removed.
        self._rounding: FloatArray | float = 0.0

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

        Examples
        --------
        >>> import numpy as np
        >>> Moments.of(np.arange(10.0).reshape(5, 2) for _ in range(3)).n_samples
        15
        """
        from cpcapp.moments.sources import add_up  # which reads rows into these moments

        self = cls(form=form)
        add_up(data, sample_weight, into=self)
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
        n = float(int(n_samples))
        centre = np.broadcast_to(np.asarray(mean, dtype=np.float64), cov.shape[0]).copy()
        return cls(form="scatter")._fill(np.asfortranarray(cov * n_samples), (n, n), centre)

    @classmethod
    def from_scatter(cls, scatter: FloatArray, like: Moments, mean: FloatArray) -> Self:
        """Return moments with a given scatter and mean, and the weights of others."""
        weights = like.total_weight, like._squared_weight
        return cls(form="scatter")._fill(np.array(scatter, np.float64, order="F"), weights, mean)

    @classmethod
    def from_centred_rows(cls, rows: FloatArray, like: Moments, mean: FloatArray) -> Self:
        """Return thin moments of other rows than ``like.centred_rows()``, with the same weights."""
        _, weights = like.kept_rows()
        self = cls(form=like.form)
        given = rows if weights is None else rows / np.sqrt(weights)[:, None]
        self._keep(given + mean, weights)
        return self

    @property
    def mean(self) -> FloatArray | None:  # type: ignore[override]
        """Mean of each feature, (n_features,); None before the first chunk."""
        return self._mean  # type: ignore[no-any-return]

    @property
    def is_thin(self) -> bool:
        """Whether the rows are still kept in place of the scatter matrix."""
        return self._scatter is None

    def __repr__(self) -> str:
        kept = "rows" if self.is_thin else "scatter"
        return f"Moments(n_samples={self.n_samples}, n_features={self.n_features}, kept={kept})"

    # -- reading data ----------------------------------------------------------------------

    def update(self, chunk: Any, sample_weight: Any = None) -> Self:
        """Add samples, and return the moments themselves.

        Parameters
        ----------
        chunk : array-like or sparse matrix of shape (n, n_features), or an iterable of those
            A chunk with NaN, infinity, masked values, text or another number of features raises
            ``ValueError`` and leaves the moments as they were.
        sample_weight : array-like of shape (n,), float, or an iterable of those, optional
            Weights of at least 0; for an iterable of chunks an iterable too. A whole number
            counts for mean and covariance as that many copies of the sample, and 0 as none.

        Examples
        --------
        >>> import numpy as np
        >>> m = Moments().update(np.array([[0.0], [3.0]]), sample_weight=[2, 1])
        >>> m.mean, m.covariance(), m.n_samples
        (array([1.]), array([[2.]]), 2)
        """
        return self.__iadd__(Moments.of(chunk, sample_weight=sample_weight))

    def add_checked(self, rows: Any, weights: FloatArray | None) -> None:
        """Add checked rows with weights above 0, as rows while that is the smaller form."""
        n, m = rows.shape
        if n == 0:
            return
        if self._mean is not None:
            self._require_width(m)
        if self._keeps(rows, weights):
            self._keep(rows.copy() if sp.issparse(rows) else np.array(rows, float), weights)
            return
        if self._scatter is None:
            self._fold(m)
        step = _SPARSE_BLOCK if sp.issparse(rows) else max(_DENSE_BLOCK, _DENSE_VALUES // m)
        for start in range(0, n, step):
            part = slice(start, start + step)
            self._add_block(rows[part], None if weights is None else weights[part])

    def _keeps(self, rows: Any, weights: FloatArray | None) -> bool:
        """Return whether these rows and all before them are a smaller form than the scatter."""
        if self.form != "auto" or self._scatter is not None:
            return False
        blocks, m = [*self._kept, (rows, weights)], rows.shape[1]
        if sum([block.shape[0] for block, _ in blocks]) < m:
            return True
        # No solver multiplies with weighted rows.
        if m < _SPARSE_ROWS_FROM or not all(sp.issparse(x) and w is None for x, w in blocks):
            return False
        return sum([int(block.nnz) for block, _ in blocks]) <= _SPARSE_ROWS_SHARE * int(m) ** 2

    def _keep(self, rows: Any, weights: FloatArray | None) -> None:
        """Keep rows as they are."""
        self._add_block(rows, weights)
        self._kept.append((rows, weights))

    def _add_block(self, rows: Any, weights: FloatArray | None) -> None:
        """Add rows to the mean, and to the scatter unless it is rows that are kept."""
        n = rows.shape[0]
        weight, squared, shares = float(n), float(n), np.full(n, 1.0 / n)
        if weights is not None:
            weight, squared = float(weights.sum()), float(weights @ weights)
            shares = weights / weight  # divided first: large values times large weights overflow
        # It is left to the error to speak of NaN and infinity.
        with np.errstate(invalid="ignore", over="ignore"):
            centred, shift = centre(rows, None if weights is None else shares)
            # By SciPy's BLAS, as the products: NumPy's has threads of its own, and where the two
            # alternate one spins while the other works.
            is_sparse = sp.issparse(centred)
            low = centred.T @ shares if is_sparse else blas.dgemv(1.0, centred.T, shares)
            bad = np.flatnonzero(~np.isfinite(shift + low))
            if len(bad):
                raise NonFiniteError(bad)
            if self._scatter is not None:
                if weights is not None:
                    roots = np.sqrt(weights)[:, None]
                    centred = centred.multiply(roots) if is_sparse else centred * roots
                if is_sparse:
                    self._scatter += (centred.T @ centred).toarray().T
                else:
                    grown = {"beta": 1.0, "c": self._scatter, "overwrite_c": 1}
                    self._scatter = blas.dsyrk(1.0, centred.T, lower=1, **grown)
                # Σ(x-x̄)(x-x̄)ᵀ = Σ(x-s)(x-s)ᵀ - n(x̄-s)(x̄-s)ᵀ
                self._add_outer(-weight, low)
            self._merge(weight, squared, shift, low)

    def _add_outer(self, weight: float, vector: FloatArray) -> None:
        if self._scatter is not None:
            blas.dsyr(weight, vector, lower=1, a=self._scatter, overwrite_a=1)

    def _fold(self, n_features: int) -> None:
        """Have a scatter matrix, of the rows kept so far."""
        empty = (n_features, n_features)
        self._scatter = self._lower() if self._kept else np.zeros(empty, order="F")
        self._kept = []

    # -- adding up and taking away -----------------------------------------------------------

    def copy(self) -> Self:
        """Return an independent copy."""
        new = copy.copy(self)  # only these are ever changed in place
        new._kept = list(self._kept)
        new._scatter = None if self._scatter is None else self._scatter.copy(order="F")
        return new

    def __iadd__(self, other: Any) -> Self:
        if not isinstance(other, Moments):
            return NotImplemented
        if other.mean is None:
            return self
        self._require_width(other.n_features)
        self._rounding = self._rounding + other._rounding
        if other.is_thin:
            self.add_checked(*other.kept_rows())
            return self
        if self._scatter is None:
            self._fold(len(other._mean))
        self._scatter += other._scatter
        self._merge(other.total_weight, other._squared_weight, other._mean, other._low)
        return self

    def remove(self, chunk: Any, sample_weight: Any = None) -> Self:
        """Take samples away that were added before, and return the moments themselves.

        Parameters
        ----------
        chunk, sample_weight
            As they were given to `update`; how they were divided into chunks does not matter.

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
        return self.copy().__isub__(other) if isinstance(other, Moments) else NotImplemented

    def __isub__(self, other: Moments) -> Self:
        if not isinstance(other, Moments):
            return NotImplemented
        if other.mean is None:
            return self
        if self.n_features != other.n_features:
            raise ValueError(
                f"can't take moments of {other.n_features} features from those of {self.n_features}"
            )
        weight = self.total_weight - other.total_weight
        squared = self._squared_weight - other._squared_weight
        nothing = _NO_WEIGHT * self.total_weight
        if weight < -nothing:
            raise ValueError(
                f"can't remove samples of weight {other.total_weight:g} from a total of "
                f"{self.total_weight:g}; remove only what was added before"
            )
        if weight <= nothing:
            self._clear()
            return self
        if squared <= 0.0:
            raise ValueError("can't remove samples with weights other than they were added with")
        thin = self.is_thin and other.is_thin
        left = _drop_rows(*self.kept_rows(), *other.kept_rows()) if thin else None
        if left is not None:
            rounding = self._rounding
            self._clear()
            self._keep(*left)
            self._rounding = rounding
            return self
        before = self._lower()
        # S_a = S_ab - S_b - (n_ab n_b / n_a) δδᵀ with δ the mean of b less that of both.
        step = (other._mean - self._mean) + (other._low - self._low)
        after = np.asfortranarray(before - other._lower())
        factor = -self.total_weight * other.total_weight / weight
        blas.dsyr(factor, step, lower=1, a=after, overwrite_a=1)
        rounding = self._rounding + _ROUNDING * before.diagonal()
        if weight == squared == 1.0:
            after[:] = 0.0  # a single sample: what is there is rounding
        else:
            # A feature that was constant before has rounding of either sign.
            varying = ~self.constant_features()
            _require_digits(after.diagonal() * varying, rounding * varying)
        diagonal = np.diag_indices_from(after)
        after[diagonal] = np.maximum(after[diagonal], 0.0)
        mean, low = self._mean, self._low - step * (other.total_weight / weight)
        self._clear()
        self._rounding = rounding
        return self._fill(after, (weight, squared), mean, low)

    def decay(self, factor: float) -> Self:
        """Multiply the weight of all samples so far, and return the moments themselves.

        Called before each chunk this is exponential forgetting: a chunk that came ``t`` chunks
        ago has the weight ``factor**t``. Mean and covariance stay; ``total_weight`` shrinks.

        Parameters
        ----------
        factor : float
            Above 0, at most 1.

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
        if self._kept:
            rows, weights = self.kept_rows()
            weights = np.ones(rows.shape[0]) if weights is None else weights
            self._kept = [(rows, factor * weights)]
        if self._scatter is not None:
            self._scatter *= factor
        self._rounding = self._rounding * factor
        return self

    # -- results ---------------------------------------------------------------------------

    def scatter(self) -> FloatArray:
        """Return the scatter, ``(n_features, n_features)``, as a new symmetric matrix."""
        self._require_samples()
        whole = self._lower().copy(order="F")
        for start in range(0, len(whole), 256):  # in parts: no second matrix
            part = slice(start, start + 256)
            whole[:start, part] = whole[part, :start].T
            corner = np.tril(whole[part, part])
            whole[part, part] = corner + np.tril(corner, -1).T
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
        """Return the variance (``ddof=0``) of each feature, ``(n_features,)``."""
        self._require_samples()
        if self._scatter is not None:
            squares = self._scatter.diagonal()
        else:
            rows, weights = self.kept_rows()
            n = rows.shape[0]
            shares = None if weights is None else weights / self.total_weight
            with np.errstate(invalid="ignore", over="ignore"):  # `spread` says what is out of range
                centred, shift = centre(rows, shares)
                squared = centred.power(2) if sp.issparse(centred) else centred**2
                # Σw(x-x̄)² = Σw(x-s)² - Σw(x̄-s)²
                squares = squared.T @ (np.ones(n) if weights is None else weights)
                squares -= self.total_weight * ((self._mean - shift) + self._low) ** 2
        return np.asarray(np.maximum(squares, 0.0) / self.total_weight)

    def constant_features(self) -> NDArray[np.bool_]:
        """Return which features do not vary beyond rounding, ``(n_features,)``."""
        return self.spread().constant

    def moved(self, mean: ArrayLike) -> Self:
        """Return new moments of the same samples, moved to another mean.

        Parameters
        ----------
        mean : array-like of shape (n_features,)

        Examples
        --------
        >>> import numpy as np
        >>> m = Moments.of(np.array([[1.0], [3.0]])).moved([0.0])
        >>> m.mean, m.variance()
        (array([0.]), array([1.]))
        """
        to = self._one_each("mean", mean)
        if self.is_thin:
            return type(self).from_centred_rows(self.centred_rows(), self, to)
        new = self.copy()
        new._set_mean(to, np.zeros_like(to))
        return new

    def rescaled(self, scale: ArrayLike) -> Self:
        """Return new moments of the same samples in other units, ``x / scale``.

        Parameters
        ----------
        scale : array-like of shape (n_features,)
            Above 0.

        Examples
        --------
        >>> import numpy as np
        >>> m = Moments.of(np.random.default_rng(0).normal(3.0, 2.0, size=(50, 2)))
        >>> m.rescaled(np.sqrt(m.variance())).variance().round(12)
        array([1., 1.])
        """
        units = self._one_each("scale", scale)
        if not (units > 0).all():
            raise ValueError("scale must be above 0")
        new = self.copy()
        new._set_mean(self._mean / units, self._low / units)
        new._rounding = self._rounding / units**2
        if self._scatter is not None:
            new._scatter = np.asfortranarray(self._scatter / units / units[:, None])
        if self._kept:
            rows, weights = self.kept_rows()
            scaled = sp.csr_array(rows.multiply(1.0 / units)) if sp.issparse(rows) else rows / units
            new._kept = [(scaled, weights)]
        return new

    def _one_each(self, name: str, values: ArrayLike) -> FloatArray:
        """Return a finite number for each feature."""
        self._require_samples()
        array = np.asarray(values, dtype=np.float64)
        if array.shape != self._mean.shape:
            raise ValueError(f"{name} has shape {array.shape}; it must be {self._mean.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite")
        return array

    def centred_rows(self) -> FloatArray:
        """Return ``A`` of shape (n_rows, n_features) with ``AᵀA`` the scatter.

        Only while ``is_thin``, and dense. Rows are multiplied by the root of their weight.
        """
        rows, weights = self.kept_rows()
        dense = rows.toarray() if sp.issparse(rows) else rows
        centred: FloatArray = (dense - self._mean) - self._low
        if weights is not None:
            centred *= np.sqrt(weights)[:, None]
        return centred

    def kept_rows(self) -> tuple[Any, FloatArray | None]:
        """Return the rows as they were given, and their weights or None. Only while ``is_thin``.

        An array; a CSR matrix if rows came sparse.
        """
        if not self._kept:
            raise ValueError("the rows are no longer kept: the moments hold the scatter only")
        if len(self._kept) > 1:
            blocks = [rows for rows, _ in self._kept]
            weights = None
            if any(given is not None for _, given in self._kept):
                filled = [np.ones(rows.shape[0]) if w is None else w for rows, w in self._kept]
                weights = np.concatenate(filled)
            self._kept = [(stack(blocks), weights)]
        return self._kept[0]

    def _lower(self) -> FloatArray:
        """Return the scatter, valid in its lower triangle; not a copy unless thin."""
        if self._scatter is not None:
            return self._scatter  # type: ignore[no-any-return]
        whole = Moments(form="scatter")
        whole.add_checked(*self.kept_rows())
        return whole._scatter  # type: ignore[no-any-return]

    def scaled_covariance(self, scale: FloatArray, overwrite: bool = False) -> FloatArray:
        """Return the covariance of features times ``scale``, valid in its lower triangle.

        With ``overwrite`` it takes the place of the scatter, and the moments are empty then.
        """
        covariance = self._lower()
        if overwrite:
            covariance /= self.total_weight
            self._clear()
        else:
            covariance = np.asfortranarray(covariance / self.total_weight)
        covariance *= scale[:, None]
        covariance *= scale
        return covariance

    # -- files -----------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the moments to ``path``, a safetensors file.

        While ``is_thin`` this includes the rows; see ``form`` to prevent that.

        Examples
        --------
        >>> import numpy as np, tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> Moments.of(np.eye(3)).save(folder / "eye.safetensors")
        >>> Moments.load(folder / "eye.safetensors").n_samples
        3
        """
        self._require_samples()
        rows, weights = self.kept_rows() if self.is_thin else (None, None)
        arrays = {"mean": self._mean, "mean_low": self._low, "scatter": self._scatter}
        arrays |= {"rows": rows, "row_weights": weights}
        arrays["rounding"] = self._rounding if np.ndim(self._rounding) else None
        given = {name: array for name, array in arrays.items() if array is not None}
        moments_file.write(path, self.form, (self.total_weight, self._squared_weight), given)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read moments that ``save`` wrote.

        Raises
        ------
        ValueError
            If the file is damaged or of another kind.
        """
        form, weights, arrays = moments_file.read(path)
        self = cls(form=form)
        if "scatter" in arrays:
            self._fill(arrays["scatter"], weights, arrays["mean"], arrays["mean_low"])
        else:
            self._keep(arrays["rows"], arrays.get("row_weights"))
        self._rounding = arrays.get("rounding", 0.0)
        return self


# -- blocks of rows ------------------------------------------------------------------------


def stack(blocks: Sequence[Any]) -> Any:
    """Return blocks of rows as one, as a CSR matrix if any of them is sparse."""
    if len(blocks) == 1:
        return blocks[0]
    if any(sp.issparse(block) for block in blocks):
        return sp.csr_array(sp.vstack([sp.csr_array(block) for block in blocks], format="csr"))
    return np.concatenate(blocks)


def centre(rows: Any, shares: FloatArray | None = None) -> tuple[Any, FloatArray]:
    """Return float64 rows about a point near their mean, and that point.

    ``Σ(x-s)(x-s)ᵀ - n(x̄-s)(x̄-s)ᵀ`` keeps its digits for any s within a few deviations. So rows
    whose mean is close to 0 are not copied. ``shares`` are weights that add up to 1.
    """
    if sp.issparse(rows):
        return centre_full_columns(rows)
    if shares is not None:
        # Some rows tell nothing of a mean that a single weight may decide.
        shift = np.asarray(shares @ rows, dtype=np.float64)
        return rows - shift, shift
    some = np.asarray(rows[:: max(len(rows) // _SHIFT_ROWS, 1)][:_SHIFT_ROWS], dtype=np.float64)
    shift = some.mean(axis=0)
    some = some - shift
    if (shift**2 <= _NEAR**2 * (some**2).mean(axis=0)).all():
        return np.ascontiguousarray(rows, dtype=np.float64), np.zeros_like(shift)
    return rows - shift, shift


def centre_full_columns(block: Any) -> tuple[Any, FloatArray]:
    """Return a CSR block with every column that is stored in all rows centred, and the shifts.

    ``Σx² - n·mean²`` loses at most a factor ``1/(1 - filling)`` of precision in a column with
    zeros in it, but all of it in a full column of large mean; those can be centred and stay as
    sparse as they were.
    """
    n, m = block.shape
    shift = np.zeros(m)
    full = np.bincount(block.indices, minlength=m) == n
    if not full.any():
        return block, shift
    shift[full] = np.asarray(block.sum(axis=0)).ravel()[full] / n
    centred = sp.csr_array((block.data - shift[block.indices], block.indices, block.indptr), (n, m))
    return centred, shift


# -- samples taken away --------------------------------------------------------------------


def _require_digits(squares: FloatArray, rounding: FloatArray) -> None:
    """Raise ValueError if sums of squares that are left may be off by more than a millionth."""
    bad = np.flatnonzero(squares < -rounding)
    reason = "would be left with a variance below 0; remove only what was added before"
    if not len(bad):
        bad = np.flatnonzero(squares < _DIGITS * rounding)
        reason = (
            "varies so much less without these samples that fewer than 6 digits of its variance "
            "would be left; add up the samples that remain in new Moments"
        )
    if len(bad):
        raise ValueError(f"feature {listed(bad)} {reason}")


def _drop_rows(
    rows: Any, weights: FloatArray | None, removed: Any, removed_weights: FloatArray | None
) -> tuple[Any, FloatArray | None] | None:
    """Return rows and weights without those removed; None if one of them is not there."""
    missing = Counter(_row_keys(removed, removed_weights))
    stays = []
    for i, key in enumerate(_row_keys(rows, weights)):
        if missing[key] > 0:
            missing[key] -= 1
        else:
            stays.append(i)
    if +missing:
        return None
    return rows[stays], None if weights is None else weights[stays]


def _row_keys(rows: Any, weights: FloatArray | None) -> Iterator[tuple[bytes, float]]:
    """Yield something that is equal for equal rows of equal weight, dense or sparse."""
    for i in range(rows.shape[0]):
        row = rows[[i]].toarray() if sp.issparse(rows) else rows[i]
        # -0.0 + 0.0 is 0.0
        yield (row + 0.0).tobytes(), 1.0 if weights is None else float(weights[i])
