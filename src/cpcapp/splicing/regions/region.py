"""From the boundary map to the region: which part of a photo came from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.boundary import BoundaryMap
from cpcapp.splicing.photos.pixels import BoolArray, FloatArray, FloatMap
from cpcapp.splicing.regions.borders import Borders, Side, border_pixels, collect_borders
from cpcapp.splicing.regions.evidence import SeamEvidence, relative_strength
from cpcapp.splicing.regions.options import RegionOptions
from cpcapp.splicing.regions.search import Cut, best_cut
from cpcapp.splicing.regions.side_statistics import SideStatistics, side_statistics
from cpcapp.splicing.regions.superpixels import Labels, superpixels
from cpcapp.splicing.traces.mosaic import MosaicTrace

#: Photos with a shorter side have too few superpixels: no region is sought in them.
MIN_REGION_SIDE = 64


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
    strength : ndarray of shape (n,), float32
        Of the boundary map there; see `cpcapp.splicing.regions.evidence.relative_strength`.
    statistics : SideStatistics
    """

    labels: Labels = field(repr=False)
    count: int
    pixels: NDArray[np.intp] = field(repr=False)
    one: NDArray[np.int32] = field(repr=False)
    two: NDArray[np.int32] = field(repr=False)
    strength: NDArray[np.float32] = field(repr=False)
    statistics: SideStatistics = field(repr=False)

    def find_cut(self, evidence: SeamEvidence) -> tuple[Cut, Borders]:
        """Return the best cut and the penalised borders it was trimmed by."""
        borders = collect_borders(self.count, self.one, self.two, evidence(self.strength))
        cut = best_cut(borders, self.statistics, evidence.mosaic_weight, evidence.trim_per_pixel)
        return cut, borders.penalise(evidence.trim_per_pixel)


def extract_borders(
    image: FloatMap,
    boundary: BoundaryMap,
    trace: MosaicTrace | None,
    options: RegionOptions | None = None,
) -> ExtractedBorders:
    """Divide a photo into superpixels and measure along their borders.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]
    boundary : BoundaryMap
    trace : MosaicTrace or None
    options : RegionOptions, optional

    Returns
    -------
    ExtractedBorders
    """
    options = options or RegionOptions()
    height, width = image.shape[:2]
    strength = boundary.map
    factor = max(1.0, (height * width / options.max_pixels) ** 0.5)
    if factor > 1.0:
        size = max(1, round(width / factor)), max(1, round(height / factor))
        # A narrow seam must not get fainter by averaging.
        reach = np.ones((round(factor), round(factor)), dtype=np.uint8)
        strength = cv2.resize(cv2.dilate(strength, reach), size, interpolation=cv2.INTER_AREA)
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    labels, count = superpixels(image, options)
    here, there = border_pixels(labels)
    flat, numbers = strength.ravel(), labels.ravel()
    return ExtractedBorders(
        labels,
        count,
        here,
        numbers[here],
        numbers[there],
        relative_strength(np.maximum(flat[here], flat[there]), labels.size, options),
        side_statistics(trace, labels, count, options),
    )


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
    """

    map: FloatMap = field(repr=False)
    boundary: FloatMap = field(repr=False)
    cut: Cut = field(repr=False)


def find_region(
    image: FloatMap,
    boundary: BoundaryMap,
    trace: MosaicTrace | None,
    evidence: SeamEvidence,
    options: RegionOptions | None = None,
) -> Region:
    """Find the pasted part of a photo.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]
    boundary : BoundaryMap
    trace : MosaicTrace or None
        None for a photo without one.
    evidence : SeamEvidence
    options : RegionOptions, optional

    Returns
    -------
    Region

    Examples
    --------
    >>> import numpy as np
    >>> photo = np.full((96, 128, 3), 0.2, dtype=np.float32)
    >>> photo[32:64, 48:96] = 0.8
    >>> seam = np.zeros((96, 128), dtype=np.float32)
    >>> seam[30:66, 46:98], seam[34:62, 50:94] = 1.0, 0.0
    >>> rule = SeamEvidence(np.log([0.1, 1.0]), np.array([-3.0, 3.0]))
    >>> found = find_region(photo, BoundaryMap(seam, 1.0), None, rule)
    >>> bool(found.map[40:60, 60:90].min() > 0.5), bool(found.map[:20].max() < 0.5)
    (True, True)
    """
    options = options or RegionOptions()
    shape = image.shape[:2]
    if min(shape) < MIN_REGION_SIDE:
        nothing = Cut(np.zeros(1, dtype=bool), 0.0, 0.0, 0.0)
        return Region(np.zeros(shape, np.float32), boundary.map, nothing)
    extracted = extract_borders(image, boundary, trace, options)
    cut, borders = extracted.find_cut(evidence)
    if not cut.side.any():
        return Region(np.zeros(shape, np.float32), boundary.map, cut)
    losses = _evidence_lost_by_moving(
        borders, extracted.statistics, cut.side, evidence.mosaic_weight
    )
    certainty = 1.0 - np.exp(-np.maximum(losses, 0.0) / options.certainty_evidence)
    pasted = cut.side == _inside_is_smaller(cut.side, extracted.labels, extracted.count)
    values = np.where(pasted, 0.5 + 0.5 * certainty, 0.5 - 0.5 * certainty).astype(np.float32)
    found = values[extracted.labels]
    if found.shape != shape:
        found = cv2.resize(found, shape[::-1], interpolation=cv2.INTER_LINEAR)
    emphasised = emphasise_border(boundary.map, cut.side[extracted.labels], options)
    return Region(found, emphasised, cut)


def emphasise_border(
    boundary: FloatMap, side: BoolArray, options: RegionOptions | None = None
) -> FloatMap:
    """Return the boundary map with what lies near the border of a region emphasised.

    The border adds a little of its own, for the parts of a seam that no filter sees.

    Parameters
    ----------
    boundary : ndarray of shape (height, width), float32 in [0, 1]
    side : ndarray of shape (height, width) or smaller, bool
        Whether each pixel lies inside.
    options : RegionOptions, optional

    Returns
    -------
    ndarray of shape (height, width), float32 in [0, 1]
    """
    options = options or RegionOptions()
    border = np.zeros(side.shape, dtype=np.uint8)
    border[:, 1:] |= side[:, 1:] != side[:, :-1]
    border[1:] |= side[1:] != side[:-1]
    distance = cv2.distanceTransform(1 - border, cv2.DIST_L2, 5)
    near = np.exp(distance**2 * np.float32(-0.5 / options.border_sigma**2))
    if near.shape != boundary.shape:
        near = cv2.resize(near, boundary.shape[::-1], interpolation=cv2.INTER_LINEAR)
    out = (boundary + np.float32(options.border_offset)) * near
    out += np.float32(options.far_weight) * boundary
    return np.asarray(out / out.max(), dtype=np.float32)


def _inside_is_smaller(side: Side, labels: Labels, count: int) -> bool:
    """Return whether the inside is the smaller part, which is taken for the pasted one."""
    area = np.bincount(labels.ravel(), minlength=count)
    return bool(2 * area[side].sum() <= labels.size)


def _evidence_lost_by_moving(
    borders: Borders, statistics: SideStatistics, side: Side, mosaic_weight: float
) -> FloatArray:
    """Return how much evidence the cut would lose if each superpixel alone changed sides."""
    sign = np.where(side, 1.0, -1.0)
    alike = borders.evidence * sign[borders.one] * sign[borders.two]
    return np.asarray(
        sign * mosaic_weight * statistics.preference(side) - borders.sum_around(alike)
    )
