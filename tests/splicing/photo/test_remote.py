from __future__ import annotations

import pickle
from functools import partial

import fsspec
import numpy as np
import pytest
from PIL import Image

from cpcapp.splicing import ImageError
from cpcapp.splicing.datasets.remote import open_remote_pairs, open_remote_sources
from cpcapp.splicing.photo.remote import list_folder, read_remote


@pytest.fixture
def bucket(tmp_path):
    """A folder that is known by its URL only."""
    rng = np.random.default_rng(0)
    for name in ("10.png", "2.jpg", "notes.txt", "deep/1.png"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".txt":
            path.touch()
        else:
            Image.fromarray(rng.integers(0, 255, (30, 40, 3), dtype=np.uint8)).save(path)
    return tmp_path.as_uri()


def test_photos_are_listed_in_natural_order(bucket):
    names = [url.rpartition("/photos/")[2] for url in list_folder(f"{bucket}/photos")]
    assert names == ["2.jpg", "10.png"]
    assert list_folder(f"{bucket}/nothing") == []


def test_photos_are_read_with_what_their_file_says(bucket):
    photo = read_remote(f"{bucket}/photos/2.jpg")
    assert (photo.name, photo.format, photo.pixels.shape) == ("2.jpg", "JPEG", (30, 40, 3))
    assert photo.jpeg_table is not None
    with pytest.raises(ImageError, match=r"3\.jpg: does not exist; check the URL"):
        read_remote(f"{bucket}/photos/3.jpg")
    with pytest.raises(ValueError, match="nosuch://a can't be opened: Protocol not known"):
        list_folder("nosuch://a")
    with fsspec.open(f"{bucket}/photos/empty.png", "wb"):
        pass
    with pytest.raises(ImageError, match=r"empty\.png: is empty"):
        read_remote(f"{bucket}/photos/empty.png")


def test_sources_of_splices_can_be_sent(bucket):
    photo, _ = open_remote_sources(f"{bucket}/photos")
    sent = pickle.loads(pickle.dumps(photo))
    np.testing.assert_array_equal(sent.read(), photo.as_it_is().pixels)
    assert sent.as_it_is().jpeg_table is not None
    with pytest.raises(FileNotFoundError, match="holds no photos; check the URL"):
        open_remote_sources(f"{bucket}/nothing")


def test_photos_and_masks(tmp_path):
    save = partial(Image.new, "L", (40, 30))
    for name, level in (("images/one.jpg", 90), ("images/two.jpg", 90), ("masks/One.png", 255)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        save(level).save(path)
    (tmp_path / "authentic").mkdir()
    save(50).save(tmp_path / "authentic" / "other.png")
    found = open_remote_pairs(tmp_path.as_uri())
    assert [sample.name for sample in found] == ["one", "authentic/other"]
    assert found[0].mask.all() and not found[1].mask.any()
    assert found[0].image.shape == (30, 40, 3)
    assert str(found.problems[0]) == "two: masks/two is missing"
    assert open_remote_pairs((tmp_path / "images").as_uri()) is None
