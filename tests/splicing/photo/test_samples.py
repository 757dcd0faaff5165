from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest

from cpcapp.splicing.datasets import open_photos
from cpcapp.splicing.photo.jpeg import encode_jpeg
from cpcapp.splicing.photo.read import read_image
from cpcapp.splicing.photo.samples import Sample
from trace_networks import textured

JPEG = encode_jpeg(textured(30, 41), 80)


def test_a_sample_of_a_photo_knows_what_the_file_says():
    mask = partial(np.ones, (30, 41), bool)
    for sample in (
        Sample.of_photo("one", partial(read_image, JPEG)),
        Sample.of_photo("two", partial(read_image, JPEG), mask),
    ):
        expected = read_image(JPEG)
        np.testing.assert_array_equal(sample.photo.jpeg_table, expected.jpeg_table)
        np.testing.assert_array_equal(sample.image, expected.pixels)
        assert sample.photo.format == "JPEG"
        assert sample.authentic == (sample.name == "one") != sample.mask.any()
        # Samples are sent to other processes.
        again = pickle.loads(pickle.dumps(sample))
        np.testing.assert_array_equal(again.photo.pixels, expected.pixels)


def test_a_sample_of_pixels_has_no_file():
    photo = Sample("one", True, partial(textured, 20, 30)).photo
    np.testing.assert_array_equal(photo.pixels, textured(20, 30))
    assert (photo.jpeg_table, photo.format) == (None, "array")


@pytest.mark.parametrize("form", ["jpg", "png"])
def test_photos_of_a_folder_know_what_their_files_say(tmp_path, form):
    from PIL import Image

    path = tmp_path / f"one.{form}"
    Image.fromarray(textured(70, 81)).save(path)
    (sample,) = open_photos(tmp_path)
    assert (sample.photo.jpeg_table is not None) == (form == "jpg")
    assert sample.photo.name == f"one.{form}"
