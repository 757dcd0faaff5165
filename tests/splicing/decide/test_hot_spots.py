from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.decide.hot_spots import PatchTail, benjamini_hochberg, upsample_patches
from cpcapp.splicing.result import Localization


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0.01, 0.5))
def test_squares_are_chosen_as_scipy_adjusts_them(values, rate):
    from scipy.stats import false_discovery_control

    p = np.array(values)
    adjusted = false_discovery_control(p)
    clear = np.abs(adjusted - rate) > 1e-9
    np.testing.assert_array_equal(benjamini_hochberg(p, rate)[clear], (adjusted <= rate)[clear])


def test_the_tail_is_the_share_of_larger_values(rng):
    photos = [rng.normal(size=4000) for _ in range(30)]
    tail = PatchTail.learn(photos)
    values = np.concatenate(photos)
    for level in (0.0, 1.6, 3.0):
        assert tail.p_value(np.array([level]))[0] == pytest.approx(
            (values >= level).mean(), rel=0.2
        )
    far = tail.p_value(np.array([5.0, 8.0, 20.0]))
    assert (np.diff(far) < 0.0).all()
    assert far[-1] > 0.0


def test_maps_have_the_size_of_the_photo():
    edges = np.zeros((21, 30), dtype=np.float32)
    squares = np.linspace(0.0, 1.0, 12).reshape(3, 4)
    found = Localization(edges, edges, patch_p_values=squares)
    assert found.p_map.shape == found.hot_spots.shape == (21, 30)
    assert found.p_map[15, 25] == np.float32(squares[1, 3])
    assert found.hot_spots is found.hot_spots  # computed once
    assert Localization(edges, edges).p_map is None
    assert Localization(edges, edges).hot_spots is None


def test_all_photos_weigh_the_same(rng):
    """A large photo has more squares, but the share is the mean of the photos' shares."""
    large, small = rng.uniform(0.0, 1.0, 8000), rng.uniform(1.0, 2.0, 400)
    tail = PatchTail.learn([large, small])
    for level in (0.4, 1.0, 1.6):
        expected = ((large >= level).mean() + (small >= level).mean()) / 2
        assert tail.p_value(np.array([level]))[0] == pytest.approx(expected, rel=0.1)


def test_the_tail_goes_down_to_some_tens_of_squares(rng):
    """From 0.9 to 20 of all squares, in equal steps of the logarithm."""
    tail = PatchTail.learn([rng.normal(size=1000) for _ in range(10)])
    assert np.exp(tail.log_survival[[0, -1]]) == pytest.approx([0.9, 20 / 10_000])
    np.testing.assert_allclose(np.diff(tail.log_survival, 2), 0.0, atol=1e-9)
    assert len(tail.z_score) == 40


def test_a_value_that_many_squares_share_is_counted_once():
    """Squares of no strength at all have one and the same z-score."""
    same = np.concatenate([np.full(500, -9.0), np.linspace(0.0, 3.0, 500)])
    tail = PatchTail.learn([same, same])
    assert (np.diff(tail.z_score) > 0.0).all()
    assert tail.p_value(np.array([1.5]))[0] == pytest.approx(0.25, rel=0.1)


def test_a_photo_of_one_square_weighs_as_much_as_any():
    """Beyond all other squares half of the photos are left: the tail ends with that square."""
    tail = PatchTail.learn([np.linspace(0.0, 1.0, 1000), np.array([5.0])])
    assert tail.z_score[-1] == 5.0
    assert tail.p_value(np.array([1.0]))[0] == pytest.approx(0.5, rel=0.1)


LINE = PatchTail(np.array([0.0, 1.0, 3.0]), np.array([-0.5, -1.0, -3.0]))


def test_the_tail_is_exponential_between_and_beyond_what_was_learned():
    found = LINE.p_value(np.array([[-0.1, 0.0, 0.5], [1.0, 3.0, 7.0]]))
    expected = np.exp([[0.0, -0.5, -0.75], [-1.0, -3.0, -7.0]])
    np.testing.assert_allclose(found, expected)


def test_the_tail_survives_json():
    again = PatchTail.from_dict(json.loads(json.dumps(LINE.to_dict())))
    np.testing.assert_array_equal(again.z_score, LINE.z_score)
    np.testing.assert_array_equal(again.log_survival, LINE.log_survival)


@pytest.mark.parametrize(
    ("z_score", "log_survival"),
    [
        ([0.0], [-1.0]),
        ([0.0, 1.0], [-1.0]),
        ([[0.0, 1.0]], [[-1.0, -2.0]]),
        ([0.0, 0.0], [-1.0, -2.0]),
        ([0.0, 2.0, 1.0], [-1.0, -2.0, -3.0]),
        ([0.0, 1.0, 2.0], [-1.0, -3.0, -2.0]),
        ([0.0, 1.0], [-1.0, -1.0]),
        ([0.0, np.nan], [-1.0, -2.0]),
        ([0.0, 1.0], [-1.0, -np.inf]),
    ],
)
def test_a_tail_that_makes_no_sense_is_an_error(z_score, log_survival):
    with pytest.raises(ValueError, match="z_score must rise and log_survival fall"):
        PatchTail(np.array(z_score), np.array(log_survival))


def test_hot_spots_of_a_map_keep_its_shape():
    p = np.full((4, 5), 0.9)
    p[1, 2] = p[3, 4] = 1e-4
    np.testing.assert_array_equal(benjamini_hochberg(p), p < 0.5)
    assert not benjamini_hochberg(np.full((4, 5), 0.9)).any()
    assert benjamini_hochberg(np.full((4, 5), 0.9)).shape == (4, 5)
    assert benjamini_hochberg(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, float("nan")])
def test_a_rate_lies_between_0_and_1(rate):
    with pytest.raises(ValueError, match=rf"rate={rate} must be between 0 and 1"):
        benjamini_hochberg(np.array([0.5]), rate)


def test_one_in_twenty_hot_spots_may_be_false():
    """The default rate."""
    p = np.array([0.049, 0.9])
    assert not benjamini_hochberg(p).any()
    assert benjamini_hochberg(np.array([0.024, 0.9])).tolist() == [True, False]
    assert benjamini_hochberg(np.array([0.05])).tolist() == [True]
    assert benjamini_hochberg(np.array([0.0501])).tolist() == [False]


@given(
    rows=st.integers(1, 5), cols=st.integers(1, 5), size=st.integers(2, 9), cut=st.integers(0, 1)
)
def test_a_square_covers_its_pixels(rows, cols, size, cut):
    patches = np.arange(rows * cols, dtype=np.float32).reshape(rows, cols)
    shape = rows * size - cut, cols * size - cut
    y, x = np.indices(shape) // size
    np.testing.assert_array_equal(upsample_patches(patches, shape, size), patches[y, x])
