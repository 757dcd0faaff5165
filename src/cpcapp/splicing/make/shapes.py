"""Shapes to cut out of a donor photo, how they are moved, and where they are pasted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

INTERPOLATIONS = {
    "nearest": cv2.INTER_NEAREST,
    "linear": cv2.INTER_LINEAR,
    "cubic": cv2.INTER_CUBIC,
    "lanczos": cv2.INTER_LANCZOS4,
}

# Chosen by eye, not tuned: how often a neighbouring segment is taken too, and the distance in
# pixels that a pasted part keeps from a border that it does not reach.
_NEIGHBOUR_SHARE = 0.35
_MARGIN = 3


def random_shape(kind: str, area: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a random region of one of the kinds in `SHAPES`.

    ``kind``: A wavy closed line, smooth noise above a threshold, straight cuts, or a plain shape.

    ``area``: number of pixels, reached to within a few percent; a noise region can be smaller.

    >>> import numpy as np
    >>> shape = random_shape("ellipse", 2000, np.random.default_rng(0))
    >>> bool(1800 < shape.sum() < 2200)
    True
    """
    if kind not in SHAPES:
        raise ValueError(f"kind={kind!r} is not a shape; the shapes are {', '.join(SHAPES)}")
    return SHAPES[kind](area, rng)


def _outline(area: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    angle = np.linspace(0, 2 * np.pi, 240, endpoint=False)
    order = np.arange(1, 9)
    size = rng.normal(scale=0.35, size=len(order)) / order ** rng.uniform(0.8, 1.5)
    waves = np.cos(order * angle[:, None] + rng.uniform(0, 2 * np.pi, len(order)))
    radius = np.exp(waves @ size)
    points = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return _fill_outline(_turn(points, rng), area)


def _polygon(area: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    n = int(rng.integers(4, 10))
    # Even angles plus noise of a part of a step: no two corners meet, and no side passes through
    # the middle.
    angle = (np.arange(n) + rng.uniform(0, 0.7, n)) * (2 * np.pi / n)
    radius = rng.uniform(0.45, 1.0, n)
    points = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return _fill_outline(_turn(points, rng), area)


def _ellipse(area: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    angle = np.linspace(0, 2 * np.pi, 240, endpoint=False)
    return _fill_outline(_turn(np.column_stack([np.cos(angle), np.sin(angle)]), rng), area)


def _rectangle(area: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    aspect = np.exp(rng.uniform(-0.7, 0.7))
    height = max(1, round(np.sqrt(area * aspect)))
    return np.ones((height, max(1, round(area / height))), dtype=bool)


def _noise(area: float, rng: np.random.Generator) -> NDArray[np.bool_]:
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


SHAPES: dict[str, Callable[[float, np.random.Generator], NDArray[np.bool_]]] = {
    "outline": _outline,
    "noise": _noise,
    "polygon": _polygon,
    "ellipse": _ellipse,
    "rectangle": _rectangle,
}


def _turn(points: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Stretch an outline along one axis and turn it."""
    angle, stretch = rng.uniform(0, 2 * np.pi), np.exp(rng.uniform(-0.35, 0.35))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.asarray(points * [stretch, 1 / stretch] @ turn.T)


def _fill_outline(points: NDArray[np.float64], area: float) -> NDArray[np.bool_]:
    """Return the inside of a closed line, scaled to an area."""
    x, y = points.T
    enclosed = 0.5 * abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))
    points = points * np.sqrt(area / enclosed)
    points -= points.min(axis=0) - 1
    width, height = np.ceil(points.max(axis=0)).astype(int) + 2
    canvas = np.zeros((height, width), dtype=np.uint8)
    cv2.fillPoly(canvas, [np.rint(points * 16).astype(np.int32)], 1, shift=4)
    return crop_tight(canvas > 0)[0]


def largest_piece(region: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the largest connected part of a region."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(region.astype(np.uint8))
    if count <= 2:
        return region
    return np.asarray(labels == 1 + int(stats[1:, cv2.CC_STAT_AREA].argmax()))


def crop_tight(region: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], int, int]:
    """Return the region without empty outer rows and columns, and its top and left."""
    left, top, width, height = cv2.boundingRect(region.astype(np.uint8))
    return region[top : top + height, left : left + width], top, left


@dataclass(frozen=True)
class Segment:
    """An object in a donor photo.

    Attributes
    ----------
    region : ndarray of shape (height, width), bool
        Without empty outer rows and columns.
    top, left : int
        Where the region begins in the donor.
    labels : tuple of int
        The segments it is made of.
    cut : frozenset of {"top", "bottom", "left", "right"}
        The sides of the donor that cut off the object.
    """

    region: NDArray[np.bool_]
    top: int
    left: int
    labels: tuple[int, ...]
    cut: frozenset[str]


def draw_segment(
    labels: NDArray[np.integer],
    min_area: float,
    max_area: float,
    rng: np.random.Generator,
) -> Segment | None:
    """Draw a segment, or two that touch, from a segmentation of a photo.

    None if what was drawn is no usable object: too small or large, thin, or cut off by opposite
    sides of the photo. Then draw again.
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


def _fill_holes(region: NDArray[np.bool_]) -> NDArray[np.bool_]:
    # People often outline an eye or a window by itself; the face goes with its eyes.
    outer, _ = cv2.findContours(region.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    filled = cv2.drawContours(np.zeros(region.shape, np.uint8), outer, -1, 1, cv2.FILLED)
    return np.asarray(filled > 0)


def _is_thin(region: NDArray[np.bool_]) -> bool:
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
    """Draw where a box lies on a host.

    ``sides``: sides of the host that the box must reach. Without them it reaches no side.

    ``over``: share of the box that lies outside of each of those sides.

    Top and left of the box; None if it does not fit.

    >>> import numpy as np
    >>> draw_place((10, 20), (50, 60), np.random.default_rng(0), sides=["bottom", "left"])
    (40, 0)
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


@dataclass(frozen=True)
class Move:
    """How a donor is mirrored, scaled and rotated, in this order.

    Attributes
    ----------
    flip : bool
        Left to right.
    scale : float
    rotate : float
        Degrees, clockwise.
    interpolation : str
        A key of `INTERPOLATIONS`.
    """

    flip: bool = False
    scale: float = 1.0
    rotate: float = 0.0
    interpolation: str = "nearest"

    @property
    def exact(self) -> bool:
        """Whether pixels are copied without interpolation."""
        return self.scale == 1.0 and self.rotate == 0.0

    @property
    def matrix(self) -> NDArray[np.float64]:
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

    def onto(self, box: tuple[int, int], centre: tuple[float, float]) -> NDArray[np.float64]:
        """Return the map from a box's pixels to the donor's, its middle to ``centre`` (y, x)."""
        middle = np.array([(box[1] - 1) / 2, (box[0] - 1) / 2])
        return np.column_stack([self.matrix, (centre[1], centre[0]) - self.matrix @ middle])


def shift_affine(affine: NDArray[np.float64], top: int, left: int) -> NDArray[np.float64]:
    """Return the map for a box that begins at (top, left) of the one that ``affine`` is for."""
    return np.column_stack([affine[:, :2], affine[:, 2] + affine[:, :2] @ (left, top)])


def lift(
    donor: NDArray[np.uint8],
    affine: NDArray[np.float64],
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
