"""Solve a contrast again without some of its background rows, at a fraction of the time.

Shrinkage and steering stay as they are, in the units of the rows that are left, and the moments of
these are those of all rows less those of the rows held out. In coordinates in which the loaded
background ``Σ = LLᵀ`` is white, the target is ``C = L⁻¹R_fL⁻ᵀ``. Its largest eigenvectors are
sought in the Krylov space of ``L⁻¹R_fF``, ``F`` the filters of all rows. ``R_fF`` says what to look
for in the target, and hardly anything of single background rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from cpcapp.contrast import loading as rules
from cpcapp.contrast.solve import Contrast
from cpcapp.moments.moments import FloatArray, Moments, Spread

# Up to this many features all folds are factored in one call, and all eigenvectors are computed:
# that takes less than the calls.
_SMALL = 64
# Each step makes the error about as many times smaller as filters stand out. The filters that it
# starts with are already those of four fifths of the rows.
_KRYLOV_STEPS = 3
# With more features than this times all samples, sums of products of features are the slow way.
_MOST_FEATURES = 3
# Of the variance of all rows: less is rounding.
_CONSTANT = 1e-10
_NO_WEIGHT = float(np.finfo(np.float64).eps) ** 0.5


@dataclass(frozen=True)
class Refit:
    """A contrast without some rows.

    Attributes
    ----------
    filters : ndarray of shape (n_features, k)
    mean : ndarray of shape (n_features,)
        Of the rows that are left, less that of all rows.
    expected_power : float
        Of new background.
    """

    filters: FloatArray
    mean: FloatArray
    expected_power: float


def can_refit(target: Moments, background: Moments) -> bool:
    """Return whether this is the quick way: not with far fewer samples than features."""
    width = target.n_features or 0
    if not (target.is_thin and background.is_thin):
        return True
    return width <= _MOST_FEATURES * (target.n_samples + background.n_samples)


class Refitter:
    """Solves a contrast again, without some rows of its background.

    Parameters
    ----------
    target, background : Moments
    contrast : Contrast
        Of both.
    loading : str or float
    scaling : {"background", "unit"}
        With which the contrast was found.

    Examples
    --------
    >>> from cpcapp import solve_contrast
    >>> rng = np.random.default_rng(0)
    >>> X, B = rng.normal(size=(50, 3)) * [3, 1, 1], rng.normal(size=(40, 3))
    >>> contrast = solve_contrast(X, B, 1, loading=0.1)
    >>> refitter = Refitter(Moments.of(X), Moments.of(B), contrast, loading=0.1)
    >>> found, = refitter.without([B[:10] - B.mean(axis=0)])
    >>> np.allclose(found.mean, B[10:].mean(axis=0) - B.mean(axis=0))
    True
    """

    def __init__(
        self,
        target: Moments,
        background: Moments,
        contrast: Contrast,
        *,
        loading: str | float = "auto",
        scaling: str = "background",
    ) -> None:
        self.r_f, self.scatter = target.covariance(), background.scatter()
        self.n = background.n_samples
        self.contrast, self.scaling = contrast, scaling
        self.k = len(contrast.eigenvalues)
        self.units = _Units(loading, contrast, target.spread(), background.spread())

    def without(self, folds: Sequence[FloatArray]) -> Iterator[Refit]:
        """Yield the contrast without each of several parts of the background.

        Parameters
        ----------
        folds : sequence of ndarray of shape (n, n_features)
            Rows less the mean of all.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the background that is left is singular.
        """
        at_once = len(folds) if len(self.r_f) <= _SMALL else 1
        for start in range(0, len(folds), at_once):
            yield from self._solve(folds[start : start + at_once])

    def _solve(self, folds: Sequence[FloatArray]) -> Iterator[Refit]:
        n_left = self.n - np.array([len(fold) for fold in folds], dtype=np.float64)
        means = -np.stack([fold.sum(axis=0) for fold in folds]) / n_left[:, None]
        # S_left = S - ΣYᵀY - n_left δδᵀ, with δ the mean of the rows that are left
        sigma = self.scatter - np.stack([fold.T @ fold for fold in folds])
        sigma -= n_left[:, None, None] * (means[:, :, None] * means[:, None, :])
        sigma /= n_left[:, None, None]
        on_diagonal = np.einsum("fii->fi", sigma)
        diagonal, louder = self.units.of(on_diagonal, n_left)
        weight = self.units.weight
        sigma *= weight
        on_diagonal += diagonal
        filters, freedom = self._filters(sigma, diagonal, louder)
        filters = self._scale(filters)
        inside = _t(filters) @ (sigma @ filters)
        if weight > _NO_WEIGHT:
            inside = (inside - _t(filters) @ (diagonal[:, :, None] * filters)) / weight
        # What new samples have more: see `contrast._out_of_sample`.
        more = np.maximum(1.0 - freedom / (n_left - 1.0), 1.0 / n_left) ** -2.0
        yield from map(Refit, filters, means, more * np.einsum("fii->f", inside))

    def _filters(
        self, sigma: FloatArray, diagonal: FloatArray, louder: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return filters with ``FᵀΣF = I``, turned in their span, and the degrees of freedom.

        The steps are those of `cpcapp.contrast.steering.steer`. ``louder`` is how many times the
        units
        of loudness are those of all rows.
        """
        steering = self.contrast.steering
        if steering is None:
            inverse = _inverse_factor(sigma)
            u = self._largest(inverse, self.contrast.atoms, self.k)
            return _t(inverse) @ u, _freedom(inverse, diagonal)
        found: list[FloatArray] = []
        if steering.n_loud:
            found.append(self._loudest(sigma, steering.bound, louder * steering.units))
        if steering.n_more:
            ridge = louder * steering.ridge
            found.append(self._more(_inverse_factor(_loaded(sigma, ridge)), found, steering.n_more))
        if steering.n_steered < self.k:
            inverse, taken = _inverse_factor(sigma), diagonal
            found.append(self._more(inverse, found, self.k - steering.n_steered))
        else:
            least = louder * steering.least_ridge
            inverse, taken = _inverse_factor(_loaded(sigma, least)), diagonal + least
        return _whiten(np.concatenate(found, axis=2), sigma), _freedom(inverse, taken)

    def _more(self, inverse: FloatArray, before: Sequence[FloatArray], k: int) -> FloatArray:
        """Return ``k`` filters with outputs uncorrelated over the target with those of others."""
        others = None
        if before:  # uᵀL⁻¹R_fF = 0
            kept = np.concatenate(before, axis=2)
            kept = kept / np.linalg.norm(kept, axis=1, keepdims=True)
            others = np.linalg.qr(inverse @ (self.r_f @ kept)).Q
        return _t(inverse) @ self._largest(inverse, self.contrast.atoms, k, others)

    def _loudest(self, sigma: FloatArray, bound: float, units: FloatArray) -> FloatArray:
        """Return the loudest vectors of ``(R_f - cΣ) v = θDv``."""
        assert self.contrast.steering is not None
        n_loud, scale = self.contrast.steering.n_loud, 1.0 / np.sqrt(units)
        difference = (self.r_f - bound * sigma) * (scale[:, :, None] * scale[:, None, :])
        if sigma.shape[1] <= _SMALL:
            vectors = np.linalg.eigh(difference).eigenvectors[:, :, : -n_loud - 1 : -1]
        else:
            vectors = np.stack(
                [rules.largest_eigenpairs(np.asfortranarray(d), n_loud)[1] for d in difference]
            )
        return np.asarray(vectors * scale[:, :, None])

    def _largest(
        self, inverse: FloatArray, start: FloatArray, k: int, others: FloatArray | None = None
    ) -> FloatArray:
        """Return the ``k`` largest eigenvectors of ``C``, orthogonal to ``others``."""

        def project(v: FloatArray) -> FloatArray:
            return v if others is None else v - others @ (_t(others) @ v)

        def times(v: FloatArray) -> FloatArray:
            return project(inverse @ (self.r_f @ (_t(inverse) @ project(v))))

        width, size = start.shape
        if width <= max(_SMALL, size * (_KRYLOV_STEPS + 1)):
            c = times(np.broadcast_to(np.eye(width), inverse.shape))
            return np.linalg.eigh(c).eigenvectors[:, :, : -k - 1 : -1]
        basis = np.linalg.qr(project(inverse @ start)).Q
        product = times(basis)
        for _ in range(_KRYLOV_STEPS):
            new = product[:, :, -size:]
            for _ in range(2):
                new = new - basis @ (_t(basis) @ new)
            new = np.linalg.qr(new).Q
            basis = np.concatenate([basis, new], axis=2)
            product = np.concatenate([product, times(new)], axis=2)
        y = np.linalg.eigh(_t(basis) @ product).eigenvectors[:, :, : -k - 1 : -1]
        return np.asarray(basis @ y)

    def _scale(self, filters: FloatArray) -> FloatArray:
        """Return filters in the scaling asked for."""
        if self.scaling == "background":  # the power does not depend on a turn
            return filters
        values = _t(filters) @ (self.r_f @ filters)
        filters = filters @ np.linalg.eigh(values).eigenvectors
        return np.asarray(filters / np.linalg.norm(filters, axis=1, keepdims=True))


