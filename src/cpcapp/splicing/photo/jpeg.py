"""JPEG in pixels: encoding, blocks and their coefficients, and the grid that compression leaves.

JPEG rounds the frequencies of 8 x 8 blocks to multiples of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cpcapp.splicing.photo.jpeg_tables import STANDARD_TABLE
from cpcapp.splicing.photo.pixels import BoolArray, FloatArray, FloatMap, as_bytes, turn_upright

BLOCK = 8
_STRIP = 512
# JPEG allows sides up to 65,500 pixels: longer photos are compressed in parts of whole blocks.
_MAX_SIDE = 65_488
_FREQUENCIES = np.arange(BLOCK)
# The orthonormal discrete cosine transform, as JPEG has it.
_COSINES = (
    np.cos(np.pi / BLOCK * np.outer(_FREQUENCIES, _FREQUENCIES + 0.5))
    * np.where(_FREQUENCIES == 0, 1.0, 2.0**0.5)[:, None]
    / BLOCK**0.5
).astype(np.float32)
# JPEG shifts the levels, so that mid-grey is 0.
_MID_GREY = np.float32(128.0)
# Enough for a stable median.
_MAX_PIXELS = 1_000_000
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
_ROWS_SAMPLED = 64
_MAX_SAMPLED_PIXELS = 400_000


def recompress(pixels: ArrayLike, quality: int) -> NDArray[np.uint8]:
    """Compress a photo as JPEG and return the decoded pixels."""
    whole = as_bytes(np.asarray(pixels))
    out = np.empty_like(whole)
    for top, left in product(*(range(0, side, _MAX_SIDE) for side in whole.shape[:2])):
        part = slice(top, top + _MAX_SIDE), slice(left, left + _MAX_SIDE)
        out[part] = decode_jpeg(encode_jpeg(whole[part], quality))
    return out


def encode_jpeg(pixels: NDArray[np.uint8], quality: int) -> bytes:
    """Encode a photo as a JPEG file."""
    if not 1 <= quality <= 100:
        raise ValueError(f"quality={quality!r} must be from 1 to 100")
    settings = [cv2.IMWRITE_JPEG_QUALITY, int(quality)]
    _, data = cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), settings)
    return bytes(data)


def decode_jpeg(data: bytes) -> NDArray[np.uint8]:
    """Decode a JPEG file that this package wrote; return RGB, (height, width, 3)."""
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    return np.asarray(cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB))


def block_cosines(plane: NDArray[Any]) -> FloatMap:
    """Return the cosine transform of each whole 8 x 8 block.

    >>> import numpy as np
    >>> block_cosines(np.full((8, 20), 3.0))[0, :, 0, 0].round(3)
    array([24., 24.], dtype=float32)
    """
    height, width = (n // BLOCK * BLOCK for n in plane.shape)
    whole = np.ascontiguousarray(plane[:height, :width], dtype=np.float32)
    if not whole.size:
        return np.zeros((height // BLOCK, width // BLOCK, BLOCK, BLOCK), dtype=np.float32)
    # Two multiplications of tall matrices: faster than two small ones for each block.
    across = whole.reshape(-1, BLOCK) @ _COSINES.T
    across = across.reshape(height // BLOCK, BLOCK, width).swapaxes(1, 2)
    both = np.ascontiguousarray(across).reshape(-1, BLOCK) @ _COSINES.T
    shape = (height // BLOCK, width // BLOCK, BLOCK, BLOCK)
    return np.asarray(both.reshape(shape).swapaxes(2, 3))


def luminance(pixels: ArrayLike) -> FloatMap:
    """Return JPEG's luminance of a photo, in grey levels from 0 to 255, not rounded.

    >>> import numpy as np
    >>> luminance(np.array([[[255, 0, 0], [9, 9, 9]]], np.uint8)).round(2)
    array([[76.24,  9.  ]], dtype=float32)
    """
    array = np.asarray(pixels)
    white = np.iinfo(array.dtype).max if array.dtype.kind in "ui" else 1
    light = np.empty(array.shape[:2], dtype=np.float32)
    # In strips, as three colours of a large photo in floats would take much memory.
    for top in range(0, len(array), _STRIP):
        levels = array[top : top + _STRIP].astype(np.float32)
        if white != 255:
            levels *= np.float32(255.0 / white)
        grey = levels if levels.ndim == 2 else cv2.cvtColor(levels, cv2.COLOR_RGB2GRAY)
        light[top : top + _STRIP] = grey
    return light


def table_quality(relative: float) -> int:
    """Return the quality for which libjpeg scales the standard table by a factor."""
    percent = 100.0 * relative
    quality = 5000.0 / percent if percent > 100.0 else (200.0 - percent) / 2.0
    return int(np.clip(round(quality), 1, 100))


def file_quality(table: Sequence[int]) -> int:
    """Return the quality of libjpeg with about the mean step of a luminance table, in any order.

    Cameras and editors use their own tables. For tables of libjpeg it is at most 1 off.
    """
    return table_quality(sum(table) / float(STANDARD_TABLE.sum()))


@dataclass(frozen=True, eq=False)
class JpegCoefficients:
    """The quantized luminance coefficients of a JPEG file."""

    #: The steps of the luminance, (8, 8): vertical frequencies before horizontal ones.
    table: NDArray[np.uint16]
    #: (rows, cols, 8, 8), in whole steps, of the blocks that lie completely in the photo.
    luminance: NDArray[np.int16]
    #: The decoded luminance, as stored: not turned upright.
    plane: NDArray[np.uint8]
    #: How the photo has to be turned, as EXIF counts it.
    orientation: int = 1

    def pixel_map(self, blocks: NDArray[Any]) -> FloatMap:
        """Return a map of blocks as a map of pixels of the upright photo."""
        return turn_upright(spread_blocks(blocks, self.plane.shape), self.orientation)


def spread_blocks(
    blocks: NDArray[Any], shape: tuple[int, ...], offset: tuple[int, int] = (0, 0)
) -> FloatMap:
    """Return a map of blocks, of which the first begins at ``offset``, as a map of pixels.

    Pixels outside all blocks have the value of the nearest; 0 if there is no block.

    >>> import numpy as np
    >>> spread_blocks(np.array([[1.0, 2.0]]), (9, 18), offset=(0, 1))[0, [0, 8, 9, 17]]
    array([1., 1., 2., 2.], dtype=float32)
    """
    height, width = shape[:2]
    if not blocks.size:
        return np.zeros((height, width), dtype=np.float32)
    rows, cols = (
        np.clip((np.arange(length) - start) // BLOCK, 0, count - 1)
        for length, start, count in zip((height, width), offset, blocks.shape, strict=True)
    )
    return np.asarray(blocks[rows][:, cols], dtype=np.float32)


def coefficients_of(plane: ArrayLike, table: ArrayLike) -> NDArray[np.int16]:
    """Return the luminance of a photo, from 0 to 255, in whole steps of a table, block by block."""
    values = block_cosines(np.asarray(plane, dtype=np.float32) - _MID_GREY)
    values /= np.asarray(table, dtype=np.float32)
    return np.asarray(np.rint(values, out=values).astype(np.int16))


class JpegGrid(NamedTuple):
    """Where the blocks of JPEG begin in a photo."""

    table: NDArray[np.float32] | None  # the steps, (8, 8), of a JPEG file
    offset: tuple[int, int]  # row and column of the corner of the first whole block
    certain: bool  # whether the file says so, or a grid stands out in the pixels


def estimate_quality(image: FloatMap, offset: tuple[int, int] = (0, 0)) -> int | None:
    """Estimate the JPEG quality of a photo from its pixels alone.

    After quantization with a step ``s`` all coefficients of a frequency are multiples of ``s``. So
    the smallest ones that are not 0 give the step. For made JPEGs of UCID and BSDS500 of qualities
    30 to 85 the estimate is mostly 0 to 3 too high; a smooth photo may read far too high (58 for
    the example photo of an astronaut at 30).
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
    """
    rows, cols = (n // BLOCK for n in luminance.shape)
    if not rows * cols:
        return np.zeros((rows, cols), dtype=np.float32)
    on = (np.abs(block_cosines(luminance)) < _NEAR_ZERO).mean(axis=(2, 3), dtype=np.float32)
    off = sum(near_zero_share(luminance, offset, _NEAR_ZERO) for offset in _OFF_GRID)
    return smooth_blocks(on - off / np.float32(len(_OFF_GRID)), _WINDOW)


def grid_offset(luminance: NDArray[Any]) -> tuple[int, int] | None:
    """Find where the first whole block of a JPEG begins in a photo, by its pixels alone.

    None if no offset stands out: the photo was never a JPEG, was resized since, is flat or small.
    """
    shares = offset_shares(luminance, _NEAR_ZERO)
    if shares is None:
        return None
    best = int(shares.argmax())
    if shares.flat[best] - np.delete(shares, best).max() < _MIN_GAP:
        return None
    return best // BLOCK, best % BLOCK


def offset_shares(
    plane: NDArray[Any], limit: float, frequencies: BoolArray | None = None
) -> FloatArray | None:
    """Return the share of near-zero coefficients for blocks that begin at each of 64 offsets."""
    beyond = BLOCK - 1
    high, wide = (
        min(n - beyond, most) // BLOCK * BLOCK
        for n, most in zip(plane.shape, (_ROWS_SAMPLED, plane.shape[1]), strict=True)
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
    plane: NDArray[Any],
    offset: tuple[int, int],
    limit: float,
    frequencies: BoolArray | None = None,
) -> FloatMap:
    """Return the share of near-zero coefficients of blocks that begin at an offset."""
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
    """Return the mean of a map over a window, which is cut off at the borders."""
    if not values.size:
        return np.zeros(values.shape, dtype=np.float32)
    size = (window, window)
    total, count = (
        cv2.boxFilter(part, -1, size, normalize=False, borderType=cv2.BORDER_CONSTANT)
        for part in (np.asarray(values, dtype=np.float32), np.ones(values.shape, dtype=np.float32))
    )
    return np.asarray(total / count)


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


def _cosine_transform(image: FloatMap) -> FloatMap:
    """Return the coefficients of the grey photo, (rows of blocks, blocks, 8, 8)."""
    height, width = (n // BLOCK * BLOCK for n in image.shape[:2])
    apart = BLOCK * max(1, height * width // _MAX_PIXELS)
    # From a large photo only some rows of blocks are copied.
    strips = [image[top : top + BLOCK, :width] for top in range(0, height, apart)]
    light = cv2.cvtColor(np.concatenate(strips), cv2.COLOR_RGB2GRAY)
    return block_cosines(light * np.float32(255.0))
