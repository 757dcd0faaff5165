"""AnnData files, read by a process of its own: a damaged one can do no harm to this one."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp._genes import select_genes
from cpcapp._io.hdf5 import Hdf5Process, check_contents
from cpcapp._io.packages import require_packages
from cpcapp._io.worker import Answer, Arrays, WorkerError, answer_requests
from cpcapp.moments.sparse import check_pointers, check_sparse
from cpcapp.tables.messages import TableError, quote_names
from cpcapp.tables.read.arrays import ArrayTable

# Read row by row.
_STREAMED = ("/X", "/raw/X", "/X/data", "/X/indices", "/raw/X/data", "/raw/X/indices")


def h5ad_table(
    path: Path, name: str, layer: str | None, mask_var: str | None = "auto"
) -> ArrayTable:
    """Open an AnnData file: genes are features, `obs` annotates the cells, X stays on disk."""
    require_packages("tables", "anndata")
    matrix = _ServedMatrix(path, name)
    request = {"path": str(path.absolute()), "layer": layer, "mask_var": mask_var}
    facts, (used, *numbers) = matrix.ask(request)
    matrix.shape = tuple(facts["shape"])
    cells, genes = facts["cells"], facts["genes"]
    annotations: dict[str, Any] = {cells: np.array(facts["cell_names"], dtype=object)}
    for column, values in facts["columns"]:
        annotations[column] = numbers.pop(0) if values is None else np.array(values, dtype=object)
    chosen = [genes[index] for index in np.flatnonzero(used)]
    table = ArrayTable(name, matrix, genes, annotations, default_features=chosen)
    table.row_names, table.mask_column = cells, facts["mask_column"]
    return table


class _ServedMatrix:
    """The matrix of the file: rows are asked for when they are taken."""

    shape: tuple[int, int]

    def __init__(self, path: Path, name: str) -> None:
        self.name, self.process = name, Hdf5Process("cpcapp.tables.read.h5ad", path)

    def __getitem__(self, rows: slice) -> Any:
        _, parts = self.ask({"start": rows.start, "stop": rows.stop})
        if len(parts) == 1:
            return parts[0]
        return sp.csr_array(tuple(parts), shape=(rows.stop - rows.start, self.shape[1]))

    def ask(self, request: dict[str, Any]) -> Answer:
        """Return the answer to a request, or raise `TableError`."""
        try:
            return self.process.ask(request)
        except WorkerError as error:
            if error.kind == "layer":
                raise TableError(f"{self.name}: {error}") from error
            if error.kind == "genes":
                advice = "choose the genes with {mask_var}"
                raise TableError(f"{self.name}: {error}", advice) from error
            raise TableError(f"{self.name} is not a readable AnnData file: {error}") from error


def main() -> None:
    """Within the process: open the file of the first request, then send the rows asked for."""
    matrix: Any = None

    def answer(request: dict[str, Any], _: Arrays) -> tuple[dict[str, Any], Arrays]:
        nonlocal matrix
        if "path" in request:
            matrix, message, arrays = _open(**request)
            return message, arrays
        rows = matrix[request["start"] : request["stop"]]
        if not sp.issparse(rows):
            return {}, [rows]
        check_sparse(rows)
        return {}, [rows.data, rows.indices, rows.indptr]

    answer_requests(answer, lambda: import_module("anndata"))


def _open(
    path: str, layer: str | None, mask_var: str | None
) -> tuple[Any, dict[str, Any], list[NDArray[Any]]]:
    import anndata

    check_contents(path, _STREAMED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # files of older versions can be read
        adata = anndata.read_h5ad(path, backed="r")
    if layer is not None and layer not in adata.layers:
        layers = quote_names([str(name) for name in adata.layers]) or "none"
        raise WorkerError(f"there is no layer {layer!r}; there are: {layers}", "layer")
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise WorkerError(f"it has no X; choose a layer with {Path(path).name}::LAYER", "layer")
    matrix = _checked(matrix)
    if matrix.shape != (len(adata.obs_names), len(adata.var_names)):
        raise ValueError(
            f"a matrix of {matrix.shape[0]} cells and {matrix.shape[1]} genes has names of "
            f"{len(adata.obs_names)} and {len(adata.var_names)}"
        )
    try:
        used, column = select_genes(adata.var, mask_var)
    except ValueError as error:
        raise WorkerError(str(error), "genes") from error
    columns: list[tuple[str, list[Any] | None]] = []
    arrays: list[NDArray[Any]] = [used]
    for name, values in adata.obs.items():
        texts = None
        if values.dtype.kind not in "biuf":
            texts = values.astype(str).tolist()
        elif isinstance(values.dtype, np.dtype):
            arrays.append(values.to_numpy())
        else:  # integers with missing values
            texts = values.to_numpy(dtype=object, na_value=None).tolist()
        columns.append((str(name), texts))
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
        check_pointers(matrix.group["indptr"][:], matrix.shape[0], len(matrix.group["data"]))
    elif hasattr(matrix, "to_memory"):
        matrix = matrix.to_memory()  # rows of compressed columns can't be read alone
    if sp.issparse(matrix):
        check_sparse(matrix)
        matrix = matrix.tocsr()
    if len(matrix.shape) != 2 or matrix.dtype.kind not in "biuf":
        raise ValueError(f"its matrix has shape {matrix.shape} and dtype {matrix.dtype}")
    return matrix
