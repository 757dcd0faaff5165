"""Is it there, how strong is it, and is it more than noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.stats import chi2, gamma

from cpcapp._rows import refuse_masked
from cpcapp.contrast import (
    InsufficientRankError,
    _cholesky,
    _rank,
    eigenvalues_above,
    solve_contrast,
)
from cpcapp.moments import FloatArray, Moments

# -- the generalized likelihood ratio test -------------------------------------------------


def log_glrt(X: ArrayLike, atoms: ArrayLike, n_target: int, *, centre: bool = True) -> float:
    """Return the logarithm of the paper's statistic ``GLRT(W)`` for a data matrix.

    ``GLRT(W) = |Wᵀ(Z_bZ_bᵀ)⁻¹W| / |Wᵀ(ZZᵀ)⁻¹W|`` compares the hypothesis that the first
    ``n_target`` samples have a mean in the span of ``W`` with the one that all samples are
    background. The ratio of the maximized likelihoods is its power ``N/2``.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        ``Zᵀ``: the samples in question, then background samples.
    atoms : array-like of shape (n_components, n_features)
        ``Wᵀ``, for example ``CPCAPlusPlus.atoms_``.
    n_target : int
        How many samples at the start are in question. 0 gives a statistic of 0.
    centre : bool, default=True
        Subtract from each of the two parts its own mean, as the paper does.

    Returns
    -------
    float
        At least 0; computed without a determinant, so that it does not overflow.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import log_glrt
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(size=(200, 5))
    >>> W = np.eye(5)[:1]
    >>> signal = noise[:50] + rng.choice([-3, 3], size=(50, 1)) * W
    >>> log_glrt(signal, W, 0), round(log_glrt(np.vstack([signal, noise]), W, 50), 2)
    (0.0, 1.31)
    """
    Z = _finite_matrix(X, "X")
    W = _finite_matrix(atoms, "atoms")
    n, m = Z.shape
    if W.shape[1] != m:
        raise ValueError(f"atoms have {W.shape[1]} features, but X has {m}")
    if not 0 <= n_target < n:
        raise ValueError(f"n_target={n_target} must be between 0 and {n - 1} (samples of X less 1)")
    z_f, z_b = Z[:n_target], Z[n_target:]
    if centre:
        z_b = z_b - z_b.mean(axis=0)
        z_f = z_f - z_f.mean(axis=0) if n_target else z_f
    scatter_b = z_b.T @ z_b
    return _log_quadratic(W, scatter_b, len(z_b)) - _log_quadratic(W, scatter_b + z_f.T @ z_f, n)


def glrt_detects(X: ArrayLike, atoms: ArrayLike, n_target: int, *, threshold: float) -> bool:
    """Return whether ``GLRT(W) ≥ threshold``, compared in logarithms.

    Parameters
    ----------
    X, atoms, n_target
        As in `log_glrt`.
    threshold : float
        The paper's γ, above 0; 1 always detects.

    Examples
    --------
    >>> import numpy as np
    >>> noise = np.random.default_rng(0).normal(size=(200, 5))
    >>> glrt_detects(noise, np.eye(5)[:1], 50, threshold=2.0)
    False
    """
    if not threshold > 0.0:
        raise ValueError(f"threshold={threshold} must be above 0")
    return bool(log_glrt(X, atoms, n_target) >= np.log(threshold))


def _finite_matrix(values: ArrayLike, name: str) -> FloatArray:
    matrix = np.asarray(refuse_masked(values, name), dtype=np.float64)
    if matrix.ndim != 2:
        raise ValueError(f"{name} has shape {matrix.shape}; it must have two dimensions")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} contains NaN or infinity")
    return matrix


def _log_quadratic(W: FloatArray, scatter: FloatArray, n_samples: int) -> float:
    """Return ``log |W S⁻¹ Wᵀ|``, W with atoms in rows."""
    lower = _cholesky(np.asfortranarray(scatter.copy()))
    if lower is None:
        raise ValueError(
            f"the scatter of {n_samples} samples must have full rank, but its rank is "
            f"{_rank(scatter)} of {len(scatter)} features; use more samples or fewer features"
        )
    whitened = solve_triangular(lower, W.T, lower=True)
    diagonal = np.abs(np.diagonal(np.linalg.qr(whitened).R))
    if not diagonal.min() > 1e-13 * diagonal.max():
        raise ValueError("atoms must be linearly independent")
    return 2.0 * float(np.log(diagonal).sum())


# -- output power --------------------------------------------------------------------------


def power_p_value(power: ArrayLike, output_covariance: ArrayLike) -> FloatArray:
    """Return how likely Gaussian background is to give an output power as high.

    The power ``‖Fᵀx‖²`` is a sum of squares of correlated Gaussians. It is χ² with K degrees of
    freedom if their covariance is the identity; otherwise a scaled χ² with the right mean and
    variance is used (Satterthwaite).

    Parameters
    ----------
    power : array-like
    output_covariance : array-like of shape (n_components, n_components)
        Covariance of ``Fᵀx`` under the background.

    Returns
    -------
    ndarray of the shape of ``power``

    Examples
    --------
    >>> import numpy as np
    >>> power_p_value([0.0, 5.99], np.eye(2)).round(3)
    array([1.  , 0.05])
    """
    covariance = np.asarray(output_covariance, dtype=np.float64)
    values = np.asarray(power, dtype=np.float64)
    if covariance.size == 0:
        return np.ones_like(values)
    mean, half_variance = covariance.trace(), np.vdot(covariance, covariance)
    scale, freedom = half_variance / mean, mean**2 / half_variance
    return np.asarray(chi2.sf(values / scale, freedom))


# -- how many components are significant ---------------------------------------------------


def wachter_edge(n_target: int, n_background: int, n_features: int) -> float:
    """Return the upper edge of the eigenvalues of ``R_b⁻¹R_f`` when both are one population.

    Parameters
    ----------
    n_target, n_background, n_features : int
        With ``n_background - 1 > n_features``.

    Returns
    -------
    float
        Edge of the limit law of F-matrices (Wachter), for covariances with ``ddof=0``.

    Examples
    --------
    >>> round(wachter_edge(400, 400, 30), 2)
    2.23
    """
    _check_f_matrix(n_target, n_background, n_features)
    a, b = n_features / (n_target - 1), n_features / (n_background - 1)
    edge = ((1.0 + np.sqrt(a + b - a * b)) / (1.0 - b)) ** 2
    return float(edge * _ddof_ratio(n_target, n_background))


def noise_threshold(
    n_target: int, n_background: int, n_features: int, *, false_alarm_rate: float = 0.05
) -> float:
    """Return the eigenvalue that noise alone exceeds with the given probability.

    This is the Wachter edge corrected for the fluctuation of the largest eigenvalue about it,
    which follows the Tracy–Widom law.

    Parameters
    ----------
    n_target, n_background, n_features : int
        With ``n_background - 1 > n_features``.
    false_alarm_rate : float, default=0.05
        Probability that two Gaussian samples of one population have an eigenvalue above the
        threshold.

    Returns
    -------
    float

    References
    ----------
    I. M. Johnstone, "Multivariate analysis and Jacobi ensembles: largest eigenvalue,
    Tracy–Widom limits and rates of convergence", Annals of Statistics 36(6), 2008.
    M. Chiani, "Distribution of the largest eigenvalue for real Wishart and Gaussian random
    matrices and a simple approximation for the Tracy–Widom distribution", Journal of
    Multivariate Analysis 129, 2014.

    Examples
    --------
    >>> round(noise_threshold(400, 400, 30), 2)
    2.31
    """
    _check_f_matrix(n_target, n_background, n_features)
    if not 0.0 < false_alarm_rate < 1.0:
        raise ValueError(f"false_alarm_rate={false_alarm_rate} must be between 0 and 1")
    # Johnstone's (p, m, n): features, degrees of freedom of the background and of the target.
    p, m, n = n_features, n_background - 1, n_target - 1
    total = m + n - 1.0
    small = 2.0 * np.arcsin(np.sqrt((min(p, n) - 0.5) / total))
    large = 2.0 * np.arcsin(np.sqrt((max(p, n) - 0.5) / total))
    centre = 2.0 * np.log(np.tan((small + large) / 2.0))
    spread = 16.0 / (total**2 * np.sin(small + large) ** 2 * np.sin(small) * np.sin(large))
    # Chiani: the Tracy–Widom law (β = 1) is a shifted gamma law to about three digits.
    quantile = gamma.ppf(1.0 - false_alarm_rate, 46.446, scale=0.186054) - 9.84801
    # What follows the law is the logarithm of the largest eigenvalue of S_b⁻¹S_f (scatters).
    ratio_of_scatters = np.exp(centre + np.cbrt(spread) * quantile)
    return float(ratio_of_scatters * n_background / n_target)


def count_components(
    target: Moments, background: Moments, *, false_alarm_rate: float = 0.05
) -> int:
    """Return how many components stand above what sampling noise alone gives.

    Counts the eigenvalues of the contrast, without loading, above `noise_threshold`.

    Parameters
    ----------
    target, background : Moments
    false_alarm_rate : float, default=0.05
        Probability to count anything at all when both are Gaussian samples of one population.

    Returns
    -------
    int

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import Moments
    >>> rng = np.random.default_rng(0)
    >>> X, B = rng.normal(size=(300, 6)), rng.normal(size=(300, 6))
    >>> X[:, 0] *= 3
    >>> count_components(Moments.of(X), Moments.of(B))
    1
    """
    for name, moments in (("target", target), ("background", background)):
        if not isinstance(moments, Moments) or moments.n_features is None:
            raise ValueError(f"{name} must be Moments with samples, not {moments!r}")
    assert target.n_features is not None
    threshold = noise_threshold(
        target.n_samples,
        background.n_samples,
        target.n_features,
        false_alarm_rate=false_alarm_rate,
    )
    return len(eigenvalues_above(target, background, threshold))


def permutation_threshold(
    X: Any,
    background: Any,
    *,
    false_alarm_rate: float = 0.05,
    n_permutations: int = 99,
    loading: str | float = "oas",
    random_state: int | np.random.Generator | None = 0,
) -> float:
    """Return the largest eigenvalue that shuffling target and background gives by chance.

    Makes no assumption about the distribution and works with any loading and any number of
    features, but needs the data and a solution for each permutation.

    Parameters
    ----------
    X, background : array-like or sparse matrix of shape (n, n_features)
        Dense sets are centred, each on its own mean, before they are pooled; sparse ones are
        not, so a difference of their means is part of what is shuffled.
    false_alarm_rate : float, default=0.05
    n_permutations : int, default=99
        At least ``1/false_alarm_rate - 1``.
    loading : {"oas", "none", "diagonal"} or float, default="oas"
        As in `solve_contrast`; not ``"auto"``, whose first eigenvalue need not be the largest
        there is.
    random_state : int, Generator or None, default=0

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, B = rng.normal(size=(60, 100)), rng.normal(size=(60, 100))
    >>> bool(permutation_threshold(X, B, n_permutations=19) > 1)
    True
    """
    if not 0.0 < false_alarm_rate < 1.0:
        raise ValueError(f"false_alarm_rate={false_alarm_rate} must be between 0 and 1")
    needed = int(np.ceil(1.0 / false_alarm_rate - 1e-9)) - 1
    if n_permutations < needed:
        raise ValueError(
            f"n_permutations={n_permutations} must be at least {needed} for "
            f"false_alarm_rate={false_alarm_rate}"
        )
    if loading == "auto":
        raise ValueError("loading='auto' need not give the largest eigenvalue; use loading='oas'")
    rng = np.random.default_rng(random_state)
    X, background = (
        a if sp.issparse(a) else np.asarray(refuse_masked(a, name))
        for a, name in ((X, "X"), (background, "background"))
    )
    pooled = _pool(X, background)
    n_target = X.shape[0]
    largest = np.empty(n_permutations)
    for i in range(n_permutations):
        order = rng.permutation(pooled.shape[0])
        found = solve_contrast(
            pooled[order[:n_target]], pooled[order[n_target:]], 1, loading=loading
        )
        largest[i] = found.eigenvalues[0]
    # With B permutations the observed value is one of B + 1: the rank that keeps the rate exact.
    rank = int(np.floor(false_alarm_rate * (n_permutations + 1) + 1e-9))
    return float(np.sort(largest)[-rank])


def count_components_by_permutation(
    X: Any,
    background: Any,
    *,
    false_alarm_rate: float = 0.05,
    n_permutations: int = 99,
    loading: str | float = "oas",
    random_state: int | np.random.Generator | None = 0,
) -> int:
    """Return how many components stand above what shuffling target and background gives.

    Parameters
    ----------
    X, background, false_alarm_rate, n_permutations, loading, random_state
        As in `permutation_threshold`.

    Returns
    -------
    int

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, B = rng.normal(size=(60, 100)), rng.normal(size=(60, 100))
    >>> count_components_by_permutation(X, B, n_permutations=19)
    0
    """
    threshold = permutation_threshold(
        X,
        background,
        false_alarm_rate=false_alarm_rate,
        n_permutations=n_permutations,
        loading=loading,
        random_state=random_state,
    )
    return count_above(Moments.of(X), Moments.of(background), threshold, loading=loading)


def count_above(
    target: Moments, background: Moments, threshold: float, *, loading: str | float
) -> int:
    """Return how many eigenvalues of the loaded contrast are above a threshold.

    Examples
    --------
    >>> import numpy as np
    >>> f, b = (Moments.from_covariance(np.diag(d), 100) for d in ([9.0, 4.0], [3.0, 4.0]))
    >>> count_above(f, b, 2.0, loading="none")
    1
    """
    most = min(target.n_samples - 1, target.n_features or 0)
    k = min(8, most)
    while True:
        try:
            found = solve_contrast(target, background, k, loading=loading).eigenvalues
        except InsufficientRankError as error:
            if error.rank == 0:
                return 0
            k = most = error.rank
            continue
        above = int((found > threshold).sum())
        if above < k or k == most:
            return above
        k = min(4 * k, most)


def _pool(X: Any, background: Any) -> Any:
    if sp.issparse(X) or sp.issparse(background):
        return sp.vstack([sp.csr_array(X), sp.csr_array(background)], format="csr")
    parts = [np.asarray(part, dtype=np.float64) for part in (X, background)]
    return np.concatenate([part - part.mean(axis=0) for part in parts])


def _ddof_ratio(n_target: int, n_background: int) -> float:
    return (n_target - 1) / n_target * n_background / (n_background - 1)


def _check_f_matrix(n_target: int, n_background: int, n_features: int) -> None:
    if n_target < 2 or n_background - 1 <= n_features:
        raise ValueError(
            f"the law of F-matrices needs more than {n_features + 1} background samples for "
            f"{n_features} features and at least 2 target samples, not n_background="
            f"{n_background} and n_target={n_target}; use n_components='permutation'"
        )
