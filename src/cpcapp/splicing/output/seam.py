"""Where the seam of a photo is strongest."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.text import number


def find_strongest_seam(boundary: NDArray[np.float32], threshold: float) -> dict[str, Any] | None:
    """Return where a boundary map is highest, and the box of the piece of seam around it.

    ``threshold``: the piece is the connected part of at least this height or, if the map does not
    reach it, of at least half of its maximum.

    With ``row``, ``column``, ``strength`` and ``box``: top, left, height, width. None if the map is
    0 everywhere.
    """
    row, column = (int(i) for i in divmod(int(boundary.argmax()), boundary.shape[1]))
    strength = float(boundary[row, column])
    if strength <= 0.0:
        return None
    level = threshold if strength >= threshold else strength / 2
    _, labels, boxes, _ = cv2.connectedComponentsWithStats((boundary >= level).astype("uint8"))
    left, top, width, height = (int(side) for side in boxes[labels[row, column]][:4])
    return {
        "row": row,
        "column": column,
        "strength": number(strength),
        "box": [top, left, height, width],
    }
