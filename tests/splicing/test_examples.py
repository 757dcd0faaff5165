"""The example photos that come with the package."""

from __future__ import annotations

import json
import pickle
from importlib.resources import files

import cv2
import numpy as np
import pytest

from cpcapp.splicing.examples import example_photos

FOLDER = files("cpcapp.splicing.examples")
NAMES = [photo.name for photo in example_photos()]


def photo_named(name):
    return next(photo for photo in example_photos() if photo.name == name)


def test_there_are_spliced_photos_and_an_authentic_one():
    photos = example_photos()
    assert len(photos.spliced) == 3
    assert len(photos.authentic) == 1
    assert photos[-1].authentic


@pytest.mark.parametrize("name", NAMES)
def test_photos_are_moderate_in_size_and_have_masks_that_fit(name):
    photo = photo_named(name)
    assert photo.image.dtype == np.uint8
    assert max(photo.image.shape) <= 800
    assert photo.mask.shape == photo.image.shape[:2]
    assert photo.authentic == (not photo.mask.any())
    if not photo.authentic:
        assert 0.02 < photo.mask.mean() < 0.3
        pieces, _ = cv2.connectedComponents(photo.mask.astype(np.uint8))
        assert pieces == 2  # one thing, and what is around it


def test_all_files_together_are_small():
    def size(folder):
        return sum(size(f) if f.is_dir() else len(f.read_bytes()) for f in folder.iterdir())

    assert size(FOLDER) < 1_500_000


@pytest.mark.parametrize("name", NAMES)
def test_the_source_and_licence_of_each_photo_are_told(name):
    assert f"`{name}`" in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["cup-in-the-sky.png", "shuttle-on-table.jpg"])
def test_the_mask_ends_at_the_very_pixel_where_a_hard_edge_is(name):
    photo = photo_named(name)
    change = np.abs(np.diff(photo.image.astype(float), axis=1)).mean(axis=2)

    def across(moved):
        mask = np.roll(photo.mask, moved, axis=1)
        return change[mask[:, 1:] != mask[:, :-1]].mean()

    assert all(across(0) > 3 * across(moved) for moved in (-4, -3, -2, -1, 1, 2, 3, 4))


def test_how_each_was_made_is_told_and_fits_its_mask():
    recipes = json.loads((FOLDER / "recipes.json").read_text())
    assert set(recipes) == {photo.name for photo in example_photos().spliced}
    for name, recipe in recipes.items():
        mask = photo_named(name).mask
        assert recipe["area"] == pytest.approx(mask.mean(), abs=1e-6)
        left, top, width, height = cv2.boundingRect(mask.astype(np.uint8))
        assert recipe["box"] == [top, left, height, width]


def test_examples_can_be_sent_to_other_processes():
    photo = pickle.loads(pickle.dumps(photo_named("astronaut.jpg")))
    assert photo.image.shape == (512, 512, 3)
