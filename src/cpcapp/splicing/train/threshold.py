"""The threshold on the boundary map, chosen on training photos."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from cpcapp.splicing.photo.pixels import BoolArray, FloatMap
from cpcapp.splicing.score.protocols import score_map
from cpcapp.splicing.score.truth import boundary_band

# Steps of 0.01: finer ones change F1 by less than photos differ.
_LEVELS = np.arange(1, 100) / 100.0


class ThresholdChoice(NamedTuple):
    """A threshold and how the maps score that it was chosen on.

    Attributes
    ----------
    threshold : float
    f1, mcc : float
        Means by the protocol ``edge``: each map at its own best threshold.
    n_photos : int
    """

    threshold: float
    f1: float
    mcc: float
    n_photos: int


def choose_threshold(maps: Iterable[tuple[FloatMap, BoolArray]]) -> ThresholdChoice | None:
    """Return the threshold with the best mean F1 over some photos."""
    f1, scores = [], []
    for boundary, mask in maps:
        band = boundary_band(mask)
        # Pixels at or above each level, on the band and everywhere.
        hits, marked = (
            np.histogram(values, np.append(_LEVELS, np.inf))[0][::-1].cumsum()[::-1]
            for values in (boundary[band], boundary)
        )
        f1.append(2.0 * hits / np.maximum(marked + band.sum(), 1))
        score = score_map(boundary, mask, ["edge"])["edge"]
        scores.append((score.f1, score.mcc))
    if not f1:
        return None
    best = float(_LEVELS[np.mean(f1, axis=0).argmax()])
    means = np.mean(scores, axis=0)
    return ThresholdChoice(best, float(means[0]), float(means[1]), len(scores))
