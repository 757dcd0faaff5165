"""The one eigenproblem of this package: what varies in the target but not in the background.

Notation of the paper: ``R_f`` and ``R_b`` are the covariances of target (foreground) and
background, ``F`` the filters, ``W`` the dictionary atoms, ``K`` the number of components.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas, cho_solve, eigvalsh, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from cpcapp import loading as rules
from cpcapp.loading import Loading, LoadingRule
from cpcapp.matrix_free import (
    CentredRows,
    LoadedBackground,
    NotConvergedError,
    Steering,
    sketch_covariance,
    solve_pencil,
)
from cpcapp.moments import FeatureRangeError, FloatArray, Moments, Spread, _centre_full_columns
from cpcapp.steering import SMALL, Solution, Steered, keep_in_upper, restricted, solve_both

_EPS = float(np.finfo(np.float64).eps)

SOLVERS = ("auto", "dense", "iterative", "dual", "matrix-free")
SCALINGS = ("background", "unit")

# Below this many features the dense solver is as fast as Lanczos and its certificate.
_ITERATIVE_FROM = 400
# From here on products with sparse rows are faster than any matrix of features or of samples, for
# up to one component per hundred features: benchmarks/results/sparse.md.
_MATRIX_FREE_FROM, _MATRIX_FREE_FEATURES = 2000, 100


@dataclass(frozen=True)
class Contrast:
    """What `solve_contrast` found.

    Attributes
    ----------
    filters : ndarray of shape (n_features, k)
        ``F``, in columns.
    atoms : ndarray of shape (n_features, k)
        ``W = (loaded R_b) F`` up to the scaling of columns, with ``FᵀW = I``.
    eigenvalues : ndarray of shape (k,)
        Target power over (loaded) background power along each filter, descending. Without a
        background the variances.
    loading : Loading or None
        None without a background.
    output_covariance : ndarray of shape (k, k) or None
        Covariance to expect of ``Fᵀx`` over background samples that were not in the training
        set.
    solver : {"dense", "iterative", "dual", "matrix-free"}
        The solver that gave the result.
    target_variance : ndarray of shape (n_features,)
        Of each feature. Filters times its root are weights that do not depend on units.
    explained_variance : ndarray of shape (k,)
        How much of the sum of ``target_variance`` each component explains, as a predictor of the
        target's features.
    loud, rare : Contrast or None
        With ``loading="auto"`` and contrasts above the bound: the steered solution, whatever
        contrast it loses, and the one without steering. None otherwise.
    n_steered : int
        How many dimensions of the span are those of steered filters.
    steering : ndarray of shape (n_features,) or None
        Of ``loud``: what its filters had on the diagonal besides the loading.
    """

    filters: FloatArray
    atoms: FloatArray
    eigenvalues: FloatArray
    loading: Loading | None
    output_covariance: FloatArray | None
    solver: str
    target_variance: FloatArray = field(default_factory=lambda: np.empty(0))
    explained_variance: FloatArray = field(default_factory=lambda: np.empty(0))
    loud: Contrast | None = None
    rare: Contrast | None = None
    n_steered: int = 0
    steering: FloatArray | None = None


class SingularBackgroundError(ValueError):
    """The background covariance can't be divided by as it is; ``rank`` says how far it is off."""

    def __init__(self, rank: int, n_features: int, n_background: int) -> None:
        self.rank = rank
        super().__init__(
            f"loading='none' needs a background covariance of full rank, but its rank is {rank} "
            f"of {n_features} features (from {n_background} samples); use loading='auto', or drop "
            "constant and duplicate features"
        )


class InsufficientRankError(ValueError):
    """More components were asked for than the target covariance has; ``rank`` is what it has."""

    def __init__(self, rank: int, asked: str) -> None:
        self.rank = rank
        super().__init__(f"{asked} must be at most {rank} (the rank of the target covariance)")


