"""AnnData files, read by a process of its own; see `cpcapp.tables.read.h5ad_worker`."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from cpcapp._io.hdf5 import Hdf5Error, Hdf5Process
from cpcapp._io.worker import Answer
from cpcapp.tables.messages import TableError, quote_names, require_package
from cpcapp.tables.read.arrays import ArrayTable


def h5ad_table(
    path: Path, name: str, layer: str | None, mask_var: str | None = "auto"
) -> ArrayTable:
    """Open an AnnData file: genes are features, `obs` annotates the cells, X stays on disk."""
    if find_spec("anndata") is None:  # not imported here: that takes longer than reading
        require_package("anndata", "tables")
    matrix = _ServedMatrix(path, name)
    request = {"path": str(path.absolute()), "layer": layer, "mask_var": mask_var}
    facts, (used, *numbers) = matrix.ask(request)
    matrix.shape = tuple(facts["shape"])
    cells = facts["cells"]
    annotations: dict[str, Any] = {cells: np.array(facts["cell_names"], dtype=object)}
    for column, values in facts["columns"]:
        annotations[column] = numbers.pop(0) if values is None else np.array(values, dtype=object)
    genes = facts["genes"]
    chosen = [genes[index] for index in np.flatnonzero(used)]
    table = ArrayTable(name, matrix, genes, annotations, default_features=chosen)
    table.row_names, table.mask_column = cells, facts["mask_column"]
    return table


class _ServedMatrix:
    """The matrix of the file: rows are asked for when they are taken."""

    shape: tuple[int, int]

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.process = Hdf5Process("cpcapp.tables.read.h5ad_worker", path)

    def __getitem__(self, rows: slice) -> Any:
        _, parts = self.ask({"start": rows.start, "stop": rows.stop})
        if len(parts) == 1:
            return parts[0]
        import scipy.sparse as sp

        return sp.csr_array(tuple(parts), shape=(rows.stop - rows.start, self.shape[1]))

    def ask(self, request: dict[str, Any]) -> Answer:
        """Return the answer to a request, or raise `TableError`."""
        try:
            return self.process.ask(request)
        except Hdf5Error as error:
            raise self._explain(error, request) from error

    def _explain(self, error: Hdf5Error, request: dict[str, Any]) -> TableError:
        if error.kind == "layer":
            layers = quote_names(json.loads(str(error))) or "none"
            return TableError(
                f"{self.name}: there is no layer {request['layer']!r}; there are: {layers}"
            )
        if error.kind == "no X":
            return TableError(f"{self.name} has no X; choose a layer with {self.path.name}::LAYER")
        if error.kind == "genes":
            return TableError(f"{self.name}: {error}", "choose the genes with {mask_var}")
        return TableError(f"{self.name} is not a readable AnnData file: {error}")
