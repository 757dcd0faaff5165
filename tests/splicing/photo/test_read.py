from __future__ import annotations

import contextlib
import io
import os
import re
import struct
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

from cpcapp.splicing.photo.files import image_files
from cpcapp.splicing.photo.read import ImageError, read_image


def photo(height=40, width=56, channels=3, dtype=np.uint8):
    """Return something with smooth parts, edges and noise."""
    rng = np.random.default_rng(height * 1000 + width)
    y, x, c = np.mgrid[:height, :width, :channels]
    level = 0.5 + 0.25 * np.sin(x / 7 + c) + 0.15 * (y > height / 2) + 0.05 * rng.random(x.shape)
    return (level * np.iinfo(dtype).max).astype(dtype)


def saved(image, form, **options):
    file = io.BytesIO()
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    image.save(file, form, **options)
    return file.getvalue()


def exif(orientation):
    tags = Image.Exif()
    tags[274] = orientation
    return tags


def png_chunk(kind, content):
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )


def png(pixels, *, interlaced=False, extra=b"", size=None):
    """Write a PNG without filters; ``size`` is what the header says."""
    height, width, channels = pixels.shape
    big = pixels.astype(">u2") if pixels.dtype == np.uint16 else pixels
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2)]
        passes += [(0, 1, 2, 2), (1, 0, 2, 1)]
    rows = [b"\0" + row.tobytes() for y, x, h, w in passes for row in big[y::h, x::w] if row.size]
    colours = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    bits = 8 * pixels.dtype.itemsize
    header = struct.pack(">IIBBBBB", *(size or (width, height)), bits, colours, 0, 0, interlaced)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + extra
        + png_chunk(b"IDAT", zlib.compress(b"".join(rows)))
        + png_chunk(b"IEND", b"")
    )


def tiff(tags, blocks, *, order="<", next_page=0):
    """Write a TIFF from its tags and its strips or, if it has a tile width, tiles."""
    offsets, at = [], 8
    for block in blocks:
        offsets.append(at)
        at += len(block)
    tiled = 322 in tags
    tags = {**tags, (324 if tiled else 273): offsets, (325 if tiled else 279): map(len, blocks)}
    entries, values = b"", b""
    for tag, value in sorted(tags.items()):
        kind, code = (4, "I") if tag in (256, 257, 273, 279, 324, 325) else (3, "H")
        numbers = list(value) if not isinstance(value, int) else [value]
        raw = struct.pack(f"{order}{len(numbers)}{code}", *numbers)
        if len(raw) > 4:
            where = at + 6 + 12 * len(tags) + len(values)
            values, raw = values + raw, struct.pack(order + "I", where)
        entries += struct.pack(order + "HHI", tag, kind, len(numbers)) + raw.ljust(4, b"\0")
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", at)
    directory = struct.pack(order + "H", len(tags)) + entries + struct.pack(order + "I", next_page)
    return head + b"".join(blocks) + directory + values


def rgb_tiff(pixels, *, order="<", tile=None, planes=False, compress=lambda raw: raw, **tags):
    height, width, channels = pixels.shape
    bits = 8 * pixels.dtype.itemsize
    raw = pixels.astype(f"{order}u{bits // 8}")
    parts = [raw[:, :, i : i + 1] for i in range(channels)] if planes else [raw]
    if tile:
        pad = ((0, -height % tile), (0, -width % tile), (0, 0))
        parts = [
            np.pad(part, pad)[y : y + tile, x : x + tile]
            for part in parts
            for y in range(0, height, tile)
            for x in range(0, width, tile)
        ]
    else:
        parts = [part[y : y + 16] for part in parts for y in range(0, height, 16)]
    all_tags = {256: width, 257: height, 258: [bits] * channels, 259: 1, 262: 2, 277: channels}
    all_tags |= {284: 2 if planes else 1}
    all_tags |= {322: tile, 323: tile} if tile else {278: 16}
    all_tags |= {int(tag[1:]): value for tag, value in tags.items()}
    return tiff(all_tags, [compress(part.tobytes()) for part in parts], order=order)


def cv2_tiff(rgb, compression):
    """Write what Pillow does not: compressed colours of 16 bits."""
    options = [cv2.IMWRITE_TIFF_COMPRESSION, compression]
    bgr = np.dstack([rgb[:, :, 2::-1], rgb[:, :, 3:]])
    return cv2.imencode(".tif", bgr, options)[1].tobytes()


PHOTO, PHOTO_16, GREY_16 = photo(), photo(dtype=np.uint16), photo(channels=1, dtype=np.uint16)
GREY = PHOTO[:, :, 0]
ALPHA = np.dstack([PHOTO, GREY])
ALPHA_16 = np.dstack([PHOTO_16, PHOTO_16[:, :, 0]])
IMAGE = Image.fromarray(PHOTO)


def thrice(grey):
    return np.repeat(grey.reshape(*grey.shape[:2], 1), 3, axis=2)


