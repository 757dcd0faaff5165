from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh

from cpcapp.splicing.decide.side_contrast import (
    PASTED_COLUMN,
    SideContrast,
    across_and_within,
    superpixel_vectors,
)
from cpcapp.splicing.measure.network import LearnedTraces
from helpers import random_covariance


def made_traces(rng, shape, offset=(0, 0), n_traces=3):
    """Traces of a photo that nobody measured."""
    rows, columns = (
        -(-(side + -start % 8) // 8) for side, start in zip(shape, offset, strict=True)
    )
    return LearnedTraces(
        rng.normal(size=shape).astype(np.float32),
        rng.normal(size=(rows, columns)).astype(np.float32),
        rng.normal(size=(rows, columns)).astype(np.float32),
        rng.normal(size=(rows, columns, n_traces)).astype(np.float32),
        offset,
    )


@given(
    height=st.integers(9, 40),
    width=st.integers(9, 40),
    smaller=st.sampled_from([1.0, 0.7, 0.4]),
    top=st.integers(0, 7),
    left=st.integers(0, 7),
    seed=st.integers(0, 1000),
)
def test_vectors_are_means_over_pixels(height, width, smaller, top, left, seed):
    """Pixel by pixel, each with the vector of its block; labels may be those of a smaller copy."""
    rng = np.random.default_rng(seed)
    traces = made_traces(rng, (height, width), (top, left))
    rows, columns = max(1, int(height * smaller)), max(1, int(width * smaller))
    labels = rng.integers(0, 5, (rows, columns)).astype(np.int32)
    count = 6  # of the last one there is no pixel
    total, pixels = np.zeros((count, 5)), np.zeros(count)
    for row in range(rows):
        for column in range(columns):
            y, x = row * height // rows, column * width // columns
            block = (y + -top % 8) // 8, (x + -left % 8) // 8
            label = labels[row, column]
            vector = [*traces.vectors[block], traces.region[block], traces.pasted[block]]
            total[label] += vector
            pixels[label] += 1
    vectors, area = superpixel_vectors(traces, labels, count, (height, width))
    np.testing.assert_array_equal(area, pixels)
    np.testing.assert_allclose(vectors, total / np.maximum(pixels, 1)[:, None], atol=1e-6)
    assert not vectors[5].any()


def test_the_last_column_is_the_pasted_side(rng):
    traces = made_traces(rng, (16, 16))
    labels = np.arange(4).reshape(2, 2).repeat(8, axis=0).repeat(8, axis=1).astype(np.int32)
    vectors, _ = superpixel_vectors(traces, labels, 4, (16, 16))
    np.testing.assert_allclose(vectors[:, PASTED_COLUMN], traces.pasted.ravel(), rtol=1e-6)


def made_photos(rng, direction, n=400, n_superpixels=30):
    """Sides that differ in one direction only, more than superpixels of one side do in any."""
    mixing = np.linalg.cholesky(random_covariance(rng, len(direction), spread=1.5))
    photos = []
    for _ in range(n):
        across = mixing @ rng.normal(size=len(direction)) * 0.3 + 4.0 * rng.normal() * direction
        within = rng.normal(size=(n_superpixels, len(direction))) @ mixing.T
        photos.append((across, within - within.mean(axis=0)))
    return photos


def test_the_direction_that_differs_across_sides_is_found(rng):
    """Against the generalised eigenvectors of the two covariances."""
    direction = np.linalg.qr(rng.normal(size=(6, 6))).Q[0]
    photos = made_photos(rng, direction)
    found = SideContrast.learn(photos, 3)
    assert found.filters.shape == (6, 3)
    across = np.array([photo[0] for photo in photos])
    within = np.concatenate([photo[1] for photo in photos])
    power, background = across.T @ across / len(across), np.cov(within.T)
    values, filters = eigh(power, background)
    np.testing.assert_allclose(found.eigenvalues, values[::-1][:3], rtol=0.02)
    assert found.eigenvalues[0] > 10 * found.eigenvalues[1]
    cosine = found.filters[:, 0] @ filters[:, -1]
    cosine /= np.linalg.norm(found.filters[:, 0]) * np.linalg.norm(filters[:, -1])
    assert abs(cosine) > 0.9999
    # Superpixels of one side have variance 1, and no correlation.
    seen = found.filters.T @ background @ found.filters
    np.testing.assert_allclose(seen, np.eye(3), atol=0.02)


def test_which_side_is_subtracted_does_not_matter(rng):
    photos = made_photos(rng, np.eye(4)[1], n=20)
    turned = [(photo[0] * (-1) ** number, photo[1]) for number, photo in enumerate(photos)]
    one, other = (SideContrast.learn(kind, 2) for kind in (photos, turned))
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues)
    np.testing.assert_allclose(np.abs(one.filters), np.abs(other.filters), atol=1e-9)


