"""Draw the pictures of docs/verdicts.md: photo, truth, likely seam and likely part side by side.

    python docs/make_verdict_pictures.py [-o FOLDER]

The photos are the examples that come with the package. The line above each picture has the verdict
of the shipped model, so that it is never out of date with the maps below it.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path

import cv2
from PIL import Image, ImageDraw, ImageFont

from cpcapp._io.files import atomic_write
from cpcapp.splicing import Localization, SpliceLocalizer, load_model
from cpcapp.splicing.decide.words import format_verdict
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.output.draw import draw_localization, draw_part
from cpcapp.splicing.photo.samples import Sample

PANEL, GAP, TEXT = 270, 6, 15
TITLES = ("the photo", "what was pasted", "the likely seam", "the likely part")
# Few colours keep the files small. Chosen by eye: the rare colours (of the map, and pink) stay.
COLOURS = 256


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/verdicts.md.")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "images")
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    model = load_model()
    for photo in example_photos():
        data = encode_png(draw_verdict(photo, model))
        with atomic_write(arguments.output / f"verdict-{Path(photo.name).stem}.png") as file:
            file.write(data)
    return 0


def draw_verdict(photo: Sample, model: SpliceLocalizer) -> Image.Image:
    read = photo.photo
    pixels = read.pixels
    found = model.localize(read)
    shows_region = found.mask is not None and found.mask.any()
    panels = (
        pixels,
        draw_part(pixels, photo.mask),
        draw_localization(pixels, found, model.threshold, line=False),
        draw_part(pixels, found.mask) if shows_region else pixels,
    )
    height = round(PANEL * pixels.shape[0] / pixels.shape[1])
    top = 3 * TEXT + GAP
    canvas = Image.new("RGB", (len(panels) * (PANEL + GAP) - GAP, top + height), "white")
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(TEXT)
    draw.text((0, 0), build_caption(photo, found), fill="black", font=font)
    for number, (panel, title) in enumerate(zip(panels, TITLES, strict=True)):
        left = number * (PANEL + GAP)
        small = cv2.resize(panel, (PANEL, height), interpolation=cv2.INTER_AREA)
        canvas.paste(Image.fromarray(small), (left, top))
        draw.text((left, top - TEXT - GAP), title, fill="black", font=font)
    if photo.authentic:
        draw.text((PANEL + 3 * GAP, top + GAP), "nothing", fill="white", font=font)
    return canvas


def build_caption(photo: Sample, found: Localization) -> str:
    truth = "authentic" if photo.authentic else "spliced"
    verdict = format_verdict(found.verdict, found.p_value)
    return f"{photo.name} (in truth {truth}). The model says: {verdict}"


def encode_png(image: Image.Image) -> bytes:
    data = io.BytesIO()
    palette = image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
    image.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(
        data, "PNG", optimize=True
    )
    return data.getvalue()


if __name__ == "__main__":
    sys.exit(main())
