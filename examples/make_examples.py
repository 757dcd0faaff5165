"""Make the example photos that come with the package.

They are made of pictures in scikit-image, which nothing else here needs::

    pip install 'cpcapp[splicing]' scikit-image
    python examples/make_examples.py src/cpcapp/splicing/examples

The same versions of NumPy, OpenCV and scikit-image give the same files.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from skimage import data

from cpcapp._io.files import atomic_write
from cpcapp.splicing.make.splices import SpliceOptions, make_splice
from cpcapp.splicing.photo.jpeg import encode_jpeg

Pixels = NDArray[np.uint8]

# Outlines, drawn by hand: x and y of each corner.
SHUTTLE = [
    *((409, 1), (402, 10), (398, 22), (395, 40), (391, 45), (388, 41), (384, 50), (381, 60)),
    *((381, 78), (379, 95), (378, 110), (378, 183), (362, 198), (356, 205), (354, 222)),
    *((365, 226), (378, 228), (380, 234), (372, 250), (367, 268), (371, 271), (385, 262)),
    *((400, 268), (406, 266), (405, 252), (412, 248), (420, 238), (432, 235), (453, 233)),
    *((456, 222), (456, 214), (454, 205), (454, 60), (449, 47), (444, 39), (440, 46)),
    *((437, 52), (437, 40), (434, 22), (428, 10), (420, 1)),
]
HELMET = [
    *((278, 511), (277, 480), (279, 455), (285, 425), (293, 403), (303, 385), (318, 368)),
    *((335, 357), (355, 351), (375, 346), (400, 343), (425, 345), (450, 355), (470, 369)),
    *((485, 388), (493, 410), (497, 440), (500, 455), (496, 470), (490, 490), (480, 511)),
]
SPOON = [(395, 75), (400, 67), (414, 67), (424, 76), (420, 95), (416, 118), (400, 130)]


def label_outline(corners: list[tuple[int, int]], shape: tuple[int, ...]) -> NDArray[np.int32]:
    """Return a segmentation: 1 in the outline, 0 outside."""
    labels = np.zeros(shape[:2], dtype=np.int32)
    cv2.fillPoly(labels, [np.array(corners, dtype=np.int32)], 1)
    return labels


def label_cup(shape: tuple[int, ...]) -> NDArray[np.int32]:
    """Return the segmentation of the cup with its saucer and spoon."""
    labels = label_outline(SPOON, shape)
    cv2.ellipse(labels, (278, 219), (199, 166), 0, 0, 360, 1, -1)
    cv2.ellipse(labels, (292, 113), (118, 94), 0, 0, 360, 1, -1)
    return labels


@dataclass(frozen=True)
class Recipe:
    """How one example is made."""

    host: Callable[[], Pixels]
    donor: Callable[[], Pixels]
    thing: Callable[[tuple[int, ...]], NDArray[np.int32]]
    options: SpliceOptions
    seed: int


# Plain cut and paste of one outlined thing; each recipe says what else is done.
PLAIN = replace(SpliceOptions.hard(), segments_share=1.0, border_share=0.0, area=(0.02, 0.4))

# Of each photo something goes into another. The seeds were chosen by eye, for the place.
RECIPES = {
    "cup-in-the-sky": Recipe(
        data.rocket,
        data.coffee,
        label_cup,
        replace(PLAIN, camera_share=1.0, untouched_share=0.0, scale=(0.4, 0.4), rotate=5.0),
        4,
    ),
    "cat-with-helmet": Recipe(
        data.chelsea,
        data.astronaut,
        lambda shape: label_outline(HELMET, shape),
        replace(PLAIN, camera_share=1.0, border_share=1.0),
        4,
    ),
    "shuttle-on-table": Recipe(
        data.coffee,
        data.astronaut,
        lambda shape: label_outline(SHUTTLE, shape),
        replace(PLAIN, jpeg_share=1.0, jpeg=(95, 95)),
        10,
    ),
}


def main() -> None:
    """Write the photos, their masks and how they were made."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    (folder / "masks").mkdir(parents=True, exist_ok=True)
    made: dict[str, Any] = {}
    for name, recipe in RECIPES.items():
        donor = recipe.donor()
        splice = make_splice(
            recipe.host(),
            donor,
            np.random.default_rng(recipe.seed),
            recipe.options,
            segments=[recipe.thing(donor.shape)],
        )
        photo = f"{name}.jpg" if splice.jpeg else f"{name}.png"
        write_file(folder / photo, splice.jpeg or encode_png(splice.image[..., ::-1]))
        write_file(folder / "masks" / f"{name}.png", encode_png(splice.mask.astype(np.uint8) * 255))
        made[photo] = {"seed": recipe.seed, **splice.recipe}
    write_file(folder / "astronaut.jpg", encode_jpeg(data.astronaut(), 95))
    write_file(folder / "recipes.json", (json.dumps(made, indent=1) + "\n").encode())


def encode_png(picture: Pixels) -> bytes:
    """Return a picture as a PNG file, as small as it gets."""
    return bytes(cv2.imencode(".png", picture, [cv2.IMWRITE_PNG_COMPRESSION, 9])[1])


def write_file(path: Path, content: bytes) -> None:
    """Write a file."""
    with atomic_write(path) as file:
        file.write(content)


if __name__ == "__main__":
    main()
