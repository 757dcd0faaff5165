"""How many components are more than chance: shuffle the rows of target and background.

With ``S_f`` and ``S_b`` the scatters of the two sets and ``D`` the loading, the contrast is
``S_f/n_f v = λ (w S_b/n_b + D) v``. Shuffling leaves ``A = w (S_f + S_b)/n_b + D`` almost as it is,
and ``S_f v = κ A v`` has the same eigenvectors, with ``κ = n_f λ / (1 + w n_f/n_b λ)`` rising with
λ. So the pooled rows are whitened by ``A`` once. After that a permutation takes products with its
target rows only, and no factorization.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, lapack
from scipy.stats import chi2

from cpcapp._blocks import centre_full_columns
from cpcapp._rows import refuse_masked
from cpcapp.contrast import InsufficientRankError, solve_contrast
from cpcapp.loading import Loading
from cpcapp.moments import FloatArray, Moments

# Whitened rows of this many cells (16 MB) are kept for the permutations, of at most so many rows.
# Beyond that the rows are a random sample.
_MAX_CELLS = 1 << 21
_MAX_ROWS = 10_000
# Copies of a feature are singular however many rows there are; `loading.py` has the same floor.
_LEAST_RIDGE = 1e-9
# Permutations of the first batch: where there is nothing, they mostly suffice to say so.
_FIRST_BATCH = 25
# Squared relative error of a variance, up to which it is taken for an estimate: a rare value occurs
# in at least 10 rows.
_MOST_VARIABLE = 0.1
# Rows further out than this share of Gaussian ones are drawn in, until there are none: mostly once.
_FAR_OUT = 0.999
_DRAWN_IN_TIMES = 3
_LANCZOS_TOLERANCE = 3e-4
_LANCZOS_STEPS = 300
_CHECKED_EVERY = 10


@dataclass(frozen=True)
class PermutationTest:
    """What `permutation_test` found.

    Attributes
    ----------
    n_components : int
        Components with an eigenvalue above the threshold.
    p_value : float
        How often shuffled sets have a largest eigenvalue as high as the one observed. The smallest
        value it can take is ``1 / (n_permutations + 1)``.
    largest : float
        Largest eigenvalue of the two sets as they are, but for rows that were drawn in. That of
        `solve_contrast` can be larger, for heavy tails, and for features that vary little in the
        background by chance.
    threshold : float
        Eigenvalue that shuffled sets exceed with a probability of ``false_alarm_rate``.
    n_permutations : int
        Permutations made. Fewer than asked for if it was clear early that there is nothing.
    n_rows : tuple of int
        Rows of target and background used; fewer than there are if a sample was drawn.
    """

    n_components: int
    p_value: float
    largest: float
    threshold: float
    n_permutations: int
    n_rows: tuple[int, int]


def permutation_test(
    X: Any,
    background: Any,
    *,
    groups: Any = None,
    background_groups: Any = None,
    false_alarm_rate: float = 0.05,
    n_permutations: int | None = None,
    loading: str | float = "auto",
    random_state: int | np.random.Generator | None = 0,
    stop_early: bool = True,
) -> PermutationTest:
    """Count the components that stand above what shuffling target and background gives.

    Assumes no distribution and works with any number of features. What is compared is the largest
    eigenvalue of the contrast, with the loading of the two sets as they are. Where the loading
    is in units of each feature, these are here the variance of the feature in both sets, so that a
    feature that is almost constant in one set can't give large eigenvalues by itself. Rows that
    lie further out than 99.9 % of Gaussian rows would (by their distance from the centre in units
    of both sets) are drawn in to that distance, so that a few of them can't decide.

    Parameters
    ----------
    X, background : array-like or sparse matrix of shape (n, n_features)
        A difference of their means beyond chance is removed before rows are shuffled, by the
        means of the middle half of each feature.
    groups, background_groups : array-like of shape (n,), optional
        Rows with the same label move together: all cells of a patient, copies of a row, runs of a
        time series. Give both or neither. A label names one group of X and another one of the
        background.
    false_alarm_rate : float, default=0.05
        Probability to count anything when both sets are samples of one population.
    n_permutations : int, optional
        At least ``1/false_alarm_rate - 1``. By default 99, or as many as the rate needs.
    loading : {"auto", "oas", "none", "diagonal"} or float, default="auto"
        As in `solve_contrast`.
    random_state : int, Generator or None, default=0
    stop_early : bool, default=True
        Stop as soon as too many shuffled sets exceed the observed one for anything to be counted.

    Returns
    -------
    PermutationTest

    Notes
    -----
    Of more than 10,000 rows, or more than ``2**21`` values, a random sample of rows is used (at
    least 1448 rows, as far as there are as many).

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import permutation_test
    >>> rng = np.random.default_rng(0)
    >>> X, B = rng.normal(size=(60, 100)), rng.normal(size=(60, 100))
    >>> permutation_test(X, B).n_components
    0
    >>> X[:, :2] *= 4
    >>> found = permutation_test(X, B)
    >>> found.n_components, found.p_value
    (2, 0.01)
    """
    n_permutations = check_permutations(false_alarm_rate, n_permutations)
    rows = [_as_rows(X, "X"), _as_rows(background, "background")]
    labels = check_groups(groups, background_groups, rows[0].shape[0], rows[1].shape[0])
    rng = np.random.default_rng(random_state)
    rows, labels = _sample(rows, labels, rng)
    target, back = Moments.of(rows[0]), Moments.of(rows[1])
    # Steering does not change the loading.
    shrinking = "likelihood" if loading == "auto" else loading
    found = solve_contrast(target, back, 1, loading=shrinking).loading
    assert found is not None
    pool = _Pool.whiten(rows, (target, back), labels, found, loading)
    pool.check_arrangements(false_alarm_rate)
    return _shuffle(pool, false_alarm_rate, n_permutations, rng, stop_early)


def count_loaded(
    test: PermutationTest,
    target: Moments,
    background: Moments,
    *,
    loading: str | float = "auto",
) -> int:
    """Return how many components are significant, of those that a loading gives.

    The loading has the last word on which components there are: those that `solve_contrast`
    returns must be above the threshold too. One stays if the test finds any.

    Parameters
    ----------
    test : PermutationTest
        Of rows of both sets.
    target, background : Moments
    loading : str or float, default="auto"

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, B = rng.normal(size=(60, 100)), rng.normal(size=(60, 100))
    >>> X[:, :2] *= 4
    >>> count_loaded(permutation_test(X, B), Moments.of(X), Moments.of(B))
    2
    """
    assert target.n_features is not None
    k = min(test.n_components, target.n_samples - 1, target.n_features)
    while k > 0:
        try:
            found = solve_contrast(target, background, k, loading=loading).eigenvalues
        except InsufficientRankError as error:
            k = error.rank
            continue
        above = max(int((found > test.threshold).sum()), 1)
        if above >= k:
            break
        k = above
    return k


def check_permutations(false_alarm_rate: float, n_permutations: int | None) -> int:
    """Return how many permutations to make, or raise ``ValueError``."""
    if not 0.0 < false_alarm_rate < 1.0:
        raise ValueError(f"false_alarm_rate={false_alarm_rate} must be between 0 and 1")
    needed = int(np.ceil(1.0 / false_alarm_rate - 1e-9)) - 1
    if n_permutations is None:
        return max(99, needed)
    if n_permutations < needed:
        raise ValueError(
            f"n_permutations={n_permutations} must be at least {needed} for "
            f"false_alarm_rate={false_alarm_rate}"
        )
    return n_permutations


def check_groups(
    groups: Any, background_groups: Any, n_target: int, n_background: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Return the groups of both sets as numbers from 0, or None if there are none.

    Examples
    --------
    >>> check_groups(["a", "b", "a"], [7, 5], 3, 2)
    (array([0, 1, 0]), array([1, 0]))
    """
    if groups is None and background_groups is None:
        return None
    if groups is None or background_groups is None:
        given, missing = ("groups", "background_groups")[:: 1 if background_groups is None else -1]
        raise ValueError(
            f"{given} was given without {missing}; rows are shuffled between both sets, so give "
            "the groups of both (numpy.arange(n) where each row is its own)"
        )
    numbered = []
    for name, values, n in (
        ("groups", groups, n_target),
        ("background_groups", background_groups, n_background),
    ):
        labels = np.asarray(refuse_masked(values, name))
        if labels.shape != (n,):
            raise ValueError(f"{name} has shape {labels.shape}; it must be ({n},), one per row")
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise ValueError(f"{name} contains NaN or infinity; give every row a label")
        numbered.append(np.unique(labels, return_inverse=True)[1])
        if numbered[-1].max() < 1:
            raise ValueError(f"{name} has 1 group; at least 2 are needed")
    return numbered[0], numbered[1]


