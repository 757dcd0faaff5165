"""The law of F-matrices, for where only moments are at hand."""

from __future__ import annotations

import numpy as np
from scipy.stats import gamma

from cpcapp.contrast.solve import eigenvalues_above
from cpcapp.moments.moments import Moments


def noise_threshold(
    n_target: int, n_background: int, n_features: int, *, false_alarm_rate: float = 0.05
) -> float:
    """Return the eigenvalue that noise alone exceeds with the given probability.

    This is the upper edge of Wachter's law, corrected for the fluctuation of the largest
    eigenvalue about it, which follows the Tracy–Widom law.

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


def _check_f_matrix(n_target: int, n_background: int, n_features: int) -> None:
    if n_target < 2 or n_background - 1 <= n_features:
        raise ValueError(
            f"the law of F-matrices needs more than {n_features + 1} background samples for "
            f"{n_features} features and at least 2 target samples, not n_background="
            f"{n_background} and n_target={n_target}; use n_components='permutation'"
        )
