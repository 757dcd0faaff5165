"""The process that reads counts of genes from HDF5; see `cpcapp.datasets.tenx`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from cpcapp._io.worker import Arrays, open_streams, receive, send
from cpcapp.datasets import tenx


def prepare() -> None:
    """Import what takes longest."""
    import_module("h5py")


def main() -> None:
    """Read the files that messages name."""
    source, target = open_streams()
    prepare()
    send(target, {"ready": True})
    while (received := receive(source)) is not None:
        request = received[0]
        message: dict[str, Any] = {}
        arrays: Arrays = ()
        try:
            cells = tenx.read_hdf5(
                Path(request["path"]), request["genome"], request["feature_type"]
            )
        except (ValueError, MemoryError) as error:
            message["error"] = str(error) or "it needs more memory than a file of its size should"
        else:
            names = ("barcodes", "gene_ids", "gene_names")
            message = {name: getattr(cells, name) for name in names}
            message["shape"] = cells.counts.shape
            arrays = [cells.counts.data, cells.counts.indices, cells.counts.indptr]
        send(target, message, arrays)
