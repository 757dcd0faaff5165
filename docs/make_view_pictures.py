"""Draw the pictures of views in docs/traces.md.

    python docs/make_view_pictures.py [-o FOLDER]

Two photos, with all views that they have: a splice that was saved as JPEG before and after the
pasting, and the example photo of a cup, which was never compressed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import cv2
import numpy as np
from make_trace_pictures import Bytes, compress, encode, encode_png, make_splice
from PIL import Image, ImageDraw, ImageFont

from cpcapp._io.files import atomic_write
from cpcapp.splicing import read_image
from cpcapp.splicing.output.views import draw_views

PANEL, GAP, TEXT = 210, 6, 14


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draw the pictures of views.")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "images")
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    splice = make_splice()
    cup = files("cpcapp.splicing.examples") / "cup-in-the-sky.png"
    for name, data in (
        ("jpeg", encode(splice.paste(compress(splice.host, 70), splice.donor), 90)),
        ("camera", cup.read_bytes()),
    ):
        with atomic_write(arguments.output / f"views-{name}.png") as file:
            file.write(encode_png(draw_sheet(data)))
    return 0


def draw_sheet(data: bytes) -> Image.Image:
    """Return a photo and its views side by side."""
    image = read_image(data)
    panels: list[tuple[str, Bytes]] = [("the photo", np.asarray(image.pixels))]
    panels += [
        (view.title, view.picture) for view in draw_views(image, data) if view.picture is not None
    ]
    height = round(PANEL * image.pixels.shape[0] / image.pixels.shape[1])
    across = min(len(panels), 4) if len(panels) != 5 else 3
    down = -(-len(panels) // across)
    line = TEXT + 2 * GAP + height
    size = (across * (PANEL + GAP) - GAP, down * (line + GAP) - GAP)
    canvas = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(TEXT)
    for number, (title, panel) in enumerate(panels):
        left, top = number % across * (PANEL + GAP), number // across * (line + GAP)
        small = cv2.resize(panel, (PANEL, height), interpolation=cv2.INTER_AREA)
        canvas.paste(Image.fromarray(small), (left, top + TEXT + 2 * GAP))
        draw.text((left, top), title, fill="black", font=font)
    return canvas


if __name__ == "__main__":
    sys.exit(main())
