"""From the boundary map to the region: which part of a photo came from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.decide.cut import Cut, best_cut
from cpcapp.splicing.decide.evidence import LikelihoodTable, log_strength, strength_unit
from cpcapp.splicing.decide.options import RegionOptions
from cpcapp.splicing.decide.sides import (
    PASTED_COLUMN,
    Sides,
    SideStatistics,
    TraceContrast,
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
from cpcapp.splicing.measure.measure import Measured
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
    pixels : ndarray of shape (n,)
        Flat indices into the labels of the pixels along borders.
    one, two : ndarray of shape (n,), int32
        The superpixels on either side of each of them.
    measured : ndarray of shape (n,), float32
        What is measured there: see `cpcapp.splicing.decide.evidence.LikelihoodTable`.
    statistics : SideStatistics
        Of the mosaic.
    vectors : ndarray of shape (count, n_features), or None
        Of the learned traces; see `cpcapp.splicing.decide.sides.superpixel_vectors`.
    area : ndarray of shape (count,)
        Pixels of each superpixel.
    """

    labels: Labels = field(repr=False)
    pixels: NDArray[np.intp] = field(repr=False)
    one: NDArray[np.int32] = field(repr=False)
    two: NDArray[np.int32] = field(repr=False)
    measured: NDArray[np.float32] = field(repr=False)
    statistics: SideStatistics = field(repr=False)
    vectors: FloatArray | None = field(repr=False)
    area: FloatArray = field(repr=False)

    def find_cut(
        self, table: LikelihoodTable, traces: TraceContrast | None, options: RegionOptions
    ) -> tuple[Cut, Borders, Sides]:
        """Return the best cut, the penalised borders that trimmed it, and what tells the sides."""
        borders = collect_borders(
            len(self.area), self.one, self.two, table(self.measured) - options.prior
        )
        kinds = [replace(self.statistics, weight=options.mosaic_weight)]
        if traces is not None and self.vectors is not None:
            # Neighbouring blocks see much of the same: twice the side is twice as much that is new,
            # as it is for a seam.
            weight = options.trace_weight * (options.reference_pixels / self.area.sum()) ** 0.5
            kinds.append(traces.statistics(self.vectors, self.area, weight, options))
        sides = Sides(tuple(kinds))
        cut = best_cut(borders, sides, options.trim_per_pixel)
        return cut, borders.penalise(options.trim_per_pixel), sides


