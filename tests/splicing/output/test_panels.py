"""Sheets of pictures of scored photos."""

from __future__ import annotations

import numpy as np

from cpcapp.splicing.output.draw import PINK
from cpcapp.splicing.output.panels import case_picture, contact_sheet


def case(shape=(60, 80)):
    image = np.full((*shape, 3), (40, 80, 120), dtype=np.uint8)
    mask = np.zeros(shape, dtype=bool)
    mask[:, shape[1] // 2 :] = True
    edges = np.zeros(shape, dtype=np.float32)
    edges[shape[0] // 2] = 0.25
    boundary = np.zeros(shape, dtype=np.float32)
    boundary[: shape[0] // 2] = 0.01
    return image, mask, edges, boundary


def panels(picture, width=80):
    gap = (picture.shape[1] - 3 * width) // 2
    starts = (0, width + gap, 2 * (width + gap))
    return [picture[:, start : start + width] for start in starts]


class TestCasePicture:
    def test_photo_with_the_seam_then_edges_then_map(self):
        picture = case_picture(*case())
        assert picture.dtype == np.uint8
        photo, edges, found = panels(picture)
        pink = (photo == PINK).all(axis=2)
        assert pink[:, 39:41].all()
        assert not pink[:, :37].any()
        assert not pink[:, 43:].any()  # and none along the photo's border
        np.testing.assert_array_equal(photo[~pink], np.tile([40, 80, 120], ((~pink).sum(), 1)))
        # The brightest value is white, however small.
        assert (edges[30] == 255).all()
        assert not np.delete(edges, 30, axis=0).any()
        assert (found[:30] == 255).all()
        assert not found[30:].any()

    def test_a_large_photo_is_made_smaller_and_its_seam_stays_visible(self):
        picture = case_picture(*case((600, 1600)), side=400)
        assert picture.shape[0] == 150
        photo, _, found = panels(picture, 400)
        pink = (photo == PINK).all(axis=2)
        assert pink[:, 199:201].all()
        assert 2 <= pink[75].sum() <= 8
        assert (found[:70] == 255).all()

    def test_16_bits_and_empty_maps(self):
        image, mask, edges, _ = case()
        deep = image.astype(np.uint16) * 257
        flat = np.zeros_like(edges)
        np.testing.assert_array_equal(
            case_picture(deep, mask, edges, flat), case_picture(image, mask, edges, flat)
        )
        assert not panels(case_picture(image, mask, edges, flat))[2].any()

    def test_caption(self):
        plain, titled = case_picture(*case()), case_picture(*case(), caption="cat  MCC 0.5")
        line = titled[: len(titled) - len(plain)]
        np.testing.assert_array_equal(titled[len(line) :], plain)
        assert line.min() < 100  # letters
        assert (line == 255).mean() > 0.8


def test_pictures_one_below_the_other():
    first, second = np.full((20, 30, 3), 9, np.uint8), np.full((10, 50, 3), 7, np.uint8)
    sheet = contact_sheet([first, second])
    assert sheet.shape[1:] == (50, 3)
    np.testing.assert_array_equal(sheet[:20, :30], first)
    np.testing.assert_array_equal(sheet[-10:], second)
    assert (sheet[:20, 30:] == 255).all()
    assert (sheet[20:-10] == 255).all()
