"""Masks from the difference of a tampered photo and its host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.pixels import BoolArray, FloatMap, Pixels, as_bytes

#: From this confidence on a difference mask is taken for the truth. Chosen by hand: the middle.
MIN_CONFIDENCE = 0.5


@dataclass(frozen=True)
class DifferenceMask:
    """The pasted part, how far it can be trusted, from 0 to 1, and what keeps that below 1."""

    mask: BoolArray
    confidence: float
    reason: str

    @property
    def trusted(self) -> bool:
        """Whether the mask may serve as ground truth, by ``MIN_CONFIDENCE``."""
        return self.confidence >= MIN_CONFIDENCE


def difference_mask(tampered: Pixels, host: Pixels) -> DifferenceMask:
    """Find the pasted part by comparing a tampered photo with the photo it was made from.

    CASIA ships no masks; as for the paper, they are made from the reference photos. The two
    differ not only in the pasted part: both went through JPEG, and the tampered one may be
    shifted, rescaled, cropped or turned by 90 degrees. So

    1. the host is brought onto the tampered photo: turned, scaled to its size or moved by what
       phase correlation finds, whichever leaves the smallest difference;
    2. the noise is estimated from the difference itself, as a function of how much the host
       changes within three pixels there: JPEG and a misfit by a pixel or two disturb edges
       and leave flat parts alone. In each of several classes of pixels the noise is the lower
       40 % point of the difference, which up to 60 % of pasted pixels do not touch;
    3. pixels that differ by 5 times the noise, and by 35 % of what is usual nearby, are kept if
       they hang together with pixels that differ by 12 times the noise; so are wider parts that
       do so only after smoothing;
    4. gaps of up to 6 pixels and small holes are closed, threads and specks dropped.

    The confidence is that of the weakest of these: the area (.2 % to 60 % of the photo), the
    contrast to the noise, the changes left outside the mask, the noise itself, how compact
    and in how few pieces the mask is, and how much of the photo the host covers.

    Parts of the host that a crop or shift left out are unknown and never in the mask. A photo
    that was both cropped and rescaled is not brought into line; its mask is not trusted.
    """
    photo, other = _check_pixels(tampered, "tampered"), _check_pixels(host, "host")
    aligned, known = min(_alignments(photo, other), key=lambda pair: _misfit(photo, *pair))
    change = _change(photo, aligned, known)
    activity = _activity(aligned)
    fine, coarse = _size(change, _OUTLINE_SMOOTHING), _size(change, _SEED_SMOOTHING)
    noise = _noise(fine, activity, known)
    clear = np.maximum(_SEED_FLOOR, _SEED_RATIO * noise)
    seeds = _open_mask(coarse > clear, 1)
    changed = fine > np.maximum(_FLOOR, _RATIO * noise)
    outline = changed & (fine > _RELATIVE * _mean_near(coarse, seeds, _NEAR))
    faint = _faint(change, activity, known)
    mask = _clean_mask(_keep_with_seed(outline | faint, seeds))
    covered, typical = float(known.mean()), float(np.median(noise[known])) if known.any() else 0.0
    if not mask.any():
        return DifferenceMask(mask, 0.0, _why_nothing(covered, typical))
    near = cv2.dilate(mask.astype(np.uint8), _disk(_MARGIN)) > 0
    confidence, reason = _rate_mask(
        mask,
        contrast=float(np.median((coarse / clear)[mask])),
        stray=float(_open_mask((changed | faint) & ~near, 2).sum() / mask.sum()),
        noise=typical,
        covered=covered,
    )
    return DifferenceMask(mask, confidence, reason)


# Differences are root mean squares over the channels, in grey levels of 8 bits. All of these were
# chosen by eye, on pastes of known shape (tests/splicing/datasets/test_difference_masks.py).
_SEED_SMOOTHING, _OUTLINE_SMOOTHING, _FAINT_SMOOTHING = 1.0, 0.5, 3.0
_SEED_RATIO, _SEED_FLOOR = 12.0, 9.0
_RATIO, _FLOOR = 5.0, 3.0
_RELATIVE, _NEAR = 0.35, 21
_MARGIN = 8  # JPEG carries the difference to the end of a block


def _disk(radius: int) -> NDArray[np.uint8]:
    size = 2 * radius + 1
    return np.asarray(cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (size, size)), dtype=np.uint8)


def _check_pixels(pixels: NDArray[Any], name: str) -> NDArray[np.uint8]:
    pixels = np.asarray(pixels)
    if (
        pixels.ndim != 3
        or pixels.shape[2] != 3
        or pixels.dtype not in (np.uint8, np.uint16)
        or min(pixels.shape) < 3
    ):
        raise ValueError(
            f"{name} has shape {pixels.shape} and dtype {pixels.dtype}; "
            "it must be (height, width, 3), uint8 or uint16, of at least 3 x 3 pixels"
        )
    return np.ascontiguousarray(as_bytes(pixels))


def _alignments(
    photo: NDArray[np.uint8], host: NDArray[np.uint8]
) -> Iterator[tuple[NDArray[np.uint8], BoolArray]]:
    """Yield the host as it may lie under the photo, and where it does; the likeliest first."""
    shape = photo.shape[:2]
    grey = _grey(photo)
    turned = host.shape[:2] == shape[::-1] and shape[0] != shape[1]
    for turns in (0, 1, 3) if turned else (0,):
        base = np.ascontiguousarray(np.rot90(host, turns))
        if base.shape != photo.shape:
            yield _move_host(base, shape, *_find_shift(grey, _grey(base)))
            stretch = (shape[0] * base.shape[1]) / (shape[1] * base.shape[0])
            if not 0.97 < stretch < 1.03:
                continue
            smaller = shape[0] < base.shape[0]
            way = cv2.INTER_AREA if smaller else cv2.INTER_CUBIC
            base = cv2.resize(base, shape[::-1], interpolation=way)
        yield base, np.ones(shape, dtype=bool)
        across, down = _find_shift(grey, _grey(base))
        if max(abs(across), abs(down)) > 0.1:
            yield _move_host(base, shape, across, down)


def _grey(pixels: NDArray[np.uint8]) -> FloatMap:
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), dtype=np.float32)


def _find_shift(photo: FloatMap, host: FloatMap) -> tuple[float, float]:
    """Return how far to move the host to the right and down, by phase correlation."""
    size = tuple(np.maximum(photo.shape, host.shape))

    def canvas(grey: FloatMap) -> FloatMap:
        rows, cols = grey.shape
        # Fine detail only, fading out at the borders, so that those do not correlate themselves.
        window = np.outer(np.hanning(rows + 2)[1:-1], np.hanning(cols + 2)[1:-1])
        out = np.zeros(size, dtype=np.float32)
        out[:rows, :cols] = (grey - cv2.GaussianBlur(grey, (0, 0), 3)) * window
        return out

    (across, down), _ = cv2.phaseCorrelate(canvas(host), canvas(photo))
    if not np.isfinite([across, down]).all():
        return 0.0, 0.0  # one of the photos is flat
    return float(across), float(down)


def _move_host(
    host: NDArray[np.uint8], shape: tuple[int, ...], across: float, down: float
) -> tuple[NDArray[np.uint8], BoolArray]:
    whole = round(across), round(down)
    if max(abs(across - whole[0]), abs(down - whole[1])) < 0.15:
        across, down = whole  # most are; resampling would only blur
    matrix = np.array([[1, 0, across], [0, 1, down]], dtype=np.float32)
    size = (shape[1], shape[0])
    moved = cv2.warpAffine(
        host, matrix, size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    everywhere = np.full(host.shape[:2], 255, dtype=np.uint8)
    known = cv2.warpAffine(everywhere, matrix, size, flags=cv2.INTER_LINEAR) == 255
    return moved, np.asarray(known)


def _change(photo: NDArray[np.uint8], host: NDArray[np.uint8], known: BoolArray) -> FloatMap:
    return np.asarray((photo.astype(np.float32) - host) * known[..., None], dtype=np.float32)


def _size(change: FloatMap, smoothing: float = 0.0) -> FloatMap:
    if smoothing > 0:
        change = cv2.GaussianBlur(change, (0, 0), smoothing)
    return np.asarray(np.sqrt(np.einsum("ijk,ijk->ij", change, change) / np.float32(3)))


def _misfit(photo: NDArray[np.uint8], host: NDArray[np.uint8], known: BoolArray) -> float:
    """Return the mean difference, where pixels count no more than what a paste would make."""
    highest = 24.0
    size = _size(_change(photo, host, known), _SEED_SMOOTHING)
    return float(np.where(known, np.minimum(size, highest), highest).mean())


def _faint(change: FloatMap, activity: FloatMap, known: BoolArray) -> BoolArray:
    """Return where a change is too weak for single pixels but goes on over many.

    Changes are cut to twice the threshold before they are smoothed: so a strong one reaches the
    threshold at its own edge, however wide the smoothing.
    """
    noise = _noise(_size(change, _FAINT_SMOOTHING), activity, known)
    threshold = np.maximum(_FLOOR, _RATIO * noise)
    cut = np.minimum(1, 2 * threshold / np.maximum(_size(change), 1e-3))
    wide = _size(change * cut[..., None], _FAINT_SMOOTHING) > threshold
    # The last pixels are left to the outline, which is sharper where there is one.
    return np.asarray(cv2.erode(wide.astype(np.uint8), _disk(2)) > 0)


def _activity(host: NDArray[np.uint8]) -> FloatMap:
    """Return the steepest slope within three pixels, in grey levels per pixel."""
    smooth = cv2.GaussianBlur(host.astype(np.float32), (0, 0), 1.0)
    slope = np.hypot(cv2.Sobel(smooth, -1, 1, 0), cv2.Sobel(smooth, -1, 0, 1)) / 8
    return np.asarray(cv2.dilate(slope.max(axis=2), np.ones((5, 5), dtype=np.uint8)))


def _noise(difference: FloatMap, activity: FloatMap, known: BoolArray) -> FloatMap:
    """Return the difference to expect at each pixel where nothing was pasted."""
    if not known.any():
        return np.zeros_like(activity)
    change = difference[known]
    bounds = np.quantile(activity[known], np.linspace(0, 1, 7))
    classes = np.clip(np.searchsorted(bounds, activity[known]) - 1, 0, 5)
    present = np.unique(classes)
    centre = np.array([np.median(activity[known][classes == c]) for c in present])
    typical = np.array([np.quantile(change[classes == c], 0.4) for c in present])
    # A class that is mostly pasted would take the paste for noise. The other classes bound it:
    # noise grows with activity, but less than in proportion.
    typical = np.minimum.accumulate(typical[::-1])[::-1]
    typical = (centre + 1) * np.minimum.accumulate((typical + 1) / (centre + 1)) - 1
    return np.asarray(np.interp(activity, centre, typical), dtype=np.float32)


def _open_mask(mask: BoolArray, radius: int) -> BoolArray:
    opened = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_OPEN, _disk(radius))
    return np.asarray(opened > 0)


def _mean_near(values: FloatMap, where: BoolArray, size: int) -> FloatMap:
    """Return the mean of some of the values in a square around each pixel; 0 if there are none."""
    weight = where.astype(np.float32)
    total = cv2.boxFilter(values * weight, -1, (size, size), normalize=False)
    count = cv2.boxFilter(weight, -1, (size, size), normalize=False)
    return np.asarray(total / np.maximum(count, 1), dtype=np.float32)


def _keep_with_seed(outline: BoolArray, seeds: BoolArray) -> BoolArray:
    """Return the connected parts of the outline that hold a seed."""
    n, labels = cv2.connectedComponents(outline.astype(np.uint8), connectivity=8)
    keep = np.zeros(n, dtype=bool)
    keep[np.unique(labels[seeds])] = True
    keep[0] = False
    return np.asarray(keep[labels])


def _clean_mask(mask: BoolArray) -> BoolArray:
    plane = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_CLOSE, _disk(3))
    plane = _fill_holes(plane)
    plane = cv2.morphologyEx(plane, cv2.MORPH_OPEN, _disk(2))
    n, labels, stats, _ = cv2.connectedComponentsWithStats(plane, connectivity=8)
    if n == 1:
        return np.zeros(mask.shape, dtype=bool)
    areas = stats[:, cv2.CC_STAT_AREA]
    keep = areas >= max(0.0005 * mask.size, 0.02 * areas[1:].max())
    keep[0] = False
    return np.asarray(keep[labels])


def _fill_holes(plane: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Fill holes of up to a tenth of the mask: parts that look like what they cover."""
    _, labels, stats, _ = cv2.connectedComponentsWithStats(1 - plane, connectivity=4)
    left, top, width, height, area = stats.T
    rows, cols = plane.shape
    enclosed = (left > 0) & (top > 0) & (left + width < cols) & (top + height < rows)
    fill = enclosed & (area <= 0.1 * plane.sum())
    fill[0] = False
    return np.asarray(np.where(fill[labels], 1, plane), dtype=np.uint8)


