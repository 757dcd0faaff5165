from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from cpcapp import solve_contrast
from cpcapp.splicing.decide.options import RegionOptions
from cpcapp.splicing.decide.sides import (
    PASTED_COLUMN,
    Sides,
    SideStatistics,
    TraceContrast,
    across_and_within,
    side_statistics,
    superpixel_vectors,
)
from cpcapp.splicing.decide.superpixels import MergeTree, superpixels
from cpcapp.splicing.make.cameras import Camera
from cpcapp.splicing.measure.mosaic import MosaicTrace, mosaic_trace
from cpcapp.splicing.measure.network import LearnedTraces
from helpers import random_covariance
from superpixel_problems import random_problem


def within_sides(values, side):
    return sum(np.cov(values[part].T, bias=True) * part.sum() / len(side) for part in (side, ~side))


def test_two_means_gain_what_the_determinant_says(rng):
    """-n/2 log det(S_within)/det(S_total), against covariances that are computed in full."""
    _, statistics = random_problem(rng, n_statistics=3)
    side = rng.random(12) < 0.4
    values = statistics.total / statistics.pixels[:, None]
    wanted = -0.5 * statistics.pixels.sum() * np.linalg.slogdet(within_sides(values, side))[1]
    assert statistics.evidence(side) == pytest.approx(wanted, rel=1e-9)


def test_many_candidates_are_judged_as_each_alone(rng):
    _, statistics = random_problem(rng)
    sides = rng.random((20, 12)) < 0.4
    total, pixels = sides @ statistics.total, sides @ statistics.pixels
    alone = [statistics.evidence(side) for side in sides]
    np.testing.assert_allclose(statistics.gain(total, pixels), alone)


def test_nothing_on_one_side_is_no_evidence(rng):
    _, statistics = random_problem(rng)
    for side in (np.zeros(12, dtype=bool), np.ones(12, dtype=bool)):
        assert statistics.evidence(side) == 0.0
        assert not statistics.preference(side).any()
    empty = SideStatistics(np.zeros((3, 2)), np.zeros(3))
    assert empty.evidence(np.array([True, False, False])) == 0.0
    assert not empty.preference(np.array([True, False, False])).any()


def test_no_evidence_is_infinite():
    """Two sides with no spread at all within them."""
    side = np.arange(10) < 5
    perfect = SideStatistics(np.where(side, 4.0, -4.0)[:, None], np.full(10, 4.0))
    assert perfect.evidence(side) == pytest.approx(-0.5 * 40 * np.log(1e-3))
    assert np.isfinite(perfect.preference(side)).all()
    assert (perfect.preference(side)[side] > 0).all()
    assert (perfect.preference(side)[~side] < 0).all()


def test_the_preference_is_the_likelihood_ratio_of_two_gaussians(rng):
    _, statistics = random_problem(rng)
    side = rng.random(12) < 0.4
    values = statistics.total / statistics.pixels[:, None]
    inside, outside = (
        multivariate_normal(values[part].mean(axis=0), within_sides(values, side)).logpdf(values)
        for part in (side, ~side)
    )
    np.testing.assert_allclose(
        statistics.preference(side), statistics.pixels * (inside - outside), rtol=1e-8
    )


def test_statistics_have_mean_0_and_covariance_1_over_the_photo(rng):
    scene = rng.integers(90, 130, (200, 260, 3), dtype=np.uint8)
    photo = Camera(shot_noise=1e-3).shoot(scene, rng).astype(np.float32) / 255
    labels, count = superpixels(photo)
    found = side_statistics(mosaic_trace(photo), labels, count)
    assert found.total.shape == (count, 6)
    np.testing.assert_allclose(found.total.sum(axis=0), 0.0, atol=1e-6 * found.pixels.sum())
    means = found.total[found.pixels > 0] / found.pixels[found.pixels > 0, None]
    assert (means.var(axis=0) <= 1.0 + 1e-6).all()


def made_trace(rng, shape=(40, 60), n=12):
    """A trace of independent values of unlike spread, all usable."""
    spread = np.geomspace(4.0, 0.25, n)[:, None, None]
    statistics = (rng.normal(size=(n, *shape)) * spread + 1.0).astype(np.float32)
    return MosaicTrace(statistics, np.ones(shape, np.float32), np.ones(shape, bool))