@cache
def lossless():
    """Return file, pixels, format and notes of every kind of file that keeps its pixels."""
    palette = IMAGE.quantize(16)
    of_palette = np.asarray(palette.convert("RGB"))
    black_white = IMAGE.convert("1")
    of_bits = thrice(np.asarray(black_white) * np.uint8(255))
    frames = {"save_all": True, "append_images": [IMAGE.rotate(180), IMAGE.rotate(90)]}
    two_greys = Image.fromarray(ALPHA[:, :, 2:])
    cmyk = IMAGE.convert("CMYK")
    y_cb_cr = IMAGE.convert("YCbCr")
    lab = Image.merge("LAB", IMAGE.split())
    with_alpha = ("transparency ignored",)
    return {
        "png": (saved(PHOTO, "PNG"), PHOTO, "PNG", ()),
        "png palette": (saved(palette, "PNG"), of_palette, "PNG", ("converted from a palette",)),
        "png transparent palette": (
            *(saved(palette, "PNG", transparency=bytes(range(16))), of_palette, "PNG"),
            ("transparency ignored", "converted from a palette"),
        ),
        "png alpha": (saved(ALPHA, "PNG"), PHOTO, "PNG", with_alpha),
        "png opaque alpha": (saved(IMAGE.convert("RGBA"), "PNG"), PHOTO, "PNG", ()),
        "png grey": (saved(GREY, "PNG"), thrice(GREY), "PNG", ("grey",)),
        "png grey alpha": (
            *(saved(two_greys, "PNG"), thrice(ALPHA[:, :, 2]), "PNG"),
            ("transparency ignored", "grey"),
        ),
        "png 1 bit": (saved(black_white, "PNG"), of_bits, "PNG", ("1 bit", "grey")),
        "png 16 bits": (png(PHOTO_16), PHOTO_16, "PNG", ("16 bits",)),
        "png 16 bits alpha": (png(ALPHA_16), PHOTO_16, "PNG", ("transparency ignored", "16 bits")),
        "png 16 bits grey": (png(GREY_16), thrice(GREY_16), "PNG", ("16 bits", "grey")),
        "png 16 bits grey alpha": (
            *(png(ALPHA_16[:, :, 2:]), thrice(ALPHA_16[:, :, 2] >> 8).astype(np.uint8), "PNG"),
            ("16 bits reduced to 8", "transparency ignored"),
        ),
        "png interlaced": (png(PHOTO, interlaced=True), PHOTO, "PNG", ()),
        "png interlaced 16": (png(PHOTO_16, interlaced=True), PHOTO_16, "PNG", ("16 bits",)),
        "png animated": (saved(IMAGE, "PNG", **frames), PHOTO, "PNG", ("first of 3 frames",)),
        "tiff": (saved(PHOTO, "TIFF"), PHOTO, "TIFF", ()),
        "tiff lzw": (saved(PHOTO, "TIFF", compression="tiff_lzw"), PHOTO, "TIFF", ()),
        "tiff deflate": (saved(PHOTO, "TIFF", compression="tiff_deflate"), PHOTO, "TIFF", ()),
        "tiff packbits": (saved(PHOTO, "TIFF", compression="packbits"), PHOTO, "TIFF", ()),
        "tiff big-endian": (rgb_tiff(PHOTO, order=">"), PHOTO, "TIFF", ()),
        "tiff tiles": (rgb_tiff(PHOTO, tile=16), PHOTO, "TIFF", ()),
        "tiff deflated tiles": (
            *(rgb_tiff(PHOTO, tile=16, compress=zlib.compress, t259=8), PHOTO, "TIFF", ()),
        ),
        "tiff planes": (rgb_tiff(PHOTO, planes=True), PHOTO, "TIFF", ()),
        "tiff deflated planes": (
            *(rgb_tiff(PHOTO, planes=True, compress=zlib.compress, t259=8), PHOTO, "TIFF", ()),
        ),
        "tiff pages": (saved(IMAGE, "TIFF", **frames), PHOTO, "TIFF", ("first of 3 pages",)),
        "tiff alpha": (saved(ALPHA, "TIFF"), PHOTO, "TIFF", with_alpha),
        "tiff premultiplied": (rgb_tiff(ALPHA, t338=1), PHOTO, "TIFF", with_alpha),
        "tiff mask": (rgb_tiff(ALPHA, t338=0), PHOTO, "TIFF", ("extra channels ignored",)),
        "tiff palette": (saved(palette, "TIFF"), of_palette, "TIFF", ("converted from a palette",)),
        "tiff grey": (saved(GREY, "TIFF"), thrice(GREY), "TIFF", ("grey",)),
        "tiff white is 0": (
            *(rgb_tiff(GREY[:, :, None], t262=0), 255 - thrice(GREY), "TIFF", ("grey",)),
        ),
        "tiff 1 bit": (saved(black_white, "TIFF"), of_bits, "TIFF", ("1 bit", "grey")),
        "tiff CMYK": (
            *(saved(cmyk, "TIFF"), np.asarray(cmyk.convert("RGB")), "TIFF"),
            ("converted from CMYK",),
        ),
        "tiff YCbCr": (
            *(saved(y_cb_cr, "TIFF"), np.asarray(y_cb_cr.convert("RGB")), "TIFF"),
            ("converted from YCbCr",),
        ),
        "tiff LAB": (
            *(saved(lab, "TIFF"), np.asarray(lab.convert("RGB")), "TIFF"),
            ("converted from LAB",),
        ),
        "tiff floats": (
            *(saved(Image.fromarray(np.float32(GREY_16[:, :, 0] / 65535)), "TIFF"),),
            *(thrice(GREY_16), "TIFF", ("converted from floats", "16 bits", "grey")),
        ),
        "tiff 16 bits": (rgb_tiff(PHOTO_16), PHOTO_16, "TIFF", ("16 bits",)),
        "tiff 16 bits big-endian": (rgb_tiff(PHOTO_16, order=">"), PHOTO_16, "TIFF", ("16 bits",)),
        "tiff 16 bits tiles": (rgb_tiff(PHOTO_16, tile=32), PHOTO_16, "TIFF", ("16 bits",)),
        "tiff 16 bits lzw": (cv2_tiff(PHOTO_16, 5), PHOTO_16, "TIFF", ("16 bits",)),
        "tiff 16 bits deflate": (cv2_tiff(PHOTO_16, 8), PHOTO_16, "TIFF", ("16 bits",)),
        "tiff 16 bits alpha": (
            *(cv2_tiff(ALPHA_16, 5), PHOTO_16, "TIFF", ("transparency ignored", "16 bits")),
        ),
        "tiff 16 bits premultiplied": (
            *(rgb_tiff(ALPHA_16, t338=1), PHOTO_16, "TIFF", ("transparency ignored", "16 bits")),
        ),
        "tiff 16 bits grey": (
            *(saved(GREY_16[:, :, 0], "TIFF"), thrice(GREY_16), "TIFF", ("16 bits", "grey")),
        ),
        "tiff 16 bits grey big-endian lzw": (
            rgb_tiff(GREY_16, order=">", compress=zlib.compress, t259=8, t262=1),
            *(thrice(GREY_16), "TIFF", ("16 bits", "grey")),
        ),
        "tiff 16 bits white is 0": (
            *(rgb_tiff(GREY_16, t262=0), 65535 - thrice(GREY_16), "TIFF", ("16 bits", "grey")),
        ),
        "webp": (saved(PHOTO, "WEBP", lossless=True), PHOTO, "WebP", ()),
        "webp alpha": (
            saved(ALPHA, "WEBP", lossless=True, exact=True),
            *(PHOTO, "WebP", with_alpha),
        ),
        "webp animated": (
            saved(IMAGE, "WEBP", lossless=True, **frames),
            *(PHOTO, "WebP", ("first of 3 frames",)),
        ),
        "bmp": (saved(PHOTO, "BMP"), PHOTO, "BMP", ()),
        "bmp palette": (saved(palette, "BMP"), of_palette, "BMP", ("converted from a palette",)),
        "bmp grey": (saved(GREY, "BMP"), thrice(GREY), "BMP", ("grey",)),
        "bmp 1 bit": (saved(black_white, "BMP"), of_bits, "BMP", ("1 bit", "grey")),
    }


