"""The planes of PCA, of cPCA at many α, and of cPCA++: filters, eigenvalues, top features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.contrast.solution import InsufficientRankError, rank_features
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.moments.moments import Moments
from cpcapp.tables.messages import TableError
from cpcapp.tables.model import FloatArray, TableModel
from cpcapp.tables.reduce import fit_model
from cpcapp.tables.sample_sets import SampleSet

N_COMPONENTS = 2
_TOP = 10


@dataclass(frozen=True)
class MethodPlanes:
    """The components of the three methods.

    Attributes
    ----------
    pca, cpca, plus : TableModel
        That of cPCA is at the automatic α.
    alphas : ndarray of shape (n_alphas,)
    sweep : ndarray of shape (n_alphas, 2, n_features)
        Aligned filters of cPCA.
    eigenvalues : ndarray of shape (n_alphas, 2)
        Of cPCA.
    automatic : int
        Index of the automatic α.
    offered : list of int
        Indices of the α that differ most.
    shown_features : list of str
        Top features whose values are written for each point.
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
    """Fit the three methods to the same rows and columns.

    ``n_alphas`` and ``standardize`` are as for `compare_methods`.
    """
    alphas = np.concatenate([[0.0], np.logspace(-1, 3, n_alphas - 1)])
    cpca = CPCA(N_COMPONENTS, alpha="clustering", alphas=alphas)
    try:
        models = {
            method: fit_model(
                estimator,
                target,
                None if method == "pca" else background,
                method=method,
                standardize=standardize,
            )
            for method, estimator in (
                ("pca", CPCAPlusPlus(N_COMPONENTS)),
                ("cpca", cpca),
                ("cpca++", CPCAPlusPlus(N_COMPONENTS)),
            )
        }
    except InsufficientRankError as error:
        raise TableError(
            f"{target.selection.table.name}: the chosen columns have only {error.rank} direction "
            "that varies; 2 are needed",
            "choose other {columns}",
        ) from error
    automatic = int(np.flatnonzero(cpca.alphas_ == cpca.alpha_)[0])
    offered = np.flatnonzero(np.isin(cpca.alphas_, cpca.selected_alphas_))
    shown = [
        name
        for model in (models["cpca++"], models["pca"], models["cpca"])
        for top in rank_features(model.components * target.deviation, model.features, 3)
        for name, _ in top
    ]
    return MethodPlanes(
        models["pca"],
        models["cpca"],
        models["cpca++"],
        cpca.alphas_,
        align_subspaces(cpca.subspaces_, automatic, target.standardized_moments()),
        cpca.subspace_eigenvalues_,
        automatic,
        offered.tolist(),
        list(dict.fromkeys(shown)),
    )


def align_subspaces(subspaces: NDArray[np.float64], start: int, target: Moments) -> FloatArray:
    """Turn each basis within its subspace so that points move little from one to the next.

    Parameters
    ----------
    subspaces : ndarray of shape (n, k, n_features)
        Orthonormal rows.
    start : int
        This one stays as it is, and the others follow from it in both directions.
    target : Moments
        Of the points.

    Returns
    -------
    ndarray of shape (n, k, n_features)
        Other bases of the same subspaces.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import Moments
    >>> turned = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]])
    >>> align_subspaces(turned, 0, Moments.from_covariance(np.diag([3.0, 2.0, 1.0]), 50))[1]
    array([[1., 0., 0.],
           [0., 1., 0.]])
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
            "eigenvalues": _digits(planes.plus.eigenvalues),
            "top_features": tops(planes.plus.components),
        },
    }


def _digits(values: Any) -> Any:
    """Return numbers with six digits, in types that JSON knows."""
    if np.ndim(values):
        return [_digits(value) for value in values]
    return float(f"{float(values):.6g}")
