"""Preparing the photos of the comparison with MFCN as small folders, to be carried to a GPU."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cpcapp.splicing.datasets.sources import open_sources
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.networks.run import read_training_photos
from cpcapp.splicing.photo.pixels import as_bytes
from cpcapp.splicing.photo.samples import Sample
from models import open_set

# What is scored, by the names of `models.py`, and the package's examples for pictures.
SETS = ("columbia", "casia2", "casia1", "imd2020", "dst")
EXAMPLES = "examples"
# UCID has no losses of its own, and photos_web is at quality 93 already. As for the trace network.
QUALITIES = {"ucid": 93, "photos_web": 85}


def prepare_training(data: Path, out: Path) -> None:
    """Write the photos that our own network was trained on, in the same order."""
    folders = ["bsds500", *QUALITIES]
    sources = open_sources([data / folder for folder in folders])
    photos, problems = read_training_photos(sources)
    assert not problems, problems
    out.mkdir(parents=True)
    listed = []
    for number, (source, image, segments) in enumerate(
        zip(sources, photos.images, photos.segments, strict=True)
    ):
        assert source.file is not None
        entry: dict[str, Any] = {"name": source.name, "file": f"{number}.jpg", "segments": None}
        if segments is None:
            quality = QUALITIES[source.file.parent.name]
            pixels = Image.fromarray(image.permute(1, 2, 0).numpy())
            pixels.save(out / entry["file"], quality=quality)
        else:
            shutil.copyfile(source.file, out / entry["file"])
            entry["segments"] = f"{number}.png"
            labels = segments.numpy().astype(np.uint16 if int(segments.max()) > 255 else np.uint8)
            Image.fromarray(labels).save(out / entry["segments"], optimize=True)
        listed.append(entry)
    (out / "photos.json").write_text(json.dumps(listed, indent=1))


def spliced(name: str, data: Path) -> list[Sample]:
    """Return the spliced photos of a set."""
    samples = example_photos() if name == EXAMPLES else open_set(name, data)
    return [sample for sample in samples if not sample.authentic]


def prepare_test(data: Path, out: Path, sets: tuple[str, ...] = (*SETS, EXAMPLES)) -> None:
    """Write the spliced photos of some sets without loss: JPEGs as they are, others as WebP."""
    out.mkdir(parents=True)
    listed = []
    for name in sets:
        for number, sample in enumerate(spliced(name, data)):
            photo, pixels = sample.photo, as_bytes(sample.image)
            is_file = photo.format == "JPEG" and photo.name
            found = list(data.rglob(photo.name)) if is_file else []
            entry = {"name": f"{name}/{sample.name}", "file": f"{name}-{number}.webp"}
            if found and _same_pixels(found[0], pixels):
                entry["file"] = f"{name}-{number}.jpg"
                shutil.copyfile(found[0], out / entry["file"])
            else:
                file = out / entry["file"]
                Image.fromarray(pixels).save(file, lossless=True, quality=90, method=4)
                assert _same_pixels(file, pixels)
            listed.append(entry)
    (out / "photos.json").write_text(json.dumps(listed, indent=1))


def _same_pixels(file: Path, pixels: Any) -> bool:
    with Image.open(file) as image:
        return np.array_equal(np.array(image.convert("RGB")), pixels)
