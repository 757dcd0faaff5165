"""AnnData files, read by a process of its own; see `cpcapp._io.h5ad_worker`."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from cpcapp._io.hdf5_files import reading_seconds
from cpcapp._io.worker import Worker
from cpcapp.tables.messages import TableError, quote_names, require_package
from cpcapp.tables.reading.arrays import ArrayTable


def h5ad_table(
    path: Path, name: str, layer: str | None, mask_var: str | None = "auto"
) -> ArrayTable:
    """Open an AnnData file: genes are features, `obs` annotates the cells, X stays on disk.

    Parameters
    ----------
    path : Path
    name : str
        For messages.
    layer : str, optional
        Layer to read instead of X.
    mask_var : str or None, default="auto"
        Genes that are features by default; see `cpcapp._genes.select_genes`.
    """
    if find_spec("anndata") is None:  # not imported here: that takes longer than reading
        require_package("anndata", "tables")
    reader = _Reader(path, name)
    found, arrays = reader.ask(
        {"path": str(path.absolute()), "layer": layer, "mask_var": mask_var},
        {
            "layer": lambda text: _no_layer(name, layer, text),
            "no X": lambda _: TableError(
                f"{name} has no X; choose a layer with {path.name}::LAYER"
            ),
            "genes": lambda text: TableError(f"{name}: {text}", "choose the genes with {mask_var}"),
        },
    )
    used, *numbers = arrays
    cells = found["cells"]
    annotations: dict[str, Any] = {cells: np.array(found["cell_names"], dtype=object)}
    for column, values in found["columns"]:
        annotations[column] = numbers.pop(0) if values is None else np.array(values, dtype=object)
    genes = found["genes"]
    chosen = [genes[index] for index in np.flatnonzero(used)]
    matrix = _ServedMatrix(reader, tuple(found["shape"]))
    table = ArrayTable(name, matrix, genes, annotations, default_features=chosen)
    table.row_names, table.mask_column = cells, found["mask_column"]
    return table


def _no_layer(name: str, layer: str | None, text: str) -> TableError:
    layers = quote_names(json.loads(text)) or "none"
    return TableError(f"{name}: there is no layer {layer!r}; there are: {layers}")


class _ServedMatrix:
    """The matrix of the file: rows are asked for when they are taken."""

    def __init__(self, reader: _Reader, shape: tuple[int, int]) -> None:
        self.reader, self.shape = reader, shape

    def __getitem__(self, rows: slice) -> Any:
        _, parts = self.reader.ask({"start": rows.start, "stop": rows.stop})
        if len(parts) == 1:
            return parts[0]
        import scipy.sparse as sp

        return sp.csr_array(tuple(parts), shape=(rows.stop - rows.start, self.shape[1]))


class _Reader:
    """A process that has opened the file; it ends with this object."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self.limit = reading_seconds(path)
        self.worker = Worker("cpcapp._io.h5ad_worker", forked=True)
        if not self.worker.is_ready:
            raise TableError(f"{name} can't be read: the process for it did not start")

    def ask(
        self, request: dict[str, Any], errors: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], list[Any]]:
        """Return the answer to a request, or raise `TableError`.

        Parameters
        ----------
        request : dict
        errors : dict of str to callable of str, optional
            Make the errors of some kinds.
        """
        answer = self.worker.ask(request, self.limit)
        if answer is None:
            raise TableError(
                f"{self.name} is damaged: reading it was stopped, because it crashed or took more "
                f"than {self.limit:.0f} seconds; use an undamaged copy"
            )
        message, arrays = answer
        if "error" in message:
            make = (errors or {}).get(message["kind"])
            if make is not None:
                raise make(message["error"])
            raise TableError(f"{self.name} is not a readable AnnData file: {message['error']}")
        return message, arrays
