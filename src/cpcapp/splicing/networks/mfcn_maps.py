"""From the logits of MFCN to maps of a photo. Needs no torch."""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.pixels import BoolArray, FloatMap

#: Of both maps, as published.
THRESHOLD = 0.5


class ProbabilityMaps(NamedTuple):
    """What a network says of one photo.

    Attributes
    ----------
    surface : ndarray of shape (height, width), float32 in [0, 1]
    edges : ndarray of shape (height, width), float32 in [0, 1], or None
        None of SFCN.
    """

    surface: FloatMap
    edges: FloatMap | None

    @property
    def boundary(self) -> FloatMap:
        """The edges; of SFCN, which has none, where the surface is near one half: 4 p (1 - p)."""
        if self.edges is not None:
            return self.edges
        return np.float32(4) * self.surface * (np.float32(1) - self.surface)

    @property
    def region(self) -> FloatMap:
        """The surface, of MFCN within its edges: see `refine_surface`."""
        return self.surface if self.edges is None else refine_surface(self.surface, self.edges)


def enlarge(coarse: NDArray[Any], height: int, width: int) -> ProbabilityMaps:
    """Return the probabilities of all pixels from the logits of squares.

    >>> maps = enlarge(np.zeros((2, 8, 4), np.float16), 60, 30)
    >>> maps.surface.shape, float(maps.edges.max())
    ((60, 30), 0.5)
    """
    rows, columns = coarse.shape[1:]
    maps = []
    for part in coarse:
        size = (8 * columns, 8 * rows)
        logits = cv2.resize(part.astype(np.float32), size, interpolation=cv2.INTER_LINEAR)
        # The hyperbolic tangent does not overflow.
        maps.append(np.float32(0.5) * (1 + np.tanh(logits[:height, :width] / 2)))
    return ProbabilityMaps(maps[0], maps[1] if len(maps) > 1 else None)


def fill_holes(marked: BoolArray) -> BoolArray:
    """Return what is marked, and all that it encloses.

    What can be reached from outside the map without crossing a mark stays out.

    >>> ring = np.array([[0, 1, 1, 1], [0, 1, 0, 1], [0, 1, 1, 1]], dtype=bool)
    >>> fill_holes(ring).astype(int).tolist()
    [[0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1]]
    """
    plane = np.pad(marked.astype(np.uint8), 1)
    cv2.floodFill(plane, None, (0, 0), 2)  # type: ignore[call-overload]
    return np.asarray(plane[1:-1, 1:-1] != 2)


def refine_surface(surface: FloatMap, edges: FloatMap, threshold: float = THRESHOLD) -> FloatMap:
    """Keep of a surface what the edges enclose: the edge-enhanced inference of MFCN.

    The surface where edges are or enclose a pixel, else 0: above one half it is what both say.
    """
    return np.where(fill_holes(edges >= threshold), surface, np.float32(0))
