"""Inspecting TIFF files: a directory of tags, which says where strips or tiles of pixels are.

The directory is checked before Pillow sees the file, and only the tags that pixels need are kept.
EXIF data have the same form, so their tags are read here too.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Container, Iterator
from contextlib import suppress

from PIL import Image
from PIL.TiffImagePlugin import TiffImageFile

from cpcapp.splicing.photo.contents import CUT_OFF, DAMAGED, Contents, UnreadableError
from cpcapp.splicing.photo.library_output import jpeg_warning

# More than any real file has. They limit the work that a hostile file can cause.
_MAX_PAGES = 1_000_000
_MAX_TAGS = 4096
_MAX_VALUES = 1 << 18
_MAX_TILE = 1 << 24
# Tiles reach beyond the picture: unpacked they may have so many pixels, or twice those of it.
_MAX_TILED = 1 << 27
# Of JPEGs in a TIFF, each of which begins with the tables that all share: one table of each kind
# and number has 3 kB.
_MAX_JPEGS = 1 << 15
_MAX_JPEG_TABLES = 1 << 14

Tags = dict[int, tuple[int, ...]]

# The mark at the end of a JPEG.
_JPEG_END = b"\xff\xd9"

# Needed to decode the pixels: 256 width, 257 height, 258 bits, 259 compression, 262 kind of colour,
# 266 order of bits, 273, 278, 279 strips, 277 samples, 284 planes, 317 predictor, 320 palette,
# 322 to 325 tiles, 338 extra samples, 339 format of samples, 347 JPEG tables, 530 subsampling.
# Read here only: 254 kind of page, 274 orientation.
_SINGLE = {254, 256, 257, 259, 262, 266, 274, 277, 278, 284, 317, 322, 323}
_NEEDED = {258, 273, 279, 320, 324, 325, 338, 339, 347, 530} | _SINGLE - {254, 274}
_TYPES = {1: "B", 3: "H", 4: "I", 7: "B"}


def _byte_order(data: bytes) -> str:
    if data[:4] not in (b"II*\0", b"MM\0*"):
        raise UnreadableError("is not a TIFF; use an undamaged copy")
    return "<" if data[:2] == b"II" else ">"


def read_tags(data: bytes, wanted: Container[int], *, strict: bool = False) -> Tags:
    """Return the values of the wanted tags in the first directory.

    With ``strict``, no tag may be there twice, whether wanted or not.

    Examples
    --------
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (3, 2)).save(file, "TIFF")
    >>> width, height = 256, 257
    >>> read_tags(file.getvalue(), {width, height})
    {256: (3,), 257: (2,)}
    """
    order = _byte_order(data)
    (at,) = struct.unpack_from(order + "I", data, 4)
    (n_entries,) = struct.unpack_from(order + "H", data, at)
    if n_entries > _MAX_TAGS:
        raise UnreadableError(f"has {n_entries} TIFF tags, more than {_MAX_TAGS}; save it anew")
    tags: Tags = {}
    seen: set[int] = set()
    for entry in range(at + 2, at + 2 + 12 * n_entries, 12):
        tag, kind, count = struct.unpack_from(order + "HHI", data, entry)
        if tag in seen and (strict or tag in wanted):
            raise UnreadableError(f"has the TIFF tag {tag} twice; use an undamaged copy")
        seen.add(tag)
        if tag not in wanted:
            continue
        most = 1 if tag in _SINGLE else _MAX_JPEG_TABLES if tag == 347 else _MAX_VALUES
        if kind not in _TYPES or not 1 <= count <= most:
            raise UnreadableError(f"has a senseless TIFF tag {tag}; use an undamaged copy")
        numbers = f"{order}{count}{_TYPES[kind]}"
        where = entry + 8
        if struct.calcsize(numbers) > 4:
            (where,) = struct.unpack_from(order + "I", data, where)
        tags[tag] = struct.unpack_from(numbers, data, where)
    return tags


def _count_pages(data: bytes) -> int:
    order = _byte_order(data)
    seen: set[int] = set()
    (at,) = struct.unpack_from(order + "I", data, 4)
    with suppress(struct.error):  # only the first page is needed
        while at and at not in seen and len(seen) < _MAX_PAGES:
            (n_entries,) = struct.unpack_from(order + "H", data, at)
            seen.add(at)
            (at,) = struct.unpack_from(order + "I", data, at + 2 + 12 * n_entries)
    return len(seen)


def _plain_tiff(data: bytes, changed: Tags) -> bytes:
    """Return a TIFF of one page with only the tags that its pixels need."""
    order = _byte_order(data)
    (at,) = struct.unpack_from(order + "I", data, 4)
    (n_entries,) = struct.unpack_from(order + "H", data, at)
    old = [data[i : i + 12] for i in range(at + 2, at + 2 + 12 * n_entries, 12)]
    entries = {struct.unpack_from(order + "H", entry)[0]: entry for entry in old}
    for tag, numbers in changed.items():
        value = struct.pack(f"{order}{len(numbers)}H", *numbers).ljust(4, b"\0")
        entries[tag] = struct.pack(order + "HHI", tag, 3, len(numbers)) + value
    kept = [entries[tag] for tag in sorted(_NEEDED & entries.keys())]
    directory = struct.pack(order + "H", len(kept)) + b"".join(kept) + bytes(4)
    view = memoryview(data)
    return b"".join([view[:at], directory, view[at + len(directory) :]])


def _check_blocks(data: bytes, tags: Tags) -> None:
    """Raise unless all strips or tiles are there: Pillow leaves missing ones black."""
    width, height = tags[256][0], tags[257][0]
    samples, bits = tags.get(277, (1,))[0], tags.get(258, (1,))[0]
    tiled = 324 in tags
    offsets, sizes = tags.get(324 if tiled else 273, ()), tags.get(325 if tiled else 279, ())
    across = tags.get(322, (0,))[0] if tiled else width
    down = tags.get(323 if tiled else 278, (0 if tiled else height,))[0]
    down = down if tiled else min(down, height)
    if min(across, down) < 1 or (tiled and across * down > _MAX_TILE):
        raise UnreadableError(DAMAGED)
    planes = samples if tags.get(284) == (2,) else 1
    n_blocks = math.ceil(width / across) * math.ceil(height / down) * planes
    if tiled and n_blocks * across * down > max(_MAX_TILED, 2 * planes * width * height):
        raise UnreadableError("has tiles that are far larger than the picture; save it anew")
    if tags.get(259) == (7,) and n_blocks > _MAX_JPEGS:
        raise UnreadableError(f"has {n_blocks} JPEGs in it, more than {_MAX_JPEGS}; save it anew")
    if len(offsets) == n_blocks and tags.get(259, (1,)) == (1,):
        # Some writers give wrong byte counts; without compression they follow from the size.
        rows = [down] * n_blocks
        if not tiled:
            rows = [min(down, height - top) for top in range(0, height, down)] * planes
        sizes = tuple(math.ceil(across * samples // planes * bits / 8) * n for n in rows)
    if not len(offsets) == len(sizes) == n_blocks:
        raise UnreadableError("has strips or tiles that do not fit its size; use an undamaged copy")
    ends = [offset + size for offset, size in zip(offsets, sizes, strict=True)]
    if max(ends) > len(data):
        raise UnreadableError(CUT_OFF)
    # The missing part of a JPEG in a TIFF is filled with grey too.
    if tags.get(259) == (7,) and any(_JPEG_END not in data[end - 4 : end] for end in ends):
        raise UnreadableError(CUT_OFF)


def _check_pixels(tags: Tags) -> None:
    """Raise if Pillow does not read this type of pixels, or reads it wrongly."""

    def first(tag: int, default: int) -> int:
        return tags.get(tag, (default,))[0]

    bits, samples, compression = first(258, 1), first(277, 1), first(259, 1)
    problem = ""
    if first(254, 0) & 1:
        problem = "begins with a preview, like the raw file of a camera"
    elif compression not in (1, 5, 7, 8, 32773, 32946):
        problem = f"has TIFF compression {compression}"
    elif (first(339, 1), bits) not in {(1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (3, 32)}:
        problem = f"has TIFF samples of {bits} bits in format {first(339, 1)}"
    elif samples > 6 or first(284, 1) not in ((1, 2) if samples == 1 or bits <= 8 else (1,)):
        problem = f"has {samples} TIFF channels of {bits} bits in layout {first(284, 1)}"
    elif first(262, 0) == 6 and compression == 1 and tags.get(530) != (1, 1):
        problem = "has packed colour differences"
    if problem:
        raise UnreadableError(f"{problem}, which is not read; save it as PNG")


def _jpegs_inside(file: bytes, tags: Tags) -> Iterator[bytes]:
    """Yield the JPEGs in a TIFF, with the tables that they share."""
    tables = bytes(tags.get(347, ()))
    tables = tables[2:-2] if tables.startswith(b"\xff\xd8") else b""
    for offset, size in zip(
        tags.get(324, tags.get(273, ())), tags.get(325, tags.get(279, ())), strict=False
    ):
        yield b"\xff\xd8" + tables + file[offset + 2 : offset + size]


def inspect_tiff(data: bytes) -> Contents:
    """Inspect a TIFF.

    Examples
    --------
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (3, 2)).save(file, "TIFF")
    >>> inspect_tiff(file.getvalue()).size
    (3, 2)
    """
    tags = read_tags(data, _NEEDED | {254, 274}, strict=True)
    _check_pixels(tags)
    bits, colours = tags.get(258, (1,))[0], tags[262][0]
    changed: Tags = {}
    notes = []
    if (pages := _count_pages(data)) > 1:
        notes.append(f"first of {pages} pages")
    if 338 in tags:
        alpha = {1, 2} & set(tags[338])
        notes.append("transparency ignored" if alpha else "extra channels ignored")
        changed |= {338: (0,) * len(tags[338])} if len(tags[338]) < 3 else {}
    if (bits, colours) == (16, 5):
        notes.append("16 bits reduced to 8")
    # Pillow does not invert all types of grey.
    if colours == 0:
        changed[262] = (1,)

    file = _plain_tiff(data, changed)
    del data  # so that the file is in memory once

    def find_defect() -> str:
        if tags.get(259) != (7,):
            return ""
        return CUT_OFF if jpeg_warning(_jpegs_inside(file, tags)).says_cut_off else ""

    def open_file() -> TiffImageFile:
        _check_blocks(file, tags)
        image = TiffImageFile(io.BytesIO(file))
        # If Pillow allocates it, it may warn about a size that is allowed here.
        image.im = Image.new(image.mode, image.size).im
        return image

    width, height = tags[256][0], tags[257][0]
    # Of a compressed file, a strip is unpacked as a whole.
    rows = min(tags.get(278, (height,))[0], height) if tags.get(259, (1,)) != (1,) else 0
    buffer = rows * width * tags.get(277, (1,))[0] * bits // 8
    return Contents(
        *("TIFF", (width, height), open_file, tuple(notes)),
        memory=len(file) + (0 if 324 in tags else buffer),
        find_defect=find_defect,
        orientation=tags.get(274, (1,))[0],
        deep=bits == 16 and colours == 2,
        wide=bits > 8,
        inverted=colours == 0,
    )
