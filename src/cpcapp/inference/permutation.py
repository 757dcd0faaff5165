"""How many components are more than chance: shuffle the rows of target and background.

The largest contrast is found for each shuffled pair of sets exactly as for the two that were given:
means and covariates taken out of each set, in units of the background (and a tenth of both sets),
its covariance shrunk by OAS. So the test holds whatever these steps do. A direction that was found
is taken out of all rows, and the rest is tested again.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cpcapp.inference.arrangements import Arrangements, LargestContrast, orthonormal_design
from cpcapp.moments.covariates import CovariateCoder
from cpcapp.moments.moments import FloatArray
from cpcapp.moments.rows import as_rows, refuse_masked
from cpcapp.moments.sample import Sample, make_sample, missing_of, sample_size
from cpcapp.moments.weights import check_weights

# Of more rows a random part is used: so many, and so many multiplications for each shuffled pair.
_MAX_ROWS, _MAX_PRODUCTS = 10_000, 2.5e9
_LEAST_PERMUTATIONS = 99
# Shuffled sets that are the observed ones again differ by rounding.
_SAME = 1.0 - 1e-6
_CONSTANT = 1e-10
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
    p_value : float
        How often shuffled sets have a largest contrast as high as the one observed. The smallest
        value it can take is ``1 / (n_permutations + 1)``.
    p_values : tuple of float
        The same for each step: the first for the two sets as they are, each further one after
        the directions before it were taken out of all rows.
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
    filters: FloatArray

    @property
    def p_value(self) -> float:
        """Of the two sets as they are."""
        return self.p_values[0]


def permutation_test(
    X: Any,
    background: Any,
    *,
    groups: ArrayLike | None = None,
    background_groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    background_sample_weight: ArrayLike | None = None,
    covariates: Any = None,
    background_covariates: Any = None,
    false_alarm_rate: float = 0.05,
    n_permutations: int | None = None,
    random_state: int | np.random.Generator | None = 0,
) -> PermutationTest:
    """Count the directions in which the target varies more than shuffling both sets gives.

    Assumes no distribution, holds for small samples, and works with any number of features.

    Parameters
    ----------
    X, background : array-like or sparse matrix of shape (n, n_features)
        NaN is a missing value. A difference of their means beyond chance is taken out first.
    groups, background_groups : array-like of shape (n,), optional
        Rows with the same label move together: all cells of a patient, copies of a row, runs of a
        time series. Give both or neither. A label names one group of X and another one of the
        background.
    sample_weight, background_sample_weight : array-like of shape (n,), optional
    covariates, background_covariates : array-like of shape (n,) or (n, n_covariates), optional
        Numbers or labels whose effect is taken out of each set. Give both or neither.
    false_alarm_rate : float, default=0.05
        Probability to count anything when both sets are samples of one population.
    n_permutations : int, optional
        At least ``1/false_alarm_rate - 1``. By default 99, or as many as the rate needs.
    random_state : int, Generator or None, default=0

    Returns
    -------
    PermutationTest

    Notes
    -----
    The statistic is the largest λ of ``R_f v = λ R_b v``, with ``R_b`` shrunk by OAS in units in
    which each feature has variance 1, where nine tenths of a unit are the background's variance
    and one tenth that of both sets. It is not the eigenvalue of a fit, which has another loading.

    Without covariates, missing values, or means that differ, the test is exact: rows are shuffled
    as they are. Otherwise the effects of covariates are estimated first, robustly, and taken out
    of each shuffled set once more; then the test holds closely.

    Of more than 10,000 rows (fewer where there are many features) a random part is used.

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
    rng = np.random.default_rng(random_state)
    target, other = read_sets(
        X,
        background,
        groups=groups,
        background_groups=background_groups,
        weights=(sample_weight, background_sample_weight),
        covariates=(covariates, background_covariates),
        rng=rng,
    )
    return count_components_of(
        target,
        other,
        false_alarm_rate=false_alarm_rate,
        n_permutations=n_permutations,
        random_state=rng,
    )


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
    """Count as `permutation_test` does, at most ``most`` directions."""
    n_permutations = check_permutations(false_alarm_rate, n_permutations)
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
    own, Z = sets[0], sets[-1]
    # Observed is one of n + 1: with more than this many above it, its rank is out of reach.
    most_above = int(false_alarm_rate * (n_permutations + 1) + 1e-9) - 1
    most = min(Z.shape if most is None else (*Z.shape, most))
    p_values: list[float] = []
    directions: list[tuple[FloatArray, FloatArray]] = []
    first, chance = 0.0, np.zeros(1)
    while len(directions) < most:
        statistic = LargestContrast(Z)
        ours = statistic if own is Z else LargestContrast(own)
        value, filter_, atom = ours.direction(arrangements.observed())
        if value <= 0.0:
            break
        shuffled: list[float] = []
        while len(shuffled) < n_permutations:
            shuffled.append(statistic.value(arrangements.shuffle(rng)))
            above = int((np.array(shuffled) >= _SAME * value).sum())
            if stop_early and above > most_above:
                break
        if not p_values:
            first, chance = value, np.array(shuffled)
        p_values.append((above + 1.0) / (len(shuffled) + 1.0))
        if above > most_above:
            break
        directions.append((filter_, atom))
        for rows in sets:
            rows -= np.outer(rows @ filter_, atom)
    # With n shuffled sets the observed one is one of n + 1: the rank that keeps the rate exact.
    rank = max(int(false_alarm_rate * (len(chance) + 1) + 1e-9), 1)
    return PermutationTest(
        n_components=len(directions),
        p_values=tuple(p_values) or (1.0,),
        largest=first,
        threshold=float(np.sort(chance)[-rank]),
        n_permutations=len(chance) if p_values else 0,
        n_rows=(len(target), len(background)),
        filters=_filters(directions, scale),
    )


