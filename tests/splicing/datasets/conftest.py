from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def save():
    """Write pixels, or a plain colour of some size, to a file in folders made as needed."""

    def write(path, pixels=(90, 120, 150), size=(12, 8), **options):
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(pixels, np.ndarray):
            image = Image.fromarray(pixels)
        else:
            image = Image.new("RGB" if isinstance(pixels, tuple) else "L", size, pixels)
        image.save(path, **options)
        return path

    return write


@pytest.fixture
def half():
    """A mask: the right half of 12 x 8 pixels."""
    mask = np.zeros((8, 12), dtype=bool)
    mask[:, 6:] = True
    return mask
