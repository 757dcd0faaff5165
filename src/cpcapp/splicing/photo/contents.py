"""What an image file contains, by its headers, and the error of one that can't be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from PIL import ImageFile


class UnreadableError(ValueError):
    """A file can't be read. The message says why and what to do, but not which file."""


CUT_OFF = "is cut off; use a complete copy"
DAMAGED = "is damaged; use an undamaged copy"


@dataclass(frozen=True)
class Contents:
    """What a file contains, by its headers.

    Attributes
    ----------
    format : str
    size : tuple of int
        Width and height, as stored.
    open : callable
        Returns the image for Pillow to decode; raises for formats that have ``decode``.
    notes : tuple of str
    orientation : int
        As EXIF counts it, 1 for upright.
    deep : bool
        Whether colours have 16 bits, of which Pillow gives the upper 8.
    wide : bool
        Whether the pixels have more than 8 bits.
    inverted : bool
        Whether 0 is white.
    memory : int
        Bytes that decoding takes, beside those of the pixels: the file and buffers.
    decode : callable, optional
        Returns the pixels, upright, (height, width, channels), of a format that Pillow does not
        decode in this process.
    find_defect : callable
        Returns, once the image is decoded, what is wrong with its data: `CUT_OFF`, a note, or
        nothing.
    """

    format: str
    size: tuple[int, int]
    open: Callable[[], ImageFile.ImageFile]
    notes: tuple[str, ...] = ()
    orientation: int = 1
    deep: bool = False
    wide: bool = False
    inverted: bool = False
    memory: int = 0
    decode: Callable[[], NDArray[Any]] | None = None
    find_defect: Callable[[], str] = lambda: ""
