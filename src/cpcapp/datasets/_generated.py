"""Data sets that are drawn from a distribution: the paper's, and one shaped like real data."""

from __future__ import annotations

import numpy as np

from cpcapp.datasets._contrast_data import ContrastData
from cpcapp.moments import Moments
from cpcapp.moments.rows import FloatArray


def synthetic(
    n_target: int = 400,
    n_background: int = 400,
    *,
    noise_variance: float = 10.0,
    random_state: int | np.random.Generator | None = None,
) -> ContrastData:
    """Draw the paper's synthetic example: four classes under ten noisy features.

    Of 30 features the first ten have mean 0 or 6 and the next ten mean 0 or 3, which makes the
    four classes; the last ten are noise of variance 10. The background has variances 3, 1 and
    10 and no classes.

    Parameters
    ----------
    n_target, n_background : int, default=400
    noise_variance : float, default=10.0
        Variance of the last ten features. At the paper's 10 the two directions that make the
        classes also have the largest variance (91 and 23.5, by the covariance in its Appendix
        A), so PCA finds them as well; from about 20 on PCA fails, as the paper's figure shows.
    random_state : int, Generator or None

    Returns
    -------
    ContrastData

    Examples
    --------
    >>> synthetic(random_state=0).target.shape
    (400, 30)
    """
    if not noise_variance > 0.0:
        raise ValueError(f"noise_variance={noise_variance} must be above 0")
    rng = np.random.default_rng(random_state)
    labels = rng.integers(4, size=n_target)
    target = rng.standard_normal((n_target, 30)) * np.sqrt(
        np.repeat([1.0, 1.0, noise_variance], 10)
    )
    target[:, :10] += np.where(labels >= 2, 6.0, 0.0)[:, None]
    target[:, 10:20] += np.where(labels % 2 == 1, 3.0, 0.0)[:, None]
    deviations = np.sqrt(np.repeat([3.0, 1.0, noise_variance], 10))
    background = rng.standard_normal((n_background, 30)) * deviations
    names = [f"h{part}_{i}" for part in (1, 2, 3) for i in range(1, 11)]
    return ContrastData(target, background, labels, names, source="drawn as in the paper")


def needle(
    n_features: int = 10,
    *,
    gamma: float = 100.0,
    beta: float = 100.0,
    epsilon: float = 1.0,
    rho: float = 1e-3,
    n_samples: int = 1000,
) -> tuple[Moments, Moments, FloatArray, FloatArray]:
    """Return the population moments of the paper's Example 1, a needle in a haystack.

    ``R_b = γ aaᵀ + ρI`` and ``R_f = β aaᵀ + ε ccᵀ``, with ``a`` and ``c`` orthonormal: what is
    common to both is loud, what is special to the target is faint.

    Parameters
    ----------
    n_features : int, default=10
    gamma, beta, epsilon, rho : float
        With ``ε ≪ β``, ``ρ ≪ γ`` and ``βρ/γ < ε``.
    n_samples : int, default=1000
        Count that the moments claim.

    Returns
    -------
    target, background : Moments
    a, c : ndarray of shape (n_features,)

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import solve_contrast
    >>> target, background, a, c = needle()
    >>> contrast = solve_contrast(target, background, 1, loading="none", scaling="unit")
    >>> bool(abs(contrast.filters[:, 0] @ c) > 0.999)
    True
    """
    if n_features < 2:
        raise ValueError(f"n_features={n_features} must be at least 2")
    a = np.ones(n_features) / np.sqrt(n_features)
    c = np.zeros(n_features)
    c[:2] = np.array([1.0, -1.0]) / np.sqrt(2.0)
    r_b = gamma * np.outer(a, a) + rho * np.eye(n_features)
    r_f = beta * np.outer(a, a) + epsilon * np.outer(c, c)
    target = Moments.from_covariance(r_f, n_samples)
    return target, Moments.from_covariance(r_b, n_samples), a, c


def mice_like(
    n_target: int = 270,
    n_background: int = 135,
    n_features: int = 77,
    *,
    random_state: int | np.random.Generator | None = None,
) -> ContrastData:
    """Draw data shaped like the mice protein experiment: few samples, strong shared variation.

    A handful of factors (age, batch, handling, ...) move many proteins together in both sets
    and carry most of the variance; in the target a faint pattern over some of the proteins
    tells two groups apart. The background has hardly more samples than there are proteins, so
    its covariance is badly conditioned.

    Parameters
    ----------
    n_target, n_background, n_features : int
    random_state : int, Generator or None

    Returns
    -------
    ContrastData

    Examples
    --------
    >>> data = mice_like(random_state=0)
    >>> data.target.shape, data.background.shape
    ((270, 77), (135, 77))
    """
    rng = np.random.default_rng(random_state)
    # Factor strengths that fall off like the spectrum of correlated measurements.
    strengths = 3.0 / np.arange(1, 9)
    factors = rng.standard_normal((8, n_features)) * strengths[:, None]
    deviations = rng.uniform(0.2, 0.6, n_features)

    def shared(n: int) -> FloatArray:
        return (
            rng.standard_normal((n, 8)) @ factors
            + rng.standard_normal((n, n_features)) * deviations
        )

    pattern = np.where(rng.random(n_features) < 0.3, rng.standard_normal(n_features), 0.0)
    pattern *= 2.5 / np.linalg.norm(pattern)
    labels = rng.permutation(np.arange(n_target) % 2)
    target = shared(n_target) + np.where(labels == 1, 0.5, -0.5)[:, None] * pattern
    names = [f"protein_{i}" for i in range(1, n_features + 1)]
    return ContrastData(target, shared(n_background), labels, names, source="drawn")
