from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score

from cpcapp.splicing import read_image
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.measure.jpeg_blocks import N_JPEG_TRACES, jpeg_block_traces
from cpcapp.splicing.photo.jpeg import luminance
from cpcapp.splicing.photo.jpeg_grid import near_zeros


def encode(pixels, quality):
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "JPEG", quality=quality)
    return file.getvalue()


@pytest.fixture(scope="module")
def photo():
    """Off the grid of its own file: (440, 440, 3)."""
    (pixels,) = [sample.image for sample in example_photos() if sample.authentic]
    return pixels[3:443, 5:445]


@pytest.fixture(scope="module")
def spliced(photo):
    """Saved twice, but for a part of blocks that was saved once."""
    pixels = read_image(encode(photo, 60)).pixels.copy()
    pixels[160:336, 160:352] = photo[160:336, 160:352]
    return read_image(encode(pixels, 90))


INSIDE = np.zeros((55, 55), dtype=bool)
INSIDE[20:42, 20:44] = True


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


def test_the_second_trace_is_near_zeros(spliced):
    found = jpeg_block_traces(spliced.pixels, spliced.jpeg_table)[..., 1]
    np.testing.assert_array_equal(found, near_zeros(luminance(spliced.pixels)))
    assert found.any()


def test_without_a_table_nothing_speaks_for_one_compression_or_two(spliced):
    found = jpeg_block_traces(spliced.pixels)
    assert not found[..., 0].any()
    known = jpeg_block_traces(spliced.pixels, spliced.jpeg_table)
    np.testing.assert_array_equal(found[..., 1], known[..., 1])
