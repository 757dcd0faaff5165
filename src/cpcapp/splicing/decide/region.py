"""From the boundary map to the region: which part of a photo came from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.decide.cut import Cut, best_cut
from cpcapp.splicing.decide.evidence import SeamEvidence, log_strength, strength_unit
from cpcapp.splicing.decide.options import RegionOptions
from cpcapp.splicing.decide.sides import (
    PASTED_COLUMN,
    SideContrast,
    Sides,
    SideStatistics,
    side_statistics,
    superpixel_vectors,
)
from cpcapp.splicing.decide.superpixels import (
    Borders,
    Labels,
    Side,
    border_pixels,
    collect_borders,
    superpixels,
)
from cpcapp.splicing.measure.filters import BoundaryMap
from cpcapp.splicing.measure.mosaic import MosaicTrace
from cpcapp.splicing.measure.network import LearnedTraces
from cpcapp.splicing.photo.pixels import BoolArray, FloatArray, FloatMap

#: Photos with a shorter side have too few superpixels: no region is sought in them.
MIN_REGION_SIDE = 64
_ROWS_PER_STRIP = 128


@dataclass(frozen=True)
class ExtractedBorders:
    """The superpixels of a photo and what is seen along their borders.

    Attributes
    ----------
    labels : ndarray of shape (height, width), int32
        Superpixel of each pixel; of a large photo, made smaller.
    count : int
        Superpixels.
    pixels : ndarray of shape (n,)
        Flat indices into the labels of the pixels along borders.
    one, two : ndarray of shape (n,), int32
        The superpixels on either side of each of them.
    measured : ndarray of shape (n_measures, n), float32
        What is measured there: the logarithm of the relative strength of the boundary map and, if
        there is a network, the logarithm of the odds it gives for a seam.
    strength_unit : float
        What the boundary map was divided by.
    statistics : SideStatistics
        Of the mosaic.
    vectors : ndarray of shape (count, n_features), or None
        Of the learned traces; see `cpcapp.splicing.decide.sides.superpixel_vectors`.
    area : ndarray of shape (count,)
        Pixels of each superpixel.
    """

    labels: Labels = field(repr=False)
    count: int
    pixels: NDArray[np.intp] = field(repr=False)
    one: NDArray[np.int32] = field(repr=False)
    two: NDArray[np.int32] = field(repr=False)
    measured: NDArray[np.float32] = field(repr=False)
    strength_unit: float
    statistics: SideStatistics = field(repr=False)
    vectors: FloatArray | None = field(repr=False)
    area: FloatArray = field(repr=False)

    def find_cut(
        self,
        evidence: SeamEvidence,
        contrast: SideContrast | None = None,
        options: RegionOptions | None = None,
    ) -> tuple[Cut, Borders, Sides]:
        """Return the best cut, the penalised borders that trimmed it, and what tells the sides."""
        options = options or RegionOptions()
        borders = collect_borders(self.count, self.one, self.two, evidence(self.measured))
        kinds = [replace(self.statistics, weight=evidence.mosaic_weight)]
        if contrast is not None and self.vectors is not None:
            # Neighbouring blocks see much of the same: twice the side is twice as much that is new,
            # as it is for a seam.
            weight = evidence.trace_weight * (options.reference_pixels / self.area.sum()) ** 0.5
            kinds.append(
                contrast.statistics(self.vectors, self.area, weight, options.max_deviation)
            )
        sides = Sides(tuple(kinds))
        cut = best_cut(borders, sides, evidence.trim_per_pixel)
        return cut, borders.penalise(evidence.trim_per_pixel), sides


def extract_borders(
    image: FloatMap,
    boundary: BoundaryMap,
    trace: MosaicTrace | None,
    options: RegionOptions | None = None,
    learned: LearnedTraces | None = None,
) -> ExtractedBorders:
    """Divide a photo into superpixels and measure along their borders."""
    options = options or RegionOptions()
    shape = image.shape[:2]
    maps = [boundary.map] if learned is None else [boundary.map, learned.seam]
    factor = max(1.0, (image[..., 0].size / options.max_pixels) ** 0.5)
    if factor > 1.0:
        height, width = (max(1, round(side / factor)) for side in shape)
        maps = [_shrink(found, (width, height), factor) for found in maps]
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    labels, count = superpixels(image, options)
    here, there = border_pixels(labels)
    numbers = labels.ravel()
    seen = [np.maximum(flat[here], flat[there]) for flat in (found.ravel() for found in maps)]
    unit = strength_unit(seen[0], labels.size, options)
    seen[0] = log_strength(seen[0] / unit).astype(np.float32)
    if learned is None:
        vectors, area = None, np.bincount(numbers, minlength=count).astype(np.float64)
    else:
        vectors, area = superpixel_vectors(learned, labels, count, shape)
    return ExtractedBorders(
        labels,
        count,
        here,
        numbers[here],
        numbers[there],
        np.stack(seen),
        unit,
        side_statistics(trace, labels, count, options),
        vectors,
        area,
    )


def _shrink(found: FloatMap, size: tuple[int, int], factor: float) -> FloatMap:
    """Make a map smaller; a narrow seam must not get fainter by averaging."""
    reach = np.ones((round(factor), round(factor)), dtype=np.uint8)
    return np.asarray(cv2.resize(cv2.dilate(found, reach), size, interpolation=cv2.INTER_AREA))


@dataclass(frozen=True)
class Region:
    """The part of a photo that came from elsewhere, if any did.

    Attributes
    ----------
    map : ndarray of shape (height, width), float32 in [0, 1]
        Above a half inside; the more certain, the farther from a half.
    boundary : ndarray of shape (height, width), float32 in [0, 1]
        The boundary map, emphasised near the border of the region.
    cut : Cut
    side_rule : {"network", "smaller"} or None
        What told which of the two sides was pasted: the network's traces, or that it is the
        smaller one. None if there is no region.
    """

    map: FloatMap = field(repr=False)
    boundary: FloatMap = field(repr=False)
    cut: Cut = field(repr=False)
    side_rule: str | None = None


def find_region(
    image: FloatMap,
    boundary: BoundaryMap,
    trace: MosaicTrace | None,
    evidence: SeamEvidence,
    options: RegionOptions | None = None,
    *,
    learned: LearnedTraces | None = None,
    contrast: SideContrast | None = None,
) -> Region:
    """Find the pasted part of a photo.

    ``learned``: if the model has a network; ``evidence`` must have a table for it then.
    """
    options = options or RegionOptions()
    shape = image.shape[:2]
    if min(shape) < MIN_REGION_SIDE:
        nothing = Cut(np.zeros(1, dtype=bool), 0.0, 0.0, 0.0)
        return Region(np.zeros(shape, np.float32), boundary.map, nothing)
    extracted = extract_borders(image, boundary, trace, options, learned)
    cut, borders, sides = extracted.find_cut(evidence, contrast, options)
    inside = cut.side[extracted.labels]
    if learned is not None:
        seam = emphasise_odds(learned.seam, inside, options)
    else:
        seam = emphasise_border(boundary.map, inside, options) if inside.any() else boundary.map
    if not cut.side.any():
        # Nothing is above a half, but what the network says is there to look at.
        nothing_certain = np.zeros(shape, np.float32)
        if learned is not None:
            nothing_certain = np.float32(0.5) * learned.pasted_map(shape)
        return Region(nothing_certain, seam, cut)
    losses = _evidence_lost_by_moving(borders, sides, cut.side)
    certainty = 1.0 - np.exp(-np.maximum(losses, 0.0) / options.certainty_evidence)
    inside_pasted, rule = which_side(cut.side, extracted, options)
    pasted = cut.side == inside_pasted
    sure = certainty[extracted.labels].astype(np.float32)
    part = pasted[extracted.labels]
    if sure.shape != shape:
        sure = cv2.resize(sure, shape[::-1], interpolation=cv2.INTER_LINEAR)
        part = (
            cv2.resize(part.astype(np.float32), shape[::-1], interpolation=cv2.INTER_LINEAR) > 0.5
        )
    said = None if learned is None else learned.pasted_map(shape)
    for rows in _strips(shape):
        strip = sure[rows]
        if said is not None:
            fits = np.where(part[rows], said[rows], 1.0 - said[rows])
            strip += np.float32(options.odds_share) * (fits - strip)
        strip *= np.float32(0.5)
        strip[...] = np.where(part[rows], 0.5 + strip, 0.5 - strip)
    return Region(sure, seam, cut, rule)


def _strips(shape: tuple[int, ...]) -> list[slice]:
    """Return slices of rows: of a large photo, no further map of its size shall be needed."""
    return [slice(top, top + _ROWS_PER_STRIP) for top in range(0, shape[0], _ROWS_PER_STRIP)]


def emphasise_odds(
    odds: FloatMap, side: BoolArray, options: RegionOptions | None = None
) -> FloatMap:
    """Return the network's probability of a seam, raised near the border of a region.

    ``side``: whether each pixel lies inside. If none does, nothing is raised or lowered.

    >>> import numpy as np
    >>> side = np.arange(40)[None] < np.full((8, 1), 20)
    >>> emphasise_odds(np.zeros((8, 40), np.float32), side)[4, [0, 20]].round(2)
    array([0.09, 0.85], dtype=float32)
    """
    options = options or RegionOptions()
    near = None
    if side.any() and not side.all():
        near = _nearness(side, odds.shape, options.odds_sigma)
    found = np.empty(odds.shape, np.float32)
    for rows in _strips(odds.shape):
        raised = np.asarray(odds[rows], np.float32) - np.float32(options.odds_offset)
        if near is not None:
            raised += np.float32(options.odds_emphasis) * (2.0 * near[rows] - 1.0)
        found[rows] = 1.0 / (1.0 + np.exp(-raised))
    return found


def _nearness(side: BoolArray, shape: tuple[int, ...], sigma: float) -> FloatMap:
    """Return how near each pixel is to the border of a region, from 0 to 1."""
    border = np.zeros(side.shape, dtype=np.uint8)
    border[:, 1:] |= side[:, 1:] != side[:, :-1]
    border[1:] |= side[1:] != side[:-1]
    distance = cv2.distanceTransform(1 - border, cv2.DIST_L2, 5)
    near = np.exp(distance**2 * np.float32(-0.5 / sigma**2))
    if near.shape != shape:
        near = cv2.resize(near, shape[::-1], interpolation=cv2.INTER_LINEAR)
    return np.asarray(near, np.float32)


def which_side(
    side: Side, extracted: ExtractedBorders, options: RegionOptions | None = None
) -> tuple[bool, str]:
    """Return whether the inside of a cut was pasted, and what tells so.

    The network was trained to tell the pasted side: hosts were mostly saved as they are, and pasted
    parts moved, resized and surrounded. Where it does not tell the sides apart, the smaller one is
    taken.
    """
    options = options or RegionOptions()
    area, vectors = extracted.area, extracted.vectors
    if vectors is not None and side.any() and not side.all():
        odds = vectors[:, PASTED_COLUMN]
        means = [float(odds[part] @ area[part] / area[part].sum()) for part in (side, ~side)]
        if abs(means[0] - means[1]) >= options.min_side_odds:
            return means[0] > means[1], "network"
    return bool(2.0 * area[side].sum() <= area.sum()), "smaller"


def emphasise_border(
    boundary: FloatMap, side: BoolArray, options: RegionOptions | None = None
) -> FloatMap:
    """Return the boundary map with what lies near the border of a region emphasised.

    The border adds a little of its own, for the parts of a seam that no filter sees.
    """
    options = options or RegionOptions()
    near = _nearness(side, boundary.shape, options.border_sigma)
    out = (boundary + np.float32(options.border_offset)) * near
    out += np.float32(options.far_weight) * boundary
    return np.asarray(out / out.max(), dtype=np.float32)


def _evidence_lost_by_moving(borders: Borders, sides: Sides, side: Side) -> FloatArray:
    """Return how much evidence the cut would lose if each superpixel alone changed sides."""
    sign = np.where(side, 1.0, -1.0)
    alike = borders.evidence * sign[borders.one] * sign[borders.two]
    return np.asarray(sign * sides.preference(side) - borders.sum_around(alike))
