"""Timing of calls against each other on a machine that is not quiet."""

from __future__ import annotations

import gc
import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Call = Callable[[], object]

# NumPy and SciPy each bring an OpenBLAS with threads of its own, which go on spinning after their
# last task and take the cores away from the next call: with a pause of 0.05 s a switch from one
# to the other still cost 40 ms on two cores, with 0.2 s nothing.
_PAUSE = 0.2
# A threaded BLAS waits for its slowest thread: where another process holds a core, a product of
# 2 ms can take 300. A round counts as quiet if others had less than this share of one core.
_QUIET = 0.05


@dataclass(frozen=True)
class Race:
    """Seconds of each call in each round.

    ``dropped`` counts rounds that were left out for what other processes did meanwhile, and
    ``disturbed`` those that were kept in spite of it.
    """

    seconds: Mapping[str, list[float]]
    dropped: int
    disturbed: int

    @property
    def rounds(self) -> int:
        return len(next(iter(self.seconds.values())))

    def median(self, name: str) -> float:
        return float(np.median(self.seconds[name]))

    def ratios(self, slow: str, fast: str) -> np.ndarray:
        return np.array(self.seconds[slow]) / np.array(self.seconds[fast])

    def ratio(self, slow: str, fast: str) -> float:
        """Return the median over rounds, each of which saw one and the same load."""
        return float(np.median(self.ratios(slow, fast)))

    def quartiles(self, slow: str, fast: str) -> list[float]:
        return [float(q) for q in np.percentile(self.ratios(slow, fast), (25, 75))]


def timed(call: Call) -> float:
    gc.collect()
    time.sleep(_PAUSE)
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def race(
    calls: Mapping[str, Call], rounds: int, *, warm_up: bool = True, patience: float = 0.0
) -> Race:
    """Time calls round by round, every other round in reverse order.

    Rounds wait, ``patience`` seconds in all, for other processes to rest. They are repeated, up
    to twice as many, until enough were quiet; the quietest are kept. What the calls themselves
    took has no say in it.
    """
    done: list[tuple[float, dict[str, float]]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if warm_up:
            for call in calls.values():
                call()
        while len(done) < 2 * rounds and sum(load < _QUIET for load, _ in done) < rounds:
            patience -= _await_quiet(patience)
            before = _processor_seconds()
            names = list(calls)[:: -1 if len(done) % 2 else 1]
            seconds = {name: timed(calls[name]) for name in names}
            done.append((_load_of_others(before, _processor_seconds()), seconds))
    kept = sorted(done, key=lambda entry: entry[0])[:rounds]
    return Race(
        seconds={name: [seconds[name] for _, seconds in kept] for name in calls},
        dropped=len(done) - len(kept),
        disturbed=sum(load >= _QUIET for load, _ in kept),
    )


def _await_quiet(patience: float) -> float:
    """Return how long it took until other processes rested, or patience ended."""
    start = time.perf_counter()
    while (waited := time.perf_counter() - start) < patience:
        before = _processor_seconds()
        time.sleep(_PAUSE)
        if _load_of_others(before, _processor_seconds()) < _QUIET:
            break
    return waited


def _processor_seconds() -> tuple[float, float, float] | None:
    """Return wall time, and processor time of all processes and of this one (Linux only)."""
    try:
        fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
        tick = os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return None
    user, nice, system, _idle, _wait, irq, soft_irq, steal = map(int, fields)
    total = (user + nice + system + irq + soft_irq + steal) / tick
    own = os.times()
    return time.perf_counter(), total, own.user + own.system


def _load_of_others(
    before: tuple[float, float, float] | None, after: tuple[float, float, float] | None
) -> float:
    """Return how many cores other processes kept busy, or 0 where that is not known."""
    if before is None or after is None:
        return 0.0
    wall, total, own = (b - a for a, b in zip(before, after, strict=True))
    return max(total - own, 0.0) / wall
