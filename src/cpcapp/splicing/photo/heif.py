"""HEIC and AVIF files: what their containers say, checked before anything is decoded.

Both are boxes in boxes (ISO/IEC 14496-12 and 23008-12). Pictures, thumbnails, EXIF data and others
are items; properties such as size and rotation belong to them. Pixels are decoded in another
process, see `cpcapp._io.heif_worker`.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.worker import Worker

# More than any real file has. They limit the work that a hostile file can cause.
_MAX_BOXES = 20_000
_MAX_ITEMS = 5_000
_MAX_PROPERTIES = 5_000
_MAX_EXTENTS = 1_000
_MAX_BLOCK = 4 << 20

_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"})
_OTHER_BRANDS = frozenset({b"mif1", b"msf1", b"mif2", b"miaf"})
_PICTURES = {"HEIC": b"hvc1", "AVIF": b"av01"}
_DERIVED = frozenset({b"grid"})
#: What installs the decoders.
INSTALL = 'pip install "cpcapp[heif]"'

# Memory for each pixel of the picture and of its tiles, and in any case, in the process that
# decodes: planes of 2 bytes, colours of 2 bytes, and copies of both.
_BYTES_PER_PIXEL = 32
_SPARE_MEMORY = 512 << 20
# Time to decode, and for each megapixel: set by hand, ten times what a slow machine takes.
_SECONDS, _SECONDS_PER_MEGAPIXEL = 8.0, 2.0


class HeifError(ValueError):
    """A HEIC or AVIF file can't be read. The message says why, but not which file."""


def is_heif(data: bytes) -> bool:
    r"""Return whether a file begins like a HEIC or AVIF file.

    Examples
    --------
    >>> is_heif(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"), is_heif(b"\0\0\0\x18ftypisom" + bytes(12))
    (True, False)
    """
    return bool(_brands(data) & (_AVIF_BRANDS | _HEIC_BRANDS | _OTHER_BRANDS))


def _brands(data: bytes) -> set[bytes]:
    if data[4:8] != b"ftyp":
        return set()
    end = min(int.from_bytes(data[:4], "big"), 1024)
    return {data[8:12], *(data[at : at + 4] for at in range(16, end, 4))}


@cache
def can_read(form: str) -> bool:
    """Return whether files of a format can be decoded here.

    Parameters
    ----------
    form : {"HEIC", "AVIF"}
    """
    if form == "HEIC":
        return find_spec("pillow_heif") is not None
    from PIL import features

    # Older versions of Pillow do not know the name.
    return "avif" in features.modules and bool(features.check_module("avif"))


@dataclass(frozen=True)
class Container:
    """The main picture of a HEIC or AVIF file, by its container.

    Attributes
    ----------
    format : {"HEIC", "AVIF"}
    size : (int, int)
        Width and height, as stored.
    bits : int
        Of each colour.
    turns : tuple of (str, int)
        ``("turn", n)`` for n quarter turns counterclockwise, ``("flip", axis)`` for a reversed
        axis, in order.
    tile_pixels : int
        Pixels of all tiles, of a picture that is put together from tiles.
    n_images : int
        Pictures that a viewer would show; thumbnails and depth maps are none.
    animated : bool
    """

    format: str
    size: tuple[int, int]
    bits: int = 8
    turns: tuple[tuple[str, int], ...] = ()
    tile_pixels: int = 0
    n_images: int = 1
    animated: bool = False


@dataclass
class _Items:
    """What the box ``meta`` says of the items of a file."""

    primary: int = 0
    kinds: dict[int, bytes] = field(default_factory=dict)
    types: dict[int, bytes] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)
    properties: list[tuple[bytes, bytes]] = field(default_factory=list)
    of_item: dict[int, list[int]] = field(default_factory=dict)
    references: list[tuple[bytes, int, tuple[int, ...]]] = field(default_factory=list)
    extents: dict[int, tuple[int, list[tuple[int, int]]]] = field(default_factory=dict)
    local: tuple[int, int] = (0, 0)

    def properties_of(self, item: int) -> Iterator[tuple[bytes, bytes]]:
        for index in self.of_item.get(item, []):
            if 1 <= index <= len(self.properties):
                yield self.properties[index - 1]

    def size_of(self, item: int) -> tuple[int, int] | None:
        for kind, content in self.properties_of(item):
            if kind == b"ispe" and len(content) >= 12:
                width, height = struct.unpack_from(">II", content, 4)
                return width, height
        return None

    def referring(self, kind: bytes) -> set[int]:
        return {source for found, source, _ in self.references if found == kind}

    def referred(self, kind: bytes, source: int | None = None) -> list[int]:
        return [
            target
            for found, by, targets in self.references
            if found == kind and source in (None, by)
            for target in targets
        ]


