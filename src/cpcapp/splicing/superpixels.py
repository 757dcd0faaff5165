"""Superpixels: small patches of like colour whose borders follow the edges of a photo."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.patches import FloatMap

Labels = NDArray[np.int32]

# Pixels from one superpixel to the next, and how much likeness of place counts beside colour.
_SPACING = 16
_COMPACTNESS = 15.0
_ROUNDS = 5
# Superpixels that end up smaller join a neighbour; percent of the mean size.
_LEAST_SIZE = 25
_SMOOTHING = 1.0


def superpixels(image: FloatMap) -> tuple[Labels, int]:
    """Divide a photo into superpixels of about 16 x 16 pixels.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]

    Returns
    -------
    labels : ndarray of shape (height, width), int32
        The number of the superpixel that each pixel belongs to, from 0.
    count : int

    Examples
    --------
    >>> import numpy as np
    >>> photo = np.zeros((64, 96, 3), dtype=np.float32)
    >>> photo[:, 41:] = 0.8
    >>> labels, count = superpixels(photo)
    >>> bool(np.intersect1d(labels[:, :41], labels[:, 41:]).size)  # none lies across the edge
    False
    """
    pixels = np.rint(np.clip(image, 0.0, 1.0) * np.float32(255.0)).astype(np.uint8)
    lab = cv2.cvtColor(cv2.GaussianBlur(pixels, (0, 0), _SMOOTHING), cv2.COLOR_RGB2LAB)
    maker = cv2.ximgproc.createSuperpixelSLIC(
        lab, cv2.ximgproc.SLIC, region_size=_SPACING, ruler=_COMPACTNESS
    )
    maker.iterate(_ROUNDS)
    maker.enforceLabelConnectivity(_LEAST_SIZE)
    return np.asarray(maker.getLabels(), dtype=np.int32), int(maker.getNumberOfSuperpixels())
