from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from scipy.fft import dctn

from cpcapp.splicing import load_model, read_image
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.photos.jpeg import recompress
from cpcapp.splicing.traces.jpeg_grid import estimate_quality, grid_strength


@pytest.fixture
def photo(rng):
    """Smooth colours with fine noise: (200, 280, 3), uint8."""
    y, x = np.mgrid[:200, :280]
    scene = np.dstack([120 + 60 * np.sin(x / 23 + y / 31), 90 + y / 4, 128 + 50 * np.cos(x / 17)])
    return np.clip(scene + rng.normal(scale=3.0, size=scene.shape), 0, 255).astype(np.uint8)


def unit(pixels):
    return np.ascontiguousarray(pixels).astype(np.float32) / 255


def test_compression_shows_while_there_is_detail_left(photo):
    before, *after = (
        grid_strength(unit(pixels))
        for pixels in (photo, *(recompress(photo, quality) for quality in (98, 90, 75)))
    )
    assert abs(before) < 0.05
    assert 0.1 < after[0] < after[1]
    assert after[2] > 0.3


def test_it_is_a_ratio_of_cosine_amplitudes(photo):
    """As SciPy computes them."""
    fine = np.add.outer(np.arange(8), np.arange(8)) >= 7
    grey = cv2.cvtColor(unit(recompress(photo, 90)), cv2.COLOR_RGB2GRAY) * 255.0

    def detail(start):
        part = grey[start:, start:]
        height, width = (n // 8 * 8 for n in part.shape)
        blocks = part[:height, :width].reshape(height // 8, 8, width // 8, 8).swapaxes(1, 2)
        return np.median(np.abs(dctn(blocks, axes=(2, 3), norm="ortho")[..., fine]).mean(axis=-1))

    wanted = np.log((detail(4) + 0.05) / (detail(0) + 0.05))
    assert grid_strength(unit(recompress(photo, 90))) == pytest.approx(wanted, abs=1e-4)


def test_a_crop_or_another_size_hides_it(photo):
    compressed = recompress(photo, 85)
    clear = grid_strength(unit(compressed))
    assert grid_strength(unit(compressed[4:, 4:])) == pytest.approx(-clear, abs=0.2)
    smaller = cv2.resize(compressed, None, fx=0.8, fy=0.8, interpolation=cv2.INTER_AREA)
    assert abs(grid_strength(unit(smaller))) < 0.1 * clear


def test_of_a_large_photo_a_part_is_enough(photo):
    compressed = recompress(np.tile(photo, (8, 8, 1)), 85)
    assert grid_strength(unit(compressed)) == pytest.approx(
        grid_strength(unit(compressed[:800, :1120])), abs=0.05
    )


@pytest.mark.parametrize("shape", [(1, 1), (9, 30), (15, 15), (16, 16), (17, 40), (64, 23)])
def test_any_size(shape, rng):
    assert np.isfinite(grid_strength(rng.random((*shape, 3), dtype=np.float32)))
    assert grid_strength(np.zeros((*shape, 3), dtype=np.float32)) == 0.0


# -- the quality, from pixels alone -----------------------------------------------------------

QUALITIES = (30, 40, 50, 60, 70, 80, 85)


def saved(pixels, quality):
    """As Pillow writes and reads it, by default with colours at half the size."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def errors(photos):
    """Estimates less true qualities; a quality that is not seen is as wrong as can be."""
    found = {}
    for name, pixels in photos.items():
        for quality in QUALITIES:
            estimate = estimate_quality(unit(saved(pixels, quality)))
            found[name, quality] = 100 if estimate is None else estimate - quality
    return found


def check_estimates(photos):
    found = np.array(list(errors(photos).values()))
    assert (np.abs(found) <= 3).mean() >= 0.8
    # Too high rather than too low: no photo is called too compressed that is not.
    assert found.min() >= -3


def test_the_quality_of_the_example_photos():
    photos = {sample.name: sample.image for sample in example_photos()}
    check_estimates(photos)
    for pixels in photos.values():
        assert estimate_quality(unit(pixels)) is None  # of quality 90 and more, or resized
        assert estimate_quality(unit(saved(pixels, 95))) is None


def test_the_quality_of_real_photos(data_folder):
    """Of UCID, which were never compressed, and of BSDS500, which were but little."""
    ucid = sorted((data_folder / "ucid").glob("*.tif"))[::3]
    bsds = sorted((data_folder / "bsds500" / "images" / "train").glob("*.jpg"))[:40:10]
    assert len(ucid) >= 3
    assert len(bsds) == 4
    photos = {path.name: read_image(path).pixels for path in (*ucid, *bsds)}
    check_estimates(photos)
    for path in ucid:
        assert estimate_quality(unit(photos[path.name])) is None


def test_coarser_steps_are_lower_qualities(photo):
    found = [estimate_quality(unit(recompress(photo, quality))) for quality in (30, 50, 70, 85)]
    assert found == sorted(found)
    assert len(set(found)) == 4


def test_a_crop_off_the_grid_hides_the_quality(photo):
    compressed = recompress(photo, 60)
    assert estimate_quality(unit(compressed)) == pytest.approx(60, abs=4)
    assert estimate_quality(unit(compressed[8:, 16:])) == pytest.approx(60, abs=4)
    assert estimate_quality(unit(compressed[4:, 4:])) is None


@pytest.mark.parametrize("size", [8, 11, 16, 24])
def test_a_page_of_text_was_never_compressed(size):
    """Sharp letters have strong high frequencies in blocks, on the grid and off it."""
    page = text_page(size)
    assert estimate_quality(unit(page)) is None
    assert estimate_quality(unit(page[3:, 5:])) is None


@pytest.mark.parametrize("shape", [(1, 1), (15, 90), (90, 15), (16, 16), (64, 64)])
@pytest.mark.parametrize("level", [0, 128, 255])
def test_nothing_to_see_is_no_quality(shape, level):
    flat = np.full((*shape, 3), level, dtype=np.uint8)
    assert estimate_quality(unit(flat)) is None
    assert estimate_quality(unit(recompress(flat, 30))) is None


# -- and what the verdict makes of it ---------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    return load_model()


def text_page(size, height=300, width=400):
    page = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(page)
    font = ImageFont.load_default(size)
    words = "Quarterly figures of the northern branch, not to be forwarded. " * 4
    for row, top in enumerate(range(6, height - size, size + 4)):
        draw.text((6, top), words[row * 7 :][: width // 3], font=font, fill="black")
    return np.asarray(page)


def test_a_strongly_compressed_photo_is_no_evidence(model, tmp_path):
    """By its file, and by its pixels in a file that says nothing of it."""
    (photo,) = [sample.image for sample in example_photos() if sample.authentic]
    Image.fromarray(photo).save(tmp_path / "photo.jpg", quality=50)
    pixels = read_image(tmp_path / "photo.jpg").pixels
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    by_file, by_pixels = (model.localize(tmp_path / name) for name in ("photo.jpg", "photo.png"))
    assert by_file.jpeg_quality == 50
    assert 50 <= by_pixels.jpeg_quality < 60
    for found in (by_file, by_pixels):
        assert found.p_value > 0.05
        assert found.verdict == "can't tell (too compressed)"


def test_a_good_jpeg_is_not_too_compressed(model, tmp_path):
    (photo,) = [sample.image for sample in example_photos() if sample.authentic]
    Image.fromarray(photo).save(tmp_path / "photo.jpg", quality=92)
    found = model.localize(tmp_path / "photo.jpg")
    assert found.jpeg_quality == pytest.approx(92, abs=1)
    assert "too compressed" not in found.verdict


@pytest.mark.parametrize("size", [11, 16])
def test_a_page_of_text_is_not_called_too_compressed(model, size):
    found = model.localize(text_page(size))
    assert found.jpeg_quality is None
    assert "too compressed" not in found.verdict
