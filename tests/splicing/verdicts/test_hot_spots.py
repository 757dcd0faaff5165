from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.localizer import Localization
from cpcapp.splicing.verdicts.hot_spots import PatchTail, benjamini_hochberg


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
