"""Options of splices, and drawing one: what is cut out, and where it is pasted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.ranges import check_ranges, ranged
from cpcapp.splicing.photo.pixels import BoolArray, FloatArray, FloatMap

# A segmentation: the number of the thing that each pixel belongs to.
Labels = NDArray[np.integer]
INTERPOLATIONS = {
    "nearest": cv2.INTER_NEAREST,
    "linear": cv2.INTER_LINEAR,
    "cubic": cv2.INTER_CUBIC,
    "lanczos": cv2.INTER_LANCZOS4,
    "area": cv2.INTER_AREA,
}

# Chosen by eye, not tuned: how often a neighbouring segment is taken too, and the distance in
# pixels that a pasted part keeps from a border that it does not reach.
_NEIGHBOUR_SHARE = 0.35
_MARGIN = 3


def _outline(area: float, rng: np.random.Generator) -> BoolArray:
    angle = np.linspace(0, 2 * np.pi, 240, endpoint=False)
    order = np.arange(1, 9)
    size = rng.normal(scale=0.35, size=len(order)) / order ** rng.uniform(0.8, 1.5)
    waves = np.cos(order * angle[:, None] + rng.uniform(0, 2 * np.pi, len(order)))
    return _fill_outline(angle, np.exp(waves @ size), area, rng)


def _polygon(area: float, rng: np.random.Generator) -> BoolArray:
    n = int(rng.integers(4, 10))
    # Even angles plus noise of a part of a step: no two corners meet, and no side passes through
    # the middle.
    angle = (np.arange(n) + rng.uniform(0, 0.7, n)) * (2 * np.pi / n)
    return _fill_outline(angle, rng.uniform(0.45, 1.0, n), area, rng)


def _ellipse(area: float, rng: np.random.Generator) -> BoolArray:
    angle = np.linspace(0, 2 * np.pi, 240, endpoint=False)
    return _fill_outline(angle, np.ones_like(angle), area, rng)


def _rectangle(area: float, rng: np.random.Generator) -> BoolArray:
    aspect = np.exp(rng.uniform(-0.7, 0.7))
    height = max(1, round(np.sqrt(area * aspect)))
    return np.ones((height, max(1, round(area / height))), dtype=bool)


def _noise(area: float, rng: np.random.Generator) -> BoolArray:
    side = max(8, round(2.2 * np.sqrt(area)))
    coarse = rng.normal(size=(int(rng.integers(5, 9)),) * 2).astype(np.float32)
    field = cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC)
    across = np.linspace(-1, 1, side, dtype=np.float32)
    # Subtracting a bowl keeps the region in the middle of its box. Otherwise it could end in a
    # straight line at the border of the box.
    field -= np.float32(4.0) * (across**2 + across[:, None] ** 2)
    wanted = min(round(area), field.size - 1)
    level = np.partition(field, field.size - wanted, axis=None)[field.size - wanted]
    return crop_tight(largest_piece(field >= level))[0]


#: Random regions by name: a wavy closed line, smooth noise above a threshold, straight cuts, plain
#: shapes. Each has a number of pixels, to within a few percent; one of noise can be smaller.
SHAPES: dict[str, Callable[[float, np.random.Generator], BoolArray]] = {
    "outline": _outline,
    "noise": _noise,
    "polygon": _polygon,
    "ellipse": _ellipse,
    "rectangle": _rectangle,
}


def _fill_outline(
    angle: FloatArray, radius: FloatArray, area: float, rng: np.random.Generator
) -> BoolArray:
    """Return the inside of a closed line, stretched along one axis, turned, scaled to an area."""
    points = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    turned, stretch = rng.uniform(0, 2 * np.pi), np.exp(rng.uniform(-0.35, 0.35))
    turn = np.array([[np.cos(turned), -np.sin(turned)], [np.sin(turned), np.cos(turned)]])
    points = points * [stretch, 1 / stretch] @ turn.T
    x, y = points.T
    enclosed = 0.5 * abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))
    points = points * np.sqrt(area / enclosed)
    points -= points.min(axis=0) - 1
    width, height = np.ceil(points.max(axis=0)).astype(int) + 2
    canvas = np.zeros((height, width), dtype=np.uint8)
    cv2.fillPoly(canvas, [np.rint(points * 16).astype(np.int32)], 1, shift=4)
    return crop_tight(canvas > 0)[0]


def largest_piece(region: BoolArray) -> BoolArray:
    """Return the largest connected part of a region."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(region.astype(np.uint8))
    if count <= 2:
        return region
    return np.asarray(labels == 1 + int(stats[1:, cv2.CC_STAT_AREA].argmax()))


