"""The paper's Example 1: a faint direction of the target under a loud one of both sets."""

from __future__ import annotations

import numpy as np

from cpcapp.contrast.difference import solve_difference
from cpcapp.contrast.solve import solve_contrast
from cpcapp.datasets import needle as needle_moments
from cpcapp.experiments.results import Progress, Result, Settings, Table, result_of
from cpcapp.moments import Moments
from cpcapp.moments.rows import FloatArray

GAMMA, BETA, EPSILON, RHO = 100.0, 50.0, 1.0, 1e-3
ALPHAS = (0.0, 0.1, 0.3, 0.45, 0.48, 0.5, 0.6, 1.0, 10.0, 1e3, 1e4, 1e5)
_FEATURES, _SAMPLES = 10, 1000


def run(settings: Settings, progress: Progress) -> Result:
    """Compare the first filter of each method with the direction c that is to be found."""
    target, background, _, c = needle_moments(
        _FEATURES, gamma=GAMMA, beta=BETA, epsilon=EPSILON, rho=RHO, n_samples=_SAMPLES
    )
    rng = np.random.default_rng(settings.seed)
    exact = _angles(c, target, background)
    sampled = _angles(c, *(_draw(moments, rng) for moments in (target, background)))
    progress(1.0)
    works = min(alpha for alpha in ALPHAS if exact[f"cPCA, α = {alpha:g}"] < 1.0)
    return result_of(
        "needle",
        data=f"R_b = γaaᵀ + ρI and R_f = βaaᵀ + εccᵀ with γ = {GAMMA:g}, β = {BETA:g}, ε = "
        f"{EPSILON:g}, ρ = {RHO:g} and {_FEATURES} features: as matrices, and as {_SAMPLES:,} "
        "Gaussian samples of each set.",
        findings=(
            f"cPCA++ finds c to {exact['cPCA++']:.1f}° ({sampled['cPCA++']:.1f}° from samples), "
            f"and with its default loading to {exact['cPCA++, default loading']:.1f}° "
            f"({sampled['cPCA++, default loading']:.1f}°). PCA finds a.",
            f"With exact matrices cPCA finds c from about α = β/γ = {BETA / GAMMA:g} on (here at "
            f"{works:g}) and a below. From samples it takes a larger α, as chance alone leaves "
            "some of a.",
        ),
        tables=(
            Table(
                "Angle of the first filter with c, in degrees",
                ("method", "exact matrices", f"{_SAMPLES:,} samples"),
                [(name, f"{exact[name]:.1f}", f"{sampled[name]:.1f}") for name in exact],
            ),
        ),
        numbers={"beta over gamma": BETA / GAMMA, "exact": exact, "sampled": sampled},
    )


def _angles(c: FloatArray, target: Moments, background: Moments) -> dict[str, float]:
    """Return how far from c the first filter of each method is, in degrees."""
    _, of_cpca = solve_difference(target, background, 1, ALPHAS)
    filters = {"PCA": solve_contrast(target, None, 1).filters}
    filters |= {f"cPCA, α = {alpha:g}": F for alpha, F in zip(ALPHAS, of_cpca, strict=True)}
    filters["cPCA++"] = solve_contrast(target, background, 1, loading="none").filters
    filters["cPCA++, default loading"] = solve_contrast(target, background, 1).filters
    # By its tangent, as the cosine can't see small angles.
    return {
        name: round(float(np.degrees(np.arctan2(np.linalg.norm(F - c * (c @ F)), abs(c @ F)))), 6)
        for name, F in ((name, F[:, 0]) for name, F in filters.items())
    }


def _draw(moments: Moments, rng: np.random.Generator) -> Moments:
    # By the symmetric root: eigenvectors of equal eigenvalues would depend on the machine.
    values, V = np.linalg.eigh(np.asarray(moments.covariance()))
    root = V * np.sqrt(np.maximum(values, 0.0)) @ V.T
    return Moments.of(rng.standard_normal((_SAMPLES, len(root))) @ root)
