"""Opens damaged files in child processes with bounded memory and time, and counts what happens.

    python tests/fuzz/fuzz_runner.py csv --files 200

A child makes and opens one file after the other, of one target or of several, and says the number
of each before it does so: if it dies or hangs, the parent knows the file, makes it again from its
number, and starts another.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

from fuzz_mutators import MUTATORS, mutate
from fuzz_seeds import seeds_of
from fuzz_targets import TARGETS, try_file

MAX_SECONDS = 10.0
MAX_BYTES = 1_500_000_000
# A child may reserve more, and is then seen to have used it; beyond this it gets no memory.
RESERVED_BYTES = 6 << 30
FINDINGS = ("crash", "hang", "foreign", "memory")
_FOLDER = "cpcapp-fuzz-"
# A child imports before the first file of a target.
_PATIENCE = 120.0
# Of a folder that does not say whose it is.
_OLD_SECONDS = 3600.0


@dataclass(frozen=True)
class Job:
    """Files of a target.

    Attributes
    ----------
    name : str
        Of `TARGETS`.
    start : int
        Number of the first file.
    n_files : float
    seconds : float
        When to stop, if that comes first. The time in which a child starts does not count.
    kinds : tuple of str, optional
        Of damage; by default all in `MUTATORS`.
    paths : tuple of str
        Open these files, once each, and no others.
    """

    name: str
    start: int = 0
    n_files: float = math.inf
    seconds: float = math.inf
    kinds: tuple[str, ...] | None = None
    paths: tuple[str, ...] = ()

    @property
    def end(self) -> float:
        """Number of the file after the last."""
        return len(self.paths) if self.paths else self.start + self.n_files


@dataclass
class Counts:
    """What became of the files of a target."""

    files: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0  # without those in which a child starts
    slowest: float = 0.0
    most_bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "files": self.files,
            **{kind: self.outcomes[kind] for kind in ("accepted", "refused", *FINDINGS)},
            "files_per_second": round(self.files / max(self.seconds, 1e-9), 1),
            "slowest_seconds": round(self.slowest, 2),
            "most_megabytes": self.most_bytes // 10**6,
            "findings": self.findings[:50],
        }


# -- the child -----------------------------------------------------------------------------


def _high_water() -> int:
    """Return the most memory that this process had since the last call of this function."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")
    return peak


def _work(jobs: Sequence[Job], folder: Path) -> None:
    """Open the files of each job, one after the other."""
    import faulthandler

    faulthandler.enable()
    say = os.fdopen(os.dup(1), "w", buffering=1)
    # What libraries print is not ours.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for index, job in enumerate(jobs):
        _work_on(job, index, folder, say)


def _work_on(job: Job, index: int, folder: Path, say: IO[str]) -> None:
    target, seeds = TARGETS[job.name], seeds_of(job.name)
    warm = folder / f"whole{target.suffix(seeds[0])}"
    warm.write_bytes(seeds[0])
    outcome, text = try_file(target, warm)
    if outcome != "accepted":
        raise RuntimeError(f"{job.name}: a whole file is {outcome}: {text}")
    _reserve_memory()
    number, spent = job.start, 0.0
    while number < job.end and spent <= job.seconds:
        begin = time.monotonic()
        if job.paths:
            kind, path = "regression", Path(job.paths[number])
        else:
            kind, data = mutate(job.name, seeds, number, job.kinds)
            path = folder / f"file{target.suffix(data)}"
            path.write_bytes(data)
        before = _high_water()
        say.write(json.dumps({"job": index, "begin": number, "kind": kind}) + "\n")
        opened = time.monotonic()
        outcome, text = try_file(target, path)
        seconds, peak = time.monotonic() - opened, _high_water()
        if peak > MAX_BYTES and peak > before:
            outcome, text = "memory", f"{peak // 10**6} MB"
        spent += time.monotonic() - begin
        said = {"end": number, "outcome": outcome, "text": text, "seconds": seconds, "bytes": peak}
        say.write(json.dumps({"job": index, "spent": spent, **said}) + "\n")
        number += 1


def _reserve_memory() -> None:
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + RESERVED_BYTES, hard))


# -- the parent ----------------------------------------------------------------------------


