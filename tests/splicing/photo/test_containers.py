"""Small files that would keep a decoder busy for minutes are refused before it sees them."""

from __future__ import annotations

import io
import struct
import time
import zlib

import numpy as np
import pytest
from PIL import Image

from cpcapp.splicing.photo.read import ImageError, read_image

PHOTO = np.random.default_rng(4).integers(0, 255, (40, 56, 3), dtype=np.uint8)
# Kind 3 has 2 bytes a value, 4 and 99 (which nobody knows) have 4, 7 has 1.
TAGS = {
    "StripOffsets": 273,
    "StripByteCounts": 279,
    "BitsPerSample": 258,
    "ExtraSamples": 338,
    "ImageDescription": 270,
    "private": 65000,
}


def saved(form, pixels=PHOTO, **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form, **options)
    return file.getvalue()


def tiff(entries, body=b"", *, order="<", copies=1):
    """Write a TIFF whose directory comes after ``body``: (tag, kind, count, value or place).

    Of the last entry there are some copies.
    """
    head = b"II*\0" if order == "<" else b"MM\0*"
    packed = [
        struct.pack(order + "HHIHH", tag, kind, count, value, 0)
        if (kind, count, order) == (3, 1, ">")
        else struct.pack(order + "HHII", tag, kind, count, value)
        for tag, kind, count, value in entries
    ]
    packed += [packed[-1] * (copies - 1)]
    where = struct.pack(order + "I", 8 + len(body))
    count = struct.pack(order + "H", len(entries) + copies - 1)
    return head + where + body + count + b"".join(packed) + bytes(4)