def test_few_photos_give_few_filters(rng):
    """One photo has one difference, which may have only a few superpixels to compare with."""
    photos = made_photos(rng, np.eye(5)[0], n=2, n_superpixels=6)
    assert SideContrast.learn(photos[:1], 4).filters.shape == (5, 1)
    assert SideContrast.learn(photos, 4).filters.shape == (5, 2)
    assert SideContrast.learn(made_photos(rng, np.eye(5)[0], n=50), 9).filters.shape == (5, 5)
    assert SideContrast.learn([], 4) is None
    assert SideContrast.learn([(np.zeros(5), photos[0][1])], 4) is None


def test_a_contrast_survives_json(rng):
    contrast = SideContrast.learn(made_photos(rng, np.eye(4)[2], n=30), 2)
    again = SideContrast.from_dict(json.loads(json.dumps(contrast.to_dict())))
    np.testing.assert_allclose(again.filters, contrast.filters, atol=1e-6)
    np.testing.assert_allclose(again.eigenvalues, contrast.eigenvalues, atol=1e-4)
    assert again.to_dict() == contrast.to_dict()


@pytest.mark.parametrize(
    ("filters", "eigenvalues", "message"),
    [
        (np.ones((4, 2)), np.ones(3), r"shape \(4, 2\) do not fit .* shape \(3,\)"),
        (np.ones(4), np.ones(4), "do not fit"),
        (np.full((4, 2), np.nan), np.ones(2), "must be finite"),
        (np.ones((4, 2)), np.array([1.0, np.inf]), "must be finite"),
    ],
)
def test_contrasts_that_make_no_sense_are_an_error(filters, eigenvalues, message):
    with pytest.raises(ValueError, match=message):
        SideContrast(filters, eigenvalues)


def test_statistics_are_filtered_clipped_and_centred(rng):
    contrast = SideContrast(rng.normal(size=(5, 2)), np.array([3.0, 2.0]))
    vectors, pixels = rng.normal(size=(40, 5)), rng.integers(1, 300, 40).astype(float)
    vectors[7] = 1e6  # pulls no more than a value at the limit
    found = contrast.statistics(vectors, pixels, 0.25, 4.0)
    assert found.scaled_within
    assert found.weight == 0.25
    np.testing.assert_array_equal(found.pixels, pixels)
    seen = vectors @ contrast.filters
    seen = np.clip(seen - np.median(seen, axis=0), -4.0, 4.0)
    seen -= (pixels @ seen) / pixels.sum()
    np.testing.assert_allclose(found.total, seen * pixels[:, None], atol=1e-9)
    np.testing.assert_allclose(found.total.sum(axis=0), 0.0, atol=1e-6)


def test_differences_across_and_within(rng):
    vectors = rng.normal(size=(12, 3))
    pasted = np.arange(12) < 5
    certain = np.arange(12) % 5 != 4  # not 4 and 9
    across, within = across_and_within(vectors, pasted, certain)
    inside, outside = vectors[:4], vectors[[5, 6, 7, 8, 10, 11]]
    np.testing.assert_allclose(across, inside.mean(axis=0) - outside.mean(axis=0))
    expected = [*(inside - inside.mean(axis=0)), *(outside - outside.mean(axis=0))]
    np.testing.assert_allclose(within, expected)


@pytest.mark.parametrize(("n_inside", "enough"), [(0, False), (2, False), (3, True), (9, True)])
def test_a_side_needs_three_superpixels(rng, n_inside, enough):
    vectors = rng.normal(size=(12, 3))
    everywhere = np.ones(12, dtype=bool)
    for pasted in (np.arange(12) < n_inside, np.arange(12) >= n_inside):
        assert (across_and_within(vectors, pasted, everywhere) is not None) == enough


def test_filters_for_other_traces_are_refused():
    """As those of a model that a version with fewer traces has trained."""
    contrast = SideContrast(np.eye(4)[:, :2], np.array([3.0, 2.0]))
    with pytest.raises(ValueError, match=r"by 4 traces, and a photo has 6: train it with this"):
        contrast.statistics(np.zeros((9, 6)), np.ones(9), 1.0, 6.0)
