from __future__ import annotations

import numpy as np
import pytest

from cpcapp.splicing.regions.evidence import SeamEvidence, relative_strength


@pytest.mark.parametrize(
    ("strength", "ratio"),
    [([0.0], [1.0]), ([1.0, 0.0], [0.0, 1.0]), ([0.0, np.nan], [0.0, 1.0]), ([0.0, 1.0], [0.0])],
)
def test_evidence_that_makes_no_sense_is_an_error(strength, ratio):
    with pytest.raises(ValueError, match="strength"):
        SeamEvidence(np.array(strength), np.array(ratio))


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


def test_strengths_where_there_are_none():
    assert relative_strength(np.zeros(0, np.float32), 100).shape == (0,)
    assert not relative_strength(np.zeros(10, np.float32), 100).any()