@cache
def lossy():
    """Return file, pixels near the right ones, and notes of files that change their pixels."""
    cmyk = saved(IMAGE.convert("CMYK"), "JPEG", quality=95)
    jpeg = {"quality": 95, "subsampling": 0}
    turned = ("turned by the EXIF orientation",)
    return {
        "jpeg": (saved(PHOTO, "JPEG", **jpeg), PHOTO, ()),
        "jpeg progressive": (saved(PHOTO, "JPEG", progressive=True, **jpeg), PHOTO, ()),
        "jpeg restarts": (saved(PHOTO, "JPEG", restart_marker_rows=1, **jpeg), PHOTO, ()),
        "jpeg grey": (saved(GREY, "JPEG", quality=95), thrice(GREY), ("grey",)),
        "jpeg CMYK": (cmyk, PHOTO, ("converted from CMYK",)),
        "jpeg turned": (saved(PHOTO, "JPEG", exif=exif(3), **jpeg), PHOTO[::-1, ::-1], turned),
        "tiff jpeg": (saved(PHOTO, "TIFF", compression="jpeg", quality=95), PHOTO, ()),
        "webp lossy": (saved(PHOTO, "WEBP", quality=95), PHOTO, ()),
        "webp turned": (saved(PHOTO, "WEBP", exif=exif(3), quality=95), PHOTO[::-1, ::-1], turned),
    }


def every_file():
    return {name: case[0] for name, case in (lossless() | lossy()).items()}


@pytest.mark.parametrize("name", lossless())
def test_lossless_files_give_their_pixels(name):
    file, pixels, form, notes = lossless()[name]
    image = read_image(file)
    np.testing.assert_array_equal(image.pixels, pixels)
    assert image.pixels.dtype == pixels.dtype
    assert (image.format, image.name) == (form, "")
    assert image.notes[: len(notes)] == notes
    assert image.pixels.flags.writeable and image.pixels.flags.c_contiguous


@pytest.mark.parametrize("name", lossy())
def test_lossy_files_are_near(name):
    file, pixels, notes = lossy()[name]
    image = read_image(file)
    assert image.pixels.shape == pixels.shape
    assert np.abs(image.pixels.astype(int) - pixels).mean() < 6.0
    assert image.notes == notes


def test_a_jpeg_whose_colours_have_an_unusual_size():
    """One block of each colour for 4 x 2 of the light, all of mid-grey."""
    file = saved(Image.new("RGB", (32, 16), (128,) * 3), "JPEG", subsampling=0)
    frame = file.index(b"\xff\xc0")
    assert file[frame + 11] == 0x11
    header = file[: frame + 11] + b"\x42" + file[frame + 12 : file.index(b"\xff\xda") + 14]
    bits = "001010" * 8 + "0000" * 2  # no difference, end of block
    image = read_image(header + int(bits, 2).to_bytes(7, "big") + b"\xff\xd9")
    np.testing.assert_array_equal(image.pixels, np.full((16, 32, 3), 128))
    assert image.notes == ()


def test_ycck_jpeg_is_read_like_by_opencv():
    file = saved(Image.fromarray(ALPHA, "CMYK"), "JPEG", quality=95)
    at = file.index(b"Adobe") + 11
    assert file[at] == 0
    ycck = file[:at] + b"\2" + file[at + 1 :]
    expected = cv2.imdecode(np.frombuffer(ycck, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]
    assert np.abs(read_image(ycck).pixels.astype(int) - expected).max() <= 3
    assert np.abs(read_image(file).pixels.astype(int) - read_image(ycck).pixels).max() > 20


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP", "BMP"])
@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1)])
def test_the_smallest_and_flattest(form, size):
    for level in (0, 128, 255):
        image = read_image(saved(Image.new("RGB", size, (level,) * 3), form))
        assert image.pixels.shape == (size[1], size[0], 3)
        assert (np.abs(image.pixels.astype(int) - level) <= 1).all()