def one_each(trace, labels_shape):
    """Every pixel a superpixel, so that sums show the statistics themselves."""
    labels = np.arange(np.prod(labels_shape), dtype=np.int32).reshape(labels_shape)
    options = RegionOptions(statistics_step=1, max_deviation=1e3)
    return labels, side_statistics(trace, labels, labels.size, options)


def test_statistics_of_pixels_are_white(rng):
    _, found = one_each(made_trace(rng), (80, 120))
    assert (found.pixels == 1.0).all()
    np.testing.assert_allclose(found.total.mean(axis=0), 0.0, atol=1e-9)
    covariance = found.total.T @ found.total / len(found.total)
    np.testing.assert_allclose(covariance, np.eye(6), atol=1e-9)


def test_the_main_directions_are_kept(rng):
    """Of twelve statistics in which three groups vary together: the three of most variance."""
    shape = (40, 60)
    common = rng.normal(size=(3, *shape))
    mixed = common[np.repeat([0, 1, 2], [6, 4, 2])] + 0.05 * rng.normal(size=(12, *shape))
    trace = MosaicTrace(mixed.astype(np.float32), np.ones(shape, np.float32), np.ones(shape, bool))
    labels = np.arange(2400, dtype=np.int32).reshape(shape)
    for n in (1, 2, 3):
        options = RegionOptions(statistics_step=1, n_statistics=n, max_deviation=1e3)
        found = side_statistics(trace, labels, 2400, options).total
        assert found.shape == (2400, n)
        correlation = np.corrcoef(found.T, common.reshape(3, -1))[:n, n:]
        np.testing.assert_allclose(np.abs(np.diag(correlation)), 1.0, atol=0.02)


def test_directions_without_variance_are_dropped(rng):
    trace = made_trace(rng)
    same = trace._replace(statistics=np.repeat(trace.statistics[:1], 12, axis=0))
    _, found = one_each(same, (40, 60))
    assert found.total.shape == (2400, 1)
    np.testing.assert_allclose(found.total.var(), 1.0)


def test_outliers_are_clipped(rng):
    """At so many robust standard deviations: a wild value pulls no more than one of that size."""
    trace = made_trace(rng, n=1)
    labels = np.arange(2400, dtype=np.int32).reshape(40, 60)
    options = RegionOptions(statistics_step=1, max_deviation=6.0)
    for size in (1e3, 1e6):
        wild = trace._replace(statistics=trace.statistics.copy())
        wild.statistics[0, 3, 4] = size
        found = side_statistics(wild, labels, 2400, options).total[labels[3, 4], 0]
        assert abs(found) == pytest.approx(6.0, rel=0.05)  # normal values have a spread of 1


def test_each_superpixel_sums_its_own_pixels(rng):
    trace = made_trace(rng)
    pixelwise = one_each(trace, (80, 120))[1]
    blocks = np.arange(24).reshape(4, 6).repeat(20, axis=0).repeat(20, axis=1).astype(np.int32)
    options = RegionOptions(statistics_step=1, max_deviation=1e3)
    found = side_statistics(trace, blocks, 24, options)
    expected = [pixelwise.total[blocks.ravel() == number].sum(axis=0) for number in range(24)]
    np.testing.assert_allclose(found.total, expected, atol=1e-8)
    assert (found.pixels == 400.0).all()


@pytest.mark.parametrize("step", [2, 4])
def test_a_step_stands_for_its_square(rng, step):
    """Read at every few pixels, a statistic counts for as many pixels as it stands for."""
    trace = made_trace(rng)
    blocks = np.arange(24).reshape(4, 6).repeat(20, axis=0).repeat(20, axis=1).astype(np.int32)
    found = side_statistics(trace, blocks, 24, RegionOptions(statistics_step=step))
    assert found.pixels.sum() == 80 * 120
    assert (found.pixels == 400.0).all()