def crop_tight(region: BoolArray) -> tuple[BoolArray, int, int]:
    """Return the region without empty outer rows and columns, and its top and left."""
    left, top, width, height = cv2.boundingRect(region.astype(np.uint8))
    return region[top : top + height, left : left + width], top, left


class Segment(NamedTuple):
    """An object in a donor photo: its box, its labels, and the sides of the donor that cut it."""

    region: BoolArray
    top: int
    left: int
    labels: tuple[int, ...]
    cut: frozenset[str]


def draw_segment(
    labels: Labels,
    min_area: float,
    max_area: float,
    rng: np.random.Generator,
) -> Segment | None:
    """Draw a segment, or two that touch, from a segmentation of a photo.

    None if it is no usable object: too small or large, thin, or cut off by opposite sides.
    """
    counts = np.bincount(labels.ravel())
    # Two that touch may be large enough together, so half of the area will do for one.
    wanted = np.flatnonzero((counts >= 0.5 * min_area) & (counts <= max_area))
    if not len(wanted):
        return None
    weights = np.sqrt(counts[wanted])
    chosen = [int(rng.choice(wanted, p=weights / weights.sum()))]
    region = labels == chosen[0]
    if rng.random() < _NEIGHBOUR_SHARE or counts[chosen[0]] < min_area:
        grown = cv2.dilate(region.astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
        beside = np.unique(labels[grown & ~region])
        beside = beside[counts[beside] <= max_area - counts[chosen[0]]]
        if len(beside):
            chosen.append(int(rng.choice(beside)))
            region |= labels == chosen[1]
    region, top, left = crop_tight(_fill_holes(largest_piece(region)))
    if not min_area <= np.count_nonzero(region) <= max_area or _is_thin(region):
        return None
    (height, width), (rows, columns) = region.shape, labels.shape
    ends = {
        "top": top == 0,
        "left": left == 0,
        "bottom": top + height == rows,
        "right": left + width == columns,
    }
    cut = frozenset(side for side, reached in ends.items() if reached)
    if {"top", "bottom"} <= cut or {"left", "right"} <= cut:
        return None
    return Segment(region, top, left, tuple(chosen), cut)


def _fill_holes(region: BoolArray) -> BoolArray:
    # People often outline an eye or a window by itself; the face goes with its eyes.
    outer, _ = cv2.findContours(region.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    filled = cv2.drawContours(np.zeros(region.shape, np.uint8), outer, -1, 1, cv2.FILLED)
    return np.asarray(filled > 0)


def _is_thin(region: BoolArray) -> bool:
    """Return whether most of a region is near its outline."""
    radius = max(3, round(0.09 * np.sqrt(np.count_nonzero(region))))
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1,) * 2)
    core = cv2.erode(region.astype(np.uint8), disc, borderType=cv2.BORDER_CONSTANT, borderValue=0)
    return bool(np.count_nonzero(core) < 0.35 * np.count_nonzero(region))


def draw_place(
    box: tuple[int, int],
    host: tuple[int, int],
    rng: np.random.Generator,
    sides: Sequence[str] | None = None,
    over: float = 0.0,
) -> tuple[int, int] | None:
    """Draw top and left of a box on a host; None if it does not fit.

    It reaches the ``sides`` of the host, a share ``over`` of it outside of each, and no others.
    """
    corner = []
    for axis, (first, last) in enumerate((("top", "bottom"), ("left", "right"))):
        length, room = box[axis], host[axis]
        if sides and first in sides:
            corner.append(-round(over * length))
        elif sides and last in sides:
            corner.append(room - length + round(over * length))
        elif length + 2 * _MARGIN <= room:
            corner.append(int(rng.integers(_MARGIN, room - length - _MARGIN + 1)))
        else:
            return None
    return corner[0], corner[1]


