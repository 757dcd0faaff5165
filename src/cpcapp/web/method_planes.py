"""The planes of PCA, of cPCA at many α, and of cPCA++: filters, eigenvalues, top features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.text import number
from cpcapp.contrast.difference import solve_difference
from cpcapp.contrast.solution import InsufficientRankError, rank_features
from cpcapp.moments.moments import Moments
from cpcapp.moments.rows import FloatArray
from cpcapp.tables.messages import TableError
from cpcapp.tables.model import TableModel
from cpcapp.tables.reduce import fit_model
from cpcapp.tables.sample_sets import SampleSet

N_COMPONENTS = 2
_TOP = 10
# Contrast parameters that `cpcapp.CPCA` chooses from.
_BOUNDS = (3.0, 12.0, 48.0)


@dataclass(frozen=True)
class MethodPlanes:
    """The components of the three methods; those of ``cpca`` are at the automatic α.

    ``sweep`` (n_alphas, 2, n_features) and ``eigenvalues`` (n_alphas, 2) are of cPCA at all α;
    ``automatic`` and ``offered`` are indices of α. The values of ``shown_features`` are drawn.
    """

    pca: TableModel
    cpca: TableModel
    plus: TableModel
    alphas: FloatArray
    sweep: FloatArray
    eigenvalues: FloatArray
    automatic: int
    offered: list[int]
    shown_features: list[str]

    @property
    def filters(self) -> FloatArray:
        """PCA, cPCA at the automatic α, and cPCA++, in rows."""
        return np.concatenate([m.components for m in (self.pca, self.cpca, self.plus)])


def fit_planes(
    target: SampleSet, background: SampleSet, n_alphas: int, standardize: str
) -> MethodPlanes:
    """Fit the three methods to the same rows and columns."""
    alphas = np.unique([0.0, *np.logspace(-1, 3, n_alphas - 1), *_BOUNDS])
    try:
        pca, cpca, plus = (
            fit_model(
                target,
                None if method == "pca" else background,
                N_COMPONENTS,
                method=method,
                standardize=standardize,
            )
            for method in ("pca", "cpca", "cpca++")
        )
    except InsufficientRankError as error:
        raise TableError(
            f"{target.selection.table.name}: the chosen columns have only {error.rank} direction "
            "that varies; 2 are needed",
            "choose other {columns}",
        ) from error
    # cPCA as `cpcapp.CPCA` chooses α for it: in units of the mean variance of both sets.
    moments = target.scaled_moments(), background.scaled_moments()
    units = np.sqrt((moments[0].variance() + moments[1].variance()) / 2.0)
    units[units == 0.0] = 1.0
    moments = moments[0].rescaled(units), moments[1].rescaled(units)
    values, filters = solve_difference(*moments, N_COMPONENTS, alphas)
    automatic = int(np.abs(alphas - cpca.info["alpha"]).argmin())
    subspaces = filters.transpose(0, 2, 1)
    subspaces[automatic] = cpca.components * units
    shown = [
        name
        for model in (plus, pca, cpca)
        for top in rank_features(model.components * target.deviation, model.features, 3)
        for name, _ in top
    ]
    return MethodPlanes(
        pca,
        cpca,
        plus,
        alphas,
        align_subspaces(subspaces, automatic, moments[0]) / units,
        values,
        automatic,
        np.flatnonzero(np.isin(alphas, _BOUNDS)).tolist(),
        list(dict.fromkeys(shown)),
    )


def align_subspaces(subspaces: NDArray[np.float64], start: int, target: Moments) -> FloatArray:
    """Turn each basis within its subspace so that points move little from one to the next.

    The basis at ``start`` stays as it is, and the others follow from it in both directions.
    """
    aligned = np.array(subspaces, dtype=np.float64)
    if target.is_thin:
        rows = target.centred_rows()
        products = (aligned @ rows.T) @ rows / len(rows)
    else:
        products = aligned @ target.covariance()
    forward, backward = range(start + 1, len(aligned)), range(start - 1, -1, -1)
    for order, step in ((forward, -1), (backward, 1)):
        for i in order:
            # min Σ‖R U_i x - A x‖² over points x, and rotations and reflections R (Procrustes):
            # R = PQᵀ with A R_f U_iᵀ = P S Qᵀ
            p, _, q = np.linalg.svd(aligned[i + step] @ products[i].T)
            aligned[i] = (p @ q) @ aligned[i] + 0.0  # without negative zeros
    return aligned


def describe_planes(planes: MethodPlanes, target: SampleSet) -> dict[str, Any]:
    """Return titles, eigenvalues and top features of each method, in types that JSON knows."""
    total = float((target.deviation**2).sum())

    def tops(filters: FloatArray) -> list[list[dict[str, Any]]]:
        ranked = rank_features(filters * target.deviation, target.features, _TOP)
        return [[{"feature": n, "weight": _digits(w)} for n, w in top] for top in ranked]

    return {
        "pca": {
            "title": "PCA",
            "eigenvalues": _digits(planes.pca.eigenvalues),
            "variance_shares": _digits(planes.pca.eigenvalues / total if total else [0.0, 0.0]),
            "top_features": tops(planes.pca.components),
        },
        "cpca": {
            "title": "cPCA",
            "alphas": _digits(planes.alphas),
            "automatic": planes.automatic,
            "offered": planes.offered,
            "eigenvalues": _digits(planes.eigenvalues),
            "top_features": [tops(filters) for filters in planes.sweep],
        },
        "cpca++": {
            "title": "cPCA++",
            "contrasts": [number(value) for value in planes.plus.contrast.contrast],
            "top_features": tops(planes.plus.components),
        },
    }


def _digits(values: Any) -> Any:
    """Return numbers with six digits, in types that JSON knows."""
    if np.ndim(values):
        return [_digits(value) for value in values]
    return float(f"{float(values):.6g}")
