"""Mean and scatter that add up: the only thing this package ever learns from data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas

from cpcapp._files import atomic_write
from cpcapp._npy_files import read_npz
from cpcapp._rows import (
    FeatureRangeError,
    NonFiniteError,
    as_rows,
    raise_if_not_finite,
    require_finite,
)
from cpcapp._sparse import check_indices, check_pointers

__all__ = ["FeatureRangeError", "FloatArray", "Moments", "NonFiniteError", "Spread"]

FloatArray = NDArray[np.float64]

# A block of this many rows is tall enough for syrk to run at full speed; its centred copy is
# the only one ever made.
_DENSE_BLOCK = 1024
# Where no centring is needed nothing is copied, and blocks may be larger.
_RAW_BLOCK = 8192
_SNIFF = 64
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

_FORMAT = "cpcapp-moments-1"
_FORMS = ("auto", "scatter")
# Up to here every count is a float64 exactly.
_MOST_SAMPLES = 1 << 53


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
    n_features : int or None
        None before the first chunk.
    mean : ndarray of shape (n_features,) or None
    is_thin : bool

    Notes
    -----
    float32 chunks are multiplied in float32, block by block, and added up in float64; everything
    else is computed in float64. Sparse chunks are never made dense.

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
        self.n_samples = 0
        self.mean: FloatArray | None = None
        self._rows: list[Any] = []
        self._scatter: FloatArray | None = None  # lower triangle, Fortran order: what syrk fills

    @classmethod
    def of(cls, data: Any, *, form: str = "auto") -> Self:
        """Return the moments of an array, a sparse matrix, a memory map or an iterable of those.

        Unlike ``update`` this reads the data once only: there is nothing to lose if a bad value
        turns up half way.

        Examples
        --------
        >>> import numpy as np
        >>> Moments.of(np.arange(10.0).reshape(5, 2) for _ in range(3)).n_samples
        15
        """
        self = cls(form=form)
        for chunk in _chunks(data):
            with _quiet():
                self._absorb(self._check(chunk))
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
        self.n_samples = int(n_samples)
        self.mean = np.broadcast_to(np.asarray(mean, dtype=np.float64), cov.shape[0]).copy()
        self._scatter = np.asfortranarray(cov * n_samples)
        return self

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

    def update(self, chunk: Any) -> Self:
        """Add samples.

        Parameters
        ----------
        chunk : array-like or sparse matrix of shape (n, n_features), or an iterable of those
            A chunk with NaN, infinity, masked values, text or another number of features raises
            ``ValueError`` and leaves the moments as they were.

        Returns
        -------
        Moments
            itself.
        """
        for piece in _chunks(chunk):
            rows = self._check(piece)
            with _quiet():
                require_finite(rows)
                self._absorb(rows)
        return self

    def _check(self, chunk: Any) -> Any:
        rows = as_rows(chunk)
        if self.mean is not None and rows.shape[1] != self.mean.shape[0]:
            raise ValueError(
                f"chunk has {rows.shape[1]} features, but the moments have {self.mean.shape[0]}"
            )
        return rows

    def _absorb(self, rows: Any) -> None:
        n, m = rows.shape
        if n == 0:
            return
        if self.mean is None:
            self.mean = np.zeros(m)
        if self._keeps(rows):
            if sp.issparse(rows):
                kept = rows.copy()
                mean = np.full(n, 1.0 / n) @ kept
            else:
                kept = np.array(rows, dtype=np.float64)
                mean = kept.mean(axis=0)
            raise_if_not_finite(mean)
            self._append(kept)
            self._move_mean(n, mean)
            return
        self._fold()
        self._add(rows)

    def _keeps(self, rows: Any) -> bool:
        """Return whether these rows and all before them are a smaller form than the scatter."""
        if self.form != "auto" or self._scatter is not None:
            return False
        n, m = rows.shape
        if self.n_samples + n < m:
            return True
        blocks = [*self._rows, rows]
        if m < _SPARSE_ROWS_FROM or not all(sp.issparse(block) for block in blocks):
            return False
        stored = sum(int(block.nnz) for block in blocks)
        return stored <= _SPARSE_ROWS_SHARE * int(m) ** 2

    def _append(self, rows: Any) -> None:
        self._rows.append(rows)
        # Sparse blocks of like size are joined, as digits carry: of many small chunks there are
        # never more than a few blocks.
        while len(self._rows) > 1 and all(sp.issparse(block) for block in self._rows[-2:]):
            if self._rows[-2].shape[0] > self._rows[-1].shape[0]:
                break
            self._rows[-2:] = [sp.csr_array(sp.vstack(self._rows[-2:], format="csr"))]

    def _fold(self) -> None:
        """Turn the rows kept so far into a scatter matrix."""
        if self._scatter is not None or self.mean is None:
            return
        m = self.mean.shape[0]
        rows, self._rows = self._rows, []
        self.n_samples, self.mean = 0, np.zeros(m)
        self._scatter = np.zeros((m, m), order="F")
        for block in rows:
            self._add(block)

    def _add(self, rows: Any) -> None:
        n, m = rows.shape
        if sp.issparse(rows):
            for start in range(0, n, _SPARSE_BLOCK):
                self._add_sparse(rows[start : start + _SPARSE_BLOCK])
            return
        # One workspace for all blocks: fresh pages would cost as much as the products.
        dtype = np.float32 if rows.dtype == np.float32 else np.float64
        work = np.empty((min(n, _DENSE_BLOCK) + 1, m), dtype=dtype)
        for start in range(0, n, _RAW_BLOCK):
            large = rows[start : start + _RAW_BLOCK]
            if large.dtype == np.float64 and large.flags.c_contiguous and len(large) > _SNIFF:
                mean = np.add.reduce(large, axis=0) / len(large)
                if _needs_no_centring(large, mean):
                    self._add_raw(large, mean)
                    continue
            for first in range(0, len(large), _DENSE_BLOCK):
                block = np.asarray(large[first : first + _DENSE_BLOCK], dtype=dtype)
                self._add_centred(block, work[: len(block) + 1])

    def _add_raw(self, block: NDArray[Any], mean: FloatArray) -> None:
        """Add rows as they are, without a centred copy."""
        self._scatter = blas.dsyrk(1.0, block.T, beta=1.0, c=self._scatter, lower=1, overwrite_c=1)
        self._merge_uncentred(len(block), mean, mean)

    def _add_centred(self, block: NDArray[Any], work: NDArray[Any]) -> None:
        n = len(block)
        # Not ones @ block: NumPy's and SciPy's BLAS have threads of their own, and alternating
        # between the two lets one spin while the other works.
        shift = block.mean(axis=0)
        raise_if_not_finite(shift)
        np.subtract(block, shift, out=work[:n])
        mean = shift.astype(np.float64)
        if block.dtype == np.float32:
            # The float32 mean is off by its rounding; what is left is small and exact enough.
            rest = work[:n].mean(axis=0)
            work[:n] -= rest
            mean += rest
        # S_ab = S_a + S_b + (n_a n_b / n_ab) δδᵀ: the last term rides along as one more row.
        np.multiply(self._mean_step(mean), np.sqrt(self._merge_weight(n)), out=work[n])
        if block.dtype == np.float32:
            product = blas.ssyrk(1.0, work.T, lower=1)
            if not _fits_single(product.diagonal(), work):
                self._add_centred(block.astype(np.float64), np.empty(work.shape))
                return
            self._scatter += product
        else:
            self._scatter = blas.dsyrk(
                1.0, work.T, beta=1.0, c=self._scatter, lower=1, overwrite_c=1
            )
        self._move_mean(n, mean)

    def _merge_uncentred(self, n: int, mean: FloatArray, offset: FloatArray) -> None:
        """Finish adding a block whose products were added about ``mean - offset``."""
        raise_if_not_finite(mean)
        assert self._scatter is not None
        _rank_one(self._scatter, offset, -float(n))
        _rank_one(self._scatter, self._mean_step(mean), self._merge_weight(n))
        self._move_mean(n, mean)

    def _add_sparse(self, block: Any) -> None:
        n = block.shape[0]
        shifted, shift = _centre_full_columns(block)
        offset = np.asarray(shifted.sum(axis=0)).ravel() / n
        mean = shift + offset
        gram = (shifted.T @ shifted).toarray()
        assert self._scatter is not None
        self._scatter += gram.T
        self._merge_uncentred(n, mean, offset)

    def _merge_weight(self, n: int) -> float:
        return self.n_samples * n / (self.n_samples + n)

    def _mean_step(self, mean: FloatArray) -> FloatArray:
        assert self.mean is not None
        return mean - self.mean

    def _move_mean(self, n: int, mean: FloatArray) -> None:
        assert self.mean is not None
        self.n_samples += n
        self.mean = self.mean + (mean - self.mean) * (n / self.n_samples)

    # -- adding up -------------------------------------------------------------------------

    def copy(self) -> Self:
        """Return an independent copy."""
        new = type(self)(form=self.form)
        new.n_samples = self.n_samples
        new.mean = None if self.mean is None else self.mean.copy()
        new._rows = list(self._rows)  # blocks are never changed in place
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
        if other.is_thin:
            for block in list(other._rows):
                self._absorb(block)
            return self
        if self.mean is None:
            self.mean = np.zeros_like(other.mean)
        self._fold()
        assert self._scatter is not None and other._scatter is not None
        self._scatter += other._scatter
        n = other.n_samples
        _rank_one(self._scatter, self._mean_step(other.mean), self._merge_weight(n))
        self._move_mean(n, other.mean)
        return self

    # -- results ---------------------------------------------------------------------------

    def scatter(self) -> FloatArray:
        """Return the scatter, ``(n_features, n_features)``, as a new symmetric matrix."""
        self._require_samples()
        whole = self._lower().copy(order="F")
        _mirror(whole)
        return whole

    def covariance(self, *, ddof: int = 0) -> FloatArray:
        """Return the covariance, ``scatter / (n_samples - ddof)``.

        The default is the paper's ``R = ZZᵀ/N``.
        """
        self._require_samples()
        if self.n_samples <= ddof:
            raise ValueError(f"ddof={ddof} must be below n_samples={self.n_samples}")
        whole = self.scatter()
        whole /= self.n_samples - ddof
        return whole

    def variance(self) -> FloatArray:
        """Return the variance (``ddof=0``) of each feature, ``(n_features,)``.

        See `spread` for where it is rounding, and where it can't be told.
        """
        self._require_samples()
        if self._scatter is not None:
            return self._scatter.diagonal() / self.n_samples
        assert self.mean is not None
        total = np.zeros_like(self.mean)
        with _quiet():
            for block in self._rows:
                if sp.issparse(block):
                    shifted, shift = _centre_full_columns(block)
                    rest = self.mean - shift  # Σ(x-m)² = Σx² - 2mΣx + n·m², x and m both shifted
                    ones = np.ones(block.shape[0])
                    sums, squares = ones @ shifted, ones @ shifted.power(2)
                    total += squares - 2 * rest * sums + block.shape[0] * rest**2
                else:
                    total += ((block - self.mean) ** 2).sum(axis=0)
        return np.maximum(total, 0.0) / self.n_samples

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
        new.n_samples = self.n_samples
        new.mean = self.mean / units
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
        size = np.abs(self.mean)
        if len(variance) and _LEAST_VARIANCE <= variance.min() <= variance.max() <= _MOST_VARIANCE:
            constant = np.sqrt(variance) <= _CONSTANT * size
            return Spread(variance, constant, np.zeros(len(size), dtype=bool))
        constant = np.sqrt(np.maximum(variance, 0.0)) <= _CONSTANT * size
        # Squares of small deviations are 0, as if the feature were constant: then its mean tells.
        lost = (variance < _LEAST_VARIANCE) & np.where(constant, (size > 0) & (size < 1e-150), True)
        return Spread(variance, constant, lost | ~(variance <= _MOST_VARIANCE))

    def centred_rows(self) -> FloatArray:
        """Return ``A`` of shape (n_samples, n_features) with ``AᵀA`` the scatter.

        Only while ``is_thin``, and dense.
        """
        if not self.is_thin or self.mean is None:
            raise ValueError("the rows are no longer kept: the moments hold the scatter only")
        blocks = [b.toarray() if sp.issparse(b) else b for b in self._rows]
        return np.concatenate(blocks) - self.mean

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
        taken /= self.n_samples
        self.n_samples, self.mean, self._scatter = 0, None, None
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
        assert self.mean is not None
        content: dict[str, Any] = {
            "format": np.array(_FORMAT),
            "form": np.array(self.form),
            "n_samples": np.array(self.n_samples),
            "mean": self.mean,
        }
        if self._scatter is not None:
            content["scatter"] = self._scatter
        elif any(sp.issparse(b) for b in self._rows):
            rows = sp.vstack([sp.csr_array(b) for b in self._rows], format="csr")
            content |= {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
        else:
            content["rows"] = np.concatenate(self._rows)
        with atomic_write(path) as file:
            np.savez(file, **content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read moments that ``save`` wrote.

        Raises
        ------
        ValueError
            If the file is damaged or of another kind.
        """
        try:
            content = read_npz(path)
            if _scalar(content, "format", "U") != _FORMAT:
                raise ValueError(f"its format is not {_FORMAT}")
            self = cls(form=str(_scalar(content, "form", "U")))
            self.n_samples = n = int(_scalar(content, "n_samples", "iu"))
            if not 1 <= n <= _MOST_SAMPLES:
                raise ValueError(f"n_samples={n} must be between 1 and {_MOST_SAMPLES}")
            self.mean = _floats(content, "mean", (-1,))
            m = len(self.mean)
            if "scatter" in content:
                self._scatter = np.asfortranarray(_floats(content, "scatter", (m, m)))
                if (self._scatter.diagonal() < 0.0).any():
                    raise ValueError("its scatter has a variance below 0")
            elif "rows" in content:
                self._rows = [_floats(content, "rows", (n, m))]
            else:
                self._rows = [_sparse_rows(content, n, m)]
        except KeyError as error:
            raise ValueError(f"{path} is not a whole file of moments: no {error}") from error
        except FileNotFoundError:
            raise
        except (ValueError, OSError, OverflowError) as error:
            raise ValueError(f"{path} is not a whole file of moments: {error}") from error
        return self