def read_container(data: bytes) -> Container:
    """Read what the container of a HEIC or AVIF file says about its main picture.

    Parameters
    ----------
    data : bytes
        The file, for which `is_heif` is true.

    Returns
    -------
    Container

    Raises
    ------
    HeifError
        If there is no picture, or none of a kind that is read.

    Examples
    --------
    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (30, 20)).save(file, "AVIF")
    >>> read_container(file.getvalue())
    Container(format='AVIF', size=(30, 20), bits=8, turns=(), tile_pixels=0, n_images=1,
              animated=False)
    """
    try:
        items, animated = _read_items(data)
    except (struct.error, LookupError) as error:
        raise HeifError("is damaged; use an undamaged copy") from error
    main = items.primary
    kind = items.kinds.get(main, b"")
    tiles = items.referred(b"dimg", main) if kind in _DERIVED else []
    coded = {items.kinds.get(tile, b"") for tile in tiles} if tiles else {kind}
    form = next((form for form, code in _PICTURES.items() if coded == {code}), None)
    if form is None:
        if not kind:
            raise HeifError("holds no still picture; save it as JPEG or PNG")
        name = ascii(kind.decode("latin-1"))
        raise HeifError(f"holds a picture of kind {name}, which is not read; save it as PNG")
    size = items.size_of(main)
    sizes = [items.size_of(tile) or (1 << 31, 1 << 31) for tile in tiles]
    if size is None or min(size) < 1:
        raise HeifError("does not give the size of its picture; use an undamaged copy")
    return Container(
        form,
        size,
        _bits(items, tiles[0] if tiles else main),
        tuple(_turns(items, main)),
        sum(width * height for width, height in sizes),
        _count_images(items),
        animated,
    )


def find_heif_metadata(data: bytes) -> tuple[bytes, bytes]:
    """Return the EXIF data and the XMP packet of a HEIC or AVIF file, as far as there are any.

    Examples
    --------
    >>> import io
    >>> from PIL import Image
    >>> file, exif = io.BytesIO(), Image.Exif()
    >>> exif[271] = "a camera"
    >>> Image.new("RGB", (30, 20)).save(file, "AVIF", exif=exif)
    >>> b"a camera" in find_heif_metadata(file.getvalue())[0]
    True
    """
    exif = xmp = b""
    with suppress(struct.error, LookupError, HeifError):
        items, _ = _read_items(data)
        for item, kind in items.kinds.items():
            if kind == b"Exif" and not exif:
                content = _content(data, items, item)
                # The first number says how many bytes come before the EXIF data.
                exif = content[4 + int.from_bytes(content[:4], "big") :]
            elif kind == b"mime" and not xmp and b"rdf+xml" in items.types.get(item, b""):
                xmp = _content(data, items, item)
    return exif, xmp


def decode_pixels(data: bytes, container: Container) -> NDArray[Any]:
    """Decode the main picture in another process.

    Parameters
    ----------
    data : bytes
    container : Container
        By `read_container`.

    Returns
    -------
    ndarray of shape (height, width, channels)
        Upright, uint8; uint16 of the full range for a HEIC file of more than 8 bits.

    Raises
    ------
    HeifError
        If it is damaged, or decoding takes too much time or memory.
    """
    n_pixels = container.size[0] * container.size[1] + container.tile_pixels
    request = {
        "format": container.format,
        "size": container.size,
        "turns": container.turns,
        "memory": _SPARE_MEMORY + _BYTES_PER_PIXEL * n_pixels + 4 * len(data),
    }
    seconds = _SECONDS + _SECONDS_PER_MEGAPIXEL * n_pixels / 1e6
    answer = _ask(request, seconds, np.frombuffer(data, np.uint8))
    if answer is None:
        raise HeifError(
            "is damaged: decoding it was stopped, because it crashed or took more than "
            f"{seconds:.0f} seconds; use an undamaged copy"
        )
    message, arrays = answer
    if "error" in message:
        raise HeifError(
            f"is damaged or of a kind that is not read ({message['error']}); use an undamaged copy "
            "or save it as PNG"
        )
    return arrays[0]


