"""Opens damaged files in child processes with bounded memory and time, and counts what happens.

    python tests/fuzz/fuzz_runner.py csv --files 200

A child makes and opens one file after the other, and says the number of each before it does so: if
it dies or hangs, the parent knows the file, makes it again from its number, and starts another.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
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


@dataclass
class Counts:
    """What became of the files of a target."""

    files: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0  # from the first file of each child to its last
    slowest: float = 0.0
    most_bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "files": self.files,
            **{kind: self.outcomes[kind] for kind in ("accepted", "refused", *FINDINGS)},
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


def _work(name: str, paths: Sequence[str], start: int, kinds: Sequence[str] | None) -> None:
    """Open files for ever: those of the paths, or those of the numbers from ``start`` on."""
    import faulthandler
    import resource

    faulthandler.enable()
    target, seeds = TARGETS[name], seeds_of(name)
    folder = Path(tempfile.mkdtemp(prefix="cpcapp-fuzz-"))
    warm = folder / f"whole{target.suffix(seeds[0])}"
    warm.write_bytes(seeds[0])
    outcome, text = try_file(target, warm)
    if outcome != "accepted":
        raise RuntimeError(f"a whole file is {outcome}: {text}")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + RESERVED_BYTES,) * 2)
    say = os.fdopen(os.dup(1), "w", buffering=1)
    # What libraries print is not ours.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    number = start
    while not paths or number < len(paths):
        if paths:
            kind, path = "regression", Path(paths[number])
        else:
            kind, data = mutate(name, seeds, number, kinds)
            path = folder / f"file{target.suffix(data)}"
            path.write_bytes(data)
        before = _high_water()
        say.write(json.dumps({"begin": number, "kind": kind}) + "\n")
        begin = time.monotonic()
        outcome, text = try_file(target, path)
        seconds, peak = time.monotonic() - begin, _high_water()
        if peak > MAX_BYTES and peak > before:
            outcome, text = "memory", f"{peak // 10**6} MB"
        said = {"end": number, "outcome": outcome, "text": text, "seconds": seconds, "bytes": peak}
        say.write(json.dumps(said) + "\n")
        number += 1


# -- the parent ----------------------------------------------------------------------------


class Child:
    """A process that opens files, from a number on."""

    def __init__(
        self, name: str, start: int, kinds: Sequence[str] | None, paths: list[str]
    ) -> None:
        options = {"name": name, "start": start, "kinds": kinds, "paths": paths}
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
        self.errors.seek(0)
        text = self.errors.read().decode(errors="replace")
        self.errors.close()
        # Of a traceback the end tells most, of a crash the beginning.
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-2:] if "Traceback" in text else lines[:4])[:300]


def fuzz(
    name: str,
    *,
    seconds: float = float("inf"),
    n_files: float = float("inf"),
    start: int = 0,
    kinds: Sequence[str] | None = None,
    paths: Sequence[Path] = (),
    keep: Path | None = None,
) -> Counts:
    """Open damaged files of a target until the time or their number is reached.

    Parameters
    ----------
    name : str
        Of `TARGETS`.
    seconds, n_files : float
        When to stop. The time in which a child starts does not count.
    start : int
        Number of the first file.
    kinds : sequence of str, optional
        Of damage; by default all in `MUTATORS`.
    paths : sequence of Path
        Open these files, once each, and no others.
    keep : Path, optional
        A folder for the files that are findings.
    """
    counts = Counts()
    named = [str(path) for path in paths]
    last = len(named) if named else start + n_files
    number = start
    while number < last and counts.seconds < seconds:
        child = Child(name, number, kinds, named)
        number = _watch(child, name, counts, number, last, seconds, kinds, keep)
    return counts


def _watch(
    child: Child,
    name: str,
    counts: Counts,
    number: int,
    last: float,
    seconds: float,
    kinds: Sequence[str] | None,
    keep: Path | None,
) -> int:
    """Follow a child until it has to be replaced; return the number of the next file."""
    begun: dict[str, Any] | None = None
    # A child imports for some seconds before its first file.
    heard, patience = time.monotonic(), 120.0
    reason = ""
    while not reason:
        said = child.lines(0.2)
        if said is None:
            reason = "crash"
            break
        for line in said:
            before, heard = heard, time.monotonic()
            # Imports do not count.
            counts.seconds += heard - before if patience == MAX_SECONDS else 0.0
            patience = MAX_SECONDS
            if "begin" in line:
                begun = line
                continue
            _note(counts, name, begun or {}, line, kinds, keep)
            number, begun = line["end"] + 1, None
            if number >= last or counts.seconds > seconds:
                reason = "done"
                break
        if not said and time.monotonic() - heard > patience:
            reason = "hang"
    text = child.stop()
    if reason == "done":
        return number
    if begun is None and reason == "crash" and number >= last:
        return number
    if begun is None:
        raise RuntimeError(f"{name}: the child ends before its first file: {text}")
    line = {"end": begun["begin"], "outcome": reason, "text": text, "seconds": 0.0, "bytes": 0}
    _note(counts, name, begun, line, kinds, keep)
    return int(begun["begin"]) + 1


def _note(
    counts: Counts,
    name: str,
    begun: dict[str, Any],
    line: dict[str, Any],
    kinds: Sequence[str] | None,
    keep: Path | None,
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
        _, data = mutate(name, seeds_of(name), line["end"], kinds)
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{name}-{line['end']}{TARGETS[name].suffix(data)}").write_bytes(data)


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
        _work(options["name"], options["paths"], options["start"], options["kinds"])
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
