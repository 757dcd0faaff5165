"""Which files paths, folders, and patterns stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpcapp.splicing.photo import files as files_module
from cpcapp.splicing.photo.files import (
    OPTIONAL_SUFFIXES,
    SUFFIXES,
    UNREAD_SUFFIXES,
    explain_unread,
    find_images,
    image_files,
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