def mean_excess_kurtosis(rows: Any) -> float:
    """Return the mean over features of the excess kurtosis, 0 for Gaussian samples.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> round(mean_excess_kurtosis(rng.laplace(size=(100_000, 2))))
    3
    """
    moments = Moments.of(rows)
    spread = moments.spread()
    scale = np.where(spread.constant, np.inf, np.sqrt(spread.variance))
    assert moments.mean is not None
    centres = moments.mean, moments.mean
    kurtosis = _Centred([_as_rows(rows, "rows")], centres, scale).mean_powers(4)[0]
    return float(kurtosis[~spread.constant].mean()) - 3.0 if not spread.constant.all() else 0.0


def count_positive(matrix: FloatArray) -> int:
    """Return how many eigenvalues of a symmetric matrix are positive. Uses up the matrix.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        In Fortran order, valid in its lower triangle.

    Examples
    --------
    >>> count_positive(np.asfortranarray([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 3.0]]))
    2
    """
    workspace = int(lapack.dsytrf_lwork(len(matrix), lower=1)[0])
    factor, pivots, _ = lapack.dsytrf(matrix, lower=1, lwork=workspace, overwrite_a=1)
    # LDLᵀ of Bunch and Kaufman: a block of order 2 has one eigenvalue of either sign, and its
    # two rows a negative pivot each.
    single = pivots > 0
    return int((factor.diagonal()[single] > 0.0).sum()) + int((~single).sum()) // 2