class _Units:
    """The loading of other background rows, shrunk as much as those of a contrast.

    A shrinking rule is in units of the background variance of each feature. If these were not of
    the rows that are left, they would tell of the rows held out: whether a rare value occurs.
    """

    def __init__(
        self, loading: str | float, contrast: Contrast, target: Spread, background: Spread
    ) -> None:
        assert contrast.loading is not None
        self.weight, self.diagonal = contrast.loading.weight, contrast.loading.diagonal
        self.shrinks, self.by_count = loading in rules.SHRINKING, loading != "oas"
        self.target = np.where(target.constant, 1.0, target.variance)
        self.background = np.where(background.constant, 0.0, background.variance)
        varying = self.background > 0.0
        self.share = float(np.mean(self.diagonal[varying] / self.background[varying]))

    def of(self, variance: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the loading of backgrounds of ``n`` rows with these variances.

        And how many times the units of steering, the mean variances of both sets, are those of all
        rows.

        Parameters
        ----------
        variance : ndarray of shape (n_backgrounds, n_features)
        n : ndarray of shape (n_backgrounds,)
        """
        if not self.shrinks:
            # A number for all features.
            diagonal = np.broadcast_to(self.diagonal, variance.shape)
        else:
            # As in `loading.shrink_or_load`: a feature that is constant in n rows is taken to
            # have 1/n of the target's variance.
            absent = self.target / n[:, None] if self.by_count else self.share * self.target
            present = variance > _CONSTANT * self.background
            diagonal = np.where(present, self.share * variance, absent)
        return diagonal, (self.target + variance) / (self.target + self.background)


def _t(a: FloatArray) -> FloatArray:
    return a.transpose(0, 2, 1)


def _loaded(sigma: FloatArray, diagonal: FloatArray) -> FloatArray:
    """Return matrices with more on their diagonals."""
    sigma = sigma.copy()
    np.einsum("fii->fi", sigma)[:] += diagonal
    return sigma


def _inverse_factor(sigma: FloatArray) -> FloatArray:
    """Return ``L⁻¹`` of each matrix."""
    if len(sigma) > 1:
        return np.asarray(np.linalg.inv(np.linalg.cholesky(sigma)))
    lower, failed = lapack.dpotrf(sigma[0].T, lower=1, clean=1)
    if failed:
        raise np.linalg.LinAlgError("the background that is left is singular")
    inverse, _ = lapack.dtrtri(lower, lower=1, overwrite_c=1)
    return np.asarray(inverse[None])


def _freedom(inverse: FloatArray, diagonal: FloatArray) -> FloatArray:
    """Return the effective number of parameters, ``M - tr(D Σ⁻¹)``."""
    lost = np.einsum("fij,fij,fj->f", inverse, inverse, diagonal)
    return np.asarray(inverse.shape[1] - lost)


def _whiten(filters: FloatArray, sigma: FloatArray) -> FloatArray:
    """Return filters of the same span with ``FᵀΣF = I``."""
    lower = np.linalg.cholesky(_t(filters) @ (sigma @ filters))
    return np.asarray(filters @ _t(np.linalg.inv(lower)))
