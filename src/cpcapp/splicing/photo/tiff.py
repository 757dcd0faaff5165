"""TIFF files: the directory is checked before Pillow sees the file, with what pixels need only."""

from __future__ import annotations

import ctypes
import io
import math
import struct
from contextlib import suppress

from PIL import Image, _imaging
from PIL.TiffImagePlugin import TiffImageFile

from cpcapp.splicing.photo.contents import (
    CUT_OFF,
    DAMAGED,
    MAX_TAGS,
    Contents,
    Directory,
    ImageError,
    Metadata,
    exif_of,
)
from cpcapp.splicing.photo.jpeg_file import check_jpeg

# More than any real file has. They limit the work that a hostile file can cause.
_MAX_PAGES = 1_000_000
_MAX_TILE = 1 << 24
# Tiles reach beyond the picture: unpacked they may have so many pixels, or twice those of it.
_MAX_TILED = 1 << 27
# Of JPEGs in a TIFF, each of which begins with the tables that all share: one table of each kind
# and number has 3 kB.
_MAX_JPEGS = 1 << 15
_MAX_JPEG_TABLES = 1 << 14

# Needed to decode the pixels: 256 width, 257 height, 258 bits, 259 compression, 262 kind of colour,
# 266 order of bits, 273, 278, 279 strips, 277 samples, 284 planes, 317 predictor, 320 palette,
# 322 to 325 tiles, 338 extra samples, 339 format of samples, 347 JPEG tables, 530 subsampling.
# Read here only: 254 kind of page, 274 orientation.
_SINGLE = {254, 256, 257, 259, 262, 266, 274, 277, 278, 284, 317, 322, 323}
_NEEDED = {258, 273, 279, 320, 324, 325, 338, 339, 347, 530} | _SINGLE - {254, 274}
_XMP, _PHOTOSHOP, _PROFILE = 700, 34377, 34675

Tags = dict[int, tuple[int, ...]]

# libtiff prints what it complains of on standard error, and Pillow raises for errors anyway.
with suppress(AttributeError, OSError):
    _libtiff = ctypes.CDLL(_imaging.__file__)
    _libtiff.TIFFSetErrorHandler(None)
    _libtiff.TIFFSetWarningHandler(None)


def read_tiff(data: bytes) -> Contents:
    """Inspect a TIFF."""
    directory = Directory(data)
    n_entries = directory.n_entries
    if n_entries > MAX_TAGS:
        raise ImageError(f"has {n_entries} TIFF tags, more than {MAX_TAGS}; save it anew")
    if directory.broken:
        raise ImageError(DAMAGED)
    if directory.twice:
        tag = directory.twice[0]
        raise ImageError(f"has the TIFF tag {tag} twice; use an undamaged copy")
    limits = dict.fromkeys(_SINGLE, 1) | {347: _MAX_JPEG_TABLES}
    wanted = sorted((_NEEDED | _SINGLE) & directory.entries.keys())
    tags = {tag: directory.numbers(tag, limits.get(tag, 1 << 18)) for tag in wanted}
    first = {tag: numbers[0] for tag, numbers in tags.items()}
    _check_pixels(tags, first)
    width, height, colours = first[256], first[257], first[262]
    bits, samples, packed = first.get(258, 1), first.get(277, 1), first.get(259, 1) != 1
    notes = []
    if (pages := _count_pages(data, directory)) > 1:
        notes.append(f"first of {pages} pages")
    changed: Tags = {}
    if 338 in tags:
        alpha = {1, 2} & set(tags[338])
        notes.append("transparency ignored" if alpha else "extra channels ignored")
        changed |= {338: (0,) * len(tags[338])} if len(tags[338]) < 3 else {}
    if (bits, colours) == (16, 5):
        notes.append("16 bits reduced to 8")
    # Pillow does not invert all types of grey.
    if colours == 0:
        changed[262] = (1,)
    file = _plain_tiff(directory, changed)

    def open_file(notes: list[str]) -> TiffImageFile:
        _check_blocks(file, tags, first)
        image = TiffImageFile(io.BytesIO(file))
        # If Pillow allocates it, it may warn about a size that is allowed here.
        image.im = Image.new(image.mode, image.size).im
        return image

    # Of a compressed file, a strip is unpacked as a whole.
    rows = min(first.get(278, height), height) if packed and 324 not in tags else 0
    return Contents(
        "TIFF",
        (width, height),
        tuple(notes),
        open=open_file,
        orientation=first.get(274, 1),
        deep=bits == 16 and colours == 2,
        wide=bits > 8,
        inverted=colours == 0,
        memory=len(file) + rows * width * samples * bits // 8,
        metadata=Metadata(
            exif_of(directory),
            directory.raw(_XMP),
            directory.raw(_PHOTOSHOP),
            directory.raw(_PROFILE),
        ),
    )


