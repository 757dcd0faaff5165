"""Traces of JPEG compression: JPEG rounds the frequencies of 8 x 8 blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.jpeg import BLOCK, block_cosines, luminance
from cpcapp.splicing.photo.jpeg_tables import STANDARD_TABLE, table_quality
from cpcapp.splicing.photo.pixels import BoolArray, FloatArray, FloatMap

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
# A coefficient that JPEG rounded to 0 is not quite 0 any more: pixels are rounded too, which leaves
# a standard deviation of 0.2 to 0.3. In grey levels.
_NEAR_ZERO = 0.5
# Blocks are compared with their three neighbours half a block away.
_OFF_GRID = ((4, 4), (4, 0), (0, 4))
# In blocks; see "near_zeros" in benchmarks/results/double_jpeg.json.
_WINDOW = 3
# How much the share of near-zeros on the grid exceeds that at any other offset. JPEGs of quality 98
# and less from UCID have .07 and more; those photos as they are .004 at most, crops of 32 x 32
# pixels of them .021.
_MIN_GAP = 0.03
_STRIP = 64
_MAX_SAMPLED_PIXELS = 400_000


class JpegGrid(NamedTuple):
    """Where the blocks of JPEG begin in a photo."""

    table: NDArray[np.float32] | None  # the steps, (8, 8), of a JPEG file
    offset: tuple[int, int]  # row and column of the corner of the first whole block
    certain: bool  # whether the file says so, or a grid stands out in the pixels


def find_grid(pixels: NDArray[Any]) -> JpegGrid:
    """Return the grid that shows in the pixels of a photo; at (0, 0) if none does."""
    offset = grid_offset(luminance(pixels))
    return JpegGrid(None, offset or (0, 0), offset is not None)


def grid_strength(image: FloatMap, offset: tuple[int, int] = (0, 0)) -> float:
    """Return how much less fine detail a photo has on JPEG's grid than off it.

    The median over blocks of the mean amplitude of the high frequencies, in logarithms: its value
    half a block off the grid minus that on it. About 0 for a photo that was never compressed, or
    was resized afterwards; about 1 after JPEG at quality 85.

    >>> import numpy as np
    >>> from cpcapp.splicing.photo.jpeg import recompress
    >>> noise = np.random.default_rng(0).normal(128, 4, (160, 240, 3)).clip(0, 255).astype(np.uint8)
    >>> for photo in (noise, recompress(noise, 75)):
    ...     print(round(grid_strength(photo.astype(np.float32) / 255), 1))
    -0.0
    1.0
    """
    image = image[offset[0] :, offset[1] :]
    if min(image.shape[:2]) < 2 * BLOCK:
        return 0.0
    on, off = (_fine_detail(image[start:, start:]) for start in (0, BLOCK // 2))
    return float(np.log((off + _ROUNDING) / (on + _ROUNDING)))


def estimate_quality(image: FloatMap, offset: tuple[int, int] = (0, 0)) -> int | None:
    """Estimate the JPEG quality of a photo from its pixels alone.

    After quantization with a step ``s`` all coefficients of a frequency are multiples of ``s``. So
    the smallest ones that are not 0 give the step. For made JPEGs of UCID and BSDS500 of qualities
    30 to 85 the estimate is mostly 0 to 3 too high; a smooth photo may read far too high (58 for
    the example photo of an astronaut at 30).

    >>> import numpy as np
    >>> from cpcapp.splicing.photo.jpeg import recompress
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(128, 20, (160, 240, 3)).clip(0, 255).astype(np.uint8)
    >>> for photo in (noise, recompress(noise, 50)):
    ...     print(estimate_quality(photo.astype(np.float32) / 255))
    None
    52
    """
    image = image[offset[0] :, offset[1] :]
    if min(image.shape[:2]) < 2 * BLOCK:
        return None
    on, off = (_relative_steps(image[start:, start:]) for start in (0, BLOCK // 2))
    # Uncompressed pictures, drawings above all, can have steps on both grids.
    if on is None or off is None or on < _MIN_RATIO * off:
        return None
    return table_quality(on)


def near_zeros(luminance: NDArray[Any]) -> FloatMap:
    """Return, for each block, how many more coefficients are near 0 on the grid than off it.

    JPEG rounds most coefficients of a block to 0. In blocks that begin anywhere else they are not
    0. So the difference is high where a photo still has the grid of a JPEG, and about 0 where
    something was pasted that was not compressed on this grid. If the whole photo was saved as JPEG
    after the pasting, it is high everywhere. The luminance is in grey levels from 0 to 255, and its
    grid begins at the upper left corner; the result, from -1 to 1, is averaged over 3 x 3 blocks.

    >>> import numpy as np
    >>> from cpcapp.splicing.photo.jpeg import luminance, recompress
    >>> photo = np.random.default_rng(0).normal(128, 4, (160, 240, 3)).clip(0, 255).astype(np.uint8)
    >>> photo[:, :120] = recompress(photo, 75)[:, :120]
    >>> found = near_zeros(luminance(photo))
    >>> bool(found[:, :10].min() > 0.2), bool(abs(found[:, 20:]).max() < 0.1)
    (True, True)
    """
    plane = check_plane(luminance)
    rows, cols = (n // BLOCK for n in plane.shape)
    if not rows * cols:
        return np.zeros((rows, cols), dtype=np.float32)
    on = (np.abs(block_cosines(plane)) < _NEAR_ZERO).mean(axis=(2, 3), dtype=np.float32)
    off = sum(near_zero_share(plane, offset, _NEAR_ZERO) for offset in _OFF_GRID)
    return smooth_blocks(on - off / np.float32(len(_OFF_GRID)), _WINDOW)


def grid_offset(luminance: NDArray[Any]) -> tuple[int, int] | None:
    """Find where the first whole block of a JPEG begins in a photo, by its pixels alone.

    None if no offset stands out: the photo was never a JPEG, was resized since, is flat or small.

    >>> import numpy as np
    >>> from cpcapp.splicing.photo.jpeg import luminance, recompress
    >>> photo = np.random.default_rng(0).normal(128, 4, (160, 240, 3)).clip(0, 255).astype(np.uint8)
    >>> print(grid_offset(luminance(photo)))
    None
    >>> grid_offset(luminance(recompress(photo, 75)[3:, 6:]))
    (5, 2)
    """
    shares = offset_shares(check_plane(luminance), _NEAR_ZERO)
    if shares is None:
        return None
    best = int(shares.argmax())
    if shares.flat[best] - np.delete(shares, best).max() < _MIN_GAP:
        return None
    return best // BLOCK, best % BLOCK


def offset_shares(
    plane: FloatMap, limit: float, frequencies: BoolArray | None = None
) -> FloatArray | None:
    """Return the share of near-zero coefficients for blocks that begin at each of 64 offsets.

    >>> import numpy as np
    >>> offset_shares(np.zeros((40, 40), np.float32), 0.5).min()
    np.float64(1.0)
    """
    beyond = BLOCK - 1
    high, wide = (
        min(n - beyond, most) // BLOCK * BLOCK
        for n, most in zip(plane.shape, (_STRIP, plane.shape[1]), strict=True)
    )
    if min(high, wide) < 2 * BLOCK:
        return None
    strips = (plane.shape[0] - beyond) // high
    apart = high * -(-strips * high * wide // _MAX_SAMPLED_PIXELS)
    tops = range(0, plane.shape[0] - beyond - high + 1, apart)
    parts = np.stack([plane[top : top + high + beyond] for top in tops])
    shares = np.empty((BLOCK, BLOCK))
    for row, column in np.ndindex(BLOCK, BLOCK):
        part = parts[:, row : row + high, column : column + wide].reshape(-1, wide)
        near = np.abs(block_cosines(part)) < limit
        shares[row, column] = near.mean() if frequencies is None else near[..., frequencies].mean()
    return shares


def near_zero_share(
    plane: FloatMap,
    offset: tuple[int, int],
    limit: float,
    frequencies: BoolArray | None = None,
) -> FloatMap:
    """Return the share of near-zero coefficients of blocks that begin at an offset.

    >>> import numpy as np
    >>> plane = np.zeros((8, 24), np.float32)
    >>> plane[:, 16:] = 100.0  # in the middle of the second block that begins at column 4
    >>> near_zero_share(plane, (0, 4), 0.5)[0].round(2)
    array([1.  , 0.96, 0.92], dtype=float32)
    """
    height, width = (n // BLOCK * BLOCK for n in plane.shape)
    # A single row or column of blocks has no complete ones between.
    row = offset[0] if height > BLOCK else 0
    column = offset[1] if width > BLOCK else 0
    begun = plane[row:height, column:width]
    near = np.abs(block_cosines(begun)) < limit
    if frequencies is None:
        share = near.mean(axis=(2, 3), dtype=np.float32)
    else:
        share = near[..., frequencies].mean(axis=-1, dtype=np.float32)
    # Repeated, since mirrored pixels would be symmetric, with half of the frequencies 0.
    share = np.pad(share, ((1, row > 0), (1, column > 0)), mode="edge")
    # Beginning at row - 8, row, row + 8 and so on.
    share = (row * share[:-1] + (BLOCK - row) * share[1:]) / BLOCK
    share = (column * share[:, :-1] + (BLOCK - column) * share[:, 1:]) / BLOCK
    return np.asarray(share, dtype=np.float32)


def smooth_blocks(values: NDArray[Any], window: int) -> FloatMap:
    """Return the mean of a map over a window, which is cut off at the borders.

    >>> import numpy as np
    >>> smooth_blocks(np.array([[0.0, 0.0, 6.0, 0.0]]), 3)
    array([[0., 2., 2., 3.]], dtype=float32)
    """
    if not values.size:
        return np.zeros(values.shape, dtype=np.float32)
    size = (window, window)
    total, count = (
        cv2.boxFilter(part, -1, size, normalize=False, borderType=cv2.BORDER_CONSTANT)
        for part in (np.asarray(values, dtype=np.float32), np.ones(values.shape, dtype=np.float32))
    )
    return np.asarray(total / count)


def check_plane(luminance: NDArray[Any]) -> FloatMap:
    """Return a luminance plane as float32, or raise ``ValueError``."""
    plane = np.asarray(luminance)
    if plane.ndim != 2:
        raise ValueError(f"luminance has shape {plane.shape}; it must be (height, width)")
    return np.ascontiguousarray(plane, dtype=np.float32)


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
