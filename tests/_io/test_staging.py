"""Several files that are replaced together."""

from __future__ import annotations

import os
import shutil
from functools import partial

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


@pytest.mark.parametrize("end", [SystemExit, OSError])
def test_a_run_that_ends_at_any_step_leaves_old_or_new_or_no_summary(folder, monkeypatch, end):
    """Killed, or unable to move a file: what has a summary belongs together."""
    before, outcomes = content(folder), []
    calls = {name: getattr(os, name) for name in ("replace", "unlink")}
    for step in range(100):
        copy, steps = folder.parent / f"copy{step}", iter(range(100))
        shutil.copytree(folder, copy)

        def die_at(name, *arguments, steps=steps, step=step, copy=copy):
            if str(copy) in str(arguments[0]) and next(steps) >= step:
                raise end
            calls[name](*arguments)

        with monkeypatch.context() as patch:
            for name in calls:
                patch.setattr(os, name, partial(die_at, name))
            patch.setattr(shutil, "rmtree", lambda place, ignore_errors: None)
            try:
                replace(copy)
            except end:
                pass
            else:
                break
        remove_leftovers(copy)
        after = content(copy)
        assert after in (before, AFTER) or "summary" not in after
        outcomes.append(after == before)
        replace(copy)
        assert content(copy) == AFTER
    # Until the summary is removed, nothing has happened.
    assert outcomes.index(False) == len(NEW) + 1
    assert not any(outcomes[len(NEW) + 1 :]) and len(outcomes) > 2 * len(NEW)


@pytest.mark.parametrize("name", ["summary", "outdated", "cases__1"])
def test_what_is_no_file_is_in_the_way(folder, name):
    path = folder / name.replace("__", "/")
    path.unlink()
    (path / "mine").mkdir(parents=True)
    with pytest.raises(FolderInUseError, match="is in the way: it is not a file; move it away"):
        replace(folder)
    assert (path / "mine").is_dir()
