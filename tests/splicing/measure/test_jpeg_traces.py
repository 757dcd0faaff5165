from __future__ import annotations

import io
import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score

from cpcapp.splicing import read_image
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.measure import jpeg_traces
from cpcapp.splicing.measure.jpeg_traces import (
    N_JPEG_TRACES,
    _histogram,
    _requantization,
    _rounded_histogram,
    coefficients_from_pixels,
    double_jpeg_trace,
    jpeg_block_traces,
)
from cpcapp.splicing.photo.read import read_coefficients


def encode(pixels, quality):
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "JPEG", quality=quality)
    return file.getvalue()


def compress(pixels, quality):
    return np.asarray(Image.open(io.BytesIO(encode(pixels, quality))).convert("RGB"))


def table_of(quality):
    return read_coefficients(encode(np.zeros((16, 16, 3), np.uint8), quality)).table


@pytest.fixture(scope="module")
def photo():
    """Resized, so that it has no grid of its own: (448, 448, 3)."""
    (pixels,) = [sample.image for sample in example_photos() if sample.authentic]
    return cv2.resize(pixels, (448, 448), interpolation=cv2.INTER_AREA)


INSIDE = np.zeros((56, 56), dtype=bool)
INSIDE[20:42, 20:44] = True


def paste(host, part):
    pixels = host.copy()
    pixels[160:336, 160:352] = part[160:336, 160:352]
    return pixels


def area(values):
    return roc_auc_score(INSIDE.ravel(), values.ravel())


# -- on one grid --------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "last"), [(60, 75), (60, 95), (70, 90), (80, 90), (85, 95)])
def test_a_part_that_was_compressed_once(photo, first, last):
    data = encode(paste(compress(photo, first), photo), last)
    found = double_jpeg_trace(read_coefficients(data))
    assert found.aligned.dtype == np.float32
    assert area(found.aligned) > 0.95
    assert found.aligned[INSIDE].mean() > found.aligned[~INSIDE].mean() + 0.5
    known = found.first_table > 0
    assert known.sum() >= 8
    right = found.first_table[known] == table_of(first)[known]
    assert right.mean() >= 0.8


def test_an_earlier_grid_is_sought_only_for_those_who_ask(photo, monkeypatch):
    """It takes longer than all else, and few look at it."""
    monkeypatch.setattr(jpeg_traces, "find_shift", lambda *_: pytest.fail("sought"))
    assert double_jpeg_trace(read_coefficients(encode(photo, 90))).aligned.any()


@pytest.mark.parametrize("quality", [50, 75, 85, 90, 95, 98])
def test_no_contrast_in_a_photo_that_was_saved_once(photo, quality):
    found = double_jpeg_trace(read_coefficients(encode(photo[5:, 3:], quality)))
    assert not found.first_table.any()
    assert (found.aligned == 0.5).all()
    assert not found.shifted.any()


def test_the_likelihood_of_requantization():
    """Against a simulation: multiples of 7, noise, multiples of 3."""
    reach = 10
    found = _requantization(7, 3, reach)
    rng = np.random.default_rng(0)
    middle = len(found) // 2
    for multiple in (-2, 0, 1, 3):
        noisy = np.rint((7 * multiple + rng.normal(scale=0.45, size=100_000)) / 3)
        for value in range(-reach, reach + 1):
            wanted = (noisy == value).mean()
            assert found[middle + multiple, value + reach] == pytest.approx(wanted, abs=0.01)


def test_the_constants_are_those_of_the_benchmark():
    results = Path(__file__).parents[3] / "benchmarks" / "results" / "double_jpeg.json"
    fit = json.loads(results.read_text())["fit"]
    found = (jpeg_traces._SLOPE, jpeg_traces._CENTRE, jpeg_traces._OFFSET)
    assert found == (fit["slope"], fit["centre"], fit["offset"])
    assert (0.0, *fit["said"], 1.0) == jpeg_traces._FIT
    assert (0.0, *fit["held"], 1.0) == jpeg_traces._TRUE


def test_real_photos_and_the_probability(data_folder):
    """Over photos that the constants are not from."""
    folder = data_folder / "bsds500" / "images" / "val"
    paths = sorted(folder.glob("*.jpg"))[:40:2]
    probabilities, labels = [], []
    for number, path in enumerate(paths):
        pixels = read_image(path).pixels
        other = np.resize(read_image(paths[number - 1]).pixels, pixels.shape)
        if other.shape != pixels.shape or pixels.shape[0] > pixels.shape[1]:
            continue
        first, last = ((60, 75), (80, 85), (85, 90), (70, 95))[number % 4]
        host = compress(pixels[3:, 5:], first).copy()
        host[80:200, 120:300] = other[81:201, 121:301]
        found = double_jpeg_trace(read_coefficients(encode(host, last))).aligned
        inside = np.zeros(found.shape, dtype=bool)
        inside[10:25, 15:37] = True
        probabilities.append(found.ravel())
        labels.append(inside.ravel())
    probability, label = np.concatenate(probabilities), np.concatenate(labels)
    assert roc_auc_score(label, probability) > 0.9
    assert label[probability > 0.9].mean() > 0.8
    assert label[probability < 0.1].mean() < 0.1


# -- on a shifted grid ----------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [(3, 6), (1, 1), (0, 3), (7, 2)])
def test_a_host_with_an_earlier_grid_elsewhere(photo, offset):
    host = np.roll(compress(photo, 60), offset, (0, 1))
    found = double_jpeg_trace(read_coefficients(encode(paste(host, photo), 92)))
    assert found.offset == offset
    assert area(-found.shifted) > 0.85