def solve_contrast(
    target: Moments | ArrayLike,
    background: Moments | ArrayLike | None,
    k: int,
    *,
    loading: str | float = "auto",
    solver: str = "auto",
    scaling: str = "background",
    overwrite: bool = False,
) -> Contrast:
    """Find the ``k`` filters with the largest ratio of target to background power.

    Solves ``R_f v = λ (loaded R_b) v`` for the largest λ. This is Algorithm 1 of the paper
    (the right eigenvectors of ``Q = R_b⁻¹R_f``) as a symmetric-definite problem: real,
    orthogonal, and without an inverse.

    Parameters
    ----------
    target : Moments, or array-like of shape (n_target, n_features)
    background : Moments, array-like of shape (n_background, n_features), or None
        Without a background the filters are the principal components of the target.
    k : int
        Number of components, at most the rank of the target covariance.
    loading : {"auto", "likelihood", "oas", "none", "diagonal"} or float, default="auto"
        How to keep the background covariance safe to divide by.

        - ``"auto"``: ``"likelihood"``, and where that leaves contrasts above 6, loud directions are
          preferred to larger contrasts, as long as they keep most of the contrast; see Notes.
        - ``"likelihood"``: shrinkage towards a scaled identity, in units where each feature has
          background variance 1, by which left-out samples are most likely
          (:func:`cpcapp.shrinkage.likelihood_shrinkage`). It needs nothing but the moments, does
          not depend on the features' units, and vanishes as samples become plenty. A feature that
          is constant in the background is taken to have the variance of the target there, divided
          by the number of background samples.
        - ``"oas"``: the same with oracle approximating shrinkage (OAS), of least squared error.
          It shrinks far more, and can erase directions in which the background varies little.
        - ``"none"``: an error if the background covariance is singular.
        - ``"diagonal"``: the paper's: nothing if the background covariance is positive
          definite, else ``ρI`` with ρ a millionth of the mean background variance.
        - a float: this fraction of the mean eigenvalue of ``R_b`` is added to its diagonal.
    solver : {"auto", "dense", "iterative", "dual", "matrix-free"}, default="auto"
        ``"dense"``: Cholesky and LAPACK's top-k ``syevr``. ``"iterative"``: Cholesky and
        Lanczos, with a certificate that nothing larger was missed. ``"dual"``: for fewer
        samples than features, from inner products of samples; never forms an
        (n_features, n_features) matrix. ``"matrix-free"``: for sparse samples, from products of
        samples with a few vectors; forms no square matrix at all. ``"auto"`` takes the fastest.
        The first three are exact; for the last see Notes.
    scaling : {"background", "unit"}, default="background"
        ``"background"``: ``Fᵀ (loaded R_b) F = I``. ``"unit"``: filters of length 1, as in the
        paper.
    overwrite : bool, default=False
        Use the matrices of the moments as workspace, which leaves the moments empty.

    Returns
    -------
    Contrast

    Notes
    -----
    The ratio of powers alone knows nothing of how much a direction carries: the largest ratios
    are often those of faint details that hardly occur in the background. But once the
    background has no more than a sixth of a component's power, it hides nothing. So where an
    eigenvalue is above ``c = 6`` (or above the noise of the target, ``(1 + √(M/n))²``, if that is
    more), ``loading="auto"`` takes the filters from ``R_f v = μ (loaded R_b + rD) v`` with ``D``
    the mean variance of each feature over both sets and the ``r`` that makes ``c`` the largest
    μ. The i-th of these steered filters must keep two thirds of the i-th largest contrast, counted
    up to ``c``. From the first one that does not, filters of the largest contrast are taken
    instead, of those whose outputs over the target are uncorrelated with the steered ones'. Within
    the span of all ``k`` the problem is then solved without ``rD``, so that eigenvalues, scaling
    and atoms mean what they mean with any loading. The first steered filter is that of cPCA at
    ``α = c``. The span of ``k`` filters is part of that of ``k + 1``; single filters may change
    with ``k``. Other rules do not steer.

    ``solver="matrix-free"`` iterates until the residual of each component is below 1e-5 of its
    eigenvalue, which makes eigenvalues exact to 1e-6 or better. Two traces of the background
    are estimated from random signs where exact ones would take longer than the solution: the one
    that gives the shrinkage, with an error of about 2 %, and the one that the output covariance is
    corrected with. The likelihood needs all eigenvalues of the background, which this solver never
    has: here ``loading="auto"`` shrinks as ``"oas"`` does. It takes no ``"likelihood"``, ``"none"``
    or ``"diagonal"``. Where it does not converge, ``solver="auto"`` turns to the dense matrices.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import solve_contrast
    >>> rng = np.random.default_rng(0)
    >>> B = rng.normal(size=(500, 4)) * [9, 3, 1, 1]
    >>> X = rng.normal(size=(500, 4)) * [9, 3, 4, 1]
    >>> found = solve_contrast(X, B, k=1)
    >>> np.abs(found.filters[:, 0]).argmax()
    np.int64(2)
    """
    target = _as_moments(target, "target")
    background = None if background is None else _as_moments(background, "background")
    _check_options(loading, solver, scaling)
    f, b = _check_sides(target, background)
    k = check_n_components(k, target, name="k")
    chosen = _choose_solver(solver, target, background, k, loading)
    fall_back = solver == "auto"
    solution = None
    if chosen == "dual":
        solution = _solve_dual(f, b, k, loading)
    elif chosen == "matrix-free":
        solution = _solve_matrix_free(f, b, k, loading, fall_back)
        chosen = "iterative"
    if solution is None:
        solution = _solve_primal(f, b, k, loading, chosen, fall_back, overwrite)
    return _finish(solution, scaling, f.spread.variance)


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
    return float(np.clip((blas.dgemm(1.0, theirs, ours, trans_a=True) ** 2).sum() / k, 0.0, 1.0))


