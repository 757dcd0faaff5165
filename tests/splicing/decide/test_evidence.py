from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.decide.evidence import LikelihoodTable, log_strength, strength_unit
from cpcapp.splicing.decide.options import RegionOptions

TABLE = LikelihoodTable(np.array([-1.0, 1.0]), np.array([-3.0, 3.0]))


@pytest.mark.parametrize(
    ("value", "ratio"),
    [
        ([0.0], [1.0]),
        ([1.0, 0.0], [0.0, 1.0]),
        ([0.0, 0.0], [0.0, 1.0]),
        ([0.0, 2.0, 1.0], [0.0, 1.0, 2.0]),
        ([0.0, np.nan], [0.0, 1.0]),
        ([0.0, 1.0], [0.0, np.inf]),
        ([0.0, 1.0], [0.0]),
        ([[0.0, 1.0]], [[0.0, 1.0]]),
        ([0.0, 2e6], [0.0, 1.0]),
        (np.arange(10_001.0), np.zeros(10_001)),
    ],
)
def test_a_table_that_makes_no_sense_is_an_error(value, ratio):
    with pytest.raises(ValueError, match="value"):
        LikelihoodTable(np.array(value), np.array(ratio))


def test_the_ratio_is_linear_in_the_logarithm_and_constant_beyond():
    found = TABLE(log_strength(np.exp([-9.0, -1.0, 0.0, 0.5, 1.0, 9.0])))
    np.testing.assert_allclose(found, [-3.0, -3.0, 0.0, 1.5, 3.0, 3.0])
    # Of no strength at all no logarithm is taken.
    assert log_strength(np.zeros(1)).tolist() == [np.log(1e-6)]


def test_two_normal_distributions_have_a_straight_ratio(rng):
    """``log N(x; 2, 1)/N(x; 0, 1) = 2x - 2``, where seams are; beyond its ends it is constant."""
    found = LikelihoodTable.learn(*(rng.normal(mean, 1.0, 200_000) for mean in (2.0, 0.0)))
    x = np.array([1.0, 1.5, 2.0, 2.5, 3.0])
    np.testing.assert_allclose(found(x), 2 * x - 2, atol=0.15)


def test_evidence_never_falls_with_strength(rng):
    """Even where the strengths at hand say so."""
    seam = np.concatenate([rng.uniform(0.1, 0.2, 500), rng.uniform(1.0, 2.0, 500)])
    other = rng.uniform(0.5, 3.0, 5000)
    found = LikelihoodTable.learn(np.log(seam), np.log(other))
    assert (np.diff(found.ratio) >= 0.0).all()
    assert (np.diff(found.value) > 0.0).all()


def test_the_ratio_is_that_of_counts(rng):
    """In bins that each hold a 24th of the seam's pixels, each count one more than it is."""
    seam, other = np.log(rng.uniform(1.0, 2.0, 240)), np.log(rng.uniform(0.5, 2.5, 700))
    found = LikelihoodTable.learn(seam, other)
    inner = np.quantile(seam, np.arange(1, 24) / 24)
    place = np.searchsorted(inner, other, side="right")
    n_other = np.bincount(place, minlength=24) + 1.0
    n_seam = np.bincount(np.searchsorted(inner, seam, side="right")) + 1.0
    expected = np.log(n_seam / n_seam.sum()) - np.log(n_other / n_other.sum())
    np.testing.assert_allclose(found.ratio, np.maximum.accumulate(expected), atol=1e-9)
    np.testing.assert_allclose(found.value[1:-1], (inner[1:] + inner[:-1]) / 2, atol=1e-9)
    # The outer bins have no middle: half a unit beyond the last quantiles.
    assert found.value[[0, -1]] == pytest.approx([inner[0] - 0.5, inner[-1] + 0.5])


def test_what_was_never_seen_is_not_impossible():
    seam, other = (np.log(np.linspace(low, 2 * low, 50)) for low in (1.0, 0.1))
    found = LikelihoodTable.learn(seam, other)
    assert np.isfinite(found.ratio).all()
    assert found(np.array([-20.0])) < found(np.array([1.0]))


@pytest.mark.parametrize("spread", [1.0, 1e-6])
def test_a_table_survives_json(rng, spread):
    """Also one whose values hardly differ: it could not be read if they no longer rose."""
    found = LikelihoodTable.learn(rng.normal(0.0, spread, 99), rng.normal(0.0, 1.0, 99))
    again = LikelihoodTable.from_dict(json.loads(json.dumps(found.to_dict())))
    np.testing.assert_array_equal(again.value, found.value)
    np.testing.assert_allclose(again.ratio, found.ratio, atol=1e-4)
    assert again.to_dict() == found.to_dict()


def test_a_single_peak_does_not_hide_the_seam(rng):
    """A photo's strengths are compared with each other, not with the one that is highest."""
    strength = rng.gamma(1.0, 0.05, 20_000).astype(np.float32)
    peak = strength.copy()
    peak[0] = 100.0 * strength.max()
    size = 300 * 400
    assert strength_unit(peak, size) == pytest.approx(strength_unit(strength, size), rel=1e-3)


@pytest.mark.parametrize("factor", [0.2, 3.0])
def test_strengths_have_no_unit(rng, factor):
    strength = rng.gamma(1.0, 0.2, 20_000).astype(np.float32)
    unit = strength_unit(strength, 90_000)
    assert strength_unit(strength * factor, 90_000) == pytest.approx(factor * unit, rel=1e-5)
    assert (strength > unit).sum() == 1200  # four times the square root of the pixels


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
    assert strength_unit(strength, side**2, options) == pytest.approx(unit, rel=1e-5)


def test_strengths_where_there_are_none():
    assert strength_unit(np.zeros(0, np.float32), 100) == 1.0
    assert strength_unit(np.zeros(10, np.float32), 100) == RegionOptions().min_strength_unit


def test_a_map_without_a_scale_has_the_least_unit():
    strength = np.zeros(2000, dtype=np.float32)
    strength[:9] = 0.5
    assert strength_unit(strength, 10_000) == pytest.approx(0.01)
    wider = RegionOptions(min_strength_unit=0.25)
    assert strength_unit(strength, 10_000, wider) == pytest.approx(0.25)
