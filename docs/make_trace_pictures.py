"""Draw the pictures of docs/traces.md: a splice, what was pasted, and what a trace shows.

    python docs/make_trace_pictures.py [-o FOLDER]

The splices are made from the example photos that come with the package, always the same ones. Each
has the history that its trace is for.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cpcapp._io.files import atomic_write
from cpcapp.splicing import read_image
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.measure.classic_traces import QUALITIES, block_contrast, error_levels
from cpcapp.splicing.measure.jpeg_traces import double_jpeg_trace
from cpcapp.splicing.output.draw import draw_part
from cpcapp.splicing.photo.jpeg import luminance, near_zeros, smooth_blocks, spread_blocks
from cpcapp.splicing.photo.read import read_coefficients

PANEL, GAP, TEXT, COLOURS = 210, 6, 14, 128

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Splice:
    """Two photos without a grid of their own, and which part of the second goes into the first."""

    host: Bytes
    donor: Bytes
    mask: NDArray[np.bool_]

    def paste(self, host: Bytes, donor: Bytes) -> Bytes:
        return np.where(self.mask[..., None], donor, host)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/traces.md.")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "images")
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    splice = make_splice()
    for name, draw in (
        ("near-zeros", draw_near_zeros),
        ("double-jpeg", draw_double_jpeg),
        ("shifted-grid", draw_shifted),
        ("error-levels", draw_error_levels),
        ("block-contrast", draw_block_contrast),
    ):
        pixels, title, values = draw(splice)
        sheet = draw_sheet(pixels, splice.mask, title, values)
        with atomic_write(arguments.output / f"trace-{name}.png") as file:
            file.write(encode_png(sheet))
    return 0


def make_splice() -> Splice:
    """Shrunk, so that no grid of the files is left."""
    photos = {photo.name: photo.image for photo in example_photos()}
    size = (400, 400)
    host = cv2.resize(photos["astronaut.jpg"], size, interpolation=cv2.INTER_AREA)
    donor = cv2.resize(photos["shuttle-on-table.jpg"], (510, 400), interpolation=cv2.INTER_AREA)
    mask = np.zeros((400, 400), np.uint8)
    cv2.ellipse(mask, (130, 260), (90, 70), 20.0, 0, 360, 1, -1)
    return Splice(host, np.ascontiguousarray(donor[:, 60:460]), mask > 0)


def encode(pixels: Bytes, quality: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()


def compress(pixels: Bytes, quality: int) -> Bytes:
    return read_image(encode(pixels, quality)).pixels


def draw_near_zeros(splice: Splice) -> tuple[Bytes, str, NDArray[np.float32]]:
    pixels = splice.paste(compress(splice.host, 80), splice.donor)
    return pixels, "near_zeros, negated", -near_zeros(luminance(pixels))


def draw_double_jpeg(splice: Splice) -> tuple[Bytes, str, NDArray[np.float32]]:
    data = encode(splice.paste(compress(splice.host, 70), splice.donor), 90)
    trace = double_jpeg_trace(read_coefficients(data))
    return read_image(data).pixels, "probability of one compression", trace.aligned


def draw_shifted(splice: Splice) -> tuple[Bytes, str, NDArray[np.float32]]:
    host = np.roll(compress(splice.host, 60), (3, 5), (0, 1))
    data = encode(splice.paste(host, splice.donor), 92)
    trace = double_jpeg_trace(read_coefficients(data))
    return read_image(data).pixels, f"earlier grid at {trace.offset}", trace.shifted


def draw_error_levels(splice: Splice) -> tuple[Bytes, str, NDArray[np.float32]]:
    pixels = splice.paste(splice.host, compress(splice.donor, 75))
    levels = error_levels(pixels)[QUALITIES.index(75)]
    return pixels, "error level at 75, of 7 qualities", smooth_blocks(levels, 3)


def draw_block_contrast(splice: Splice) -> tuple[Bytes, str, NDArray[np.float32]]:
    pixels = splice.paste(compress(splice.host, 80), splice.donor)
    return pixels, "block_contrast", block_contrast(pixels)


def draw_sheet(
    pixels: Bytes, mask: NDArray[np.bool_], title: str, values: NDArray[np.float32]
) -> Image.Image:
    low, high = np.quantile(values, (0.02, 0.98))
    grey = np.clip((values - low) / max(high - low, 1e-9), 0.0, 1.0)
    grey = np.rint(255 * spread_blocks(grey, mask.shape)).astype(np.uint8)
    panels = (pixels, draw_part(pixels, mask), cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB))
    titles = ("the photo", "what was pasted", title)
    top = TEXT + 2 * GAP
    canvas = Image.new("RGB", (len(panels) * (PANEL + GAP) - GAP, top + PANEL), "white")
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(TEXT)
    for number, (panel, text) in enumerate(zip(panels, titles, strict=True)):
        left = number * (PANEL + GAP)
        small = cv2.resize(panel, (PANEL, PANEL), interpolation=cv2.INTER_AREA)
        canvas.paste(Image.fromarray(small), (left, top))
        draw.text((left, 0), text, fill="black", font=font)
    return canvas


def encode_png(image: Image.Image) -> bytes:
    data = io.BytesIO()
    image.quantize(COLOURS, Image.Quantize.MEDIANCUT).save(data, "PNG", optimize=True)
    return data.getvalue()


if __name__ == "__main__":
    sys.exit(main())
