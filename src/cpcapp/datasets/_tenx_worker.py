"""The process that reads counts of genes from HDF5; see `cpcapp.datasets.tenx`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from cpcapp._io.worker import Arrays, answer_requests
from cpcapp.datasets import tenx


def main() -> None:
    """Read the files that requests name."""
    answer_requests(_read, lambda: import_module("h5py"))


def _read(request: dict[str, Any], _: Arrays) -> tuple[dict[str, Any], Arrays]:
    cells = tenx.read_hdf5(Path(request["path"]), request["genome"], request["feature_type"])
    names = ("barcodes", "gene_ids", "gene_names")
    message = {"shape": cells.counts.shape, **{name: getattr(cells, name) for name in names}}
    return message, [cells.counts.data, cells.counts.indices, cells.counts.indptr]
