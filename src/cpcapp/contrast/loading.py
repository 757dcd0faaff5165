"""How the background covariance is made safe, and sensible, to divide by.

Every rule here ends in ``Σ = weight · R_b + ridge · diag(units)``: see `LoadingRule`. The rule
``"auto"`` also steers: of all directions with a large contrast it makes the solver take loud ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas, eigvalsh, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from cpcapp.contrast.shrinkage import likelihood_shrinkage
from cpcapp.moments.moments import FloatArray, Spread

LOADINGS = ("auto", "likelihood", "oas", "none", "diagonal")
# These shrink, in units in which each feature has background variance 1.
SHRINKING = ("auto", "likelihood", "oas")

# A background with a sixth of a component's power hides nothing of it. Between four and ten, real
# data gives much the same: benchmarks/results/loading_rules.md.
LARGEST_CONTRAST = 6.0
# A steered filter whose contrast is below the bound keeps at least this share of what the target
# could have more than the background. What is merely louder in the target has less.
KEPT_CONTRAST = 2.0 / 3.0
# Two standard errors are the usual measure of what samples can tell apart.
STANDARD_ERRORS = 2.0
# The paper's rho is "small": this fraction of the mean background variance.
_DIAGONAL_LOADING = 1e-6
# OAS fades with the sample count; exact copies of a feature stay singular however many there are.
_LEAST_SHRINKAGE = 1e-9
# Below this order LAPACK finds the largest eigenvalue as fast as Lanczos.
_LANCZOS_FROM = 100
# Up to this order, at most 8 MB, a copy is kept for the case that LAPACK misses eigenvalues.
_COPIED = 1000


@dataclass(frozen=True)
class Loading:
    """How the background covariance was made safe to divide by.

    The loaded background is ``weight · R_b + diag(diagonal)``.

    Attributes
    ----------
    weight : float
        1 unless the rule shrinks (``"auto"``, ``"likelihood"`` and ``"oas"``), then 1 minus the
        shrinkage.
    diagonal : ndarray of shape (n_features,)
    """

    weight: float
    diagonal: FloatArray


@dataclass(frozen=True)
class LoadingRule:
    """The loaded background, ``Σ = weight · R_b + ridge · diag(units)``."""

    weight: float
    ridge: float
    units: FloatArray

    def loading(self) -> Loading:
        """Return the loading as users see it."""
        return Loading(self.weight, self.ridge * self.units)


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
    if loading not in SHRINKING:
        return np.ones(len(target.variance))
    units = background.variance
    if np.count_nonzero(background.constant):
        # No unit to be had from the background: take the target's. A feature that is constant
        # in both is never used by a filter, and any unit will do.
        fallback = np.where(target.constant, 1.0, target.variance)
        units = np.where(background.constant, fallback, units)
    return units


def shrink_or_load(
    loading: str | float,
    units: FloatArray,
    n_background: int,
    traces: Callable[[], tuple[float, float]],
    spectrum: Callable[[], tuple[FloatArray, FloatArray | None]],
    constant: NDArray[np.bool_],
) -> LoadingRule:
    """Return what the background alone asks for.

    Parameters
    ----------
    loading : str or float
    units : ndarray of shape (n_features,)
    n_background : int
    traces : callable
        Returns the traces of ``R_b`` and of its square, in ``units``.
    spectrum : callable
        Returns the eigenvalues of ``R_b`` in ``units``, of which zeros may be missing, and how
        many each stands for, or None if that is one.
    constant : ndarray of bool of shape (n_features,)
        Which features do not vary in the background.
    """
    if loading in ("auto", "likelihood"):
        n_constant = np.count_nonzero(constant)
        varying = len(constant) - int(n_constant)
        # In units of the background the mean eigenvalue of features that vary is 1.
        values, counts = spectrum()
        ridge = rho = likelihood_shrinkage(values, n_background, varying, counts)
        if n_constant:
            # What none of n samples shows may still be in one of n: the variance of a constant
            # feature is taken to be 1/n of the target's.
            units = np.where(constant, units / (ridge * n_background), units)
        return LoadingRule(1.0 - rho, ridge, units)
    trace, trace_of_square = traces()
    mean_eigenvalue = trace / len(units)
    if loading == "oas":
        rho = oas_shrinkage(trace, trace_of_square, n_background, len(units))
        rho = max(rho, _LEAST_SHRINKAGE)
        return LoadingRule(1.0 - rho, rho * mean_eigenvalue, units)
    fraction = _DIAGONAL_LOADING if loading == "diagonal" else float(loading)
    return LoadingRule(1.0, fraction * mean_eigenvalue, units)


def steering_units(target: Spread, background: Spread) -> FloatArray:
    """Return the mean variance of each feature over the two sets, or 1 where it is 0."""
    if not (np.count_nonzero(target.constant) or np.count_nonzero(background.constant)):
        return (target.variance + background.variance) / 2.0
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


def indistinct_contrast(largest: float, n_target: int, n_background: int) -> float:
    """Return the least contrast that samples cannot tell from the largest.

    It is two standard errors below, on the logarithmic scale of ratios of variances.

    Examples
    --------
    >>> round(indistinct_contrast(5.0, n_target=1000, n_background=1000), 2)
    4.41
    """
    # The logarithm of a variance of n Gaussian samples has a variance of about 2/n.
    error = math.sqrt(2.0 / n_target + 2.0 / n_background)
    return largest * math.exp(-STANDARD_ERRORS * error)


def loses_contrast(contrasts: ArrayLike, largest: ArrayLike) -> NDArray[np.bool_]:
    """Return which filters keep less than two thirds of what the target could have more.

    Parameters
    ----------
    contrasts : array-like of shape (k,)
    largest : array-like of shape (k,)
        The largest contrasts there are.

    Examples
    --------
    >>> loses_contrast([4.0, 3.0, 1.1], largest=[5.0, 5.0, 1.1])
    array([False,  True, False])
    """
    more = np.asarray(largest) - 1.0
    return np.asarray(np.asarray(contrasts) - 1.0 < KEPT_CONTRAST * more)


def largest_eigenvalue(matrix: FloatArray) -> float:
    """Return the largest eigenvalue of a symmetric matrix. Uses up the matrix.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        In Fortran order, valid in its lower triangle.

    Examples
    --------
    >>> largest_eigenvalue(np.asfortranarray(np.diag([3.0, 1.0, 2.0])))
    3.0
    """
    n = len(matrix)
    if n < _LANCZOS_FROM:
        return float(_all_eigenvalues(matrix)[-1])
    found = lanczos_largest(lambda v: blas.dsymv(1.0, matrix, v, lower=1), n, restarts=20)
    return float(largest_eigenpairs(matrix, 1, vectors=False)[0][0]) if found is None else found


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
    spare = matrix.copy(order="F") if n <= _COPIED else None
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
    if count == k and not failed:
        return values[:k], found[:, :k]
    # The bisection of dsyevr can lose a cluster of eigenvalues that differ by rounding, and says
    # nothing: for a target that is its own background, say.
    if spare is None:
        raise np.linalg.LinAlgError(
            f"LAPACK's dsyevr found {count} of {k} eigenvalues and gave {failed}: the largest "
            "eigenvalues differ by rounding only"
        )
    values, found, failed = lapack.dsyevd(spare, compute_v=vectors, lower=1, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError(f"LAPACK's dsyevd gave {failed}")
    return values[n - k :], found[:, n - k :] if vectors else found[:, :0]


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


def spectrum(lower: FloatArray, units: FloatArray) -> FloatArray:
    """Return the eigenvalues of a lower triangle taken in ``units``."""
    scale = 1.0 / np.sqrt(units)
    scaled = lower * scale[:, None]
    scaled *= scale
    if len(scaled) < _LANCZOS_FROM:
        return _all_eigenvalues(scaled)
    return np.asarray(eigvalsh(scaled, lower=True, overwrite_a=True, check_finite=False))


def _all_eigenvalues(matrix: FloatArray) -> FloatArray:
    """Return the eigenvalues of a small lower triangle, ascending. Uses up the matrix.

    Without the checks of SciPy and NumPy, which take as long.
    """
    values, _, failed = lapack.dsyevd(matrix, compute_v=0, lower=1, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError(f"LAPACK's dsyevd gave {failed}")
    return np.asarray(values)


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
