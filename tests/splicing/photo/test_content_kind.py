"""Pictures that are no photos get no verdict, and photos keep theirs."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from cpcapp.splicing import load_model, read_image
from cpcapp.splicing.decide.words import explain_verdict, verdict_sentence
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.photo.file_facts import read_file_facts

WORDS = "The mayor opened the new bridge over the river today"
NO_PHOTO = "can't tell (not a photo)"


def page_of_text():
    page = Image.new("RGB", (480, 400), "white")
    for top in range(20, 380, 24):
        ImageDraw.Draw(page).text((20, top), WORDS, "black", ImageFont.load_default(16))
    return page


def screenshot():
    """A dark window with a bar, a list, and a small photo."""
    screen = Image.new("RGB", (640, 420), (24, 26, 32))
    draw = ImageDraw.Draw(screen)
    draw.rectangle((0, 0, 640, 36), (60, 90, 200))
    for row in range(8):
        draw.rectangle((20, 60 + 42 * row, 430, 92 + 42 * row), (44, 48, 58), (90, 95, 110))
        draw.text((30, 66 + 42 * row), WORDS[: 40 - row], "white", ImageFont.load_default(15))
    photo = Image.fromarray(example_photos()[3].image).resize((48, 48))
    screen.paste(photo, (500, 80))
    return screen


def cartoon():
    picture = Image.new("RGB", (500, 400), (120, 200, 255))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 280, 500, 400), (90, 180, 70), "black", 4)
    draw.ellipse((60, 120, 220, 340), (250, 210, 60), "black", 5)
    draw.polygon([(300, 280), (380, 120), (460, 280)], (200, 60, 60), "black", 5)
    for x in (105, 155):
        draw.ellipse((x, 180, x + 20, 205), "white", "black", 3)
    return picture


def saved(picture, quality):
    file = io.BytesIO()
    if quality is None:
        picture.save(file, "PNG")
    else:
        picture.save(file, "JPEG", quality=quality)
    return file.getvalue()


@pytest.fixture(scope="module")
def model():
    return load_model("default")


@pytest.mark.parametrize("draw", [page_of_text, screenshot, cartoon])
@pytest.mark.parametrize("quality", [None, 90, 75])
def test_what_is_no_photo_has_no_verdict(model, draw, quality):
    data = saved(draw(), quality)
    image = read_image(data)
    found = model.localize(image)
    assert (found.verdict, found.verdict_code) == (NO_PHOTO, "unknown")
    assert not found.mask.any()
    assert "a screenshot or a drawing, not a photo" in verdict_sentence(found)
    assert "look for the photo itself" in explain_verdict(found)
    assert not read_file_facts(data, image).looks_like_photo


def test_a_model_without_calibration_says_so_too():
    assert load_model("paper").localize(np.asarray(page_of_text())).verdict == NO_PHOTO


def test_an_object_cut_out_on_white_is_a_photo():
    sample = example_photos()[1]
    white = np.where(sample.mask[..., None], sample.image, np.uint8(255))
    top, left = (int(rows.min()) for rows in np.nonzero(sample.mask))
    white = white[max(top - 60, 0) :, max(left - 60, 0) :]
    for quality in (None, 90, 75):
        data = saved(Image.fromarray(white), quality)
        assert read_image(data).content_kind.looks_like_photo, quality


def test_real_photos_are_photos(data_folder):
    """Some of them have large white or black parts."""
    for path in sorted((data_folder / "web_genuine").glob("*.jp*g")):
        assert read_image(path).content_kind.looks_like_photo, path.name
