"""Options of splices, and drawing one: what is cut out, and where it is pasted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.make.shapes import (
    SHAPES,
    Move,
    crop_tight,
    draw_place,
    draw_segment,
    lift,
    random_shape,
    shift_affine,
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
    ValueError: hard_share=2 must be a probability, from 0 to 1
    """

    area: tuple[float, float] = (0.02, 0.35)
    border_share: float = 0.25
    segments_share: float = 0.6
    shapes: tuple[str, ...] = tuple(SHAPES)
    flip_share: float = 0.3
    untouched_share: float = 0.5
    scale: tuple[float, float] = (0.5, 2.0)
    rotate: float = 30.0
    hard_share: float = 0.5
    feather: tuple[float, float] = (0.5, 3.0)
    colour_match_share: float = 0.4
    colour_match: tuple[float, float] = (0.2, 0.9)
    camera_share: float = 0.5
    jpeg_share: float = 0.5
    jpeg: tuple[int, int] = (60, 98)
    host_jpeg_share: float = 0.3
    host_jpeg: tuple[int, int] = (70, 98)
    donor_jpeg_share: float = 0.3
    donor_jpeg: tuple[int, int] = (70, 98)
    size: int | None = None

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name.endswith("_share") and not 0 <= value <= 1:
                raise ValueError(f"{name}={value!r} must be a probability, from 0 to 1")
        for name, lowest, highest in (
            ("area", 0.0005, 0.9),
            ("scale", 0.05, 20.0),
            ("feather", 0.1, 100.0),
            ("colour_match", 0.0, 1.0),
            ("jpeg", 1, 100),
            ("host_jpeg", 1, 100),
            ("donor_jpeg", 1, 100),
        ):
            _check_range(name, getattr(self, name), lowest, highest)
        if self.area[1] < 1.1 * self.area[0]:
            raise ValueError(
                f"area={self.area!r} leaves no room to draw from: the second number must be at "
                "least 1.1 times the first"
            )
        if not 0 <= self.rotate <= 180:
            raise ValueError(f"rotate={self.rotate!r} must be from 0 to 180 degrees")
        if self.size is not None and self.size < MIN_SOURCE_SIDE:
            raise ValueError(
                f"size={self.size!r} must be at least {MIN_SOURCE_SIDE} pixels, or None"
            )
        unknown = [kind for kind in self.shapes if kind not in SHAPES]
        if unknown or not self.shapes:
            raise ValueError(f"shapes={self.shapes!r} must be one or more of {', '.join(SHAPES)}")

    @classmethod
    def varied(cls) -> SpliceOptions:
        """Return the defaults, in which everything varies."""
        return cls()

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


def _check_range(name: str, value: Any, lowest: float, highest: float) -> None:
    try:
        low, high = value
        fits = bool(lowest <= low <= high <= highest)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(
            f"{name}={value!r} must be two numbers from {lowest} to {highest}, the smaller "
            "one first"
        )


class CutOut(NamedTuple):
    """A region in its box, where the box lies on the host, and where its pixels come from."""

    kind: str
    region: NDArray[np.bool_]
    top: int
    left: int
    affine: NDArray[np.float64]
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
    maps: list[NDArray[np.integer]],
    options: SpliceOptions,
    rng: np.random.Generator,
) -> tuple[CutOut, NDArray[np.float32], float]:
    """Draw a cut-out with an area within the limits; return it, its alpha and the feather."""
    choices = _Choices(
        thing=bool(maps) and rng.random() < options.segments_share,
        reach=rng.random() < options.border_share,
        exact=rng.random() < options.untouched_share,
        flip=bool(rng.random() < options.flip_share),
    )
    feather = 0.0 if rng.random() < options.hard_share else draw_between(options.feather, rng)
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
    region = random_shape(kind, draw_log_between(options.area, rng) * host[0] * host[1], rng)
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
    maps: list[NDArray[np.integer]],
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
    region: NDArray[np.bool_], move: Move, centre: tuple[float, float]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
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


def _alpha(cut_out: CutOut, host: tuple[int, int], feather: float) -> NDArray[np.float32]:
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


def draw_between(limits: tuple[float, float], rng: np.random.Generator) -> float:
    """Draw a number between two limits."""
    return float(rng.uniform(*limits))


def draw_log_between(limits: tuple[float, float], rng: np.random.Generator) -> float:
    """Draw a number between two limits whose logarithm is uniform."""
    return float(np.exp(rng.uniform(math.log(limits[0]), math.log(limits[1]))))