TURNS = {
    0: lambda p: p,
    1: lambda p: p,
    2: lambda p: p[:, ::-1],
    3: lambda p: p[::-1, ::-1],
    4: lambda p: p[::-1],
    5: lambda p: p.transpose(1, 0, 2),
    6: lambda p: np.rot90(p, -1),
    7: lambda p: np.rot90(p, 2).transpose(1, 0, 2),
    8: lambda p: np.rot90(p, 1),
}


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_exif_orientation_is_applied(form, orientation):
    options = {"lossless": True} if form == "WEBP" else {}
    upright = read_image(saved(PHOTO, form, **options)).pixels
    options |= {"tiffinfo": {274: orientation}} if form == "TIFF" else {"exif": exif(orientation)}
    file = saved(PHOTO, form, **options)
    image = read_image(file)
    np.testing.assert_array_equal(image.pixels, TURNS[orientation](upright))
    assert ("turned by the EXIF orientation" in image.notes) == (orientation > 1)
    if form != "TIFF":
        with Image.open(io.BytesIO(file)) as opened:
            pillow = ImageOps.exif_transpose(opened).convert("RGB")
        np.testing.assert_array_equal(image.pixels, np.asarray(pillow))


# Unlike in rows and columns, and coarse enough that rounded pixels do not hide the steps.
STEPS = 12 + 3 * np.arange(8)[:, None] + np.arange(8)


def off_the_steps(image, offset):
    """How far the frequencies of whole blocks lie from multiples of the table's steps."""
    light = image.pixels[:, :, 0].astype(np.float32) - 128
    top, left = offset
    worst = 0.0
    for row in range(top, light.shape[0] - 7, 8):
        for column in range(left, light.shape[1] - 7, 8):
            level = cv2.dct(light[row : row + 8, column : column + 8]) / image.jpeg_table
            away = np.abs(level - np.rint(level)) * image.jpeg_table
            worst = max(worst, float(away.max()))
    return worst


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize(("height", "width"), [(45, 59), (48, 61), (41, 64)])
def test_blocks_and_table_of_a_jpeg_are_turned_with_it(orientation, height, width):
    """At the offset blocks have frequencies that are multiples of the steps, and only there."""
    grey = np.random.default_rng(0).integers(90, 170, (height, width), dtype=np.uint8)
    table = STEPS.ravel().tolist()
    data = saved(grey, "JPEG", qtables=[table], exif=exif(orientation))
    image = read_image(data)
    expected = STEPS.T if orientation >= 5 else STEPS
    np.testing.assert_array_equal(image.jpeg_table, expected)
    assert image.jpeg_table.dtype == np.float32
    # Decoded pixels are rounded, with a variance of 1/12 in pixels and frequencies alike.
    assert off_the_steps(image, image.jpeg_offset) < 5.0 / 12**0.5
    for wrong in ((1, 0), (0, 3), (4, 4)):
        rows, columns = ((a + b) % 8 for a, b in zip(image.jpeg_offset, wrong, strict=True))
        assert off_the_steps(image, (rows, columns)) > 5.0


def test_only_jpegs_have_a_table():
    pixels = photo()
    for source in (pixels, saved(pixels, "PNG"), saved(pixels, "WebP", quality=60)):
        image = read_image(source)
        assert image.jpeg_table is None
        assert image.jpeg_offset == (0, 0)
    turned = read_image(saved(pixels, "PNG", exif=exif(3)))
    assert (turned.jpeg_table, turned.jpeg_offset) == (None, (0, 0))


def test_the_table_of_a_colour_photo_is_that_of_light():
    chroma = np.full(64, 40).tolist()
    data = saved(photo(), "JPEG", qtables=[STEPS.ravel().tolist(), chroma])
    np.testing.assert_array_equal(read_image(data).jpeg_table, STEPS)
    # PIL images are not turned, and neither is their table.
    turned = saved(photo(), "JPEG", qtables=[STEPS.ravel().tolist(), chroma], exif=exif(6))
    image = read_image(Image.open(io.BytesIO(turned)))
    np.testing.assert_array_equal(image.jpeg_table, STEPS)
    assert image.jpeg_offset == (0, 0)


@pytest.mark.parametrize(
    "garbage",
    [
        *(b"Exif\0\0", b"Exif\0\0nonsense", b"Exif\0\0II*\0\xff\xff\xff\xff"),
        b"Exif\0\0" + tiff({256: 3, 274: [1] * 50}, []),
        b"Exif\0\0" + tiff({274: 77}, []),
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01\x63\0" * 50,
    ],
)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_broken_exif_is_ignored(form, garbage):
    options = {"lossless": True} if form == "WEBP" else {}
    image = read_image(saved(PHOTO, form, exif=garbage, **options))
    np.testing.assert_array_equal(image.pixels, read_image(saved(PHOTO, form, **options)).pixels)
    if len(garbage) > 6:
        assert image.notes == ("broken EXIF ignored",)


def test_broken_exif_does_not_turn_the_table():
    table = [STEPS.ravel().tolist()]
    image = read_image(saved(GREY, "JPEG", qtables=table, exif=b"Exif\0\0nonsense"))
    assert image.notes == ("broken EXIF ignored", "grey")
    np.testing.assert_array_equal(image.jpeg_table, STEPS)