_lock = threading.Lock()
_worker: tuple[int, Worker] | None = None


def _ask(
    request: dict[str, Any], seconds: float, file: NDArray[np.uint8]
) -> tuple[dict[str, Any], list[NDArray[Any]]] | None:
    """Return the answer of the process that decodes; None if it did not answer in time."""
    global _worker
    with _lock:
        # A process that was forked has none of its own.
        if _worker is None or _worker[0] != os.getpid():
            _worker = os.getpid(), Worker("cpcapp._io.heif_worker")
        worker = _worker[1]
        if not worker.is_ready:
            _worker = None
            raise HeifError("can't be read: the process that decodes it did not start")
        answer = worker.ask(request, seconds, [file])
        if answer is None:
            _worker = None
    return answer


# -- boxes ---------------------------------------------------------------------------------


def _boxes(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield kind, start and end of the content of each box."""
    for _ in range(_MAX_BOXES):
        if at + 8 > end:
            return
        size, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, start)
            start += 8
        stop = end if size == 0 else at + size
        if stop < start:
            return
        yield kind, start, min(stop, end)
        at = stop
    raise HeifError(f"has more than {_MAX_BOXES} boxes; save it anew")


def _read_items(data: bytes) -> tuple[_Items, bool]:
    """Return the items of a file, and whether there is a track of frames too."""
    items, animated = None, False
    for kind, start, end in _boxes(data, 0, len(data)):
        if kind == b"meta" and items is None:
            items = _Items()
            for inner, inner_start, inner_end in _boxes(data, start + 4, end):
                reader = _READERS.get(inner)
                if reader is not None:
                    reader(items, data, inner_start, inner_end)
        elif kind == b"moov":
            animated = True
    if items is None:
        raise HeifError("holds no still picture; save it as JPEG or PNG")
    return items, animated


def _number(data: bytes, at: int, n_bytes: int, end: int) -> int:
    """Return a number; raise beyond the end of its box."""
    if at + n_bytes > end:
        raise IndexError(at)
    return int.from_bytes(data[at : at + n_bytes], "big")


def _read_primary(items: _Items, data: bytes, at: int, end: int) -> None:
    items.primary = _number(data, at + 4, 4 if data[at] else 2, end)


def _read_infos(items: _Items, data: bytes, at: int, end: int) -> None:
    at += 8 if data[at] else 6
    for kind, start, stop in _boxes(data, at, end):
        version = data[start]
        if kind != b"infe" or version < 2:
            continue
        wide = 4 if version >= 3 else 2
        item = _number(data, start + 4, wide, stop)
        kind_at = start + 4 + wide + 2
        if len(items.kinds) >= _MAX_ITEMS:
            raise HeifError(f"has more than {_MAX_ITEMS} items; save it anew")
        items.kinds.setdefault(item, data[kind_at : kind_at + 4])
        # A name, and for some kinds the type of the content.
        items.types.setdefault(item, data[kind_at + 4 : min(stop, kind_at + 200)])
        if data[start + 3] & 1:
            items.hidden.add(item)


def _read_properties(items: _Items, data: bytes, at: int, end: int) -> None:
    for kind, start, stop in _boxes(data, at, end):
        if kind == b"ipco":
            for inner, inner_start, inner_end in _boxes(data, start, stop):
                if len(items.properties) >= _MAX_PROPERTIES:
                    raise HeifError(f"has more than {_MAX_PROPERTIES} properties; save it anew")
                items.properties.append(
                    (inner, data[inner_start : min(inner_end, inner_start + 64)])
                )
        elif kind == b"ipma":
            _read_associations(items, data, start, stop)


def _read_associations(items: _Items, data: bytes, at: int, end: int) -> None:
    wide = 4 if data[at] >= 1 else 2
    size = 2 if data[at + 3] & 1 else 1
    n_items = _number(data, at + 4, 4, end)
    at += 8
    for _ in range(min(n_items, _MAX_ITEMS)):
        item, count = _number(data, at, wide, end), _number(data, at + wide, 1, end)
        at += wide + 1
        # The highest bit says that a reader has to know the property.
        mask = (1 << (8 * size - 1)) - 1
        found = [_number(data, at + size * i, size, end) & mask for i in range(count)]
        items.of_item.setdefault(item, []).extend(found)
        at += size * count


def _read_references(items: _Items, data: bytes, at: int, end: int) -> None:
    wide = 4 if data[at] else 2
    n_targets = 0
    for kind, start, stop in _boxes(data, at + 4, end):
        source, count = _number(data, start, wide, stop), _number(data, start + wide, 2, stop)
        n_targets += count
        if n_targets > 20 * _MAX_ITEMS:
            raise HeifError("has too many references between its items; save it anew")
        first = start + wide + 2
        targets = tuple(_number(data, first + wide * i, wide, stop) for i in range(count))
        items.references.append((kind, source, targets))


def _read_locations(items: _Items, data: bytes, at: int, end: int) -> None:
    version = data[at]
    sizes = _number(data, at + 4, 2, end)
    offset_size, length_size, base_size = sizes >> 12, sizes >> 8 & 15, sizes >> 4 & 15
    index_size = sizes & 15 if version in (1, 2) else 0
    wide = 4 if version == 2 else 2
    n_items = _number(data, at + 6, wide, end)
    at += 6 + wide
    for _ in range(min(n_items, _MAX_ITEMS)):
        item = _number(data, at, wide, end)
        at += wide
        method = 0
        if version in (1, 2):
            method = _number(data, at, 2, end) & 15
            at += 2
        at += 2
        base = _number(data, at, base_size, end)
        count = _number(data, at + base_size, 2, end)
        at += base_size + 2
        if count > _MAX_EXTENTS:
            raise HeifError(f"has an item of more than {_MAX_EXTENTS} pieces; save it anew")
        extents = []
        for _ in range(count):
            at += index_size
            start = base + _number(data, at, offset_size, end)
            extents.append((start, _number(data, at + offset_size, length_size, end)))
            at += offset_size + length_size
        items.extents.setdefault(item, (method, extents))


def _read_local(items: _Items, data: bytes, at: int, end: int) -> None:
    items.local = at, end


_READERS = {
    b"pitm": _read_primary,
    b"iinf": _read_infos,
    b"iprp": _read_properties,
    b"iref": _read_references,
    b"iloc": _read_locations,
    b"idat": _read_local,
}


def _content(data: bytes, items: _Items, item: int) -> bytes:
    """Return the content of an item, of bounded length."""
    method, extents = items.extents.get(item, (0, []))
    low, high = (0, len(data)) if method == 0 else items.local
    parts, left = [], _MAX_BLOCK
    for start, length in extents:
        begin = low + start
        # A length of 0 stands for all that is left.
        stop = min(high, begin + length if length else high, begin + left)
        parts.append(data[begin:stop])
        left -= max(0, stop - begin)
    return b"".join(parts)


# -- what it means -------------------------------------------------------------------------


def _bits(items: _Items, item: int) -> int:
    """Return the bits of each colour, by the settings of the decoder."""
    for kind, content in items.properties_of(item):
        if kind == b"hvcC" and len(content) > 17:
            return 8 + (content[17] & 7)
        if kind == b"av1C" and len(content) > 2 and content[2] & 0x40:
            return 12 if content[2] & 0x20 else 10
    return 8


def _turns(items: _Items, item: int) -> Iterator[tuple[str, int]]:
    for kind, content in items.properties_of(item):
        if kind == b"irot" and content and content[0] & 3:
            yield "turn", content[0] & 3
        elif kind == b"imir" and content:
            # 0 exchanges top and bottom, 1 left and right.
            yield "flip", content[0] & 1


def _count_images(items: _Items) -> int:
    """Return how many pictures a viewer would show."""
    pictures = {
        item for item, kind in items.kinds.items() if kind in _PICTURES.values() or kind in _DERIVED
    }
    pictures -= items.hidden | items.referring(b"thmb") | items.referring(b"auxl")
    return max(1, len(pictures - set(items.referred(b"dimg"))))
