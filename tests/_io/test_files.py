from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from cpcapp._io import files as _files
from cpcapp._io.files import atomic_write, remove_leftovers


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


def test_file_and_folder_are_synced_in_the_right_order(tmp_path, monkeypatch):
    """Else a power failure could leave the new name with nothing in it."""
    path, steps = tmp_path / "file", []
    sync, replace = os.fsync, os.replace

    def note_sync(descriptor):
        status = os.fstat(descriptor)
        is_folder = status.st_ino == tmp_path.stat().st_ino
        steps.append("folder" if is_folder else f"file of {status.st_size} bytes")
        sync(descriptor)

    def note_replace(source, target):
        steps.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    with atomic_write(path) as file:
        file.write(b"new")
    assert steps == ["file of 3 bytes", "replace", "folder"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_what_can_not_be_made_safe_leaves_what_was_there(tmp_path, monkeypatch, failing):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="Input/output"), atomic_write(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, signal, sys
from cpcapp._io.files import atomic_write
with atomic_write(sys.argv[1]) as file:
    file.write(b"half of it")
    file.flush()
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(tmp_path):
    for name in ("film.mp4.part", "notes.txt", "x.0123456789abcdef.part.txt"):
        (tmp_path / name).touch()
    others = {path.name for path in tmp_path.iterdir()}
    command = [sys.executable, "-c", KILLED, tmp_path / "file"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == b"ready\n"
        (part,) = tmp_path.glob("file.*.part")
        remove_leftovers(tmp_path)
        assert part.exists()  # of a process that lives
        process.send_signal(signal.SIGKILL)
        process.communicate()
    remove_leftovers(tmp_path, "other")
    assert part.exists()
    remove_leftovers(tmp_path, "file")
    assert {path.name for path in tmp_path.iterdir()} == others
    remove_leftovers(tmp_path / "nowhere")


def test_a_name_taken_away_before_it_is_locked_is_replaced_by_another(tmp_path, monkeypatch):
    """By somebody who removes leftovers."""
    open_new, taken = _files._open_new, []

    def open_and_lose(path):
        file = open_new(path)
        if not taken:
            path.unlink()
            taken.append(path)
        return file

    monkeypatch.setattr(_files, "_open_new", open_and_lose)
    with atomic_write(tmp_path / "file") as file:
        file.write(b"new")
    assert taken
    assert (tmp_path / "file").read_bytes() == b"new"
