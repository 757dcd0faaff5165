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
from numpy.typing import ArrayLike
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
    """

    filters: FloatArray
    atoms: FloatArray
    eigenvalues: FloatArray
    loading: Loading | None
    output_covariance: FloatArray | None
    solver: str
    target_variance: FloatArray = field(default_factory=lambda: np.empty(0))
    explained_variance: FloatArray = field(default_factory=lambda: np.empty(0))


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
    loading : {"auto", "oas", "none", "diagonal"} or float, default="auto"
        How to keep the background covariance safe to divide by.

        - ``"auto"``: ``"oas"``, and where that leaves contrasts above 6, loud directions are
          preferred to larger contrasts, if there are ``k`` that are loud in the target alone; see
          Notes.
        - ``"oas"``: oracle approximating shrinkage (OAS) towards a scaled identity, in units
          where each feature has background variance 1. It needs nothing but the moments, does
          not depend on the features' units, and vanishes as samples become plenty.
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
    μ. Within the span of these ``k`` filters the problem is then solved without ``rD``, so that
    eigenvalues, scaling and atoms mean what they mean with any loading. The first of the
    steered filters is that of cPCA at ``α = c``. If any of the ``k`` μ is below ``c / 3``, that is
    2, more than half of the target's power along that filter would be the steered background's:
    too few directions are loud in the target alone, and the result is that of ``"oas"``. Other
    rules do not steer.

    ``solver="matrix-free"`` iterates until the residual of each component is below 1e-5 of its
    eigenvalue, which makes eigenvalues exact to 1e-6 or better. Two traces of the background
    are estimated from random signs where exact ones would take longer than the solution: the one
    that gives the shrinkage of ``"auto"`` and ``"oas"``, with an error of about 2 %, and the one
    that the output covariance is corrected with. It takes no ``loading="none"`` or
    ``"diagonal"``, which need the rank of the background. Where it does not converge, ``"auto"``
    turns to the dense matrices.

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
    basis = None
    if target.is_thin and background.is_thin and _n_rows(target, background) < _width(target):
        # Rows beyond the span of all samples have eigenvalue 0: rotate into that span first.
        a_f, a_b = target.centred_rows(), background.centred_rows()
        basis, r = np.linalg.qr(np.concatenate([a_f, a_b]).T)
        c_f, c_b = r[:, : len(a_f)], r[:, len(a_f) :]
        r_f, r_b = c_f @ c_f.T / target.total_weight, c_b @ c_b.T / background.total_weight
    else:
        r_f, r_b = target.covariance(), background.covariance()
    values = np.empty((len(alphas), k))
    filters = np.empty((len(alphas), _width(target), k))
    for i, alpha in enumerate(alphas):
        values[i], vectors = _top_dense(r_f - alpha * r_b, k)
        filters[i] = vectors if basis is None else basis @ vectors
        filters[i] *= _signs(filters[i])
    return values, filters


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
    lower, _ = _factor(r_b, "none", np.ones(len(r_b)), background.n_samples)
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
    regular = background is None or loading not in ("none", "diagonal", 0.0)
    if solver == "matrix-free" and not (sparse and regular):
        raise ValueError(
            "solver='matrix-free' needs sparse rows on both sides, without weights, of which "
            f"Moments still keeps each, and a loading above 0, not loading={loading!r}; use "
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

    def steer(loaded: FloatArray) -> FloatArray | None:
        ridge = rules.steering_ridge(
            lambda alpha: _difference(r_f, loaded, alpha, steering_units), bound, k
        )
        return ridge * steering_units if ridge > 0.0 else None

    r_b, r_f = (_lower_covariance(side, overwrite) for side in (background, target))
    lower, rule = _factor(r_b, loading, units, n_background, steer if loading == "auto" else None)
    del r_b
    # C = L⁻¹ R_f L⁻ᵀ with LLᵀ the loaded background: R_f v = λ LLᵀ v becomes C u = λ u.
    c, _ = lapack.dsygst(r_f, lower, lower=1, overwrite_a=1)
    values, u, method = _top(c, k, method, fall_back)
    _check_rank(values, len(c), k)
    filters, _ = lapack.dtrtrs(lower, u, lower=1, trans=1)  # F = L⁻ᵀ u
    atoms = blas.dtrmm(1.0, lower, u, lower=1)  # W = LLᵀ F = L u
    freedom = float(len(c))
    diagonal = rule.diagonal()
    if diagonal.any():
        # tr(w R_b (LLᵀ)⁻¹) = M - tr(D (LLᵀ)⁻¹) = M - ‖L⁻¹ D^½‖²
        inverse, _ = lapack.dtrtri(lower, lower=1, overwrite_c=1)
        freedom -= float(np.einsum("ij,ij,j->", inverse, inverse, diagonal))
    outside = _out_of_sample(_in_sample(filters, rule), freedom, n_background)
    found = Contrast(filters, atoms, values, rule.loading(), outside, method)
    return _without_steering(found, rule.steering)


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
    steer: Callable[[FloatArray], FloatArray | None] | None = None,
) -> tuple[FloatArray, LoadingRule]:
    """Return the Cholesky factor of the loaded background, and the loading. Uses up ``r_b``."""
    if loading in ("none", "diagonal"):
        lower = _cholesky(r_b.copy(order="F"))
        if lower is not None:
            return lower, LoadingRule(1.0, 0.0, units)
        if loading == "none":
            raise SingularBackgroundError(_rank(r_b), len(r_b), n_background)
    rule = rules.shrink_or_load(loading, units, n_background, *rules.traces(r_b, units))
    r_b *= rule.weight
    diagonal = np.einsum("ii->i", r_b)  # a view
    diagonal += rule.ridge * units
    if steer is not None and (steering := steer(r_b)) is not None:
        rule = replace(rule, steering=steering)
        diagonal += steering
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


def _cholesky(a: FloatArray) -> FloatArray | None:
    """Return the lower Cholesky factor, in place, or None if ``a`` is singular to rounding."""
    diagonal = a.diagonal().copy()
    lower, failed = lapack.dpotrf(a, lower=1, clean=1, overwrite_a=1)
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


def _top(c: FloatArray, k: int, method: str, fall_back: bool) -> tuple[FloatArray, FloatArray, str]:
    """Return the ``k`` largest eigenpairs of a lower triangle, and how they were found."""
    if method == "iterative" and k < len(c) - 1:
        found = _top_lanczos(c, k, steps=max(len(c) // 8, 100) if fall_back else None)
        if found is not None:
            return *found, "iterative"
        if not fall_back:
            raise ValueError(
                "solver='iterative' did not converge (the eigenvalues lie too close together); "
                "use solver='dense'"
            )
    return *_top_dense(c, k), "dense"


def _top_dense(c: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    values, vectors = rules.largest_eigenpairs(c, k)
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

    def covariance_times(self, v: FloatArray) -> FloatArray:
        """Return ``rowsᵀ rows v / n``, (n_features,)."""
        outputs = self.rows @ v - self.offset @ v
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
    trace, square = float(g_bb.trace()) / rows, float(np.vdot(g_bb, g_bb)) / rows**2
    if loading == "none":
        raise SingularBackgroundError(_rank(g_bb), width, n_b)
    rule = rules.shrink_or_load(loading, units, n_b, trace, square)
    if rule.ridge <= _EPS * trace:
        raise ValueError(
            f"loading={loading} is too small: with fewer background samples than "
            "features it must be positive; use loading='auto'"
        )
    a_f = _SampleRows(target.moments, units)
    plain = _dual_contrast(a_f, a_b, g_bb, k, rule)
    bound = rules.contrast_bound(n_f, width)
    if loading != "auto" or plain.eigenvalues[0] <= bound:
        return plain
    steering_units = rules.steering_units(target.spread, background.spread)
    steering = _dual_steering(a_f, a_b, rule, bound, steering_units)
    del a_f, a_b, g_bb
    # The same once more, in units that make the whole diagonal 1.
    units = replace(rule, steering=steering).diagonal()
    a_f, a_b = (_SampleRows(side.moments, units) for side in (target, background))
    steered = LoadingRule(rule.weight, 1.0, units)
    found = _dual_contrast(a_f, a_b, a_b.gram(a_b), k, steered)
    if found.eigenvalues[-1] < rules.least_contrast(bound):
        return plain
    return _without_steering(replace(found, loading=rule.loading()), steering)


def _dual_contrast(
    a_f: _SampleRows, a_b: _SampleRows, g_bb: FloatArray, k: int, rule: LoadingRule
) -> Contrast:
    g_bf, g_ff = a_b.gram(a_f), a_f.gram(a_f)
    n_b, n_f = g_bf.shape
    w, r = rule.weight, rule.ridge
    # With A the rows and Σ = w AbᵀAb/n_b + rI, Woodbury gives
    #   r Σ⁻¹ = I - w Abᵀ (n_b r I + w AbAbᵀ)⁻¹ Ab,
    # so K = Af Σ⁻¹ Afᵀ takes inner products only; K a = κ a with λ = κ/n_f, F = Σ⁻¹Afᵀa/√κ.
    inner = w * g_bb
    inner[np.diag_indices(n_b)] += n_b * r
    factor = np.linalg.cholesky(inner)
    solved = cho_solve((factor, True), g_bf)
    kernel = (g_ff - w * (g_bf.T @ solved)) / r
    values, a = _top_dense(np.asfortranarray(kernel), k)
    _check_rank(values, len(rule.units), k)
    a /= np.sqrt(values)
    b = -w * (solved @ a)
    root = np.sqrt(rule.units)[:, None]
    filters = (a_f.combine(a) + a_b.combine(b)) / (r * root)
    atoms = a_f.combine(a) * root  # W = ΣF
    outputs = (g_bf @ a + g_bb @ b) / r  # Ab F, the outputs of the background samples
    inside = outputs.T @ outputs / n_b
    inverse, _ = lapack.dtrtri(factor, lower=1)
    freedom = n_b - n_b * r * float(np.vdot(inverse, inverse))  # tr(w AbAbᵀ (n_b r I + w AbAbᵀ)⁻¹)
    outside = _out_of_sample(inside, freedom, n_b)
    return Contrast(filters, atoms, values / n_f, rule.loading(), outside, "dual")


def _dual_steering(
    a_f: _SampleRows, a_b: _SampleRows, rule: LoadingRule, bound: float, units: FloatArray
) -> FloatArray:
    """Return the steering that brings the largest eigenvalue down to ``bound``."""
    scale = np.sqrt(rule.units / units)

    def difference(v: FloatArray) -> FloatArray:
        # (R_f - cΣ) v in the units of the steering
        x = scale * v.ravel()
        loaded = rule.weight * a_b.covariance_times(x) + rule.ridge * x
        return scale * (a_f.covariance_times(x) - bound * loaded)

    n = len(units)
    largest = rules.lanczos_largest(difference, n, restarts=10 * n, basis=8)
    if largest is None:
        raise ValueError(
            "loading='auto' found no bound for the contrast (its eigenvalues lie too close "
            "together); use loading='oas'"
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
        found = solve_pencil(rows, identity, k)
        _check_rank(found.values, width, k)
        return Contrast(found.filters, found.atoms, found.values, None, None, "matrix-free")
    others = CentredRows(background.moments, background.spread)
    sketch = sketch_covariance(others, rules.loading_units("oas", target.spread, background.spread))
    units = rules.loading_units(loading, target.spread, background.spread)
    trace = float((others.variance / units).sum())
    rule = rules.shrink_or_load(loading, units, others.n_samples, trace, sketch.trace_of_square)
    steering = None
    if loading == "auto":
        bound = rules.contrast_bound(rows.n_samples, width)
        steering_units = rules.steering_units(target.spread, background.spread)
        steering = Steering(bound, rules.least_contrast(bound), steering_units)
    found = solve_pencil(rows, LoadedBackground(others, rule, sketch), k, steering)
    _check_rank(found.values, width, k)
    rule = replace(rule, steering=found.steering)
    freedom = LoadedBackground(others, rule, sketch).degrees_of_freedom()
    outside = _out_of_sample(_in_sample(found.filters, rule), freedom, others.n_samples)
    solution = Contrast(
        found.filters, found.atoms, found.values, rule.loading(), outside, "matrix-free"
    )
    return _without_steering(solution, rule.steering)


# -- after the eigenproblem ----------------------------------------------------------------


def _without_steering(found: Contrast, steering: FloatArray | None) -> Contrast:
    """Solve ``R_f v = λΣv`` within the span of steered filters."""
    if steering is None:
        return found
    # With S the steering, Fᵀ(Σ + S)F = I and R_fF = (Σ + S)F diag(μ) = W diag(μ). In the new
    # basis Fy the atoms that predict the target best, R_fF(FᵀR_fF)⁻¹, are W(FᵀΣF)y.
    steered = steering[:, None] * found.filters
    inner = np.eye(len(found.eigenvalues)) - found.filters.T @ steered
    values, y, failed = lapack.dsygvd(np.diag(found.eigenvalues), inner)
    if failed:
        raise np.linalg.LinAlgError(f"LAPACK's dsygvd gave {failed}")
    values, y = values[::-1], y[:, ::-1]
    assert found.output_covariance is not None
    return replace(
        found,
        filters=found.filters @ y,
        atoms=found.atoms @ (inner @ y),
        eigenvalues=values,
        output_covariance=y.T @ found.output_covariance @ y,
    )


def _in_sample(filters: FloatArray, rule: LoadingRule) -> FloatArray:
    """Return ``FᵀR_bF``, the output covariance of the samples that the filters were made with."""
    # Fᵀ (w R_b + D) F = I, so this needs no second look at R_b. Where it is shrunk to nothing, Σ
    # is the better estimate.
    shrunk = rule.weight <= _EPS**0.5
    diagonal = rule.diagonal()
    apart = diagonal - rule.loading().diagonal if shrunk else diagonal
    inside = np.eye(filters.shape[1]) - filters.T @ (apart[:, None] * filters)
    return np.asarray(inside if shrunk else inside / rule.weight)


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
    factor = _signs(solution.filters)
    if scaling == "unit":
        factor = factor / np.linalg.norm(solution.filters, axis=0)
    output = solution.output_covariance
    if output is not None:
        output = output * np.multiply.outer(factor, factor)
    return Contrast(
        filters=np.asfortranarray(solution.filters * factor),
        atoms=np.asfortranarray(solution.atoms / factor),
        eigenvalues=solution.eigenvalues,
        loading=solution.loading,
        output_covariance=output,
        solver=solution.solver,
        # The best prediction of x from its outputs y is Wy, and the outputs are uncorrelated in
        # the target, with variances λ: tr cov(Wy) = Σ λ_j ‖w_j‖².
        explained_variance=solution.eigenvalues * (solution.atoms**2).sum(axis=0),
        target_variance=target_variance,
    )