class TestSources:
    def test_all_of_them_give_the_same(self, tmp_path):
        path = tmp_path / "a photo.png"
        path.write_bytes(saved(PHOTO, "PNG"))
        content = path.read_bytes()
        with path.open("rb") as file, Image.open(path) as opened:
            images = {
                "path": read_image(path),
                "string": read_image(str(path)),
                "file": read_image(file),
                "PIL file": read_image(opened),
                "stream": read_image(io.BytesIO(content)),
                "bytes": read_image(content),
                "bytearray": read_image(bytearray(content)),
                "view": read_image(memoryview(content)),
                "PIL": read_image(IMAGE),
                "array": read_image(PHOTO),
            }
        for label, image in images.items():
            np.testing.assert_array_equal(image.pixels, PHOTO, err_msg=label)
            named = label in ("path", "string", "file", "PIL file")
            assert image.name == ("a photo.png" if named else ""), label
        formats = [image.format for image in images.values()]
        assert formats == ["PNG"] * 8 + ["image", "array"]

    def test_the_content_decides_and_not_the_name(self, tmp_path):
        for form, wanted in (("JPEG", "JPEG"), ("WEBP", "WebP"), ("TIFF", "TIFF")):
            path = tmp_path / "photo.png"
            path.write_bytes(saved(PHOTO, form))
            assert read_image(path).format == wanted

    @pytest.mark.parametrize(
        ("array", "pixels", "notes"),
        [
            (GREY, thrice(GREY), ("grey",)),
            (GREY[:, :, None], thrice(GREY), ("grey",)),
            (ALPHA[:, :, 2:], thrice(ALPHA[:, :, 2]), ("transparency ignored", "grey")),
            (ALPHA, PHOTO, ("transparency ignored",)),
            (PHOTO_16, PHOTO_16, ("16 bits",)),
            (PHOTO_16.astype(">u2"), PHOTO_16, ("16 bits",)),
            (PHOTO[::-1, ::2], PHOTO[::-1, ::2], ()),
            (PHOTO > 128, (PHOTO > 128) * np.uint8(255), ()),
            (PHOTO_16 / 65535, PHOTO_16, ("converted from floats", "16 bits")),
            (np.float32(PHOTO_16 / 65535), PHOTO_16, ("converted from floats", "16 bits")),
            (np.ones((2, 2), np.float16), np.full((2, 2, 3), 65535, np.uint16), ()),
        ],
    )
    def test_arrays(self, array, pixels, notes):
        image = read_image(array)
        np.testing.assert_array_equal(image.pixels, pixels)
        assert image.pixels.dtype == pixels.dtype
        assert image.notes[: len(notes)] == notes

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.zeros((4, 4, 5), np.uint8), r"has shape \(4, 4, 5\)"),
            (np.zeros(4, np.uint8), r"has shape \(4,\)"),
            (np.zeros((0, 4, 3), np.uint8), r"has shape \(0, 4, 3\)"),
            (np.zeros((4, 4), np.int64), "has dtype int64"),
            (np.full((4, 4), 1.5), r"outside \[0, 1\]"),
            (np.full((4, 4), np.nan), r"outside \[0, 1\] or NaN"),
            (None, "has shape"),
        ],
    )
    def test_arrays_that_are_no_images(self, array, message):
        with pytest.raises(ImageError, match=message):
            read_image(array)

    @pytest.mark.parametrize(
        "mode",
        ["1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "HSV"],
    )
    def test_pil_images_of_every_mode(self, mode):
        # Some conversions have a step between.
        between = {"La": "LA", "PA": "P", "RGBa": "RGBA"}.get(mode, mode)
        image = IMAGE.convert(between).convert(mode)
        pixels = read_image(image).pixels
        assert pixels.shape == PHOTO.shape
        expected = IMAGE.convert("RGB" if mode in ("RGBA", "RGBX", "RGBa") else between)
        np.testing.assert_array_equal(pixels, np.asarray(expected.convert("RGB")))

    def test_pil_images_of_more_bits(self):
        for mode in ("I;16", "I;16B", "I"):
            grey = Image.fromarray(GREY_16[:, :, 0].astype("<u2")).convert("I").convert(mode)
            np.testing.assert_array_equal(read_image(grey).pixels, thrice(GREY_16))
        with pytest.raises(ImageError, match="dtype int32"):
            read_image(Image.new("I", (3, 3), 70000))

    def test_a_pil_image_and_its_palette_stay_as_they_are(self):
        image = IMAGE.quantize(16)
        image.info["transparency"] = bytes(16)
        before = image.tobytes()
        assert "transparency ignored" in read_image(image).notes
        assert image.tobytes() == before and image.mode == "P"

    def test_a_text_file(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text("hello")
        with path.open() as file, pytest.raises(ImageError, match="open the file in binary mode"):
            read_image(file)


class TestRefusals:
    def refused(self, source, message, **options):
        with pytest.raises(ImageError, match=message) as caught:
            read_image(source, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def test_paths_that_are_no_files(self, tmp_path):
        name = str(tmp_path / "none.jpg")
        assert self.refused(name, "does not exist").startswith(name)
        self.refused(tmp_path, "is a folder; give a file")
        self.refused("", "is a folder")
        self.refused("a\0b.jpg", "null")
        self.refused("x" * 5000, "can't be read")
        self.refused(tmp_path / "two\nlines.jpg", r"two\\nlines.jpg")

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
    def test_pipes_and_devices_are_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.jpg")
        self.refused(tmp_path / "pipe.jpg", "is not a regular file")
        self.refused("/dev/zero", "is not a regular file")

    @pytest.mark.parametrize(
        "content", [b"hello", b"GIF89a" + bytes(50), b"%PDF-1.7", bytes(100), b"II+\0" + bytes(60)]
    )
    def test_other_files(self, content, tmp_path):
        path = tmp_path / "photo.jpg"
        path.write_bytes(content)
        self.refused(path, "photo.jpg: is not a JPEG, PNG, plain TIFF, WebP, BMP, HEIC or AVIF;")

    def test_an_empty_file(self):
        self.refused(b"", "is empty; use a complete copy")

    def test_a_file_that_is_too_long(self, tmp_path):
        with (tmp_path / "long.png").open("wb") as file:
            file.truncate((1 << 30) + 1)
        self.refused(tmp_path / "long.png", "has more than 1024 MiB")

    @pytest.mark.parametrize("bad", [0, -1, 0.5, np.nan, True, None, "9"])
    def test_a_senseless_limit(self, bad):
        with pytest.raises(ValueError, match="max_pixels"):
            read_image(PHOTO, max_pixels=bad)

    def test_the_limit_is_for_all_sources(self):
        height, width = PHOTO.shape[:2]
        sources = [*every_file().values(), PHOTO, IMAGE]
        for source in sources:
            assert read_image(source, max_pixels=height * width).pixels.size == PHOTO.size
            self.refused(source, "raise max_pixels", max_pixels=height * width - 1)

    def test_bombs_are_not_unpacked(self):
        huge = struct.pack("<II", 60000, 60000)
        webp = saved(PHOTO, "WEBP", exif=exif(1))
        assert webp[12:16] == b"VP8X"
        jpeg = saved(PHOTO, "JPEG")
        frame = jpeg.index(b"\xff\xc0") + 5
        bmp = saved(PHOTO, "BMP")
        for bomb in (
            png(PHOTO, size=(60000, 60000)),
            png(PHOTO_16, size=(60000, 60000), interlaced=True),
            rgb_tiff(PHOTO, t256=60000, t257=60000),
            rgb_tiff(PHOTO, compress=zlib.compress, t256=60000, t257=60000, t259=8),
            webp[:24] + b"\xff\xff\0\xff\xff\0" + webp[30:],
            jpeg[:frame] + b"\xea\x60\xea\x60" + jpeg[frame + 4 :],
            bmp[:18] + huge + bmp[26:],
        ):
            self.refused(bomb, "more than 120 megapixels; make it smaller or raise max_pixels")
        self.refused(rgb_tiff(PHOTO, tile=16, t322=60000, t323=60000), "is damaged")

    def test_text_bombs_are_passed_by(self):
        text = png_chunk(b"zTXt", b"note\0\0" + zlib.compress(bytes(50_000_000)))
        profile = png_chunk(b"iCCP", b"note\0\0" + zlib.compress(bytes(50_000_000)))
        small = png_chunk(b"tEXt", b"note\0" + b"x" * 50) * 2000
        image = read_image(png(PHOTO, extra=text + profile + small))
        np.testing.assert_array_equal(image.pixels, PHOTO)

    def test_absurd_tags_are_passed_by(self):
        file = rgb_tiff(PHOTO, t270=7, t33432=[1] * 40, t34665=8, t65000=3)
        at = file.index(struct.pack("<HHI", 65000, 3, 1))
        file = file[:at] + struct.pack("<HHI", 65000, 99, 0xFFFFFFFF) + file[at + 8 :]
        image = read_image(file)
        np.testing.assert_array_equal(image.pixels, PHOTO)

    def test_pages_in_a_circle(self):
        raw = rgb_tiff(PHOTO)
        start = struct.unpack_from("<I", raw, 4)[0]
        end = start + 2 + 12 * struct.unpack_from("<H", raw, start)[0]
        for target in (start, 3, 0xFFFFFFF0):
            circle = raw[:end] + struct.pack("<I", target) + raw[end + 4 :]
            np.testing.assert_array_equal(read_image(circle).pixels, PHOTO)

    @pytest.mark.parametrize(
        ("tags", "message"),
        [
            ({"t259": 34712}, "has TIFF compression 34712"),
            ({"t254": 1}, "begins with a preview"),
            ({"t258": [32, 32, 32]}, "has TIFF samples of 32 bits"),
            ({"t339": [2, 2, 2]}, "in format 2"),
            ({"t277": 9}, "has 9 TIFF channels"),
            ({"t262": 6}, "packed colour differences"),
            ({"t262": 32803}, "unknown pixel mode"),
            ({"t278": 0}, "is damaged"),
            ({"t256": [40, 40]}, "senseless TIFF tag 256"),
        ],
    )
    def test_kinds_of_tiff_that_are_not_read(self, tags, message):
        self.refused(rgb_tiff(PHOTO, **tags), message)

    def test_files_that_need_too_much_memory(self):
        """Within the limit of pixels, but of a kind that takes more bytes for each."""
        webp = saved(PHOTO, "WEBP", exif=exif(1))
        width, height = ((side - 1).to_bytes(3, "little") for side in (15_000, 7_000))
        one_strip = {"t256": 10_000, "t257": 9_000, "t278": 9_000, "t259": 8}
        for file in (
            webp[:24] + width + height + webp[30:],
            rgb_tiff(PHOTO_16, compress=zlib.compress, **one_strip),
        ):
            self.refused(file, "needs about [0-9]+ MB of memory to be read, more than 1373 MB")
            self.refused(file, "(is damaged|is cut off|do not fit)", max_pixels=1 << 40)

    def test_image_planes_16_bits(self):
        self.refused(rgb_tiff(PHOTO_16, planes=True), "3 TIFF channels of 16 bits in layout 2")

    def test_floats_out_of_range(self):
        self.refused(saved(Image.fromarray(np.float32(GREY)), "TIFF"), r"outside \[0, 1\]")

    def test_a_bmp_with_run_lengths(self):
        file = saved(IMAGE.quantize(16), "BMP")
        self.refused(file[:30] + b"\1" + file[31:], "run lengths")

    def test_a_wrong_checksum(self):
        file = bytearray(saved(PHOTO, "PNG"))
        file[len(file) // 2] ^= 1
        self.refused(bytes(file), "is damaged; use an undamaged copy")


class TestCutOff:
    @pytest.fixture(params=[False, True], ids=["strict", "lenient"], autouse=True)
    def lenient(self, request, monkeypatch):
        """Do it also where the process told Pillow to make do with half an image."""
        monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", request.param)
        yield
        assert request.param is ImageFile.LOAD_TRUNCATED_IMAGES

    @pytest.mark.parametrize("name", sorted(set(every_file()) - {"tiff pages"}))
    def test_anywhere(self, name):
        whole = every_file()[name]
        for end in np.linspace(1, len(whole) * 0.97, 25).astype(int):
            with pytest.raises(ImageError):
                read_image(whole[:end])

    def test_after_the_first_page(self):
        whole = every_file()["tiff pages"]
        for end in np.linspace(len(whole) * 0.4, len(whole), 25).astype(int):
            np.testing.assert_array_equal(read_image(whole[:end]).pixels, PHOTO)

    def test_half_a_jpeg_in_a_tiff(self):
        whole = every_file()["tiff jpeg"]
        at = whole.index(struct.pack("<HHI", 279, 4, 1)) + 8
        size = struct.unpack_from("<I", whole, at)[0] // 2
        with pytest.raises(ImageError, match="is cut off"):
            read_image(whole[:at] + struct.pack("<I", size) + whole[at + 4 :])

    def test_whole_scans_that_are_missing(self):
        whole = saved(photo(200, 300), "JPEG", progressive=True)
        starts = [found.start() for found in re.finditer(rb"\xff\xda", whole)]
        assert len(starts) == 10
        for start in starts[1:]:
            # The tables before a scan belong to it.
            tables = whole.rfind(b"\xff\xc4", 0, start)
            for end in (start, tables):
                with pytest.raises(ImageError, match="is cut off"):
                    read_image(whole[:end] + b"\xff\xd9")

    def test_an_end_put_behind_half_a_jpeg_in_a_tiff(self):
        whole = every_file()["tiff jpeg"]
        at = whole.index(struct.pack("<HHI", 279, 4, 1)) + 8
        size = struct.unpack_from("<I", whole, at)[0]
        start = struct.unpack_from("<I", whole, whole.index(struct.pack("<HHI", 273, 4, 1)) + 8)[0]
        middle = start + size * 2 // 3
        closed = whole[:middle] + b"\xff\xd9" + whole[middle + 2 :]
        closed = closed[:at] + struct.pack("<I", middle + 2 - start) + closed[at + 4 :]
        with pytest.raises(ImageError, match="is cut off"):
            read_image(closed)

    def test_headers_that_promise_more(self):
        height, width = PHOTO.shape[:2]
        jpeg = saved(PHOTO, "JPEG")
        at = jpeg.index(b"\xff\xc0") + 5
        bmp = saved(PHOTO, "BMP")
        for lie in (
            png(PHOTO, size=(width, 2 * height)),
            png(PHOTO, size=(2 * width, height)),
            png(PHOTO, size=(width, height + 1)),
            png(PHOTO_16, size=(width, height + 1)),
            png(PHOTO, size=(width, height + 1), interlaced=True),
            jpeg[:at] + struct.pack(">H", 2 * height) + jpeg[at + 2 :],
            rgb_tiff(PHOTO, t257=2 * height),
            rgb_tiff(PHOTO, t256=2 * width),
            rgb_tiff(PHOTO, tile=16, t257=2 * height),
            rgb_tiff(PHOTO, t278=2 * height),
            rgb_tiff(PHOTO, compress=zlib.compress, t259=8, t256=2 * width),
            saved(PHOTO, "TIFF", compression="tiff_lzw", tiffinfo={257: 2 * height}),
            bmp[:22] + struct.pack("<I", 2 * height) + bmp[26:],
        ):
            with pytest.raises(ImageError):
                read_image(lie)

    @pytest.mark.parametrize("options", [{}, {"optimize": True}, {"progressive": True}])
    def test_a_photo_that_really_ends_in_grey(self, options):
        for height, grey in ((200, 100), (200, 8), (40, 39), (100, 100), (33, 3)):
            pixels = photo(height, 150)
            pixels[height - grey :] = 128
            for mode in ("RGB", "L"):
                file = saved(Image.fromarray(pixels).convert(mode), "JPEG", **options)
                assert read_image(file).pixels.shape == pixels.shape


def test_the_limit_of_pillow_is_not_in_the_way(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    for name, file in every_file().items():
        if not name.startswith("webp"):
            assert read_image(file).pixels.size == PHOTO.size, name


def test_threads_read_the_same(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    files = list(every_file().values())
    halves = [file[: len(file) // 4] for file in files]
    alone = [read_image(file).pixels for file in files]

    def read(number):
        index = number % len(files)
        with pytest.raises(ImageError):
            read_image(halves[index])
        return index, read_image(files[index]).pixels

    with ThreadPoolExecutor(4) as pool:
        for index, pixels in pool.map(read, range(4 * len(files))):
            np.testing.assert_array_equal(pixels, alone[index])
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


def test_ctrl_c_is_not_an_image_error():
    class Source:
        def read(self, size):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_image(Source())


class TestRealFiles:
    def test_columbia(self, data_folder):
        for path in image_files(data_folder / "columbia_dev" / "4cam_splc")[::6]:
            image = read_image(path)
            assert (image.format, image.notes, image.name) == ("TIFF", (), path.name)
            np.testing.assert_array_equal(image.pixels, cv2.imread(str(path))[:, :, ::-1])

    @pytest.mark.parametrize("folder", ["casia2_pairs", "nimble_sample/probe"])
    def test_others(self, data_folder, folder):
        n_read = 0
        for path in image_files(data_folder / folder, recursive=True):
            try:
                image = read_image(path)
            except ImageError as error:
                assert str(path) in str(error)
                continue
            n_read += 1
            with Image.open(path) as opened:
                upright = ImageOps.exif_transpose(opened).convert("RGB")
            np.testing.assert_array_equal(image.pixels, np.asarray(upright))
        assert n_read > 0


def test_damaged_jpeg_data_is_noted():
    """A flipped bit gives a photo of which a part is not what the camera saw."""
    whole = bytearray(saved(photo(200, 300), "JPEG", quality=95))
    noted = 0
    for place in range(len(whole) // 2, len(whole) // 2 + 40):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        try:
            noted += "damaged JPEG data" in read_image(bytes(damaged)).notes
        except ImageError:
            continue
    assert noted > 0
    assert read_image(bytes(whole)).notes == ()


def test_libraries_print_nothing(capfd):
    whole = saved(photo(200, 300), "TIFF", compression="tiff_lzw")
    for place in range(100, len(whole) // 2, len(whole) // 40):
        damaged = whole[:place] + bytes(60) + whole[place + 60 :]
        with contextlib.suppress(ImageError):
            read_image(damaged)
    jpeg = saved(photo(200, 300), "JPEG")
    with pytest.raises(ImageError):
        read_image(jpeg[: len(jpeg) // 2] + b"\xff\xd9")
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's counters")
def test_memory_of_reading(tmp_path):
    """At most 12 bytes a pixel, but for two kinds; measured in a process of its own.

    The other two take no more than is said before they are read, so that the limit holds for them.
    """
    height, width = 1500, 2000
    grey = np.add.outer(np.arange(height), np.arange(width)).astype(np.uint8)
    rgb = np.stack([grey, grey[::-1], grey[:, ::-1]], axis=2)
    alpha = np.concatenate([rgb, rgb[:, :, :1] // 2], axis=2)
    for name, array in {"rgb": rgb, "alpha": alpha, "grey": grey}.items():
        cv2.imwrite(str(tmp_path / f"{name}-16.png"), array.astype(np.uint16) * 257)
        Image.fromarray(array).save(tmp_path / f"{name}.png", compress_level=1)
        Image.fromarray(array).save(tmp_path / f"{name}.tif", compression="tiff_lzw")
    Image.fromarray(rgb).save(tmp_path / "rgb.jpg", progressive=True, subsampling=0)
    Image.fromarray(rgb).convert("CMYK").save(tmp_path / "cmyk.jpg")
    Image.fromarray(rgb).save(tmp_path / "rgb.bmp")
    Image.fromarray(grey / np.float32(255)).save(tmp_path / "float.tif", compression="tiff_lzw")
    Image.fromarray(rgb).save(tmp_path / "rgb.webp", quality=80, method=0)
    Image.fromarray(alpha).save(tmp_path / "alpha.webp", lossless=True, method=0, quality=0)
    cv2.imwrite(str(tmp_path / "rgb-16.tif"), rgb.astype(np.uint16) * 257, [259, 1])
    code = """
import sys
from pathlib import Path
from cpcapp.splicing import read_image
from cpcapp.splicing.photo.formats import inspect_container
from cpcapp.splicing.photo.read import needed_memory
for path in sorted(Path(sys.argv[1]).iterdir()):
    read_image(path)  # once, so that libraries are loaded
    Path('/proc/self/clear_refs').write_text('5')
    status = Path('/proc/self/status').read_text().split()
    before = int(status[status.index('VmRSS:') + 1])
    read_image(path)
    status = Path('/proc/self/status').read_text().split()
    peak = 1024 * (int(status[status.index('VmHWM:') + 1]) - before)
    print(path.name, peak, needed_memory(inspect_container(path.read_bytes())))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    measured = {name: (int(peak), int(needed)) for name, peak, needed in lines}
    assert len(measured) == 16
    large = {"rgb.webp", "alpha.webp", "rgb-16.tif"}
    strips = 8e6  # does not grow with the image
    for name, (peak, needed) in measured.items():
        assert peak <= needed + strips, name
        assert peak <= 12 * grey.size + strips or name in large, name
    for name in large:
        assert measured[name][1] > 12 * grey.size


def test_a_table_is_given_only_where_the_pixels_are_those_of_the_file():
    data = saved(photo(), "JPEG", quality=60)
    image = Image.open(io.BytesIO(data))
    for _ in range(2):  # reading leaves the image as it was
        np.testing.assert_array_equal(read_image(image).jpeg_table, read_image(data).jpeg_table)
        np.testing.assert_array_equal(read_image(image).pixels, read_image(data).pixels)
    image.thumbnail((28, 20))
    assert image.quantization
    assert read_image(image).jpeg_table is None
    smaller = Image.open(io.BytesIO(data))
    smaller.draft("RGB", (28, 20))
    assert read_image(smaller).jpeg_table is None
    painted = Image.open(io.BytesIO(data))
    painted.paste((0, 0, 0), (0, 0, 20, 20))
    assert read_image(painted).jpeg_table is None


def test_what_others_print_is_neither_swallowed_nor_taken_for_damage():
    """Whatever it looks like, and whichever thread prints it."""
    code = """
import os, sys, threading
from cpcapp.splicing import read_image
files = [file.encode("latin-1") for file in sys.stdin.read().split("|||")]
done = threading.Event()
notes = set()
def read():
    try:
        for file in files * 40:
            notes.update(read_image(file).notes)
    finally:
        done.set()
thread = threading.Thread(target=read)
thread.start()
count = 0
while not done.wait(1e-3):
    os.write(2, b"Corrupt JPEG data: %d\\n" % count)
    count += 1
thread.join()
print(count, *notes)
"""
    files = [saved(photo(), "JPEG"), saved(photo(), "TIFF", compression="jpeg")]
    run = subprocess.run(
        [sys.executable, "-c", code],
        input="|||".join(file.decode("latin-1") for file in files),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=300,
    )
    assert len(run.stderr.splitlines()) == int(run.stdout)
    assert int(run.stdout) > 5
