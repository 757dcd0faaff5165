"""Pictures as PNG files."""

from __future__ import annotations

import os

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.files import atomic_write


def write_png(path: str | os.PathLike[str], picture: NDArray[np.uint8]) -> None:
    """Write an RGB or grey picture.

    Parameters
    ----------
    path : path
    picture : ndarray of shape (height, width, 3) or (height, width), uint8

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "red.png"
    >>> write_png(path, np.array([[[255, 0, 0]]], dtype=np.uint8))
    >>> with Image.open(path) as file:
    ...     file.getpixel((0, 0))
    (255, 0, 0)
    """
    if picture.ndim == 3:
        picture = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
    _, data = cv2.imencode(".png", picture)
    with atomic_write(path) as file:
        file.write(bytes(data))
