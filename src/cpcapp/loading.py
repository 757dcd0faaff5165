"""How the background covariance is made safe, and sensible, to divide by.

Every rule here ends in ``Σ = weight · R_b + ridge · diag(units)``: see `LoadingRule`. The rule
``"auto"`` also steers: of all directions with a large contrast it makes the solver take loud ones,
as long as there are enough that are loud in the target alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from cpcapp.moments import FloatArray, Spread

LOADINGS = ("auto", "oas", "none", "diagonal")

# A background with a sixth of a component's power hides nothing of it. Between four and ten, real
# data gives much the same: benchmarks/results/loading_rules.md.
LARGEST_CONTRAST = 6.0
# Steered filters have at least this, 2: half of the target's power along them is its own. What is
# loud in both sets has about 1, and somewhat more by chance; where chance raises the bound it
# raises this too.
_LEAST_OF_BOUND = 1.0 / 3.0
# The paper's rho is "small": this fraction of the mean background variance.
_DIAGONAL_LOADING = 1e-6
# OAS fades with the sample count; exact copies of a feature stay singular however many there are.
_LEAST_SHRINKAGE = 1e-9
# Below this order LAPACK finds the largest eigenvalue as fast as Lanczos.
_LANCZOS_FROM = 100


@dataclass(frozen=True)
class Loading:
    """How the background covariance was made safe to divide by.

    The loaded background is ``weight · R_b + diag(diagonal)``.

    Attributes
    ----------
    weight : float
        1 unless the rule shrinks (``"auto"`` and ``"oas"``), then 1 minus the shrinkage.
    diagonal : ndarray of shape (n_features,)
    """

    weight: float
    diagonal: FloatArray


@dataclass(frozen=True)
class LoadingRule:
    """The loaded background, ``Σ = weight · R_b + ridge · diag(units)``, and the steering.

    Filters are the eigenvectors of ``R_f v = μ (Σ + diag(steering)) v``.
    """

    weight: float
    ridge: float
    units: FloatArray
    steering: FloatArray | None = None

    def loading(self) -> Loading:
        """Return the loading as users see it."""
        return Loading(self.weight, self.ridge * self.units)

    def diagonal(self) -> FloatArray:
        """Return all that is added to the diagonal while filters are sought."""
        loaded = self.ridge * self.units
        return loaded if self.steering is None else loaded + self.steering


def check_loading(loading: Any) -> None:
    """Raise ``ValueError`` unless ``loading`` names a rule or is a number of at least 0."""
    if isinstance(loading, Real) and not isinstance(loading, bool | np.bool_):
        if not (np.isfinite(float(loading)) and float(loading) >= 0.0):
            raise ValueError(f"loading={loading} must be a finite number of at least 0")
    elif loading not in LOADINGS:
        names = ", ".join(map(repr, LOADINGS))
        raise ValueError(f"loading={loading!r} must be one of {names}, or a number")


def loading_units(loading: str | float, target: Spread, background: Spread) -> FloatArray:
    """Return the squared unit of each feature in which the loading is a scaled identity."""
    if loading not in ("auto", "oas"):
        return np.ones(len(target.variance))
    units = background.variance
    if background.constant.any():
        # No unit to be had from the background: take the target's. A feature that is constant
        # in both is never used by a filter, and any unit will do.
        fallback = np.where(target.constant, 1.0, target.variance)
        units = np.where(background.constant, fallback, units)
    return units


def shrink_or_load(
    loading: str | float, units: FloatArray, n_background: int, trace: float, square: float
) -> LoadingRule:
    """Return what the background alone asks for.

    Parameters
    ----------
    loading : str or float
    units : ndarray of shape (n_features,)
    n_background : int
    trace, square : float
        Traces of ``R_b`` and of its square, in ``units``.
    """
    mean_eigenvalue = trace / len(units)
    if loading in ("auto", "oas"):
        rho = max(oas_shrinkage(trace, square, n_background, len(units)), _LEAST_SHRINKAGE)
        return LoadingRule(1.0 - rho, rho * mean_eigenvalue, units)
    fraction = _DIAGONAL_LOADING if loading == "diagonal" else float(loading)
    return LoadingRule(1.0, fraction * mean_eigenvalue, units)


def steering_units(target: Spread, background: Spread) -> FloatArray:
    """Return the mean variance of each feature over the two sets, or 1 where it is 0."""
    of_both = [np.where(s.constant, 0.0, s.variance) for s in (target, background)]
    units = (of_both[0] + of_both[1]) / 2.0
    return np.where(units > 0.0, units, 1.0)


def contrast_bound(n_target: int, n_features: int) -> float:
    """Return the contrast that is large enough to prefer loudness to more of it.

    Not below what sampling alone makes of a white target, the edge of the law of Marchenko and
    Pastur: there a loud direction can be one of noise.

    Examples
    --------
    >>> contrast_bound(n_target=1000, n_features=90)
    6.0
    >>> contrast_bound(n_target=100, n_features=2500)
    36.0
    """
    return max(LARGEST_CONTRAST, (1.0 + math.sqrt(n_features / n_target)) ** 2)


def least_contrast(bound: float) -> float:
    """Return the contrast with the steered background below which filters are not steered.

    Examples
    --------
    >>> least_contrast(bound=6.0)
    2.0
    """
    return bound * _LEAST_OF_BOUND


def steering_ridge(difference: Callable[[float], FloatArray], bound: float, k: int) -> float:
    """Return the ridge that brings the largest contrast down to ``bound``, or 0 for no steering.

    Steering is left alone where contrasts are below the bound anyway, and where any of the ``k``
    steered ones would be below `least_contrast`.

    Parameters
    ----------
    difference : callable
        Returns a new copy of ``D^-½ (R_f - α Σ) D^-½`` for α, with ``D`` the units of the ridge, in
        Fortran order and valid in its lower triangle.
    bound : float
    k : int
        Number of components.

    Examples
    --------
    A target of variances 30, 5 and 1 over a background of variance 1, whose ridge is 4:

    >>> import numpy as np
    >>> def difference(alpha):
    ...     return np.asfortranarray(np.diag([30.0, 5.0, 1.0]) - alpha * np.eye(3))
    >>> steering_ridge(difference, bound=6.0, k=1)
    4.0
    >>> steering_ridge(difference, bound=6.0, k=2)  # 5 / (1 + 4) is less than 2
    0.0
    """
    # With S = rD the steering, R_f v = c (Σ + S) v is (R_f - cΣ) v = c r D v.
    ridge = positive_eigenvalue(lambda: difference(bound)) / bound
    if ridge == 0.0:
        return 0.0
    # By Sylvester's law as many μ are above c' as R_f - c'(Σ + S) has positive eigenvalues.
    least = least_contrast(bound)
    shifted = difference(least)
    np.einsum("ii->i", shifted)[...] -= least * ridge
    return ridge if count_positive(shifted) >= k else 0.0


def count_positive(matrix: FloatArray) -> int:
    """Return how many eigenvalues of a symmetric matrix are positive. Uses up the matrix.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        In Fortran order, valid in its lower triangle.

    Examples
    --------
    >>> count_positive(np.asfortranarray([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 3.0]]))
    2
    """
    workspace = int(lapack.dsytrf_lwork(len(matrix), lower=1)[0])
    factor, pivots, _ = lapack.dsytrf(matrix, lower=1, lwork=workspace, overwrite_a=1)
    # LDLᵀ of Bunch and Kaufman: a block of order 2 has one eigenvalue of either sign, and its
    # two rows a negative pivot each.
    single = pivots > 0
    return int((factor.diagonal()[single] > 0.0).sum()) + int((~single).sum()) // 2


def positive_eigenvalue(make: Callable[[], FloatArray]) -> float:
    """Return the largest eigenvalue of a symmetric matrix, or 0 if it is negative.

    ``make`` returns a new copy of the matrix in Fortran order, valid in its lower triangle.
    """
    matrix = make()
    n = len(matrix)
    if n < _LANCZOS_FROM:
        return max(0.0, _largest_dense(matrix))
    # Where there is nothing to be found eigenvalues crowd below 0 and Lanczos is slow, while a
    # Cholesky factorization of the negative tells it.
    np.negative(matrix, out=matrix)
    failed = lapack.dpotrf(matrix, lower=1, overwrite_a=1)[1]
    if not failed:
        return 0.0
    del matrix
    matrix = make()
    found = lanczos_largest(lambda v: blas.dsymv(1.0, matrix, v, lower=1), n, restarts=20)
    return max(0.0, _largest_dense(matrix) if found is None else found)


def lanczos_largest(
    matvec: Callable[[FloatArray], FloatArray], n: int, restarts: int, basis: int = 20
) -> float | None:
    """Return the largest eigenvalue of a symmetric operator, or None if that takes too long.

    Holds ``basis`` vectors between restarts.
    """
    operator = LinearOperator((n, n), matvec=matvec, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n)
    try:
        found = eigsh(
            operator,
            1,
            which="LA",
            v0=start,
            ncv=min(basis, n),
            tol=1e-8,
            maxiter=restarts,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence:
        return None
    return float(found[0])


def _largest_dense(matrix: FloatArray) -> float:
    return float(largest_eigenpairs(matrix, 1, vectors=False)[0][0])


def largest_eigenpairs(
    matrix: FloatArray, k: int, *, vectors: bool = True
) -> tuple[FloatArray, FloatArray]:
    """Return the ``k`` largest eigenpairs of a symmetric matrix, ascending. Uses up the matrix.

    LAPACK's ``dsyevr`` without SciPy's checks, which take as long as a small problem.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        Of finite numbers, valid in its lower triangle. In Fortran order no copy is made.
    k : int
    vectors : bool, default=True

    Returns
    -------
    values : ndarray of shape (k,)
    vectors : ndarray of shape (n, k)
        Empty if there are to be none.

    Examples
    --------
    >>> values, _ = largest_eigenpairs(np.asfortranarray(np.diag([3.0, 1.0, 2.0])), 2)
    >>> values
    array([2., 3.])
    """
    n = len(matrix)
    work, integers, _ = lapack.dsyevr_lwork(n, lower=1)
    values, found, count, _, failed = lapack.dsyevr(
        matrix,
        compute_v=vectors,
        range="I",
        lower=1,
        il=n - k + 1,
        iu=n,
        lwork=int(work),
        liwork=int(integers),
        overwrite_a=1,
    )
    if failed:
        raise np.linalg.LinAlgError(f"LAPACK's dsyevr gave {failed}")
    return values[:count], found[:, :count]


def oas_shrinkage(trace: float, trace_of_square: float, n_samples: int, n_features: int) -> float:
    """Return the oracle approximating shrinkage of a covariance towards a scaled identity.

    Parameters
    ----------
    trace, trace_of_square : float
        Traces of the sample covariance ``S`` and of ``S²``.
    n_samples, n_features : int

    Returns
    -------
    float
        ρ in [0, 1]; the shrunk covariance is ``(1 - ρ) S + ρ (trace / n_features) I``.

    References
    ----------
    Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero, "Shrinkage algorithms for MMSE covariance
    estimation", IEEE Transactions on Signal Processing 58(10), 2010. As in scikit-learn, its
    terms in ``2 / n_features`` are left out.

    Examples
    --------
    >>> round(oas_shrinkage(trace=4.0, trace_of_square=10.0, n_samples=50, n_features=4), 3)
    0.085
    """
    numerator = trace_of_square + trace**2
    denominator = (n_samples + 1.0) * (trace_of_square - trace**2 / n_features)
    return 1.0 if numerator >= denominator else numerator / denominator


def traces(lower: FloatArray, units: FloatArray, block: int = 128) -> tuple[float, float]:
    """Return the traces of ``S`` and ``S²``, ``S`` a lower triangle taken in ``units``."""
    scale = 1.0 / np.sqrt(units)
    diagonal = lower.diagonal() / units
    square = 0.0
    for start in range(0, len(units), block):
        stop = start + block
        # Σ S_ij² / (u_i u_j) over a strip of columns: the corner once below its diagonal, and
        # everything under it. In units first: the square of a covariance may be out of range.
        strip = np.tril(lower[start:, start:stop], -1)
        strip *= scale[start:, None]
        strip *= scale[start:stop]
        square += float(np.vdot(strip, strip))
    return float(diagonal.sum()), 2.0 * square + float(np.vdot(diagonal, diagonal))