def kept_rows(moments: Moments) -> Any:
    """Return the rows that moments still hold, or None if they hold the scatter only, or weights.

    Examples
    --------
    >>> kept_rows(Moments.of(np.ones((2, 5)))).shape
    (2, 5)
    """
    if not moments.is_thin or not moments.n_samples or moments.is_weighted:
        return None
    blocks = moments._rows
    if any(sp.issparse(block) for block in blocks):
        return sp.csr_array(sp.vstack([sp.csr_array(block) for block in blocks]))
    return np.concatenate(blocks)


# -- rows ----------------------------------------------------------------------------------


def as_matrix(data: Any) -> Any:
    """Return rows as an array of numbers or a CSR matrix."""
    if sp.issparse(data):
        return sp.csr_array(data)
    array = np.asarray(data)
    return array.astype(np.float64) if array.dtype.kind == "O" else array


class RowSubset:
    """Some rows of an array or a sparse matrix, read when they are asked for.

    Examples
    --------
    >>> rows = RowSubset(np.arange(10.0).reshape(5, 2), np.array([0, 3, 4]))
    >>> rows.shape, rows[np.array([1])]
    ((3, 2), array([[6., 7.]]))
    """

    def __init__(self, data: Any, index: NDArray[np.intp]) -> None:
        self.data, self.index = as_matrix(data), index
        self.shape = (len(index), self.data.shape[1])

    def __getitem__(self, chosen: Any) -> Any:
        return self.data[self.index[chosen]]


def _as_rows(data: Any, name: str) -> Any:
    return data if isinstance(data, RowSubset) else as_matrix(refuse_masked(data, name))


