"""A few damaged files of every kind, the same in every run; `make fuzz` opens many more.

Files that were findings once are in regressions/, in a folder for each target.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fuzz_mutators import mutate
from fuzz_runner import FINDINGS, fuzz
from fuzz_seeds import seeds_of
from fuzz_targets import TARGETS, try_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
REGRESSIONS = Path(__file__).parent / "regressions"
# So many take a few seconds.
N_FILES = {"networks": 3, "h5ad": 8}


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files_are_refused_or_read(name):
    n_files = N_FILES.get(name, 120)
    found = fuzz(name, n_files=n_files)
    assert found.files == n_files
    assert found.findings == []
    # Neither all of them whole nor all of them refused at the first byte.
    assert found.outcomes["refused"] > 0


@pytest.mark.parametrize("name", sorted(path.name for path in REGRESSIONS.glob("*")))
def test_files_that_were_findings_once(name):
    paths = sorted((REGRESSIONS / name).iterdir())
    found = fuzz(name, paths=paths)
    assert found.files == len(paths)
    assert found.findings == []


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
    monkeypatch.setattr("fuzz_runner.MAX_SECONDS", 5.0)
    found = fuzz("csv", paths=paths)
    assert found.outcomes == dict.fromkeys(words, 1)
    assert [finding["what"] for finding in found.findings] == ["foreign", "hang", "crash", "memory"]
    assert set(FINDINGS) == {"foreign", "hang", "crash", "memory"}
