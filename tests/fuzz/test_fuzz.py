"""A few damaged files of every kind, the same in every run; `make fuzz` opens many more.

Files that were findings once are in regressions/, in a folder for each target.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz_mutators import mutate
from fuzz_runner import FINDINGS, Job, fuzz, fuzz_jobs, remove_leftovers
from fuzz_seeds import seeds_of
from fuzz_targets import TARGETS, try_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
REGRESSIONS = Path(__file__).parent / "regressions"
N_FILES = {"networks": 3, "h5ad": 20, "file_facts": 120}


def jobs():
    """All targets in one child: to import what they need takes longer than to open the files."""
    for name in TARGETS:
        yield Job(name, n_files=N_FILES.get(name, 60))
    for folder in sorted(REGRESSIONS.iterdir()):
        yield Job(folder.name, paths=tuple(map(str, sorted(folder.iterdir()))))


@pytest.fixture(scope="module")
def counts():
    return fuzz_jobs(list(jobs()))


NAMES = [f"{job.name}-regressions" if job.paths else job.name for job in jobs()]


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_damaged_files_are_refused_or_read(counts, number):
    """Those that were made, and those that were findings once."""
    job, found = list(jobs())[number], counts[number]
    assert found.files == job.end
    assert found.findings == []
    if not job.paths:
        # Neither all of them whole nor all of them refused at the first byte.
        assert found.outcomes["refused"] > 0


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "networks"])
def test_every_seed_is_a_whole_file(name, tmp_path):
    for number, data in enumerate(seeds_of(name)):
        path = tmp_path / f"{number}{TARGETS[name].suffix(data)}"
        path.write_bytes(data)
        assert try_file(TARGETS[name], path) == ("accepted", "")


def test_a_file_is_the_same_in_every_run():
    for name in ("csv", "images"):
        first, again = (mutate(name, seeds_of(name), 7) for _ in range(2))
        assert first == again
        assert mutate(name, seeds_of(name), 8) != first


@pytest.fixture
def broken(monkeypatch, tmp_path):
    """A copy of the runner whose target does as the file says."""
    whole = Path(__file__).parent
    for path in whole.glob("fuzz_*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    text = (tmp_path / "fuzz_targets.py").read_text()
    text += """

def _misbehave(path):
    import os, time
    text = path.read_text()
    if text == "hang":
        time.sleep(60)
    if text == "crash":
        os.abort()
    if text == "memory":
        _ = bytearray(500_000_000)
    if text == "foreign":
        raise ZeroDivisionError("no")
    if text == "refused":
        raise ValueError("no")

TARGETS["csv"] = Target(_misbehave, _table_errors, _csv_suffix)
"""
    (tmp_path / "fuzz_targets.py").write_text(text)
    runner = tmp_path / "fuzz_runner.py"
    runner.write_text(
        runner.read_text().replace("MAX_BYTES = 1_500_000_000", "MAX_BYTES = 4 * 10**8")
    )
    return tmp_path


def test_the_runner_sees_everything_and_goes_on(broken, monkeypatch):
    words = ("foreign", "hang", "refused", "crash", "memory", "accepted")
    paths = [broken / f"{i}.csv" for i in range(len(words))]
    for path, word in zip(paths, words, strict=True):
        path.write_text(word)
    monkeypatch.setattr("fuzz_runner.__file__", str(broken / "fuzz_runner.py"))
    monkeypatch.setattr("fuzz_runner.MAX_SECONDS", 4.0)
    found = fuzz("csv", paths=paths)
    assert found.outcomes == dict.fromkeys(words, 1)
    assert [finding["what"] for finding in found.findings] == ["foreign", "hang", "crash", "memory"]
    assert set(FINDINGS) == {"foreign", "hang", "crash", "memory"}


def test_what_killed_runs_left_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    dead, alive = (tmp_path / f"cpcapp-fuzz-{pid}-a" for pid in (process.pid, os.getpid()))
    nobody, new, other = (tmp_path / name for name in ("cpcapp-fuzz-x", "cpcapp-fuzz-y", "z"))
    for folder in (dead, alive, nobody, new, other):
        (folder / "in").mkdir(parents=True)
    os.utime(nobody, (0, 0))
    remove_leftovers()
    assert sorted(tmp_path.iterdir()) == sorted([alive, new, other])


def test_a_run_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert fuzz("moments", n_files=3).files == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TARGETS)
def test_every_file_is_damaged(name):
    for number in range(3):
        kind, data = mutate(name, seeds_of(name), number)
        assert kind
        assert data not in seeds_of(name)
