"""The paper's generalized likelihood ratio test: is the target there at all."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cholesky, solve_triangular

from cpcapp.moments.rows import FloatArray, refuse_masked


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
    # Neither the statistic nor the rank depends on the features' units.
    units = np.sqrt(np.where(scatter.diagonal() > 0.0, scatter.diagonal(), 1.0))
    scatter, W = scatter / np.multiply.outer(units, units), W / units
    rank = int(np.linalg.matrix_rank(scatter, hermitian=True))
    if rank < len(scatter):
        raise ValueError(
            f"the scatter of {n_samples} samples must have full rank, but its rank is "
            f"{rank} of {len(scatter)} features; use more samples or fewer features"
        )
    lower = cholesky(scatter, lower=True)
    whitened = solve_triangular(lower, W.T, lower=True)
    diagonal = np.abs(np.diagonal(np.linalg.qr(whitened).R))
    if not diagonal.min() > 1e-13 * diagonal.max():
        raise ValueError("atoms must be linearly independent")
    return 2.0 * float(np.log(diagonal).sum())
