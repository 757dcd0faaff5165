"""Mean and scatter that add up: the only thing this package ever learns from data."""

from __future__ import annotations

import os
from numbers import Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cpcapp.moments import file as _moments_files
from cpcapp.moments.accumulator import Accumulator
from cpcapp.moments.blocks import (
    centre_full_columns,
    mean_of,
    mirror,
    quiet,
    rank_one,
    sum_or_none,
    weight_of,
)
from cpcapp.moments.removal import LeftOver, drop_rows, removal_rounding, require_digits
from cpcapp.moments.rows import (
    FeatureRangeError,
    FloatArray,
    NonFiniteError,
    as_rows,
    require_finite,
)
from cpcapp.moments.sources import kind_of, weighted_row_chunks
from cpcapp.moments.spread import Spread, find_spread
from cpcapp.moments.weights import LEAST_WEIGHT, drop_zero_weights

__all__ = ["FeatureRangeError", "FloatArray", "Moments", "NonFiniteError", "Spread"]

_FORMS = ("auto", "scatter")


class Moments(Accumulator):
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
        super().__init__(form)

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
        from cpcapp.moments.accumulate import add_up  # which reads rows into these moments

        return add_up(data, sample_weight, into=cls(form=form))

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
        return self._is_weighted()

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
                    shifted, shift = centre_full_columns(block)
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
