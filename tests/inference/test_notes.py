from __future__ import annotations

import numpy as np

from cpcapp import permutation_test, solve_contrast
from cpcapp.inference.notes import notes_on
from cpcapp.moments.sample import make_sample


def notes(X, B, contrast, names=None, *, count=False):
    test = permutation_test(X, B) if count else None
    return notes_on(contrast, make_sample(X), make_sample(B), test, names)


def test_one_bad_cell(rng):
    X, B = rng.normal(size=(60, 5)), rng.normal(size=(60, 5))
    X[7, 3] = 1e3
    contrast = solve_contrast(X, B, 2)
    (note,) = notes(X, B, contrast.first(1), ["a", "b", "c", "dose", "e"])
    assert note.code == "one-row"
    assert "row 7 (feature 'dose' = 1000) has 98 % of its variance" in note.text
    (note,) = notes(X, B, contrast.first(1))
    assert "(feature 3 = 1000)" in note.text


def test_a_single_1_among_zeros(rng):
    X, B = rng.normal(size=(60, 5)), rng.normal(size=(60, 5))
    X[:, 2] = B[:, 2] = 0.0
    X[40, 2] = 1.0
    contrast = solve_contrast(X, B, 1)
    texts = [note.text for note in notes(X, B, contrast)]
    assert ["row 40 (feature 2 = 1)" in text for text in texts] == [True]


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
    found = notes(X, B, elsewhere, [f"gene {i}" for i in range(200)], count=True)
    assert [note.code for note in found] == ["hidden-direction"]
    assert "'gene 17'" in found[0].text


def test_nothing_to_say(rng):
    X, B = rng.normal(size=(100, 5)) * [4, 1, 1, 1, 1], rng.normal(size=(100, 5))
    assert notes(X, B, solve_contrast(X, B, 1), count=True) == []
