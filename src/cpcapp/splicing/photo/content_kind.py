"""Whether an image looks like a photo, or like a screenshot or a drawing.

Traces of cameras and their noise mean nothing in a picture that no camera took. Such pictures have
large parts of exactly one colour, few colours in all, sharp edges right beside parts without any
noise, and two or three tones around an edge. The last one tells them from photos of things cut out
on white, and survives JPEG.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.jpeg import BLOCK
from cpcapp.splicing.photo.pixels import Pixels, as_bytes

# Of larger images, strips are used: the shares are the same, and the time is bounded.
_MAX_PIXELS = 2_000_000
_STRIP = 64
# Colours are counted on so many pixels.
_MAX_COUNTED = 400_000
_N_COLOURS = 16
# Steps between neighbours, in grey levels: none to speak of, and a sharp edge. Set by hand.
_STILL, _SHARP = 1, 40
# Share of a block without any step, for an edge to lie "beside nothing". Set by hand.
_MIN_STILL = 0.4
# Grey levels between the darkest and the brightest pixel of a block with an edge. Set by hand.
_MIN_RANGE = 40
# Of all tones from the darkest to the brightest, these are a drawing's.
_N_TONES, _N_MAIN_TONES = 8, 3
# Chosen by hand on photos of BSDS500, UCID and ImageNet and on drawings. Rates of error on other
# ones are in benchmarks/results/file_facts.json. The tones: on 1,537 photos and such drawings.
_MIN_FLAT = 0.25
_MIN_EDGES = 0.04
_CERTAIN_EDGES = 0.2
_MAX_OTHER_TONES = 0.19
_MIN_SMOOTH = 0.4
_MIN_FEW_COLOURS = 0.39


class ContentStatistics(NamedTuple):
    """What tells a drawing from a photo, each as a share from 0 to 1."""

    flat: float
    clean_edges: float
    smooth: float
    few_colours: float
    other_tones: float  # in blocks with an edge; 1 without such blocks


class ContentKind(NamedTuple):
    """Whether an image looks like a photo, and why."""

    looks_like_photo: bool
    reason: str


def measure_content(pixels: Pixels) -> ContentStatistics:
    """Measure what tells a drawing from a photo."""
    photo = _sample(as_bytes(np.asarray(pixels)))
    rows, cols = (n // BLOCK for n in photo.shape[:2])
    if not rows * cols:
        return ContentStatistics(0.0, 0.0, 0.0, 0.0, 1.0)
    photo = np.ascontiguousarray(photo[: BLOCK * rows, : BLOCK * cols])
    blocks = photo.reshape(rows, BLOCK, cols, BLOCK, 3)
    flat = (blocks.max(axis=(1, 3)) == blocks.min(axis=(1, 3))).all(axis=-1)
    # Along the rows; the last column has the step of the one before.
    step = cv2.absdiff(photo[:, 1:], photo[:, :-1]).max(axis=2)
    step = np.pad(step, ((0, 0), (0, 1)), mode="edge").reshape(rows, BLOCK, cols, BLOCK)
    beside_nothing = (step <= _STILL).mean(axis=(1, 3)) >= _MIN_STILL
    clean = ((step >= _SHARP).any(axis=(1, 3)) & beside_nothing)[~flat]
    grey = cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY).astype(np.int16)
    curved = cv2.Laplacian(grey, cv2.CV_16S, ksize=1)
    edged = grey.reshape(rows, BLOCK, cols, BLOCK).swapaxes(1, 2)[~flat]
    return ContentStatistics(
        float(flat.mean()),
        float(clean.mean()) if clean.size else 0.0,
        float((curved == 0).mean()),
        _share_of_colours(photo),
        _share_of_other_tones(edged),
    )


def _sample(photo: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a photo, or strips spread evenly over a large one."""
    height, width = photo.shape[:2]
    n_strips = max(1, _MAX_PIXELS // (_STRIP * max(width, 1)))
    if height * width <= _MAX_PIXELS or n_strips * _STRIP >= height:
        return photo[:, :_MAX_PIXELS]
    tops = np.linspace(0, height - _STRIP, n_strips).astype(int)
    return np.concatenate([photo[top : top + _STRIP, :_MAX_PIXELS] for top in tops.tolist()])


def _share_of_colours(photo: NDArray[np.uint8]) -> float:
    """Return the share of pixels with one of the most frequent colours."""
    colours = photo.reshape(-1, 3)
    if len(colours) > _MAX_COUNTED:
        # A step that divides no common width, so that all columns count.
        colours = colours[:: -(-len(colours) // _MAX_COUNTED) | 1]
    codes = colours.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)
    counts = np.sort(np.unique(codes, return_counts=True)[1])
    return float(counts[-_N_COLOURS:].sum() / len(codes))


def _share_of_other_tones(blocks: NDArray[np.int16]) -> float:
    """Return the share of pixels that have none of their block's main tones."""
    dark, bright = (extreme(axis=(1, 2), keepdims=True) for extreme in (blocks.min, blocks.max))
    has_edge = np.ravel(bright - dark) >= _MIN_RANGE
    if not has_edge.any():
        return 1.0
    tones = (_N_TONES * (blocks - dark) // (bright - dark + 1))[has_edge]
    shares = np.sort([(tones == tone).mean(axis=(1, 2)) for tone in range(_N_TONES)], axis=0)
    return float(shares[:-_N_MAIN_TONES].sum(axis=0).mean())


def judge_content(pixels: Pixels) -> ContentKind:
    """Say whether an image looks like a photo, or like a screenshot or a drawing."""
    found = measure_content(pixels)
    share = f"{found.flat:.0%} of its 8 × 8 blocks are of exactly one colour"
    if found.flat < _MIN_FLAT:
        return ContentKind(True, f"It looks like a photo: {share}.")
    if found.flat == 1.0:
        return ContentKind(False, "It is of one colour, or of blocks of one colour each.")
    drawn = found.other_tones <= _MAX_OTHER_TONES
    if found.clean_edges >= _CERTAIN_EDGES or (drawn and found.clean_edges >= _MIN_EDGES):
        return ContentKind(
            False,
            f"It looks like a screenshot or a drawing: {share}, and "
            f"{found.clean_edges:.0%} of the others have a sharp edge beside no noise at all.",
        )
    if drawn and found.smooth >= _MIN_SMOOTH and found.few_colours >= _MIN_FEW_COLOURS:
        return ContentKind(
            False,
            f"It looks like a screenshot or a drawing: {share}, and "
            f"{found.few_colours:.0%} of its pixels have one of {_N_COLOURS} colours.",
        )
    return ContentKind(True, f"It looks like a photo, with large even parts: {share}.")
