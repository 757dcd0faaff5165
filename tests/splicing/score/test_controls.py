from __future__ import annotations

import io
from functools import partial

import cv2
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score

from cpcapp.splicing import read_image
from cpcapp.splicing.datasets.folders import photo_files
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.make.cuts import SpliceOptions
from cpcapp.splicing.make.splices import SpliceMaker
from cpcapp.splicing.photo.read import read_coefficients
from cpcapp.splicing.photo.samples import Sample, photos_from
from cpcapp.splicing.score.controls import (
    CONTROLS,
    block_error_level_map,
    constant_map,
    double_jpeg_map,
    error_level_map,
    third_difference_map,
)
from cpcapp.splicing.score.evaluate import evaluate
from cpcapp.splicing.score.protocols import boundary_band

EVERYWHERE = np.ones((60, 80), dtype=np.float32)
SURFACES = {
    *("grey level", "error level of blocks", "near-zeros"),
    *("double compression", "block contrast"),
}


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
        if name in SURFACES:
            return
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


# -- traces of JPEG -------------------------------------------------------------------------------


def encode(pixels, quality, **options):
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "JPEG", quality=quality, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def spliced():
    """An example photo at quality 70, but for a rectangle that has no grid, and its mask."""
    (pixels,) = [sample.image for sample in example_photos() if sample.authentic]
    photo = cv2.resize(pixels, (460, 420), interpolation=cv2.INTER_AREA)
    host = read_image(encode(photo, 70)).pixels
    mask = np.zeros(photo.shape[:2], dtype=bool)
    mask[150:320, 140:330] = True
    return np.where(mask[..., None], photo, host), mask


def area(values, mask):
    return roc_auc_score(mask.ravel(), values.ravel())


@pytest.mark.parametrize("crop", [(0, 0), (3, 6)])
@pytest.mark.parametrize("name", ["near-zeros", "double compression"])
def test_traces_from_pixels_alone_even_cropped(name, crop, spliced):
    pixels, mask = (part[crop[0] :, crop[1] :] for part in spliced)
    found = CONTROLS[name](pixels, np.zeros(mask.shape, np.float32))
    assert area(found, mask) > 0.95


def test_error_levels_of_blocks(spliced):
    pixels, mask = spliced
    assert area(block_error_level_map(pixels, np.zeros(mask.shape, np.float32)), mask) > 0.7


def sample_of(data, mask):
    return Sample(
        "photo",
        False,
        lambda: read_image(data).pixels,
        lambda: mask,
        partial(read_coefficients, data),
    )


@pytest.mark.parametrize("orientation", [1, 6, 3])
def test_controls_get_the_file_of_a_sample(spliced, orientation):
    """Also if the photo has to be turned, which the file's coefficients are not."""
    pixels, mask = spliced
    tags = Image.Exif()
    tags[274] = orientation
    data = encode(pixels, 92, exif=tags)
    upright = {1: mask, 6: np.rot90(mask, -1), 3: np.rot90(mask, 2)}[orientation]
    chosen = {name: CONTROLS[name] for name in ("double compression", "block contrast")}
    found = evaluate([sample_of(data, upright)], {}, controls=chosen, protocols=["surface"])
    assert not found.problems
    assert found.scores["double compression"]["surface"].mean.f1 > 0.85
    assert found.scores["block contrast"]["surface"].mean.mcc > 0.15


def test_a_file_of_another_size_is_not_used(spliced):
    pixels, mask = spliced
    edges = np.zeros(mask.shape, np.float32)
    other = read_coefficients(encode(pixels[:100], 92))
    np.testing.assert_array_equal(
        double_jpeg_map(pixels, edges, other), double_jpeg_map(pixels, edges)
    )


def test_a_file_that_is_damaged_is_a_problem(spliced, tmp_path):
    pixels, mask = spliced
    sample = Sample(
        "photo", False, lambda: pixels, lambda: mask, partial(read_coefficients, tmp_path / "lost")
    )
    found = evaluate([sample], {}, controls=CONTROLS, protocols=["surface"])
    assert found.n_scored == 0
    assert "does not exist" in found.problems[0].reason


def test_samples_of_a_folder_have_their_file(spliced, tmp_path):
    (tmp_path / "photo.jpg").write_bytes(encode(spliced[0], 90))
    Image.fromarray(spliced[0]).save(tmp_path / "plain.png")
    by_name = {sample.name: sample for sample in photo_files(tmp_path)}
    assert {name: sample.coefficients is None for name, sample in by_name.items()} == {
        "photo.jpg": False,
        "plain.png": True,
    }
    assert Sample("array", True, lambda: spliced[0]).coefficients is None
    jpeg, png = (example_photos()[number].coefficients for number in (2, 0))
    assert jpeg is not None
    assert png is None
