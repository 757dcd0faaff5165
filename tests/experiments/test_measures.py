"""The measures, against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.experiments.measures import measure
from helpers import examples


@examples(12)  # each is a k-means of many starts
@given(
    scale=st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=2),
    shift=st.floats(-100, 100),
    flip=st.booleans(),
)
def test_scale_place_and_sign_of_axes_do_not_matter(scale, shift, flip):
    rng = np.random.default_rng(1)
    labels = np.arange(60) % 2
    scores = rng.normal(size=(60, 2)) + 1.5 * labels[:, None]
    moved = scores * scale * (-1.0 if flip else 1.0) + shift
    expected, found = measure(scores, labels), measure(moved, labels)
    assert (found.ari, found.accuracy) == pytest.approx((expected.ari, expected.accuracy))


def test_no_individual_is_both_learnt_from_and_tested_on(rng):
    """Each individual has a place of its own that says nothing about its class."""
    groups = np.repeat(np.arange(20), 10)
    labels = groups % 2
    scores = rng.normal(size=(20, 2))[groups] + 0.01 * rng.normal(size=(200, 2))
    assert measure(scores, labels).accuracy > 0.99
    assert measure(scores, labels, groups).accuracy < 0.75