def _filters(directions: list[tuple[FloatArray, FloatArray]], scale: FloatArray) -> FloatArray:
    """Return filters of the rows as given: each was found with those before it taken out."""
    filters = np.zeros((len(scale), len(directions)))
    for k, (filter_, _) in enumerate(directions):
        v = filter_
        for before, atom in reversed(directions[:k]):
            v = v - before * (atom @ v)  # (I - f wᵀ) v
        filters[:, k] = v / np.where(scale > 0.0, scale, 1.0)
    return filters


# -- what is given -------------------------------------------------------------------------


def read_sets(
    X: Any,
    background: Any,
    *,
    groups: ArrayLike | None,
    background_groups: ArrayLike | None,
    weights: tuple[Any, Any] = (None, None),
    covariates: tuple[Any, Any] = (None, None),
    rng: np.random.Generator,
) -> tuple[Sample, Sample]:
    """Return what a caller gives as samples."""
    names = "X", "background"
    rows = [as_rows(refuse_masked(d, name)) for d, name in zip((X, background), names, strict=True)]
    if rows[0].shape[1] != rows[1].shape[1]:
        raise ValueError(
            f"background has {rows[1].shape[1]} features, but X has {rows[0].shape[1]}"
        )
    counts = rows[0].shape[0], rows[1].shape[0]
    labels = check_groups(groups, background_groups, *counts) or (None, None)
    designs = _check_covariates(*covariates, *counts) or (None, None)
    checked = [
        check_weights(values, n, name)
        for values, n, name in zip(
            weights, counts, ("sample_weight", "background_sample_weight"), strict=True
        )
    ]
    target, other = (
        _make_sample(*given, rng)
        for given in zip(names, rows, checked, labels, designs, strict=True)
    )
    return target, other


def check_permutations(false_alarm_rate: float, n_permutations: int | None) -> int:
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


