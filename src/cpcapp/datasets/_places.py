"""Where the files of a data set are looked for."""

from __future__ import annotations

import os
from pathlib import Path

PathLike = str | os.PathLike[str]


class DataNotFoundError(FileNotFoundError):
    """A file of a data set is not here; the message says where to get it and where to put it."""


def local_places(name: str, data_home: PathLike | None = None) -> list[Path]:
    """Return where ``name``, a path within a data folder, may lie.

    ``data_home`` if it is given, otherwise the folder named by ``CPCAPP_DATA``.

    Examples
    --------
    >>> [place.as_posix() for place in local_places("mnist/mnist.npz", "/data")]
    ['/data/mnist/mnist.npz']
    """
    home = data_home if data_home is not None else os.environ.get("CPCAPP_DATA")
    return [Path(home) / name] if home else []
