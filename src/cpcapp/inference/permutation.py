"""How many components are more than chance: shuffle the rows of target and background.

The largest contrast is found for each shuffled pair of sets exactly as for the two that were given:
means and covariates taken out of each set, in units of the background (and a tenth of both sets),
its covariance shrunk by OAS. So the test holds whatever these steps do. A direction that was found
is taken out of all rows, and the rest is tested again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import chi2

from cpcapp.inference.arrangements import Arrangements, LargestContrast, orthonormal_design
from cpcapp.moments.rows import FloatArray
from cpcapp.moments.sample import Sample

# Of more rows a random part is used: so many, and so many multiplications for each shuffled pair.
_MAX_ROWS, _MAX_PRODUCTS = 10_000, 2.5e9
_LEAST_PERMUTATIONS = 99
# Shuffled sets that are the observed ones again differ by rounding.
_SAME = 1.0 - 1e-6
_CONSTANT = 1e-10
_FAR_OUT = 0.999
# Means that differ more than in 99 % of shuffled sets are taken out before rows are shuffled.
_MEANS_APART, _GAPS = 0.01, 199
# Huber's estimator cuts at 1.345 standard deviations, half the distance of a Gaussian's quartiles
# beyond them.
_BEYOND_QUARTILES, _HUBER_STEPS = 0.5, 10


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
    most: int | None = None,
    random_state: int | np.random.Generator | None = 0,
    stop_early: bool = True,
) -> PermutationTest:
    """Count the directions that are more than chance, at most ``most`` of them."""
    n_permutations = _check_permutations(false_alarm_rate, n_permutations)
    rng = np.random.default_rng(random_state)
    target, background = _bounded(target, background, rng)
    arrangements = Arrangements(target, background)
    arrangements.require(false_alarm_rate)
    sets = _rows_to_shuffle(target, background, arrangements, rng)
    scale = sets[-1].std(axis=0)
    size = np.maximum(np.abs(target.raw).max(axis=0), np.abs(background.raw).max(axis=0))
    for rows in sets:
        rows -= rows.mean(axis=0)
        rows /= np.where(scale > _CONSTANT * size, scale, np.inf)
    drawn = _drawing_in(sets[-1])
    sets = [rows * drawn for rows in sets]
    wholes = sets
    # Observed is one of n + 1: with more than this many above it, its rank is out of reach.
    most_above = int(false_alarm_rate * (n_permutations + 1) + 1e-9) - 1
    most = min(sets[0].shape if most is None else (*sets[0].shape, most))
    steps: list[tuple[FloatArray, FloatArray]] = []
    p_values: list[float] = []
    n_found, first = 0, (0.0, 0.0, 0)
    while n_found < most:
        statistics = [
            LargestContrast(rows, whole) for rows, whole in zip(sets, wholes, strict=True)
        ]
        value = statistics[0].value(arrangements.observed())
        if value <= 0.0:
            break
        shuffled: list[float] = []
        above = 0
        while len(shuffled) < n_permutations and not (stop_early and above > most_above):
            shuffled.append(statistics[-1].value(arrangements.shuffle(rng)))
            above += shuffled[-1] >= _SAME * value
        # With n shuffled sets the observed one is one of n + 1: the rank that keeps the rate exact.
        rank = max(int(false_alarm_rate * (len(shuffled) + 1) + 1e-9), 1)
        threshold = float(np.sort(shuffled)[-rank])
        if not p_values:
            first = value, threshold, len(shuffled)
        p_values.append((above + 1.0) / (len(shuffled) + 1.0))
        if above > most_above:
            break
        # All contrasts above the threshold are more than chance: without k directions that are,
        # the next one is at most the largest of noise.
        found = statistics[0].above(arrangements.observed(), min(threshold, _SAME * value))
        filters, atoms = (vectors[:, : most - n_found] for vectors in found)
        steps.append((filters, atoms))
        n_found += filters.shape[1]
        sets = [rows - (rows @ filters) @ atoms.T for rows in sets]
    return PermutationTest(
        n_components=n_found,
        p_values=tuple(p_values) or (1.0,),
        largest=first[0],
        threshold=first[1],
        n_permutations=first[2],
        n_rows=(len(target), len(background)),
        filters=_filters(steps, scale),
    )


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


def _filters(steps: list[tuple[FloatArray, FloatArray]], scale: FloatArray) -> FloatArray:
    """Return filters of the rows as given: each step found its own with those before taken out."""
    found = [np.zeros((len(scale), 0))]
    for k, (filters, _) in enumerate(steps):
        V = filters
        for before, atoms in reversed(steps[:k]):
            V = V - before @ (atoms.T @ V)  # (I - FWᵀ) V
        found.append(V / np.where(scale > 0.0, scale, 1.0)[:, None])
    return np.hstack(found)


def _check_permutations(false_alarm_rate: float, n_permutations: int | None) -> int:
    """Return how many permutations to make, or raise ``ValueError``."""
    if not 0.0 < false_alarm_rate < 1.0:
        raise ValueError(f"false_alarm_rate={false_alarm_rate} must be between 0 and 1")
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
    kept = [
        min(len(one), max(most // 2, most - len(other)))
        for one, other in ((target, background), (background, target))
    ]
    parts = [
        sample.take(np.sort(rng.permutation(len(sample))[:n]))
        for sample, n in zip((target, background), kept, strict=True)
    ]
    return parts[0], parts[1]


# -- what is shuffled ----------------------------------------------------------------------


def _rows_to_shuffle(
    target: Sample, background: Sample, arrangements: Arrangements, rng: np.random.Generator
) -> list[FloatArray]:
    """Return rows as they are, or where that would tell the sets apart, without their design.

    Then twice: as they are left, of which the observed sets are made, and with the variance that
    their design took. A shuffled set loses as much once more, so that all have lost it once.
    """
    n = len(target)
    lost = _lost(target, background, rng)
    if target.design.shape[1] == background.design.shape[1] == 1:
        Z = np.concatenate([target.raw, background.raw])
        if lost is not None:
            present = np.maximum((~lost).sum(axis=0), 1)
            Z = np.where(lost, np.where(lost, 0.0, Z).sum(axis=0) / present, Z)
        if not _means_differ(Z, arrangements, rng):
            return [Z]
    parts = (target, slice(None, n)), (background, slice(n, None))
    both = [_residuals(s, None if lost is None else lost[i]) for s, i in parts]
    return [np.concatenate(rows) for rows in zip(*both, strict=True)]


def _lost(target: Sample, background: Sample, rng: np.random.Generator) -> NDArray[np.bool_] | None:
    """Return which values of both sets not to use, or None if none is missing.

    Each row also loses what a random row of the other set lacks: then both sets lack as much.
    """
    if target.complete and background.complete:
        return None
    own = [
        np.zeros(s.raw.shape, dtype=bool) if s.missing is None else s.missing
        for s in (target, background)
    ]
    of_others = [
        lacking[rng.integers(len(lacking), size=len(part))]
        for part, lacking in zip(own, own[::-1], strict=True)
    ]
    return np.asarray(np.concatenate(own) | np.concatenate(of_others))


def _means_differ(Z: FloatArray, arrangements: Arrangements, rng: np.random.Generator) -> bool:
    """Return whether the means differ by more than chance, by a permutation test."""
    coefficients = np.zeros((_GAPS + 1, len(Z)))
    for i, row in enumerate(coefficients):
        sides = arrangements.shuffle(rng) if i else arrangements.observed()
        for side, sign in zip(sides, (1.0, -1.0), strict=True):
            row[side.rows] = sign * side.root**2 / (side.root @ side.root)
    centred = Z - Z.mean(axis=0)
    spread = centred.std(axis=0)
    gaps = coefficients @ (centred / np.where(spread > 0.0, spread, 1.0))
    squares = np.einsum("ij,ij->i", gaps, gaps)
    return bool((squares[1:] >= _SAME * squares[0]).sum() < _MEANS_APART * (_GAPS + 1))


def _residuals(sample: Sample, lost: NDArray[np.bool_] | None) -> tuple[FloatArray, FloatArray]:
    """Return rows without the effects of their design, and the same with their whole variance.

    The effects are those of Huber's robust estimator. By least squares one value far out would move
    all other rows, and shuffled sets would differ from the observed ones by that.
    """
    root = np.sqrt(sample.weights)[:, None]
    Q = orthonormal_design(sample.design, sample.weights)

    def effects(rows: FloatArray) -> FloatArray:
        return np.asarray(Q @ (Q.T @ (rows * root)) / root)

    plain, steady = sample.raw - effects(sample.raw), sample.raw - np.median(sample.raw, axis=0)
    rows = np.where(np.abs(plain).sum(axis=0) < np.abs(steady).sum(axis=0), plain, steady)
    for _ in range(_HUBER_STEPS):
        if lost is None:
            low, high = np.quantile(rows, [0.25, 0.75], axis=0)
        else:
            low, high = _quartiles_of_present(rows, lost)
        beyond = _BEYOND_QUARTILES * (high - low)
        drawn_in = np.clip(rows, low - beyond, high + beyond)
        rows = rows - effects(drawn_in if lost is None else np.where(lost, 0.0, drawn_in))
    # A row of leverage h lost the share h of its variance: what the rows of a group have in common
    # by the leverage of their sum, the rest by its own.
    sums = sp.csr_array((root[:, 0], (sample.groups, np.arange(len(rows)))))
    sums = sums / np.sqrt(sums.multiply(sums).sum(axis=1))[:, None]
    common = sums.T @ (sums @ (rows * root)) / root
    leverages = (sums @ Q)[sample.groups], Q - sums.T @ (sums @ Q)
    kept = [1.0 - np.einsum("ij,ij->i", part, part)[:, None] for part in leverages]
    kept = [np.sqrt(np.maximum(part, 1.0 / len(rows))) for part in kept]
    whole = common / kept[0] + (rows - common) / kept[1]
    if lost is None:
        return rows, whole
    return np.where(lost, 0.0, rows), np.where(lost, 0.0, whole)


def _quartiles_of_present(
    rows: FloatArray, lost: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    present = np.where(lost & ~lost.all(axis=0), np.nan, rows)
    low, high = np.nanquantile(present, [0.25, 0.75], axis=0)
    return low, high
