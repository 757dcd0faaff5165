"""How many components are more than chance: shuffle the rows of target and background.

The largest contrast is found for each shuffled pair of sets exactly as for the two that were given:
means and covariates taken out of each set, in units of the background (and a tenth of both sets),
its covariance shrunk by OAS. So the test holds whatever these steps do. A direction that was found
is taken out of all rows, and the rest is tested again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import comb, prod
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.stats import chi2

from cpcapp.contrast.loading import oas_shrinkage
from cpcapp.moments.rows import FloatArray
from cpcapp.moments.sample import Sample, orthonormal_columns

# Of more rows a random part is used: so many, and so many multiplications for each shuffled pair.
_MAX_ROWS, _MAX_PRODUCTS = 10_000, 2.5e9
_LEAST_PERMUTATIONS = 99
# Shuffled sets that are the observed ones again differ by rounding.
_SAME = 1.0 - 1e-6
# Of rows of variance 1: less is rounding.
_CONSTANT = 1e-10
_RIDGE = 1e-9
# Share of both sets' variance in the units. Without it, a feature that hardly varies in the
# background by chance would decide.
_SHARE_OF_BOTH = 0.1
_FAR_OUT = 0.999
# Means that differ more than in 99 % of shuffled sets are taken out before rows are shuffled.
_MEANS_APART, _GAPS = 0.01, 199
# Huber's estimator cuts at 1.345 standard deviations, half the distance of a Gaussian's quartiles
# beyond them.
_BEYOND_QUARTILES, _HUBER_STEPS = 0.5, 10
# Rows are shuffled within labels if so many have rows of the other set with the same label.
_SHARE_WITH_PARTNERS = 0.9


@dataclass(frozen=True)
class PermutationTest:
    """What `permutation_test` found.

    Attributes
    ----------
    n_components : int
        Directions in which the target varies more than chance explains.
    p_values : tuple of float
        How often shuffled sets have a largest contrast as high as the one observed, at each step:
        the first, which is also ``p_value``, for the two sets as they are, each further one after
        the directions before it were taken out of all rows. A step can count several directions:
        all with a contrast above what shuffled sets give. The smallest value is
        ``1 / (n_permutations + 1)``.
    largest : float
        Largest contrast of the two sets as they are, in the units of the test.
    threshold : float
        What shuffled sets exceed with a probability of ``false_alarm_rate``, in the same units.
    n_permutations : int
        Shuffled sets of the first step. Fewer than asked for if it was clear early that there is
        nothing.
    n_rows : tuple of int
        Rows of target and background used; fewer than there are if a sample was drawn.
    filters : ndarray of shape (n_features, n_components)
        The directions that were counted.
    """

    n_components: int
    p_values: tuple[float, ...]
    largest: float
    threshold: float
    n_permutations: int
    n_rows: tuple[int, int]
    filters: FloatArray = field(repr=False, compare=False)

    @property
    def p_value(self) -> float:
        """Of the two sets as they are."""
        return self.p_values[0]


def count_components_of(
    target: Sample,
    background: Sample,
    *,
    false_alarm_rate: float = 0.05,
    n_permutations: int | None = None,
    random_state: int | np.random.Generator | None = 0,
) -> PermutationTest:
    """Count the directions that are more than chance."""
    n_permutations = _check_permutations(false_alarm_rate, n_permutations)
    rng = np.random.default_rng(random_state)
    target, background = _bounded(target, background, rng)
    arrangements = _Arrangements(target, background)
    arrangements.require(false_alarm_rate)
    sets = _rows_to_shuffle(target, background, arrangements, rng)
    scale = sets[-1].std(axis=0)
    size = np.maximum(np.abs(target.raw).max(axis=0), np.abs(background.raw).max(axis=0))
    units = np.where(scale > _CONSTANT * size, scale, np.inf)
    sets = [(rows - rows.mean(axis=0)) / units for rows in sets]
    drawn_in = _drawing_in(sets[-1])
    sets = [rows * drawn_in for rows in sets]
    # Observed is one of n + 1: with more than this many above it, its rank is out of reach.
    most_above = int(false_alarm_rate * (n_permutations + 1) + 1e-9) - 1
    most = min(sets[0].shape)
    filters = atoms = np.zeros((len(units), 0))
    p_values: list[float] = []
    first = (0.0, 0.0, 0)
    while filters.shape[1] < most:
        contrasts = [_Contrasts(rows, filters, atoms) for rows in sets]
        observed, shuffled = contrasts[0], contrasts[-1]
        value = observed.largest(arrangements.observed)
        if value <= 0.0 or not observed.varies.any():
            break
        chance: list[float] = []
        above = 0
        while len(chance) < n_permutations and above <= most_above:
            chance.append(shuffled.largest(arrangements.shuffle(rng)))
            above += chance[-1] >= _SAME * value
        # With n shuffled sets the observed one is one of n + 1: the rank that keeps the rate exact.
        rank = max(int(false_alarm_rate * (len(chance) + 1) + 1e-9), 1)
        threshold = float(np.sort(chance)[-rank])
        if not p_values:
            first = value, threshold, len(chance)
        p_values.append((above + 1.0) / (len(chance) + 1.0))
        if above > most_above:
            break
        # All contrasts above the threshold are more than chance: without k directions that are,
        # the next one is at most the largest of noise.
        V, W = observed.above(arrangements.observed, min(threshold, _SAME * value))
        left = most - filters.shape[1]
        filters = np.hstack([filters, (V - filters @ (atoms.T @ V))[:, :left]])
        atoms = np.hstack([atoms, W[:, :left]])
    return PermutationTest(
        n_components=filters.shape[1],
        p_values=tuple(p_values) or (1.0,),
        largest=first[0],
        threshold=first[1],
        n_permutations=first[2],
        n_rows=(len(target), len(background)),
        filters=filters / np.where(scale > 0.0, scale, 1.0)[:, None],
    )


def _check_permutations(false_alarm_rate: float, n_permutations: int | None) -> int:
    """Return how many permutations to make, or raise ``ValueError``."""
    if not (isinstance(false_alarm_rate, Real) and 0.0 < false_alarm_rate < 1.0):
        raise ValueError(f"false_alarm_rate={false_alarm_rate!r} must be between 0 and 1")
    needed = int(np.ceil(1.0 / false_alarm_rate - 1e-9)) - 1
    if n_permutations is None:
        return max(_LEAST_PERMUTATIONS, needed)
    if isinstance(n_permutations, bool) or not isinstance(n_permutations, Integral):
        raise TypeError(f"n_permutations={n_permutations!r} must be a whole number")
    if n_permutations < needed:
        raise ValueError(
            f"n_permutations={n_permutations} must be at least {needed} for "
            f"false_alarm_rate={false_alarm_rate}"
        )
    return int(n_permutations)


def _bounded(target: Sample, background: Sample, rng: np.random.Generator) -> tuple[Sample, Sample]:
    """Return at most as many rows as are used; the smaller set keeps more of its own."""
    p = target.raw.shape[1]
    # A shuffled pair takes n p² multiplications, or with more features than rows n² p / 2.
    most = max(_MAX_PRODUCTS / p**2, min(p, (2.0 * _MAX_PRODUCTS / p) ** 0.5))
    most = int(min(most, _MAX_ROWS))
    if len(target) + len(background) <= most:
        return target, background

    def part(sample: Sample, other: Sample) -> Sample:
        n = min(len(sample), max(most // 2, most - len(other)))
        return sample.take(np.sort(rng.permutation(len(sample))[:n]))

    return part(target, background), part(background, target)


# -- two sets, as given and shuffled --------------------------------------------------------


class _Side(NamedTuple):
    """Rows that lie in one set, the roots of their weights, and an orthonormal design."""

    rows: NDArray[np.intp]
    root: FloatArray
    design: FloatArray

    def residuals(self, Z: FloatArray) -> FloatArray:
        """Return the rows without the design, so that their scatter is the covariance."""
        rows = Z[self.rows] * self.root
        rows -= self.design @ (self.design.T @ rows)
        # A weight of w counts as w rows (Kish).
        total, squares = (self.root**2).sum(), (self.root**4).sum()
        # Shuffled groups can leave fewer rows than columns; what is left of those is nothing.
        lost = self.design.shape[1] * squares / total
        rows /= np.sqrt(max(total - lost, squares / total))
        return np.asarray(rows)


class _Arrangements:
    """The two sets as given, and shuffled.

    Rows get the weights and designs of the places where they come to lie. Groups move whole, with
    their weights and covariates; where both sets have not the same columns, only with a mean.
    Where covariates are labels, rows are shuffled within each label.
    """

    def __init__(self, target: Sample, background: Sample) -> None:
        n = self.n_target = len(target)
        sets = target, background
        self.weights = np.concatenate([s.weights for s in sets])
        self.groups = np.concatenate([target.groups, background.groups + target.n_groups])
        self.n_groups = target.n_groups, background.n_groups
        self.grouped = sum(self.n_groups) < len(self.weights)
        alike = target.design.shape[1] == background.design.shape[1]
        designs = [s.design if alike else np.ones((len(s), 1)) for s in sets]
        self.design = np.concatenate(designs)
        self.observed = [
            _side(rows, self.weights[rows], s.design)
            for rows, s in zip(np.split(np.arange(len(self.weights)), [n]), sets, strict=True)
        ]
        levels, strata = np.unique(self.design, axis=0, return_inverse=True)
        counts = [np.bincount(part, minlength=len(levels)) for part in np.split(strata, [n])]
        shared = np.sum(counts, axis=0)[np.min(counts, axis=0) > 0].sum()
        most = _SHARE_WITH_PARTNERS * len(strata)
        # Whether rows of a label may change places as they are: all that is taken out is means.
        self.exact = alike and (
            len(levels) == 1
            or (not self.grouped and len(levels) <= self.design.shape[1] and shared >= most)
        )
        self.strata = strata.ravel() if self.exact else np.zeros(len(strata), dtype=np.intp)
        self.places = np.argsort(self.strata, kind="stable")

    def require(self, false_alarm_rate: float) -> None:
        """Raise ``ValueError`` if there are too few ways to divide the rows into two sets."""
        n_f, n_b = self.n_groups
        ways = comb(n_f + n_b, n_f)
        if not self.grouped:
            in_target, both = self.strata[: self.n_target], self.strata
            ways = prod(map(comb, np.bincount(both).tolist(), np.bincount(in_target).tolist()))
        if ways < 1.0 / false_alarm_rate:
            raise ValueError(
                f"{n_f} target and {n_b} background units (rows or groups) can be arranged in "
                f"{ways} ways only, too few for false_alarm_rate={false_alarm_rate:g}; it must be "
                f"at least {1.0 / ways:.2g}, or give n_components as a number"
            )

    def shuffle(self, rng: np.random.Generator) -> list[_Side]:
        """Return two shuffled sets."""
        if self.grouped:
            in_target = (rng.permutation(sum(self.n_groups)) < self.n_groups[0])[self.groups]
            both = np.flatnonzero(in_target), np.flatnonzero(~in_target)
            return [_side(rows, self.weights[rows], self.design[rows]) for rows in both]
        moved = rng.permutation(len(self.weights))
        order = np.empty_like(moved)
        order[self.places] = moved[np.argsort(self.strata[moved], kind="stable")]
        parts = np.split(order, [self.n_target])
        return [side._replace(rows=i) for side, i in zip(self.observed, parts, strict=True)]


def _side(rows: NDArray[np.intp], weights: FloatArray, design: FloatArray) -> _Side:
    root = np.sqrt(weights)[:, None]
    return _Side(rows, root, orthonormal_columns(design * root))


# -- the largest contrast ------------------------------------------------------------------


class _Contrasts:
    """Contrasts ``R_f v = λ B v`` of two sets of rows, without directions that were counted.

    Units are nine tenths of the background's variance of each feature and one tenth of that of
    both sets. In these units ``B = (1 - s) R_b + s tr(R_b)/p I``, with the share s of OAS.
    """

    def __init__(self, rows: FloatArray, filters: FloatArray, atoms: FloatArray) -> None:
        self.whole = rows
        self.Z = rows - (rows @ filters) @ atoms.T if filters.size else rows
        self.varies = self.Z.var(axis=0) > _CONSTANT
        squares = (rows - rows.mean(axis=0)) ** 2
        self.pooled = squares.mean(axis=0)
        known = np.where(self.pooled > _CONSTANT, self.pooled, 1.0)
        self.excess = np.maximum((squares**2).mean(axis=0) / known**2 - 3.0, 0.0)

    def largest(self, sides: list[_Side]) -> float:
        """Return the largest contrast."""
        R_f, B = self._in_units(sides)[:2]
        top = (len(B) - 1, len(B) - 1)
        return float(eigh(R_f, B, eigvals_only=True, subset_by_index=top, check_finite=False)[0])

    def above(self, sides: list[_Side], bound: float) -> tuple[FloatArray, FloatArray]:
        """Return filters and atoms of all contrasts above a bound, the largest first."""
        R_f, B, units, rows, L = self._in_units(sides)
        V = eigh(R_f, B, subset_by_value=(bound, np.inf), check_finite=False)[1][:, ::-1]
        W = B @ V
        if L is not None:
            V, W = (rows.T @ solve_triangular(L, A, lower=True, trans="T") for A in (V, W))
        return V / units[:, None], np.where(self.varies, units, 0.0)[:, None] * W

    def _in_units(
        self, sides: list[_Side]
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray | None]:
        """Return ``R_f`` and ``B``, the units, both sets' rows in them, and ``L`` if p > n."""
        n_f, n_b = (len(side.rows) for side in sides)
        rows = np.vstack([side.residuals(self.Z) for side in sides])
        before = rows[n_f:] if self.whole is self.Z else sides[1].residuals(self.whole)
        variance = np.einsum("ij,ij->j", before, before)
        units = (1.0 - _SHARE_OF_BOTH) * variance + _SHARE_OF_BOTH * self.pooled
        # Var(s²)/s⁴ is (κ - 1)/n. What tails add to it is how unsure a variance is: of 1, as that
        # of a single 1 among zeros, where twice both sets' is the most that a set can have.
        unsure = np.minimum(self.excess / n_b, 1.0)
        units += unsure * (2.0 * self.pooled - units)
        units = np.sqrt(np.where(self.varies, units, np.inf))
        rows /= units
        p, L = rows.shape[1], None
        if p > len(rows):
            # As the loading is a multiple of I, any orthonormal coordinates will do: with
            # LLᵀ = ZZᵀ the rows L are the rows Z in the basis ZᵀL⁻ᵀ of their span.
            inner = rows @ rows.T
            inner[np.diag_indices(len(inner))] += _CONSTANT * (1.0 + np.trace(inner) / len(inner))
            L = cholesky(inner, lower=True, check_finite=False)
        F, Y = np.split(rows if L is None else L, [n_f])
        R_f, B = F.T @ F, Y.T @ Y
        trace = float(np.trace(B))
        share = oas_shrinkage(trace, float(np.vdot(B, B)), n_b, p) if trace > 0.0 else 1.0
        B *= 1.0 - share
        B[np.diag_indices(len(B))] += share * trace / p + _RIDGE
        return R_f, B, units, rows, L


