"""The process that reads AnnData files for `cpcapp.datasets.read_10x`."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import scipy.sparse as sp

from cpcapp.datasets.tenx import CellCounts, cells_of, serve
from cpcapp.moments.sparse import check_sparse


def main() -> None:
    """Answer requests."""
    serve(_read_h5ad, "anndata")


def _read_h5ad(path: str, **_: Any) -> CellCounts:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # files of older versions can be read
        adata = import_module("anndata").read_h5ad(path)
    if adata.X is None:
        raise ValueError("it has no X")
    if sp.issparse(adata.X):
        check_sparse(adata.X)
    names = adata.var_names.to_series()
    # A gene without an id has a missing value.
    ids = adata.var.get("gene_ids", names).astype(object).fillna("").astype(str)
    return cells_of(sp.csr_array(adata.X), adata.obs_names.tolist(), ids, names)
