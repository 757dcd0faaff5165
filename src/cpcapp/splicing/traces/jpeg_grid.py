"""Traces of JPEG compression: JPEG rounds the frequencies of 8 x 8 blocks."""

from __future__ import annotations

import cv2
import numpy as np

from cpcapp.splicing.photos.jpeg import BLOCK, STANDARD_TABLE, block_cosines, table_quality
from cpcapp.splicing.photos.pixels import FloatMap

# Added to mean amplitudes, in grey levels: smaller ones are rounding.
_ROUNDING = 0.05
# Enough for a stable median.
_MAX_PIXELS = 1_000_000
_FREQUENCIES = np.arange(BLOCK)
_FINE = np.add.outer(_FREQUENCIES, _FREQUENCIES) >= BLOCK - 1
# Low frequencies, which have coefficients of all sizes in most photos.
_LOW = [(u, v) for u in range(5) for v in range(5) if 1 <= u + v <= 4]
# In grey levels: smaller coefficients may be rounding of pixels, with a standard deviation of 0.3.
_MIN_COEFFICIENT = 2.0
_MIN_COUNT = 20
# Ratio of the steps on the grid to those off it. Made JPEGs of quality 85 and less have 1.5 and
# more, photos that were never compressed 0.95 to 1.05, a page of text 0.98.
_MIN_RATIO = 1.25


def grid_strength(image: FloatMap) -> float:
    """Return how much less fine detail a photo has on JPEG's grid than off it.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]

    Returns
    -------
    float
        The median over blocks of the mean amplitude of the high frequencies, in logarithms: its
        value for blocks that begin at (4, 4) minus that for blocks that begin at (0, 0). About 0
        for a photo that was never compressed, or was resized afterwards; about 1 after JPEG at
        quality 85.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp.splicing.photos.jpeg import recompress
    >>> noise = np.random.default_rng(0).normal(128, 4, (160, 240, 3)).clip(0, 255).astype(np.uint8)
    >>> for photo in (noise, recompress(noise, 75)):
    ...     print(round(grid_strength(photo.astype(np.float32) / 255), 1))
    -0.0
    1.0
    """
    if min(image.shape[:2]) < 2 * BLOCK:
        return 0.0
    on, off = (_fine_detail(image[start:, start:]) for start in (0, BLOCK // 2))
    return float(np.log((off + _ROUNDING) / (on + _ROUNDING)))


def estimate_quality(image: FloatMap) -> int | None:
    """Estimate the JPEG quality of a photo from its pixels alone.

    After quantization with a step ``s`` all coefficients of a frequency are multiples of ``s``. So
    the smallest ones that are not 0 give the step. For made JPEGs of UCID and BSDS500 of qualities
    30 to 85 the estimate is mostly 0 to 3 too high; a smooth photo may read far too high (58 for
    the example photo of an astronaut at 30).

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]
        Blocks begin at its upper left corner.

    Returns
    -------
    int or None
        None if no quantization shows: the quality is 90 or more, the photo was never compressed
        or was cropped, or it has too little detail.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp.splicing.photos.jpeg import recompress
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(128, 20, (160, 240, 3)).clip(0, 255).astype(np.uint8)
    >>> for photo in (noise, recompress(noise, 50)):
    ...     print(estimate_quality(photo.astype(np.float32) / 255))
    None
    52
    """
    if min(image.shape[:2]) < 2 * BLOCK:
        return None
    on, off = (_relative_steps(image[start:, start:]) for start in (0, BLOCK // 2))
    # Uncompressed pictures, drawings above all, can have steps on both grids.
    if on is None or off is None or on < _MIN_RATIO * off:
        return None
    return table_quality(on)


def _relative_steps(image: FloatMap) -> float | None:
    """Return the median step of the low frequencies, as a multiple of the standard table's."""
    blocks = np.abs(_cosine_transform(image))
    steps = []
    for u, v in _LOW:
        known = blocks[..., u, v]
        known = known[known > _MIN_COEFFICIENT]
        if len(known) >= _MIN_COUNT:
            steps.append(float(np.quantile(known, 0.05)) / STANDARD_TABLE[u, v])
    return float(np.median(steps)) if steps else None


def _fine_detail(image: FloatMap) -> float:
    fine = np.abs(_cosine_transform(image)[..., _FINE])
    return float(np.median(fine.mean(axis=-1)))


def _cosine_transform(image: FloatMap) -> FloatMap:
    """Return the coefficients of the grey photo, (rows of blocks, blocks, 8, 8)."""
    height, width = (n // BLOCK * BLOCK for n in image.shape[:2])
    apart = BLOCK * max(1, height * width // _MAX_PIXELS)
    # From a large photo only some rows of blocks are copied.
    strips = [image[top : top + BLOCK, :width] for top in range(0, height, apart)]
    light = cv2.cvtColor(np.concatenate(strips), cv2.COLOR_RGB2GRAY)
    return block_cosines(light * np.float32(255.0))
