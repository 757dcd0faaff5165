"""Several backgrounds: mixed with given weights, or so that the best hidden stays hidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from scipy.optimize import linprog

from cpcapp.contrast.loading import oas_shrinkage
from cpcapp.contrast.solve import as_moments, subspace_overlap
from cpcapp.inference.noise import count_components, noise_threshold
from cpcapp.moments.moments import Moments
from cpcapp.moments.rows import FloatArray


@dataclass(frozen=True)
class MixedBackground:
    """What `combine_backgrounds` returns.

    Attributes
    ----------
    moments : Moments
        Of the mixture, to be used as one background.
    weights : ndarray of shape (n_backgrounds,)
        They add up to 1.
    gap : float
        With ``how="worst"``: at most this share of the sum of ``1 / eigenvalue`` could be gained
        by other weights. 0 if the weights were given.
    n_iter : int
        Eigenproblems solved.
    """

    moments: Moments
    weights: FloatArray
    gap: float = 0.0
    n_iter: int = 0


def combine_backgrounds(
    backgrounds: Sequence[Moments | ArrayLike],
    weights: ArrayLike | None = None,
    *,
    how: str = "mean",
    target: Moments | ArrayLike | None = None,
    n_components: int = 1,
    tol: float = 1e-3,
    max_iter: int = 200,
) -> MixedBackground:
    """Mix several backgrounds into one.

    Parameters
    ----------
    backgrounds : sequence of Moments or of array-likes of shape (n, n_features)
    weights : array-like of shape (n_backgrounds,), optional
        Of the covariances, with ``how="mean"``; equal by default. They need not add up to 1.
    how : {"mean", "worst"}, default="mean"
        ``"mean"``: the mixture has the weighted mean of the covariances. ``"worst"``: weights are
        found that make the contrast with the target as small as any mixture can. Filters against
        that mixture find what is special about the target whichever background one takes: a
        direction that a single background explains gets that background's weight.
    target : Moments or array-like, optional
        Needed for ``how="worst"``.
    n_components : int, default=1
        Components that ``how="worst"`` looks at.
    tol : float, default=1e-3
        ``how="worst"`` stops when no weights can be better by more than this share.
    max_iter : int, default=200
        It stops then anyway; see ``gap`` of the result.

    Returns
    -------
    MixedBackground

    Notes
    -----
    Each background is taken about its own mean: that backgrounds have different means is not part
    of the mixture. To pool samples, with their means, add moments: ``sum(backgrounds)``.

    ``n_samples`` of the mixture is ``1 / Σ π²/n``, with π the weights: Kish's effective number.

    The worst mixture maximizes the sum of ``1/λ`` over the largest eigenvalues λ of
    ``R_f v = λ (Σ πᵢRᵢ) v``; for one component it minimizes the largest eigenvalue. As a function
    of π this is ``min tr Vᵀ(Σ πᵢRᵢ)V`` over ``VᵀR_fV = I``, a minimum of linear functions: concave.
    So each solution bounds it from above everywhere, and cutting planes find the maximum
    with a certificate (``gap``). For this search backgrounds are shrunk by the OAS rule.

    Examples
    --------
    The target has more variance than the first background along the first two features, and than
    the second along the second and third. Only the second is special against both:

    >>> import numpy as np
    >>> from cpcapp import Moments, combine_backgrounds, solve_contrast
    >>> f, a, b = (
    ...     Moments.from_covariance(np.diag(d), 10_000)
    ...     for d in ([9.0, 8.0, 9.0], [1.0, 1.0, 9.0], [9.0, 1.0, 1.0])
    ... )
    >>> np.abs(solve_contrast(f, a, 1).filters[:, 0]).argmax()
    np.int64(0)
    >>> mixture = combine_backgrounds([a, b], how="worst", target=f)
    >>> mixture.weights.round(2)
    array([0.5, 0.5])
    >>> np.abs(solve_contrast(f, mixture.moments, 1).filters[:, 0]).argmax()
    np.int64(1)
    """
    if how not in ("mean", "worst"):
        raise ValueError(f"how={how!r} must be one of 'mean', 'worst'")
    sides = [_as_moments(b, f"backgrounds[{i}]") for i, b in enumerate(backgrounds)]
    if not sides:
        raise ValueError("backgrounds is empty; give at least one")
    widths = {side.n_features for side in sides}
    if len(widths) > 1:
        counts = ", ".join(str(side.n_features) for side in sides)
        raise ValueError(f"backgrounds have {counts} features; all must have the same number")
    if how == "mean":
        shares = _check_shares(weights, len(sides))
        return MixedBackground(_mix(sides, shares), shares)
    if weights is not None:
        raise ValueError("how='worst' finds the weights; give weights with how='mean' only")
    if target is None:
        raise ValueError("how='worst' needs the target")
    target = _as_moments(target, "target")
    if target.n_features not in widths:
        raise ValueError(
            f"backgrounds have {widths.pop()} features, but the target has {target.n_features}"
        )
    covariances = [_shrunk(side) for side in sides]
    shares, gap, n_iter = _worst_shares(
        target.covariance(), covariances, n_components, tol, max_iter
    )
    return MixedBackground(_mix(sides, shares), shares, gap, n_iter)


def _as_moments(data: Any, name: str) -> Moments:
    moments = as_moments(data, name)
    if moments.n_samples < 2:
        raise ValueError(f"{name} has n_samples={moments.n_samples}; a covariance needs at least 2")
    return moments


def _check_shares(weights: ArrayLike | None, count: int) -> FloatArray:
    shares = np.ones(count) if weights is None else np.asarray(weights, dtype=np.float64)
    if shares.shape != (count,):
        raise ValueError(f"weights has shape {shares.shape}; it must be ({count},), as backgrounds")
    if not (np.isfinite(shares).all() and (shares >= 0.0).all() and shares.sum() > 0.0):
        raise ValueError(f"weights={weights!r} must be at least 0, and not all 0")
    return np.asarray(shares / shares.sum())


def _mix(sides: Sequence[Moments], shares: FloatArray) -> Moments:
    """Return moments with the mean covariance, each side about its own mean."""
    mean = shares @ np.array([side.mean for side in sides])
    # Moved to one mean and weighted, so that adding up gives Σ πᵢRᵢ.
    factors = shares / np.array([side.total_weight for side in sides])
    mixture = Moments()
    for side, factor in zip(sides, factors / factors.max(), strict=True):
        if factor > 0.0:
            mixture += side.moved(mean).decay(factor)
    return mixture


def _shrunk(side: Moments) -> FloatArray:
    """Return the covariance after OAS shrinkage, in units of each feature's own variance."""
    covariance = side.covariance()
    units = np.where(side.constant_features(), 0.0, side.variance())
    scale = np.sqrt(np.where(units > 0.0, units, 1.0))
    inner = covariance / np.multiply.outer(scale, scale)
    trace, square = float(np.trace(inner)), float(np.vdot(inner, inner))
    rho = max(oas_shrinkage(trace, square, side.n_samples, len(inner)), 1e-9)
    return (1.0 - rho) * covariance + rho * np.diag(np.where(units > 0.0, units, units.mean()))


