"""How often is what a file says about itself wrong, and how long does it take?

    CPCAPP_DATA=... python benchmarks/file_facts.py

Photos against screenshots and drawings that `_drawings.py` makes, thumbnails of the same photo
against those of a changed one, and the time of facts and views for a photo of 12 megapixels. The
thresholds were chosen by hand on the training photos of BSDS500, on UCID and on photos_web, and on
drawings 0 to 59 of each kind. None of these are used here. The thumbnails of real files were seen.
Writes benchmarks/results/file_facts.json.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from _drawings import PICTURES, draw_web_pages, find_chromium
from _machine import describe_machine
from cpcapp._io.files import atomic_write
from cpcapp.splicing.output.views import draw_views
from cpcapp.splicing.photo.content_kind import judge_content
from cpcapp.splicing.photo.file_facts import read_file_facts
from cpcapp.splicing.photo.jpeg import encode_jpeg, recompress
from cpcapp.splicing.photo.read import read_image
from cpcapp.splicing.photo.thumbnails import read_thumbnail

RESULTS = Path(__file__).parent / "results" / "file_facts.json"
FOLDERS = (
    *("bsds500/images/test", "casia2_pairs/Au", "columbia_dev/4cam_auth"),
    *("real_dev/authentic/imd2020", "real_dev/authentic/cameras"),
)
DRAWINGS = range(60, 120)
QUALITIES = (None, 85, 75)
SHARES = (0.02, 0.05, 0.1)

Picture = NDArray[np.uint8]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    root = Path(os.environ["CPCAPP_DATA"])
    result = {
        "date": f"{date.today():%Y-%m-%d}",
        "machine": describe_machine(),
        "photos_taken_for_drawings": rate_photos(root),
        "drawings_taken_for_photos": rate_drawings(),
        "thumbnails": rate_thumbnails(root),
        "seconds_for_12_megapixels": measure_times(root),
    }
    with atomic_write(arguments.output) as file:
        file.write(json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result, indent=1))
    return 0


def photos_of(root: Path, folder: str) -> list[Path]:
    suffixes = (".jpg", ".jpeg", ".tif", ".bmp", ".png")
    return sorted(path for path in (root / folder).iterdir() if path.suffix.lower() in suffixes)


def compressions(picture: Picture) -> Iterator[tuple[str, Picture]]:
    """Yield the picture as it is and as JPEG."""
    for quality in QUALITIES:
        name = "as it is" if quality is None else f"JPEG {quality}"
        yield name, picture if quality is None else recompress(picture, quality)


def count(pictures: Iterator[Picture], wrong: Callable[[Picture], bool]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for picture in pictures:
        for name, compressed in compressions(picture):
            numbers = found.setdefault(name, [0, 0])
            numbers[0] += wrong(compressed)
            numbers[1] += 1
    return found


def rate_photos(root: Path) -> dict[str, dict[str, list[int]]]:
    return {
        folder: count(
            (np.asarray(read_image(path).pixels) for path in photos_of(root, folder)),
            lambda picture: not judge_content(picture).looks_like_photo,
        )
        for folder in FOLDERS
    }


def rate_drawings() -> dict[str, dict[str, list[int]]]:
    numbers = list(DRAWINGS)
    pictures = {name: [draw(number) for number in numbers] for name, draw in PICTURES.items()}
    chromium = find_chromium()
    if chromium is not None:
        pictures["web pages"] = draw_web_pages(numbers, chromium)
    return {
        name: count(iter(drawn), lambda picture: judge_content(picture).looks_like_photo)
        for name, drawn in pictures.items()
    }


def make_thumbnail(photo: Picture, number: int) -> bytes:
    """Return a thumbnail as cameras and editors make them: resized, sharpened, brightened."""
    height, width = photo.shape[:2]
    scale = 160 / max(height, width)
    size = (round(width * scale), round(height * scale))
    kinds = (cv2.INTER_AREA, cv2.INTER_LINEAR, cv2.INTER_CUBIC, cv2.INTER_NEAREST)
    small = cv2.resize(photo, size, interpolation=kinds[number % 4])
    if number % 3 == 0:
        small = cv2.addWeighted(small, 1.7, cv2.GaussianBlur(small, (0, 0), 1), -0.7, 0)
    if number % 5 == 0:
        small = np.rint(255 * (small / 255.0) ** 0.85).astype(np.uint8)
    if number % 7 == 0 and size[1] < 120:
        above = (120 - size[1]) // 2
        small = cv2.copyMakeBorder(small, above, 120 - size[1] - above, 0, 0, cv2.BORDER_CONSTANT)
    file = io.BytesIO()
    Image.fromarray(small).save(file, "JPEG", quality=(50, 70, 85)[number % 3])
    return file.getvalue()


def change(photo: Picture, other: Picture, share: float, rng: np.random.Generator) -> Picture:
    """Paste an ellipse of another photo, of a share of the area."""
    height, width = photo.shape[:2]
    down, across = (int(n * (4 * share / np.pi) ** 0.5) for n in (height, width))
    other = cv2.resize(other, (width, height), interpolation=cv2.INTER_AREA)
    top, left = int(rng.integers(height - down)), int(rng.integers(width - across))
    mask = np.zeros((height, width), np.uint8)
    centre = (left + across // 2, top + down // 2)
    cv2.ellipse(mask, centre, (across // 2, down // 2), 0, 0, 360, 1, -1)
    return np.where(mask[..., None] > 0, np.roll(other, (40, 60), (0, 1)), photo)


def rate_thumbnails(root: Path) -> dict[str, object]:
    """Count thumbnails that are said to differ: made ones, and those of real files."""
    files = photos_of(root, FOLDERS[0])
    photos = [np.asarray(read_image(path).pixels) for path in files]
    rng = np.random.default_rng(0)
    same, changed = [0, 0], {f"{share:.0%} changed": [0, 0] for share in SHARES}
    for number, photo in enumerate(photos):
        small = make_thumbnail(photo, number)
        _tally(same, small, photo)
        other = photos[(number + 37) % len(photos)]
        for share in SHARES:
            _tally(changed[f"{share:.0%} changed"], small, change(photo, other, share, rng))
    real = [0, 0]
    for path in sorted((root / "real_dev").rglob("*.jp*g")):
        photo = read_image(path)
        exif = photo.metadata.exif
        if exif.thumbnail:
            _tally(real, exif.thumbnail, photo.pixels, exif.orientation)
    return {"of the same photo": same, **changed, "in real files": real}


def _tally(numbers: list[int], small: bytes, photo: Picture, orientation: int = 1) -> None:
    found = read_thumbnail(small, photo, orientation)
    if found is not None:
        numbers[0] += found.differs
        numbers[1] += 1


def measure_times(root: Path) -> dict[str, float]:
    """Return the processor's seconds, the least of three."""
    tile = np.asarray(read_image(photos_of(root, FOLDERS[0])[0]).pixels)
    photo = cv2.resize(tile, (4000, 3000), interpolation=cv2.INTER_CUBIC)
    data = encode_jpeg(photo, 90)
    image = read_image(data)
    works: dict[str, Callable[[], object]] = {
        # A copy, as an image remembers what kind it is.
        "facts": lambda: read_file_facts(data, replace(image)),
        "views": lambda: draw_views(image, data),
    }
    found = {}
    for name, work in works.items():
        times = []
        for _ in range(3):
            begin = time.process_time()
            work()
            times.append(time.process_time() - begin)
        found[name] = round(min(times), 2)
    return found


if __name__ == "__main__":
    sys.exit(main())
