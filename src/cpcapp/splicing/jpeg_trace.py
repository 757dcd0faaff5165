"""Was a photo compressed? JPEG takes fine detail away block by block, which tells."""

from __future__ import annotations

import cv2
import numpy as np

from cpcapp.splicing.patches import FloatMap

_BLOCK = 8
# Added to mean amplitudes of grey levels: below this is rounding.
_ROUNDING = 0.05
# More would not be surer.
_MOST_PIXELS = 1_000_000
_FREQUENCIES = np.arange(_BLOCK)
# The orthonormal discrete cosine transform, as JPEG has it.
_COSINES = (
    np.cos(np.pi / _BLOCK * np.outer(_FREQUENCIES, _FREQUENCIES + 0.5))
    * np.where(_FREQUENCIES == 0, 1.0, 2.0**0.5)[:, None]
    / _BLOCK**0.5
).astype(np.float32)
_FINE = np.add.outer(_FREQUENCIES, _FREQUENCIES) >= _BLOCK - 1


def grid_trace(image: FloatMap) -> float:
    """Return how much less fine detail a photo has on JPEG's grid than off it.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]

    Returns
    -------
    float
        The logarithm of the median over blocks of the mean amplitude of the high frequencies, on
        a grid of blocks that begins at (4, 4) less that on the one that begins at (0, 0). About 0
        for a photo that was never compressed, or was changed in size since; about 1 after JPEG
        at quality 85.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp.splicing.splices import recompress
    >>> noise = np.random.default_rng(0).normal(128, 4, (160, 240, 3)).clip(0, 255).astype(np.uint8)
    >>> for photo in (noise, recompress(noise, 75)):
    ...     print(round(grid_trace(photo.astype(np.float32) / 255), 1))
    -0.0
    1.0
    """
    if min(image.shape[:2]) < 2 * _BLOCK:
        return 0.0
    on, off = (_fine_detail(image[start:, start:]) for start in (0, _BLOCK // 2))
    return float(np.log((off + _ROUNDING) / (on + _ROUNDING)))


def _fine_detail(image: FloatMap) -> float:
    height, width = (n // _BLOCK * _BLOCK for n in image.shape[:2])
    apart = _BLOCK * max(1, height * width // _MOST_PIXELS)
    # Of a large photo only some rows of blocks are copied.
    strips = [image[top : top + _BLOCK, :width] for top in range(0, height, apart)]
    light = cv2.cvtColor(np.concatenate(strips), cv2.COLOR_RGB2GRAY)
    rows = _COSINES @ (light.reshape(-1, _BLOCK, width) * np.float32(255.0))
    blocks = rows.reshape(-1, _BLOCK, width // _BLOCK, _BLOCK) @ _COSINES.T
    fine = np.abs(blocks.transpose(0, 2, 1, 3)[..., _FINE])
    return float(np.median(fine.mean(axis=-1)))