def solve_difference(
    target: Moments, background: Moments, k: int, alphas: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Solve cPCA's ``(R_f - α R_b) v = λ v`` for the ``k`` largest λ at each α.

    Parameters
    ----------
    target, background : Moments
    k : int
    alphas : array-like of shape (n_alphas,)

    Returns
    -------
    eigenvalues : ndarray of shape (n_alphas, k)
    filters : ndarray of shape (n_alphas, n_features, k)
        Orthonormal columns.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import Moments
    >>> from cpcapp.contrast import solve_difference
    >>> f, b = (Moments.from_covariance(np.diag(d), 100) for d in ([9.0, 4.0], [8.0, 1.0]))
    >>> _, filters = solve_difference(f, b, 1, alphas=[0, 1])
    >>> np.abs(filters[:, :, 0])
    array([[1., 0.],
           [0., 1.]])
    """
    _check_sides(target, background)
    k = check_n_components(k, target, name="k")
    alphas = np.atleast_1d(np.asarray(alphas, dtype=np.float64))
    r_f, r_b, basis = difference_covariances(target, background)
    values = np.empty((len(alphas), k))
    filters = np.empty((len(alphas), _width(target), k))
    for i, alpha in enumerate(alphas):
        values[i], vectors = _top_dense(r_f - alpha * r_b, k)
        filters[i] = vectors if basis is None else basis @ vectors
        filters[i] *= _signs(filters[i])
    return values, filters


def difference_covariances(
    target: Moments, background: Moments
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Return both covariances, in a basis of all samples (the third) if that is smaller."""
    if target.is_thin and background.is_thin and _n_rows(target, background) < _width(target):
        # Rows beyond the span of all samples have eigenvalue 0: rotate into that span first.
        a_f, a_b = target.centred_rows(), background.centred_rows()
        basis, r = np.linalg.qr(np.concatenate([a_f, a_b]).T)
        c_f, c_b = r[:, : len(a_f)], r[:, len(a_f) :]
        return c_f @ c_f.T / target.total_weight, c_b @ c_b.T / background.total_weight, basis
    return target.covariance(), background.covariance(), None


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
    f, b = _check_sides(target, background)
    assert b is not None
    r_b = _lower_covariance(b, overwrite=False)
    lower, _ = _factor(r_b, "none", np.ones(len(r_b)), background.n_samples, b.spread.constant)
    c, _ = lapack.dsygst(_lower_covariance(f, False), lower, lower=1, overwrite_a=1)
    values = eigvalsh(c, lower=True, subset_by_value=(threshold, np.inf), overwrite_a=True)
    return np.asarray(values[::-1])


def check_n_components(k: Any, target: Moments, *, name: str) -> int:
    """Return ``k`` as an int that this target can give, or raise ``ValueError``."""
    if isinstance(k, bool) or not isinstance(k, Integral):
        raise TypeError(f"{name}={k!r} must be a whole number")
    k = int(k)
    width = _width(target)
    if not 1 <= k <= width:
        raise ValueError(
            f"{name}={k} must be between 1 and {width} (features of the target, n_features={width})"
        )
    if k > target.n_samples - 1:
        raise ValueError(
            f"{name}={k} must be at most {target.n_samples - 1} (the target has "
            f"n_samples={target.n_samples}, and centring takes one)"
        )
    return int(k)


# -- arguments -----------------------------------------------------------------------------


def _as_moments(data: Any, name: str) -> Moments:
    if isinstance(data, Moments):
        return data
    try:
        return Moments.of(data)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _check_options(loading: Any, solver: str, scaling: str) -> None:
    for name, value, allowed in (("solver", solver, SOLVERS), ("scaling", scaling, SCALINGS)):
        if value not in allowed:
            raise ValueError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}")
    rules.check_loading(loading)


@dataclass(frozen=True)
class _Side:
    """Target or background. How much its features vary is computed once and handed on."""

    moments: Moments
    spread: Spread


def _check_sides(target: Moments, background: Moments | None) -> tuple[_Side, _Side | None]:
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


def _side(moments: Moments, name: str) -> _Side:
    spread = moments.spread()
    if spread.out_of_range.any():
        raise FeatureRangeError(np.flatnonzero(spread.out_of_range), source=name)
    return _Side(moments, spread)


def _width(moments: Moments) -> int:
    assert moments.n_features is not None
    return moments.n_features


def _n_rows(target: Moments, background: Moments | None) -> int:
    return target.n_samples + (0 if background is None else background.n_samples)


def _choose_solver(
    solver: str, target: Moments, background: Moments | None, k: int, loading: str | float
) -> str:
    sides = [target] if background is None else [target, background]
    width, n_rows = _width(target), _n_rows(target, background)
    thin = all(side.is_thin and side.n_samples < width for side in sides)
    if solver == "dual" and not thin:
        raise ValueError(
            "solver='dual' needs fewer samples than features on both sides; use solver='auto'"
        )
    sparse = all(
        side.is_thin and not side.is_weighted and all(map(sp.issparse, side._rows))
        for side in sides
    )
    regular = background is None or loading not in ("likelihood", "none", "diagonal", 0.0)
    if solver == "matrix-free" and not (sparse and regular):
        raise ValueError(
            "solver='matrix-free' needs sparse rows on both sides, without weights, of which "
            f"Moments still keeps each, and another loading than loading={loading!r}; use "
            "solver='auto'"
        )
    if solver != "auto":
        return solver
    many = min(width, n_rows) >= _MATRIX_FREE_FROM and k <= width // _MATRIX_FREE_FEATURES
    if sparse and regular and many:
        return "matrix-free"
    if thin and n_rows <= width:
        return "dual"
    large = width >= _ITERATIVE_FROM and k <= width // 50
    return "iterative" if large else "dense"


# -- dense and iterative: n_features x n_features ------------------------------------------


