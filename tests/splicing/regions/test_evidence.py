from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.regions.evidence import SeamEvidence, relative_strength
from cpcapp.splicing.regions.options import RegionOptions

RULE = SeamEvidence(np.array([-1.0, 1.0]), np.array([-3.0, 3.0]), prior=0.5)


@pytest.mark.parametrize(
    ("strength", "ratio"),
    [
        ([0.0], [1.0]),
        ([1.0, 0.0], [0.0, 1.0]),
        ([0.0, 0.0], [0.0, 1.0]),
        ([0.0, 2.0, 1.0], [0.0, 1.0, 2.0]),
        ([0.0, np.nan], [0.0, 1.0]),
        ([0.0, 1.0], [0.0, np.inf]),
        ([0.0, 1.0], [0.0]),
        ([[0.0, 1.0]], [[0.0, 1.0]]),
    ],
)
def test_evidence_that_makes_no_sense_is_an_error(strength, ratio):
    with pytest.raises(ValueError, match="strength"):
        SeamEvidence(np.array(strength), np.array(ratio))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prior": np.nan}, "prior=nan.*must be finite"),
        ({"mosaic_weight": np.inf}, "mosaic_weight=inf.*must be finite"),
        ({"trim_per_pixel": np.nan}, "trim_per_pixel=nan.*must be finite"),
        ({"mosaic_weight": -0.1}, "mosaic_weight=-0.1 and .* must be at least 0"),
        ({"trim_per_pixel": -0.1}, "trim_per_pixel=-0.1 must be at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_an_error(settings, message):
    with pytest.raises(ValueError, match=message):
        SeamEvidence(np.array([0.0, 1.0]), np.array([0.0, 1.0]), **settings)


def test_weights_may_be_0():
    none = SeamEvidence(RULE.strength, RULE.ratio, mosaic_weight=0.0, trim_per_pixel=0.0)
    assert (none.mosaic_weight, none.trim_per_pixel) == (0.0, 0.0)


def test_the_ratio_is_linear_in_the_logarithm_and_constant_beyond():
    found = RULE(np.exp([-9.0, -1.0, 0.0, 0.5, 1.0, 9.0]))
    np.testing.assert_allclose(found, np.array([-3.0, -3.0, 0.0, 1.5, 3.0, 3.0]) - 0.5)
    assert RULE(np.zeros(1)).tolist() == [-3.5]  # of no strength at all no logarithm is taken


def test_two_normal_distributions_have_a_straight_ratio(rng):
    """``log N(x; 2, 1)/N(x; 0, 1) = 2x - 2``, where seams are; beyond its ends it is constant."""
    seam, other = (np.exp(rng.normal(mean, 1.0, 200_000)) for mean in (2.0, 0.0))
    found = SeamEvidence.learn(seam, other, prior=0.0)
    for x in (1.0, 1.5, 2.0, 2.5, 3.0):
        assert float(found(np.exp(x))) == pytest.approx(2 * x - 2, abs=0.15)
    with_prior = SeamEvidence.learn(seam, other, prior=1.5)
    np.testing.assert_allclose(with_prior(seam[:9]), found(seam[:9]) - 1.5)


def test_evidence_never_falls_with_strength(rng):
    """Even where the strengths at hand say so."""
    seam = np.concatenate([rng.uniform(0.1, 0.2, 500), rng.uniform(1.0, 2.0, 500)])
    other = rng.uniform(0.5, 3.0, 5000)
    found = SeamEvidence.learn(seam, other)
    assert (np.diff(found.ratio) >= 0.0).all()
    assert (np.diff(found.strength) > 0.0).all()


def test_the_ratio_is_that_of_counts(rng):
    """In bins that each hold a 24th of the seam's pixels, each count one more than it is."""
    seam, other = rng.uniform(1.0, 2.0, 240), rng.uniform(0.5, 2.5, 700)
    found = SeamEvidence.learn(seam, other, prior=0.0)
    inner = np.quantile(np.log(seam), np.arange(1, 24) / 24)
    place = np.searchsorted(inner, np.log(other), side="right")
    n_other = np.bincount(place, minlength=24) + 1.0
    n_seam = np.bincount(np.searchsorted(inner, np.log(seam), side="right")) + 1.0
    expected = np.log(n_seam / n_seam.sum()) - np.log(n_other / n_other.sum())
    np.testing.assert_allclose(found.ratio, np.maximum.accumulate(expected), atol=1e-9)
    np.testing.assert_allclose(found.strength[1:-1], (inner[1:] + inner[:-1]) / 2, atol=1e-9)
    # The outer bins have no middle: half a unit beyond the last quantiles.
    assert found.strength[[0, -1]] == pytest.approx([inner[0] - 0.5, inner[-1] + 0.5])


def test_what_was_never_seen_is_not_impossible():
    found = SeamEvidence.learn(np.linspace(1.0, 2.0, 50), np.linspace(0.1, 0.2, 50))
    assert np.isfinite(found.ratio).all()
    assert found(np.array([1e-9]))[0] < found(np.array([3.0]))[0]


def test_evidence_survives_json():
    rule = SeamEvidence(
        np.array([-1.5, 0.25]), np.array([-3.0, 2.0]), 0.5, mosaic_weight=0.25, trim_per_pixel=2.0
    )
    again = SeamEvidence.from_dict(json.loads(json.dumps(rule.to_dict())))
    assert again.to_dict() == rule.to_dict()
    assert (again.prior, again.mosaic_weight, again.trim_per_pixel) == (0.5, 0.25, 2.0)
    np.testing.assert_array_equal(again.strength, rule.strength)
    np.testing.assert_array_equal(again.ratio, rule.ratio)


def test_a_single_peak_does_not_hide_the_seam(rng):
    """A photo's strengths are compared with each other, not with the one that is highest."""
    strength = rng.gamma(1.0, 0.05, 20_000).astype(np.float32)
    peak = strength.copy()
    peak[0] = 100.0 * strength.max()
    size = 300 * 400
    np.testing.assert_allclose(
        relative_strength(peak, size)[1:], relative_strength(strength, size)[1:], rtol=1e-3
    )


@pytest.mark.parametrize("factor", [0.2, 3.0])
def test_strengths_have_no_unit(rng, factor):
    strength = rng.gamma(1.0, 0.2, 20_000).astype(np.float32)
    found = relative_strength(strength, 90_000)
    np.testing.assert_allclose(relative_strength(strength * factor, 90_000), found, rtol=1e-5)
    assert (found > 1.0).sum() == 1200  # four times the square root of the pixels


@given(
    n=st.integers(1, 300),
    side=st.integers(8, 40),
    factor=st.sampled_from([1.0, 2.0, 4.0]),
)
def test_the_unit_is_what_so_many_pixels_exceed(n, side, factor):
    """Against sorting all strengths; with fewer pixels than that, the weakest is the unit."""
    strength = np.random.default_rng(n).permutation(np.arange(1, n + 1) / n).astype(np.float32)
    options = RegionOptions(seam_length_factor=factor, min_strength_unit=1e-6)
    unit = np.sort(strength)[::-1][min(int(factor * side), n - 1)]
    found = relative_strength(strength, side**2, options)
    np.testing.assert_allclose(found, strength / unit, rtol=1e-5)


def test_strengths_where_there_are_none():
    assert relative_strength(np.zeros(0, np.float32), 100).shape == (0,)
    assert not relative_strength(np.zeros(10, np.float32), 100).any()


def test_a_map_without_a_scale_has_the_least_unit():
    strength = np.zeros(2000, dtype=np.float32)
    strength[:9] = 0.5
    assert relative_strength(strength, 10_000)[:9].tolist() == pytest.approx([50.0] * 9)
    wider = RegionOptions(min_strength_unit=0.25)
    assert relative_strength(strength, 10_000, wider)[0] == pytest.approx(2.0)