class Move(NamedTuple):
    """How a donor is mirrored left to right, scaled and rotated (degrees, clockwise), in order."""

    flip: bool = False
    scale: float = 1.0
    rotate: float = 0.0
    interpolation: str = "nearest"

    @property
    def exact(self) -> bool:
        """Whether pixels are copied without interpolation."""
        return self.scale == 1.0 and self.rotate == 0.0

    @property
    def matrix(self) -> FloatArray:
        """The map from steps (x, y) on the host to steps on the donor, (2, 2)."""
        if self.exact:
            turn = np.eye(2)
        else:
            c, s = np.cos(np.deg2rad(self.rotate)), np.sin(np.deg2rad(self.rotate))
            turn = np.array([[c, s], [-s, c]]) / self.scale
        return np.array([[-1.0 if self.flip else 1.0], [1.0]]) * turn

    def donor_box(self, box: tuple[int, int]) -> tuple[float, float]:
        """Return height and width of the part of the donor that fills a box on the host."""
        width, height = np.abs(self.matrix) @ (box[1] - 1, box[0] - 1) + 1
        return float(height), float(width)

    def host_box(self, box: tuple[int, int]) -> tuple[int, int]:
        """Return height and width of the box on the host that holds a box of the donor."""
        width, height = np.ceil(np.abs(np.linalg.inv(self.matrix)) @ (box[1], box[0]))
        return int(height), int(width)

    def onto(self, box: tuple[int, int], centre: tuple[float, float]) -> FloatArray:
        """Return the map from a box's pixels to the donor's, its middle to ``centre`` (y, x)."""
        middle = np.array([(box[1] - 1) / 2, (box[0] - 1) / 2])
        return np.column_stack([self.matrix, (centre[1], centre[0]) - self.matrix @ middle])


def shift_affine(affine: FloatArray, top: int, left: int) -> FloatArray:
    """Return the map for a box that begins at (top, left) of the one that ``affine`` is for."""
    return np.column_stack([affine[:, :2], affine[:, 2] + affine[:, :2] @ (left, top)])


def lift(
    donor: NDArray[np.uint8],
    affine: FloatArray,
    box: tuple[int, int],
    move: Move,
    outside: int = cv2.BORDER_REFLECT_101,
) -> NDArray[np.uint8]:
    """Return the pixels of a donor that fill a box on the host."""
    corners = np.array([[0, box[1] - 1, 0, box[1] - 1], [0, 0, box[0] - 1, box[0] - 1], [1] * 4])
    reached = affine @ corners
    # A wide margin, so that blur and interpolation use the same neighbours as in the whole photo.
    first = np.clip(np.floor(reached.min(axis=1)).astype(int) - 12, 0, None)
    last = np.ceil(reached.max(axis=1)).astype(int) + 13
    window = donor[first[1] : max(last[1], first[1] + 1), first[0] : max(last[0], first[0] + 1)]
    if move.scale < 1.0:
        # Without this blur, details finer than the new pixels would alias.
        sigma = 0.5 * np.sqrt(1 / move.scale**2 - 1)
        window = cv2.GaussianBlur(window, (0, 0), sigma, borderType=cv2.BORDER_REFLECT_101)
    local = affine.copy()
    local[:, 2] -= first
    flags = INTERPOLATIONS[move.interpolation] | cv2.WARP_INVERSE_MAP
    return np.asarray(
        cv2.warpAffine(
            np.ascontiguousarray(window), local, box[::-1], flags=flags, borderMode=outside
        )
    )


# Chosen by hand, not tuned: a smaller photo has no room for a seam and its surroundings.
MIN_SOURCE_SIDE = 32

# Chosen by hand, not tuned: how often a cut is drawn before a plain one is taken, and how often
# each shape is drawn beside the others.
_TRIES = 24
_SHAPE_WEIGHTS = {"outline": 4.0, "noise": 4.0, "polygon": 3.0, "ellipse": 1.0, "rectangle": 1.0}
_SIDES = ("top", "bottom", "left", "right")
_MIRRORED = {"left": "right", "right": "left"}


