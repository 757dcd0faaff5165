"""A few damaged files of every kind, the same in every run; `make fuzz` opens many more.

Files that were findings once are in regressions/, in a folder for each target.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fuzz_mutators import mutate
from fuzz_runner import FINDINGS, Opener, fuzz
from fuzz_targets import TARGETS, Target, try_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
REGRESSIONS = Path(__file__).parent / "regressions"
N_FILES = {"networks": 3, "h5ad": 20, "file_facts": 120}


@pytest.fixture(scope="module")
def opener():
    """One child for all targets: imports take longer than files."""
    with Opener() as opener:
        yield opener


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files_are_refused_or_read(opener, name):
    counts = fuzz(name, opener, n_files=N_FILES.get(name, 60))
    assert counts.findings == []
    # Neither all of them whole nor all of them refused at the first byte.
    assert counts.outcomes["refused"] > 0


@pytest.mark.parametrize("folder", sorted(REGRESSIONS.iterdir()), ids=lambda path: path.name)
def test_files_that_were_findings_once(opener, folder):
    paths = sorted(folder.iterdir())
    counts = fuzz(folder.name, opener, paths=paths)
    assert counts.files == len(paths)
    assert counts.findings == []


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "networks"])
def test_every_seed_is_a_whole_file_and_is_damaged_alike_in_every_run(name, tmp_path):
    target, seeds = TARGETS[name], TARGETS[name].seeds()
    for number, data in enumerate(seeds):
        path = tmp_path / f"{number}{target.suffix(data)}"
        path.write_bytes(data)
        assert try_file(target, path) == ("accepted", "")
    for number in range(3):
        kind, data = mutate(name, seeds, number)
        assert kind
        assert data not in seeds
        assert (kind, data) == mutate(name, seeds, number)


MISBEHAVE = """
import os, time
def use(path):
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
def seeds():
    return [b"accepted"]
"""


def test_the_runner_sees_everything_and_goes_on(tmp_path, monkeypatch):
    (tmp_path / "misbehaving_reader.py").write_text(MISBEHAVE)
    monkeypatch.syspath_prepend(tmp_path)
    import misbehaving_reader

    target = Target(misbehaving_reader.use, misbehaving_reader.seeds, ((b"", ".csv"),))
    monkeypatch.setitem(TARGETS, "csv", target)
    words = ("foreign", "hang", "refused", "crash", "memory", "accepted")
    paths = [tmp_path / f"{i}.csv" for i in range(len(words))]
    for path, word in zip(paths, words, strict=True):
        path.write_text(word)
    with Opener(max_seconds=4.0, max_bytes=4 * 10**8) as opener:
        counts = fuzz("csv", opener, paths=paths, keep=tmp_path / "kept")
        folder = opener.folder
    assert counts.outcomes == dict.fromkeys(words, 1)
    assert [finding["what"] for finding in counts.findings] == [
        *("foreign", "hang", "crash", "memory")
    ]
    assert {path.read_text() for path in (tmp_path / "kept").iterdir()} == set(FINDINGS)
    assert not folder.exists()
