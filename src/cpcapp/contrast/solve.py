"""The one eigenproblem of this package: what varies in the target but not in the background.

Notation of the paper: ``R_f`` and ``R_b`` are the covariances of target (foreground) and
background, ``F`` the filters, ``W`` the dictionary atoms, ``K`` the number of components.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.linalg import blas, eigvalsh

from cpcapp.contrast import dual
from cpcapp.contrast import loading as rules
from cpcapp.contrast.dense import DenseAlgebra, Lapack, top_dense
from cpcapp.contrast.loading import Loading, LoadingRule
from cpcapp.contrast.matrix_free import (
    CentredRows,
    NotConvergedError,
    PencilProblem,
    estimate_spectrum,
    sketch_covariance,
)
from cpcapp.contrast.primal import PrimalProblem, load
from cpcapp.contrast.sides import (
    InsufficientRankError,
    Side,
    SingularBackgroundError,
    check_rank,
    check_sides,
    n_features_of,
)
from cpcapp.contrast.steering import Problem, Solution, Steering, steer
from cpcapp.moments.moments import FloatArray, Moments

__all__ = [
    "Contrast",
    "InsufficientRankError",
    "SingularBackgroundError",
    "check_n_components",
    "difference_covariances",
    "eigenvalues_above",
    "solve_contrast",
    "solve_difference",
    "subspace_overlap",
]

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
    rare : Contrast or None
        With ``loading="auto"`` and contrasts above the bound: the solution without steering.
        None otherwise.
    n_steered : int
        How many dimensions of the span are those of steered filters, if there is a ``rare``.
    steering : Steering or None
        How the filters were steered.
    """

    filters: FloatArray
    atoms: FloatArray
    eigenvalues: FloatArray
    loading: Loading | None
    output_covariance: FloatArray | None
    solver: str
    target_variance: FloatArray = field(default_factory=lambda: np.empty(0))
    explained_variance: FloatArray = field(default_factory=lambda: np.empty(0))
    rare: Contrast | None = None
    n_steered: int = 0
    steering: Steering | None = None


def solve_contrast(
    target: Moments | ArrayLike,
    background: Moments | ArrayLike | None,
    k: int,
    *,
    loading: str | float = "auto",
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
    loading : {"auto", "likelihood", "oas", "none", "diagonal"} or float, default="auto"
        How to keep the background covariance safe to divide by.

        - ``"auto"``: ``"likelihood"``, and of contrasts above 6, or that samples cannot tell apart,
          those of loud directions are taken; see Notes.
        - ``"likelihood"``: shrinkage towards a scaled identity, in units where each feature has
          background variance 1, by which left-out samples are most likely
          (:func:`cpcapp.contrast.shrinkage.likelihood_shrinkage`). It needs nothing but the
          moments,
          does not depend on the features' units, and vanishes as samples become plenty. A feature
          that
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
    are often those of faint details that hardly occur in the background. But once the
    background has no more than a sixth of a component's power, it hides nothing. So where
    eigenvalues are above ``c = 6`` (or above the noise of the target, ``(1 + √(M/n))²``, if that is
    more), ``loading="auto"`` takes as many filters of cPCA at ``α = c``, which have contrasts above
    ``c`` and are as loud as can be. More filters are steered to loud directions as long as they
    keep most of the contrast, and those of the largest contrast follow. If all eigenvalues are
    below ``c``, contrasts are kept within two standard errors. All of this is in
    :func:`cpcapp.contrast.steering.steer`. Within the span of all ``k`` the problem is then solved
    without steering, so that eigenvalues, scaling and atoms mean what they mean with any loading.
    The span
    of ``k`` filters is part of that of ``k + 1``; single filters may change with ``k``. Other rules
    do not steer.

    ``solver="matrix-free"`` iterates until the residual of each component is below 1e-5 of its
    eigenvalue, which makes eigenvalues exact to 1e-6 or better. What the shrinkage needs to know of
    the background is estimated from random signs: its spectrum, which gives the shrinkage to a few
    percent, or for ``"oas"`` a trace, with an error of about 2 % where the exact one would take
    longer than the solution. So is the trace that the output covariance is corrected with. It takes
    no ``"none"`` or ``"diagonal"``. Where it does not converge, ``solver="auto"`` turns to the
    dense matrices.

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
    f, b = check_sides(target, background)
    k = check_n_components(k, target, name="k")
    task = _Task(f, b, k, loading)
    if device is None:
        device = getattr(target, "device", None) or getattr(background, "device", None)
    if device is not None:
        found = _solve_primal(task, _device_algebra(device, solver), overwrite=False)
    else:
        chosen = _choose_solver(solver, target, background, k, loading)
        found = _solve(task, chosen, solver == "auto", overwrite)
    return _finish(found, scaling, f.spread.variance)


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
    >>> from cpcapp.contrast.solve import solve_difference
    >>> f, b = (Moments.from_covariance(np.diag(d), 100) for d in ([9.0, 4.0], [8.0, 1.0]))
    >>> _, filters = solve_difference(f, b, 1, alphas=[0, 1])
    >>> np.abs(filters[:, :, 0])
    array([[1., 0.],
           [0., 1.]])
    """
    check_sides(target, background)
    k = check_n_components(k, target, name="k")
    alphas = np.atleast_1d(np.asarray(alphas, dtype=np.float64))
    r_f, r_b, basis = difference_covariances(target, background)
    values = np.empty((len(alphas), k))
    filters = np.empty((len(alphas), n_features_of(target), k))
    for i, alpha in enumerate(alphas):
        values[i], vectors = top_dense(r_f - alpha * r_b, k)
        filters[i] = vectors if basis is None else basis @ vectors
        filters[i] *= _signs(filters[i])
    return values, filters


def difference_covariances(
    target: Moments, background: Moments
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Return both covariances, in a basis of all samples (the third) if that is smaller."""
    if (
        target.is_thin
        and background.is_thin
        and _n_rows(target, background) < n_features_of(target)
    ):
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
    f, b = check_sides(target, background)
    assert b is not None
    algebra = Lapack()
    r_f, r_b = (algebra.covariance(side.moments, side.spread.constant, False) for side in (f, b))
    load(r_b, "none", f, b, algebra)
    lower = algebra.cholesky(r_b)
    assert lower is not None
    c = algebra.reduce(r_f, lower)
    values = eigvalsh(c, lower=True, subset_by_value=(threshold, np.inf), overwrite_a=True)
    return np.asarray(values[::-1])


def check_n_components(k: Any, target: Moments, *, name: str) -> int:
    """Return ``k`` as an int that this target can give, or raise ``ValueError``."""
    if isinstance(k, bool) or not isinstance(k, Integral):
        raise TypeError(f"{name}={k!r} must be a whole number")
    k = int(k)
    width = n_features_of(target)
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
    if isinstance(data, Moments) or _is_on_device(data):
        return data  # type: ignore[no-any-return]
    try:
        return Moments.of(data)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _is_on_device(data: Any) -> bool:
    """Return whether data is `cpcapp.moments.torch.DeviceMoments`, without importing torch."""
    return hasattr(data, "to_moments")


def _device_algebra(device: Any, solver: str) -> DenseAlgebra:
    if solver not in ("auto", "dense"):
        raise ValueError(f"solver={solver!r} must be 'auto' or 'dense' on a device ({device})")
    from cpcapp.contrast.torch_algebra import TorchAlgebra

    return TorchAlgebra(device)


def _check_options(loading: Any, solver: str, scaling: str) -> None:
    for name, value, allowed in (("solver", solver, SOLVERS), ("scaling", scaling, SCALINGS)):
        if value not in allowed:
            raise ValueError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}")
    rules.check_loading(loading)


