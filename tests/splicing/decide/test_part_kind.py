"""What is drawn on a photo has a seam; the explanation says so where it is marked."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from cpcapp.splicing import load_model
from cpcapp.splicing.decide.part_kind import find_part_kind
from cpcapp.splicing.decide.words import PART_TEXTS, explain_verdict
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.make.cuts import SpliceOptions
from cpcapp.splicing.make.splices import make_splice
from cpcapp.splicing.photo.samples import photos_from

PHOTO = next(sample for sample in example_photos() if sample.authentic).image
HEIGHT, WIDTH = PHOTO.shape[:2]


def write(picture, place, text, colour, size):
    ImageDraw.Draw(picture).text(place, text, colour, ImageFont.load_default(size))


def bar(top, bottom, colour, text, size, left=0, right=WIDTH):
    picture = Image.fromarray(PHOTO)
    ImageDraw.Draw(picture).rectangle((left, top, right - 1, bottom - 1), colour)
    write(picture, (left + 10, top + 4), text, "white", size)
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[top:bottom, left:right] = True
    return np.asarray(picture), mask


def caption():
    return bar(HEIGHT - 60, HEIGHT, "black", "The mayor opened the bridge", 30)


def lower_third():
    return bar(350, 420, (20, 60, 160), "Live from the launch", 32, 30, 400)


def date_bar():
    return bar(0, 26, "black", "2019-04-17 12:07:41 CAM 03", 18)


def frame():
    picture, mask = np.full_like(PHOTO, 255), np.ones((HEIGHT, WIDTH), bool)
    inner = np.s_[24:-24, 24:-24]
    picture[inner], mask[inner] = PHOTO[inner], False
    return picture, mask


def pixelated_face():
    picture, mask = PHOTO.copy(), np.zeros((HEIGHT, WIDTH), bool)
    box = np.s_[40:200, 160:320]
    small = Image.fromarray(PHOTO[box]).resize((10, 10), Image.Resampling.BOX)
    picture[box] = np.asarray(small.resize((160, 160), Image.Resampling.NEAREST))
    mask[box] = True
    return picture, mask


# Nothing but the pasted part differs from the host.
AS_IT_IS = SpliceOptions(camera_share=0.0, host_jpeg_share=0.0, jpeg_share=0.0)
DRAWN = [caption, lower_third, date_bar, frame, pixelated_face]


@pytest.fixture(scope="module")
def model():
    return load_model("default")


@pytest.mark.parametrize("draw", DRAWN)
def test_drawn_parts_are_known_by_their_pixels(draw):
    picture, mask = draw()
    assert find_part_kind(picture, mask) == "graphic"
    assert find_part_kind(picture.astype(np.uint16) * 257, mask) == "graphic"


@pytest.mark.parametrize("draw", DRAWN)
def test_where_they_are_marked_the_explanation_says_so(model, draw):
    picture, mask = draw()
    found = model.localize(picture)
    if (found.mask & mask).sum() > 0.5 * mask.sum():
        assert found.part_kind == "graphic"
        sentence = "The marked part looks like a caption, a frame or a logo, which has a seam too."
        assert explain_verdict(found).startswith(sentence)
    else:  # not found, or too little of it to say what it is
        assert found.verdict_code in ("none", "weak")


def test_half_of_a_collage():
    other = example_photos()[0].image[:HEIGHT, :WIDTH]
    picture = np.concatenate([PHOTO[: len(other)], other], axis=1)
    mask = np.zeros(picture.shape[:2], bool)
    mask[:, WIDTH:] = True
    assert find_part_kind(picture, mask) == "collage"


def test_pasted_objects_are_usual_ones(model):
    for sample in example_photos().spliced:
        assert find_part_kind(sample.image, sample.mask) is None
        found = model.localize(sample.photo)
        assert found.mask.any() and found.part_kind is None
        assert not any(text in explain_verdict(found).lower() for text in PART_TEXTS.values())


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (7, 7), (HEIGHT, 1), (HEIGHT, WIDTH)])
def test_parts_of_any_size(shape):
    mask = np.zeros((HEIGHT, WIDTH), bool)
    assert find_part_kind(PHOTO, mask) is None
    mask[-shape[0] :, -shape[1] :] = True
    assert find_part_kind(PHOTO, mask) in (None, "graphic")


def test_without_signs_there_is_no_part(model):
    assert model.localize(PHOTO).part_kind is None


def test_a_photo_with_a_pasted_object_scores_higher_than_without_it(model, data_folder):
    photos = photos_from([data_folder / "web_genuine", data_folder / "ucid"])
    hosts = [photo.read()[:400, :480] for photo in photos[::12]]
    higher, drawn = 0, 0
    for number, host in enumerate(hosts):
        donor = hosts[(number + 7) % len(hosts)]
        splice = make_splice(host, donor, np.random.default_rng(number), AS_IT_IS)
        genuine, spliced = model.localize(host), model.localize(splice.image)
        higher += spliced.score > genuine.score
        drawn += find_part_kind(splice.image, splice.mask) is not None
    assert len(hosts) == 20
    assert higher >= 18
    assert drawn <= 1
