"""Opens damaged files in child processes with bounded memory and time, and counts what happens."""

from __future__ import annotations

import faulthandler
import math
import multiprocessing
import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from fuzz_mutators import mutate
from fuzz_targets import TARGETS, Target, try_file

MAX_SECONDS = 10.0
MAX_BYTES = 1_500_000_000
# A child may reserve more, and is then seen to have used it; beyond this it gets no memory.
RESERVED_BYTES = 6 << 30
# A child imports what a target needs before its first file.
START_SECONDS = 300.0
FINDINGS = ("crash", "hang", "foreign", "memory")


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


def _peak_memory() -> int:
    """Return the most memory that this process had since the last call of this function."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")
    return peak


def _serve(requests: Connection, errors: str, max_bytes: int) -> None:
    """Open the file of each request, until there are no more."""
    # What libraries print is not ours.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    faulthandler.enable()
    while True:
        try:
            target, path, warm = requests.recv()
        except EOFError:
            return
        before, start = _peak_memory(), time.monotonic()
        outcome, text = try_file(target, path)
        seconds, peak = time.monotonic() - start, _peak_memory()
        if warm:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (used + RESERVED_BYTES, hard))
        elif peak > max_bytes and peak > before:
            outcome, text = "memory", f"{peak // 10**6} MB"
        requests.send((outcome, text, seconds, peak))


# -- the parent ----------------------------------------------------------------------------


class Opener:
    """Opens files in a child, which is replaced when it dies or hangs."""

    def __init__(self, *, max_seconds: float = MAX_SECONDS, max_bytes: int = MAX_BYTES) -> None:
        self.max_seconds, self.max_bytes = max_seconds, max_bytes
        self.temporary = tempfile.TemporaryDirectory(prefix="cpcapp-fuzz-")
        self.folder = Path(self.temporary.name)
        self.process: Any = None
        self.warm: set[Target] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()
        self.temporary.cleanup()

    def open(self, target: Target, path: Path) -> tuple[str, str, float, int]:
        """Return the outcome, a text about it, the seconds and the bytes of memory."""
        if self.process is None:
            ours, theirs = multiprocessing.Pipe()
            arguments = (theirs, str(self.folder / "errors"), self.max_bytes)
            spawn = multiprocessing.get_context("spawn")
            self.process = spawn.Process(target=_serve, args=arguments)
            self.process.start()
            self.requests = ours
            theirs.close()
        if target not in self.warm:
            whole = target.seeds()[0]
            first = self.folder / f"whole{target.suffix(whole)}"
            first.write_bytes(whole)
            answer = self._ask((target, first, True), START_SECONDS)
            if answer[0] != "accepted":
                raise RuntimeError(f"a whole file is not read: {answer}")
            self.warm.add(target)
        return self._ask((target, path, False), self.max_seconds + target.more_seconds)

    def _ask(self, request: object, seconds: float) -> tuple[str, str, float, int]:
        reason = "crash"
        try:
            self.requests.send(request)
            if self.requests.poll(seconds):
                answer: tuple[str, str, float, int] = self.requests.recv()
                return answer
            reason = "hang"
        except (EOFError, ConnectionError):
            pass
        self._stop()
        lines = (self.folder / "errors").read_text(errors="replace").split("\n")
        return reason, " | ".join(lines[:4])[:300], 0.0, 0

    def _stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.requests.close()
        self.process = None
        self.warm.clear()


def damaged_files(name: str, folder: Path, start: int = 0) -> Iterator[tuple[int, str, Path]]:
    """Make one damaged file of a target after the other, the same ones in every run."""
    number, seeds = start, TARGETS[name].seeds()
    while True:
        kind, data = mutate(name, seeds, number)
        path = folder / f"file{TARGETS[name].suffix(data)}"
        path.write_bytes(data)
        yield number, kind, path
        number += 1


def fuzz(
    name: str,
    opener: Opener,
    *,
    seconds: float = math.inf,
    n_files: float = math.inf,
    start: int = 0,
    paths: Sequence[Path] = (),
    keep: Path | None = None,
) -> Counts:
    """Open damaged files of a target, or those of ``paths``; findings are kept in ``keep``."""
    counts = Counts()
    files: Any = damaged_files(name, opener.folder, start)
    if paths:
        files = [(number, "regression", path) for number, path in enumerate(paths)]
    begin = time.monotonic()
    for number, kind, path in files:
        if counts.files >= n_files or counts.seconds > seconds:
            break
        warm = TARGETS[name] in opener.warm
        outcome, text, took, peak = opener.open(TARGETS[name], path)
        now = time.monotonic()
        counts.seconds += now - begin if warm else took
        begin = now
        counts.files += 1
        counts.outcomes[outcome] += 1
        counts.slowest, counts.most_bytes = max(counts.slowest, took), max(counts.most_bytes, peak)
        if outcome in FINDINGS:
            finding = {"number": number, "damage": kind, "what": outcome, "text": text}
            counts.findings.append(finding)
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                copy = keep / f"{name}-{number}{path.suffix}"
                copy.write_bytes(path.read_bytes())
    return counts
