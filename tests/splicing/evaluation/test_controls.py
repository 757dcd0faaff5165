from __future__ import annotations

import numpy as np
import pytest

from cpcapp.splicing.evaluation.controls import (
    CONTROLS,
    constant_map,
    error_level_map,
    third_difference_map,
)
from cpcapp.splicing.evaluation.evaluate import evaluate
from cpcapp.splicing.evaluation.truth import boundary_band
from cpcapp.splicing.making.cuts import SpliceOptions
from cpcapp.splicing.making.splices import SpliceMaker
from cpcapp.splicing.photos.sources import photos_from

EVERYWHERE = np.ones((60, 80), dtype=np.float32)


@pytest.fixture
def noise(rng):
    return rng.integers(0, 256, (60, 80, 3), dtype=np.uint8)


@pytest.mark.parametrize("name", CONTROLS)
class TestEachControl:
    @pytest.mark.parametrize("shape", [(1, 1), (2, 7), (60, 81)])
    @pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
    def test_gives_a_map_of_the_photo(self, name, shape, dtype, rng):
        pixels = rng.integers(0, np.iinfo(dtype).max, (*shape, 3), dtype=dtype)
        found = CONTROLS[name](pixels, rng.random(shape, dtype=np.float32))
        assert (found.shape, found.dtype) == (shape, np.float32)
        assert found.min() >= 0.0
        assert found.max() <= 1.0

    def test_nothing_to_see(self, name):
        black = np.zeros((60, 80, 3), dtype=np.uint8)
        assert not CONTROLS[name](black, 0 * EVERYWHERE).any()

    def test_8_and_16_bits_are_the_same_photo(self, name, noise):
        deep = noise.astype(np.uint16) * 257
        np.testing.assert_allclose(
            CONTROLS[name](deep, EVERYWHERE), CONTROLS[name](noise, EVERYWHERE), atol=1e-5
        )

    def test_only_edges_are_marked(self, name, noise):
        if name == "grey level":
            return  # about surfaces
        edges = EVERYWHERE.copy()
        edges[:, 40:] = 0
        found = CONTROLS[name](noise, edges)
        assert not found[:, 60:].any()  # beyond the reach of the smoothing
        if name != "constant":
            assert found[:, :30].min() > 0.0

    def test_inputs_are_left_alone(self, name, noise):
        before, edges = noise.copy(), EVERYWHERE.copy()
        CONTROLS[name](noise, edges)
        np.testing.assert_array_equal(noise, before)
        np.testing.assert_array_equal(edges, EVERYWHERE)

    def test_shapes_that_do_not_fit(self, name, noise):
        with pytest.raises(ValueError, match=r"pixels have shape \(60, 80, 3\) and edges \(3, 4"):
            CONTROLS[name](noise, np.ones((3, 4), np.float32))
        with pytest.raises(ValueError, match="must be"):
            CONTROLS[name](noise[..., 0], EVERYWHERE)


def test_a_parabola_has_no_third_difference_but_a_step_has():
    column = np.arange(80)
    curve = np.tile((column**2).astype(np.uint16)[:, None], (60, 1, 3))
    # Away from the border, where the photo is continued by its last column.
    assert third_difference_map(curve, EVERYWHERE)[:, 14:-14].max() < 1e-4
    pixels = curve.copy()
    pixels[:, 40:] += 3000
    found = third_difference_map(pixels, EVERYWHERE)
    assert found[30, 14:-14].argmax() + 14 in (39, 40)
    # Across rows as along them.
    turned = third_difference_map(np.rot90(pixels), np.rot90(EVERYWHERE))
    np.testing.assert_allclose(turned, np.rot90(found), atol=1e-6)


def test_jpeg_leaves_flat_parts_alone_and_disturbs_a_cut():
    pixels = np.full((60, 80, 3), 90, dtype=np.uint8)
    pixels[:, 44:] = [200, 60, 30]
    found = error_level_map(pixels, EVERYWHERE)
    assert found[:, 40:48].mean() > 0.5
    assert found[:, :24].max() < 0.05


def test_on_hard_splices_a_high_pass_beats_the_edges_and_these_beat_nothing(data_folder):
    sources = photos_from([data_folder / "ucid"])[:30]
    samples = SpliceMaker(sources, SpliceOptions.hard(), seed=3).samples(8)
    scores = evaluate(samples, {}, controls=CONTROLS, protocols=["edge"]).scores
    mcc = {name: found["edge"].mean.mcc for name, found in scores.items()}
    assert mcc["constant"] == 0.0
    assert mcc["edge strength"] > 0.1
    assert mcc["third difference"] > mcc["edge strength"]
    assert mcc["error level analysis"] > mcc["edge strength"] + 0.05
    share = np.mean([boundary_band(sample.mask).mean() for sample in samples])
    assert scores["constant"]["edge"].mean.f1 == pytest.approx(2 * share / (1 + share), rel=0.1)
    assert not constant_map(samples[0].image, samples[0].mask.astype(np.float32)).any()
