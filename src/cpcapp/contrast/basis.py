"""Rows less their mean, as something to multiply with, or as coordinates where they are few."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from cpcapp.moments.moments import FloatArray, Moments, centre_full_columns

# Of the largest eigenvalue of all inner products: below it a direction of the rows is rounding.
_LEAST_SHARE = 1e-13


class CentredRows:
    """Rows of one set in given units, times the roots of their weights: ``AᵀA/total`` is ``S``.

    Sparse rows stay sparse, ``A = diag(root) (X - 1·offsetᵀ)``; dense ones are centred.

    Parameters
    ----------
    moments : Moments
        That keep rows.
    scale : ndarray of shape (n_features,)
        What each feature is multiplied with.
    """

    def __init__(self, moments: Moments, scale: FloatArray) -> None:
        assert moments.mean is not None
        self.total, self.varies = moments.total_weight, scale > 0.0
        self.variance = moments.variance() * scale**2
        self.offset: FloatArray | None = None
        self.root: FloatArray | None = None
        stored = sparse_rows(moments)
        if stored is None:
            self.rows: Any = moments.centred_rows() * scale
            return
        rows, weights = stored
        shifted, shift = centre_full_columns(rows)
        self.rows = sp.csr_array(shifted.multiply(scale))
        self.offset = (moments.mean - shift) * scale
        self.root = None if weights is None else np.sqrt(weights)[:, None]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and features."""
        return int(self.rows.shape[0]), int(self.rows.shape[1])

    def outputs(self, vectors: FloatArray) -> FloatArray:
        """Return ``A v`` of vectors in columns."""
        product = np.asarray(self.rows @ vectors)
        if self.offset is not None:
            product -= self.offset @ vectors
        return product if self.root is None else self.root * product

    def combine(self, outputs: FloatArray) -> FloatArray:
        """Return ``Aᵀ y``."""
        y = outputs if self.root is None else self.root * outputs
        product = np.asarray(self.rows.T @ y)
        return (
            product if self.offset is None else product - np.multiply.outer(self.offset, y.sum(0))
        )

    def covariance_times(self, vectors: FloatArray) -> FloatArray:
        """Return ``S v``."""
        return self.combine(self.outputs(vectors)) / self.total

    def inner(self, other: CentredRows) -> FloatArray:
        """Return all inner products with the rows of another set."""
        product = self.rows @ other.rows.T
        inner: FloatArray = product.toarray() if sp.issparse(product) else np.asarray(product)
        # (X - 1m'ᵀ)(Y - 1l'ᵀ)ᵀ = XYᵀ - (Xl')1ᵀ - 1(Ym')ᵀ + m'ᵀl'
        if other.offset is not None:
            inner -= (self.rows @ other.offset)[:, None]
        if self.offset is not None:
            inner -= other.rows @ self.offset
        if self.offset is not None and other.offset is not None:
            inner += self.offset @ other.offset
        if self.root is not None:
            inner *= self.root
        return inner if other.root is None else inner * other.root.T

    def covariance_of(self, features: Any) -> FloatArray:
        """Return the covariance of a few features."""
        part = self.rows[:, features]
        part = part.toarray() if sp.issparse(part) else part
        if self.offset is not None:
            part -= self.offset[features]
        part = part if self.root is None else part * self.root
        return np.asarray(part.T @ part / self.total)

    def count_products(self) -> float:
        """Return how many products of two stored values the covariance of sparse rows takes."""
        return float((np.diff(self.rows.indptr).astype(np.float64) ** 2).sum())

    def trace_of_square(self, n_features_at_once: int = 256) -> float:
        """Return ``tr S²`` of sparse rows, from strips of the covariance."""
        root = np.ones((self.shape[0], 1)) if self.root is None else self.root
        offset = np.zeros(self.rows.shape[1]) if self.offset is None else self.offset
        rows = sp.csr_array(self.rows.multiply(root))
        by_feature, sums, total = rows.T.tocsr(), rows.T @ root[:, 0], 0.0
        for start in range(0, len(offset), n_features_at_once):
            own = slice(start, start + n_features_at_once)
            # (X - r oᵀ)ᵀ(X - r oᵀ) = XᵀX - (Xᵀr)oᵀ - o(Xᵀr - ‖r‖² o)ᵀ
            strip = (by_feature[own] @ rows).toarray()
            strip -= np.multiply.outer(sums[own], offset)
            strip -= np.multiply.outer(offset[own], sums - (root**2).sum() * offset)
            total += float(np.vdot(strip, strip))
        return total / self.total**2


class SampleBasis:
    """Both covariances in an orthonormal basis of the span of all rows.

    With ``A`` the rows of both sets in their units and ``AAᵀ = U diag(s) Uᵀ``, the basis is
    ``AᵀUs^-½``, and the rows have the coordinates ``U s^½``. A filter has no part outside of the
    span: the background's loading is the identity there, and the target has no variance. The basis
    itself is never formed.
    """

    def __init__(self, sets: list[CentredRows]) -> None:
        self._rows = sets
        gram = np.block([[a.inner(b) for b in self._rows] for a in self._rows])
        s, U = np.linalg.eigh(gram)
        kept = s > _LEAST_SHARE * s[-1]
        self._weights = U[:, kept] / np.sqrt(s[kept])
        coordinates = U[:, kept] * np.sqrt(s[kept])
        self._cuts = np.cumsum([0, *(rows.shape[0] for rows in sets)])
        self.covariances = [
            np.asfortranarray(part.T @ part / rows.total)
            for part, rows in zip(self._split(coordinates), self._rows, strict=True)
        ]

    def lift(self, vectors: FloatArray) -> FloatArray:
        """Return vectors given by their coordinates, in the units of the rows."""
        parts = self._split(self._weights @ vectors)
        pairs = zip(self._rows, parts, strict=True)
        return np.asarray(sum(rows.combine(part) for rows, part in pairs))

    def _split(self, values: FloatArray) -> list[FloatArray]:
        pairs = zip(self._cuts[:-1], self._cuts[1:], strict=True)
        return [values[start:stop] for start, stop in pairs]


def sparse_rows(moments: Moments) -> tuple[Any, FloatArray | None] | None:
    """Return the rows that moments keep and their weights, or None unless they are sparse."""
    if not moments.is_thin:
        return None
    rows, weights = moments.kept_rows()
    return (rows, weights) if sp.issparse(rows) else None
