from __future__ import annotations

import os
import sys

import pytest

from cpcapp._files import atomic_write


def test_a_file_is_there_only_once_it_is_complete(tmp_path):
    path = tmp_path / "file"
    with atomic_write(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as file:
        file.write(b"ne")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_can_not_take_its_place_leaves_nothing(tmp_path):
    (tmp_path / "folder" / "full").mkdir(parents=True)
    with pytest.raises(OSError), atomic_write(tmp_path / "folder") as file:
        file.write(b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "none" / "file"):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_are_those_of_any_new_file(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        with atomic_write(tmp_path / "file") as file:
            file.write(b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    path = tmp_path / "file"
    with atomic_write(path) as first, atomic_write(path) as second:
        first.write(b"aaaa")
        second.write(b"bb")
    assert path.read_bytes() == b"aaaa"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["n" * 250, "й" * 120])
def test_long_names(tmp_path, name):
    with atomic_write(tmp_path / name) as file:
        file.write(b"new")
    assert [path.name for path in tmp_path.iterdir()] == [name]