def _check_pixels(tags: Tags, first: dict[int, int]) -> None:
    """Raise if Pillow does not read this type of pixels, or reads it wrongly."""
    bits, samples, compression = (first.get(tag, 1) for tag in (258, 277, 259))
    form, layout = first.get(339, 1), first.get(284, 1)
    problem = ""
    if first.get(254, 0) & 1:
        problem = "begins with a preview, like the raw file of a camera"
    elif compression not in (1, 5, 7, 8, 32773, 32946):
        problem = f"has TIFF compression {compression}"
    elif (form, bits) not in {(1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (3, 32)}:
        problem = f"has TIFF samples of {bits} bits in format {form}"
    elif samples > 6 or layout not in ((1, 2) if samples == 1 or bits <= 8 else (1,)):
        problem = f"has {samples} TIFF channels of {bits} bits in layout {layout}"
    elif first.get(262) == 6 and compression == 1 and tags.get(530) != (1, 1):
        problem = "has packed colour differences"
    if problem:
        raise ImageError(f"{problem}, which is not read; save it as PNG")


def _count_pages(data: bytes, directory: Directory) -> int:
    seen, place = {directory.place}, directory.following
    with suppress(struct.error):  # only the first page is needed
        while place and place not in seen and len(seen) < _MAX_PAGES:
            (n_entries,) = struct.unpack_from(directory.order + "H", data, place)
            seen.add(place)
            (place,) = struct.unpack_from(directory.order + "I", data, place + 2 + 12 * n_entries)
    return len(seen)


def _plain_tiff(directory: Directory, changed: Tags) -> bytes:
    """Return a TIFF of one page with only the tags that its pixels need."""
    data, order, place = directory.data, directory.order, directory.place
    entries = {tag: data[end - 8 : end + 4] for tag, (*_, end) in directory.entries.items()}
    for tag, numbers in changed.items():
        value = struct.pack(f"{order}{len(numbers)}H", *numbers).ljust(4, b"\0")
        entries[tag] = struct.pack(order + "HHI", tag, 3, len(numbers)) + value
    kept = [entries[tag] for tag in sorted(_NEEDED & entries.keys())]
    plain = struct.pack(order + "H", len(kept)) + b"".join(kept) + bytes(4)
    view = memoryview(data)
    return b"".join([view[:place], plain, view[place + len(plain) :]])


def _check_blocks(file: bytes, tags: Tags, first: dict[int, int]) -> None:
    """Raise unless all strips or tiles are there: Pillow leaves missing ones black or grey."""
    width, height, tiled = first[256], first[257], 324 in tags
    samples, bits = first.get(277, 1), first.get(258, 1)
    offsets, sizes = tags.get(324 if tiled else 273, ()), tags.get(325 if tiled else 279, ())
    across = first.get(322, 0) if tiled else width
    down = first.get(323, 0) if tiled else min(first.get(278, height), height)
    if min(across, down) < 1 or (tiled and across * down > _MAX_TILE):
        raise ImageError(DAMAGED)
    planes = samples if first.get(284) == 2 else 1
    n_blocks = math.ceil(width / across) * math.ceil(height / down) * planes
    if tiled and n_blocks * across * down > max(_MAX_TILED, 2 * planes * width * height):
        raise ImageError("has tiles that are far larger than the picture; save it anew")
    compression = first.get(259, 1)
    if compression == 7 and n_blocks > _MAX_JPEGS:
        raise ImageError(f"has {n_blocks} JPEGs in it, more than {_MAX_JPEGS}; save it anew")
    if len(offsets) == n_blocks and compression == 1:
        # Some writers give wrong byte counts; without compression they follow from the size.
        rows = [down] * n_blocks
        if not tiled:
            rows = [min(down, height - top) for top in range(0, height, down)] * planes
        sizes = tuple(math.ceil(across * samples // planes * bits / 8) * n for n in rows)
    if not len(offsets) == len(sizes) == n_blocks:
        raise ImageError("has strips or tiles that do not fit its size; use an undamaged copy")
    blocks = list(zip(offsets, sizes, strict=True))
    if max(start + size for start, size in blocks) > len(file):
        raise ImageError(CUT_OFF)
    if compression == 7:
        tables = bytes(tags.get(347, ()))
        tables = tables[2:-2] if tables.startswith(b"\xff\xd8") else b""
        for start, size in blocks:
            if b"\xff\xd9" not in file[start + size - 4 : start + size]:
                raise ImageError(CUT_OFF)
            check_jpeg(b"\xff\xd8" + tables + file[start + 2 : start + size])
