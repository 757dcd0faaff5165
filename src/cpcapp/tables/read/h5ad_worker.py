"""The process that reads an AnnData file, so that a damaged one can do no harm to another.

`cpcapp.tables.read.h5ad` asks it for the rows, and ends it if it takes too long.
"""

from __future__ import annotations

import json
import warnings
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._genes import select_genes
from cpcapp._io.hdf5 import Hdf5Error, check_contents
from cpcapp._io.worker import Arrays, answer_requests
from cpcapp.moments.sparse import check_indices, check_pointers, check_sparse

# Read row by row.
_STREAMED = ("/X", "/raw/X", "/X/data", "/X/indices", "/raw/X/data", "/raw/X/indices")


def main() -> None:
    """Open the file that the first request names, then send the rows that others ask for."""
    opened: list[Any] = []

    def answer(request: dict[str, Any], _: Arrays) -> tuple[dict[str, Any], Arrays]:
        if "path" in request:
            matrix, message, arrays = _open(**request)
            opened[:] = [matrix]
            return message, arrays
        rows = opened[0][request["start"] : request["stop"]]
        # One array if it is dense, three if it is sparse.
        return {}, [rows] if isinstance(rows, np.ndarray) else [
            rows.data,
            rows.indices,
            rows.indptr,
        ]

    answer_requests(answer, lambda: import_module("anndata"))


def _open(
    path: str, layer: str | None, mask_var: str | None
) -> tuple[Any, dict[str, Any], list[NDArray[Any]]]:
    import anndata

    check_contents(path, _STREAMED)
    with warnings.catch_warnings():
        # Files of older versions can be read.
        warnings.simplefilter("ignore")
        adata = anndata.read_h5ad(path, backed="r")
    if layer is not None and layer not in adata.layers:
        raise Hdf5Error(json.dumps([str(name) for name in adata.layers][:20]), "layer")
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise Hdf5Error("there is none", "no X")
    matrix = _checked(matrix)
    if matrix.shape != (len(adata.obs_names), len(adata.var_names)):
        raise ValueError(
            f"a matrix of {matrix.shape[0]} cells and {matrix.shape[1]} genes has names of "
            f"{len(adata.obs_names)} and {len(adata.var_names)}"
        )
    try:
        used, column = select_genes(adata.var, mask_var)
    except ValueError as error:
        raise Hdf5Error(str(error), "genes") from error
    columns: list[tuple[str, list[Any] | None]] = []
    arrays: list[NDArray[Any]] = [used]
    for name in adata.obs.columns:
        values = adata.obs[name]
        if isinstance(values.dtype, np.dtype) and values.dtype.kind in "biuf":
            columns.append((str(name), None))
            arrays.append(values.to_numpy())
        elif values.dtype.kind in "biuf":  # integers with missing values
            whole = values.astype(object).where(values.notna(), None)
            columns.append(
                (str(name), [getattr(value, "item", lambda v=value: v)() for value in whole])
            )
        else:
            columns.append((str(name), values.astype(str).tolist()))
    message = {
        "shape": matrix.shape,
        "cells": str(adata.obs_names.name or "cell"),
        "cell_names": adata.obs_names.astype(str).tolist(),
        "genes": [str(gene) for gene in adata.var_names],
        "mask_column": column,
        "columns": columns,
    }
    return matrix, message, arrays


def _checked(matrix: Any) -> Any:
    """Return a matrix whose rows can be taken without harm; in memory only where it must be."""
    if getattr(matrix, "format", "") == "csr" and hasattr(matrix, "group"):
        return _CsrOnDisk(matrix.group, matrix.shape)
    if hasattr(matrix, "to_memory"):
        # Rows of compressed columns can't be read alone.
        matrix = matrix.to_memory()
    if hasattr(matrix, "indptr"):
        check_sparse(matrix)
        matrix = matrix.tocsr()
        kind = matrix.data.dtype.kind
    else:
        kind = matrix.dtype.kind
    if len(matrix.shape) != 2 or kind not in "biuf":
        raise ValueError(f"its matrix has shape {matrix.shape} and dtype {matrix.dtype}")
    return matrix


class _CsrOnDisk:
    """Rows of a sparse matrix, of which only the pointers are in memory."""

    def __init__(self, group: Any, shape: tuple[int, int]) -> None:
        self.data, self.indices, self.shape = group["data"], group["indices"], tuple(shape)
        self.indptr = np.asarray(group["indptr"][:])
        if self.data.ndim != 1 or self.data.dtype.kind not in "biuf":
            raise ValueError(f"its data is {self.data.dtype} of shape {self.data.shape}")
        check_pointers(self.indptr, self.shape[0], len(self.data))
        if self.indices.shape != self.data.shape:
            raise ValueError(f"it has {len(self.data)} values and {len(self.indices)} indices")

    def __getitem__(self, rows: slice) -> Any:
        import scipy.sparse as sp

        pointers = self.indptr[rows.start : rows.stop + 1].astype(np.int64)
        first, last = int(pointers[0]), int(pointers[-1])
        indices = self.indices[first:last]
        try:
            check_indices(indices, last - first, self.shape[1])
        except ValueError as error:
            raise ValueError(f"rows {rows.start + 1} to {rows.stop}: {error}") from error
        parts = self.data[first:last], indices, pointers - first
        return sp.csr_array(parts, shape=(rows.stop - rows.start, self.shape[1]))
