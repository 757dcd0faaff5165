"""Pictures: what is drawn where, in which colours, and that they say what the words say."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from cpcapp.splicing import Localization
from cpcapp.splicing.decide.verdict import Rank
from cpcapp.splicing.output.draw import (
    LINE_COLOUR,
    choose_boundary_white,
    choose_overlay_white,
    draw_boundary,
    draw_localization,
    draw_overlay,
    draw_part,
)
from helpers import peak_bytes

# G. Machado, M. Oliveira, L. Fernandes, "A physiologically-based model for simulation of color
# vision deficiency", 2009: what people without one kind of cone see, in linear RGB.
COLOUR_VISION = {
    "all cones": np.eye(3),
    "no red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def lab(colours, vision):
    """Return colours, uint8, in CIE Lab, as a kind of colour vision sees them."""
    shown = np.asarray(colours, dtype=np.float64) / 255
    linear = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.transpose(COLOUR_VISION[vision]), 0, 1).astype(np.float32)
    return cv2.cvtColor(seen[None], cv2.COLOR_LRGB2Lab)[0]


def photo(height, width, dtype=np.uint8):
    rng = np.random.default_rng(height * width)
    return rng.integers(0, np.iinfo(dtype).max + 1, (height, width, 3)).astype(dtype)


def colours_of(values):
    """Return the colours that a map gives over black."""
    values = np.asarray(values, dtype=np.float32)[None]
    return draw_overlay(np.zeros((*values.shape, 3), dtype=np.uint8), values)[0]


@pytest.mark.parametrize("vision", COLOUR_VISION)
class TestColours:
    def test_more_is_lighter(self, vision):
        lightness = lab(colours_of(np.linspace(0, 1, 65)), vision)[:, 0]
        assert (np.diff(lightness) > 0.3).all()
        assert lightness[-1] > 90

    def test_the_line_is_of_a_colour_that_nothing_else_has(self, vision):
        pixels = photo(1, 4000)
        levels = np.linspace(0, 1, 4000, dtype=np.float32)[None]
        used = lab(draw_overlay(pixels, levels)[0], vision)
        line = lab([LINE_COLOUR], vision)[0]
        assert np.linalg.norm(used - line, axis=1).min() > 20


def test_where_there_is_no_seam_the_photo_is_dimmed_and_greyer():
    pixels = photo(30, 40)
    picture = draw_overlay(pixels, np.zeros((30, 40)))
    assert picture.shape == pixels.shape
    assert picture.dtype == np.uint8
    assert picture.max() < 0.75 * 255
    spread = np.ptp(picture.astype(int), axis=2)
    assert (spread <= 0.5 * np.ptp(pixels.astype(int), axis=2) + 1).all()
    # Still the photo: its light keeps its order.
    before, after = (cv2.cvtColor(p, cv2.COLOR_RGB2GRAY).ravel() for p in (pixels, picture))
    assert np.corrcoef(before, after)[0, 1] > 0.98


def test_where_the_seam_is_certain_the_photo_is_covered():
    full = np.ones((20, 30), dtype=np.float32)
    one, other = draw_overlay(photo(20, 30), full), draw_overlay(255 - photo(20, 30), full)
    np.testing.assert_array_equal(one, other)
    assert len(np.unique(one.reshape(-1, 3), axis=0)) == 1


def test_a_weak_seam_shows_through_and_a_stronger_one_more():
    grey = np.full((1, 5, 3), 128, dtype=np.uint8)
    picture = draw_overlay(grey, [[0.0, 0.1, 0.3, 0.6, 1.0]])[0].astype(float)
    change = np.linalg.norm(picture - picture[0], axis=1)
    assert change[1] > 15
    assert (np.diff(change) > 10).all()


def test_lines_go_around_what_reaches_the_threshold():
    boundary = np.zeros((40, 60), dtype=np.float32)
    boundary[10:20, 30:50] = 0.5
    boundary[30, 5] = 0.4
    plain = draw_overlay(photo(40, 60), boundary)
    lined = draw_overlay(photo(40, 60), boundary, threshold=0.5)
    wanted = np.zeros((40, 60), dtype=bool)
    wanted[9:21, 29:51] = True
    wanted[10:20, 30:50] = False
    np.testing.assert_array_equal((lined != plain).any(axis=2), wanted)
    assert (lined[wanted] == LINE_COLOUR).all()
    np.testing.assert_array_equal(draw_overlay(photo(40, 60), boundary, threshold=0.51), plain)


def test_lines_in_a_wide_photo_are_wide_enough_to_see():
    boundary = np.zeros((9, 8000), dtype=np.float32)
    boundary[4, 4000] = 1.0
    picture = draw_overlay(np.zeros((9, 8000, 3), dtype=np.uint8), boundary, threshold=0.5)
    assert (picture == LINE_COLOUR).all(axis=2).sum() == 9 * 9 - 1


@pytest.mark.parametrize("shape", [(1, 1), (1, 700), (700, 1), (3, 2)])
def test_small_and_thin_photos(shape):
    boundary = np.random.default_rng(0).random(shape, dtype=np.float32)
    assert draw_overlay(photo(*shape), boundary, 0.5).shape == (*shape, 3)
    assert draw_boundary(boundary).shape == shape


def test_large_photos_are_drawn_as_small_ones_are_in_little_memory():
    height, width = 1500, 2000
    pixels = photo(height, width)
    boundary = np.random.default_rng(1).random((height, width), dtype=np.float32)
    boundary[boundary < 0.999] /= 2
    picture = draw_overlay(pixels, boundary, threshold=0.9)
    for rows in (slice(0, 130), slice(660, 790), slice(height - 130, height)):
        # A small photo has the same line, but does not know the rows above and below.
        part = draw_overlay(pixels[rows, :300], boundary[rows, :300], threshold=0.9)
        np.testing.assert_array_equal(picture[rows, :300][1:-1, :-1], part[1:-1, :-1])
    needed = peak_bytes(lambda: draw_overlay(pixels, boundary, threshold=0.9))
    assert needed < pixels.nbytes + (32 << 20)


def test_sixteen_bits_look_as_eight_do():
    eight = photo(30, 40)
    boundary = np.random.default_rng(2).random((30, 40))
    sixteen = eight.astype(np.uint16) * 257
    np.testing.assert_array_equal(draw_overlay(sixteen, boundary), draw_overlay(eight, boundary))


def test_the_grey_picture_can_be_read_back():
    boundary = np.random.default_rng(4).random((700, 500), dtype=np.float32)
    picture = draw_boundary(boundary)
    assert picture.dtype == np.uint8
    assert np.abs(picture / 255 - boundary).max() <= 0.5 / 255 + 1e-6


def test_a_map_that_stays_low_is_shown_as_well_as_any():
    pixels, boundary = photo(60, 80), np.random.default_rng(5).random((60, 80), dtype=np.float32)
    low = boundary * np.float32(1 / 16)
    np.testing.assert_array_equal(
        draw_overlay(pixels, low, 0.5 / 16, white=1 / 16), draw_overlay(pixels, boundary, 0.5)
    )
    picture = draw_boundary(low, white=1 / 16)
    np.testing.assert_array_equal(picture, draw_boundary(boundary))
    # What is above is white, and does not begin anew with black.
    assert draw_boundary(np.array([[0.1, 0.2, 1.0]]), white=0.1).tolist() == [[255, 255, 255]]
    assert draw_overlay(pixels, np.zeros((60, 80)), white=1e-30).max() < 0.75 * 255


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"white": white}, "must be from 1e-30 to 1") for white in (0.0, 1.5, np.nan)),
        *(({"threshold": value}, "must be from 0 to 1, or None") for value in (-0.1, 1.1, np.nan)),
        ({"opacity": 1.1}, r"opacity=1.1 must be from 0 to 1"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        draw_overlay(photo(4, 5), np.zeros((4, 5)), **options)


@pytest.mark.parametrize(
    ("image", "boundary", "message"),
    [
        (np.zeros((4, 5), np.uint8), np.zeros((4, 5)), r"image has shape \(4, 5\)"),
        (np.zeros((4, 5, 3)), np.zeros((4, 5)), "dtype float64; it must be an RGB photo"),
        (np.zeros((0, 5, 3), np.uint8), np.zeros((0, 5)), r"image has shape \(0, 5, 3\)"),
        (photo(4, 5), np.zeros((5, 4)), r"must be that of image, \(4, 5\)"),
        (photo(4, 5), np.zeros((4, 5, 1)), r"boundary has shape \(4, 5, 1\)"),
        (photo(4, 5), np.zeros((4, 5), np.uint8), "dtype uint8"),
        (photo(4, 5), np.full((4, 5), 1.5), r"lies in \[1.5, 1.5\]; it must lie in \[0, 1\]"),
        (photo(4, 5), np.full((4, 5), np.nan), "without NaN"),
    ],
)
def test_what_is_no_photo_or_no_map(image, boundary, message):
    with pytest.raises(ValueError, match=message):
        draw_overlay(image, boundary)


def test_a_part_is_pink_and_the_rest_as_in_an_overlay_of_nothing():
    pixels, part = photo(30, 40, np.uint16), np.zeros((30, 40), dtype=bool)
    part[10:20, 5:25] = True
    picture = draw_part(pixels, part).astype(int)
    plain = draw_overlay(pixels, np.zeros((30, 40)))
    np.testing.assert_array_equal(picture[~part], plain[~part])
    assert (picture[part][:, 0] - picture[part][:, 1] > 80).all()
    np.testing.assert_array_equal(draw_part(pixels, ~part & part), plain)


@pytest.mark.parametrize("choose", [choose_boundary_white, choose_overlay_white])
def test_nothing_below_the_threshold_is_as_light_as_a_seam(choose):
    boundary = np.random.default_rng(6).random((100, 100), dtype=np.float32)
    assert choose(boundary * np.float32(0.1), 0.4) == 0.4
    assert 0.99 <= choose(boundary, 0.4) <= 1.0
    assert choose(np.zeros((3, 4), dtype=np.float32), 0.0) == 1.0


def test_few_pixels_do_not_darken_the_rest_of_a_seam():
    boundary = np.zeros((100, 100), dtype=np.float32)
    boundary[50] = 0.3
    boundary[50, 7] = 1.0
    assert choose_overlay_white(boundary, 0.1) == pytest.approx(0.3)
    assert choose_boundary_white(boundary, 0.1) == 1.0


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_opacity_lies_between_the_photo_and_the_whole_overlay(dtype):
    pixels, boundary = photo(30, 40, dtype), np.random.default_rng(7).random((30, 40))
    plain = np.rint(pixels / np.iinfo(dtype).max * 255)
    whole = draw_overlay(pixels, boundary).astype(float)
    np.testing.assert_array_equal(draw_overlay(pixels, boundary, opacity=0.0), plain)
    half = draw_overlay(pixels, boundary, opacity=0.5)
    assert np.abs(half - (plain + whole) / 2).max() <= 1.0


def found_in(pixels, **changes):
    """Return a line of seam across a photo of 80 by 90 pixels."""
    boundary = np.zeros(pixels.shape[:2], dtype=np.float32)
    boundary[40] = 0.8
    return Localization(boundary, **{"calibrated": True, **changes})


def has_line(picture):
    return bool((picture == LINE_COLOUR).all(axis=2).any())


class TestPicturesSayWhatTheWordsSay:
    pixels = photo(80, 90)

    def test_signs(self):
        found = found_in(self.pixels, rank=Rank(0.05, 4, 99))
        picture = draw_localization(self.pixels, found, 0.5)
        white = choose_overlay_white(found.boundary, 0.5)
        expected = draw_overlay(self.pixels, found.boundary, 0.5, white=white)
        np.testing.assert_array_equal(picture, expected)
        assert has_line(picture)
        assert not has_line(draw_localization(self.pixels, found, 0.5, line=False))

    def test_weak_signs_are_fainter(self):
        strong, weak, weaker = (
            draw_localization(
                self.pixels, found_in(self.pixels, rank=Rank(p, 9, 99)), 0.5, line=False
            )
            for p in (0.05, 0.1, 0.15)
        )
        change = [
            np.abs(p[40] - self.pixels[40].astype(int)).mean() for p in (strong, weak, weaker)
        ]
        assert change[0] > 1.2 * change[1] > 1.2 * change[2] > 5
        lines = [
            draw_localization(self.pixels, found_in(self.pixels, rank=Rank(p, 9, 99)), 0.5)[39]
            for p in (0.05, 0.1, 0.15)
        ]
        far = [np.abs(line - np.array(LINE_COLOUR, float)).mean() for line in lines]
        assert far[0] == 0.0 < far[1] < far[2]  # the line fades too, and is there
        assert np.abs(lines[2] - self.pixels[39].astype(float)).mean() > 5

    def test_no_signs(self):
        found = found_in(self.pixels, rank=Rank(0.151, 15, 99))
        assert found.verdict == "no signs found"
        picture = draw_localization(self.pixels, found, 0.5)
        np.testing.assert_array_equal(picture, self.pixels)

    @pytest.mark.parametrize("changes", [{}, {"rank": Rank(0.4, 40, 99), "jpeg_quality": 30}])
    def test_what_it_can_not_tell_has_no_colours(self, changes):
        found = found_in(self.pixels, **changes)
        assert found.verdict_code == "unknown"
        picture = draw_localization(self.pixels, found, 0.5)
        assert np.ptp(picture.astype(int), axis=2).max() <= 1
        assert not has_line(picture)
        assert picture[40].mean() > picture[:39].mean() + 20

    def test_a_model_that_does_not_judge_shows_its_map(self):
        found = found_in(self.pixels, calibrated=False)
        signs = found_in(self.pixels, rank=Rank(0.01, 0, 99))
        np.testing.assert_array_equal(
            draw_localization(self.pixels, found, 0.5), draw_localization(self.pixels, signs, 0.5)
        )
