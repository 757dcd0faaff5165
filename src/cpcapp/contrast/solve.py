"""The one eigenproblem of this package: what varies in the target but not in the background.

Notation of the paper: ``R_f`` and ``R_b`` are the covariances of target (foreground) and
background, ``F`` the filters, ``W`` the dictionary atoms, ``K`` the number of components.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.linalg import eigvalsh, lapack

from cpcapp.contrast.basis import CentredRows, span_of_rows
from cpcapp.contrast.dense import (
    Dense,
    Lanczos,
    NotConvergedError,
    OnDevice,
    SingularError,
    cholesky,
    covariance_on_device,
    rank_of,
)
from cpcapp.contrast.loading import (
    LEAST_RIDGE,
    NOISE_SHARE,
    Loading,
    bounds_to_try,
    choose_bound,
    loading_units,
    oas_shrinkage,
)
from cpcapp.contrast.matrix_free import MatrixFree
from cpcapp.contrast.solution import Contrast, InsufficientRankError, SingularBackgroundError
from cpcapp.moments.moments import FeatureRangeError, FloatArray, Moments, Spread
from cpcapp.moments.rows import align
from cpcapp.moments.sources import kind_of

__all__ = [
    "Contrast",
    "InsufficientRankError",
    "SingularBackgroundError",
    "check_n_components",
    "eigenvalues_above",
    "solve_contrast",
    "subspace_overlap",
]

SOLVERS = ("auto", "dense", "iterative", "dual", "matrix-free")
SCALINGS = ("background", "unit")

# Below this many features LAPACK is as fast as Lanczos and its certificate.
_ITERATIVE_FROM = 200
# From here on products with sparse rows are faster than any matrix of features or of samples, for
# up to one component per hundred features: benchmarks/results/sparse.md.
_MATRIX_FREE_FROM, _MATRIX_FREE_FEATURES = 2000, 100
# Of the variance that independent features of the target would have along a filter, and of the
# largest eigenvalue. With less the rank is counted.
_LEAST_SHARE, _LEAST_VALUE = 1e-10, 1e-12


def solve_contrast(
    target: Moments | ArrayLike,
    background: Moments | ArrayLike | None,
    k: int,
    *,
    loading: str | float | Loading = "auto",
    rows: Any = None,
    row_weights: Any = None,
    solver: str = "auto",
    scaling: str = "background",
    overwrite: bool = False,
    device: Any = None,
) -> Contrast:
    """Find the ``k`` filters with the largest ratio of target to background power.

    Solves ``R_f v = λ (loaded R_b) v`` for the largest λ. This is Algorithm 1 of the paper
    (the right eigenvectors of ``Q = R_b⁻¹R_f``) as a symmetric-definite problem: real,
    orthogonal, and without an inverse.

    Parameters
    ----------
    target : Moments, DeviceMoments, or array-like of shape (n_target, n_features)
    background : like ``target``, of shape (n_background, n_features), or None
        Without a background the filters are the principal components of the target.
    k : int
        Number of components, at most the rank of the target covariance.
    loading : {"auto", "oas", "none"}, float or Loading, default="auto"
        How to keep the background covariance safe, and sensible, to divide by.

        - ``"auto"``: the least loading for which no contrast exceeds a bound; see Notes.
        - ``"oas"``: oracle approximating shrinkage in units of the background.
        - ``"none"``: Algorithm 1 as it is; an error if the background covariance is singular.
        - a float: the paper's diagonal loading; this fraction of the mean eigenvalue of ``R_b``
          is added to its diagonal.
        - a `Loading`: exactly this one, for example that of another fit.
    rows : array or sparse matrix of shape (n_rows, n_features), optional
        Rows of the target, for ``"auto"`` to choose the bound by. By default those that are at
        hand: a target given as an array, or rows that moments still keep. Of more than 10,000 a
        random sample is taken.
    row_weights : ndarray of shape (n_rows,), optional
    solver : {"auto", "dense", "iterative", "dual", "matrix-free"}, default="auto"
        ``"dense"``: Cholesky and LAPACK's top-k ``syevr``. ``"iterative"``: Cholesky and
        Lanczos, with a certificate that nothing larger was missed. ``"dual"``: for fewer
        samples than features, in coordinates of the span of the samples; never forms an
        (n_features, n_features) matrix. ``"matrix-free"``: for sparse samples, Davidson's method
        from products of samples with single vectors; forms no square matrix at all, and finds
        eigenvalues to 1e-6, or to 1e-3 at worst where the next ones lie as close. ``"auto"``
        takes the fastest, and the dense matrices where an iteration does not converge.
    scaling : {"background", "unit"}, default="background"
        ``"background"``: ``Fᵀ (loaded R_b) F = I``. ``"unit"``: filters of length 1, as in the
        paper.
    overwrite : bool, default=False
        Use the matrices of the moments as workspace, which leaves the moments empty. Moments on a
        device stay as they are.
    device : torch.device or str, optional
        Where to solve, such as ``"cuda"``; needs the extra ``torch``. By default that of
        `cpcapp.moments.torch.DeviceMoments`, else the CPU. On a device the solver is
        ``"dense"``. The result is NumPy's.

    Returns
    -------
    Contrast

    Notes
    -----
    The ratio of powers alone knows nothing of how much a direction carries: the largest ratios
    are often those of faint details that hardly occur in the background. ``loading="auto"`` is
    diagonal loading in units ``D``, the mean of both sets' variance of each feature:

        R_f v = λ (R_b + ρD) v,   ρ = max(λ₁[D^-½ (R_f - cR_b) D^-½], 0) / c

    1. ρ is the least for which no eigenvalue exceeds the bound c. Component 1 is that of cPCA at
       ``α = c`` in standard units; the others follow against the same loaded background.
    2. Three bounds are tried: 3, 12 and 48, from near cPCA to near the plain ratio. None is below
       the contrast that noise alone gives, ``(1 + √(n_features / n_target))²``.
    3. The bound is kept whose outputs show classes best: the least excess kurtosis of one of the
       first two components, if that is two standard errors, ``2√(24/n)``, below a Gaussian's.
    4. Otherwise, and without rows, the bound is 12.

    No component depends on ``k``, and no unit of a feature matters. Where no eigenvalue exceeds the
    bound there is nothing to bound: ρ is then a tenth of ``n_features / n_background``, the size of
    the background's own noise, and at least 1e-9, so that copies of a feature do no harm.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import solve_contrast
    >>> rng = np.random.default_rng(0)
    >>> B = rng.normal(size=(500, 4)) * [9, 3, 1, 1]
    >>> X = rng.normal(size=(500, 4)) * [9, 3, 4, 1]
    >>> found = solve_contrast(X, B, k=1)
    >>> np.abs(found.filters[:, 0]).argmax(), found.bound
    (np.int64(2), 12.0)
    """
    rows = rows_at_hand(target) if rows is None else rows
    target = as_moments(target, "target")
    background = None if background is None else as_moments(background, "background")
    for name, value, allowed in (("solver", solver, SOLVERS), ("scaling", scaling, SCALINGS)):
        if value not in allowed:
            raise ValueError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}")
    spreads = check_sides(target, background)
    k = check_n_components(k, target, name="k")
    units = loading_units(loading, spreads[0], None if background is None else spreads[1])
    if loading == "auto":
        rows, row_weights = rows_to_look_at(rows, row_weights, target)
    sides = [target] if background is None else [target, background]
    counts, means = [side.n_samples for side in sides], [side.mean for side in sides]
    task = _Task(k, loading, rows, row_weights, scaling, spreads, counts, means)
    if device is None:
        device = next((side.device for side in sides if hasattr(side, "device")), None)
    chosen = _choose_solver(task, sides, solver, device)
    pair = make_pair(sides, spreads, units, chosen, k, overwrite=overwrite, device=device)
    try:
        return _solve(task, pair)
    except NotConvergedError:
        if solver != "auto":
            raise ValueError(
                f"solver={solver!r} did not converge (the eigenvalues lie too close together, or "
                "the loading is too small); use solver='dense'"
            ) from None
    if isinstance(pair, Lanczos):
        return _solve(task, Dense(pair.covariances, units))
    return _solve(task, make_pair(sides, spreads, units, "dense", k, overwrite=overwrite))


def subspace_overlap(target: Moments, background: Moments, k: int) -> float:
    """Return how much of the target's main subspace lies in the background's.

    ``‖P_{U_b}U_f‖²/‖U_f‖²`` of the paper's Section IV, with the ``k`` main principal components
    of each: 1 if both span the same, ``k / n_features`` on average for unrelated data.

    >>> import numpy as np
    >>> from cpcapp import Moments
    >>> f, b = (Moments.from_covariance(np.diag(d), 100) for d in ([9.0, 4, 1], [9.0, 1, 4]))
    >>> round(subspace_overlap(f, b, 1), 6), round(subspace_overlap(f, b, 2), 6)
    (1.0, 0.5)
    """
    ours, theirs = (solve_contrast(m, None, k).filters for m in (target, background))
    return float(np.clip(((theirs.T @ ours) ** 2).sum() / k, 0.0, 1.0))


def eigenvalues_above(target: Moments, background: Moments, threshold: float) -> FloatArray:
    """Return the eigenvalues of the unloaded contrast above ``threshold``, descending.

    >>> import numpy as np
    >>> from cpcapp import Moments
    >>> f, b = (Moments.from_covariance(np.diag(d), 100) for d in ([9.0, 4.0], [3.0, 4.0]))
    >>> eigenvalues_above(f, b, 2.0)
    array([3.])
    """
    spreads = check_sides(target, background)
    units = loading_units("none", *spreads)
    pair = make_pair([target, background], spreads, units, "dense", 1)
    try:
        lower = cholesky(pair.b.copy(order="F"))
    except SingularError:
        raise SingularBackgroundError(rank_of(pair.b), len(units), background.n_samples) from None
    c, _ = lapack.dsygst(pair.f, lower, lower=1, overwrite_a=1)
    values = eigvalsh(c, lower=True, subset_by_value=(threshold, np.inf), overwrite_a=True)
    return np.asarray(values[::-1])


# -- arguments -----------------------------------------------------------------------------


def as_moments(data: Any, name: str) -> Moments:
    """Return data as moments; those on a device stay there."""
    # They are known by what they can, so that torch is not imported for it.
    if isinstance(data, Moments) or hasattr(data, "to_moments"):
        return data  # type: ignore[no-any-return]
    try:
        return Moments.of(data)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def check_sides(target: Moments, background: Moments | None) -> list[Spread]:
    """Return how much the features of both sides vary; they must have covariances of one width."""
    spreads = []
    for name, moments in (("target", target), ("background", background)):
        if moments is None:
            continue
        if moments.n_samples < 2:
            raise ValueError(
                f"the {name} has n_samples={moments.n_samples}; a covariance needs at least 2"
            )
        if moments.n_features != target.n_features:
            raise ValueError(
                f"background has {moments.n_features} features, but the target has "
                f"{target.n_features}"
            )
        spreads.append(moments.spread())
        if spreads[-1].out_of_range.any():
            outside = np.flatnonzero(spreads[-1].out_of_range)
            raise FeatureRangeError(outside, source=f"the {name}")
    if background is not None and spreads[1].constant.all():
        raise ValueError("the background does not vary at all: there is nothing to contrast with")
    return spreads


def check_n_components(k: Any, target: Moments, *, name: str) -> int:
    """Return ``k`` as an int that this target can give, or raise ``ValueError``."""
    if isinstance(k, bool) or not isinstance(k, Integral):
        raise TypeError(f"{name}={k!r} must be a whole number")
    count, width = int(k), target.n_features or 0
    if not 1 <= count <= width:
        raise ValueError(
            f"{name}={k} must be between 1 and {width} (features of the target, n_features={width})"
        )
    if count > target.n_samples - 1:
        raise ValueError(
            f"{name}={k} must be at most {target.n_samples - 1} (the target has "
            f"n_samples={target.n_samples}, and centring takes one)"
        )
    return count


def rows_at_hand(data: Any) -> Any:
    """Return data that is one array or sparse matrix in memory, else None."""
    whole = hasattr(data, "shape") or isinstance(data, list | tuple)
    return data if whole and kind_of(data) is None else None


def rows_to_look_at(rows: Any, weights: Any, target: Moments) -> tuple[Any, Any]:
    """Return rows and weights to choose a bound by: those given, or those that moments keep."""
    if rows is None and target.is_thin:
        rows, weights = target.kept_rows()
        return (rows if sp.issparse(rows) else rows - target.mean), weights
    if rows is not None:
        weights = None if weights is None else align(weights, rows, "row_weights")
        rows = rows if sp.issparse(rows) else np.asarray(rows)
        if rows.ndim != 2 or rows.shape[1] != target.n_features:
            raise ValueError(
                f"rows has shape {rows.shape}; it must be two-dimensional, with a column for each "
                f"of the {target.n_features} features of the target"
            )
        if weights is not None and np.shape(weights) != rows.shape[:1]:
            raise ValueError(
                f"row_weights has shape {np.shape(weights)}; it must be {rows.shape[:1]}, one for "
                "each of rows"
            )
    return rows, weights


# -- one problem in coordinates ------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """What is to be solved, whichever way; of the target first, and of the background if any."""

    k: int
    loading: str | float | Loading
    rows: Any
    row_weights: Any
    scaling: str
    spreads: list[Spread]
    n_samples: list[int]
    means: list[Any]


def _choose_solver(task: _Task, sides: list[Moments], solver: str, device: Any) -> str:
    if device is not None:
        if solver not in ("auto", "dense"):
            raise ValueError(f"solver={solver!r} must be 'auto' or 'dense' on a device ({device})")
        return "dense"
    width, n_rows = len(task.means[0]), sum(task.n_samples)
    few = sparse = False
    if all(side.is_thin for side in sides):
        few = max(task.n_samples) < width
        # Where nothing is added to a background, its rank is to be known.
        loaded = len(sides) == 1 or not (_is_none(task.loading) or task.loading == 0.0)
        sparse = loaded and all(sp.issparse(side.kept_rows()[0]) for side in sides)
    if solver == "dual" and not few:
        raise ValueError(
            "solver='dual' needs fewer samples than features on both sides; use solver='auto'"
        )
    if solver == "matrix-free" and not sparse:
        raise ValueError(
            "solver='matrix-free' needs sparse rows on both sides, of which Moments still keeps "
            f"each, and another loading than loading={task.loading!r}; use solver='auto'"
        )
    if solver != "auto":
        return solver
    many = min(width, n_rows) >= _MATRIX_FREE_FROM and task.k <= width // _MATRIX_FREE_FEATURES
    if sparse and many:
        return "matrix-free"
    if few and n_rows <= width:
        return "dual"
    return "iterative" if width >= _ITERATIVE_FROM and task.k <= width // 50 else "dense"


def _is_none(loading: str | float | Loading) -> bool:
    """Return whether nothing is added to the background."""
    return not loading.diagonal.any() if isinstance(loading, Loading) else loading == "none"


def make_pair(
    sides: list[Moments],
    spreads: list[Spread],
    units: FloatArray,
    solver: str,
    k: int,
    *,
    overwrite: bool = False,
    device: Any = None,
) -> Dense:
    """Return the covariances in these squared units, as a solver works on them."""
    scales = [np.where(spread.constant, 0.0, 1.0 / np.sqrt(units)) for spread in spreads]
    pairs = list(zip(sides, scales, strict=True))
    if device is not None:
        return OnDevice([covariance_on_device(*pair, device) for pair in pairs], units)
    if solver in ("dual", "matrix-free"):
        rows = [CentredRows(*pair, s.variance) for pair, s in zip(pairs, spreads, strict=True)]
        return span_of_rows(rows, units) if solver == "dual" else MatrixFree(rows, units, k)
    covariances = [side.scaled_covariance(scale, overwrite) for side, scale in pairs]
    iterates = solver == "iterative" and k < len(units) - 1
    return (Lanczos if iterates else Dense)(covariances, units)


def _solve(task: _Task, pair: Dense) -> Contrast:
    k, weight, ridge, bound = min(task.k, pair.size), 0.0, 1.0, None
    try:
        if pair.b is None:
            values, vectors = pair.top(weight, ridge, k)
        elif task.loading == "auto":
            bound, ridge, values, vectors = _bounded(task, pair)
            weight, values, vectors = 1.0, values[:k], vectors[:, :k]
        else:
            weight, ridge = _plain_loading(task, pair)
            values, vectors = pair.top(weight, ridge, k)
    except SingularError:
        if _is_none(task.loading):
            rank = pair.rank(pair.b) or 0
            raise SingularBackgroundError(rank, len(pair.units), task.n_samples[1]) from None
        raise ValueError(
            f"loading={task.loading} is too small to make the background covariance positive "
            "definite; raise it or use loading='auto'"
        ) from None
    if isinstance(pair, Lanczos):
        pair.certify(weight, ridge, (values, vectors))
    filters = atoms = pair.filters(vectors)
    _check_rank(task, pair, values, filters)
    contrast, loading = np.full(k, np.nan), None
    if pair.b is not None:
        times_background = pair.times_background(vectors)
        # W = (wR_b + rD) F, so that FᵀW = I, and FᵀR_fF = diag(λ).
        atoms = pair.atoms(weight * times_background + ridge * vectors)
        inside = np.maximum(np.einsum("ij,ij->j", vectors, times_background), 0.0)
        with np.errstate(divide="ignore"):
            contrast = values / inside
        loading = Loading(weight, ridge * pair.units)
    factor = signs_of(filters)
    if task.scaling == "unit":
        factor = factor / np.linalg.norm(filters, axis=0)
    return Contrast(
        filters=np.asfortranarray(filters * factor),
        atoms=np.asfortranarray(atoms / factor),
        eigenvalues=values,
        contrast=contrast,
        loading=loading,
        bound=bound,
        solver=pair.solver,
        target_variance=task.spreads[0].variance,
        # The best prediction of x from its outputs y is Wy, and the outputs are uncorrelated in
        # the target, with variances λ: tr cov(Wy) = Σ λ_j ‖w_j‖².
        explained_variance=values * (atoms**2).sum(axis=0),
        mean=task.means[0],
        background_mean=None if pair.b is None else task.means[1],
    )


def _plain_loading(task: _Task, pair: Dense) -> tuple[float, float]:
    """Return weight and ridge, in units, of a loading that is given or asks the background."""
    if isinstance(task.loading, Loading):
        return task.loading.weight, float(task.loading.diagonal.any())
    if isinstance(task.loading, Real):
        return 1.0, float(task.loading)  # units are the mean variance
    if task.loading == "none":
        return 1.0, 0.0
    trace, width = float((task.spreads[1].variance / pair.units).sum()), len(pair.units)
    rho = oas_shrinkage(trace, pair.trace_of_square(), task.n_samples[1], width)
    rho = max(rho, LEAST_RIDGE)
    return 1.0 - rho, rho * trace / width


def _bounded(task: _Task, pair: Dense) -> tuple[float, float, FloatArray, FloatArray]:
    """Return the bound that is kept, its ridge, and the eigenpairs."""
    f_varies, b_varies = (int((~spread.constant).sum()) for spread in task.spreads)
    bounds = bounds_to_try(task.n_samples[0], f_varies, task.rows)
    of_noise = max(NOISE_SHARE * b_varies / task.n_samples[1], LEAST_RIDGE)
    # The first two are looked at for classes, however many are asked for.
    k = min(max(task.k if pair.tries_exactly else 2, 2), pair.size)
    tried = [pair.bounded(bound, of_noise, k) for bound in bounds]
    filters = [pair.filters(vectors[:, :2]) for *_, vectors in tried]
    best = choose_bound(bounds, filters, task.rows, task.row_weights)
    if pair.tries_exactly:
        return bounds[best], *tried[best]
    return bounds[best], *pair.bounded(bounds[best], of_noise, task.k, tried=False)


def _check_rank(task: _Task, pair: Dense, values: FloatArray, filters: FloatArray) -> None:
    """Raise an error if there are fewer than ``k`` eigenvalues, or one is rounding only."""
    # λ = fᵀR_ff, beside the variance that independent features would have along f.
    alone = np.einsum("ij,ij,i->j", filters, filters, task.spreads[0].variance)
    large = (values > _LEAST_SHARE * alone) & (values > _LEAST_VALUE * values[0])
    if len(values) == task.k and large.all():
        return
    rank = pair.rank(pair.f)
    rank = int(large.sum()) if rank is None else rank
    if rank < task.k:
        raise InsufficientRankError(rank, f"k={task.k}")


def signs_of(filters: FloatArray) -> FloatArray:
    """Return the signs that make the largest coefficient of each column positive."""
    largest = np.abs(filters).argmax(axis=0)
    return np.asarray(np.copysign(1.0, filters[largest, np.arange(filters.shape[1])]))
