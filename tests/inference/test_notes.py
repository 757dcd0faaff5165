from __future__ import annotations

import numpy as np

from cpcapp import permutation_test, solve_contrast
from cpcapp.inference.notes import notes_on
from cpcapp.moments.sample import make_sample


def test_a_row_far_out_in_all_features(rng):
    X, B = rng.normal(size=(60, 5)), rng.normal(size=(60, 5))
    X[11] *= 100.0
    rows = make_sample(X, index=np.arange(1000, 1060))  # its number in what was given
    (note,) = notes_on(solve_contrast(X, B, 1), rows, make_sample(B), None)
    assert "row 1011" in note.text


def test_a_counted_direction_that_is_not_shown(rng):
    """One feature of contrast 30, and components that look at others."""
    X, B = rng.normal(size=(60, 200)), rng.normal(size=(60, 200))
    X[:, 17] *= np.sqrt(30.0)
    contrast = solve_contrast(X[:, :10], B[:, :10], 2)
    filters = np.zeros((200, 2))
    filters[:10] = contrast.filters
    elsewhere = solve_contrast(X, B, 2)
    object.__setattr__(elsewhere, "filters", filters)
    names = [f"gene {i}" for i in range(200)]
    found = notes_on(elsewhere, make_sample(X), make_sample(B), permutation_test(X, B), names)
    assert [note.code for note in found] == ["hidden-direction"]
    assert "'gene 17'" in found[0].text