def _rate_mask(
    mask: BoolArray, *, contrast: float, stray: float, noise: float, covered: float
) -> tuple[float, str]:
    """Return the confidence in a mask, which is that of its weakest side, and what that is."""
    share = float(mask.mean())
    outlines, _ = cv2.findContours(
        mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE
    )
    hulls = sum(cv2.contourArea(cv2.convexHull(outline)) for outline in outlines)
    solidity = min(1.0, float(mask.sum()) / max(hulls, 1.0))
    sides = [
        (_between(share, 0.001, 0.003), f"only {share:.2%} of the photo differs"),
        (_between(share, 0.7, 0.5), f"{share:.0%} of the photo differs"),
        (_between(contrast, 0.35, 0.75), f"the difference is only {contrast:.0%} of a clear one"),
        (_between(stray, 1.0, 0.2), f"outside the mask {stray:.0%} of its area differs too"),
        (_between(noise, 12.0, 5.0), f"the host differs everywhere, by {noise:.0f} grey levels"),
        (_between(solidity, 0.1, 0.3), f"the mask fills only {solidity:.0%} of its hull"),
        (_between(len(outlines), 40, 15), f"the mask has {len(outlines)} pieces"),
        (_between(covered, 0.5, 0.95), f"the host covers only {covered:.0%} of the photo"),
    ]
    confidence, reason = min(sides, key=lambda side: side[0])
    return confidence, reason if confidence < 1 else ""


def _why_nothing(covered: float, noise: float) -> str:
    if covered < 0.5:
        return f"the host covers only {covered:.0%} of the photo"
    if noise > 5:
        return f"the host differs everywhere, by {noise:.0f} grey levels: it may be another photo"
    return "nothing differs"


def _between(value: float, bad: float, good: float) -> float:
    """Return 0 at a bad value, 1 at a good one, and what lies between for one between."""
    return float(np.clip((value - bad) / (good - bad), 0.0, 1.0))
