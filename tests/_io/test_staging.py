"""Several files that are replaced together."""

from __future__ import annotations

import os
import shutil

import pytest

from cpcapp._io.files import FolderInUseError, atomic_write, remove_leftovers, stage_results


def write(folder, **contents):
    for name, content in contents.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(content)


def content(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


OLD = {"scores": b"old", "summary": b"old", "cases__1": b"old", "outdated": b"old", "mine": b"kept"}
NEW = {"scores": b"new", "summary": b"new", "cases__1": b"new", "cases__2": b"new"}
AFTER = {name.replace("__", "/"): value for name, value in {**NEW, "mine": b"kept"}.items()}


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "out", **OLD)
    return tmp_path / "out"


def replace(folder):
    with stage_results(folder) as staged:
        write(staged.new, **NEW)
        staged.commit(marker="summary", remove=["outdated", "absent"])


def test_all_are_replaced_and_the_rest_stays(folder):
    replace(folder)
    assert content(folder) == AFTER
    assert len(list(folder.iterdir())) == 4


def test_nothing_changes_without_a_commit(folder):
    before = content(folder)
    with stage_results(folder) as staged:
        write(staged.new, **NEW)
    with pytest.raises(KeyboardInterrupt), stage_results(folder) as staged:
        write(staged.new, **NEW)
        raise KeyboardInterrupt
    assert content(folder) == before
    with stage_results(folder.parent / "never"):
        pass
    assert not (folder.parent / "never").exists()


def test_a_run_that_ends_at_any_step_leaves_old_or_new_or_no_summary(folder, monkeypatch):
    """Killed, or unable to move a file: what has a summary belongs together."""
    before, move, outcomes = content(folder), os.replace, []
    for step in range(100):
        copy, calls = folder.parent / f"copy{step}", iter(range(100))
        shutil.copytree(folder, copy)

        def die_at(source, target, calls=calls, step=step):
            if next(calls) >= step:
                raise SystemExit
            move(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", die_at)
            patch.setattr(shutil, "rmtree", lambda place: None)
            try:
                replace(copy)
            except SystemExit:
                pass
            else:
                break
        remove_leftovers(copy)
        after = content(copy)
        assert after in (before, AFTER) or "summary" not in after
        outcomes.append(after == before)
        replace(copy)
        assert content(copy) == AFTER
    # Until the summary is moved aside, nothing has happened.
    assert outcomes.index(False) == len(NEW) + 1
    assert not any(outcomes[len(NEW) + 1 :]) and len(outcomes) > 2 * len(NEW)


def test_a_file_that_can_not_be_moved_brings_the_old_ones_back(folder, monkeypatch):
    before, move = content(folder), os.replace
    for step in range(100):
        calls = iter(range(1000))

        def fail_once(source, target, calls=calls, step=step):
            if next(calls) == step:
                raise OSError("No space left on device")
            move(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", fail_once)
            try:
                replace(folder)
            except OSError:
                assert content(folder) == before
            else:
                break
    assert step > 2 * len(NEW)
    assert content(folder) == AFTER


@pytest.mark.parametrize("name", ["summary", "outdated", "cases__1"])
def test_what_is_no_file_is_in_the_way(folder, name):
    path = folder / name.replace("__", "/")
    path.unlink()
    (path / "mine").mkdir(parents=True)
    with pytest.raises(FolderInUseError, match="is in the way: it is not a file; move it away"):
        replace(folder)
    assert (path / "mine").is_dir()
