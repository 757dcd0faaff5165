"""Runs commands with a fault at one of their steps, and looks at what is left.

A step is a write, a sync or a rename of a file, or an allocation. The n-th one fails (full disk,
input/output error, no memory) or the process is killed with -9 just before it. Each run is a fork
of a process that has everything imported, in a folder of its own, with real files.

    PYTHONPATH=tests python tests/faults/fault_harness.py --sample 5      prints the counts as JSON

After a fault the old results are there or the new ones, each whole, or the JSON file that says so
is not there; a second run ends with the same bytes as one that nothing disturbed; and nothing else
is left.
"""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import cpcapp
from cpcapp._io import files as _files
from cpcapp.cli import main
from cpcapp.splicing import localize_files  # noqa: F401
from cpcapp.splicing.score import report as _evaluation  # noqa: F401
from cpcapp.splicing.train import calibrate, train
from cpcapp.tables import reduce_tables  # noqa: F401
from photo_folders import write_splices

PACKAGE = str(Path(cpcapp.__file__).parent)
# These read their options first: whoever has no memory for that has no memory for a message.
COMMANDS = str(Path(PACKAGE) / "cli")
LONGEST_RUN = 120.0
Tree = dict[str, bytes]

# What can happen at which kind of step.
FAULTS = {
    "write": ("ENOSPC", "EIO", "kill"),
    "fsync": ("ENOSPC", "EIO", "kill"),
    "rename": ("EIO", "kill"),
    "allocation": ("MemoryError",),
}


# -- inputs --------------------------------------------------------------------------------


def _write_tables(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name, scale in (("target", [1, 1, 3, 1]), ("background", [1, 1, 1, 1])):
        rows = rng.normal(size=(300, 4)) * scale
        np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header="a,b,c,d", comments="")


def _one_group(names: set[str]) -> dict[str, set[str]]:
    return {"all": set(names)}


def _by_photo(names: set[str]) -> dict[str, set[str]]:
    groups: dict[str, set[str]] = {}
    for name in names:
        groups.setdefault(name.partition(".")[0], set()).add(name)
    # Table and page show whatever is there; they are looked at by themselves.
    for overview in ("out/summary", "out/index"):
        groups.pop(overview, None)
    return groups


@dataclass(frozen=True)
class Scenario:
    """A command on small inputs: the run that is disturbed, the earlier one, and the second run.

    ``groups`` returns from the names of all results those that must be old or new together. Of
    those with a JSON file, this one may be missing, and says that they are incomplete.
    """

    prepare: Callable[[Path], None]
    command: str
    earlier: str = ""
    again: str = ""  # by default the same command
    groups: Callable[[set[str]], dict[str, set[str]]] = _one_group


def _two_splices(folder: Path) -> None:
    write_splices(folder / "splices", 2)


def _ten_splices(folder: Path) -> None:
    write_splices(folder / "splices", 10)
    (folder / "out").mkdir()


_TRAIN = "train splices -o out/model --preset paper --jobs 1"
_LOCALIZE = "localize splices/images -o out --model"
_REDUCE = "reduce target.csv background.csv -o out"
_EVALUATE = "evaluate splices -o out --no-controls --jobs 1 --model"
SCENARIOS = {
    "train": Scenario(_ten_splices, _TRAIN),
    "train --force": Scenario(_ten_splices, f"{_TRAIN} --force", f"{_TRAIN} --seed 5"),
    "localize": Scenario(
        _two_splices,
        f"{_LOCALIZE} filters --force",
        f"{_LOCALIZE} paper",
        groups=_by_photo,
    ),
    "localize --resume": Scenario(
        _two_splices, f"{_LOCALIZE} paper", again=f"{_LOCALIZE} paper --resume", groups=_by_photo
    ),
    "localize --report": Scenario(
        _two_splices,
        f"{_LOCALIZE} filters --report --force",
        f"{_LOCALIZE} paper --report",
        groups=_by_photo,
    ),
    "reduce": Scenario(_write_tables, f"{_REDUCE} -k 2 --force", f"{_REDUCE} -k 1"),
    "evaluate": Scenario(
        _two_splices, f"{_EVALUATE} paper --force", f"{_EVALUATE} filters --limit 1"
    ),
}


# -- faults, in the child ------------------------------------------------------------------