def test_a_pasted_part_with_an_earlier_grid_elsewhere(photo):
    donor = np.roll(compress(photo, 60), (5, 2), (0, 1))
    pixels = photo.copy()
    pixels[:, :224] = donor[:, :224]
    found = double_jpeg_trace(read_coefficients(encode(pixels, 95)))
    assert found.offset == (5, 2)
    left = np.tile(np.arange(56) < 28, (56, 1))
    assert roc_auc_score(left.ravel(), found.shifted.ravel()) > 0.85


# -- without a file -------------------------------------------------------------------------------


def test_pixels_show_the_table(photo):
    found = coefficients_from_pixels(compress(photo, 75))
    known = found.table > 1
    assert known.sum() >= 8
    np.testing.assert_array_equal(found.table[known], table_of(75)[known])


def test_pixels_of_a_photo_that_was_never_compressed_show_none(rng):
    noise = rng.normal(128, 20, (160, 240, 3)).clip(0, 255).astype(np.uint8)
    assert (coefficients_from_pixels(noise).table == 1).all()


def test_a_splice_that_was_saved_without_loss(photo):
    found = double_jpeg_trace(coefficients_from_pixels(paste(compress(photo, 75), photo)))
    assert area(found.aligned) > 0.95


# -- any input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (7, 90), (8, 8), (15, 40), (16, 16), (24, 70)])
@pytest.mark.parametrize("level", [None, 0, 128, 255])
def test_any_size_and_flat(shape, level, rng):
    pixels = rng.integers(0, 256, (*shape, 3)) if level is None else np.full((*shape, 3), level)
    pixels = pixels.astype(np.uint8)
    for coefficients in (
        read_coefficients(encode(pixels, 85)),
        read_coefficients(encode(pixels[..., 0], 85)),
        coefficients_from_pixels(pixels),
    ):
        found = double_jpeg_trace(coefficients)
        wanted = (shape[0] // 8, shape[1] // 8)
        assert found.aligned.shape == found.shifted.shape == wanted
        assert found.first_table.shape == (8, 8)
        assert np.isfinite(found.aligned).all()
        assert np.isfinite(found.shifted).all()
        if level is not None:
            assert (found.aligned == 0.5).all()


@pytest.mark.parametrize("step", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("reach", [4, 20])
def test_sorted_values_are_counted_as_rounded_ones(rng, step, reach):
    """Halves too, which are rounded to even numbers."""
    values = np.concatenate([rng.normal(0, 30, 3000), np.arange(-80, 80, 0.5)]).astype(np.float32)
    expected = _histogram(np.rint(values.astype(np.float64) / step), reach)
    np.testing.assert_array_equal(_rounded_histogram(np.sort(values), step, reach), expected)


# -- in the blocks of the network -----------------------------------------------------------------


@pytest.fixture(scope="module")
def spliced(photo):
    """Saved twice, but for a part of blocks that was saved once."""
    return read_image(encode(paste(compress(photo, 60), photo), 90))


@pytest.mark.parametrize(
    ("shape", "offset", "blocks"),
    [
        ((20, 40), (0, 0), (3, 5)),
        ((20, 40), (3, 7), (4, 6)),
        ((24, 40), (1, 0), (4, 5)),
        ((24, 40), (8, 16), (3, 5)),
        ((1, 1), (0, 0), (1, 1)),
        ((5, 3), (4, 2), (2, 2)),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_blocks_that_are_cut_off_count_too(shape, offset, blocks, known, rng):
    pixels = rng.integers(0, 256, (*shape, 3), dtype=np.uint8)
    found = jpeg_block_traces(pixels, np.full((8, 8), 5) if known else None, offset)
    assert (found.shape, found.dtype) == ((*blocks, N_JPEG_TRACES), np.float32)
    assert np.isfinite(found).all()


def test_a_part_that_was_compressed_once_stands_out(spliced):
    evidence = jpeg_block_traces(spliced.pixels, spliced.jpeg_table)[..., 0]
    assert roc_auc_score(INSIDE.ravel(), evidence.ravel()) > 0.95
    assert np.median(evidence[INSIDE]) > 1.0 > -1.0 > np.median(evidence[~INSIDE])
    # Logarithms of odds of 50 to 1 at most.
    assert np.abs(evidence).max() <= np.log(0.98 / 0.02) + 1e-5


def test_the_grid_may_begin_anywhere(spliced):
    whole = jpeg_block_traces(spliced.pixels, spliced.jpeg_table)
    part = spliced.pixels[5:, 2:]
    there, elsewhere = (
        jpeg_block_traces(part, spliced.jpeg_table, offset) for offset in ((3, 6), (0, 0))
    )
    assert there.shape == whole.shape
    # Only blocks at the border have other pixels; a coefficient may round across the limit.
    np.testing.assert_allclose(there[4:, 4:, 1], whole[4:, 4:, 1], atol=0.01)
    assert roc_auc_score(INSIDE.ravel(), there[..., 0].ravel()) > 0.95
    assert elsewhere[..., 1].mean() < 0.2 * there[..., 1].mean()


def test_without_a_table_nothing_speaks_for_one_compression_or_two(spliced):
    found = jpeg_block_traces(spliced.pixels)
    assert not found[..., 0].any()
    known = jpeg_block_traces(spliced.pixels, spliced.jpeg_table)
    np.testing.assert_array_equal(found[..., 1], known[..., 1])
