"""What was measured, to a region and a p-value; `words` makes a verdict of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from cpcapp.splicing.decide.region import MIN_REGION_SIDE, emphasise_border, find_region
from cpcapp.splicing.decide.verdict import Calibration, Rank, cut_features, photo_features
from cpcapp.splicing.measure.measure import Measured
from cpcapp.splicing.photo.pixels import FloatMap


class Judge(Protocol):
    """What photos are judged with: a `cpcapp.splicing.SpliceLocalizer`."""

    preset: Any
    calibration: Calibration | None


@dataclass(frozen=True)
class Decision:
    """Where a photo was spliced, and how sure that is; see `cpcapp.splicing.Localization`."""

    boundary: FloatMap = field(repr=False)
    region: FloatMap | None = field(default=None, repr=False)
    side_rule: str | None = None
    score: float | None = None
    rank: Rank | None = None
    calibrated: bool = False


def decide(measured: Measured, judge: Judge) -> Decision:
    """Find the region, and judge the photo."""
    calibration, preset, seam = judge.calibration, judge.preset, measured.boundary.map
    if calibration is None:
        return Decision(seam)
    region = find_region(measured, calibration.table, calibration.traces, preset.regions)
    if preset.mosaic_contrast and region.inside is not None:
        seam = emphasise_border(seam, region.inside, preset.regions)
    score = rank = None
    if calibration.weights is not None and min(seam.shape) >= MIN_REGION_SIDE:
        features = photo_features(measured, preset.verdict, preset.mosaic)
        features += cut_features(region.cut, region.n_pixels)
        score = float(calibration.weights @ np.array(features))
        rank = calibration.rank(score) if calibration.genuine and np.isfinite(score) else None
    return Decision(seam, region.map, region.side_rule, score, rank, calibration.can_judge)