def extract_borders(measured: Measured, options: RegionOptions) -> ExtractedBorders:
    """Divide a photo into superpixels and measure along their borders."""
    image, learned = measured.image, measured.learned
    shape = image.shape[:2]
    seam = measured.boundary.map if learned is None else learned.seam
    factor = max(1.0, (image[..., 0].size / options.max_pixels) ** 0.5)
    if factor > 1.0:
        height, width = (max(1, round(side / factor)) for side in shape)
        seam = _shrink(seam, (width, height), factor)
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    labels, count = superpixels(image, options)
    here, there = border_pixels(labels)
    numbers, flat = labels.ravel(), seam.ravel()
    seen = np.maximum(flat[here], flat[there])
    vectors, area = None, np.bincount(numbers, minlength=count).astype(np.float64)
    if learned is None:
        unit = strength_unit(seen, labels.size, options)
        seen = log_strength(seen / unit).astype(np.float32)
    else:
        vectors = superpixel_vectors(learned, labels, count, shape)
    return ExtractedBorders(
        labels,
        here,
        numbers[here],
        numbers[there],
        seen,
        side_statistics(measured.mosaic, labels, count, options),
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
    cut : Cut
    n_pixels : float
        In which the cut was found: of a large photo, made smaller.
    side_rule : {"network", "smaller"} or None
        What told which of the two sides was pasted: the network's traces, or that it is the
        smaller one. None if there is no region.
    inside : ndarray of bool, or None
        Those of them that lie inside the cut. None if there is no region.
    """

    map: FloatMap = field(repr=False)
    cut: Cut = field(repr=False)
    n_pixels: float
    side_rule: str | None = None
    inside: BoolArray | None = field(default=None, repr=False)


def find_region(
    measured: Measured,
    table: LikelihoodTable,
    traces: TraceContrast | None,
    options: RegionOptions,
) -> Region:
    """Find the pasted part of a photo."""
    shape = measured.image.shape[:2]
    if min(shape) < MIN_REGION_SIDE:
        return Region(np.zeros(shape, np.float32), Cut.nothing(1), 1.0)
    extracted = extract_borders(measured, options)
    cut, borders, sides = extracted.find_cut(table, traces, options)
    said, n_pixels = None, float(extracted.labels.size)
    if measured.learned is not None:
        said = measured.learned.pasted_map(shape)
    if not cut.side.any():
        # Nothing is above a half, but what the network says is there to look at.
        nothing_certain = np.zeros(shape, np.float32) if said is None else np.float32(0.5) * said
        return Region(nothing_certain, cut, n_pixels)
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
    for rows in _strips(shape):
        strip = sure[rows]
        if said is not None:
            fits = np.where(part[rows], said[rows], 1.0 - said[rows])
            strip += np.float32(options.odds_share) * (fits - strip)
        strip *= np.float32(0.5)
        strip[...] = np.where(part[rows], 0.5 + strip, 0.5 - strip)
    return Region(sure, cut, n_pixels, rule, cut.side[extracted.labels])


def _strips(shape: tuple[int, ...]) -> list[slice]:
    """Return slices of rows: of a large photo, no further map of its size shall be needed."""
    return [slice(top, top + _ROWS_PER_STRIP) for top in range(0, shape[0], _ROWS_PER_STRIP)]


def _nearness(inside: BoolArray, shape: tuple[int, ...], sigma: float) -> FloatMap:
    """Return how near each pixel is to the border of a region, from 0 to 1."""
    border = np.zeros(inside.shape, dtype=np.uint8)
    border[:, 1:] |= inside[:, 1:] != inside[:, :-1]
    border[1:] |= inside[1:] != inside[:-1]
    distance = cv2.distanceTransform(1 - border, cv2.DIST_L2, 5)
    near = np.exp(distance**2 * np.float32(-0.5 / sigma**2))
    if near.shape != shape:
        near = cv2.resize(near, shape[::-1], interpolation=cv2.INTER_LINEAR)
    return np.asarray(near, np.float32)


def which_side(side: Side, extracted: ExtractedBorders, options: RegionOptions) -> tuple[bool, str]:
    """Return whether the inside of a cut was pasted, and what tells so.

    The network was trained to tell the pasted side: hosts were mostly saved as they are, and pasted
    parts moved, resized and surrounded. Where it does not tell the sides apart, the smaller one is
    taken.
    """
    area, vectors = extracted.area, extracted.vectors
    if vectors is not None and side.any() and not side.all():
        odds = vectors[:, PASTED_COLUMN]
        means = [float(odds[part] @ area[part] / area[part].sum()) for part in (side, ~side)]
        if abs(means[0] - means[1]) >= options.min_side_odds:
            return means[0] > means[1], "network"
    return bool(2.0 * area[side].sum() <= area.sum()), "smaller"


def emphasise_border(boundary: FloatMap, inside: BoolArray, options: RegionOptions) -> FloatMap:
    """Return the boundary map with what lies near the border of a region emphasised.

    The border adds a little of its own, for the parts of a seam that no filter sees.
    """
    near = _nearness(inside, boundary.shape, options.border_sigma)
    out = (boundary + np.float32(options.border_offset)) * near
    out += np.float32(options.far_weight) * boundary
    return np.asarray(out / out.max(), dtype=np.float32)


def _evidence_lost_by_moving(borders: Borders, sides: Sides, side: Side) -> FloatArray:
    """Return how much evidence the cut would lose if each superpixel alone changed sides."""
    sign = np.where(side, 1.0, -1.0)
    alike = borders.evidence * sign[borders.one] * sign[borders.two]
    return np.asarray(sign * sides.preference(side) - borders.sum_around(alike))
