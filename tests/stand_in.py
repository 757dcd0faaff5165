"""A localizer that marks strong changes of light: quick, and known to the last pixel."""

from __future__ import annotations

import hashlib
import os
import time

import numpy as np

from cpcapp.splicing import Localization
from cpcapp.splicing import model as model_file
from cpcapp.splicing.photo.read import ReadImage, read_image


class StandIn:
    threshold = 0.5
    version = "7"
    file_sha256 = "0" * 64

    def __init__(self, name="stand-in"):
        self.name = name

    def localize(self, image, *, progress=None):
        time.sleep(float(os.environ.get("STAND_IN_SECONDS", "0")))
        read = image if isinstance(image, ReadImage) else read_image(image)
        image = read.pixels
        if min(image.shape[:2]) < 8:
            raise ValueError(f"image has {image.shape[1]} × {image.shape[0]} pixels; at least 8")
        light = image.astype(np.float32).mean(axis=2) / np.iinfo(image.dtype).max
        edges = np.hypot(*np.gradient(light)).astype(np.float32)
        boundary = edges / max(edges.max(), 1e-6)
        if progress is not None:
            progress(0.5)
        notes = read.notes if boundary.any() else (*read.notes, "flat")
        edges = np.clip(edges, 0, 1)
        return Localization(boundary, notes=notes, seconds=0.25, measured_edges=edges)


def load_model(path=None):
    with model_file.find_model_file(path) as file:
        data = file.read_bytes()
    model = StandIn() if path is None else StandIn(data.decode().strip())
    model.file_sha256 = hashlib.sha256(data).hexdigest()
    return model


def install():
    model_file.load_model = load_model
