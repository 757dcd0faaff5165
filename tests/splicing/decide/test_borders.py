from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.decide.borders import border_pixels, collect_borders


def test_borders_count_every_pixel_once():
    labels = np.array([[0, 0, 1], [2, 2, 1]], dtype=np.int32)
    one, two = (labels.ravel()[places] for places in border_pixels(labels))
    borders = collect_borders(3, one, two, np.ones(len(one)))
    found = {
        (int(i), int(j)): n
        for i, j, n in zip(borders.one, borders.two, borders.length, strict=True)
    }
    assert found == {(0, 1): 1.0, (0, 2): 2.0, (1, 2): 1.0}
    assert borders.cut(np.array([True, False, False])) == (3.0, 3.0)


def random_labels(seed, count=5):
    rng = np.random.default_rng(seed)
    return rng, rng.integers(0, count, (6, 7)).astype(np.int32)


@given(seed=st.integers(0, 10_000))
def test_border_pixels_are_the_unlike_neighbours(seed):
    """Against a loop over all pixels; each pair once, its two pixels in reading order."""
    _, labels = random_labels(seed)
    expected = set()
    for row in range(6):
        for col in range(7):
            for down, right in ((0, 1), (1, 0)):
                y, x = row + down, col + right
                if y < 6 and x < 7 and labels[row, col] != labels[y, x]:
                    expected.add((7 * row + col, 7 * y + x))
    found = list(zip(*(places.tolist() for places in border_pixels(labels)), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == expected


@given(seed=st.integers(0, 10_000), penalty=st.floats(-2.0, 2.0))
def test_a_cut_sums_what_lies_between_the_two_sides(seed, penalty):
    """Against the pixels themselves: evidence, length, and evidence less a penalty per pixel."""
    rng, labels = random_labels(seed)
    one, two = (labels.ravel()[places] for places in border_pixels(labels))
    evidence = rng.normal(size=len(one))
    borders = collect_borders(5, one, two, evidence)
    assert (borders.one < borders.two).all()
    assert len(set(zip(borders.one.tolist(), borders.two.tolist(), strict=True))) == len(
        borders.one
    )
    side = rng.random(5) < 0.5
    across = side[one] != side[two]
    np.testing.assert_allclose(borders.cut(side), (evidence[across].sum(), across.sum()))
    np.testing.assert_allclose(borders.cut(side), borders.cut(~side))
    less, length = borders.penalise(penalty).cut(side)
    np.testing.assert_allclose(less, (evidence[across] - penalty).sum(), atol=1e-12)
    assert length == across.sum()


@given(seed=st.integers(0, 10_000))
def test_the_sum_around_a_superpixel_is_the_cut_of_it_alone(seed):
    rng, labels = random_labels(seed)
    one, two = (labels.ravel()[places] for places in border_pixels(labels))
    borders = collect_borders(5, one, two, rng.normal(size=len(one)))
    alone = [borders.cut(np.arange(5) == number) for number in range(5)]
    around = (borders.sum_around(values) for values in (borders.evidence, borders.length))
    np.testing.assert_allclose(np.column_stack([*around]), alone, atol=1e-12)
