"""Folders of small photos, and what is in a folder."""

from __future__ import annotations

import numpy as np
from PIL import Image


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def read(path):
    with Image.open(path) as image:
        return np.asarray(image)


def content(folder):
    """All files in a folder: their bytes by name."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def spliced_picture(seed):
    """Rough blocks, and a smoother part with its mask."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 90, (48, 64, 3)) + rng.integers(0, 60, 3)
    pixels[: rng.integers(15, 30), rng.integers(20, 40) :] += rng.integers(30, 90, 3)
    mask = np.zeros((48, 64), dtype=np.uint8)
    mask[16:40, 12 + seed % 9 : 44 + seed % 9] = 255
    smooth = rng.integers(60, 200, 3) + rng.integers(0, 9, pixels.shape)
    return np.where(mask[..., None] > 0, smooth, pixels).clip(0, 255).astype(np.uint8), mask


def write_splices(folder, count):
    """Write spliced photos into ``images``, and ``masks``."""
    for seed in range(count):
        for part, pixels in zip(("images", "masks"), spliced_picture(seed), strict=True):
            save(folder / part / f"{seed}.png", pixels)
    return folder