@dataclass(frozen=True)
class SpliceOptions:
    """Options of splices: ranges to draw values from, and probabilities.

    A share is the probability that a splice has the property. A range is its smallest and its
    largest value; the same number twice gives that number always.

    Attributes
    ----------
    area : tuple of float
        Pasted share of the photo.
    border_share : float
        How often the pasted part reaches the border of the photo.
    segments_share : float
        How often an object that people outlined in the donor is pasted, if outlines are known.
    shapes : tuple of str
        Otherwise one of these: ``"outline"``, ``"noise"``, ``"polygon"``, ``"ellipse"``,
        ``"rectangle"``.
    flip_share : float
        How often the donor is mirrored left to right.
    untouched_share : float
        How often the donor is neither scaled nor rotated, so that its pixels are copied as they
        are.
    scale : tuple of float
        Of the donor.
    rotate : float
        Largest angle, in degrees, by which the donor is turned either way.
    hard_share : float
        How often the paste has a hard edge.
    feather : tuple of float
        Standard deviation of the Gaussian that softens an edge, in pixels.
    colour_match_share : float
        How often the pasted colours are matched to their new surroundings.
    colour_match : tuple of float
        How much: 0 not at all, 1 to the same mean and standard deviation (in CIE Lab).
    camera_share : float
        How often host and donor are taken with two different simulated cameras; see
        `cpcapp.splicing.make.cameras`. Scanned and resized photos have lost their camera traces.
    jpeg_share : float
        How often the finished photo is compressed.
    jpeg : tuple of int
        JPEG quality.
    host_jpeg_share, donor_jpeg_share : float
        How often the host and the donor were compressed before.
    host_jpeg, donor_jpeg : tuple of int
        JPEG quality.
    size : int, optional
        Longest side. A longer photo is cropped or shrunk to it, each in half of the cases.

    Examples
    --------
    >>> SpliceOptions(area=(0.05, 0.2), jpeg=(75, 75), jpeg_share=1.0).jpeg
    (75, 75)
    >>> SpliceOptions(hard_share=2)
    Traceback (most recent call last):
    ...
    ValueError: hard_share=2 must be from 0 to 1
    """

    area: tuple[float, float] = ranged((0.02, 0.35), 0.0005, 0.9)
    border_share: float = ranged(0.25, 0.0, 1.0)
    segments_share: float = ranged(0.6, 0.0, 1.0)
    shapes: tuple[str, ...] = tuple(SHAPES)
    flip_share: float = ranged(0.3, 0.0, 1.0)
    untouched_share: float = ranged(0.5, 0.0, 1.0)
    scale: tuple[float, float] = ranged((0.5, 2.0), 0.05, 20.0)
    rotate: float = ranged(30.0, 0.0, 180.0)
    hard_share: float = ranged(0.5, 0.0, 1.0)
    feather: tuple[float, float] = ranged((0.5, 3.0), 0.1, 100.0)
    colour_match_share: float = ranged(0.4, 0.0, 1.0)
    colour_match: tuple[float, float] = ranged((0.2, 0.9), 0.0, 1.0)
    camera_share: float = ranged(0.5, 0.0, 1.0)
    jpeg_share: float = ranged(0.5, 0.0, 1.0)
    jpeg: tuple[int, int] = ranged((60, 98), 1, 100)
    host_jpeg_share: float = ranged(0.3, 0.0, 1.0)
    host_jpeg: tuple[int, int] = ranged((70, 98), 1, 100)
    donor_jpeg_share: float = ranged(0.3, 0.0, 1.0)
    donor_jpeg: tuple[int, int] = ranged((70, 98), 1, 100)
    size: int | None = None

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.area[1] < 1.1 * self.area[0]:
            raise ValueError(
                f"area={self.area!r} leaves no room to draw from: the second number must be at "
                "least 1.1 times the first"
            )
        if self.size is not None and self.size < MIN_SOURCE_SIDE:
            raise ValueError(
                f"size={self.size!r} must be at least {MIN_SOURCE_SIDE} pixels, or None"
            )
        unknown = [kind for kind in self.shapes if kind not in SHAPES]
        if unknown or not self.shapes:
            raise ValueError(f"shapes={self.shapes!r} must be one or more of {', '.join(SHAPES)}")

    @classmethod
    def hard(cls) -> SpliceOptions:
        """Return plain cut and paste: pixels copied as they are, hard edges, no JPEG.

        >>> SpliceOptions.hard().jpeg_share
        0.0
        """
        return cls(
            segments_share=0.3,
            shapes=("outline", "noise", "polygon"),
            flip_share=0.0,
            untouched_share=1.0,
            hard_share=1.0,
            colour_match_share=0.0,
            camera_share=0.0,
            jpeg_share=0.0,
            host_jpeg_share=0.0,
            donor_jpeg_share=0.0,
        )


class CutOut(NamedTuple):
    """A region in its box, where the box lies on the host, and where its pixels come from."""

    kind: str
    region: BoolArray
    top: int
    left: int
    affine: FloatArray
    move: Move
    details: dict[str, Any]


