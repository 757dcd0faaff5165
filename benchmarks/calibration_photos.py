"""Make the genuine photos that the package's models compare photos with.

    CPCAPP_DATA=... python benchmarks/calibration_photos.py SNAPSHOTS POOL -o FOLDER

SNAPSHOTS and POOL are those of `training_photos.py`. FOLDER gets a folder for each collection. No
network or filter has learned from these photos: they are the collections `web_genuine`, `cameras`
and `grass` of CPCAPP_DATA, what the pool holds out of each of its repositories, and the pool's
unseen collections. A third are as they were found. The others have the histories that photos have:
sent by a messenger, made smaller, saved again at 60 to 98, sharpened, in black and white, a PNG of
a JPEG, cut off the grid. Of each photo there is one version. Models keep scores, and no photo.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from cpcapp.splicing import ImageError
from cpcapp.splicing.photo.jpeg import encode_jpeg
from cpcapp.splicing.photo.pixels import as_bytes
from cpcapp.splicing.photo.read import read_image
from training_photos import Snapshots

SEED = 0
AS_FOUND = 1 / 3
# Of a repository, so that none outweighs its collection.
MOST = 80
# Photos of cameras have up to 18 megapixels: this share stays as large, up to so many pixels.
FULL_SIZE, MOST_PIXELS = 0.15, 12_500_000
# Photos of these repositories are used whole, in many sizes; of the others crops of the pool,
# which show no faces.
OBJECTS = (
    "bio-punk/AutoPortraitMatting",
    "bearpaw/clothing-co-parsing",
    "VikramShenoy97/Human-Segmentation-Dataset",
    "MathLee/EOR-VOS",
)
LOSSLESS = ("imazen/codec-corpus", "Zelex/images", "JingyunLiang/SwinIR")
COLLECTIONS = {
    **dict.fromkeys(OBJECTS, "people and objects"),
    **dict.fromkeys(LOSSLESS, "without losses"),
    "ml4py/dataset-iiit-pet": "pets",
    "Obmutescence/COCO-MINI": "flickr",
    "zzowenzz/COCO_Tiny": "flickr",
    "majedelhelou/denoising_datasets": "buildings",
    "merbanan/rtl_433_tests": "devices",
}

Pixels = np.ndarray
History = Callable[[Pixels, np.random.Generator], tuple[Pixels, int | None]]


def _resize(pixels: Pixels, factor: float) -> Pixels:
    height, width = (max(96, round(side * factor)) for side in pixels.shape[:2])
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)


def _messenger(pixels: Pixels, rng: np.random.Generator) -> tuple[Pixels, int]:
    side = float(rng.choice([960, 1280, 1600, 2048]))
    return _resize(pixels, min(1.0, side / max(pixels.shape[:2]))), int(rng.integers(65, 88))


def _smaller(pixels: Pixels, rng: np.random.Generator) -> tuple[Pixels, int | None]:
    quality = None if rng.random() < 0.3 else int(rng.integers(80, 97))
    return _resize(pixels, rng.uniform(0.35, 0.8)), quality


def _saved_again(pixels: Pixels, rng: np.random.Generator) -> tuple[Pixels, int]:
    return pixels, int(rng.integers(60, 99))


def _sharpened(pixels: Pixels, rng: np.random.Generator) -> tuple[Pixels, int]:
    amount = rng.uniform(0.3, 1.5)
    blurred = cv2.GaussianBlur(pixels, (0, 0), rng.uniform(0.7, 1.5))
    sharp = cv2.addWeighted(pixels, 1.0 + amount, blurred, -amount, 0.0)
    return sharp, int(rng.integers(85, 97))


def _black_and_white(pixels: Pixels, rng: np.random.Generator) -> tuple[Pixels, int]:
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    return cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB), int(rng.integers(75, 96))


def _png(pixels: Pixels, rng: np.random.Generator) -> tuple[Pixels, None]:
    return pixels, None


def _off_the_grid(pixels: Pixels, rng: np.random.Generator) -> tuple[Pixels, int | None]:
    top, left = rng.integers(1, 8, 2)
    quality = None if rng.random() < 0.5 else int(rng.integers(80, 96))
    return pixels[top:, left:], quality


HISTORIES: tuple[History, ...] = (
    *(_messenger, _smaller, _saved_again, _sharpened, _black_and_white, _png, _off_the_grid),
)


def write_version(data: bytes, name: str, folder: Path, *, camera: bool) -> None:
    """Write one version of a photo, drawn by its name."""
    rng = np.random.default_rng([SEED, int(sha256(name.encode()).hexdigest()[:8], 16)])
    pixels = as_bytes(read_image(data).pixels)
    stem = f"{Path(name).stem[:60]}-{sha256(name.encode()).hexdigest()[:8]}"
    history = None if rng.random() < AS_FOUND else HISTORIES[rng.integers(len(HISTORIES))]
    if camera and (rng.random() > FULL_SIZE or pixels[..., 0].size > MOST_PIXELS):
        # As its owner or a program makes it smaller; .1 to 4 megapixels.
        target = np.exp(rng.uniform(np.log(1e5), np.log(4e6)))
        if target < pixels[..., 0].size:
            pixels = _resize(pixels, (target / pixels[..., 0].size) ** 0.5)
            history = history or _saved_again
    if history is None:
        suffix = ".png" if data[:4] == b"\x89PNG" else ".jpg"
        (folder / f"{stem}-as-found{suffix}").write_bytes(data)
        return
    pixels, quality = history(pixels, rng)
    pixels = np.ascontiguousarray(pixels)
    kind = history.__name__.strip("_").replace("_", "-")
    if quality is None:
        cv2.imwrite(str(folder / f"{stem}-{kind}.png"), pixels[..., ::-1])
    else:
        (folder / f"{stem}-{kind}-{quality}.jpg").write_bytes(encode_jpeg(pixels, quality))


def found_photos(
    snapshots: Snapshots, pool: list[Path], data: Path
) -> dict[str, dict[str, tuple[Callable[[], bytes], bool]]]:
    """Return how to read each photo, by collection and name, and whether a camera made it."""
    found: dict[str, dict[str, tuple[Callable[[], bytes], bool]]] = defaultdict(dict)
    for folder, name in (("web_genuine", "web"), ("cameras", "cameras"), ("grass", "grass")):
        for path in sorted((data / folder).glob("*.jpg")):
            found[name][path.name] = path.read_bytes, False
    counts: dict[str, int] = defaultdict(int)
    for folder in pool:
        for entry in json.loads((folder / "photos.json").read_text()):
            repository, name = entry["repository"], f"{entry['repository']}/{entry['path']}"
            collection = COLLECTIONS.get(repository, "phones and cameras")
            if entry["use"] == "train" or name in found[collection]:
                continue
            counts[repository] += 1
            if counts[repository] > MOST:
                continue
            whole = collection in ("devices", "phones and cameras")
            read: Any = (folder / entry["file"]).read_bytes
            if whole:
                read = partial(snapshots.blob, repository, entry["blob"])
            found[collection][name] = read, whole
    return dict(found)


def main() -> None:
    """Write the photos."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("snapshots", type=Path)
    parser.add_argument("pool", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    folders = sorted(path.parent for path in arguments.pool.glob("**/photos.json"))
    found = found_photos(Snapshots(arguments.snapshots), folders, Path(os.environ["CPCAPP_DATA"]))
    shutil.rmtree(arguments.output, ignore_errors=True)
    for collection, photos in sorted(found.items()):
        folder = arguments.output / collection
        folder.mkdir(parents=True)
        for name, (read, camera) in sorted(photos.items()):
            try:
                write_version(read(), name, folder, camera=camera)
            except ImageError as error:
                print(f"{name}: {error}")
        print(f"{collection}: {len(list(folder.iterdir()))} photos", flush=True)


if __name__ == "__main__":
    main()
