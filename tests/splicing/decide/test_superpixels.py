from __future__ import annotations

import cv2
import numpy as np
import pytest

from cpcapp.splicing.decide.region_options import RegionOptions
from cpcapp.splicing.decide.superpixels import superpixels


@pytest.fixture
def photo(rng):
    """Smooth colours with some texture, (128, 192, 3)."""
    noise = rng.normal(size=(128, 192, 3)).astype(np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), 12.0)
    return np.clip(0.5 + 3.0 * smooth + 0.01 * noise, 0, 1).astype(np.float32)


@pytest.mark.parametrize("spacing", [8, 16, 32])
def test_every_pixel_has_a_superpixel_of_about_the_size_asked_for(photo, spacing):
    labels, count = superpixels(photo, RegionOptions(superpixel_spacing=spacing))
    assert labels.shape == (128, 192)
    assert labels.dtype == np.int32
    assert np.unique(labels).tolist() == list(range(count))
    assert 0.5 < count * spacing**2 / labels.size < 2.0


def test_a_superpixel_is_in_one_piece(photo):
    labels, count = superpixels(photo)
    for number in range(count):
        pieces, _ = cv2.connectedComponents((labels == number).astype(np.uint8), connectivity=4)
        assert pieces == 2  # the superpixel and the rest


def test_edges_of_colour_are_borders():
    """Of unlike colours and like light: the clustering sees colour, not light alone."""
    photo = np.full((96, 128, 3), (0.6, 0.3, 0.3), dtype=np.float32)
    photo[:, 53:] = (0.3, 0.42, 0.3)
    labels, _ = superpixels(photo)
    assert not np.intersect1d(labels[:, :53], labels[:, 53:]).size


def test_levels_beyond_black_and_white_are_clipped(photo):
    beyond = photo.copy()
    beyond[:20], beyond[-20:] = -3.0, 7.0
    clipped = np.clip(beyond, 0.0, 1.0)
    np.testing.assert_array_equal(superpixels(beyond)[0], superpixels(clipped)[0])


def test_small_pieces_join_a_neighbour(photo):
    few, many = (
        superpixels(photo, RegionOptions(min_superpixel_percent=percent))[1] for percent in (60, 0)
    )
    assert few < many
