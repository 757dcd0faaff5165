"""Which α of cPCA to take, from the moments of the two sets."""

from __future__ import annotations

import numpy as np

from cpcapp.contrast.loading import contrast_bound
from cpcapp.contrast.solve import difference_covariances
from cpcapp.moments.moments import FloatArray, Moments

# Of log2 α: within half a percent.
_STEPS = 8
_MOST_DOUBLINGS = 60


def bound_alpha(target: Moments) -> float:
    """Return the α at which what is found has a contrast of at least 6, and more than by chance.

    ``(R_f - αR_b) v = λv`` with a positive λ means that the target has more than α times the power
    of the background along v. See :func:`cpcapp.contrast.loading.contrast_bound`.

    Examples
    --------
    >>> bound_alpha(Moments.from_covariance(np.eye(4), 500))
    6.0
    """
    assert target.n_features is not None
    return contrast_bound(target.n_samples, target.n_features)


def unique_alpha(target: Moments, background: Moments) -> float:
    """Return the α of unique component analysis.

    It maximises the power of the target over directions with at most the power of the background
    that a typical direction has, the median eigenvalue of ``R_b`` that is not 0. The α is the
    multiplier of that constraint: it minimises the convex ``λ_max(R_f - αR_b) + α·limit``.

    References
    ----------
    "Unique component analysis" chooses the multiplier of contrastive PCA by duality; its limit is
    1 for data that were scaled before.

    Examples
    --------
    >>> f, b = (Moments.from_covariance(np.diag(d), 100) for d in ([9.0, 4, 1], [8.0, 1, 1]))
    >>> round(unique_alpha(f, b), 1)  # from here on, 9 - 8α is less than 4 - α
    0.7
    """
    r_f, r_b, _ = difference_covariances(target, background)
    spectrum = np.linalg.eigvalsh(r_b)
    limit = float(np.median(spectrum[spectrum > 1e-10 * spectrum[-1]]))

    def exceeds(alpha: float) -> bool:
        # The derivative of λ_max(R_f - αR_b) is -vᵀR_bv.
        v = _first(r_f - alpha * r_b)
        return float(v @ r_b @ v) > limit * (1.0 + 1e-9)

    if not exceeds(0.0):
        return 0.0
    high = float(np.trace(r_f) / np.trace(r_b)) / 16.0
    for _ in range(_MOST_DOUBLINGS):
        if not exceeds(high):
            break
        high *= 2.0
    low, high = np.log2(high) - 1.0, float(np.log2(high))
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if exceeds(2.0**middle) else (low, middle)
    return float(2.0**high)


def _first(matrix: FloatArray) -> FloatArray:
    """Return the eigenvector of the largest eigenvalue."""
    return np.asarray(np.linalg.eigh(matrix)[1][:, -1])
