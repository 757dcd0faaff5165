"""What a contrast is once it is solved, and what is done with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp.contrast.loading import Loading
from cpcapp.moments.moments import FloatArray

__all__ = ["Contrast", "InsufficientRankError", "SingularBackgroundError", "rank_features"]

# Rows that are centred at once: a workspace that stays in the cache.
_CHUNK = 1024


class SingularBackgroundError(ValueError):
    """The background covariance can't be divided by as it is; ``rank`` says how far it is off."""

    def __init__(self, rank: int, n_features: int, n_background: int) -> None:
        self.rank = rank
        super().__init__(
            f"loading='none' needs a background covariance of full rank, but its rank is {rank} "
            f"of {n_features} features (from {n_background} samples); use loading='auto', or drop "
            "constant and duplicate features"
        )


class InsufficientRankError(ValueError):
    """More components were asked for than the target covariance has; ``rank`` is what it has."""

    def __init__(self, rank: int, asked: str) -> None:
        self.rank = rank
        limit = f"must be at most {rank} (the rank of the target covariance)"
        super().__init__(f"{asked} {limit if rank else 'but the target does not vary at all'}")


@dataclass(frozen=True)
class Contrast:
    """Filters and atoms, and what they were found with: see `solve_contrast`.

    Attributes
    ----------
    filters : ndarray of shape (n_features, k)
        ``F``, in columns.
    atoms : ndarray of shape (n_features, k)
        ``W = (loaded R_b) F`` up to the scaling of columns, with ``FᵀW = I``.
    eigenvalues : ndarray of shape (k,)
        Variance of each output in the target over its variance in the loaded background,
        descending. Without a background the variances.
    contrast : ndarray of shape (k,)
        Variance of each output in the target over its variance in the background, without
        loading. Infinite where the background does not vary, NaN without a background.
    loading : Loading or None
        None without a background.
    bound : float or None
        With ``loading="auto"`` the largest eigenvalue that was allowed.
    solver : {"dense", "iterative", "dual", "matrix-free"}
        The solver that gave the result.
    target_variance : ndarray of shape (n_features,)
        Of each feature. Filters times its root are weights that do not depend on units.
    explained_variance : ndarray of shape (k,)
        How much of the sum of ``target_variance`` each component explains, as a predictor of the
        target's features.
    mean : ndarray of shape (n_features,)
        Of the target.
    background_mean : ndarray of shape (n_features,) or None

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import solve_contrast
    >>> rng = np.random.default_rng(0)
    >>> B, X = rng.normal(size=(2, 500, 4))
    >>> X[:, 2] *= 3.0
    >>> found = solve_contrast(X, B, k=1)
    >>> bool(np.allclose(found.inverse_transform(found.transform(X)), found.denoise(X)))
    True
    """

    filters: FloatArray
    atoms: FloatArray
    eigenvalues: FloatArray
    contrast: FloatArray
    loading: Loading | None
    bound: float | None
    solver: str
    target_variance: FloatArray
    explained_variance: FloatArray
    mean: FloatArray
    background_mean: FloatArray | None

    def transform(self, X: Any) -> NDArray[Any]:
        """Return the outputs of the filters, ``Fᵀ(x - mean)``.

        Parameters
        ----------
        X : array, memory map or sparse matrix of shape (n_samples, n_features)
            Dense rows are read in chunks; sparse ones stay sparse. NaN counts as the mean.

        Returns
        -------
        ndarray of shape (n_samples, k)
            float32 for float32 rows, else float64.
        """
        return self._outputs(X, self.mean)

    def inverse_transform(self, Y: Any) -> NDArray[Any]:
        """Return the samples that the atoms make of outputs, ``mean + W y``.

        Parameters
        ----------
        Y : array-like of shape (n_samples, k)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        outputs = np.asarray(Y)
        dtype = np.float32 if outputs.dtype == np.float32 else np.float64
        return np.asarray(outputs @ self.atoms.T + self.mean, dtype=dtype)

    def denoise(self, X: Any) -> NDArray[Any]:
        """Keep of each sample what its components explain, ``mean + W Fᵀ(x - mean)``.

        Parameters
        ----------
        X : array, memory map or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        return self.inverse_transform(self.transform(X))

    def power(self, X: Any) -> NDArray[Any]:
        """Return how far samples lie from the background, ``‖Fᵀ(x - background_mean)‖²``.

        Without a background, from the target's mean.

        Parameters
        ----------
        X : array, memory map or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        centre = self.mean if self.background_mean is None else self.background_mean
        outputs = self._outputs(X, centre)
        return np.asarray(np.einsum("ij,ij->i", outputs, outputs))

    def first(self, k: int) -> Contrast:
        """Return the contrast of the first components.

        Parameters
        ----------
        k : int

        Returns
        -------
        Contrast
        """
        return replace(
            self,
            filters=self.filters[:, :k],
            atoms=self.atoms[:, :k],
            eigenvalues=self.eigenvalues[:k],
            contrast=self.contrast[:k],
            explained_variance=self.explained_variance[:k],
        )

    def _outputs(self, X: Any, centre: FloatArray) -> NDArray[Any]:
        """Return ``(X - centre) F``, centred before it is multiplied to keep small deviations."""
        if sp.issparse(X):
            outputs = np.asarray(X @ self.filters) - centre @ self.filters
        else:
            X = X if hasattr(X, "dtype") and hasattr(X, "shape") else np.asarray(X)
            outputs = np.empty((X.shape[0], self.filters.shape[1]))
            work = np.empty((min(len(X), _CHUNK), X.shape[1]))
            for start in range(0, len(X), _CHUNK):
                block = X[start : start + _CHUNK]
                centred = np.subtract(block, centre, out=work[: len(block)])
                if np.isnan(np.dot(centred.ravel(), centred.ravel())):
                    centred[np.isnan(centred)] = 0.0  # a missing value, as if it were the mean
                np.matmul(centred, self.filters, out=outputs[start : start + len(block)])
        return outputs.astype(np.float32) if X.dtype == np.float32 else outputs


def rank_features(weights: Any, names: Sequence[str], count: int) -> list[list[tuple[str, float]]]:
    """Return for each component the features of largest weight, with their weights.

    >>> import numpy as np
    >>> rank_features(np.array([[0.1, -2.0, 0.5]]), ["a", "b", "c"], 2)
    [[('b', -2.0), ('c', 0.5)]]
    """
    orders = (np.argsort(-np.abs(row), kind="stable")[:count] for row in weights)
    return [
        [(str(names[i]), float(row[i])) for i in order]
        for row, order in zip(weights, orders, strict=True)
    ]
