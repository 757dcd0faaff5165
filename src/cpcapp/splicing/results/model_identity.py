"""Which model a result is of."""

from __future__ import annotations

import os
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

from cpcapp._text import printable
from cpcapp.splicing import model_file
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.results.entries import hash_file


def open_model(
    model: SpliceLocalizer | str | os.PathLike[str] | None = None,
) -> tuple[SpliceLocalizer, dict[str, str]]:
    """Return a localizer, and what distinguishes it from others.

    Parameters
    ----------
    model : SpliceLocalizer or path, optional
        The one that comes with the package by default.

    Returns
    -------
    localizer : SpliceLocalizer
    identity : dict
        With ``name``, ``version`` and ``sha256`` of its file: another one of the same name that
        was trained later has another. Of a localizer it is that of the file it would be saved as.

    Raises
    ------
    ModelError
        If the file can't be used.

    Examples
    --------
    >>> localizer, identity = open_model()
    >>> identity["name"], len(identity["sha256"])
    ('default', 64)
    """
    if isinstance(model, SpliceLocalizer):
        localizer, sha256 = model, _hash_localizer(model)
    elif model is None:
        localizer = model_file.load_model()
        with as_file(files("cpcapp.splicing.models") / "default.safetensors") as path:
            sha256 = hash_file(path)
    else:
        try:
            localizer = model_file.load_model(model)
        except OSError as error:
            reason = error.strerror or str(error)
            raise model_file.ModelError(
                f"can't use the model {printable(model)}: {reason}"
            ) from error
        sha256 = hash_file(Path(model))
    return localizer, {"name": localizer.name, "version": localizer.version, "sha256": sha256}


def _hash_localizer(localizer: SpliceLocalizer) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model_file.save_model(localizer, path)
        return hash_file(path)