def _solve_primal(
    target: _Side,
    background: _Side | None,
    k: int,
    loading: str | float,
    method: str,
    fall_back: bool,
    overwrite: bool,
) -> Contrast:
    if background is None:
        r_f = _lower_covariance(target, overwrite)
        values, vectors, method = _top(r_f, k, method, fall_back)
        _check_rank(values, len(r_f), k)
        return Contrast(vectors, vectors.copy(order="F"), values, None, None, method)
    n_background = background.moments.n_samples
    units = rules.loading_units(loading, target.spread, background.spread)
    steering_units = rules.steering_units(target.spread, background.spread)
    bound = rules.contrast_bound(target.moments.n_samples, len(units))
    steered: Steered | None = None

    def steer(loaded: FloatArray, diagonal: FloatArray) -> None:
        nonlocal steered
        ridge = rules.steering_ridge(lambda: _difference(r_f, loaded, bound, steering_units), bound)
        if ridge > 0.0 and len(loaded) <= SMALL:
            f, b = r_f.copy(order="F"), loaded.copy(order="F")
            steered = _solve_steered(f, b, ridge * steering_units, diagonal, top)
        elif ridge > 0.0:
            with keep_in_upper(loaded, r_f):
                steered = _solve_steered(r_f, loaded, ridge * steering_units, diagonal, top)

    def top(c: FloatArray, k: int = k) -> tuple[FloatArray, FloatArray]:
        nonlocal method
        values, vectors, method = _top(c, k, method, fall_back, keep=steered is not None)
        return values, vectors

    r_b, r_f = (_lower_covariance(side, overwrite) for side in (background, target))
    constant = background.spread.constant
    hook = steer if loading == "auto" else None
    lower, rule = _factor(r_b, loading, units, n_background, constant, hook)
    del r_b
    # C = L⁻¹ R_f L⁻ᵀ with LLᵀ the loaded background: R_f v = λ LLᵀ v becomes C u = λ u.
    c, _ = lapack.dsygst(r_f, lower, lower=1, overwrite_a=1)
    values, u = top(c)
    _check_rank(values, len(c), k)
    filters, _ = lapack.dtrtrs(lower, u, lower=1, trans=1)  # F = L⁻ᵀ u
    atoms = blas.dtrmm(1.0, lower, u, lower=1)  # W = LLᵀ F = L u
    plain = Solution(filters, atoms, values)
    both = None if steered is None else solve_both(steered, values, bound, lower, c, top)
    del c
    loading_used = rule.loading()
    diagonal = loading_used.diagonal
    freedom = _freedom(lower, diagonal)

    def finish(found: Solution, freedom: float) -> Contrast:
        outside = _out_of_sample(_in_sample(found.filters, rule), freedom, n_background)
        parts = found.filters, found.atoms, found.eigenvalues
        return Contrast(*parts, loading_used, outside, method)

    rare = finish(plain, freedom)
    if both is None or steered is None:
        return rare
    n_steered, steered_only, chosen = both
    loud = finish(steered_only, steered.freedom)
    taken = loud if chosen is steered_only else finish(chosen, freedom)
    return _with_views(taken, loud, rare, n_steered, steered.steering)


def _with_views(
    chosen: Contrast, loud: Contrast, rare: Contrast, n_steered: int, steering: FloatArray
) -> Contrast:
    loud = replace(loud, steering=steering)
    return replace(chosen, loud=loud, rare=rare, n_steered=n_steered)


def _solve_steered(
    r_f: FloatArray,
    loaded: FloatArray,
    steering: FloatArray,
    diagonal: FloatArray,
    top: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
) -> Steered:
    """Solve ``R_f v = μ (Σ + S) v``. Uses up the lower triangles and leaves the upper ones.

    ``diagonal`` is what Σ has beside the background covariance.
    """
    np.einsum("ii->i", loaded)[:] += steering
    lower = _cholesky(loaded, clean=len(loaded) <= SMALL)
    assert lower is not None
    c, _ = lapack.dsygst(r_f, lower, lower=1, overwrite_a=1)
    values, u = top(c)
    filters, _ = lapack.dtrtrs(lower, u, lower=1, trans=1)
    return Steered(filters, values, steering, _freedom(lower, diagonal + steering))


def _freedom(lower: FloatArray, diagonal: FloatArray) -> float:
    """Return ``tr((LLᵀ - D)(LLᵀ)⁻¹)``, the effective number of parameters. Uses up ``L``."""
    if not diagonal.any():
        return float(len(lower))
    # M - tr(D (LLᵀ)⁻¹) = M - ‖L⁻¹ D^½‖²
    inverse, _ = lapack.dtrtri(lower, lower=1, overwrite_c=1)
    if len(lower) <= SMALL:
        return len(lower) - float(np.einsum("ij,ij,j->", inverse, inverse, diagonal))
    taken = 0.0
    for start in range(0, len(lower), 128):
        strip = np.tril(inverse[start:, start : start + 128])
        taken += float(np.einsum("ij,ij,j->", strip, strip, diagonal[start : start + 128]))
    return len(lower) - taken


def _lower_covariance(side: _Side, overwrite: bool) -> FloatArray:
    """Return the covariance in Fortran order, valid in its lower triangle, free to be changed."""
    moments, constant = side.moments, side.spread.constant
    if overwrite:
        covariance = moments._take_covariance()
    else:
        covariance = np.asfortranarray(moments._lower() / moments.total_weight)
    if constant.any():
        covariance[constant, :] = 0.0  # what is there is rounding
        covariance[:, constant] = 0.0
    return covariance


