"""Pictures in the size of a page."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from cpcapp.reports.pictures import encode_jpeg, encode_png


@pytest.mark.parametrize("encode", [encode_jpeg, encode_png])
@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((40, 60, 3), (60, 40)),
        ((40, 60), (60, 40)),
        ((400, 100, 3), (25, 100)),
        ((1, 5000, 3), (100, 1)),
    ],
)
def test_size_and_content(encode, shape, size):
    rng = np.random.default_rng(0)
    picture = np.full(shape, 200, np.uint8)
    picture[: shape[0] // 2] = rng.integers(20, 40)
    encoded = encode(picture, 100)
    with Image.open(io.BytesIO(encoded.content)) as image:
        assert image.size == size == (encoded.width, encoded.height)
        shown = np.asarray(image).astype(int)
    assert shown.mean() == pytest.approx(picture.mean(), abs=4)
    assert shown.ndim == len(shape)


def test_noise():
    noise = np.random.default_rng(0).integers(0, 255, (400, 600, 3), dtype=np.uint8)
    assert len(encode_jpeg(noise, 600).content) > 100_000
