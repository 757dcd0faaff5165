"""A line that says how far a long job is: on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Self, TextIO


class ProgressLine:
    """Call it with the share done, from 0 to 1; it redraws at most ten times a second.

    Nothing is written unless the stream, standard error by default, is a terminal.
    """

    def __init__(self, title: str = "", stream: TextIO | None = None) -> None:
        self.title = title
        self.stream = sys.stderr if stream is None else stream
        self.shown = self.stream.isatty()
        self.start = time.monotonic()
        self.last = 0.0

    def __call__(self, share: float) -> None:
        now = time.monotonic()
        if not self.shown or (now - self.last < 0.1 and share < 1.0):
            return
        self.last = now
        passed = now - self.start
        left = f"{_clock(passed / share - passed)} left" if share > 0.01 else ""
        bar = "#" * round(30 * share)
        self.stream.write(f"\r{self.title} [{bar:<30}] {100 * share:3.0f} %  {left:12}")
        self.stream.flush()

    def clear(self) -> None:
        """Remove the line where standard output shares the terminal, so that text can go there."""
        if self.shown and sys.stdout.isatty():
            self.stream.write("\r" + " " * 79 + "\r")
            self.stream.flush()

    def note(self, text: str) -> None:
        """Write a line below, if the progress is shown at all."""
        if self.shown:
            self.stream.write(f"\n{text}\n")
            self.stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.shown and self.last:
            self.stream.write("\n")
        self.last = 0.0

    def stage(self, title: str) -> Callable[[float], None]:
        """Return what to call in a stage of a longer job, which gets a line and a clock."""

        def progress(share: float) -> None:
            if self.title != title:
                self.__exit__()
                self.title, self.start = title, time.monotonic()
            self(share)

        return progress


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