def _worst_shares(
    r_f: FloatArray, backgrounds: Sequence[FloatArray], k: int, tol: float, max_iter: int
) -> tuple[FloatArray, float, int]:
    """Return the weights of the worst mixture, what could still be gained, and the iterations."""
    if not 1 <= k <= len(r_f):
        raise ValueError(f"n_components={k} must be between 1 and {len(r_f)} (features)")
    count = len(backgrounds)
    shares = best = np.full(count, 1.0 / count)
    value, planes, gap = -np.inf, [], np.inf
    for _ in range(max_iter):
        plane = _plane(r_f, backgrounds, shares, k)
        planes.append(plane)
        if plane @ shares > value:
            value, best = float(plane @ shares), shares
        # maximize t with t ≤ plane·π for all planes so far, π ≥ 0, Σπ = 1: an upper bound
        bound = linprog(
            np.r_[np.zeros(count), -1.0],
            A_ub=np.column_stack([-np.array(planes), np.ones(len(planes))]),
            b_ub=np.zeros(len(planes)),
            A_eq=np.r_[np.ones(count), 0.0][None],
            b_eq=[1.0],
            bounds=[(0.0, 1.0)] * count + [(None, None)],
        )
        shares = np.maximum(bound.x[:-1], 0.0)
        shares /= shares.sum()
        gap = max(-bound.fun / value - 1.0, 0.0)
        if gap <= tol:
            break
    return best, float(gap), len(planes)