def check_groups(
    groups: ArrayLike | None,
    background_groups: ArrayLike | None,
    n_target: int,
    n_background: int,
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return the labels of both sets, or None if there are none."""
    if groups is None and background_groups is None:
        return None
    if groups is None or background_groups is None:
        given, missing = ("groups", "background_groups")[:: 1 if background_groups is None else -1]
        raise ValueError(
            f"{given} was given without {missing}; rows are shuffled between both sets, so give "
            "the groups of both (numpy.arange(n) where each row is its own)"
        )
    return (
        _check_labels(groups, n_target, "groups"),
        _check_labels(background_groups, n_background, "background_groups"),
    )


def _check_labels(values: ArrayLike, n: int, name: str) -> NDArray[Any]:
    labels = np.asarray(refuse_masked(values, name))
    if labels.shape != (n,):
        raise ValueError(f"{name} has shape {labels.shape}; it must be ({n},), one per row")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(f"{name} contains NaN or infinity; give every row a label")
    if len(np.unique(labels)) < 2:
        raise ValueError(f"{name} has 1 group; at least 2 are needed")
    return labels


def _check_covariates(
    covariates: Any, background_covariates: Any, n_target: int, n_background: int
) -> tuple[FloatArray, FloatArray] | None:
    """Return the designs of both sets: a column of ones, and covariates."""
    if covariates is None and background_covariates is None:
        return None
    if covariates is None or background_covariates is None:
        missing = "covariates" if covariates is None else "background_covariates"
        raise ValueError(f"{missing} is missing; give the covariates of both sets")
    coder = CovariateCoder.learn(covariates, background_covariates)
    encoded = (
        coder.encode(covariates, n_target),
        coder.encode(background_covariates, n_background, "background_covariates"),
    )
    for name, columns in zip(("covariates", "background_covariates"), encoded, strict=True):
        if np.isnan(columns).any():
            raise ValueError(f"{name} contains NaN; fill it in, or drop those rows")
    designs = [np.column_stack([np.ones(len(columns)), columns]) for columns in encoded]
    return designs[0], designs[1]


def _make_sample(
    name: str,
    rows: Any,
    weights: FloatArray | None,
    labels: NDArray[Any] | None,
    design: FloatArray | None,
    rng: np.random.Generator,
) -> Sample:
    """Return a sample of the rows that count, or of some of them, at random."""
    index = np.arange(rows.shape[0]) if weights is None else np.flatnonzero(weights)
    most = min(sample_size(rows.shape[1]), _MAX_ROWS)
    if len(index) > most:
        index = np.sort(rng.permutation(index)[:most])
    if len(index) < 2:
        raise ValueError(f"{name} has {len(index)} rows of weight above 0; at least 2 are needed")
    chosen = rows[index]
    if np.isinf(chosen.data if hasattr(chosen, "indptr") else chosen).any():
        raise ValueError(f"{name} contains infinity; remove those rows, or give NaN")
    return make_sample(
        chosen,
        weights=None if weights is None else weights[index],
        groups=None if labels is None else labels[index],
        design=None if design is None else design[index],
        index=index,
    )


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
    complete = target.complete and background.complete
    if complete and target.design.shape[1] == background.design.shape[1] == 1:
        Z = np.concatenate([target.raw, background.raw])
        if not _means_differ(Z, arrangements, rng):
            return [Z]
    lost: list[NDArray[np.bool_] | None] = [None, None]
    if not complete:
        # Each row also loses what a random row of the other set lacks: then both lack as much.
        lacking = [missing_of([s]) for s in (target, background)]
        lost = [
            own | other[rng.integers(len(other), size=len(own))]
            for own, other in (lacking, lacking[::-1])
        ]
    both = [_residuals(s, gone) for s, gone in zip((target, background), lost, strict=True)]
    return [np.concatenate(parts) for parts in zip(*both, strict=True)]


def _means_differ(Z: FloatArray, arrangements: Arrangements, rng: np.random.Generator) -> bool:
    """Return whether the means differ by more than chance, by a permutation test."""
    coefficients = np.zeros((_GAPS + 1, len(Z)))
    for row in coefficients:
        first = row is coefficients[0]
        sides = arrangements.observed() if first else arrangements.shuffle(rng)
        for side, sign in zip(sides, (1.0, -1.0), strict=True):
            row[side.rows] = sign * side.root**2 / (side.root @ side.root)
    centred = Z - Z.mean(axis=0)
    spread = centred.std(axis=0)
    gaps = coefficients @ (centred / np.where(spread > 0.0, spread, 1.0))
    squares = np.einsum("ij,ij->i", gaps, gaps)
    return bool((squares[1:] >= _SAME * squares[0]).sum() < _MEANS_APART * (_GAPS + 1))


def _residuals(sample: Sample, lost: NDArray[np.bool_] | None) -> tuple[FloatArray, FloatArray]:
    """Return rows without the effects of their design, and the same with their whole variance.

    The effects are those of Huber's robust estimator.

    By least squares one value far out would move all other rows, and shuffled sets would differ
    from the observed ones by that.
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
    leverages = [(sums @ Q)[sample.groups], Q - sums.T @ (sums @ Q)]
    kept = [1.0 - np.einsum("ij,ij->i", part, part)[:, None] for part in leverages]
    kept = [np.sqrt(np.maximum(part, 1.0 / len(rows))) for part in kept]
    both = rows, common / kept[0] + (rows - common) / kept[1]
    return both if lost is None else tuple(np.where(lost, 0.0, part) for part in both)


def _quartiles_of_present(
    rows: FloatArray, lost: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    present = np.where(lost & ~lost.all(axis=0), np.nan, rows)
    low, high = np.nanquantile(present, [0.25, 0.75], axis=0)
    return low, high
