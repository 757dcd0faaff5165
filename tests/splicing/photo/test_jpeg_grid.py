from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from scipy.fft import dctn

from cpcapp.splicing import load_model, read_image
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.photo.jpeg import (
    estimate_quality,
    grid_offset,
    luminance,
    near_zero_share,
    near_zeros,
    recompress,
    smooth_blocks,
)


@pytest.fixture
def photo(rng):
    """Smooth colours with fine noise: (200, 280, 3), uint8."""
    y, x = np.mgrid[:200, :280]
    scene = np.dstack([120 + 60 * np.sin(x / 23 + y / 31), 90 + y / 4, 128 + 50 * np.cos(x / 17)])
    return np.clip(scene + rng.normal(scale=3.0, size=scene.shape), 0, 255).astype(np.uint8)


def unit(pixels):
    return np.ascontiguousarray(pixels).astype(np.float32) / 255


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
    return load_model("filters")


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


# -- near-zero coefficients, block by block ---------------------------------------------------


def test_near_zeros_are_counted_as_scipy_would(photo):
    """Away from the borders: on the grid, less the three ways off it, smoothed over 3 x 3."""
    plane = luminance(recompress(photo, 90))

    def share(row, column):
        """Of the block that begins at this pixel."""
        block = dctn(plane[row : row + 8, column : column + 8], norm="ortho")
        return (np.abs(block) < 0.5).mean()

    def difference(i, j):
        row, column = 8 * i, 8 * j
        corners = [share(row + dy, column + dx) for dy in (-4, 4) for dx in (-4, 4)]
        sides = [share(row - 4, column), share(row + 4, column)]
        ends = [share(row, column - 4), share(row, column + 4)]
        return share(row, column) - np.mean([np.mean(x) for x in (corners, sides, ends)])

    wanted = np.mean([difference(i, j) for i in (4, 5, 6) for j in (9, 10, 11)])
    assert near_zeros(plane)[5, 10] == pytest.approx(wanted, abs=1e-3)


def test_a_part_that_was_never_compressed_shows(photo):
    spliced = recompress(photo, 85)
    spliced[48:160, 96:200] = photo[48:160, 96:200]
    found = near_zeros(luminance(spliced))
    assert found.shape == (25, 35)
    assert found.dtype == np.float32
    inside, outside = found[8:18, 14:23], np.delete(found, np.s_[10:27], axis=1)
    assert inside.max() < outside.min()
    assert np.abs(inside).max() < 0.1


def test_a_part_with_another_grid_shows(photo):
    spliced = recompress(photo, 85)
    spliced[48:160, 96:200] = np.roll(spliced, (3, 5), (0, 1))[48:160, 96:200]
    found = near_zeros(luminance(spliced))
    assert found[8:18, 14:23].max() < np.delete(found, np.s_[10:27], axis=1).min()


def test_no_contrast_in_a_photo_that_was_saved_once_or_never(photo):
    never, once = (near_zeros(luminance(pixels)) for pixels in (photo, recompress(photo, 85)))
    assert np.abs(never).max() < 0.08
    assert once.min() > 0.12


def test_blocks_off_the_grid_are_weighted_by_overlap():
    """Vertical stripes in the right half only: the left half is flat at every offset."""
    plane = np.zeros((32, 64), dtype=np.float32)
    plane[:, 33:] = np.tile([0.0, 200.0], 16)[1:]
    found = near_zero_share(plane, (0, 2), limit=0.5)
    flat, striped = found[0, 0], found[0, -1]
    assert flat == 1.0 > striped
    # Block 4 has 2 columns of an off-grid block that is partly flat, and 6 of one that is not.
    full = near_zero_share(plane, (0, 0), limit=0.5)[0, 5]
    assert striped == pytest.approx(full, abs=0.07)
    frequencies = np.zeros((8, 8), dtype=bool)
    frequencies[1:] = True  # which stripes do not have
    assert (near_zero_share(plane, (0, 2), 0.5, frequencies) == 1.0).all()


