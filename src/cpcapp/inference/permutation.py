"""How many components are more than chance: shuffle the rows of target and background.

With ``S_f`` and ``S_b`` the scatters of the two sets and ``D`` the loading, the contrast is
``S_f/n_f v = λ (w S_b/n_b + D) v``. Shuffling leaves ``A = w (S_f + S_b)/n_b + D`` almost as it is,
and ``S_f v = κ A v`` has the same eigenvectors, with ``κ = n_f λ / (1 + w n_f/n_b λ)`` rising with
λ. So the pooled rows are whitened by ``A`` once. After that a permutation takes products with its
target rows only, and no factorization.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp.contrast.solve import InsufficientRankError, solve_contrast
from cpcapp.contrast.whitening import PooledRows
from cpcapp.inference.shuffling import Pool, count_positive, lanczos
from cpcapp.moments.moments import Moments
from cpcapp.moments.rows import refuse_masked

__all__ = [
    "PermutationTest",
    "RowSubset",
    "as_matrix",
    "check_groups",
    "check_permutations",
    "count_loaded",
    "count_positive",
    "kept_rows",
    "lanczos",
    "mean_excess_kurtosis",
    "permutation_test",
]

# Whitened rows of this many cells (16 MB) are kept for the permutations, of at most so many rows.
# Beyond that the rows are a random sample.
_MAX_CELLS = 1 << 21
_MAX_ROWS = 10_000
# Permutations of the first batch: where there is nothing, they mostly suffice to say so.
_FIRST_BATCH = 25


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
    pool = Pool.whiten(rows, (target, back), labels, found, loading)
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
    kurtosis = PooledRows([_as_rows(rows, "rows")], centres, scale).mean_powers(4)[0]
    return float(kurtosis[~spread.constant].mean()) - 3.0 if not spread.constant.all() else 0.0


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


# -- permutations --------------------------------------------------------------------------


def _shuffle(
    pool: Pool, rate: float, n_permutations: int, rng: np.random.Generator, stop_early: bool
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
