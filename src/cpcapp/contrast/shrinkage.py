"""How far to shrink a covariance: by the likelihood of samples that were left out."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from cpcapp.moments.moments import FloatArray

_EPS = float(np.finfo(np.float64).eps)
# Exact copies of a feature stay singular however many samples there are. A millionth is far above
# rounding, and below what the likelihood asks for unless there are millions of samples.
LEAST_SHRINKAGE = 1e-6
# Of log ρ, to find the valley in which the root of the derivative is then sought.
_GRID = np.linspace(np.log(LEAST_SHRINKAGE), 0.0, 25)
_GRID_RHO = np.exp(_GRID)
_ZOOMS = 2
_ZOOM = np.linspace(0.0, 1.0, 17)


def likelihood_shrinkage(
    eigenvalues: ArrayLike,
    n_samples: int,
    n_features: int,
    weights: ArrayLike | None = None,
) -> float:
    """Return the shrinkage under which left-out samples are most likely, from moments alone.

    Each sample in turn is left out, and its Gaussian likelihood is taken under the shrunk
    covariance of the others. Only a sample's squared Mahalanobis length enters. With the mean of
    these lengths in place of each, which is a trace, the eigenvalues are all that is needed.

    Parameters
    ----------
    eigenvalues : array-like
        Of the sample covariance ``S`` (``ddof=0``). Zeros may be left out.
    n_samples : int
    n_features : int
    weights : array-like, optional
        How many eigenvalues each stands for, where the spectrum is an estimate. All that are not
        zero are then to be counted.

    Returns
    -------
    float
        ρ in (0, 1]; the shrunk covariance is ``(1 - ρ) S + ρ m I`` with ``m`` the mean eigenvalue.

    Notes
    -----
    Shrinkage for the least squared error (OAS, Ledoit and Wolf) is ruled by the large eigenvalues.
    A ratio of powers divides by the small ones, and those rule the likelihood.

    If ``S`` has a lower rank than samples and features allow, features depend on each other, or
    samples are copies. The likelihood is then that within the span of the samples.

    References
    ----------
    J. P. Hoffbeck, D. A. Landgrebe, "Covariance matrix estimation and classification with limited
    training data", IEEE Transactions on Pattern Analysis and Machine Intelligence 18(7), 1996.
    J. Theiler, "The incredible shrinking covariance estimator", Proceedings of SPIE 8391, 2012
    (the mean Mahalanobis approximation).

    Examples
    --------
    One direction of 20 has a hundredth of the variance of the others:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> for n in (50, 500):
    ...     rows = rng.normal(size=(n, 20)) * ([1.0] * 19 + [0.1])
    ...     spectrum = np.linalg.eigvalsh(np.cov(rows.T, ddof=0))
    ...     print(round(likelihood_shrinkage(spectrum, n, 20), 4))
    0.6274
    0.001
    """
    values = np.asarray(eigenvalues, dtype=np.float64)
    counts = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=np.float64)
    kept = values > 10.0 * n_features * _EPS * float(values.max(initial=0.0))
    n_kept = np.count_nonzero(kept)
    if n_samples < 3 or not n_kept:
        return 1.0
    if n_kept < len(values):
        values, counts = values[kept], counts[kept]
    full = min(n_features, n_samples - 1)
    dependent = weights is None and len(values) != full
    values = values * (n_features / float(values @ counts))
    left_out = _LeftOut(values, counts, 0 if dependent else n_features - full, n_samples)
    best = int(left_out.loss(_GRID_RHO).argmin())
    low, high = float(_GRID[max(best - 1, 0)]), float(_GRID[min(best + 1, len(_GRID) - 1)])
    # Narrowed by 16 at a time, which takes fewer steps than a root finder, and the rest is linear.
    for _ in range(_ZOOMS):
        grid = low + (high - low) * _ZOOM
        slopes = left_out.slope(np.exp(grid))
        rising = int((slopes > 0.0).argmax())
        if rising == 0:  # the valley ends at the edge
            return float(_GRID_RHO[best])
        low, high = float(grid[rising - 1]), float(grid[rising])
    before, after = float(slopes[rising - 1]), float(slopes[rising])
    return math.exp(low - before * (high - low) / (after - before))


class _LeftOut:
    """Twice the negative mean log-likelihood of a left-out sample, as a function of ρ.

    In units of the mean eigenvalue; each of the values counts ``counts`` times. Without sample x,
    centred on the mean of all n samples, the covariance is ``n/(n-1) S - n/(n-1)² xxᵀ``. From the
    mean of the others x is ``n/(n-1) x`` away.
    With ``G = (1-ρ) n/(n-1) S + ρI``, ``b = (1-ρ) n/(n-1)²`` and ``r = xᵀG⁻¹x``, the determinant
    lemma and the formula of Sherman and Morrison give

        log|G| + log(1 - br) + (n/(n-1))² r / (1 - br).

    The mean of r over the samples is ``tr(G⁻¹S)``.
    """

    # Products are by `dot`: on matrices this small ``@`` takes three times as long.

    def __init__(self, values: FloatArray, counts: FloatArray, zeros: int, n: int) -> None:
        self._counts, self._zeros = counts, zeros
        self._wide = n / (n - 1.0)
        self._removed = n / (n - 1.0) ** 2  # b at ρ = 0
        self._others = self._wide * values  # eigenvalues of n/(n-1) S
        self._own = values * counts
        self._change = counts - self._wide * self._own  # of those of G with ρ
        self._own_change = self._own * (1.0 - self._others)
        self._own_and_change = np.array((self._own, self._change)).T

    def loss(self, rho: FloatArray) -> FloatArray:
        """Return the function at each ρ."""
        weight = 1.0 - rho
        g = self._shrunk(rho, weight)
        r = (1.0 / g).dot(self._own)
        left = self._left(weight, r)
        loss = np.log(g).dot(self._counts) + np.log(left) + self._wide**2 * r / left
        return np.asarray(loss + self._zeros * np.log(rho) if self._zeros else loss)

    def slope(self, rho: FloatArray) -> FloatArray:
        """Return the derivative at each ρ."""
        weight = 1.0 - rho
        inverse = 1.0 / self._shrunk(rho, weight)
        r, slope = inverse.dot(self._own_and_change).T
        inverse *= inverse
        dr = inverse.dot(self._own_change)  # of -r
        left = self._left(weight, r)
        dleft = (r + weight * dr) * self._removed
        slope = slope + (dleft - self._wide**2 * (dr + r * dleft / left)) / left
        return np.asarray(slope + self._zeros / rho if self._zeros else slope)

    def _shrunk(self, rho: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the eigenvalues of G, one row for each ρ."""
        g = weight[:, None] * self._others
        g += rho[:, None]
        return g

    def _left(self, weight: FloatArray, r: FloatArray) -> FloatArray:
        """Return ``1 - br``, which is 0 at ρ = 0 and as many features as samples."""
        return np.maximum(1.0 - weight * self._removed * r, _EPS)
