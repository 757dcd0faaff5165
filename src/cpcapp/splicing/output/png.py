"""Pictures as PNG files."""

from __future__ import annotations

import os

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.files import atomic_write


def write_png(path: str | os.PathLike[str], picture: NDArray[np.uint8]) -> None:
    """Write an RGB or grey picture."""
    if picture.ndim == 3:
        picture = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
    _, data = cv2.imencode(".png", picture)
    with atomic_write(path) as file:
        file.write(bytes(data))
