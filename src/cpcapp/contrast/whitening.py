"""Rows of target and background, pooled and whitened once, for `cpcapp.inference.permutation`."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve, lapack
from scipy.stats import chi2

from cpcapp.contrast.loading import Loading
from cpcapp.moments.blocks import centre_full_columns
from cpcapp.moments.moments import FloatArray, Moments

# Copies of a feature are singular however many rows there are; `loading.py` has the same floor.
_LEAST_RIDGE = 1e-9
# Squared relative error of a variance, up to which it is taken for an estimate: a rare value occurs
# in at least 10 rows.
_MOST_VARIABLE = 0.1
# Rows further out than this share of Gaussian ones are drawn in.
_FAR_OUT = 0.999


class PooledRows:
    """Pooled rows in units of their variance, without the difference of the two means.

    A difference by chance stays: it belongs to rows that are shuffled as they are. Of a larger one
    each set is freed by its trimmed means. With plain means each row would leave its trace in all
    others of its set, and shuffled sets would have less of a row that lies far out.

    ``factor`` is what each row is multiplied with.
    """

    def __init__(
        self, rows: list[Any], centres: tuple[FloatArray, FloatArray], scale: FloatArray
    ) -> None:
        self.rows, self.centres, self.scale = rows, centres, scale
        self.counts = [part.shape[0] for part in rows]
        self.factor = np.ones(sum(self.counts))

    @classmethod
    def of(
        cls, rows: list[Any], moments: tuple[Moments, Moments], n_units: tuple[int, int]
    ) -> PooledRows:
        """Return the rows of both sets, each about its centre or both about one."""
        n_f, n_b = (part.shape[0] for part in rows)
        n = n_f + n_b
        means = moments[0].mean, moments[1].mean
        assert means[0] is not None and means[1] is not None
        constant = moments[0].constant_features() & moments[1].constant_features()
        within = (n_f * moments[0].variance() + n_b * moments[1].variance()) / n
        gap = np.where(constant, 0.0, means[0] - means[1])
        # The squared gap of p features is about χ² with p degrees of freedom: mean p, variance 2p.
        varying = float((~constant).sum())
        by_chance = (varying + 3.0 * np.sqrt(2.0 * varying)) * sum(1.0 / u for u in n_units)
        with np.errstate(divide="ignore"):
            apart = float((gap**2 / np.where(constant, 1.0, within)).sum()) * (n - 2) / n
        if apart <= by_chance:
            pooled = (n_f * means[0] + n_b * means[1]) / n
            centres = pooled, pooled
        else:
            trimmed = _trimmed_means(rows[0]), _trimmed_means(rows[1])
            # Together the rows have mean 0.
            rest = (n_f * (means[0] - trimmed[0]) + n_b * (means[1] - trimmed[1])) / n
            centres = trimmed[0] + rest, trimmed[1] + rest
            gap = gap - np.where(constant, 0.0, centres[0] - centres[1])
        square = within + n_f * n_b / n**2 * gap**2
        return cls(rows, centres, np.where(constant, np.inf, np.sqrt(square)))

    def draw_in(self, whitened: FloatArray, slope: float) -> bool:
        """Draw rows that lie too far out in to where Gaussian rows end, if there are any.

        A few rows far out would otherwise rule the largest eigenvalue of every shuffled set. What
        is drawn in does not depend on how rows are shuffled.
        """
        square = np.einsum("ij,ij->i", whitened, whitened)
        # Σ‖z‖² is the trace of (A - D)A⁻¹ over the slope.
        freedom = max(slope * float(square.sum()), 1.0)
        far = chi2.ppf(_FAR_OUT, freedom) / chi2.ppf(0.5, freedom) * np.median(square)
        outside = square > far * (1.0 + 1e-9)
        self.factor[outside] *= np.sqrt(far / square[outside])
        return bool(outside.any())

    def mean_powers(self, power: int) -> FloatArray:
        """Return the mean of ``|x|**power`` of each feature, for each set."""
        found = np.zeros((len(self.rows), len(self.scale)))
        for total, part, mean, n in zip(found, self.rows, self.centres, self.counts, strict=False):
            if not sp.issparse(part):
                for start in range(0, n, 1024):
                    distance = np.abs((part[start : start + 1024] - mean) / self.scale)
                    total += (distance**power).sum(axis=0)
            else:
                stored = sp.csr_array(part)
                columns = stored.indices
                distance = np.abs((stored.data - mean[columns]) / self.scale[columns])
                total += np.bincount(columns, distance**power, minlength=len(mean))
                absent = n - np.bincount(columns, minlength=len(mean))
                total += absent * np.abs(mean / self.scale) ** power
            total /= n
        return found

    def whiten(self, slope: float, ridge: FloatArray) -> FloatArray:
        """Return rows ``z`` with ``A = c ZᵀZ + diag(ridge)`` the identity."""
        if len(self.scale) <= sum(self.counts):
            return _whiten_features(self._dense(), slope, ridge)
        return _whiten_kernel(self._gram(ridge), slope)

    def _dense(self) -> FloatArray:
        parts = [
            (part.toarray() if sp.issparse(part) else np.asarray(part, dtype=np.float64)) - centre
            for part, centre in zip(self.rows, self.centres, strict=True)
        ]
        pooled = np.concatenate(parts)
        pooled /= self.scale
        pooled *= self.factor[:, None]
        pooled -= pooled.mean(axis=0)
        return pooled

    def _gram(self, ridge: FloatArray) -> FloatArray:
        """Return all inner products of rows, in units where the ridge is 1."""
        root = np.sqrt(ridge)
        if not any(sp.issparse(part) for part in self.rows):
            pooled = self._dense()
            pooled /= root
            return np.asarray(pooled @ pooled.T)
        stacked = sp.csr_array(sp.vstack([sp.csr_array(part) for part in self.rows]))
        shifted, shift = centre_full_columns(stacked.astype(np.float64))
        unit = 1.0 / (self.scale * root)
        scaled = sp.csr_array(shifted.multiply(unit))
        # (Z - C)(Z - C)ᵀ = ZZᵀ - ZCᵀ - CZᵀ + CCᵀ, where C has two different rows
        centres = np.stack([(centre - shift) * unit for centre in self.centres])
        which = np.repeat([0, 1], self.counts)
        crossed = np.asarray(scaled @ centres.T)[:, which]
        inner = (scaled @ scaled.T).toarray()
        inner -= crossed
        inner -= crossed.T
        inner += (centres @ centres.T)[np.ix_(which, which)]
        inner *= np.multiply.outer(self.factor, self.factor)
        inner -= inner.mean(axis=0)
        inner -= inner.mean(axis=1, keepdims=True)
        return np.asarray(inner)


def _trimmed_means(rows: Any) -> FloatArray:
    """Return the mean of the middle half of each feature.

    Examples
    --------
    >>> _trimmed_means(np.array([[1.0], [3.0], [2.0], [900.0]]))
    array([2.5])
    """
    n, width = rows.shape
    sparse = sp.csc_array(rows) if sp.issparse(rows) else None
    step = max((1 << 20) // n, 1)
    found = np.empty(width)
    for start in range(0, width, step):
        part = slice(start, start + step)
        block = np.asarray(rows[:, part]) if sparse is None else sparse[:, part].toarray()
        found[part] = np.sort(block, axis=0)[n // 4 : n - n // 4].mean(axis=0, dtype=np.float64)
    return found


def ridges(
    found: Loading,
    background: Moments,
    loading: str | float,
    centred: PooledRows,
    n_units: tuple[int, int],
) -> tuple[FloatArray, FloatArray]:
    """Return the loading of shuffled sets and of the sets as they are, in units of pooled rows.

    A rule that goes by the background variance of each feature is given the variance of all rows
    where the two differ by no more than chance, and what is beyond chance where they differ by
    more. Shuffled sets differ by chance only.
    """
    floor = _LEAST_RIDGE * found.weight
    constant = np.isinf(centred.scale)
    pooled = np.where(constant, 1.0, centred.scale**2)
    if isinstance(loading, Real) or loading in ("none", "diagonal"):
        ridge = np.maximum(found.diagonal / pooled, floor)
        return ridge, ridge
    relative = background.variance() / pooled
    known = relative > 0.0
    share = float(np.mean(found.diagonal[known] / (relative * pooled)[known]))
    n_f, n_b = n_units
    kurtosis = np.average(centred.mean_powers(4), axis=0, weights=centred.counts)
    # A variance has the squared relative error (kurtosis - 1)/n. Where that is large, it comes from
    # a few rows, and the fewer there are, the less the feature counts beside others: shuffled sets
    # would often have all of these rows on one side, and hide what other features show. A Gaussian
    # feature that varies in the target only has a kurtosis of 3n/n_f, which is no sign of that.
    most = max(n_b * _MOST_VARIABLE, 1.5 * 3.0 * (n_f + n_b) / n_f - 1.0)
    rare = np.maximum((kurtosis - 1.0) / most - 1.0, 0.0)
    # The logarithm of a variance has the variance (kurtosis - 1)/n, if that is small. No more than
    # about one of all features exceeds the bound by chance.
    spread = np.sqrt(np.maximum(kurtosis - 1.0, 0.0) * n_f / (n_b * (n_f + n_b)))
    by_chance = (np.sqrt(2.0 * np.log(2.0 * len(pooled))) + 1.0) * spread
    apart = np.log(np.maximum(relative, _LEAST_RIDGE))
    own = np.exp(np.sign(apart) * np.maximum(np.abs(apart) - by_chance, 0.0))
    # A feature with rare values can well be constant in one set by chance.
    own[rare > 0.0] = 1.0
    # Constant in both sets: the rows are 0 there, and any ridge will do.
    own[constant] = 1.0
    return np.maximum(share + rare, floor), np.maximum(share * own + rare, floor)


def _whiten_features(rows: FloatArray, slope: float, ridge: FloatArray) -> FloatArray:
    """Return ``Z L⁻ᵀ`` with ``LLᵀ = c ZᵀZ + diag(ridge)``."""
    loaded = np.asfortranarray(slope * (rows.T @ rows))
    loaded[np.diag_indices_from(loaded)] += ridge
    lower = np.linalg.cholesky(loaded)
    whitened, _ = lapack.dtrtrs(lower, np.asfortranarray(rows.T), lower=1)
    return np.ascontiguousarray(whitened.T)


def _whiten_kernel(gram: FloatArray, slope: float) -> FloatArray:
    """Return rows with the inner products ``Z (c ZᵀZ + I)⁻¹ Zᵀ = G (cG + I)⁻¹``."""
    loaded = slope * gram
    loaded[np.diag_indices_from(loaded)] += 1.0
    kernel = cho_solve(cho_factor(loaded, lower=True), gram)
    kernel = (kernel + kernel.T) / 2.0
    # Centring took two dimensions.
    jittered = kernel + np.diag(np.full(len(kernel), 1e-10 * kernel.trace() / len(kernel)))
    try:
        return np.ascontiguousarray(np.linalg.cholesky(jittered))
    except np.linalg.LinAlgError:  # rows that are almost copies
        values, vectors = np.linalg.eigh(kernel)
        return np.ascontiguousarray(vectors * np.sqrt(np.maximum(values, 0.0)))