def test_smoothing_is_a_mean_of_what_is_there(rng):
    values = rng.random((5, 6))
    found = smooth_blocks(values, 3)
    assert found[0, 0] == pytest.approx(values[:2, :2].mean())
    assert found[2, 3] == pytest.approx(values[1:4, 2:5].mean())
    assert smooth_blocks(np.zeros((0, 4)), 3).shape == (0, 4)


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (7, 90), (8, 8), (9, 40), (23, 22), (90, 15)])
@pytest.mark.parametrize("level", [None, 0, 128, 255])
def test_near_zeros_of_any_size(shape, level, rng):
    plane = rng.integers(0, 256, shape) if level is None else np.full(shape, level)
    found = near_zeros(plane)
    assert found.shape == (shape[0] // 8, shape[1] // 8)
    assert np.isfinite(found).all()
    if level is not None:
        assert not found.any()
        assert grid_offset(plane) is None


# -- where the grid begins ---------------------------------------------------------------------


@pytest.mark.parametrize("quality", [50, 75, 90, 95])
@pytest.mark.parametrize("crop", [(0, 0), (0, 3), (5, 0), (4, 4), (1, 7), (8, 16), (11, 13)])
def test_the_grid_of_a_crop_is_found(photo, quality, crop):
    row, column = crop
    found = grid_offset(luminance(saved(photo, quality)[row:, column:]))
    assert found == (-row % 8, -column % 8)


def test_the_grid_of_the_example_photos():
    for sample in example_photos():
        plane = luminance(saved(sample.image, 85))
        assert grid_offset(plane) == (0, 0)
        assert grid_offset(plane[2:, 5:]) == (6, 3)
        assert grid_offset(plane[2:80, 5:90]) in {(6, 3), None}  # may be flat


def test_no_grid_without_a_jpeg(photo):
    assert grid_offset(luminance(photo)) is None
    smaller = cv2.resize(saved(photo, 75), None, fx=0.8, fy=0.8, interpolation=cv2.INTER_AREA)
    assert grid_offset(luminance(smaller)) is None
    for size in (8, 11, 16):
        assert grid_offset(luminance(text_page(size))) is None


def test_the_grid_of_a_large_photo(photo):
    """Of which only strips are looked at."""
    large = saved(np.tile(photo, (6, 6, 1)), 85)[3:, 1:]
    assert grid_offset(luminance(large)) == (5, 7)


def test_no_grid_in_real_photos_that_were_never_compressed(data_folder):
    for path in sorted((data_folder / "ucid").glob("*.tif"))[:20:2]:
        plane = luminance(read_image(path).pixels)
        assert grid_offset(plane) is None
        for top, left in ((0, 0), (100, 200), (200, 80)):
            assert grid_offset(plane[top : top + 48, left : left + 48]) is None


def turned_file(pixels, orientation):
    exif, file = Image.Exif(), io.BytesIO()
    exif[274] = orientation
    Image.fromarray(pixels).save(file, "JPEG", quality=70, exif=exif)
    return file.getvalue()


def test_a_turned_photo_has_its_grid_where_the_file_says(photo):
    upright, turned = (read_image(turned_file(photo[:196, :276], code)) for code in (1, 3))
    assert upright.grid[1:] == ((0, 0), True)
    assert turned.grid[1:] == ((4, 4), True)
    np.testing.assert_array_equal(turned.grid.table, turned.jpeg_table)
    # Where the grid lies, a low quality shows.
    assert estimate_quality(unit(turned.pixels), turned.grid.offset) == pytest.approx(70, abs=4)


def test_the_grid_of_pixels_is_found_where_they_were_cropped(photo):
    compressed = recompress(photo, 60)
    for top, left in ((0, 0), (3, 6), (4, 4)):
        part = compressed[top:, left:]
        grid = read_image(part).grid
        assert grid == (None, (-top % 8, -left % 8), True)
        assert estimate_quality(unit(part), grid.offset) == pytest.approx(60, abs=4)
    assert read_image(photo).grid == (None, (0, 0), False)
