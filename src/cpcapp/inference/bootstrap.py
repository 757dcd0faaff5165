"""How sure are components: fit again to resampled rows and see what stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from cpcapp.contrast.solve import Contrast, solve_contrast
from cpcapp.inference.permutation import as_matrix, check_groups
from cpcapp.moments.moments import FloatArray, Moments
from cpcapp.moments.rows import refuse_masked

# Beyond this many rows or groups, random blocks of them are resampled: their moments are computed
# once, and a replicate only adds them up.
_MAX_UNITS = 1000
_BLOCKS = 200
_LEAST_BLOCKS = 50
# Scatters of all blocks take no more than this many values (256 MB).
_MAX_CELLS = 1 << 25


@dataclass(frozen=True)
class ComponentStability:
    """What `bootstrap` found.

    Attributes
    ----------
    eigenvalues : ndarray of shape (n_components,)
        Of all rows.
    eigenvalue_intervals : ndarray of shape (n_components, 2)
        Lower and upper end.
    atom_intervals : ndarray of shape (n_components, n_features, 2)
        Lower and upper end of each value of ``atoms_``.
    top_frequency : ndarray of shape (n_components, n_features)
        Share of replicates in which a feature is among the ``n_top`` of largest weight.
    angles : ndarray of shape (n_replicates,)
        Largest angle between the components of a replicate and those of all rows, in degrees: 0
        if both give the target the same scores up to a rotation, 90 if one is missed altogether.
    n_top : int
    confidence : float
    """

    eigenvalues: FloatArray
    eigenvalue_intervals: FloatArray
    atom_intervals: FloatArray
    top_frequency: FloatArray
    angles: FloatArray
    n_top: int
    confidence: float

    @property
    def n_replicates(self) -> int:
        """Number of replicates that could be solved."""
        return len(self.angles)


def bootstrap(
    estimator: Any,
    X: Any,
    background: Any,
    *,
    groups: Any = None,
    background_groups: Any = None,
    n: int = 200,
    confidence: float = 0.95,
    n_top: int = 10,
    random_state: int | np.random.Generator | None = 0,
) -> ComponentStability:
    """Resample the rows of both sets, solve again each time, and return how much changes.

    Parameters
    ----------
    estimator : CPCAPlusPlus
        Fitted to the same data.
    X, background : array-like or sparse matrix of shape (n_samples, n_features)
    groups, background_groups : array-like of shape (n_samples,), optional
        Rows with one label are drawn together. Give both or neither.
    n : int, default=200
        Replicates.
    confidence : float, default=0.95
        Of the intervals.
    n_top : int, default=10
        For ``top_frequency``; weights are those of ``estimator.top_features``.
    random_state : int, Generator or None, default=0

    Returns
    -------
    ComponentStability

    Notes
    -----
    Rows are drawn with replacement. Of more than 1000 rows (or groups), 200 random blocks are made
    and drawn in their place, which costs as much for a million rows as for a thousand. Where the
    scatters of 50 blocks would not fit into 256 MB (above 800 features), rows are drawn.

    Components of a replicate are matched to those of all rows, and their signs too. Resampling
    raises large eigenvalues once more as the sample itself did, so the interval is that of the
    logarithm, mirrored at the estimate: ``λ²/q`` for a quantile ``q`` of the replicates. It is for
    the eigenvalue with this loading, which shrinkage makes smaller than the true contrast.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import CPCAPlusPlus, bootstrap
    >>> rng = np.random.default_rng(0)
    >>> X, B = rng.normal(size=(300, 5)) * [1, 1, 3, 1, 1], rng.normal(size=(300, 5))
    >>> est = CPCAPlusPlus(n_components=1).fit(X, background=B)
    >>> found = bootstrap(est, X, B, n=50, n_top=1)
    >>> low, high = found.eigenvalue_intervals[0]
    >>> bool(low < 9 < high), found.top_frequency[0]
    (True, array([0., 0., 1., 0., 0.]))
    """
    k = _check(estimator, n, confidence, n_top)
    rows = [as_matrix(refuse_masked(X, "X")), as_matrix(refuse_masked(background, "background"))]
    labels = check_groups(groups, background_groups, rows[0].shape[0], rows[1].shape[0])
    rng = np.random.default_rng(random_state)
    sides = [
        _make_side(part, None if labels is None else labels[i], rng) for i, part in enumerate(rows)
    ]
    target = Moments.of(rows[0])
    reference = solve_contrast(
        target, Moments.of(rows[1]), k, loading=estimator.loading, scaling=estimator.scaling
    )
    values, atoms, angles = [], [], []
    top = np.zeros((k, rows[0].shape[1]))
    for _ in range(n):
        drawn = sides[0](), sides[1]()
        try:
            found = solve_contrast(*drawn, k, loading=estimator.loading, scaling=estimator.scaling)
        except ValueError:
            continue  # a replicate without enough different rows
        order, signs = _match(found, reference)
        values.append(found.eigenvalues[order])
        atoms.append((found.atoms[:, order] * signs).T)
        weights = found.filters[:, order] * np.sqrt(found.target_variance)[:, None]
        top += _among_top(weights.T, n_top)
        angles.append(_largest_angle(rows[0], found.filters, reference.filters))
    if not values:
        raise ValueError(
            "no replicate could be solved (too few different rows or groups); use loading='auto', "
            "or fit fewer components"
        )
    tails = [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0]
    low, high = np.quantile(np.log(values), tails, axis=0)
    centre = np.log(reference.eigenvalues)
    return ComponentStability(
        eigenvalues=reference.eigenvalues,
        eigenvalue_intervals=np.exp(np.stack([2.0 * centre - high, 2.0 * centre - low], axis=1)),
        atom_intervals=np.moveaxis(np.quantile(atoms, tails, axis=0), 0, -1),
        top_frequency=top / len(values),
        angles=np.array(angles),
        n_top=n_top,
        confidence=confidence,
    )


def _check(estimator: Any, n: int, confidence: float, n_top: int) -> int:
    if n < 2:
        raise ValueError(f"n={n} must be at least 2")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence} must be between 0 and 1")
    if n_top < 1:
        raise ValueError(f"n_top={n_top} must be at least 1")
    k = int(estimator.n_components_)
    if k == 0:
        raise ValueError("the estimator has no components; fit it with n_components as a number")
    return k


# -- drawing -------------------------------------------------------------------------------


def _make_side(
    rows: Any, groups: NDArray[np.intp] | None, rng: np.random.Generator
) -> Callable[[], Moments]:
    """Return what draws the moments of a replicate of one set."""
    n, width = rows.shape
    units = np.arange(n) if groups is None else groups
    n_units = int(units.max()) + 1
    blocks = min(_BLOCKS, _MAX_CELLS // width**2)
    if n_units > _MAX_UNITS and blocks >= _LEAST_BLOCKS:
        # In a random order, so that blocks are alike in size.
        block_of_unit = rng.permutation(n_units) % blocks
        return _block_drawer(rows, block_of_unit[units], blocks, rng)
    members = np.split(np.argsort(units, kind="stable"), np.cumsum(np.bincount(units))[:-1])

    def draw() -> Moments:
        drawn = rng.integers(n_units, size=n_units)
        return Moments.of(rows[drawn if groups is None else _concatenate(members, drawn)])

    return draw


def _concatenate(members: list[NDArray[np.intp]], drawn: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.concatenate([members[unit] for unit in drawn])


def _block_drawer(
    rows: Any, block: NDArray[np.intp], n_blocks: int, rng: np.random.Generator
) -> Callable[[], Moments]:
    order = np.argsort(block, kind="stable")
    counts = np.bincount(block, minlength=n_blocks)
    ends = np.cumsum(counts)
    width = rows.shape[1]
    means, scatters = np.empty((n_blocks, width)), np.empty((n_blocks, width * width))
    for i, end in enumerate(ends):
        some = Moments.of(rows[np.sort(order[end - counts[i] : end])], form="scatter")
        assert some.mean is not None
        means[i], scatters[i] = some.mean, some.scatter().ravel()

    def draw() -> Moments:
        times = rng.multinomial(n_blocks, np.full(n_blocks, 1.0 / n_blocks))
        weights = (times * counts).astype(np.float64)
        total = float(weights.sum())
        mean = weights @ means / total
        # S = Σ S_i + Σ n_i (m_i - m)(m_i - m)ᵀ
        apart = (means - mean) * np.sqrt(weights)[:, None]
        scatter = (times @ scatters).reshape(width, width) + apart.T @ apart
        return Moments.from_covariance(scatter / total, round(total), mean)

    return draw


# -- comparing -----------------------------------------------------------------------------


def _match(found: Contrast, reference: Contrast) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the order and signs that bring components closest to those of all rows."""
    # FᵀW is the identity if both are the same.
    alike = reference.atoms.T @ found.filters
    scale = np.linalg.norm(found.filters, axis=0) / np.linalg.norm(reference.filters, axis=0)
    rows, order = linear_sum_assignment(-np.abs(alike / np.where(scale > 0.0, scale, 1.0)))
    return order, np.where(alike[rows, order] < 0.0, -1.0, 1.0)


def _among_top(weights: FloatArray, n_top: int) -> FloatArray:
    """Return 1 where a weight is among the ``n_top`` largest of its row."""
    n_top = min(n_top, weights.shape[1])
    largest = np.argpartition(-np.abs(weights), n_top - 1, axis=1)[:, :n_top]
    inside = np.zeros_like(weights)
    np.put_along_axis(inside, largest, 1.0, axis=1)
    return inside


def _largest_angle(rows: Any, filters: FloatArray, reference: FloatArray) -> float:
    """Return the largest canonical angle between the scores of two sets of filters, in degrees."""
    scores = np.asarray(rows @ np.hstack([filters, reference]))
    scores -= scores.mean(axis=0)
    k = filters.shape[1]
    ours, theirs = (np.linalg.qr(part).Q for part in (scores[:, :k], scores[:, k:]))
    cosines = np.linalg.svd(ours.T @ theirs, compute_uv=False)
    return float(np.degrees(np.arccos(np.clip(cosines[-1], 0.0, 1.0))))