def _n_rows(target: Moments, background: Moments | None) -> int:
    return target.n_samples + (0 if background is None else background.n_samples)


def _choose_solver(
    solver: str, target: Moments, background: Moments | None, k: int, loading: str | float
) -> str:
    sides = [target] if background is None else [target, background]
    width, n_rows = n_features_of(target), _n_rows(target, background)
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


# -- one problem, three ways to solve it ---------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """What is to be solved, whichever way."""

    target: Side
    background: Side | None
    k: int
    loading: str | float


@dataclass(frozen=True)
class _Found:
    """What a solver found, before signs and lengths are fixed: see `Contrast`."""

    solution: Solution
    solver: str
    loading: Loading | None = None
    output_covariance: FloatArray | None = None
    steering: Steering | None = None
    rare: _Found | None = None


def _solve(task: _Task, chosen: str, fall_back: bool, overwrite: bool) -> _Found:
    if chosen == "matrix-free":
        try:
            return _solve_matrix_free(task)
        except NotConvergedError:
            if not fall_back:
                raise ValueError(
                    "solver='matrix-free' did not converge (the eigenvalues lie too close "
                    f"together, or loading={task.loading} is too small); use solver='dense'"
                ) from None
        chosen = "iterative"
    if chosen != "dual":
        return _solve_primal(task, Lapack(chosen, fall_back), overwrite)
    if task.background is None:
        return _Found(_principal(*dual.principal_components(task.target, task.k)), "dual")
    rule = dual.load(task.target, task.background, task.loading)
    problem = dual.DualProblem(task.target.moments, task.background.moments, rule)
    return _steered(problem, task, task.background)


def _solve_primal(task: _Task, algebra: DenseAlgebra, overwrite: bool) -> _Found:
    target, background, k = task.target, task.background, task.k
    if background is None:
        r_f = algebra.covariance(target.moments, target.spread.constant, overwrite)
        values, filters = algebra.top(r_f, k)
        check_rank(values, target.width, k)
        return _Found(_principal(values, filters), algebra.solver)
    problem = PrimalProblem(target, background, task.loading, algebra, overwrite)
    return _steered(problem, task, background)


