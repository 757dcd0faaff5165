"""Which model a result is of."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cpcapp._io.tensor_file import read_format
from cpcapp.splicing import model as model_file
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.output.entries import hash_file


def open_model(
    model: SpliceLocalizer | str | os.PathLike[str] | None = None,
) -> tuple[SpliceLocalizer, dict[str, str]]:
    """Return a localizer, and what distinguishes it from others.

    ``model``: A localizer, the name of a model of the package, or the path of a file. Without it,
    the default model.

    ``identity``: With ``name``, ``version`` and ``sha256`` of its file: another one of the same
    name that was trained later has another. Of a localizer it is that of the file it would be saved
    as, and of one that was moved to a device that of the file it was read from.

    >>> localizer, identity = open_model("filters")
    >>> identity["name"], len(identity["sha256"])
    ('filters', 64)
    """
    if isinstance(model, SpliceLocalizer):
        localizer = model
        # On a device it is still the model of its file.
        kept = model.file_sha256 if model.device is not None else None
        sha256 = kept or _hash_localizer(model)
    else:
        try:
            localizer = read_model(model)
        except OSError as error:
            reason = error.strerror or str(error)
            raise model_file.ModelError(f"can't use the model: {reason}") from error
        # Of the bytes that it was read from: the file may be another one by now.
        assert localizer.file_sha256 is not None
        sha256 = localizer.file_sha256
    return localizer, {"name": localizer.name, "version": localizer.version, "sha256": sha256}


def read_model(model: str | os.PathLike[str] | None) -> SpliceLocalizer:
    """Read a model: one that `load_model` reads, or MFCN, which only networks know."""
    with model_file.find_model_file(model) as path:
        if read_format(path) != "cpcapp-mfcn":
            return model_file.load_model() if model is None else model_file.load_model(model)
        try:
            from cpcapp.splicing.networks.mfcn_localizer import read_localizer
        except ImportError as error:
            raise model_file.ModelError(
                f"{path} needs {error.name}; install it with: pip install 'cpcapp[torch]'"
            ) from error
        with model_file.model_errors(path):
            return read_localizer(path)


def _hash_localizer(localizer: SpliceLocalizer) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model_file.save_model(localizer, path)
        return hash_file(path)