class Child:
    """A process that opens files, with a folder of its own."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-"))
        options = {"jobs": [asdict(job) for job in jobs], "folder": str(self.folder)}
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child", json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.rest = b""

    def lines(self, seconds: float) -> list[dict[str, Any]] | None:
        """Return what it has said meanwhile; None if it is gone."""
        if not self.selector.select(seconds):
            return []
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        if not data:
            return None
        *whole, self.rest = (self.rest + data).split(b"\n")
        return [json.loads(line) for line in whole]

    def stop(self) -> str:
        """End it; return the last lines of what it printed as errors."""
        self.process.kill()
        self.process.communicate()
        self.selector.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.errors.seek(0)
        text = self.errors.read().decode(errors="replace")
        self.errors.close()
        # Of a traceback the end tells most, of a crash the beginning.
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-2:] if "Traceback" in text else lines[:4])[:300]


def fuzz(
    name: str,
    *,
    seconds: float = math.inf,
    n_files: float = math.inf,
    start: int = 0,
    kinds: Sequence[str] | None = None,
    paths: Sequence[Path] = (),
    keep: Path | None = None,
) -> Counts:
    """Open damaged files of a target; see `Job` and `fuzz_jobs`."""
    chosen = None if kinds is None else tuple(kinds)
    named = tuple(str(path) for path in paths)
    return fuzz_jobs([Job(name, start, n_files, seconds, chosen, named)], keep=keep)[0]


def fuzz_jobs(jobs: Sequence[Job], *, keep: Path | None = None) -> list[Counts]:
    """Open damaged files until the time or the number of each job is reached.

    All are opened by one child, as long as it lives.

    Parameters
    ----------
    jobs : sequence of Job
    keep : Path, optional
        A folder for the files that are findings.

    Returns
    -------
    list of Counts
        Of each job.
    """
    remove_leftovers()
    counts = [Counts() for _ in jobs]
    left = list(enumerate(jobs))
    while left:
        left = _watch(left, counts, keep)
    return counts


def remove_leftovers() -> None:
    """Remove the folders of runs that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        owner = re.fullmatch(rf"{_FOLDER}(\d+)-.*", folder.name)
        with suppress(OSError):
            if owner is None:
                is_dead = time.time() - folder.stat().st_mtime > _OLD_SECONDS
            else:
                is_dead = not _is_running(int(owner[1]))
            if is_dead:
                shutil.rmtree(folder)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _watch(
    left: list[tuple[int, Job]], counts: list[Counts], keep: Path | None
) -> list[tuple[int, Job]]:
    """Follow a child until it has to be replaced; return what is left to do."""
    child = Child([job for _, job in left])
    begun: dict[str, Any] | None = None
    at, before = 0, counts[left[0][0]].seconds
    heard, patience = time.monotonic(), _PATIENCE
    reason = ""
    while not reason:
        said = child.lines(0.2)
        if said is None:
            reason = "crash"
            break
        for line in said:
            heard, patience = time.monotonic(), MAX_SECONDS
            if "begin" in line:
                begun = line
                continue
            index, job = left[at]
            _note(counts[index], job, begun or {}, line, keep)
            begun, counts[index].seconds = None, before + line["spent"]
            if line["end"] + 1 >= job.end or line["spent"] > job.seconds:
                at, patience = at + 1, _PATIENCE
                if at == len(left):
                    reason = "done"
                    break
                before = counts[left[at][0]].seconds
        if not said and time.monotonic() - heard > patience:
            reason = "hang"
    text = child.stop()
    if reason == "done":
        return []
    if begun is None:
        name = left[at][1].name
        raise RuntimeError(f"{name}: {reason} of the child, while it makes a file: {text}")
    index, job = left[at]
    line = {"end": begun["begin"], "outcome": reason, "text": text, "seconds": 0.0, "bytes": 0}
    _note(counts[index], job, begun, line, keep)
    counts[index].seconds += time.monotonic() - heard
    # It goes on with the next file.
    start = int(begun["begin"]) + 1
    seconds = job.seconds - (counts[index].seconds - before)
    rest = replace(job, start=start, n_files=job.end - start, seconds=seconds)
    unfinished = [(index, rest)] if start < job.end and seconds > 0.0 else []
    return unfinished + left[at + 1 :]


def _note(
    counts: Counts, job: Job, begun: dict[str, Any], line: dict[str, Any], keep: Path | None
) -> None:
    counts.files += 1
    counts.outcomes[line["outcome"]] += 1
    counts.slowest = max(counts.slowest, line["seconds"])
    counts.most_bytes = max(counts.most_bytes, line["bytes"])
    if line["outcome"] not in FINDINGS:
        return
    damaged = begun.get("kind", "")
    finding = {"number": line["end"], "damage": damaged, "what": line["outcome"]}
    counts.findings.append({**finding, "text": line["text"]})
    if keep is not None and damaged != "regression":
        _, data = mutate(job.name, seeds_of(job.name), line["end"], job.kinds)
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{job.name}-{line['end']}{TARGETS[job.name].suffix(data)}").write_bytes(data)


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", nargs="?", choices=list(TARGETS))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--kinds", nargs="*")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    if arguments.child:
        options = json.loads(arguments.child)
        _work([Job(**job) for job in options["jobs"]], Path(options["folder"]))
        return
    found = fuzz(
        arguments.target,
        n_files=arguments.files,
        start=arguments.start,
        kinds=arguments.kinds or sorted(MUTATORS[arguments.target]),
        keep=arguments.keep,
    )
    print(json.dumps(found.to_dict(), indent=1))  # noqa: T201


if __name__ == "__main__":
    _main()
