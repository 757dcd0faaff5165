"""Is it there, how strong is it, and is it more than noise."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.stats import chi2, gamma

from cpcapp.contrast.dense import cholesky, rank_of
from cpcapp.contrast.solve import eigenvalues_above
from cpcapp.inference.permutation import mean_excess_kurtosis, permutation_test
from cpcapp.moments.moments import FloatArray, Moments
from cpcapp.moments.rows import refuse_masked

# That of a t distribution of 10 degrees of freedom. Set by hand; with 5 degrees most of what the
# law counts is false (benchmarks/results/counting.md).
_MOST_EXCESS_KURTOSIS = 1.0

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
    lower = cholesky(np.asfortranarray(scatter.copy()))
    if lower is None:
        raise ValueError(
            f"the scatter of {n_samples} samples must have full rank, but its rank is "
            f"{rank_of(scatter)} of {len(scatter)} features; use more samples or fewer features"
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
    groups: Any = None,
    background_groups: Any = None,
    false_alarm_rate: float = 0.05,
    n_permutations: int | None = None,
    loading: str | float = "auto",
    random_state: int | np.random.Generator | None = 0,
) -> float:
    """Return the largest eigenvalue that shuffling target and background gives by chance.

    Makes no assumption about the distribution and works with any loading and any number of
    features, but needs the data.

    Parameters
    ----------
    X, background, groups, background_groups, false_alarm_rate, n_permutations, loading, \
random_state
        As in `permutation_test`.

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
    found = permutation_test(
        X,
        background,
        groups=groups,
        background_groups=background_groups,
        false_alarm_rate=false_alarm_rate,
        n_permutations=n_permutations,
        loading=loading,
        random_state=random_state,
        stop_early=False,
    )
    return found.threshold


def count_components_by_permutation(X: Any, background: Any, **options: Any) -> int:
    """Return how many components stand above what shuffling target and background gives.

    Parameters
    ----------
    X, background
        As in `permutation_test`.
    **options
        Also of `permutation_test`.

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
    return permutation_test(X, background, **options).n_components


class HeavyTailsWarning(UserWarning):
    """Components were counted by a law for Gaussian samples, and the samples are far from it."""


def warn_of_heavy_tails(rows: Any, name: str, *, stacklevel: int = 2) -> None:
    """Warn if rows have tails for which `count_components` raises false alarms.

    Examples
    --------
    >>> import numpy as np
    >>> warn_of_heavy_tails(np.random.default_rng(0).normal(size=(500, 3)), "X")
    """
    excess = mean_excess_kurtosis(rows)
    if excess > _MOST_EXCESS_KURTOSIS:
        warnings.warn(
            f"{name} has heavy tails (mean excess kurtosis {excess:.1f}, 0 for a Gaussian), but "
            "only moments of the other set are at hand, so components are counted by a law for "
            "Gaussian samples, which then finds too many; use fit with the rows of both sets",
            HeavyTailsWarning,
            stacklevel=stacklevel + 1,
        )


def _ddof_ratio(n_target: int, n_background: int) -> float:
    return (n_target - 1) / n_target * n_background / (n_background - 1)


def _check_f_matrix(n_target: int, n_background: int, n_features: int) -> None:
    if n_target < 2 or n_background - 1 <= n_features:
        raise ValueError(
            f"the law of F-matrices needs more than {n_features + 1} background samples for "
            f"{n_features} features and at least 2 target samples, not n_background="
            f"{n_background} and n_target={n_target}; use n_components='permutation'"
        )