def _factor(
    r_b: FloatArray,
    loading: str | float,
    units: FloatArray,
    n_background: int,
    constant: NDArray[np.bool_],
    look: Callable[[FloatArray, FloatArray], None] | None = None,
) -> tuple[FloatArray, LoadingRule]:
    """Return the Cholesky factor of the loaded background, and the loading. Uses up ``r_b``.

    ``look`` is given the loaded background, and its diagonal loading, before it is factored.
    """
    if loading in ("none", "diagonal"):
        lower = _cholesky(r_b.copy(order="F"))
        if lower is not None:
            return lower, LoadingRule(1.0, 0.0, units)
        if loading == "none":
            raise SingularBackgroundError(_rank(r_b), len(r_b), n_background)
    traces, spectrum = rules.traces(r_b, units), lambda: rules.spectrum(r_b, units)
    rule = rules.shrink_or_load(loading, units, n_background, traces, spectrum, constant)
    r_b *= rule.weight
    np.einsum("ii->i", r_b)[:] += rule.ridge * rule.units
    if look is not None:
        look(r_b, rule.ridge * rule.units)
    lower = _cholesky(r_b)
    if lower is None:
        raise ValueError(
            f"loading={loading} is too small to make the background covariance positive definite; "
            "raise it or use loading='auto'"
        )
    return lower, rule


def _difference(r_f: FloatArray, r_b: FloatArray, alpha: float, units: FloatArray) -> FloatArray:
    """Return the lower triangle of ``R_f - αR_b`` in ``units``."""
    scale = 1.0 / np.sqrt(units)
    difference = r_b * -alpha
    difference += r_f
    difference *= scale[:, None]
    difference *= scale
    return difference


def _cholesky(a: FloatArray, clean: bool = True) -> FloatArray | None:
    """Return the lower Cholesky factor, in place, or None if ``a`` is singular to rounding.

    Without ``clean`` the upper triangle is left as it is.
    """
    diagonal = a.diagonal().copy()
    lower, failed = lapack.dpotrf(a, lower=1, clean=int(clean), overwrite_a=1)
    if failed:
        return None
    # L_jj² / a_jj is the share of feature j that the features before it do not explain: a
    # measure of rank that does not depend on the features' units.
    pivots = lower.diagonal() ** 2
    return None if (pivots <= 10.0 * len(a) * _EPS * diagonal).any() else lower


def _rank(lower: FloatArray) -> int:
    """Return the numerical rank of a covariance given by its lower triangle."""
    diagonal = lower.diagonal()
    scale = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    values = eigvalsh(lower / np.multiply.outer(scale, scale), lower=True)
    return int((values > 10.0 * len(values) * _EPS * values[-1]).sum()) if values[-1] > 0 else 0


def _check_rank(values: FloatArray, n_features: int, k: int) -> None:
    rank = int((values > n_features * _EPS * values[0]).sum()) if values[0] > 0.0 else 0
    if rank < k:
        raise InsufficientRankError(rank, f"k={k}")