def grey_tiff(extra=(), body=b"", **options):
    """Write 8 by 8 grey pixels, with entries that are not those of the picture."""
    pixels = bytes(range(64))
    known = [(256, 3, 1, 8), (257, 3, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    known += [(273, 4, 1, 8), (277, 3, 1, 1), (278, 3, 1, 8), (279, 4, 1, 64)]
    return tiff([*known, *extra], pixels + body, **options)


def refused(file, message):
    with pytest.raises(ImageError, match=message) as caught:
        read_image(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("tag", TAGS.values(), ids=TAGS)
def test_a_tag_with_tens_of_thousands_of_entries(tag, order):
    values = bytes(1 << 20)
    for kind, count in ((4, 1), (3, 1 << 18), (4, 1 << 18), (7, 1 << 20), (4, 1 << 31), (99, 7)):
        entry = (tag, kind, count, 72)
        many = grey_tiff([entry], values, order=order, copies=65_000)
        refused(many, "has 65009 TIFF tags, more than 4096")
        fewer = grey_tiff([entry], values, order=order, copies=4000)
        refused(fewer, f"has (the TIFF tag {tag} twice|a senseless TIFF tag {tag})")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("tag", [256, 270, 273, 274, 305, 34665, 65000])
def test_a_tag_that_comes_twice(tag, order):
    is_known = tag in (256, 273)
    once = grey_tiff([] if is_known else [(tag, 4, 1, 1)], order=order)
    assert read_image(once).pixels.shape == (8, 8, 3)
    more = grey_tiff([(tag, 4, 1, 8)], order=order, copies=1 if is_known else 2)
    refused(more, f"has the TIFF tag {tag} twice")


def test_tiles_far_larger_than_the_picture():
    """One row of pixels, and 17 kB, of which a billion pixels would be unpacked."""
    packed = zlib.compress(bytes(1 << 24))
    n_tiles = 100
    body = packed + struct.pack(f"<{n_tiles}I", *[8] * n_tiles)
    sizes = 8 + len(body)
    body += struct.pack(f"<{n_tiles}I", *[len(packed)] * n_tiles)
    entries = [(256, 4, 1, 16 * n_tiles), (257, 4, 1, 1), (258, 3, 1, 8), (259, 3, 1, 8)]
    entries += [(262, 3, 1, 1), (277, 3, 1, 1), (322, 4, 1, 16), (323, 4, 1, 1 << 20)]
    entries += [(324, 4, n_tiles, 8 + len(packed)), (325, 4, n_tiles, sizes)]
    refused(tiff(entries, body), "has tiles that are far larger than the picture")


def jpegs_in_tiff(count, tables=b""):
    one = saved("JPEG", PHOTO[:8, :8, 0])
    body = one + tables + struct.pack(f"<{count}I", *[8] * count)
    at = 8 + len(one) + len(tables)
    body += struct.pack(f"<{count}I", *[len(one)] * count)
    entries = [(256, 4, 1, 8), (257, 4, 1, 8 * count), (258, 3, 1, 8), (259, 3, 1, 7)]
    entries += [(262, 3, 1, 1), (273, 4, count, at), (277, 3, 1, 1), (278, 3, 1, 8)]
    entries += [(279, 4, count, at + 4 * count)]
    if tables:
        entries += [(347, 7, len(tables), 8 + len(one))]
    return tiff(entries, body)


def test_too_many_jpegs_in_a_tiff():
    comment = b"\xff\xfe" + struct.pack(">H", 1000) + bytes(998)
    tables = b"\xff\xd8" + comment * 10 + b"\xff\xd9"
    assert read_image(jpegs_in_tiff(20, tables)).pixels.shape == (160, 8, 3)
    refused(jpegs_in_tiff(1 << 16), "has 65536 JPEGs in it, more than 32768")
    refused(jpegs_in_tiff(20, tables[:-2] + comment * 20 + b"\xff\xd9"), "senseless TIFF tag 347")


def with_scans(file, n_scans):
    """Repeat the last scan of a progressive JPEG until it has so many."""
    at = file.rindex(b"\xff\xda")
    return file[:at] + file[at:-2] * (n_scans - file.count(b"\xff\xda") + 1) + b"\xff\xd9"


def test_scans_that_pass_over_a_large_picture_again_and_again():
    small = saved("JPEG", progressive=True)
    frame = small.index(b"\xff\xc2") + 5
    large = small[:frame] + struct.pack(">HH", 10_000, 12_000) + small[frame + 4 :]
    refused(with_scans(large, 13), "has 13 scans of 12000 × 10000 pixels, which would take long")
    # What is missing of it is found by decoding.
    assert read_image(with_scans(small, 100)).pixels.shape == PHOTO.shape
    refused(with_scans(small, 101), "has more than 100 scans")


def test_scans_do_not_hide():
    """A length behind a marker that has none would lead over the scans that follow it."""
    small = saved("JPEG", progressive=True)
    at = small.rindex(b"\xff\xda")
    hidden = small[:at] + b"\xff\x01\x7f\xf0" + small[at:-2] * 150 + b"\xff\xd9"
    refused(hidden, "has more than 100 scans")


def test_what_follows_a_jpeg_is_not_counted():
    """Phones put a short film behind a photo: its bytes look like markers here and there."""
    film = np.random.default_rng(0).bytes(1 << 16) + b"\xff\xda" * 500
    np.testing.assert_array_equal(
        read_image(saved("JPEG") + film).pixels, read_image(saved("JPEG")).pixels
    )


@pytest.mark.parametrize("progressive", [False, True], ids=["baseline", "progressive"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_a_jpeg_that_was_cut_off_and_closed_again(progressive, share):
    y, x = np.mgrid[:300, :400]
    noise = np.random.default_rng(0).normal(scale=20, size=(300, 400, 3))
    pixels = (np.stack([x / 2, y / 2, (x + y) / 3], 2) + noise).clip(0, 255).astype(np.uint8)
    for options in ({"quality": 60}, {"quality": 90}, {"restart_marker_rows": 4}):
        whole = saved("JPEG", pixels, progressive=progressive, **options)
        refused(whole[: int(len(whole) * share)] + b"\xff\xd9", "is cut off")


def test_many_small_segments_are_not_put_together_again_and_again():
    """Of a colour profile in pieces, and more of them than are kept."""
    small = saved("JPEG")
    piece = b"\xff\xe2" + struct.pack(">H", 2 + 12 + 2 + 400) + b"ICC_PROFILE\0\1\1" + bytes(400)
    begun = time.perf_counter()
    image = read_image(small[:2] + piece * 60_000 + small[2:])
    assert time.perf_counter() - begun < 10.0
    np.testing.assert_array_equal(image.pixels, read_image(small).pixels)
