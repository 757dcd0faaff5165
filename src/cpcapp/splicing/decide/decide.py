"""What was measured, to a region and a p-value; `words` makes a verdict of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from cpcapp.splicing.decide.region import MIN_REGION_SIDE, find_region
from cpcapp.splicing.decide.verdict import Calibration, PhotoFeatures
from cpcapp.splicing.measure.measure import Measured
from cpcapp.splicing.measure.mosaic import mosaic_levels
from cpcapp.splicing.photo.pixels import FloatArray, FloatMap


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
    p_value: float | None = None
    patch_p_values: FloatArray | None = field(default=None, repr=False)
    calibrated: bool = False


def decide(measured: Measured, judge: Judge) -> Decision:
    """Find the region, and judge the photo."""
    calibration, preset = judge.calibration, judge.preset
    if calibration is None:
        return Decision(measured.boundary.map)
    region = find_region(
        measured.image,
        measured.boundary,
        measured.mosaic,
        calibration.evidence,
        preset.regions,
        learned=measured.learned,
        contrast=calibration.sides,
    )
    if min(measured.image.shape[:2]) < MIN_REGION_SIDE:
        return Decision(measured.boundary.map, region.map, calibrated=calibration.can_judge)
    judgement = calibration.judge(*measure_features(measured, preset))
    return Decision(
        region.boundary if preset.mosaic_contrast else measured.boundary.map,
        region.map,
        region.side_rule,
        judgement.score,
        judgement.p_value,
        judgement.patch_p_values,
        calibration.can_judge,
    )


def measure_features(measured: Measured, preset: Any) -> tuple[PhotoFeatures, FloatMap]:
    """Return what a photo is judged by, and the strengths of its squares."""
    levels = mosaic_levels(measured.mosaic, preset.mosaic)
    return PhotoFeatures.measure(
        measured.image,
        measured.boundary,
        levels,
        preset.verdict,
        measured.learned,
        measured.grid.offset,
    )
