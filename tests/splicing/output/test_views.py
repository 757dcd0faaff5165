"""Single traces as pictures: they show the part that differs, or say why there is none."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.make.cameras import Camera
from cpcapp.splicing.output.views import draw_views
from cpcapp.splicing.photo.jpeg import encode_jpeg, recompress
from cpcapp.splicing.photo.read import read_image

NAMES = ["error_level", "jpeg_grid", "double_jpeg", "mosaic", "noise"]


@pytest.fixture(scope="module")
def host():
    """A photo without a grid of its own."""
    photo = example_photos()[-1].image
    return cv2.resize(photo, (400, 400), interpolation=cv2.INTER_AREA)


PASTED = (slice(96, 288), slice(104, 296))


def by_name(pixels_or_data):
    data = pixels_or_data if isinstance(pixels_or_data, bytes) else None
    return {view.name: view for view in draw_views(read_image(pixels_or_data), data)}


def contrast(picture, rows=PASTED[0], cols=PASTED[1]):
    """Return by how much a part is lighter than the rest, in grey levels."""
    light = picture.mean(axis=2)
    inside = np.zeros(light.shape, bool)
    inside[rows, cols] = True
    return light[inside].mean() - light[~inside].mean()


def test_all_views_of_a_plain_photo(host):
    views = draw_views(read_image(host))
    assert [view.name for view in views] == NAMES
    for view in views:
        assert view.title
        assert view.text.count(". ") == 1
        assert view.text.endswith(".")
        assert (view.picture is None) == bool(view.note)
    assert by_name(host)["jpeg_grid"].note.startswith("No grid of JPEG shows")
    assert by_name(host)["double_jpeg"].note.startswith("No grid of JPEG shows")
    assert by_name(host)["mosaic"].note.startswith("No colour mosaic shows")


def test_a_part_that_was_never_jpeg_is_light_in_the_grid(host):
    spliced = recompress(host, 80)
    spliced[PASTED] = host[PASTED]
    picture = by_name(spliced)["jpeg_grid"].picture
    assert picture.shape == host.shape
    assert contrast(picture) > 60


def test_the_grid_is_found_in_a_crop(host):
    spliced = recompress(host, 80)
    spliced[PASTED] = host[PASTED]
    picture = by_name(spliced[3:, 5:])["jpeg_grid"].picture
    assert contrast(picture, slice(93, 285), slice(99, 291)) > 60


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_a_part_compressed_once_is_light_in_double_compression(host, orientation):
    spliced = recompress(host[:, :360], 70)
    spliced[PASTED] = host[PASTED]
    exif, file = Image.Exif(), io.BytesIO()
    exif[274] = orientation
    Image.fromarray(spliced).save(file, "JPEG", quality=90, exif=exif)
    picture = by_name(file.getvalue())["double_jpeg"].picture
    turns = {1: 0, 3: 2, 6: 1}[orientation]
    assert contrast(np.rot90(picture, turns)) > 150


def test_double_compression_from_pixels_alone(host):
    spliced = recompress(host, 70)
    spliced[PASTED] = host[PASTED]
    picture = by_name(recompress(spliced, 90))["double_jpeg"].picture
    assert contrast(picture) > 100


def test_a_part_of_another_phase_is_dark_in_the_mosaic():
    rng = np.random.default_rng(0)
    grey = np.full((320, 320, 3), 128, np.uint8)
    one, other = (Camera(phase, shot_noise=1e-3).shoot(grey, rng) for phase in ((0, 0), (1, 0)))
    one[PASTED] = other[PASTED]
    assert contrast(by_name(one)["mosaic"].picture, slice(120, 264), slice(128, 272)) < -60


def test_more_noise_is_lighter():
    rng = np.random.default_rng(0)
    photo = rng.normal(128, 2, (320, 320, 3))
    photo[PASTED] = rng.normal(128, 8, (192, 192, 3))
    views = by_name(photo.clip(0, 255).astype(np.uint8))
    assert contrast(views["noise"].picture) > 100


def test_a_part_saved_at_the_same_quality_is_dark_in_the_error_level(host):
    rng = np.random.default_rng(0)
    photo = (host + rng.normal(0, 5, host.shape)).clip(0, 255).astype(np.uint8)
    spliced = photo.copy()
    spliced[PASTED] = recompress(photo, 90)[PASTED]
    assert contrast(by_name(spliced)["error_level"].picture) < -40


def test_a_file_of_quality_90_still_shows_its_error_level(host):
    assert by_name(encode_jpeg(host, 90))["error_level"].picture.mean() > 10


def test_a_large_photo_gives_smaller_pictures(host):
    large = cv2.resize(host, (3300, 600))
    for view in draw_views(read_image(large)):
        if view.picture is not None:
            assert view.picture.shape[:2] == (600 // 4, 3300 // 4)


@pytest.mark.parametrize("shape", [(16, 16), (17, 40), (8, 200), (3, 3)])
def test_small_and_flat_photos(shape):
    for value in (0, 128, 255):
        for view in draw_views(read_image(np.full((*shape, 3), value, np.uint8))):
            assert view.note or view.picture.shape == (*shape, 3)


def test_sixteen_bits(host):
    views = by_name(host.astype(np.uint16) * 257)
    assert views["noise"].picture.shape == host.shape
    np.testing.assert_array_equal(
        views["error_level"].picture, by_name(host)["error_level"].picture
    )


def test_a_file_of_another_photo_is_not_used(host):
    image = read_image(encode_jpeg(host, 90))
    other = encode_jpeg(host[:200], 90)
    views = {view.name: view for view in draw_views(image, other)}
    assert views["double_jpeg"].note or views["double_jpeg"].picture.shape == host.shape
    assert draw_views(image, b"\xff\xd8\xff broken")[2].name == "double_jpeg"