def _scalar(content: dict[str, NDArray[Any]], name: str, kinds: str) -> Any:
    value = content[name]
    if value.shape != () or value.dtype.kind not in kinds:
        raise ValueError(f"its {name} is {value.dtype} of shape {value.shape}")
    return value[()]


def _floats(
    content: dict[str, NDArray[Any]], name: str, shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return an array of finite float64 of a shape; -1 stands for any length."""
    value = content[name]
    fits = value.ndim == len(shape) and all(
        size in (-1, found) for size, found in zip(shape, value.shape, strict=True)
    )
    if value.dtype != np.float64 or not fits:
        raise ValueError(
            f"its arrays do not fit together: its {name} is {value.dtype} of shape "
            f"{value.shape}, not float64 of {shape}"
        )
    if not np.isfinite(value).all():
        raise ValueError("it holds NaN or infinity")
    return value.astype(np.float64, copy=False)  # in the byte order of this machine


def _sparse_rows(content: dict[str, NDArray[Any]], n: int, m: int) -> Any:
    data, indices, indptr = _floats(content, "data", (-1,)), content["indices"], content["indptr"]
    check_pointers(indptr, n, len(data))
    check_indices(indices, len(data), m)
    rows = sp.csr_array((data, indices, indptr), shape=(n, m))
    rows.sum_duplicates()
    return rows


def _quiet() -> np.errstate:
    """Leave it to the check for NaN and infinity to speak of them."""
    return np.errstate(invalid="ignore", over="ignore")


def _chunks(data: Any) -> Iterator[Any]:
    if isinstance(data, Moments):
        raise TypeError("data is Moments already; add moments with +")
    whole = hasattr(data, "shape") or hasattr(data, "__array__") or isinstance(data, (list, tuple))
    if whole or not isinstance(data, Iterable):
        yield data
    else:
        yield from data


def _needs_no_centring(block: NDArray[Any], mean: FloatArray) -> bool:
    """Return whether ``Σxxᵀ - n·mean·meanᵀ`` keeps its precision for these rows.

    A sample of s rows shows the variance of a column to be at least s/n of what it has itself
    about the same mean, so a mean within four deviations of the sample loses a factor of at most
    16 n/s: three digits in the worst case, one as a rule.
    """
    sample = block[:: len(block) // _SNIFF][:_SNIFF] - mean
    squares = np.einsum("ij,ij->j", sample, sample)
    return bool((mean * mean <= 16.0 / len(sample) * squares).all())


def _fits_single(squares: NDArray[Any], rows: NDArray[Any]) -> bool:
    """Return whether the sums of squares of float32 columns neither overflow nor underflow."""
    if not np.isfinite(squares).all():
        return False
    small = squares < 1e-25  # a square of 1e-32 is exact to 1e-6: float32 ends at 1e-38
    return not rows[:, small].any()


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
    for row in range(1, min(n, _SNIFF)):
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


def _rank_one(lower: FloatArray, vector: FloatArray, weight: float) -> None:
    """Add ``weight · vector vectorᵀ`` to a lower triangle in place."""
    if weight != 0.0:
        blas.dsyr(weight, vector, lower=1, a=lower, overwrite_a=1)


def _mirror(lower: FloatArray, block: int = 256) -> None:
    """Copy the lower triangle of a square matrix onto its upper one, in place."""
    m = lower.shape[0]
    for start in range(0, m, block):
        stop = min(start + block, m)
        corner = lower[start:stop, start:stop]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
        lower[start:stop, stop:] = lower[stop:, start:stop].T