def _drawing_in(Z: FloatArray) -> FloatArray:
    """Return what draws rows further out than 99.9 % of Gaussian ones in to that distance.

    The distance is in standard deviations of both sets, so both are treated alike, and a few rows
    with a scale of their own do not hide the others.
    """
    squares = np.einsum("ij,ij->i", Z, Z)
    inner = Z.T @ Z if Z.shape[1] <= len(Z) else Z @ Z.T
    # The squared distance is about χ² with (tr R)²/tr R² degrees of freedom (Satterthwaite).
    square = float(np.vdot(inner, inner))
    if square > 0.0:
        freedom = float(np.trace(inner)) ** 2 / square
        limit = np.median(squares) * chi2.ppf(_FAR_OUT, freedom) / chi2.median(freedom)
        if limit > 0.0:
            return np.asarray(np.sqrt(limit / np.maximum(squares, limit))[:, None])
    return np.ones((len(Z), 1))


# -- what is shuffled ----------------------------------------------------------------------


def _rows_to_shuffle(
    target: Sample, background: Sample, arrangements: _Arrangements, rng: np.random.Generator
) -> list[FloatArray]:
    """Return rows as they are, or where that would tell the sets apart, without their design.

    Then twice: as they are left, of which the observed sets are made, and with the variance that
    their design took. A shuffled set loses as much once more, so that all have lost it once.
    """
    lost = _lost(target, background, rng)
    if arrangements.exact and not (lost.any() and arrangements.strata.any()):
        Z = np.concatenate([target.raw, background.raw])
        present = np.maximum((~lost).sum(axis=0), 1)
        Z = np.where(lost, np.where(lost, 0.0, Z).sum(axis=0) / present, Z)
        Q = orthonormal_columns(arrangements.design)
        Z -= Q @ (Q.T @ Z)
        if not _means_differ(Z, arrangements, rng):
            return [Z]
    parts = zip((target, background), np.split(lost, [len(target)]), strict=True)
    both = [_residuals(sample, part) for sample, part in parts]
    return [np.concatenate(rows) for rows in zip(*both, strict=True)]


