"""Superpixels: small patches of like colour whose borders follow the edges of a photo."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.decide.region_options import RegionOptions
from cpcapp.splicing.photo.pixels import FloatMap

Labels = NDArray[np.int32]


def superpixels(image: FloatMap, options: RegionOptions | None = None) -> tuple[Labels, int]:
    """Divide a photo into superpixels, of about 16 x 16 pixels by default.

    ``labels``: The number of the superpixel that each pixel belongs to, from 0.
    """
    options = options or RegionOptions()
    pixels = np.rint(np.clip(image, 0.0, 1.0) * np.float32(255.0)).astype(np.uint8)
    smooth = cv2.GaussianBlur(pixels, (0, 0), options.colour_smoothing)
    clustering = cv2.ximgproc.createSuperpixelSLIC(
        cv2.cvtColor(smooth, cv2.COLOR_RGB2LAB),
        cv2.ximgproc.SLIC,
        region_size=options.superpixel_spacing,
        ruler=options.compactness,
    )
    clustering.iterate(options.iterations)
    clustering.enforceLabelConnectivity(options.min_superpixel_percent)
    labels = np.asarray(clustering.getLabels(), dtype=np.int32)
    return labels, int(clustering.getNumberOfSuperpixels())
