from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from scipy.fft import dctn

from cpcapp.splicing import read_image
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.photo.jpeg import coefficients_of, spread_blocks
from cpcapp.splicing.photo.read import ImageError, read_coefficients


@pytest.fixture(scope="module")
def photo():
    (pixels,) = [sample.image for sample in example_photos() if sample.authentic]
    return Image.fromarray(pixels[:301, :397])


def saved(image, **options):
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def orientation_tag(orientation):
    tags = Image.Exif()
    tags[274] = orientation
    return tags


# -- the same coefficients as libjpeg gives them -----------------------------------------------


def check_against_jpeglib(data, least, tmp_path):
    jpeglib = pytest.importorskip("jpeglib")
    (tmp_path / "photo.jpg").write_bytes(data)
    wanted = jpeglib.read_dct(str(tmp_path / "photo.jpg"))
    found = read_coefficients(data)
    np.testing.assert_array_equal(found.table, wanted.get_component_qt(0))
    rows, cols = found.luminance.shape[:2]
    same = found.luminance == wanted.Y[:rows, :cols]
    # Clipping loses what the file had beyond black and white.
    blocks = found.plane[: 8 * rows, : 8 * cols].reshape(rows, 8, cols, 8)
    clipped = (blocks.min(axis=(1, 3)) == 0) | (blocks.max(axis=(1, 3)) == 255)
    assert clipped.mean() < 0.3
    assert same[~clipped].mean() >= least
    assert same.mean() >= least - 0.001


@pytest.mark.parametrize(
    ("quality", "least"), [(50, 0.999), (75, 0.999), (85, 0.999), (92, 0.999), (95, 0.99)]
)
@pytest.mark.parametrize("options", [{}, {"subsampling": 0}, {"progressive": True}])
def test_what_libjpeg_reads(photo, quality, least, options, tmp_path):
    check_against_jpeglib(saved(photo, quality=quality, **options), least, tmp_path)


@pytest.mark.parametrize("quality", [60, 90])
def test_a_grey_photo(photo, quality, tmp_path):
    check_against_jpeglib(saved(photo.convert("L"), quality=quality), 0.999, tmp_path)


def test_a_real_photo(data_folder, tmp_path):
    path = sorted((data_folder / "bsds500" / "images" / "train").glob("*.jpg"))[3]
    image = Image.open(path)
    for quality in (50, 85, 92):
        check_against_jpeglib(saved(image, quality=quality), 0.999, tmp_path)
    check_against_jpeglib(saved(image, quality=95), 0.99, tmp_path)


# -- shapes, tables, turning ---------------------------------------------------------------------


def test_only_whole_blocks(photo):
    found = read_coefficients(saved(photo, quality=80))
    assert found.luminance.shape == (301 // 8, 397 // 8, 8, 8)
    assert found.luminance.dtype == np.int16
    assert found.plane.shape == (301, 397)
    assert read_coefficients(saved(photo.crop((0, 0, 5, 3)))).luminance.shape == (0, 0, 8, 8)


def test_quantizing_is_rounding_scipys_transform(rng):
    plane = rng.integers(0, 256, (19, 24))
    table = rng.integers(1, 40, (8, 8))
    blocks = plane[:16].reshape(2, 8, 3, 8).swapaxes(1, 2) - 128.0
    wanted = np.rint(dctn(blocks, axes=(2, 3), norm="ortho") / table)
    np.testing.assert_array_equal(coefficients_of(plane, table), wanted)


def test_the_table_is_in_natural_order(photo):
    """As it was given: Pillow takes it row by row."""
    table = np.arange(1, 65)
    found = read_coefficients(saved(photo, qtables=[table.tolist()] * 2))
    np.testing.assert_array_equal(found.table.ravel(), table)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_maps_are_turned_like_the_photo(photo, orientation):
    data = saved(photo, quality=90, exif=orientation_tag(orientation))
    found = read_coefficients(data)
    grey = np.asarray(Image.fromarray(read_image(data).pixels).convert("L"), dtype=float)
    drawn = found.pixel_map(found.plane[:296, :392].reshape(37, 8, 49, 8).mean(axis=(1, 3)))
    assert drawn.shape == grey.shape
    assert np.corrcoef(drawn.ravel(), grey.ravel())[0, 1] > 0.9


def test_a_map_of_blocks_from_another_corner():
    found = spread_blocks(np.array([[1, 2], [3, 4]]), (20, 21), offset=(3, 5))
    assert found[0, 0] == found[10, 12] == 1
    assert found[10, 13] == 2
    assert found[11, 12] == 3
    assert found[-1, -1] == 4
    assert not spread_blocks(np.zeros((0, 3)), (4, 30)).any()


# -- what has no luminance, and what is refused ---------------------------------------------------


def test_other_files_have_none(photo):
    file = io.BytesIO()
    photo.save(file, "PNG")
    assert read_coefficients(file.getvalue()) is None
    assert read_coefficients(b"nothing of the kind") is None


def test_a_jpeg_of_other_colours_has_none(photo):
    assert read_coefficients(saved(photo.convert("CMYK"))) is None
    assert read_coefficients(saved(photo, keep_rgb=True)) is None


def test_a_file_is_refused_with_the_reason(photo, tmp_path):
    data = saved(photo, quality=90)
    (tmp_path / "cut.jpg").write_bytes(data[: len(data) // 2])
    with pytest.raises(ImageError, match=r"cut\.jpg: is cut off; use a complete copy"):
        read_coefficients(tmp_path / "cut.jpg")
    with pytest.raises(ImageError, match=r"lost\.jpg: does not exist; check the path"):
        read_coefficients(tmp_path / "lost.jpg")
    with pytest.raises(ImageError, match="is empty"):
        read_coefficients(b"")
    with pytest.raises(ImageError, match="is a folder"):
        read_coefficients(tmp_path)
    with pytest.raises(ImageError, match=r"more than 0\.001 megapixels"):
        read_coefficients(data, max_pixels=1000)
    with pytest.raises(TypeError, match="source of type ndarray must be a path"):
        read_coefficients(np.zeros((8, 8)))
