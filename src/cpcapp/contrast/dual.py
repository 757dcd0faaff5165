"""The eigenproblem for fewer samples than features: from inner products of samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_solve, eigvalsh, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from cpcapp.contrast import loading as rules
from cpcapp.contrast.dense import rank_of, top_dense
from cpcapp.contrast.loading import LoadingRule
from cpcapp.contrast.sides import Side, SingularBackgroundError, check_rank
from cpcapp.contrast.steering import Solution, restricted
from cpcapp.moments.blocks import centre_full_columns
from cpcapp.moments.moments import FloatArray, Moments

_EPS = float(np.finfo(np.float64).eps)


def principal_components(target: Side, k: int) -> tuple[FloatArray, FloatArray]:
    """Return the ``k`` largest variances and their directions, in columns."""
    rows = SampleRows(target.moments, np.ones(target.width))
    values, a = top_dense(np.asfortranarray(rows.gram(rows)), k)
    check_rank(values, target.width, k)
    return values / len(a), np.asfortranarray(rows.combine(a / np.sqrt(values)))


def load(target: Side, background: Side, loading: str | float) -> LoadingRule:
    """Return how the background is to be loaded."""
    n_b, width = background.n_samples, background.width
    units = rules.loading_units(loading, target.spread, background.spread)
    rows = SampleRows(background.moments, units)
    gram = rows.gram(rows)
    n = len(gram)
    traces = float(gram.trace()) / n, float(np.vdot(gram, gram)) / n**2
    if loading == "none":
        raise SingularBackgroundError(rank_of(gram), width, n_b)
    constant = background.spread.constant
    rule = rules.shrink_or_load(
        loading, units, n_b, lambda: traces, lambda: (eigvalsh(gram) / n, None), constant
    )
    if rule.ridge <= _EPS * traces[0]:
        raise ValueError(
            f"loading={loading} is too small: with fewer background samples than "
            "features it must be positive; use loading='auto'"
        )
    return rule


class DualProblem:
    """``R_f v = λΣv`` by inner products of samples, with ``Σ = w AbᵀAb/n_b + rI`` in given units.

    Woodbury's identity gives ``r Σ⁻¹ = I - w Abᵀ (n_b r I + w AbAbᵀ)⁻¹ Ab``, so the kernel
    ``K = Af Σ⁻¹ Afᵀ`` takes inner products only; ``K a = κ a`` with ``λ = κ/n_f`` and
    ``F = Σ⁻¹Afᵀa/√κ``.

    Parameters
    ----------
    target, background : Moments
        That keep rows.
    rule : LoadingRule
    """

    method = "dual"

    def __init__(self, target: Moments, background: Moments, rule: LoadingRule) -> None:
        self._moments, self.rule = (target, background), rule
        self._a_f, self._a_b = (SampleRows(m, rule.units) for m in self._moments)
        self._root = np.sqrt(rule.units)[:, None]
        g_bf = self._a_b.gram(self._a_f)
        self._n_b, self._n_f = n_b, _ = g_bf.shape
        w, r = rule.weight, rule.ridge
        inner = w * self._a_b.gram(self._a_b)
        inner[np.diag_indices(n_b)] += n_b * r
        factor = np.linalg.cholesky(inner)
        self._solved = cho_solve((factor, True), g_bf)
        self._kernel = (self._a_f.gram(self._a_f) - w * (g_bf.T @ self._solved)) / r
        inverse, _ = lapack.dtrtri(factor, lower=1)
        # tr(w AbAbᵀ (n_b r I + w AbAbᵀ)⁻¹)
        self._freedom = float(n_b - n_b * r * np.vdot(inverse, inverse))

    def largest(
        self, k: int, extra: FloatArray | None = None, without: FloatArray | None = None
    ) -> Solution:
        """Return the ``k`` filters of the largest contrast; see `contrast.steering.Problem`."""
        if extra is not None:
            return self._loaded(extra).largest(k, without=without)
        kernel, outputs = self._kernel, None
        if without is not None:
            # With T = Af Σ^-½, Y = Af G the outputs and P = TᵀY(YᵀKY)^-½, which spans Σ^-½ R_f G,
            #   T (I - PPᵀ) Tᵀ = K - KY (YᵀKY)⁻¹ YᵀK.
            outputs = self._a_f.outputs(self._root * without)
            times = kernel @ outputs
            solved = np.linalg.solve(outputs.T @ times, times.T)
            kernel = kernel - times @ solved
        values, a = top_dense(np.array(kernel, order="F"), k)
        check_rank(values, len(self._root), k)
        if outputs is not None:
            a = a - outputs @ (solved @ a)
        a /= np.sqrt(values)
        target = self._a_f.combine(a)
        b = -self.rule.weight * (self._solved @ a)
        filters = (target + self._a_b.combine(b)) / (self.rule.ridge * self._root)
        return Solution(filters, target * self._root, values / self._n_f)  # W = ΣF

    def loudness(self, alpha: float, units: FloatArray) -> float:
        """Return the largest eigenvalue of a difference: see `cpcapp.contrast.steering.Problem`."""
        n = len(units)
        difference = self._difference(alpha, units)
        found = rules.lanczos_largest(difference, n, restarts=10 * n, basis=8)
        if found is None:
            raise _not_converged()
        return found

    def loudest(self, k: int, alpha: float, units: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the largest eigenpairs of a difference: see `cpcapp.contrast.steering.Problem`."""
        n = len(units)
        operator = LinearOperator((n, n), self._difference(alpha, units), dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(n)
        try:
            # A small basis: each vector is as long as there are features.
            basis = min(n, max(2 * k + 2, 8))
            values, vectors = eigsh(operator, k, which="LA", v0=start, ncv=basis, tol=1e-10)
        except ArpackNoConvergence:
            raise _not_converged() from None
        order = np.argsort(values)[::-1]
        return values[order], vectors[:, order] / np.sqrt(units)[:, None]

    def restrict(self, filters: FloatArray) -> Solution:
        """Solve the problem within the span of filters."""
        outputs = self._a_f.outputs(self._root * filters)
        r_f_filters = self._root * self._a_f.combine(outputs) / self._n_f
        inside = self._a_b.outputs(self._root * filters)
        loaded = filters.T @ (self.rule.ridge * self.rule.units[:, None] * filters)
        sigma = self.rule.weight / self._n_b * (inside.T @ inside) + loaded
        return restricted(filters, outputs.T @ outputs / self._n_f, r_f_filters, sigma)

    def freedom(self, extra: FloatArray | None = None) -> float:
        """Return the effective number of parameters that filters take from the background."""
        return self._freedom if extra is None else self._loaded(extra)._freedom

    def _loaded(self, extra: FloatArray) -> DualProblem:
        """Return the problem with more on the diagonal, in units that make all of it 1."""
        units = self.rule.ridge * self.rule.units + extra
        return DualProblem(*self._moments, LoadingRule(self.rule.weight, 1.0, units))

    def _difference(self, alpha: float, units: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return what multiplies ``R_f - αΣ``, in ``units``, with a vector."""
        rule, scale = self.rule, np.sqrt(self.rule.units / units)

        def times(v: FloatArray) -> FloatArray:
            x = scale * v.ravel()
            loaded = rule.weight * self._a_b.covariance_times(x) + rule.ridge * x
            return np.asarray(scale * (self._a_f.covariance_times(x) - alpha * loaded))

        return times


def _not_converged() -> ValueError:
    return ValueError(
        "loading='auto' found no loud directions (the eigenvalues lie too close together); use "
        "loading='likelihood'"
    )


class SampleRows:
    """Centred rows in given units, dense or sparse: ``(X - 1·meanᵀ) / √units``.

    With weights, rows are multiplied by their roots, and made dense. The mean weight is then 1.
    """

    def __init__(self, moments: Moments, units: FloatArray) -> None:
        root = np.sqrt(units)
        assert moments.mean is not None
        if all(sp.issparse(block) for block in moments._rows) and not moments.is_weighted:
            stacked = sp.csr_array(sp.vstack(moments._rows, format="csr"))
            shifted, shift = centre_full_columns(stacked)
            self.rows: Any = sp.csr_array(shifted.multiply(1.0 / root))
            self.offset = (moments.mean - shift) / root
        else:
            self.rows = moments.centred_rows()
            self.rows *= np.sqrt(len(self.rows) / moments.total_weight)
            self.rows /= root
            self.offset = np.zeros_like(root)

    def gram(self, other: SampleRows) -> FloatArray:
        """Return all inner products, (n, n_other)."""
        product = self.rows @ other.rows.T
        inner: FloatArray = product.toarray() if sp.issparse(product) else np.asarray(product)
        if sp.issparse(self.rows) or sp.issparse(other.rows):
            # (X - 1m'ᵀ)(Y - 1l'ᵀ)ᵀ = XYᵀ - (Xl')1ᵀ - 1(Ym')ᵀ + m'ᵀl', with 0 for a dense side.
            inner -= (self.rows @ other.offset)[:, None]
            inner -= other.rows @ self.offset
            inner += self.offset @ other.offset
        return inner

    def outputs(self, filters: FloatArray) -> FloatArray:
        """Return ``rows filters``, (n, k)."""
        return np.asarray(self.rows @ filters) - self.offset @ filters

    def covariance_times(self, v: FloatArray) -> FloatArray:
        """Return ``rowsᵀ rows v / n``, (n_features,)."""
        outputs = self.outputs(v)
        return self.combine(outputs[:, None])[:, 0] / len(outputs)

    def combine(self, weights: FloatArray) -> FloatArray:
        """Return ``rowsᵀ weights``, (n_features, k)."""
        total = np.asarray(self.rows.T @ weights)
        if sp.issparse(self.rows):
            total -= np.multiply.outer(self.offset, weights.sum(axis=0))
        return total