def _max_rows(n_features: int) -> int:
    """Return how many rows fit: whitened ones have as many columns as rows or features.

    Examples
    --------
    >>> _max_rows(20), _max_rows(1000), _max_rows(20_000)
    (10000, 2097, 1448)
    """
    return max(int(_MAX_CELLS**0.5), min(_MAX_ROWS, _MAX_CELLS // n_features))


def _sample(
    rows: list[Any],
    labels: tuple[NDArray[np.intp], NDArray[np.intp]] | None,
    rng: np.random.Generator,
) -> tuple[list[Any], tuple[NDArray[np.intp], NDArray[np.intp]] | None]:
    """Return at most as many rows as are used; the smaller set keeps more of its own."""
    most = _max_rows(rows[0].shape[1])
    counts = [part.shape[0] for part in rows]
    if sum(counts) <= most:
        return [part[:] if isinstance(part, RowSubset) else part for part in rows], labels
    half = most // 2
    rows, kept_labels = list(rows), []
    for i, n in enumerate(counts):
        kept = min(n, max(half, most - counts[1 - i]))
        chosen = np.sort(rng.permutation(n)[:kept])
        rows[i] = rows[i][chosen]
        if labels is not None:
            kept_labels.append(np.unique(labels[i][chosen], return_inverse=True)[1])
    return rows, None if labels is None else (kept_labels[0], kept_labels[1])


@dataclass(frozen=True)
class _Pool:
    """Rows of target, then of background, whitened by ``A``; and what moves together.

    ``own_rows`` are whitened with the loading of the sets as they are, ``rows`` with that of
    shuffled ones, in single precision: chance needs no more digits.
    """

    rows: NDArray[np.float32]
    own_rows: FloatArray
    n_target: int
    units: NDArray[np.intp]  # of each row; those of the target come first
    n_target_units: int
    slope: float  # c = w/n_b

    @classmethod
    def whiten(
        cls,
        rows: list[Any],
        moments: tuple[Moments, Moments],
        labels: tuple[NDArray[np.intp], NDArray[np.intp]] | None,
        found: Loading,
        loading: str | float,
    ) -> _Pool:
        n_f, n_b = (part.shape[0] for part in rows)
        if labels is None:
            labels = np.arange(n_f), np.arange(n_b)
        n_units = int(labels[0].max()) + 1, int(labels[1].max()) + 1
        centred = _Centred.of(rows, moments, n_units)
        slope = found.weight / n_b
        shuffled, own = _ridges(found, moments[1], loading, centred, n_units)
        whitened = centred.whiten(slope, shuffled)
        for _ in range(_DRAWN_IN_TIMES):
            if not centred.draw_in(whitened, slope):
                break
            whitened = centred.whiten(slope, shuffled)
        own_rows = whitened if np.array_equal(own, shuffled) else centred.whiten(slope, own)
        units = np.concatenate([labels[0], labels[1] + n_units[0]])
        return cls(whitened.astype(np.float32), own_rows, n_f, units, n_units[0], slope)

    @property
    def n_units(self) -> int:
        return int(self.units.max()) + 1

    def check_arrangements(self, false_alarm_rate: float) -> None:
        """Raise ``ValueError`` if there are too few ways to divide the units into two sets."""
        ways = comb(self.n_units, self.n_target_units)
        if ways < 1.0 / false_alarm_rate:
            raise ValueError(
                f"{self.n_target_units} target and {self.n_units - self.n_target_units} background "
                f"units (rows or groups) can be arranged in {ways} ways only, too few for "
                f"false_alarm_rate={false_alarm_rate:g}; it must be at least {1.0 / ways:.2g}, or "
                "give n_components as a number"
            )

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return 1 for the rows of each shuffled target, (n_rows, n)."""
        chosen = np.zeros((self.n_units, n), dtype=np.float32)
        for i in range(n):
            chosen[rng.permutation(self.n_units)[: self.n_target_units], i] = 1.0
        return chosen[self.units]

    def largest(self, masks: NDArray[np.float32]) -> FloatArray:
        """Return the largest κ for each target, in the units of the observed number of rows."""
        split = _Split(self.rows, masks, self.slope)
        return np.asarray(_largest(split) * (self.n_target / split.counts))

    def own(self) -> _Split:
        """Return the two sets as they are."""
        mask = (np.arange(len(self.rows)) < self.n_target).astype(np.float64)[:, None]
        return _Split(self.own_rows, mask, self.slope)

    def own_largest(self) -> float:
        return float(_largest(self.own())[0])

    def count_above(self, kappa: float) -> int:
        """Return how many κ of the sets as they are lie above a value (Sylvester's law)."""
        own = self.own()
        rows = self.own_rows[: self.n_target] - own.mean[:, 0]
        shifted = np.asfortranarray(rows.T @ rows)
        shifted += kappa * np.multiply.outer(own.gap[:, 0], own.gap[:, 0])
        shifted[np.diag_indices_from(shifted)] -= kappa
        return count_positive(shifted)

    def eigenvalue(self, kappa: float) -> float:
        """Return the λ that belongs to a κ."""
        return float(kappa / (self.n_target * max(1.0 - self.slope * kappa, 1e-12)))


class _Split:
    """The pooled rows divided into target and background in several ways at once.

    Each set is centred on its own mean. ``S_f + S_b`` then lacks ``n_f n_b/n δδᵀ``, with δ the
    difference of the means, of the scatter that ``A`` has: ``S_f v = κ (I - ggᵀ) v``.
    """

    def __init__(self, rows: NDArray[Any], masks: NDArray[Any], slope: float) -> None:
        n = len(rows)
        self.rows, self.masks = rows, masks
        self.counts = masks.sum(axis=0)
        others = n - self.counts
        self.mean = rows.T @ masks / self.counts
        delta = (self.mean - rows.mean(axis=0)[:, None]) * (n / others).astype(rows.dtype)
        self.gap = np.sqrt(slope * self.counts * others / n).astype(rows.dtype) * delta
        square = np.einsum("ij,ij->j", self.gap, self.gap)
        self._unit = self.gap / np.sqrt(np.where(square > 0.0, square, 1.0))
        self._stretch = 1.0 / np.sqrt(np.maximum(1.0 - square, 1e-6)) - 1.0

    def times(self, V: NDArray[Any]) -> NDArray[Any]:
        """Return ``(I - ggᵀ)^-½ S_f (I - ggᵀ)^-½ v`` for the column of each division."""
        stretched = self._stretched(V)
        outputs = self.rows @ stretched
        outputs -= np.einsum("ij,ij->j", self.mean, stretched)
        outputs *= self.masks
        return self._stretched(np.asarray(self.rows.T @ outputs))

    def _stretched(self, V: NDArray[Any]) -> NDArray[Any]:
        along = self._stretch * np.einsum("ij,ij->j", self._unit, V)
        return np.asarray(V + along * self._unit)


def _largest(split: _Split) -> FloatArray:
    shape = split.rows.shape[1], split.masks.shape[1]
    start = np.random.default_rng(0).standard_normal(shape)
    return lanczos(split.times, start.astype(split.rows.dtype))


class _Centred:
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
    ) -> _Centred:
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


def _ridges(
    found: Loading,
    background: Moments,
    loading: str | float,
    centred: _Centred,
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


# -- permutations --------------------------------------------------------------------------


def _shuffle(
    pool: _Pool, rate: float, n_permutations: int, rng: np.random.Generator, stop_early: bool
) -> PermutationTest:
    own = pool.own_largest()
    # Observed is one of n + 1: more than this many above it, and its rank is out of reach.
    most_above = int(np.floor(rate * (n_permutations + 1) + 1e-9)) - 1
    found = np.empty(0)
    while len(found) < n_permutations:
        batch = min(_FIRST_BATCH if not len(found) else 100, n_permutations - len(found))
        found = np.concatenate([found, pool.largest(pool.draw(batch, rng))])
        if stop_early and (found >= own).sum() > most_above:
            break
    # With n permutations the observed value is one of n + 1: the rank that keeps the rate exact.
    rank = max(int(np.floor(rate * (len(found) + 1) + 1e-9)), 1)
    threshold = float(np.sort(found)[-rank])
    above = int((found >= own).sum())
    n_rows = (pool.n_target, len(pool.rows) - pool.n_target)
    return PermutationTest(
        n_components=0 if above > most_above else max(pool.count_above(threshold), 1),
        p_value=(above + 1.0) / (len(found) + 1.0),
        largest=pool.eigenvalue(own),
        threshold=pool.eigenvalue(threshold),
        n_permutations=len(found),
        n_rows=n_rows,
    )


def lanczos(times: Callable[[NDArray[Any]], NDArray[Any]], start: NDArray[Any]) -> FloatArray:
    """Return the largest eigenvalues of several symmetric operators at once.

    Without reorthogonalization Lanczos finds copies of eigenvalues that it has already found, but
    the largest one is right. Doing all operators in one product is what makes this fast.

    Parameters
    ----------
    times : callable
        Applies operator ``i`` to column ``i`` of a matrix.
    start : ndarray of shape (order, n_operators)

    Returns
    -------
    ndarray of shape (n_operators,)

    Examples
    --------
    >>> values = np.array([[5.0, 1.0], [2.0, 7.0], [1.0, 3.0]])
    >>> lanczos(lambda V: values * V, np.ones((3, 2))).round(6)
    array([5., 7.])
    """
    v = start / np.linalg.norm(start, axis=0)
    before = np.zeros_like(v)
    diagonal: list[NDArray[Any]] = []
    beside: list[NDArray[Any]] = []
    largest = np.zeros(v.shape[1])
    for step in range(1, _LANCZOS_STEPS + 1):
        w = times(v)
        if beside:
            w -= beside[-1] * before
        diagonal.append(np.einsum("ij,ij->j", v, w))
        w -= diagonal[-1] * v
        last = step == min(len(v), _LANCZOS_STEPS)
        if last or step % _CHECKED_EVERY == 0:
            previous, largest = largest, _largest_of_tridiagonal(diagonal, beside)
            if last or (largest - previous <= _LANCZOS_TOLERANCE * largest).all():
                break
        beside.append(np.linalg.norm(w, axis=0))
        before, v = v, w / np.where(beside[-1] > 0.0, beside[-1], 1.0)
    return largest


def _largest_of_tridiagonal(diagonal: list[NDArray[Any]], beside: list[NDArray[Any]]) -> FloatArray:
    order = np.arange(len(diagonal))
    matrices = np.zeros((len(diagonal[0]), len(order), len(order)))
    matrices[:, order, order] = np.transpose(diagonal)
    if beside:
        matrices[:, order[1:], order[:-1]] = np.transpose(beside)  # eigvalsh reads this triangle
    return np.asarray(np.linalg.eigvalsh(matrices)[:, -1])
