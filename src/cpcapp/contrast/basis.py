"""Rows less their mean, as something to multiply with, or as coordinates where they are few."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from cpcapp.contrast.dense import Dense
from cpcapp.moments.moments import FloatArray, Moments, centre_full_columns

# Of the largest eigenvalue of all inner products: below it a direction of the rows is rounding.
_LEAST_SHARE = 1e-13
# Of the variance to the square of a mean: further away products lose more than four digits.
_FAR = 1e4


class CentredRows:
    """Rows ``A`` of one set in given units, times the roots of their weights: ``AᵀA/total`` is S.

    ``A = diag(root) (X - 1·offsetᵀ) diag(scale)``; sparse rows stay as they are.
    """

    def __init__(self, moments: Moments, scale: FloatArray, variance: FloatArray) -> None:
        self.total, self.scale = moments.total_weight, scale
        self.variance = variance * scale**2
        rows, weights = moments.kept_rows()
        self.rows: Any = rows
        self.offset = np.asarray(moments.mean)
        self.root = np.ones((rows.shape[0], 1))
        if not sp.issparse(rows):
            self.rows, self.offset = moments.centred_rows(), np.zeros(len(scale))
            return
        if (self.offset**2 > _FAR * variance).any():
            self.rows, shift = centre_full_columns(rows)
            self.offset = self.offset - shift
        if weights is not None:
            self.root = np.sqrt(weights)[:, None]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and features."""
        return int(self.rows.shape[0]), int(self.rows.shape[1])

    def outputs(self, vectors: FloatArray) -> FloatArray:
        """Return ``A v`` of vectors in columns."""
        v = self.scale[:, None] * vectors
        return np.asarray(self.root * (self.rows @ v - self.offset @ v))

    def combine(self, outputs: FloatArray) -> FloatArray:
        """Return ``Aᵀ y``."""
        y = self.root * outputs
        product = self.rows.T @ y - np.multiply.outer(self.offset, y.sum(axis=0))
        return np.asarray(self.scale[:, None] * product)

    def covariance_times(self, vectors: FloatArray) -> FloatArray:
        """Return ``S v``."""
        return self.combine(self.outputs(vectors)) / self.total

    def inner(self, other: CentredRows) -> FloatArray:
        """Return all inner products with the rows of another set."""
        both = self.scale * other.scale
        scaled = self.rows.multiply(both).tocsr() if sp.issparse(self.rows) else self.rows * both
        product = scaled @ other.rows.T
        inner: FloatArray = product.toarray() if sp.issparse(product) else np.asarray(product)
        # (X - 1m'ᵀ)(Y - 1l'ᵀ)ᵀ = XYᵀ - (Xl')1ᵀ - 1(Ym')ᵀ + m'ᵀl'
        inner -= (scaled @ other.offset)[:, None]
        inner -= other.rows @ (both * self.offset)
        inner += self.offset @ (both * other.offset)
        return self.root * inner * other.root.T


def span_of_rows(sets: list[CentredRows], units: FloatArray) -> Dense:
    """Return both covariances in an orthonormal basis of the span of all rows.

    With ``A`` the rows of both sets in their units and ``AAᵀ = U diag(s) Uᵀ``, the basis is
    ``AᵀUs^-½``, and the rows have the coordinates ``U s^½``. A filter has no part outside of the
    span: the background's loading is the identity there, and the target has no variance. The basis
    itself is never formed.
    """
    s, U = np.linalg.eigh(np.block([[a.inner(b) for b in sets] for a in sets]))
    kept = s > _LEAST_SHARE * s[-1]
    root = np.sqrt(s[kept])
    cuts = np.cumsum([rows.shape[0] for rows in sets])[:-1]

    def lift(vectors: FloatArray) -> FloatArray:
        parts = np.split(U[:, kept] / root @ vectors, cuts)
        return np.asarray(sum(rows.combine(part) for rows, part in zip(sets, parts, strict=True)))

    parts = np.split(U[:, kept] * root, cuts)
    covariances = [
        np.asfortranarray(part.T @ part / rows.total)
        for part, rows in zip(parts, sets, strict=True)
    ]
    found = Dense(covariances, units, lift)
    found.solver = "dual"
    return found
