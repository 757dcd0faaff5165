"""The progress of a job of several stages: a line for each, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from cpcapp.cli._progress import ProgressLine


class Stages:
    """Progress lines of which one is drawn at a time; its clock starts when its stage does.

    Parameters
    ----------
    stream : text file, optional
        As for `ProgressLine`.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream
        self.line: ProgressLine | None = None

    def __call__(self, title: str) -> Callable[[float], None]:
        """Return what to call with the share of a stage that is done, from 0 to 1."""

        def progress(share: float) -> None:
            if self.line is None or self.line.title != title:
                self.close()
                self.line = ProgressLine(title, self.stream)
            self.line(share)

        return progress

    def close(self) -> None:
        """End the line that is being drawn."""
        if self.line is not None:
            self.line.__exit__(None, None, None)
            self.line = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
