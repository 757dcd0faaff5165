"""The eigenproblem of sparse rows, from products with the rows alone.

Nothing here is ever ``n_features x n_features``. There are three parts: rows as something to
multiply with (`CentredRows`), what a rule of `cpcapp.contrast.loading` has to know about the
background (`sketch_covariance`), and a block Davidson method for the largest eigenpairs
(`PencilProblem`). The
caller decides which loading is added to the background.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh, eigh_tridiagonal

from cpcapp.contrast.loading import LoadingRule
from cpcapp.contrast.steering import Solution, restricted
from cpcapp.moments.blocks import centre_full_columns
from cpcapp.moments.moments import FloatArray, Moments, Spread

# Of the residual to the eigenvalue. The eigenvalue itself is then exact to the square of this over
# the relative gap to the next one: 1e-7 at a gap of a thousandth. Contrasts of steered filters are
# not those that were maximized, and have an error of the size of the residual.
_TOLERANCE, _STEERED_TOLERANCE = 1e-5, 3e-6
_MOST_STEPS = 500
# Vectors that are multiplied at once: the rows are read once for all of them, so that four take
# little longer than one.
_BLOCK = 4
# What is held between restarts, in blocks.
_BASIS, _KEPT = 24, 10
_SKETCH_BLOCK, _SKETCH_STEPS = 8, 3
_PROBES = 16
_FREEDOM_PROBES = 4
# Random signs, and steps of Lanczos from each. On counts of 1,000 to 3,000 features the shrinkage
# came out within 4 %. Most of the error is that of few loud eigenvalues; more steps do not help.
_SPECTRUM_PROBES, _SPECTRUM_STEPS = 4, 20
# An exact trace takes this many products of stored values at most, which is about a second.
_MOST_PRODUCTS = 5e7
_STRIP_BYTES = 8e6
# Of the energy norm, squared, in conjugate gradients.
_ENERGY_TOLERANCE = 3e-4


class NotConvergedError(ArithmeticError):
    """The iteration ended before the eigenpairs were known to the tolerance."""


class CentredRows:
    """Sparse rows less their mean, ``X - 1·meanᵀ``, as something to multiply with.

    Parameters
    ----------
    moments : Moments
        That keep sparse rows.
    spread : Spread
        Of the moments. Features that are constant count as 0: what is there is rounding.

    Attributes
    ----------
    n_samples, n_features : int
    variance : ndarray of shape (n_features,)

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> X = np.array([[1.0, 0.0, 0.0, 3.0], [0.0, 2.0, 4.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    >>> moments = Moments.of(sp.csr_array(X))
    >>> rows = CentredRows(moments, moments.spread())
    >>> bool(np.allclose(rows.covariance_times(np.eye(4)), np.cov(X.T, ddof=0)))
    True
    """

    def __init__(self, moments: Moments, spread: Spread) -> None:
        assert moments.mean is not None
        self.n_samples, self.n_features = moments.n_samples, len(moments.mean)
        self.variance = np.where(spread.constant, 0.0, spread.variance)
        self._varies = None if not spread.constant.any() else ~spread.constant[:, None]
        self._parts = []
        for block in moments._rows:
            shifted, shift = centre_full_columns(block)
            self._parts.append((shifted, moments.mean - shift))

    def covariance_times(self, vectors: FloatArray) -> FloatArray:
        """Return the covariance times vectors in columns, (n_features, n_vectors)."""
        v = np.ascontiguousarray(vectors if self._varies is None else vectors * self._varies)
        total = np.zeros_like(v)
        for rows, offset in self._parts:
            # (X - 1oᵀ)ᵀ(X - 1oᵀ)v with o what is left of the mean: two products and rank one.
            outputs = rows @ v
            outputs -= offset @ v
            total += rows.T @ outputs
            total -= np.multiply.outer(offset, outputs.sum(axis=0))
        total /= self.n_samples
        return total if self._varies is None else total * self._varies

    def gram_times(self, vectors: FloatArray, units: FloatArray) -> FloatArray:
        """Return inner products of the rows in ``units``, over n_samples, times vectors."""
        scale = 1.0 / np.sqrt(units)[:, None]
        if self._varies is not None:
            scale = scale * self._varies
        combined, start = np.zeros((self.n_features, vectors.shape[1])), 0
        for rows, offset in self._parts:
            v = vectors[start : start + rows.shape[0]]
            combined += rows.T @ v
            combined -= np.multiply.outer(offset, v.sum(axis=0))
            start += rows.shape[0]
        combined *= scale**2
        outputs = [rows @ combined - offset @ combined for rows, offset in self._parts]
        return np.asarray(np.concatenate(outputs) / self.n_samples)

    def count_products(self) -> float:
        """Return how many products of two stored values the whole covariance would take."""
        in_rows = (np.diff(rows.indptr).astype(np.float64) for rows, _ in self._parts)
        return float(sum(np.vdot(stored, stored) for stored in in_rows))

    def trace_of_square(self, units: FloatArray) -> float:
        """Return the trace of the squared covariance in ``units``, from strips of the matrix."""
        scale = 1.0 / np.sqrt(units)
        if self._varies is not None:
            scale *= self._varies[:, 0]
        parts = []
        for rows, offset in self._parts:
            by_feature = rows.T.tocsr()
            parts.append((by_feature, rows, offset, np.asarray(by_feature.sum(axis=1)).ravel()))
        width = self.n_features
        step = max(1, int(_STRIP_BYTES / (8 * width)))
        total = 0.0
        for start in range(0, width, step):
            own = slice(start, min(start + step, width))
            strip = np.zeros((own.stop - start, width))
            for by_feature, rows, offset, sums in parts:
                # (X - 1oᵀ)ᵀ(X - 1oᵀ) = XᵀX - sums oᵀ - o (sums - n o)ᵀ
                strip += (by_feature[own] @ rows).toarray()
                strip -= np.multiply.outer(sums[own], offset)
                strip -= np.multiply.outer(offset[own], sums - rows.shape[0] * offset)
            strip *= scale[own, None] / self.n_samples
            strip *= scale
            total += float(np.vdot(strip, strip))
        return total


# -- what a rule has to know about the background ------------------------------------------


@dataclass(frozen=True)
class Sketch:
    """A covariance by its main directions, in units of the features.

    ``S ≈ U diag(values) Uᵀ + rest·I`` with ``S`` the covariance in ``units``.

    Attributes
    ----------
    units : ndarray of shape (n_features,)
    directions : ndarray of shape (n_features, r)
        ``U``, orthonormal.
    values : ndarray of shape (r,)
        Above 0: what the eigenvalues have more than ``rest``.
    rest : float
        Mean of the other eigenvalues.
    trace, trace_of_square : float
        Of ``S`` and ``S²``.
    standard_error : float
        Of ``trace_of_square``; 0 if it is exact.
    """

    units: FloatArray
    directions: FloatArray
    values: FloatArray
    rest: float
    trace: float
    trace_of_square: float
    standard_error: float


def sketch_covariance(
    rows: CentredRows, units: FloatArray, *, most_products: float = _MOST_PRODUCTS
) -> Sketch:
    """Return the main directions of a covariance in ``units``, and its traces.

    The directions come from a block Krylov space. The trace of the square is exact if it takes no
    more than ``most_products`` products of stored values. Otherwise it is estimated, with random
    signs in the space that the directions leave out (Hutch++). With 10,000 features the standard
    error is about 1 % of the trace.

    References
    ----------
    R. A. Meyer, C. Musco, C. Musco, D. P. Woodruff, "Hutch++: optimal stochastic trace
    estimation", Symposium on Simplicity in Algorithms, 2021.
    """
    rng = np.random.default_rng(0)
    scale = 1.0 / np.sqrt(units)[:, None]

    def times(v: FloatArray) -> FloatArray:
        return scale * rows.covariance_times(scale * v)

    width = rows.n_features
    start = rng.standard_normal((width, min(_SKETCH_BLOCK, width)))
    # Features that do not vary have no part in any direction.
    basis, image = _krylov_space(times, start * (rows.variance > 0.0)[:, None])
    trace = float((rows.variance / units).sum())
    if rows.count_products() <= most_products:
        square, error = rows.trace_of_square(units), 0.0
    else:
        # tr S² = ‖SQ‖² + tr (I-QQᵀ)S²(I-QQᵀ), and the last is the mean of ‖S(I-QQᵀ)z‖² over
        # random signs z. Without the loud directions Q it varies little.
        signs = rng.choice([-1.0, 1.0], size=(width, _PROBES))
        signs -= basis @ (basis.T @ signs)
        squares = (times(signs) ** 2).sum(axis=0)
        square = float(np.vdot(image, image) + squares.mean())
        error = float(squares.std(ddof=1)) / _PROBES**0.5
    values, y = eigh(basis.T @ image)
    others = max(trace - float(values.sum()), 0.0) / max(width - len(values), 1)
    # Directions about as loud as the rest are no help to a preconditioner.
    loud = values > 2.0 * others
    rest = max(trace - float(values[loud].sum()), 0.0) / max(width - int(loud.sum()), 1)
    return Sketch(units, basis @ y[:, loud], values[loud] - rest, rest, trace, square, error)


def estimate_spectrum(rows: CentredRows, units: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return about the eigenvalues of a covariance in ``units``, but for the zeros it has to have.

    Lanczos quadrature from random signs, in the space of the samples or of the features, whichever
    is smaller.

    Returns
    -------
    values : ndarray of shape (n_values,)
    counts : ndarray of shape (n_values,)
        How many eigenvalues each stands for.

    References
    ----------
    S. Ubaru, J. Chen, Y. Saad, "Fast estimation of tr(f(A)) via stochastic Lanczos quadrature",
    SIAM Journal on Matrix Analysis and Applications 38(4), 2017.
    """
    rng = np.random.default_rng(2)
    varies = rows.variance > 0.0
    if rows.n_samples - 1 < varies.sum():
        rank = rows.n_samples - 1
        start = rng.choice([-1.0, 1.0], size=(rows.n_samples, _SPECTRUM_PROBES))
        start -= start.mean(axis=0)  # the mean of centred rows is the zero that has to be

        def times(v: FloatArray) -> FloatArray:
            return rows.gram_times(v, units)
    else:
        rank = int(varies.sum())
        start = rng.choice([-1.0, 1.0], size=(rows.n_features, _SPECTRUM_PROBES))
        start *= varies[:, None]
        scale = 1.0 / np.sqrt(units)[:, None]

        def times(v: FloatArray) -> FloatArray:
            return scale * rows.covariance_times(scale * v)

    values, weights = _lanczos_quadrature(times, start, min(_SPECTRUM_STEPS, rank))
    return np.maximum(values, 0.0), weights * (rank / _SPECTRUM_PROBES)


def _lanczos_quadrature(
    times: Callable[[FloatArray], FloatArray], start: FloatArray, steps: int
) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights of the quadrature from each column of ``start``."""
    basis = [start / np.linalg.norm(start, axis=0)]
    diagonal, beside = np.zeros((2, steps, start.shape[1]))
    for j in range(steps):
        new = times(basis[j])
        diagonal[j] = (new * basis[j]).sum(axis=0)
        for q in basis * 2:  # twice is enough
            new -= q * (q * new).sum(axis=0)
        beside[j] = np.linalg.norm(new, axis=0)
        # Where nothing is left the space is complete, and what would follow has no weight.
        gone = beside[j] <= 1e-10 * np.abs(diagonal[: j + 1]).max(axis=0)
        beside[j, gone] = 0.0
        basis.append(np.divide(new, beside[j], out=np.zeros_like(new), where=~gone))
    values, weights = [], []
    for a, b in zip(diagonal.T, beside.T, strict=True):
        nodes, vectors = eigh_tridiagonal(a, b[:-1])
        values.append(nodes)
        weights.append(vectors[0] ** 2)
    return np.concatenate(values), np.concatenate(weights)


def _krylov_space(
    times: Callable[[FloatArray], FloatArray], start: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return an orthonormal basis of ``start``, ``S start``, ..., and ``S`` times the basis."""
    basis = image = np.empty((len(start), 0))
    new = _orthonormalize(start, basis)
    for _ in range(_SKETCH_STEPS):
        product = times(new)
        basis, image = np.hstack([basis, new]), np.hstack([image, product])
        new = _orthonormalize(product, basis)
        if not new.shape[1]:
            break
    return basis, image


class LoadedBackground:
    """``Σ = weight · R_b + diag(diagonal)``, to multiply with, and roughly to divide by.

    Parameters
    ----------
    rows : CentredRows or None
        None for a background that is its diagonal alone.
    rule : LoadingRule
    sketch : Sketch or None
        Of the covariance of ``rows``.
    steering : ndarray of shape (n_features,), optional
        Added to the diagonal.
    """

    def __init__(
        self,
        rows: CentredRows | None,
        rule: LoadingRule,
        sketch: Sketch | None,
        steering: FloatArray | None = None,
    ) -> None:
        self.weight = 0.0 if rows is None else rule.weight
        self.diagonal = rule.ridge * rule.units + (0.0 if steering is None else steering)
        self._rows, self._sketch = rows, sketch

    def variance(self) -> FloatArray:
        """Return the diagonal of ``Σ``, (n_features,)."""
        return self.diagonal + (0.0 if self._rows is None else self.weight * self._rows.variance)

    def times(self, v: FloatArray) -> FloatArray:
        """Return ``Σ v``, (n_features, n_vectors)."""
        product: FloatArray = self.diagonal[:, None] * v
        if self._rows is not None and self.weight > 0.0:
            product += self.weight * self._rows.covariance_times(v)
        return product

    def rough_inverse(self, more: FloatArray | float = 0.0) -> _RoughInverse:
        """Return about ``(Σ + diag(more))⁻¹``, from the sketch of the background."""
        return _RoughInverse(self.diagonal + more, self.weight, self._sketch)

    def degrees_of_freedom(self) -> float:
        """Return about ``tr(weight · R_b Σ⁻¹)``, the effective number of parameters of a filter.

        Estimated from random signs, with a standard error of at most ``√(n_features / 2)``, that is
        0.7 % of 10,000 features.
        """
        if self._rows is None or self.weight == 0.0:
            return 0.0
        root = np.sqrt(self.diagonal)[:, None]
        near = self.rough_inverse()
        signs = np.random.default_rng(1).choice([-1.0, 1.0], size=(len(root), _FREEDOM_PROBES))
        # tr(w R_b Σ⁻¹) = M - tr(D Σ⁻¹). What the rough inverse T has of it is known exactly, and
        # the signs have to tell tr(D (Σ⁻¹ - T)) only.
        exact = near.trace_with(self.diagonal)
        right = root * signs
        rest = self._inverse_energy(right, near) - (right * near.times(right)).sum(axis=0)
        return float(np.clip(len(root) - exact - rest.mean(), 0.0, len(root)))

    def _inverse_energy(self, right: FloatArray, near: _RoughInverse) -> FloatArray:
        """Return ``bᵀΣ⁻¹b`` for each column b, by conjugate gradients."""
        residual = right.copy()
        z = near.times(residual)
        direction = z.copy()
        old = (residual * z).sum(axis=0)
        energy = np.zeros(right.shape[1])
        for _ in range(_MOST_STEPS):
            image = self.times(direction)
            step = _ratio(old, (direction * image).sum(axis=0))
            # After each step the energy grows by step · rᵀTr, and what is missing shrinks as fast.
            gain = step * old
            energy += gain
            if (gain <= _ENERGY_TOLERANCE * energy).all():
                break
            residual -= step * image
            z = near.times(residual)
            new = (residual * z).sum(axis=0)
            direction = z + _ratio(new, old) * direction
            old = new
        return energy


def _ratio(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return ``a / b``, and 0 where a residual of 0 has left nothing to divide by."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0.0)


class _RoughInverse:
    """About ``(weight · R_b + diag(diagonal))⁻¹``, with ``R_b`` as its sketch has it."""

    def __init__(self, diagonal: FloatArray, weight: float, sketch: Sketch | None) -> None:
        self._weights, self._inner = np.empty((len(diagonal), 0)), None
        self._diagonal = diagonal[:, None]
        if sketch is None or weight == 0.0:
            return
        self._diagonal = (diagonal + weight * sketch.rest * sketch.units)[:, None]
        if len(sketch.values):
            # Woodbury: (C + U diag(s) Uᵀ)⁻¹ = C⁻¹ - C⁻¹U (diag(1/s) + UᵀC⁻¹U)⁻¹ UᵀC⁻¹
            u = np.sqrt(sketch.units)[:, None] * sketch.directions
            self._weights = u / self._diagonal
            inner = u.T @ self._weights
            inner[np.diag_indices_from(inner)] += 1.0 / (weight * sketch.values)
            self._inner = cho_factor(inner)

    def times(self, v: FloatArray) -> FloatArray:
        product: FloatArray = v / self._diagonal
        if self._inner is not None:
            product -= self._weights @ cho_solve(self._inner, self._weights.T @ v)
        return product

    def trace_with(self, diagonal: FloatArray) -> float:
        """Return the trace of the product with a diagonal matrix."""
        total = float((diagonal / self._diagonal[:, 0]).sum())
        if self._inner is not None:
            inside = self._weights.T @ (diagonal[:, None] * self._weights)
            total -= float(cho_solve(self._inner, inside).trace())
        return total


# -- largest eigenpairs --------------------------------------------------------------------


class PencilProblem:
    """``R_f v = λΣv`` from products with the rows.

    A block Davidson method: the residuals of the best approximations within a space, divided by
    the background as far as it is known, are added to that space. It holds ``R_f`` and ``Σ`` times
    each vector of its basis. So another eigenproblem of the two starts with all that was learned.

    Parameters
    ----------
    target : CentredRows
    background : CentredRows or None
        None for principal components.
    rule : LoadingRule
    sketch : Sketch or None
        Of the covariance of ``background``.
    k : int
        The most components that will be asked for at once.
    units : ndarray of shape (n_features,), optional
        In which loudness will be measured.

    Raises
    ------
    NotConvergedError
        By each method, if the eigenvalues lie too close together, or ``Σ`` is too near to singular.
    """

    method = "matrix-free"

    def __init__(
        self,
        target: CentredRows,
        background: CentredRows | None,
        rule: LoadingRule,
        sketch: Sketch | None,
        k: int,
        units: FloatArray | None = None,
    ) -> None:
        self.rule = rule
        self._target, self._background, self._sketch = target, background, sketch
        self._loaded = LoadedBackground(background, rule, sketch)
        self._space = _Space(target, self._loaded, k, units)

    def largest(
        self, k: int, extra: FloatArray | None = None, without: FloatArray | None = None
    ) -> Solution:
        """Return the ``k`` filters of the largest contrast: see `cpcapp.contrast.steering.Problem`.

        ``extra`` must be a multiple of the units.
        """
        found = self._space.refine(k, ridge=extra, without=without)
        return Solution(found.filters, found.atoms, found.values)

    def loudness(self, alpha: float, units: FloatArray) -> float:
        """Return the largest eigenvalue of a difference: see `cpcapp.contrast.steering.Problem`."""
        return float(self.loudest(1, alpha, units)[0][0])

    def loudest(self, k: int, alpha: float, units: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the largest eigenpairs of a difference: see `cpcapp.contrast.steering.Problem`."""
        found = self._space.refine(k, alpha=alpha)
        return found.values, found.filters

    def restrict(self, filters: FloatArray) -> Solution:
        """Solve the problem within the span of filters."""
        r_f_filters = self._target.covariance_times(filters)
        sigma = filters.T @ self._loaded.times(filters)
        return restricted(filters, filters.T @ r_f_filters, r_f_filters, (sigma + sigma.T) / 2.0)

    def freedom(self, extra: FloatArray | None = None) -> float:
        """Return about the effective number of parameters of a filter."""
        loaded = LoadedBackground(self._background, self.rule, self._sketch, extra)
        return loaded.degrees_of_freedom()


@dataclass(frozen=True)
class _Pairs:
    """Largest eigenvalues, descending, with filters, and atoms if there was no difference."""

    values: FloatArray
    filters: FloatArray
    atoms: FloatArray


class _Space:
    """A growing space with ``R_f`` and ``Σ`` in it, in units that make the diagonal of ``Σ`` 1."""

    def __init__(
        self,
        target: CentredRows,
        background: LoadedBackground,
        k: int,
        steering_units: FloatArray | None,
    ) -> None:
        self.target, self.background = target, background
        self.scale = 1.0 / np.sqrt(background.variance())[:, None]
        self.steering_units = np.ones(1) if steering_units is None else steering_units
        self.units = None if steering_units is None else steering_units[:, None] * self.scale**2
        width = target.n_features
        self.block = min(max(_BLOCK, k + 1), width)
        self.most = min(_BASIS * self.block, width)
        self.size = 0
        # The basis, R_f and Σ times it, and the matrices of R_f, Σ and the steering's units in it.
        self.basis, self.powers, self.loaded = (
            np.empty((width, self.most), order="F") for _ in range(3)
        )
        self.inner = np.zeros((3, self.most, self.most))
        start = np.random.default_rng(0).standard_normal((width, self.block))
        self._add(self._divide(self._target_times(start), background.rough_inverse()))

    def refine(
        self,
        k: int,
        *,
        ridge: FloatArray | None = None,
        alpha: float | None = None,
        without: FloatArray | None = None,
    ) -> _Pairs:
        """Add to the space until ``k`` pairs are known to the tolerance.

        They are those of ``R_f v = μ (Σ + diag(ridge)) v``, or with ``alpha`` those of
        ``(R_f - αΣ) v = θDv`` with the units ``D``. Outputs of the filters over the target are
        uncorrelated with those of the filters ``without``.
        """
        near, nearness = self.background.rough_inverse(0.0 if ridge is None else ridge), 0.0
        share = 0.0 if ridge is None else float(ridge[0] / self.steering_units[0])
        # vᵀR_fG = 0 for the filters G that are given.
        barred = None if without is None else self._target_times(without / self.scale)
        tolerance = _TOLERANCE if alpha is None and ridge is None else _STEERED_TOLERANCE
        for _ in range(_MOST_STEPS):
            r_f, sigma, units = self.inner[:, : self.size, : self.size]
            left, right = r_f, sigma + share * units
            if alpha is not None:
                left, right = r_f - alpha * sigma, units
            allowed = None
            if barred is not None:
                allowed = _null_space(self.basis[:, : self.size].T @ barred)
                left, right = (allowed.T @ matrix @ allowed for matrix in (left, right))
            values, y = _top(left, right, min(self.block, len(left)))
            y = y if allowed is None else allowed @ y
            eigenvalues, ridges = values, np.full(len(values), share)
            if alpha is not None:
                # (R_f - αΣ) v = θDv is R_f v = α (Σ + θ/α D) v, with the length that makes
                # vᵀ(Σ + θ/α D)v = 1, which is vᵀR_fv = α.
                eigenvalues, ridges = np.full(len(values), alpha), values / alpha
                y = y * np.sqrt(alpha / np.einsum("ij,ij->j", y, r_f @ y))
                if abs(ridges[0] - nearness) > 0.05 * abs(ridges[0]):
                    nearness = max(float(ridges[0]), 0.0)
                    near = self.background.rough_inverse(nearness * self.steering_units)
            filters, images = self.basis[:, : self.size] @ y, self.loaded[:, : self.size] @ y
            if self.units is not None and ridges.any():
                images += self.units * filters * ridges
            residuals = self.powers[:, : self.size] @ y - images * eigenvalues
            corrections = self._divide(residuals, near)
            if barred is not None:
                # At the solution the residual is a combination of what is barred.
                divided = self._divide(barred, near)
                part = np.linalg.solve(barred.T @ divided, divided.T @ residuals)
                residuals, corrections = residuals - barred @ part, corrections - divided @ part
            # rᵀTr is about the squared norm of the residual in the metric of Σ⁻¹, in which it
            # bounds the distance to an eigenvalue.
            norms = np.sqrt((residuals * corrections).sum(axis=0))
            errors = norms[:k] / np.maximum(eigenvalues[:k], 1e-9 * eigenvalues[0])
            if len(errors) == k and (errors <= tolerance).all():
                break
            if self.most < len(self.basis) and self.size + self.block > self.most:
                self._restart(left, right, allowed)
            if not self._add(corrections):
                break  # the space holds all that products can lead to
        else:
            raise NotConvergedError
        return _Pairs(values[:k], self.scale * filters[:, :k], images[:, :k] / self.scale)

    def _target_times(self, v: FloatArray) -> FloatArray:
        return self.scale * self.target.covariance_times(self.scale * v)

    def _divide(self, v: FloatArray, near: _RoughInverse) -> FloatArray:
        return near.times(v / self.scale) / self.scale

    def _add(self, new: FloatArray) -> int:
        """Add vectors to the basis, as far as they are new, and return how many were."""
        new = _orthonormalize(new, self.basis[:, : self.size])[:, : self.most - self.size]
        count = int(new.shape[1])
        if count == 0:
            return 0
        own, self.size = slice(self.size, self.size + count), self.size + count
        self.basis[:, own] = new
        self.powers[:, own] = self._target_times(new)
        self.loaded[:, own] = self.scale * self.background.times(self.scale * new)
        images = [self.powers[:, own], self.loaded[:, own]]
        if self.units is not None:
            images.append(self.units * new)
        for matrix, image in zip(self.inner, images, strict=False):
            strip = self.basis[:, : self.size].T @ image
            matrix[: self.size, own] = strip
            matrix[own, : self.size] = strip.T
            matrix[own, own] = (strip[own] + strip[own].T) / 2.0
        return count

    def _restart(self, r_f: FloatArray, sigma: FloatArray, allowed: FloatArray | None) -> None:
        """Keep of the space what has the largest eigenvalues."""
        kept = min(_KEPT * self.block, len(r_f))
        y = _top(r_f, sigma, kept)[1]
        y = np.linalg.qr(y if allowed is None else allowed @ y)[0]
        for array in (self.basis, self.powers, self.loaded):
            array[:, :kept] = array[:, : self.size] @ y
        for matrix in self.inner:
            matrix[:kept, :kept] = y.T @ matrix[: self.size, : self.size] @ y
        self.size = kept


def _top(a: FloatArray, b: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    last = len(a) - 1
    values, y = eigh(a, b, subset_by_index=(last - k + 1, last), check_finite=False)
    return values[::-1], y[:, ::-1]


def _null_space(matrix: FloatArray) -> FloatArray:
    """Return an orthonormal basis of what is orthogonal to the columns of a matrix."""
    return np.linalg.qr(matrix, mode="complete").Q[:, matrix.shape[1] :]


def _orthonormalize(new: FloatArray, basis: FloatArray) -> FloatArray:
    """Return an orthonormal basis of what ``new`` has outside of the space of ``basis``."""
    length = np.linalg.norm(new, axis=0)
    new = new[:, length > 0.0] / length[length > 0.0]
    for _ in range(2):
        new = new - basis @ (basis.T @ new)
        # Directions of which rounding is all that is left are dropped.
        u, size, _ = np.linalg.svd(new, full_matrices=False)
        new = u[:, size > 1e-10]
    return new