class Steps:
    """Counts the steps of a process and makes one of them fail."""

    def __init__(self, kind: str = "", number: int = -1, fault: str = "") -> None:
        self.kind, self.number, self.fault = kind, number, fault
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()

    def take(self, kind: str) -> bool:
        """Count a step; tell whether it has to fail."""
        with self.lock:
            number = self.counts[kind]
            self.counts[kind] += 1
        due = (kind, number) == (self.kind, self.number)
        if due and self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return due

    def fail(self) -> None:
        if self.fault == "MemoryError":
            raise MemoryError
        number = getattr(errno, self.fault)
        raise OSError(number, os.strerror(number))

    def install(self) -> None:
        """Take over the functions by which this process writes files."""
        steps = self

        class File(io.FileIO):
            def write(self, data: Any) -> int:
                if steps.take("write"):
                    # A disk is full in the middle of a write.
                    super().write(bytes(data)[: len(data) // 2])
                    steps.fail()
                return super().write(data)

        def open_new(path: Path) -> Any:
            return io.BufferedWriter(File(path, "xb"))

        def wrap(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                if steps.take(kind):
                    steps.fail()
                return function(*arguments, **options)

            return call

        _files._open_new = open_new
        os.fsync = wrap("fsync", os.fsync)
        os.replace, os.rename = wrap("rename", os.replace), wrap("rename", os.rename)
        if self.kind in ("", "allocation"):
            sys.setprofile(self._profile)
            threading.setprofile(self._profile)

    def _profile(self, frame: Any, event: str, _: Any) -> None:
        # A C function that our code calls may need memory, and says so by this exception.
        file = frame.f_code.co_filename
        ours = event == "c_call" and file.startswith(PACKAGE) and not file.startswith(COMMANDS)
        if ours and self.take("allocation"):
            sys.setprofile(None)
            raise MemoryError


def _run_child(command: str, steps: Steps, folder: Path, report: Path) -> None:
    """Run a command in this process, which ends with it."""
    status = 99
    try:
        os.chdir(folder)
        with report.open("w") as text:
            os.dup2(text.fileno(), 1)
            os.dup2(text.fileno(), 2)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(n), "w") for n in (1, 2))
        # Times stand in results, and would differ.
        time.perf_counter = lambda: 0.0
        os.environ["SOURCE_DATE_EPOCH"] = "0"
        # As often as can be.
        train._PHOTOS_PER_UPDATE = calibrate._PHOTOS_PER_SAVE = 4
        train.Checkpoint.__init__.__defaults__ = (0.0,)
        cv2.setNumThreads(1)
        steps.install()
        try:
            status = main(command.split())
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
            report.with_suffix(".steps").write_text(json.dumps(steps.counts))
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 98
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


# -- runs, in the parent -------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """How a run ended: its status (negative for a signal), what it printed, and its steps."""

    status: int
    text: str
    steps: dict[str, int]


def run(command: str, folder: Path, steps: Steps | None = None) -> Run:
    """Run a command in a fork of this process."""
    report = folder.with_name(folder.name + ".report")
    child = os.fork()
    if child == 0:
        # Counting allocations slows a run down: only who asks for it gets it.
        _run_child(command, steps or Steps("nothing"), folder, report)
    deadline = time.monotonic() + LONGEST_RUN
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise TimeoutError(f"{command} hangs: {report.read_text()}")
        time.sleep(0.002)
    counted = report.with_suffix(".steps")
    counts = json.loads(counted.read_text()) if counted.exists() else {}
    counted.unlink(missing_ok=True)
    return Run(os.waitstatus_to_exitcode(status), report.read_text(), counts)


def tree(folder: Path) -> Tree:
    """Return the results in a folder: names and bytes."""
    files = (path for path in (folder / "out").rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


class Bench:
    """A scenario with its states before and after, as they are if nothing goes wrong."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario, self.folder = scenario, folder
        self.start = folder / "start"
        self.start.mkdir(parents=True)
        scenario.prepare(self.start)
        if scenario.earlier:
            self._succeed(run(scenario.earlier, self.start))
        self.old = tree(self.start)
        whole = self._copy()
        done = run(scenario.command, whole, Steps())
        self._succeed(done)
        self.steps, self.new = done.steps, tree(whole)
        assert self.old != self.new

    def _copy(self) -> Path:
        copy = self.folder / "work"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.start, copy)
        return copy

    def _succeed(self, done: Run) -> None:
        if done.status != 0:
            raise AssertionError(f"ends with {done.status}: {done.text}")

    def check(self, kind: str, number: int, fault: str) -> str:
        """Disturb a run; return what it left, or raise AssertionError with what went wrong."""
        work = self._copy()
        disturbed = run(self.scenario.command, work, Steps(kind, number, fault))
        if "Traceback" in disturbed.text or disturbed.status not in (-signal.SIGKILL, 0, 1, 2):
            raise AssertionError(f"ends with {disturbed.status}: {disturbed.text}")
        if disturbed.status == 1 and "left out" in disturbed.text:
            # A photo for which there was no memory counts as one that can't be read: the command
            # names it, and its results are those of the others.
            left = "without a photo"
        else:
            shutil.copytree(work, seen := self.folder / "seen")
            _files.remove_leftovers(seen / "out")  # as the next run of the command does
            left = self._what_is_left(tree(seen))
            shutil.rmtree(seen)
        again = self.scenario.again or self.scenario.command
        if again.startswith("train") and (work / "out" / "model").exists():
            again = f"{_TRAIN} --force"
        if not (work / "out").is_dir():
            again = again.removesuffix(" --resume")
        self._succeed(run(again, work))
        if (after := tree(work)) != self.new:
            names = {*after, *self.new}
            changed = {name for name in names if after.get(name) != self.new.get(name)}
            raise AssertionError(f"the second run leaves others: {sorted(changed)}")
        folders = {path.name for path in (work / "out").iterdir() if path.is_dir()}
        extra = folders - {name.split("/")[1] for name in self.new}
        if extra:
            raise AssertionError(f"the second run leaves folders: {sorted(extra)}")
        return left

    def _what_is_left(self, found: Tree) -> str:
        found = {name: data for name, data in found.items() if ".checkpoint/" not in name}
        parts = {name for name in found if ".part" in name}
        if parts:
            raise AssertionError(f"leftovers that stay: {sorted(parts)}")
        left = set()
        for group, names in self.scenario.groups({*found, *self.old, *self.new}).items():
            kept = {name: found.get(name) for name in names}
            # The JSON file of a group is the first to go and the last to come.
            markers = {name for name in names if name.endswith(".json")}
            if kept == {name: self.old.get(name) for name in names}:
                left.add("old")
            elif kept == {name: self.new.get(name) for name in names}:
                left.add("new")
            elif markers and not markers & found.keys():
                left.add("incomplete")
            else:
                have = sorted(names & found.keys())
                raise AssertionError(f"neither old nor new: {group} ({have})")
        return left.pop() if len(left) == 1 else "some of each"


def disturb(
    names: Sequence[str], *, most_allocations: int, sample: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield what every fault did.

    There are thousands of allocations: so many of them fail, spread evenly. With ``sample``, so
    many faults are drawn for each scenario, half of them kills, the same ones in every run.
    """
    rng = np.random.default_rng(0)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(SCENARIOS[name], Path(folder))
            cases = []
            for kind, faults in FAULTS.items():
                count = bench.steps.get(kind, 0)
                most = min(count, most_allocations) if kind == "allocation" else count
                numbers = sorted({round(i) for i in np.linspace(0, count - 1, most)})
                cases += [(kind, fault, number) for fault in faults for number in numbers]
            if sample is not None:
                drawn = [cases[i] for i in rng.permutation(len(cases))]
                kills = [case for case in drawn if case[1] == "kill"][: (sample + 1) // 2]
                others = [case for case in drawn if case[1] != "kill"][: sample // 2]
                cases = kills + others
            for kind, fault, number in cases:
                outcome = {"scenario": name, "kind": kind, "fault": fault, "step": number}
                try:
                    yield {**outcome, "left": bench.check(kind, number, fault), "lost": ""}
                except (AssertionError, TimeoutError) as error:
                    yield {**outcome, "left": "lost", "lost": str(error)}
                shutil.rmtree(bench.folder / "seen", ignore_errors=True)


def count_outcomes(outcomes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of faults by command and kind, and what was lost."""
    table: dict[str, dict[str, Counter[str]]] = {}
    for outcome in outcomes:
        cells = table.setdefault(outcome["scenario"], {})
        fault = f"{outcome['kind']}: {outcome['fault']}"
        cells.setdefault(fault, Counter())[outcome["left"]] += 1
    left = Counter(outcome["left"] for outcome in outcomes)
    return {
        **{"faults": len(outcomes), "lost": left["lost"], "left": left, "by_command": table},
        "problems": [outcome for outcome in outcomes if outcome["lost"]],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("scenarios", nargs="*", default=list(SCENARIOS))
    parser.add_argument("--sample", type=int, default=4, help="faults for each scenario")
    arguments = parser.parse_args()
    found = disturb(arguments.scenarios, most_allocations=1000, sample=arguments.sample)
    print(json.dumps(count_outcomes(list(found)), indent=1))  # noqa: T201