def _lost(target: Sample, background: Sample, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which values of both sets not to use.

    Each row also loses what a random row of the other set lacks: then both sets lack as much.
    """
    lacking = [
        np.zeros(s.raw.shape, dtype=bool) if s.missing is None else s.missing
        for s in (target, background)
    ]
    both = np.concatenate(lacking)
    if both.any():
        parts = zip(lacking, lacking[::-1], strict=True)
        both |= np.concatenate([of[rng.integers(len(of), size=len(to))] for to, of in parts])
    return both


def _means_differ(Z: FloatArray, arrangements: _Arrangements, rng: np.random.Generator) -> bool:
    """Return whether the means of both sets differ by more than chance, by a permutation test."""
    spread = Z.std(axis=0)
    q = arrangements.observed[0].design.shape[1]
    coefficients = np.zeros((_GAPS + 1, q, len(Z)))
    for i, part in enumerate(coefficients):
        side = (arrangements.shuffle(rng) if i else arrangements.observed)[0]
        part[: side.design.shape[1], side.rows] = (side.design * side.root).T
    gaps = coefficients.reshape(-1, len(Z)) @ (Z / np.where(spread > 0.0, spread, 1.0))
    squares = (gaps**2).reshape(_GAPS + 1, -1).sum(axis=1)
    return bool((squares[1:] >= _SAME * squares[0]).sum() < _MEANS_APART * (_GAPS + 1))


def _residuals(sample: Sample, lost: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Return rows without the effects of their design, and the same with their whole variance.

    The effects are those of Huber's robust estimator. By least squares one value far out would move
    all other rows, and shuffled sets would differ from the observed ones by that.
    """
    root = np.sqrt(sample.weights)[:, None]
    Q = orthonormal_columns(sample.design * root)

    def effects(rows: FloatArray) -> FloatArray:
        return np.asarray(Q @ (Q.T @ (rows * root)) / root)

    plain, steady = sample.raw - effects(sample.raw), sample.raw - np.median(sample.raw, axis=0)
    rows = np.where(np.abs(plain).sum(axis=0) < np.abs(steady).sum(axis=0), plain, steady)
    quantile = np.nanquantile if lost.any() else np.quantile
    unseen = lost & ~lost.all(axis=0)
    for _ in range(_HUBER_STEPS):
        low, high = quantile(np.where(unseen, np.nan, rows), [0.25, 0.75], axis=0)
        beyond = _BEYOND_QUARTILES * (high - low)
        rows = rows - effects(np.where(lost, 0.0, np.clip(rows, low - beyond, high + beyond)))
    rows = np.where(lost, 0.0, rows)
    # A row of leverage h lost the share h of its variance; in groups what its rows have in common.
    sums = sp.csr_array((root[:, 0], (sample.groups, np.arange(len(rows)))))
    sums = sums / np.sqrt(sums.multiply(sums).sum(axis=1))[:, None]
    common = sums.T @ (sums @ (rows * root)) / root
    kept = 1.0 - ((sums @ Q) ** 2).sum(axis=1)[sample.groups, None]
    return rows, rows + common * (1.0 / np.sqrt(np.maximum(kept, 1.0 / len(rows))) - 1.0)