def test_what_is_not_usable_is_not_read(rng):
    trace = made_trace(rng)
    trace.usable[:, 30:] = False
    trace.statistics[:, :, 30:] = 1e4
    blocks = (np.arange(120) // 60).astype(np.int32)[None].repeat(80, axis=0)
    found = side_statistics(trace, blocks, 2, RegionOptions(statistics_step=1))
    assert found.pixels.tolist() == [4800.0, 0.0]
    assert not found.total[1].any()
    np.testing.assert_allclose(found.total[0], 0.0, atol=1e-8)


def test_without_a_trace_there_are_none(rng):
    labels = np.zeros((80, 120), dtype=np.int32)
    few = made_trace(rng)
    few.usable[:] = False
    few.usable[0, :49] = True  # too few windows to say anything of a spread
    nowhere = MosaicTrace(*(np.zeros((n, 0, 0)) for n in (12, 1)), np.zeros((0, 0), bool))
    options = RegionOptions(statistics_step=2)
    for trace in (None, few, nowhere):
        found = side_statistics(trace, labels, 3, options)
        assert len(found.total) == len(found.pixels) == 3
        assert not found.total.any()
        assert not found.pixels.any()
    few.usable[0, 49] = True
    assert side_statistics(few, labels, 3, options).pixels[0] == 50 * 4


def test_labels_of_a_smaller_copy_are_read_at_the_same_places():
    """The trace of a photo of 160 x 240, and superpixels of a copy of half its size."""
    stripes = np.zeros((12, 80, 120), dtype=np.float32)
    stripes[0, :, 60:] = 1.0
    stripes[1, 40:] = 1.0
    trace = MosaicTrace(stripes, np.ones((80, 120), np.float32), np.ones((80, 120), bool))
    labels = (2 * (np.arange(80) >= 40)[:, None] + (np.arange(120) >= 60)).astype(np.int32)
    found = side_statistics(trace, labels, 4, RegionOptions(statistics_step=1))
    # Four quarters of unlike statistics: all variance lies between them.
    assert (found.pixels == 2400.0).all()
    means = found.total / found.pixels[:, None]
    np.testing.assert_allclose(means.T @ means / 4, np.eye(2), atol=1e-5)


def test_a_flat_photo_has_no_statistics():
    """Its windows are all usable and all the same: there is no direction to scale."""
    photo = np.full((120, 160, 3), 0.5, dtype=np.float32)
    labels = np.repeat(np.arange(4, dtype=np.int32), 40)[None].repeat(120, axis=0)
    found = side_statistics(mosaic_trace(photo), labels, 4)
    assert not found.pixels.any()
    assert not found.total.any()


# -- statistics whose covariance is I within the sides ----------------------------------------


def scaled_problem(rng, n_statistics=3):
    """Sums of superpixels of unlike sizes, with mean 0 over the photo."""
    pixels = rng.integers(1, 50, 12).astype(float)
    values = rng.normal(size=(12, n_statistics))
    values -= pixels @ values / pixels.sum()
    return SideStatistics(values * pixels[:, None], pixels, 0.5, scaled_within=True)


def sides_of(statistics, side):
    """Share of the inside, and the means of both sides."""
    means = [
        statistics.total[part].sum(axis=0) / statistics.pixels[part].sum() for part in (side, ~side)
    ]
    return statistics.pixels[side].sum() / statistics.pixels.sum(), *means


def test_two_means_gain_what_the_total_covariance_says(rng):
    """n/2 log det(S_total)/det(S_within), with I within and ``I + p(1-p) ddᵀ`` in total."""
    statistics, side = scaled_problem(rng), rng.random(12) < 0.4
    share, inside, outside = sides_of(statistics, side)
    apart = inside - outside
    total = np.eye(3) + share * (1 - share) * np.outer(apart, apart)
    wanted = 0.5 * 0.5 * statistics.pixels.sum() * np.linalg.slogdet(total)[1]
    assert statistics.evidence(side) == pytest.approx(wanted, rel=1e-9)
    assert statistics.evidence(~side) == pytest.approx(wanted, rel=1e-9)


def test_the_preference_is_the_likelihood_ratio_of_two_gaussians_of_covariance_1(rng):
    statistics, side = scaled_problem(rng), rng.random(12) < 0.4
    values = statistics.total / statistics.pixels[:, None]
    _, *means = sides_of(statistics, side)
    inside, outside = (multivariate_normal(mean, np.eye(3)).logpdf(values) for mean in means)
    np.testing.assert_allclose(
        statistics.preference(side), 0.5 * statistics.pixels * (inside - outside), rtol=1e-9
    )


@pytest.mark.parametrize("scaled_within", [False, True])
def test_the_weight_multiplies_all_evidence(rng, scaled_within):
    borders, plain = random_problem(rng)
    one, three = (
        replace(plain, weight=weight, scaled_within=scaled_within) for weight in (1.0, 3.0)
    )
    side, tree = rng.random(12) < 0.4, MergeTree.build(borders)
    assert three.evidence(side) == pytest.approx(3.0 * one.evidence(side))
    np.testing.assert_allclose(three.preference(side), 3.0 * one.preference(side))
    np.testing.assert_allclose(three.gain_of_nodes(tree), 3.0 * one.gain_of_nodes(tree))


def test_evidence_of_several_kinds_adds_up(rng):
    borders, mosaic = random_problem(rng)
    learned = scaled_problem(rng)
    both, side = Sides((mosaic, learned)), rng.random(12) < 0.4
    tree = MergeTree.build(borders)
    assert both.evidence(side) == pytest.approx(mosaic.evidence(side) + learned.evidence(side))
    np.testing.assert_allclose(
        both.preference(side), mosaic.preference(side) + learned.preference(side)
    )
    found = both.gain_of_nodes(tree)
    np.testing.assert_allclose(found, mosaic.gain_of_nodes(tree) + learned.gain_of_nodes(tree))
    for node in (0, len(found) // 2, len(found) - 1):
        assert found[node] == pytest.approx(both.evidence(tree.side(node)))
    assert len(both.starts()) == len(mosaic.starts()) + len(learned.starts()) == 2 + 3


def test_a_search_begins_where_a_statistic_is_above_its_mean(rng):
    learned = scaled_problem(rng, n_statistics=2)
    for start, column in zip(learned.starts(), learned.total.T, strict=True):
        np.testing.assert_array_equal(start, column > 0.0)
    assert SideStatistics(np.zeros((4, 2)), np.zeros(4)).starts() == []


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
    vectors = superpixel_vectors(traces, labels, count, (height, width))
    np.testing.assert_allclose(vectors, total / np.maximum(pixels, 1)[:, None], atol=1e-6)
    assert not vectors[5].any()


def test_the_last_column_is_the_pasted_side(rng):
    traces = made_traces(rng, (16, 16))
    labels = np.arange(4).reshape(2, 2).repeat(8, axis=0).repeat(8, axis=1).astype(np.int32)
    vectors = superpixel_vectors(traces, labels, 4, (16, 16))
    np.testing.assert_allclose(vectors[:, PASTED_COLUMN], traces.pasted.ravel(), rtol=1e-6)


# -- what tells the sides of learned traces apart ---------------------------------------------


def made_photos(rng, direction, n=400, n_superpixels=30):
    """Sides that differ in one direction only, more than superpixels of one side do in any."""
    mixing = np.linalg.cholesky(random_covariance(rng, len(direction), spread=1.5))
    photos = []
    for _ in range(n):
        across = mixing @ rng.normal(size=len(direction)) * 0.3 + 4.0 * rng.normal() * direction
        within = rng.normal(size=(n_superpixels, len(direction))) @ mixing.T
        photos.append((across, within - within.mean(axis=0)))
    return photos


def made_contrast(rng, n_features=5):
    return TraceContrast.learn(made_photos(rng, np.eye(n_features)[2], n=30))


def assert_same_filters(found, expected, rtol):
    """But for the sign of each."""
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found * signs, expected, rtol=rtol, atol=rtol)


def test_the_filters_are_those_of_cpca_plus_plus(rng):
    """Of all differences against all superpixels, about a mean of 0."""
    direction = np.linalg.qr(rng.normal(size=(6, 6))).Q[0]
    photos = made_photos(rng, direction)
    found = TraceContrast.learn(photos)
    filters = found.filters(found.within, 3)
    across = np.array([photo[0] for photo in photos])
    within = np.concatenate([photo[1] for photo in photos])
    both = (np.concatenate([rows, -rows]) for rows in (across, within))
    expected = solve_contrast(*both, 3, loading="none")
    # Filters are scaled to a background with a thousandth added; so are their directions moved.
    assert_same_filters(filters, expected.filters, 0.01)
    assert expected.eigenvalues[0] > 10 * expected.eigenvalues[1]


def test_each_photo_counts_as_much_as_another(rng):
    """However many superpixels it has; which side is subtracted does not matter."""
    one, two = (made_photos(rng, np.eye(4)[1], n=1, n_superpixels=n)[0] for n in (10, 200))
    found, turned = TraceContrast.learn([one, two]), TraceContrast.learn([(-one[0], one[1]), two])
    moments = [rows.T @ rows / len(rows) for _, rows in (one, two)]
    np.testing.assert_allclose(found.within, np.mean(moments, axis=0))
    expected = (np.outer(one[0], one[0]) + np.outer(two[0], two[0])) / 2
    np.testing.assert_allclose(found.across, expected)
    np.testing.assert_array_equal(found.across, turned.across)


def test_nothing_is_learned_where_no_sides_differ(rng):
    ((_, within),) = made_photos(rng, np.eye(5)[0], n=1)
    assert TraceContrast.learn([]) is None
    assert TraceContrast.learn([(np.zeros(5), within)]) is None


def test_a_contrast_survives_json(rng):
    contrast = made_contrast(rng)
    again = TraceContrast.from_dict(json.loads(json.dumps(contrast.to_dict())))
    np.testing.assert_array_equal(again.across, contrast.across)
    np.testing.assert_array_equal(again.within, contrast.within)


@pytest.mark.parametrize(
    ("across", "within", "message"),
    [
        (np.ones((4, 2)), np.eye(4), r"across of shape \(4, 2\) must be square"),
        (np.eye(4), np.ones(4), r"within of shape \(4,\) must be square"),
        (np.eye(513), np.eye(513), "must be square, of at most 512"),
        (np.eye(4), np.eye(5), "across and within must be of one shape"),
        (np.full((4, 4), np.nan), np.eye(4), "across must be finite"),
        (np.eye(4), np.full((4, 4), 1e10), r"within must be finite, within ±1e\+09"),
        (np.eye(4), np.eye(4) + np.eye(4, k=1), "within must be symmetric"),
        (np.eye(4), -np.eye(4), "within must be positive"),
    ],
)
def test_contrasts_that_make_no_sense_are_an_error(across, within, message):
    with pytest.raises(ValueError, match=message):
        TraceContrast(across, within)


# So large that the photo itself has no share in the background.
LEARNED_ALONE = RegionOptions(own_pixels=1 << 30, max_deviation=4.0, n_trace_filters=2)


def test_statistics_are_filtered_clipped_and_centred(rng):
    contrast = made_contrast(rng)
    vectors, pixels = rng.normal(size=(40, 5)), rng.integers(1, 300, 40).astype(float)
    vectors[7] = 1e6  # pulls no more than a value at the limit
    found = contrast.statistics(vectors, pixels, 0.25, LEARNED_ALONE)
    assert found.scaled_within
    assert found.weight == 0.25
    np.testing.assert_array_equal(found.pixels, pixels)
    seen = vectors @ contrast.filters(contrast.within, 2)
    seen = np.clip(seen - np.median(seen, axis=0), -4.0, 4.0)
    seen -= (pixels @ seen) / pixels.sum()
    np.testing.assert_allclose(found.total, seen * pixels[:, None], rtol=2e-3, atol=0.1)
    np.testing.assert_allclose(found.total.sum(axis=0), 0.0, atol=1e-6)


@pytest.mark.parametrize("own_pixels", [1000, 20_000])
def test_the_background_is_a_mixture_of_learned_photos_and_the_photo_itself(rng, own_pixels):
    """The share of a photo of n pixels is ``n / (n + own_pixels)``."""
    contrast, n = made_contrast(rng), 300
    vectors = rng.normal(size=(n, 5)) @ rng.normal(size=(5, 5))
    pixels = rng.integers(50, 80, n).astype(float)
    options = RegionOptions(own_pixels=own_pixels, max_deviation=100.0)
    found = contrast.statistics(vectors, pixels, 1.0, options)
    share = pixels.sum() / (pixels.sum() + own_pixels)
    own = np.cov(vectors.T, bias=True, aweights=pixels)
    filters = contrast.filters((1.0 - share) * contrast.within + share * own, 5)
    seen = vectors @ filters
    seen -= pixels @ seen / pixels.sum()
    expected = seen * pixels[:, None]
    assert_same_filters(found.total, expected, 1e-6)


def test_traces_that_drift_over_a_photo_are_less_evidence(rng):
    """They tell two halves apart, but so they do everywhere: a seam is a step."""
    contrast = TraceContrast(np.diag([9.0, 1.0]), np.eye(2))
    place = np.linspace(-1.0, 1.0, 400)
    pixels, side = np.full(400, 256.0), place > 0.0
    drifting = rng.normal(scale=0.3, size=(400, 2))
    drifting[:, 0] += 8.0 * place
    alone, mixed = (
        contrast.statistics(drifting, pixels, 1.0, RegionOptions(own_pixels=own)).evidence(side)
        for own in (1 << 30, 100_000)
    )
    assert 0.0 < mixed < 0.5 * alone


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
    contrast = TraceContrast(np.eye(4), np.eye(4))
    with pytest.raises(ValueError, match=r"by 4 traces, and a photo has 6: train it with this"):
        contrast.statistics(np.zeros((9, 6)), np.ones(9), 1.0, RegionOptions())
