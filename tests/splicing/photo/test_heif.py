"""HEIC and AVIF: read like any other photo, or refused in one line."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pillow_heif
import pytest
from PIL import Image, ImageOps

from cpcapp.splicing.photo import heif
from cpcapp.splicing.photo.heif import is_heif
from cpcapp.splicing.photo.read import ImageError, read_image


def scene(height=72, width=104):
    """Return smooth colours that differ in every corner."""
    y, x = np.mgrid[:height, :width]
    return np.stack([2 * x, 2 * y, 255 - x - y], axis=-1).clip(0, 255).astype(np.uint8)


def encode(image, form, **options):
    file = io.BytesIO()
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    if form == "HEIC":
        if "exif" in options:
            options["exif"] = options["exif"].tobytes()
        pillow_heif.from_pillow(image).save(file, quality=90, **options)
    else:
        image.save(file, "AVIF", quality=90, **options)
    return file.getvalue()


@cache
def plain(form):
    return encode(scene(), form)


def near(pixels, expected, within=4.0):
    assert pixels.shape == expected.shape
    return np.abs(pixels.astype(float) - expected).mean() < within


FORMS = ("HEIC", "AVIF")


@pytest.mark.parametrize("form", FORMS)
class TestReading:
    def test_the_pixels(self, form):
        found = read_image(plain(form))
        assert (found.format, found.notes, found.pixels.dtype) == (form, (), np.uint8)
        assert found.jpeg_table is None
        assert found.pixels.flags.writeable
        assert near(found.pixels, scene())

    def test_grey(self, form):
        grey = Image.fromarray(scene()).convert("L")
        found = read_image(encode(grey, form))
        assert found.notes == ("grey",)
        assert near(found.pixels[..., 0], np.asarray(grey))

    def test_transparency_is_ignored(self, form):
        clear = np.dstack([scene(), scene()[..., 1]])
        found = read_image(encode(clear, form))
        assert found.notes == ("transparency ignored",)
        assert near(found.pixels, scene(), within=8.0)

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_the_orientation_is_applied_once(self, form, orientation):
        exif = Image.Exif()
        exif[274] = orientation
        image = Image.fromarray(scene())
        image.info["exif"] = exif.tobytes()
        expected = np.asarray(ImageOps.exif_transpose(image))
        found = read_image(encode(Image.fromarray(scene()), form, exif=exif))
        assert near(found.pixels, expected)
        turned = "turned by the stored orientation" in found.notes
        assert turned == (orientation != 1)

    def test_exif_is_found(self, form):
        exif = Image.Exif()
        exif[271] = "a maker"
        metadata = read_image(encode(scene(), form, exif=exif)).metadata
        assert metadata.exif.make == "a maker"
        assert metadata.xmp == b""

    def test_cut_off_anywhere(self, form):
        data = plain(form)
        for size in (20, 60, 200, len(data) // 2, len(data) - 10):
            with pytest.raises(ImageError):
                read_image(data[:size])

    def test_the_size_is_checked_before_decoding(self, form, monkeypatch):
        asked, ask = [], heif._ask
        monkeypatch.setattr(heif, "_ask", lambda *args: asked.append(args[1]["do"]) or ask(*args))
        with pytest.raises(ImageError, match=r"pixels, more than 0.001 megapixels;"):
            read_image(plain(form), max_pixels=1000)
        assert asked == ["inspect"]

    def test_a_picture_larger_than_its_container_says(self, form):
        """The stream has its own size, which decoders believe."""
        data = plain(form)
        at = data.index(b"ispe") + 8
        lie = data[:at] + struct.pack(">II", 16, 16) + data[at + 8 :]
        # libavif scales it to the size that was checked, libheif does not.
        if form == "AVIF":
            assert read_image(lie).pixels.shape == (16, 16, 3)
            return
        with pytest.raises(ImageError, match="damaged"):
            read_image(lie)

    def test_threads(self, form):
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(read_image, [plain(form)] * 8):
                assert near(found.pixels, scene())

    def test_without_its_decoder(self, form, monkeypatch):
        monkeypatch.setattr(heif, "can_read", lambda form: False)
        with pytest.raises(ImageError, match=rf'is {form}, .* run pip install "cpcapp\[heif\]"'):
            read_image(plain(form))

    def test_a_process_that_dies_is_replaced(self, form):
        assert near(read_image(plain(form)).pixels, scene())
        heif._worker[1]._process.kill()
        with pytest.raises(ImageError, match="decoding it was stopped"):
            read_image(plain(form))
        assert near(read_image(plain(form)).pixels, scene())

    def test_a_decoder_that_hangs_is_stopped(self, form, monkeypatch):
        monkeypatch.setattr(heif, "_SECONDS", -1e-3)
        monkeypatch.setattr(heif, "_SECONDS_PER_MEGAPIXEL", 0.0)
        with pytest.raises(ImageError, match="decoding it was stopped"):
            read_image(encode(scene(400, 600), form))


def test_ten_bits_of_heic_are_kept():
    deep = np.repeat(np.linspace(0, 65535, 256).astype(np.uint16)[None, :, None], 3, axis=2)
    deep = np.repeat(deep, 64, axis=0)
    file = io.BytesIO()
    image = pillow_heif.from_bytes("RGB;16", (256, 64), deep.tobytes())
    image.save(file, quality=-1, chroma=444)
    found = read_image(file.getvalue())
    assert found.notes == ("10 bits",)
    assert found.pixels.dtype == np.uint16
    assert (found.pixels.min(), found.pixels.max()) == (0, 65535)
    assert np.abs(found.pixels.astype(int) - deep).max() < 65535 / 1023 * 4


def test_a_photo_of_tiles_and_one_of_several():
    file = io.BytesIO()
    pillow_heif.from_pillow(Image.fromarray(scene(200, 300))).save(file, quality=90, tile_size=128)
    assert near(read_image(file.getvalue()).pixels, scene(200, 300))
    several = pillow_heif.HeifFile()
    several.add_from_pillow(Image.fromarray(scene()))
    several.add_from_pillow(Image.fromarray(scene(40, 40)))
    file = io.BytesIO()
    several.save(file, quality=90, primary_index=0)
    found = read_image(file.getvalue())
    assert found.notes == ("main one of 2 images",)
    assert near(found.pixels, scene())


def test_an_animation():
    frames = [Image.fromarray(scene()), Image.fromarray(255 - scene())]
    data = encode(frames[0], "AVIF", save_all=True, append_images=frames[1:])
    found = read_image(data)
    assert found.notes == ("one frame of an animation",)
    assert near(found.pixels, scene(), within=6.0)


def test_a_film_is_no_photo():
    film = struct.pack(">I4s4sI4s", 20, b"ftyp", b"isom", 0, b"mp42") + bytes(40)
    assert not is_heif(film)
    with pytest.raises(ImageError, match="is not a JPEG, PNG"):
        read_image(film)
    still = film.replace(b"mp42", b"mif1")
    with pytest.raises(ImageError, match="of a kind that is not read"):
        read_image(still)


def box(kind, content):
    return struct.pack(">I4s", 8 + len(content), kind) + content


@pytest.mark.parametrize(
    "content",
    [
        box(b"meta", bytes(4) + box(b"free", b"") * 30_000),
        box(b"free", b"") * 30_000,
        box(b"meta", bytes(4) + box(b"iinf", b"\1" + bytes(7) + box(b"infe", b"\2") * 20_000)),
        box(b"meta", bytes(4) + box(b"iprp", box(b"ipco", box(b"irot", b"\1") * 9_000))),
        box(b"meta", bytes(4) + box(b"iprp", box(b"ipma", bytes(4) + b"\xff" * 4))),
        box(b"meta", bytes(4) + box(b"iloc", b"\0\0\0\0\x44\x40" + b"\xff" * 60)),
        box(b"meta", bytes(4) + box(b"iref", bytes(4) + box(b"dimg", b"\0\1\xff\xff"))),
        box(b"meta", bytes(4) + box(b"pitm", b"")),
        struct.pack(">I4sQ", 1, b"meta", 1 << 63),
        struct.pack(">I4sQ", 1, b"free", 0),
    ],
)
def test_hostile_boxes(content):
    data = box(b"ftyp", b"heic" + bytes(4) + b"mif1") + content
    with pytest.raises(ImageError):
        read_image(data)


def test_nothing_is_decoded_in_this_process():
    code = (
        "import io, sys\n"
        "from cpcapp.splicing import read_image\n"
        "read_image(sys.stdin.buffer.read())\n"
        "assert 'pillow_heif' not in sys.modules\n"
        "assert 'PIL._avif' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, input=plain("HEIC"))
