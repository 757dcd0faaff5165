from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cpcapp.splicing import read_image
from cpcapp.splicing.photo.jpeg import (
    STANDARD_TABLE,
    decode_jpeg,
    encode_jpeg,
    file_quality,
    recompress,
    table_quality,
)


@pytest.fixture(scope="module")
def photo():
    return np.random.default_rng(0).integers(0, 256, (40, 56, 3), dtype=np.uint8)


def pillow_file(photo, quality):
    file = io.BytesIO()
    Image.fromarray(photo).save(file, "JPEG", quality=quality)
    return file.getvalue()


def libjpeg_table(quality):
    """As libjpeg makes it: scaled by whole percents, rounded, from 1 to 255."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return np.clip((STANDARD_TABLE.astype(int) * percent + 50) // 100, 1, 255)


@pytest.mark.parametrize("quality", range(20, 101))
def test_the_quality_of_a_file_is_what_it_was_saved_with(quality, photo):
    """For tables of libjpeg, by Pillow and by OpenCV, and for the formula itself."""
    for data in (pillow_file(photo, quality), encode_jpeg(photo, quality)):
        table = Image.open(io.BytesIO(data)).quantization[0]
        assert sorted(table) == sorted(libjpeg_table(quality).ravel())
        assert abs(file_quality(table) - quality) <= 1
        assert abs(read_image(data).jpeg_quality - quality) <= 1


def test_a_file_that_is_no_jpeg_has_no_quality(photo):
    file = io.BytesIO()
    Image.fromarray(photo).save(file, "PNG")
    assert read_image(file.getvalue()).jpeg_quality is None
    assert read_image(photo).jpeg_quality is None


def test_a_table_of_another_maker_is_judged_by_how_much_it_rounds():
    """A camera's table with steps moved about, as coarse as libjpeg's on the whole."""
    rng = np.random.default_rng(1)
    for quality in (40, 70, 90):
        table = rng.permutation(libjpeg_table(quality).ravel())
        assert abs(file_quality(table.tolist()) - quality) <= 1
    assert file_quality([1] * 64) == 99  # nothing is rounded by more than 1
    assert file_quality([255] * 64) <= 15


@given(st.integers(1, 100))
def test_the_scale_of_a_table_gives_its_quality(quality):
    """libjpeg's rule and back: 5000/q percent below 50, 200 - 2q from there on."""
    percent = 5000 / quality if quality < 50 else 200 - 2 * quality
    assert table_quality(percent / 100) == quality


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_coarser_tables_are_of_lower_quality(one, other):
    fine, coarse = sorted((one, other))
    assert 1 <= table_quality(coarse) <= table_quality(fine) <= 100


def test_recompressing_is_what_a_file_keeps(photo):
    """Read back by Pillow; the two decoders differ in rounding only."""
    found = recompress(photo, 80)
    np.testing.assert_array_equal(found, decode_jpeg(encode_jpeg(photo, 80)))
    decoded = np.asarray(Image.open(io.BytesIO(encode_jpeg(photo, 80))).convert("RGB"))
    assert np.abs(found.astype(int) - decoded).max() <= 3
    sixteen = photo.astype(np.uint16) * 257
    np.testing.assert_array_equal(recompress(sixteen, 80), found)


def test_red_stays_red():
    red = np.zeros((16, 16, 3), dtype=np.uint8)
    red[..., 0] = 200
    np.testing.assert_allclose(recompress(red, 95), red, atol=4)


@pytest.mark.parametrize("quality", [0, 101, -5])
def test_qualities_run_from_1_to_100(quality, photo):
    with pytest.raises(ValueError, match=f"quality={quality} must be from 1 to 100"):
        encode_jpeg(photo, quality)
    for end in (1, 100):
        assert (
            cv2.imdecode(np.frombuffer(encode_jpeg(photo, end), np.uint8), 1).shape == photo.shape
        )
