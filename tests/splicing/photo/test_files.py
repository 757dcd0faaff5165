"""Which files paths, folders, patterns and URLs stand for."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

import fsspec
import numpy as np
import pytest
from cpcapp.splicing.datasets.remote import open_remote_pairs, open_remote_sources
from PIL import Image

from cpcapp.splicing import ImageError
from cpcapp.splicing.photo import files as files_module
from cpcapp.splicing.photo.files import (
    OPTIONAL_SUFFIXES,
    SUFFIXES,
    UNREAD_SUFFIXES,
    explain_unread,
    find_images,
    image_files,
    list_folder,
    read_remote,
)


class TestImageFiles:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "sub").mkdir()
        (tmp_path / "empty").mkdir()
        names = ["10.jpg", "9.JPG", "b.png", "a.tiff", "notes.txt", ".hidden.jpg", "sub/1.webp"]
        for name in names:
            (tmp_path / name).touch()
        return tmp_path

    def names(self, folder, *paths, **options):
        files = image_files([folder / path for path in paths], **options)
        return [file.relative_to(folder).as_posix() for file in files]

    def test_folders_give_their_images_in_the_order_of_counting(self, folder):
        assert self.names(folder, ".") == ["9.JPG", "10.jpg", "a.tiff", "b.png"]
        every = ["9.JPG", "10.jpg", "a.tiff", "b.png", "sub/1.webp"]
        assert self.names(folder, ".", recursive=True) == every

    def test_files_are_taken_whatever_they_are_called(self, folder):
        assert self.names(folder, "notes.txt", ".hidden.jpg") == [".hidden.jpg", "notes.txt"]

    def test_patterns(self, folder, monkeypatch):
        assert self.names(folder, "*.jp*") == ["10.jpg"]
        assert self.names(folder, "**/*.webp") == ["sub/1.webp"]
        monkeypatch.chdir(folder)
        assert image_files("[ab].*") == [Path("a.tiff"), Path("b.png")]
        assert image_files(["sub/?.webp"]) == [Path("sub/1.webp")]

    def test_a_file_with_a_sign_in_its_name(self, folder):
        (folder / "c[1].png").touch()
        assert self.names(folder, "c[1].png") == ["c[1].png"]

    def test_each_file_comes_once(self, folder):
        (folder / "link.png").symlink_to(folder / "b.png")
        twice = ["b.png", "sub/../b.png", "*.png", "link.png"]
        assert self.names(folder, *twice) == ["b.png"]

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("none.jpg", "none.jpg does not exist; give a file, a folder or a pattern"),
            ("*.bmp", "no image matches"),
            ("*.txt", "no image matches"),
            ("empty", "holds no image"),
        ],
    )
    def test_nothing_there(self, folder, path, message):
        with pytest.raises(FileNotFoundError, match=message):
            image_files([folder, folder / path])

    def test_no_paths(self):
        assert image_files([]) == []


class TestFindImages:
    """Images of kinds that are not read are named, too."""

    @pytest.fixture
    def folder(self, tmp_path):
        for name in ("b.jpg", "10.CR2", "9.gif", "c.dng", "notes.txt", ".d.gif", "sub/e.jxl"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        return tmp_path

    def test_a_folder_with_both_kinds(self, folder):
        found = find_images(folder)
        assert [path.name for path in found.readable] == ["b.jpg"]
        assert [path.name for path in found.unreadable] == ["9.gif", "10.CR2", "c.dng"]
        assert find_images(folder, recursive=True).unreadable[-1].name == "e.jxl"
        assert image_files(folder) == [folder / "b.jpg"]

    def test_a_pattern(self, folder):
        found = find_images(folder / "*.[dg]*")
        assert (found.readable, [path.name for path in found.unreadable]) == (
            [],
            ["9.gif", "c.dng"],
        )

    def test_a_file_that_is_named_is_decided_by_its_content(self, folder):
        assert find_images(folder / "10.CR2").readable == [folder / "10.CR2"]

    def test_only_kinds_that_are_not_read(self, folder):
        (folder / "b.jpg").unlink()
        with pytest.raises(
            FileNotFoundError, match=r"can be read: 9.gif, 10.CR2 and c.dng are of kinds"
        ):
            image_files(folder)

    def test_none_at_all(self, tmp_path):
        (tmp_path / "notes.txt").touch()
        with pytest.raises(FileNotFoundError, match="holds no image"):
            find_images(tmp_path)

    def test_many_are_named_in_one_line(self):
        line = explain_unread([Path(f"{i}.gif") for i in range(40)])
        assert line.startswith("0.gif, 1.gif, 2.gif, 3.gif and 36 more are of kinds")
        assert "\n" not in explain_unread([Path("two\nlines.gif")])

    def test_photos_of_phones_are_read_if_their_decoder_is_there(self, tmp_path, monkeypatch):
        for name in ("a.HEIC", "b.heif", "c.avif", "d.jpg"):
            (tmp_path / name).touch()
        assert len(find_images(tmp_path).readable) == 4
        monkeypatch.setattr(files_module, "can_read", lambda form: form == "AVIF")
        found = find_images(tmp_path)
        assert [path.name for path in found.readable] == ["c.avif", "d.jpg"]
        assert explain_unread(found.unreadable) == (
            "a.HEIC and b.heif are of kinds that are not read; run pip install "
            '"cpcapp[heif]", or save them as JPEG or PNG'
        )

    def test_no_suffix_is_of_both_kinds(self):
        assert not {*SUFFIXES, *OPTIONAL_SUFFIXES} & set(UNREAD_SUFFIXES)
        assert all(suffix == suffix.lower() for suffix in UNREAD_SUFFIXES)


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
