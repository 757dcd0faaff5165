"""The one eigenproblem of this package: what varies in the target but not in the background.

Notation of the paper: ``R_f`` and ``R_b`` are the covariances of target (foreground) and
background, ``F`` the filters, ``W`` the dictionary atoms, ``K`` the number of components.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.linalg import eigvalsh, lapack

from cpcapp.contrast.basis import CentredRows, SampleBasis, sparse_rows
from cpcapp.contrast.dense import (
    Device,
    Lapack,
    NotConvergedError,
    SingularError,
    cholesky,
    rank_of,
)
from cpcapp.contrast.loading import (
    LEAST_RIDGE,
    NOISE_SHARE,
    Loading,
    check_loading,
    choose_bound,
    contrast_bounds,
    loading_units,
    oas_shrinkage,
    usual_bound,
    varying,
)
from cpcapp.contrast.matrix_free import MatrixFree
from cpcapp.contrast.solution import Contrast, InsufficientRankError, SingularBackgroundError
from cpcapp.moments.moments import FeatureRangeError, FloatArray, Moments, Spread
from cpcapp.moments.sources import kind_of

__all__ = [
    "Contrast",
    "InsufficientRankError",
    "SingularBackgroundError",
    "check_n_components",
    "eigenvalues_above",
    "remove_main_subspace",
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
        from products of samples with a few vectors; forms no square matrix at all, and finds
        eigenvalues to 1e-6 or better. ``"auto"`` takes the fastest, and the dense matrices where an
        iteration does not converge.
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
    target = _as_moments(target, "target")
    background = None if background is None else _as_moments(background, "background")
    for name, value, allowed in (("solver", solver, SOLVERS), ("scaling", scaling, SCALINGS)):
        if value not in allowed:
            raise ValueError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}")
    f, b = check_sides(target, background)
    k = check_n_components(k, target, name="k")
    check_loading(loading, f.width)
    if rows is None and target.is_thin and isinstance(loading, str) and loading == "auto":
        rows, row_weights = kept_rows(target)
    task = _Task(f, b, k, loading, rows, row_weights)
    if device is None:
        device = getattr(target, "device", None) or getattr(background, "device", None)
    if device is not None and solver not in ("auto", "dense"):
        raise ValueError(f"solver={solver!r} must be 'auto' or 'dense' on a device ({device})")
    chosen = _choose_solver(task, solver) if device is None else "dense"
    if device is not None:
        algebra: Lapack | Device | MatrixFree = Device(device)
    elif chosen == "matrix-free":
        algebra = MatrixFree()
    else:
        algebra = Lapack(chosen == "iterative", fall_back=solver == "auto")
    at = coordinates(task.sides, task.units, chosen, algebra, overwrite)
    try:
        found = _solve(task, at, algebra)
    except NotConvergedError:
        if solver != "auto":
            raise ValueError(
                f"solver={solver!r} did not converge (the eigenvalues lie too close together, or "
                "the loading is too small); use solver='dense'"
            ) from None
        algebra = Lapack()
        if chosen == "matrix-free":
            at = coordinates(task.sides, task.units, "dense", algebra, overwrite)
        found = _solve(task, at, algebra)
    if chosen in ("iterative", "matrix-free") and not algebra.iterative:
        chosen = "dense"  # took over
    return _finish(task, found, scaling, chosen)


def subspace_overlap(target: Moments, background: Moments, k: int) -> float:
    """Return how much of the target's main subspace lies in the background's.

    ``‖P_{U_b}U_f‖²/‖U_f‖²`` of the paper's Section IV, with the ``k`` main principal components
    of each: 1 if both span the same, ``k / n_features`` on average for unrelated data.

    Parameters
    ----------
    target, background : Moments
    k : int
        Number of principal components, at most the rank of either covariance.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import Moments
    >>> f, b = (Moments.from_covariance(np.diag(d), 100) for d in ([9.0, 4, 1], [9.0, 1, 4]))
    >>> round(subspace_overlap(f, b, 1), 6), round(subspace_overlap(f, b, 2), 6)
    (1.0, 0.5)
    """
    ours, theirs = (solve_contrast(m, None, k).filters for m in (target, background))
    return float(np.clip(((theirs.T @ ours) ** 2).sum() / k, 0.0, 1.0))


def remove_main_subspace(rows: Any, background: Any, n_components: int) -> FloatArray:
    """Return rows without their part in the main subspace of a background.

    Parameters
    ----------
    rows : ndarray of shape (n, n_features)
        NaN counts as the background's mean, and stays NaN.
    background : Moments or array-like of shape (n_background, n_features)
    n_components : int
        Principal directions ``U`` of the background.

    Returns
    -------
    ndarray of shape (n, n_features)
        ``x - UUᵀ(x - mean)``, with the mean of the background.

    Examples
    --------
    >>> background = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]])
    >>> remove_main_subspace(np.array([[7.0, 5.0]]), background, 1)
    array([[2., 5.]])
    """
    main = solve_contrast(background, None, n_components)
    if len(main.mean) != rows.shape[1]:
        raise ValueError(f"background has {len(main.mean)} features, but X has {rows.shape[1]}")
    centred = np.nan_to_num(rows - main.mean, nan=0.0)
    return np.asarray(rows - (centred @ main.filters) @ main.filters.T)


def eigenvalues_above(target: Moments, background: Moments, threshold: float) -> FloatArray:
    """Return the eigenvalues of the unloaded contrast above ``threshold``, descending.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import Moments
    >>> f, b = (Moments.from_covariance(np.diag(d), 100) for d in ([9.0, 4.0], [3.0, 4.0]))
    >>> eigenvalues_above(f, b, 2.0)
    array([3.])
    """
    f, b = check_sides(target, background)
    assert b is not None
    units = loading_units("none", f.spread, b.spread)
    r_f, r_b = (Lapack().covariance(side.moments, side.scale(units)) for side in (f, b))
    lower = cholesky(r_b.copy(order="F"))
    if lower is None:
        raise SingularBackgroundError(rank_of(r_b), b.width, b.n_samples)
    c, _ = lapack.dsygst(r_f, lower, lower=1, overwrite_a=1)
    values = eigvalsh(c, lower=True, subset_by_value=(threshold, np.inf), overwrite_a=True)
    return np.asarray(values[::-1])


# -- arguments -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """Target or background. What is taken from its moments stays when those are used up."""

    moments: Moments
    spread: Spread
    n_samples: int
    mean: FloatArray

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.mean)

    def scale(self, units: FloatArray) -> FloatArray:
        """Return what features are multiplied with: 0 where what varies is rounding."""
        return np.where(self.spread.constant, 0.0, 1.0 / np.sqrt(units))


def check_sides(target: Moments, background: Moments | None) -> tuple[Side, Side | None]:
    """Return both sides, of one width and with covariances that can be computed."""
    for name, moments in (("target", target), ("background", background)):
        if moments is not None and moments.n_samples < 2:
            raise ValueError(
                f"the {name} has n_samples={moments.n_samples}; a covariance needs at least 2"
            )
    if background is not None and background.n_features != target.n_features:
        raise ValueError(
            f"background has {background.n_features} features, but the target has "
            f"{target.n_features}"
        )
    f = _side(target, "the target")
    if background is None:
        return f, None
    b = f if background is target else _side(background, "the background")
    if b.spread.constant.all():
        raise ValueError("the background does not vary at all: there is nothing to contrast with")
    return f, b


def _side(moments: Moments, name: str) -> Side:
    spread = moments.spread()
    if np.count_nonzero(spread.out_of_range):
        raise FeatureRangeError(np.flatnonzero(spread.out_of_range), source=name)
    assert moments.mean is not None
    return Side(moments, spread, moments.n_samples, moments.mean)


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


def _as_moments(data: Any, name: str) -> Moments:
    # Moments on a device are known by what they can, so that torch is not imported for it.
    if isinstance(data, Moments) or hasattr(data, "to_moments"):
        return data  # type: ignore[no-any-return]
    try:
        return Moments.of(data)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


# -- one problem in coordinates ------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """What is to be solved, whichever way."""

    target: Side
    background: Side | None
    k: int
    loading: str | float | Loading
    rows: Any
    row_weights: FloatArray | None

    @property
    def units(self) -> FloatArray:
        """Squared units of the features in which the loading is a multiple of the identity."""
        if self.background is None:
            return np.ones(self.target.width)
        return loading_units(self.loading, self.target.spread, self.background.spread)

    @property
    def sides(self) -> list[Side]:
        """Those there are."""
        return [self.target] if self.background is None else [self.target, self.background]


@dataclass(frozen=True)
class Coordinates:
    """Both covariances in units of the features, in coordinates that ``lift`` turns into features.

    ``target`` and ``background`` are what the solver's functions take: matrices, or rows.
    """

    units: FloatArray
    target: Any
    background: Any
    lift: Callable[[FloatArray], FloatArray] = np.asarray

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return int(self.target.shape[1])

    def filters(self, vectors: FloatArray) -> FloatArray:
        """Return eigenvectors as filters of the features as they are."""
        return self.lift(vectors) / np.sqrt(self.units)[:, None]


@dataclass(frozen=True)
class _Found:
    """What a solver found, before signs and lengths are fixed: see `Contrast`."""

    eigenvalues: FloatArray
    filters: FloatArray
    atoms: FloatArray
    contrast: FloatArray
    loading: Loading | None = None
    bound: float | None = None


def _choose_solver(task: _Task, solver: str) -> str:
    sides = [side.moments for side in task.sides]
    width, n_rows = task.target.width, sum(side.n_samples for side in sides)
    thin = all(side.is_thin and side.n_samples < width for side in sides)
    if solver == "dual" and not thin:
        raise ValueError(
            "solver='dual' needs fewer samples than features on both sides; use solver='auto'"
        )
    sparse = all(side.is_thin and sparse_rows(side) is not None for side in sides)
    regular = task.background is None or not (_is_none(task.loading) or task.loading == 0.0)
    if solver == "matrix-free" and not (sparse and regular):
        raise ValueError(
            "solver='matrix-free' needs sparse rows on both sides, of which Moments still keeps "
            f"each, and another loading than loading={task.loading!r}; use solver='auto'"
        )
    if solver != "auto":
        return solver
    many = min(width, n_rows) >= _MATRIX_FREE_FROM and task.k <= width // _MATRIX_FREE_FEATURES
    if sparse and regular and many:
        return "matrix-free"
    if thin and n_rows <= width:
        return "dual"
    large = width >= _ITERATIVE_FROM and task.k <= width // 50
    return "iterative" if large else "dense"


def _is_none(loading: str | float | Loading) -> bool:
    """Return whether nothing is added to the background."""
    if isinstance(loading, Loading):
        return not loading.diagonal.any()
    return isinstance(loading, str) and loading == "none"


def coordinates(
    sides: list[Side], units: FloatArray, solver: str, algebra: Any, overwrite: bool = False
) -> Coordinates:
    """Return what a solver works on: both covariances, or rows to multiply with."""
    if solver not in ("dual", "matrix-free"):
        found = [algebra.covariance(side.moments, side.scale(units), overwrite) for side in sides]
        return Coordinates(units, found[0], found[-1])
    rows = [CentredRows(side.moments, side.scale(units)) for side in sides]
    if solver == "matrix-free":
        return Coordinates(units, rows[0], rows[-1])
    basis = SampleBasis(rows)
    return Coordinates(units, basis.covariances[0], basis.covariances[-1], basis.lift)


def _solve(task: _Task, at: Coordinates, algebra: Any) -> _Found:
    """Solve a problem in coordinates."""
    background, k = task.background, min(task.k, at.size)
    if background is None:
        values, vectors = algebra.top_difference(at.target, None, 0.0, k)
        filters = at.filters(vectors)
        _check_rank(task, at, algebra, values, filters)
        return _Found(values, filters, filters, np.full(k, np.nan))
    weight, bound = 1.0, None
    try:
        if isinstance(task.loading, str) and task.loading == "auto":
            bound, ridge, values, vectors = _bounded(task, at, algebra)
        else:
            weight, ridge = _plain_loading(task, background, at, algebra)
            values, vectors = algebra.top_loaded(at.target, at.background, weight, ridge, k)
    except SingularError:
        if _is_none(task.loading):
            rank = algebra.rank(at.background)
            raise SingularBackgroundError(rank, background.width, background.n_samples) from None
        raise ValueError(
            f"loading={task.loading} is too small to make the background covariance positive "
            "definite; raise it or use loading='auto'"
        ) from None
    if algebra.iterative and not algebra.certify(
        at.target, at.background, weight, ridge, values, vectors
    ):
        raise NotConvergedError
    values, vectors = values[:k], vectors[:, :k]
    filters = at.filters(vectors)
    _check_rank(task, at, algebra, values, filters)
    times_background = algebra.times(at.background, vectors)
    # W = (wR_b + rD) F, so that FᵀW = I, and FᵀR_fF = diag(λ).
    atoms = at.lift(weight * times_background + ridge * vectors) * np.sqrt(at.units)[:, None]
    inside = np.maximum(np.einsum("ij,ij->j", vectors, times_background), 0.0)
    with np.errstate(divide="ignore"):
        contrast = values / inside
    return _Found(values, filters, atoms, contrast, Loading(weight, ridge * at.units), bound)


def _plain_loading(
    task: _Task, background: Side, at: Coordinates, algebra: Any
) -> tuple[float, float]:
    """Return weight and ridge, in units, of a loading that is given or asks the background."""
    if isinstance(task.loading, Loading):
        return task.loading.weight, float(task.loading.diagonal.any())
    if isinstance(task.loading, Real):
        return 1.0, float(task.loading)  # units are the mean variance
    if task.loading == "none":
        return 1.0, 0.0
    trace = float((varying(background.spread) / at.units).sum())
    square = algebra.trace_of_square(at.background)
    rho = oas_shrinkage(trace, square, background.n_samples, len(at.units))
    rho = max(rho, LEAST_RIDGE)
    return 1.0 - rho, rho * trace / len(at.units)


def _bounded(
    task: _Task, at: Coordinates, algebra: Any
) -> tuple[float, float, FloatArray, FloatArray]:
    """Return the bound that is kept, its ridge, and the eigenpairs."""
    found: list[tuple[float, float, FloatArray, FloatArray]] = []
    bounds = bounds_to_try(task.target, task.rows)
    # The first two are looked at for classes, however many are asked for.
    k = min(max(task.k, 2), at.size)
    assert task.background is not None
    varies = int((~task.background.spread.constant).sum())
    of_noise = max(NOISE_SHARE * varies / task.background.n_samples, LEAST_RIDGE)
    enough = start = None
    rough = len(bounds) > 1
    for bound in bounds:
        enough, values, start = algebra.top_bounded(
            at.target, at.background, bound, k, of_noise, enough, start, rough=rough
        )
        found.append((bound, enough, values, start))
    if len(found) == 1:
        return found[0]
    filters = [at.filters(vectors[:, :2]) for *_, vectors in found]
    best = choose_bound(bounds, filters, task.rows, task.row_weights)
    if not isinstance(algebra, MatrixFree):
        return found[best]
    return bounds[best], *algebra.top_bounded(at.target, at.background, bounds[best], k, of_noise)


def bounds_to_try(target: Side, rows: Any) -> list[float]:
    """Return the bounds to choose from by rows, or the usual one if there are none."""
    bounds = contrast_bounds(target.n_samples, int((~target.spread.constant).sum()))
    return bounds if rows is not None else [bounds[usual_bound(bounds)]]


def rows_at_hand(data: Any) -> Any:
    """Return data that is one array or sparse matrix in memory, else None."""
    whole = hasattr(data, "shape") or isinstance(data, list | tuple)
    return data if whole and kind_of(data) is None else None


def kept_rows(moments: Moments) -> tuple[Any, FloatArray | None]:
    """Return the rows that moments keep, sparse or about their mean, and their weights."""
    rows, weights = moments.kept_rows()
    return rows if sp.issparse(rows) else rows - moments.mean, weights


# -- after the eigenproblem ----------------------------------------------------------------


def _check_rank(
    task: _Task, at: Coordinates, algebra: Any, values: FloatArray, filters: FloatArray
) -> None:
    """Raise an error if there are fewer than ``k`` eigenvalues, or one is rounding only."""
    # λ = fᵀR_ff, beside the variance that independent features would have along f.
    alone = np.einsum("ij,ij,i->j", filters, filters, varying(task.target.spread))
    large = (values > _LEAST_SHARE * alone) & (values > _LEAST_VALUE * values[0])
    if len(values) == task.k and large.all():
        return
    rank = algebra.rank(at.target)
    if rank is None:  # not known without a matrix
        rank = int(large.sum())
    if rank < task.k:
        raise InsufficientRankError(rank, f"k={task.k}")


def signs_of(filters: FloatArray) -> FloatArray:
    """Return the signs that make the largest coefficient of each column positive."""
    largest = np.abs(filters).argmax(axis=0)
    return np.asarray(np.copysign(1.0, filters[largest, np.arange(filters.shape[1])]))


def _finish(task: _Task, found: _Found, scaling: str, solver: str) -> Contrast:
    """Fix the signs of a solution, and the lengths if they are to be 1."""
    factor = signs_of(found.filters)
    if scaling == "unit":
        factor = factor / np.linalg.norm(found.filters, axis=0)
    return Contrast(
        filters=np.asfortranarray(found.filters * factor),
        atoms=np.asfortranarray(found.atoms / factor),
        eigenvalues=found.eigenvalues,
        contrast=found.contrast,
        loading=found.loading,
        bound=found.bound,
        solver=solver,
        target_variance=task.target.spread.variance,
        # The best prediction of x from its outputs y is Wy, and the outputs are uncorrelated in
        # the target, with variances λ: tr cov(Wy) = Σ λ_j ‖w_j‖².
        explained_variance=found.eigenvalues * (found.atoms**2).sum(axis=0),
        mean=task.target.mean,
        background_mean=None if task.background is None else task.background.mean,
    )