def _plane(
    r_f: FloatArray, backgrounds: Sequence[FloatArray], shares: FloatArray, k: int
) -> FloatArray:
    """Return ``tr VᵀRᵢV`` for each background, with V the best for the mixture and VᵀR_fV = I."""
    mixture = np.asarray(sum(share * r for share, r in zip(shares, backgrounds, strict=True)))
    m = len(r_f)
    values, vectors = eigh(r_f, mixture, subset_by_index=(m - k, m - 1))
    if values[0] <= m * np.finfo(np.float64).eps * values[-1]:
        raise ValueError(f"n_components={k} must be at most the rank of the target covariance")
    vectors = vectors / np.sqrt(values)
    return np.array([np.vdot(vectors, r @ vectors) for r in backgrounds])


# -- which background to take --------------------------------------------------------------


@dataclass(frozen=True)
class RankedBackground:
    """How a candidate compares, as `suitable_background` found.

    Attributes
    ----------
    name : str
    n_samples : int
    overlap : float
        Share of the target's main subspace that lies in the background's: 1 is all of it.
    overlap_by_chance : float
        What unrelated data have on average.
    n_significant : int or None
        Components of the target that are more than noise against this background. None with too
        few background samples for the test.
    threshold : float or None
        The contrast that noise alone exceeds once in twenty.
    """

    name: str
    n_samples: int
    overlap: float
    overlap_by_chance: float
    n_significant: int | None
    threshold: float | None


def suitable_background(
    target: Moments | ArrayLike,
    candidates: Mapping[str, Moments | ArrayLike] | Sequence[Moments | ArrayLike],
    *,
    k: int = 5,
    false_alarm_rate: float = 0.05,
) -> list[RankedBackground]:
    """Rank backgrounds by how much they share with the target, without sharing all of it.

    A good background has what is common, and to be ignored: its main subspace holds much of the
    target's (`overlap`). It lacks what is special: some contrast is significant.

    Parameters
    ----------
    target : Moments or array-like of shape (n, n_features)
    candidates : mapping of names to, or sequence of, Moments or array-likes
    k : int, default=5
        Principal components of the main subspaces; fewer where the data have fewer.
    false_alarm_rate : float, default=0.05
        Of the test, as in `count_components`.

    Returns
    -------
    list of RankedBackground
        The most suitable first: those with a significant contrast, those for which the test needs
        more samples, and those without; in each group by overlap.

    Notes
    -----
    The overlap depends on units. Scale features as you would for PCA.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import suitable_background
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 6)) * [9, 5, 3, 1, 1, 1]
    >>> candidates = {
    ...     "control": rng.normal(size=(300, 6)) * [9, 5, 1, 1, 1, 1],
    ...     "other": rng.normal(size=(300, 6)) * [1, 1, 1, 5, 9, 1],
    ...     "same": rng.normal(size=(300, 6)) * [9, 5, 3, 1, 1, 1],
    ... }
    >>> for row in suitable_background(X, candidates, k=2):
    ...     print(row.name, round(row.overlap, 2), row.n_significant)
    control 1.0 1
    other 0.0 3
    same 0.98 0
    """
    f = _as_moments(target, "target")
    if not isinstance(candidates, Mapping):
        candidates = {str(i): candidate for i, candidate in enumerate(candidates)}
    if not candidates:
        raise ValueError("candidates is empty; give at least one background")
    if k < 1:
        raise ValueError(f"k={k} must be at least 1")
    p, n_f = len(f.variance()), f.n_samples
    ranked = []
    for name, candidate in candidates.items():
        b = _as_moments(candidate, f"candidate {name!r}")
        if b.n_features != p:
            raise ValueError(
                f"candidate {str(name)!r} has {b.n_features} features, but the target has {p}"
            )
        n_b = b.n_samples
        width = min(k, p, n_f - 1, n_b - 1)
        count = threshold = None
        if n_b - 1 > p:
            threshold = noise_threshold(n_f, n_b, p, false_alarm_rate=false_alarm_rate)
            count = count_components(f, b, false_alarm_rate=false_alarm_rate)
        overlap = subspace_overlap(f, b, width)
        ranked.append(RankedBackground(str(name), n_b, overlap, width / p, count, threshold))
    return sorted(
        ranked,
        key=lambda r: (0 if r.n_significant else 1 if r.n_significant is None else 2, -r.overlap),
    )