class _Choices(NamedTuple):
    """What is drawn only once: otherwise new attempts would favour what fits easily."""

    thing: bool
    reach: bool
    exact: bool
    flip: bool


def draw_cut_out(
    host: tuple[int, int],
    donor: tuple[int, int],
    maps: list[Labels],
    options: SpliceOptions,
    rng: np.random.Generator,
) -> tuple[CutOut, FloatMap, float]:
    """Draw a cut-out with an area within the limits; return it, its alpha and the feather."""
    choices = _Choices(
        thing=bool(maps) and rng.random() < options.segments_share,
        reach=rng.random() < options.border_share,
        exact=rng.random() < options.untouched_share,
        flip=bool(rng.random() < options.flip_share),
    )
    feather = 0.0 if rng.random() < options.hard_share else float(rng.uniform(*options.feather))
    for attempt in range(_TRIES):
        if attempt == _TRIES // 2:
            choices = choices._replace(thing=False)
        if choices.thing:
            cut_out = _draw_thing(host, maps, choices, options, rng)
        else:
            cut_out = _draw_shape(host, donor, choices, options, rng)
        if cut_out is not None:
            alpha = _alpha(cut_out, host, feather)
            if options.area[0] <= (alpha >= 0.5).mean() <= options.area[1]:
                return cut_out, alpha, feather
    cut_out = _fallback_cut_out(host, donor, choices, options)
    # A larger feather would dissolve a small region.
    feather = min(feather, 0.09 * math.sqrt(np.count_nonzero(cut_out.region)))
    return cut_out, _alpha(cut_out, host, feather), feather


def _draw_shape(
    host: tuple[int, int],
    donor: tuple[int, int],
    choices: _Choices,
    options: SpliceOptions,
    rng: np.random.Generator,
) -> CutOut | None:
    weights = np.array([_SHAPE_WEIGHTS[kind] for kind in options.shapes])
    kind = str(rng.choice(options.shapes, p=weights / weights.sum()))
    region = SHAPES[kind](draw_log_between(options.area, rng) * host[0] * host[1], rng)
    move = _draw_move(choices, options.scale, options.rotate, rng)
    need = move.donor_box(region.shape)
    spare = (donor[0] - need[0], donor[1] - need[1])
    sides = [str(rng.choice(_SIDES))] if choices.reach else None
    corner = draw_place(region.shape, host, rng, sides, rng.uniform(0.03, 0.4))
    if corner is None or min(spare) < 0:
        return None
    if choices.exact:
        begin = [float(rng.integers(0, int(room) + 1)) for room in spare]
    else:
        begin = [float(rng.uniform(0, room)) for room in spare]
    centre = (begin[0] + (need[0] - 1) / 2, begin[1] + (need[1] - 1) / 2)
    return CutOut(kind, region, *corner, move.onto(region.shape, centre), move, {})


def _draw_thing(
    host: tuple[int, int],
    maps: list[Labels],
    choices: _Choices,
    options: SpliceOptions,
    rng: np.random.Generator,
) -> CutOut | None:
    pixels = host[0] * host[1]
    scale = (1.0, 1.0) if choices.exact else options.scale
    number = int(rng.integers(len(maps)))
    min_area, max_area = options.area[0] * pixels, options.area[1] * pixels
    limits = min_area / scale[1] ** 2, max_area / scale[0] ** 2
    thing = draw_segment(maps[number], *limits, rng)
    # What the donor's border cut off looks whole only at a border of the host.
    if thing is None or (thing.cut and not choices.reach):
        return None
    size = np.count_nonzero(thing.region)
    scale = (
        max(scale[0], math.sqrt(min_area / size)),
        min(scale[1], math.sqrt(max_area / size)),
    )
    move = _draw_move(choices, scale, 0.0 if thing.cut else options.rotate, rng)
    shape = thing.region.shape
    centre = (thing.top + (shape[0] - 1) / 2, thing.left + (shape[1] - 1) / 2)
    if choices.exact:
        region = thing.region[:, ::-1] if choices.flip else thing.region
        affine = move.onto(shape, centre)
    else:
        region, affine = _move_outline(thing.region, move, centre)
    sides, over = None, 0.0
    if thing.cut:
        sides = [_MIRRORED.get(side, side) if choices.flip else side for side in sorted(thing.cut)]
    elif choices.reach:
        sides, over = [str(rng.choice(_SIDES))], float(rng.uniform(0.03, 0.4))
    corner = draw_place(region.shape, host, rng, sides, over)
    if corner is None:
        return None
    details = {"segments": list(thing.labels), "segmentation": number}
    return CutOut("segments", region, *corner, affine, move, details)