def _principal(values: FloatArray, filters: FloatArray) -> Solution:
    """Return principal components as a solution: they are their own atoms."""
    return Solution(filters, filters, values)


def _solve_matrix_free(task: _Task) -> _Found:
    target, background, k = task.target, task.background, task.k
    rows, width = CentredRows(target.moments, target.spread), target.width
    if background is None:
        identity = LoadingRule(0.0, 1.0, np.ones(width))
        only = PencilProblem(rows, None, identity, None, k).largest(k)
        check_rank(only.eigenvalues, width, k)
        return _Found(only, "matrix-free")
    others = CentredRows(background.moments, background.spread)
    sketch = sketch_covariance(others, rules.loading_units("oas", target.spread, background.spread))
    units = rules.loading_units(task.loading, target.spread, background.spread)
    traces = float((others.variance / units).sum()), sketch.trace_of_square
    rule = rules.shrink_or_load(
        task.loading,
        units,
        others.n_samples,
        lambda: traces,
        lambda: estimate_spectrum(others, units),
        background.spread.constant,
    )
    louder = rules.steering_units(target.spread, background.spread)
    return _steered(PencilProblem(rows, others, rule, sketch, k, louder), task, background)


class _Problem(Problem, Protocol):
    """A problem that says what its filters have learned from the background, and how."""

    rule: LoadingRule

    @property
    def method(self) -> str:
        """Name of the solver."""

    def freedom(self, extra: FloatArray | None = None) -> float:
        """Return the effective number of parameters with ``extra`` on the diagonal."""


def _steered(problem: _Problem, task: _Task, background: Side) -> _Found:
    """Solve a problem, and steer it if that is the rule."""
    k, n_background, loading = task.k, background.n_samples, problem.rule.loading()

    def expect(found: Solution, freedom: float) -> FloatArray:
        return _expected_outputs(found.filters, loading, freedom, n_background)

    plain = problem.largest(k)
    check_rank(plain.eigenvalues, task.target.width, k)
    if task.loading != "auto":
        return _Found(plain, problem.method, loading, expect(plain, problem.freedom()))
    louder = rules.steering_units(task.target.spread, background.spread)
    found = steer(problem, plain.eigenvalues, task.target.n_samples, n_background, louder)
    solution, steering, rare = found.solution, found.steering, None
    if found.by_choice:
        rare = _Found(plain, problem.method, loading, expect(plain, problem.freedom()))
    freedom = problem.freedom(steering.least_ridge if steering.n_steered == k else None)
    expected = expect(solution, freedom)
    return _Found(solution, problem.method, loading, expected, steering, rare)


# -- after the eigenproblem ----------------------------------------------------------------


def _expected_outputs(
    filters: FloatArray, loading: Loading, freedom: float, n_background: int
) -> FloatArray:
    """Return the output covariance to expect of new background samples.

    The filters were chosen with the very samples that ``FᵀR_bF`` is measured on. For a ridge
    filter the bias of that is known: it is the factor of generalized cross-validation,
    ``(1 - df/n)⁻²``, with ``df`` the effective number of parameters.
    """
    left = max(1.0 - freedom / (n_background - 1), 1.0 / n_background)
    inside = np.eye(filters.shape[1])
    # Fᵀ (w R_b + D) F = I, so this needs no second look at R_b. Where it is shrunk to nothing, Σ
    # is the better estimate.
    if loading.weight > _EPS**0.5 and np.count_nonzero(loading.diagonal):
        inside -= filters.T.dot(loading.diagonal[:, None] * filters)
        inside /= loading.weight
    return np.asarray(inside / left**2)


def _signs(filters: FloatArray) -> FloatArray:
    """Return the signs that make the largest coefficient of each column positive."""
    largest = np.abs(filters).argmax(axis=0)
    return np.asarray(np.copysign(1.0, filters[largest, np.arange(filters.shape[1])]))


def _finish(found: _Found, scaling: str, target_variance: FloatArray) -> Contrast:
    """Fix the signs of a solution, and the lengths if they are to be 1."""
    solution, output, steering = found.solution, found.output_covariance, found.steering
    factor = _signs(solution.filters)
    if scaling == "unit":
        factor = factor / np.linalg.norm(solution.filters, axis=0)
    if output is not None:
        output = output * (factor[:, None] * factor)
    return Contrast(
        filters=np.asfortranarray(solution.filters * factor),
        atoms=np.asfortranarray(solution.atoms / factor),
        eigenvalues=solution.eigenvalues,
        loading=found.loading,
        output_covariance=output,
        solver=found.solver,
        target_variance=target_variance,
        # The best prediction of x from its outputs y is Wy, and the outputs are uncorrelated in
        # the target, with variances λ: tr cov(Wy) = Σ λ_j ‖w_j‖².
        explained_variance=solution.eigenvalues * (solution.atoms**2).sum(axis=0),
        rare=None if found.rare is None else _finish(found.rare, scaling, target_variance),
        n_steered=0 if steering is None or found.rare is None else steering.n_steered,
        steering=steering,
    )
