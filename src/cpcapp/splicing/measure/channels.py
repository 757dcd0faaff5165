"""What patches are cut from: the colours of a photo, their Laplacian, or the error level."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.pixels import FloatMap, as_unit_float

# As error level analysis is mostly done.
_ERROR_LEVEL_QUALITY = 90
# JPEG allows sides up to 65,500 pixels: longer photos are compressed in parts of whole blocks.
_MAX_JPEG_SIDE = 65_488
_ROWS_PER_STRIP = 64

CHANNELS = ("error-level", "laplacian", "rgb")


class PhotoPlanes:
    """The channels of a photo as separate planes, of which strips are made when asked for.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]
    channels : {"rgb", "laplacian", "error-level"}
        The colours as they are, which is the paper's choice; each colour minus the mean of its four
        neighbours, times four; or what JPEG at quality 90 removes. Parts that were compressed
        before, and parts that were not, lose differently.

    Examples
    --------
    >>> import numpy as np
    >>> PhotoPlanes(np.zeros((40, 50, 3), dtype=np.float32), "laplacian").strip(8, 20).shape
    (3, 12, 50)
    """

    def __init__(self, image: FloatMap, channels: str) -> None:
        if channels not in CHANNELS:
            raise ValueError(f"channels={channels!r} must be one of {', '.join(CHANNELS)}")
        self.channels = channels
        self._image = np.ascontiguousarray(image)
        self._compressed = _recompress(self._image) if channels == "error-level" else None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return (3, *self._image.shape[:2])

    def strip(self, first: int, last: int) -> FloatMap:
        """Return some rows of all planes, (3, last - first, width)."""
        planes = np.empty((3, last - first, self._image.shape[1]), dtype=np.float32)
        # Narrow ones stay in the cache on their way.
        for top in range(first, last, _ROWS_PER_STRIP):
            rows = slice(top, min(top + _ROWS_PER_STRIP, last))
            values = self._values(rows)
            for number, plane in enumerate(planes):
                plane[rows.start - first : rows.stop - first] = cv2.extractChannel(values, number)
        return planes

    def _values(self, rows: slice) -> FloatMap:
        image = self._image
        if self.channels == "laplacian":
            above = min(rows.start, 1)
            wide = image[rows.start - above : rows.stop + 1]
            found = cv2.Laplacian(wide, cv2.CV_32F, ksize=1, borderType=cv2.BORDER_REFLECT_101)
            return np.asarray(found[above : above + rows.stop - rows.start])
        if self._compressed is None:
            return image[rows]
        kept = as_unit_float(cv2.cvtColor(self._compressed[rows], cv2.COLOR_BGR2RGB))
        return np.asarray(np.subtract(image[rows], kept, out=kept))


def _recompress(image: FloatMap) -> NDArray[np.uint8]:
    """Return the pixels after JPEG, in OpenCV's order: blue, green, red."""
    pixels = np.empty(image.shape, dtype=np.uint8)
    for first in range(0, len(image), _ROWS_PER_STRIP):
        rows = slice(first, first + _ROWS_PER_STRIP)
        levels = image[rows] * np.float32(255.0)
        pixels[rows] = np.rint(levels, out=levels)[:, :, ::-1]
    for top in range(0, image.shape[0], _MAX_JPEG_SIDE):
        for left in range(0, image.shape[1], _MAX_JPEG_SIDE):
            part = pixels[top : top + _MAX_JPEG_SIDE, left : left + _MAX_JPEG_SIDE]
            settings = [cv2.IMWRITE_JPEG_QUALITY, _ERROR_LEVEL_QUALITY]
            _, data = cv2.imencode(".jpg", np.ascontiguousarray(part), settings)
            part[...] = np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), dtype=np.uint8)
    return pixels


def image_planes(image: FloatMap, channels: str) -> NDArray[np.float32]:
    """Return the channels of a photo as separate planes.

    >>> import numpy as np
    >>> image_planes(np.zeros((4, 5, 3), dtype=np.float32), "rgb").shape
    (3, 4, 5)
    """
    planes = PhotoPlanes(image, channels)
    return planes.strip(0, planes.shape[1])