def _move_outline(
    region: BoolArray, move: Move, centre: tuple[float, float]
) -> tuple[BoolArray, FloatArray]:
    """Return a region of the donor after the move, and the map from it to the donor."""
    box = move.host_box(region.shape)
    affine = move.onto(box, centre)
    rim = 16
    # Slightly blurred: otherwise an enlarged outline would show the donor's pixels as steps.
    framed = cv2.GaussianBlur(np.pad(region.astype(np.uint8) * np.uint8(255), rim), (0, 0), 1.0)
    local = affine.copy()
    local[:, 2] -= (centre[1] - (region.shape[1] - 1) / 2, centre[0] - (region.shape[0] - 1) / 2)
    local[:, 2] += rim
    outline = Move(move.flip, move.scale, move.rotate, "linear")
    shown = lift(framed, local, box, outline, outside=cv2.BORDER_CONSTANT)
    moved, top, left = crop_tight(shown >= 128)
    return moved, shift_affine(affine, top, left)


def _fallback_cut_out(
    host: tuple[int, int], donor: tuple[int, int], choices: _Choices, options: SpliceOptions
) -> CutOut:
    """Return a round region in the middle, with an area within the limits, for any photos."""
    wanted = round(math.sqrt(options.area[0] * options.area[1]) * host[0] * host[1])
    down, across = (np.linspace(-1, 1, side) for side in host)
    field = down[:, None] ** 4 + across**4
    inside = np.zeros(field.size, dtype=bool)
    inside[np.argpartition(field, wanted, axis=None)[:wanted]] = True
    region, top, left = crop_tight(inside.reshape(host))
    scale = max(1.0, *((b - 1) / (d - 1) for b, d in zip(region.shape, donor, strict=True)))
    move = Move(choices.flip, scale, 0.0, "nearest" if scale == 1 else "cubic")
    # The whole pixel nearest to the donor's centre, so that unscaled pixels are copied exactly.
    centre = [(d - b) // 2 + (b - 1) / 2 for b, d in zip(region.shape, donor, strict=True)]
    if scale > 1:
        centre = [(d - 1) / 2 for d in donor]
    affine = move.onto(region.shape, (centre[0], centre[1]))
    return CutOut("round", region, top, left, affine, move, {})


def _draw_move(
    choices: _Choices, scale: tuple[float, float], rotate: float, rng: np.random.Generator
) -> Move:
    if choices.exact:
        return Move(choices.flip)
    angle = float(rng.uniform(-rotate, rotate))
    # Lanczos costs ten times as much as linear, so it is rarer.
    kind = str(rng.choice(["linear", "cubic", "lanczos"], p=[0.45, 0.45, 0.1]))
    return Move(choices.flip, draw_log_between(scale, rng), angle, kind)


def _alpha(cut_out: CutOut, host: tuple[int, int], feather: float) -> FloatMap:
    """Return the donor's weight in each pixel of the host."""
    alpha = np.zeros(host, dtype=np.float32)
    height, width = cut_out.region.shape
    rows = slice(max(cut_out.top, 0), min(cut_out.top + height, host[0]))
    columns = slice(max(cut_out.left, 0), min(cut_out.left + width, host[1]))
    alpha[rows, columns] = cut_out.region[
        rows.start - cut_out.top : rows.stop - cut_out.top,
        columns.start - cut_out.left : columns.stop - cut_out.left,
    ]
    if feather:
        reach = math.ceil(3 * feather)
        # Beyond the border of the photo, the region continues.
        alpha = cv2.GaussianBlur(
            alpha, (2 * reach + 1,) * 2, feather, borderType=cv2.BORDER_REPLICATE
        )
        # Deep inside, the rounded weights sum to nearly 1, slightly above or below.
        alpha[alpha > 1 - 1e-5] = 1.0
    return alpha


def draw_log_between(limits: tuple[float, float], rng: np.random.Generator) -> float:
    """Draw a number between two limits whose logarithm is uniform."""
    return float(np.exp(rng.uniform(math.log(limits[0]), math.log(limits[1]))))