def _top(
    c: FloatArray, k: int, method: str, fall_back: bool, keep: bool = False
) -> tuple[FloatArray, FloatArray, str]:
    """Return the ``k`` largest eigenpairs of a lower triangle, and how they were found.

    Without ``keep`` the triangle may be used up.
    """
    if method == "iterative" and k < len(c) - 1:
        found = _top_lanczos(c, k, steps=max(len(c) // 8, 100) if fall_back else None)
        if found is not None:
            return *found, "iterative"
        if not fall_back:
            raise ValueError(
                "solver='iterative' did not converge (the eigenvalues lie too close together); "
                "use solver='dense'"
            )
    return *_top_dense(c, k, keep), "dense"


def _top_dense(c: FloatArray, k: int, keep: bool = False) -> tuple[FloatArray, FloatArray]:
    values, vectors = rules.largest_eigenpairs(c.copy(order="F") if keep else c, k)
    return values[::-1], np.asfortranarray(vectors[:, ::-1])


def _top_lanczos(c: FloatArray, k: int, steps: int | None) -> tuple[FloatArray, FloatArray] | None:
    """Return the ``k`` largest eigenpairs of a lower triangle, or None if not within ``steps``."""
    m = len(c)
    ncv = min(m, max(2 * k + 1, 20))
    operator = LinearOperator(
        (m, m), matvec=lambda v: blas.dsymv(1.0, c, v, lower=1), dtype=c.dtype
    )
    start = np.random.default_rng(0).standard_normal(m)
    limit = None if steps is None else max(steps // ncv, 2)
    try:
        values, vectors = eigsh(operator, k, which="LA", v0=start, ncv=ncv, tol=0, maxiter=limit)
    except ArpackNoConvergence:
        return None
    order = np.argsort(values)[::-1]
    values, vectors = values[order], np.asfortranarray(vectors[:, order])
    # Lanczos can miss a copy of a repeated eigenvalue. If θI - (C - VΛVᵀ) is positive definite
    # for θ just above the last value found, nothing larger was missed.
    certificate = -c
    for value, vector in zip(values, vectors.T, strict=True):
        blas.dsyr(value, vector, lower=1, a=certificate, overwrite_a=1)
    certificate[np.diag_indices(m)] += values[-1] + 1e-9 * values[0]
    _, failed = lapack.dpotrf(certificate, lower=1, overwrite_a=1)
    return None if failed else (values, vectors)


# -- dual: only inner products of samples --------------------------------------------------


class _SampleRows:
    """Centred rows in given units, dense or sparse: ``(X - 1·meanᵀ) / √units``.

    With weights, rows are multiplied by their roots, and made dense. The mean weight is then 1.
    """

    def __init__(self, moments: Moments, units: FloatArray) -> None:
        root = np.sqrt(units)
        assert moments.mean is not None
        if all(sp.issparse(block) for block in moments._rows) and not moments.is_weighted:
            stacked = sp.csr_array(sp.vstack(moments._rows, format="csr"))
            shifted, shift = _centre_full_columns(stacked)
            self.rows: Any = sp.csr_array(shifted.multiply(1.0 / root))
            self.offset = (moments.mean - shift) / root
        else:
            self.rows = moments.centred_rows()
            self.rows *= np.sqrt(len(self.rows) / moments.total_weight)
            self.rows /= root
            self.offset = np.zeros_like(root)

    def gram(self, other: _SampleRows) -> FloatArray:
        """Return all inner products, (n, n_other)."""
        product = self.rows @ other.rows.T
        inner: FloatArray = product.toarray() if sp.issparse(product) else np.asarray(product)
        if sp.issparse(self.rows) or sp.issparse(other.rows):
            # (X - 1m'ᵀ)(Y - 1l'ᵀ)ᵀ = XYᵀ - (Xl')1ᵀ - 1(Ym')ᵀ + m'ᵀl', with 0 for a dense side.
            inner -= (self.rows @ other.offset)[:, None]
            inner -= other.rows @ self.offset
            inner += self.offset @ other.offset
        return inner

    def outputs(self, filters: FloatArray) -> FloatArray:
        """Return ``rows filters``, (n, k)."""
        return np.asarray(self.rows @ filters) - self.offset @ filters

    def covariance_times(self, v: FloatArray) -> FloatArray:
        """Return ``rowsᵀ rows v / n``, (n_features,)."""
        outputs = self.outputs(v)
        return self.combine(outputs[:, None])[:, 0] / len(outputs)

    def combine(self, weights: FloatArray) -> FloatArray:
        """Return ``rowsᵀ weights``, (n_features, k)."""
        total = np.asarray(self.rows.T @ weights)
        if sp.issparse(self.rows):
            total -= np.multiply.outer(self.offset, weights.sum(axis=0))
        return total


def _solve_dual(target: _Side, background: _Side | None, k: int, loading: str | float) -> Contrast:
    n_f, width = target.moments.n_samples, _width(target.moments)
    if background is None:
        a_f = _SampleRows(target.moments, np.ones(width))
        values, a = _top_dense(a_f.gram(a_f), k)
        _check_rank(values, width, k)
        filters = np.asfortranarray(a_f.combine(a / np.sqrt(values)))
        values /= len(a)
        return Contrast(filters, filters.copy(order="F"), values, None, None, "dual")
    n_b = background.moments.n_samples
    units = rules.loading_units(loading, target.spread, background.spread)
    a_b = _SampleRows(background.moments, units)
    g_bb = a_b.gram(a_b)
    rows = len(g_bb)
    traces = float(g_bb.trace()) / rows, float(np.vdot(g_bb, g_bb)) / rows**2
    if loading == "none":
        raise SingularBackgroundError(_rank(g_bb), width, n_b)
    constant = background.spread.constant
    rule = rules.shrink_or_load(
        loading, units, n_b, traces, lambda: eigvalsh(g_bb) / rows, constant
    )
    if rule.ridge <= _EPS * traces[0]:
        raise ValueError(
            f"loading={loading} is too small: with fewer background samples than "
            "features it must be positive; use loading='auto'"
        )
    if rule.units is not units:
        a_b = _SampleRows(background.moments, rule.units)
    problem = _DualProblem(_SampleRows(target.moments, rule.units), a_b, g_bb, rule)
    rare = problem.finish(problem.solve(k))
    bound = rules.contrast_bound(n_f, width)
    if loading != "auto" or rare.eigenvalues[0] <= bound:
        return rare
    steering_units = rules.steering_units(target.spread, background.spread)
    steering = problem.steering(bound, steering_units)
    # The same once more, in units that make the whole diagonal 1.
    units = rule.ridge * rule.units + steering
    a_f, a_b = (_SampleRows(side.moments, units) for side in (target, background))
    other = _DualProblem(a_f, a_b, a_b.gram(a_b), LoadingRule(rule.weight, 1.0, units))
    found = other.solve(k)
    freedom = other.freedom
    del other, a_f, a_b
    span = problem.restrict(found.filters)
    loud = problem.finish(span, freedom)
    inside = 1.0 - np.einsum("ij,ij,i->j", found.filters, found.filters, steering)
    n_steered = rules.count_steered(found.eigenvalues / inside, rare.eigenvalues, bound)
    chosen = loud
    if n_steered < k:
        kept = found.filters[:, :n_steered]
        more = problem.solve(k - n_steered, kept).filters
        chosen = problem.finish(problem.restrict(np.concatenate([kept, more], axis=1)))
    return _with_views(chosen, loud, rare, n_steered, steering)


class _DualProblem:
    """``R_f v = λΣv`` by inner products of samples, with ``Σ = w AbᵀAb/n_b + rI`` in given units.

    Woodbury's identity gives ``r Σ⁻¹ = I - w Abᵀ (n_b r I + w AbAbᵀ)⁻¹ Ab``, so the kernel
    ``K = Af Σ⁻¹ Afᵀ`` takes inner products only; ``K a = κ a`` with ``λ = κ/n_f`` and
    ``F = Σ⁻¹Afᵀa/√κ``.
    """

    def __init__(
        self, a_f: _SampleRows, a_b: _SampleRows, g_bb: FloatArray, rule: LoadingRule
    ) -> None:
        self.a_f, self.a_b, self.rule, self.loading = a_f, a_b, rule, rule.loading()
        self.root = np.sqrt(rule.units)[:, None]
        g_bf = a_b.gram(a_f)
        n_b, self.n_f = g_bf.shape
        self.n_b = n_b
        w, r = rule.weight, rule.ridge
        inner = w * g_bb
        inner[np.diag_indices(n_b)] += n_b * r
        factor = np.linalg.cholesky(inner)
        self.solved = cho_solve((factor, True), g_bf)
        self.kernel = (a_f.gram(a_f) - w * (g_bf.T @ self.solved)) / r
        inverse, _ = lapack.dtrtri(factor, lower=1)
        # tr(w AbAbᵀ (n_b r I + w AbAbᵀ)⁻¹)
        self.freedom = n_b - n_b * r * float(np.vdot(inverse, inverse))

    def solve(self, k: int, without: FloatArray | None = None) -> Solution:
        """Return the ``k`` filters of the largest contrast.

        Their outputs over the target are uncorrelated with those of the filters ``without``.
        """
        kernel, outputs = self.kernel, None
        if without is not None:
            # With T = Af Σ^-½, Y = Af G the outputs and P = TᵀY(YᵀKY)^-½, which spans Σ^-½ R_f G,
            #   T (I - PPᵀ) Tᵀ = K - KY (YᵀKY)⁻¹ YᵀK.
            outputs = self.a_f.outputs(self.root * without)
            times = kernel @ outputs
            solved = np.linalg.solve(outputs.T @ times, times.T)
            kernel = kernel - times @ solved
        values, a = _top_dense(np.array(kernel, order="F"), k)
        _check_rank(values, len(self.root), k)
        if outputs is not None:
            a = a - outputs @ (solved @ a)
        a /= np.sqrt(values)
        target = self.a_f.combine(a)
        b = -self.rule.weight * (self.solved @ a)
        filters = (target + self.a_b.combine(b)) / (self.rule.ridge * self.root)
        return Solution(filters, target * self.root, values / self.n_f)  # W = ΣF

    def restrict(self, filters: FloatArray) -> Solution:
        """Solve the problem within the span of filters."""
        outputs = self.a_f.outputs(self.root * filters)
        r_f_filters = self.root * self.a_f.combine(outputs) / self.n_f
        loaded = filters.T @ (self.rule.ridge * self.rule.units[:, None] * filters)
        sigma = self.rule.weight * self._inside(filters) + loaded
        return restricted(filters, outputs.T @ outputs / self.n_f, r_f_filters, sigma)

    def finish(self, found: Solution, freedom: float | None = None) -> Contrast:
        freedom = self.freedom if freedom is None else freedom
        outside = _out_of_sample(self._inside(found.filters), freedom, self.n_b)
        parts = found.filters, found.atoms, found.eigenvalues
        return Contrast(*parts, self.loading, outside, "dual")

    def _inside(self, filters: FloatArray) -> FloatArray:
        outputs = self.a_b.outputs(self.root * filters)
        return np.asarray(outputs.T @ outputs / self.n_b)

    def steering(self, bound: float, units: FloatArray) -> FloatArray:
        """Return the steering that brings the largest eigenvalue down to ``bound``."""
        rule, scale = self.rule, np.sqrt(self.rule.units / units)

        def difference(v: FloatArray) -> FloatArray:
            # (R_f - cΣ) v in the units of the steering
            x = scale * v.ravel()
            loaded = rule.weight * self.a_b.covariance_times(x) + rule.ridge * x
            return scale * (self.a_f.covariance_times(x) - bound * loaded)

        n = len(units)
        largest = rules.lanczos_largest(difference, n, restarts=10 * n, basis=8)
        if largest is None:
            raise ValueError(
                "loading='auto' found no bound for the contrast (its eigenvalues lie too close "
                "together); use loading='likelihood'"
            )
        return largest / bound * units


# -- matrix-free: only products of samples with a few vectors ------------------------------


def _solve_matrix_free(
    target: _Side, background: _Side | None, k: int, loading: str | float, fall_back: bool
) -> Contrast | None:
    """Solve from sparse rows. Returns None if that did not converge and there is another way."""
    try:
        return _matrix_free_contrast(target, background, k, loading)
    except NotConvergedError:
        if fall_back:
            return None
        raise ValueError(
            "solver='matrix-free' did not converge (the eigenvalues lie too close together, or "
            f"loading={loading} is too small); use solver='dense'"
        ) from None


def _matrix_free_contrast(
    target: _Side, background: _Side | None, k: int, loading: str | float
) -> Contrast:
    rows, width = CentredRows(target.moments, target.spread), _width(target.moments)
    if background is None:
        identity = LoadedBackground(None, LoadingRule(0.0, 1.0, np.ones(width)), None)
        only = solve_pencil(rows, identity, k).plain
        _check_rank(only.values, width, k)
        return Contrast(only.filters, only.atoms, only.values, None, None, "matrix-free")
    others = CentredRows(background.moments, background.spread)
    sketch = sketch_covariance(others, rules.loading_units("oas", target.spread, background.spread))
    units = rules.loading_units(loading, target.spread, background.spread)
    traces = float((others.variance / units).sum()), sketch.trace_of_square
    # The eigenvalues of the background, by which "auto" shrinks elsewhere, are never known here.
    shrinking = "oas" if loading == "auto" else loading
    rule = rules.shrink_or_load(
        shrinking,
        units,
        others.n_samples,
        traces,
        lambda: np.empty(0),
        background.spread.constant,
    )
    steering = None
    if loading == "auto":
        bound = rules.contrast_bound(rows.n_samples, width)
        steering = Steering(bound, rules.steering_units(target.spread, background.spread))
    loaded = LoadedBackground(others, rule, sketch)
    found = solve_pencil(rows, loaded, k, steering)
    _check_rank(found.plain.values, width, k)

    def finish(solution: Solution, freedom: float) -> Contrast:
        inside = _in_sample(solution.filters, rule)
        outside = _out_of_sample(inside, freedom, others.n_samples)
        parts = solution.filters, solution.atoms, solution.eigenvalues
        return Contrast(*parts, rule.loading(), outside, "matrix-free")

    freedom = loaded.degrees_of_freedom()
    plain = found.plain
    rare = finish(Solution(plain.filters, plain.atoms, plain.values), freedom)
    steered = found.steered
    if steered is None or steered.steering is None:
        return rare
    # Not (Σ + S)F diag(μ), S the steering, which is R_fF to the tolerance of the solver only.
    r_f_filters = rows.covariance_times(steered.filters)
    sigma_filters = steered.atoms - steered.steering[:, None] * steered.filters
    span = _restrict(steered.filters, r_f_filters, sigma_filters)
    more_loaded = LoadedBackground(others, rule, sketch, steered.steering)
    loud = finish(span, more_loaded.degrees_of_freedom())
    chosen, n_steered = (loud if found.n_steered else rare), found.n_steered
    if found.more is not None:
        more = found.more.filters
        filled = _restrict(
            np.hstack([steered.filters[:, :n_steered], more]),
            np.hstack([r_f_filters[:, :n_steered], rows.covariance_times(more)]),
            np.hstack([sigma_filters[:, :n_steered], found.more.atoms]),
        )
        chosen = finish(filled, freedom)
    return _with_views(chosen, loud, rare, n_steered, steered.steering)


def _restrict(filters: FloatArray, r_f_filters: FloatArray, sigma_filters: FloatArray) -> Solution:
    """Solve ``R_f v = λΣv`` within the span of filters, given ``R_f`` and ``Σ`` times those."""
    return restricted(filters, filters.T @ r_f_filters, r_f_filters, filters.T @ sigma_filters)


# -- after the eigenproblem ----------------------------------------------------------------


def _in_sample(filters: FloatArray, rule: LoadingRule) -> FloatArray:
    """Return ``FᵀR_bF``, the output covariance of the samples that the filters were made with."""
    # Fᵀ (w R_b + D) F = I, so this needs no second look at R_b. Where it is shrunk to nothing, Σ
    # is the better estimate.
    inside = np.eye(filters.shape[1])
    if rule.weight <= _EPS**0.5:
        return inside
    diagonal = rule.ridge * rule.units
    return np.asarray((inside - filters.T @ (diagonal[:, None] * filters)) / rule.weight)


def _out_of_sample(inside: FloatArray, freedom: float, n_background: int) -> FloatArray:
    """Return the output covariance to expect of new background samples.

    The filters were chosen with the very samples that ``inside`` is measured on. For a ridge
    filter the bias of that is known: it is the factor of generalized cross-validation,
    ``(1 - df/n)⁻²``, with ``df`` the effective number of parameters.
    """
    left = max(1.0 - freedom / (n_background - 1), 1.0 / n_background)
    return inside / left**2


def _signs(filters: FloatArray) -> FloatArray:
    """Return the signs that make the largest coefficient of each column positive."""
    largest = np.abs(filters).argmax(axis=0)
    return np.where(filters[largest, np.arange(filters.shape[1])] < 0.0, -1.0, 1.0)


def _finish(solution: Contrast, scaling: str, target_variance: FloatArray) -> Contrast:
    """Fix the signs, and the lengths if they are to be 1."""
    loud, rare = (
        view and _finish(view, scaling, target_variance) for view in (solution.loud, solution.rare)
    )
    if loud is not None and solution.n_steered == len(solution.eigenvalues):
        return replace(loud, loud=loud, rare=rare, n_steered=solution.n_steered)
    factor = _signs(solution.filters)
    if scaling == "unit":
        factor = factor / np.linalg.norm(solution.filters, axis=0)
    output = solution.output_covariance
    if output is not None:
        output = output * np.multiply.outer(factor, factor)
    return replace(
        solution,
        filters=np.asfortranarray(solution.filters * factor),
        atoms=np.asfortranarray(solution.atoms / factor),
        output_covariance=output,
        target_variance=target_variance,
        # The best prediction of x from its outputs y is Wy, and the outputs are uncorrelated in
        # the target, with variances λ: tr cov(Wy) = Σ λ_j ‖w_j‖².
        explained_variance=solution.eigenvalues * (solution.atoms**2).sum(axis=0),
        loud=loud,
        rare=rare,
    )
