from __future__ import annotations

import io

from cpcapp.cli._progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_each_stage_has_a_line_of_its_own():
    terminal = Terminal()
    with ProgressLine(stream=terminal) as line:
        first, second = line.stage("reading"), line.stage("making")
        first(0.5)
        first(1.0)
        second(1.0)
    reading, making, rest = terminal.getvalue().split("\n")
    assert reading.count("\rreading [") == 2
    assert reading.count("100 %") == 1
    assert making.startswith("\rmaking [")
    assert rest == ""


def test_a_stage_that_is_passed_over_has_no_line():
    terminal = Terminal()
    with ProgressLine(stream=terminal) as line:
        line.stage("reading")
    assert terminal.getvalue() == ""


def test_nothing_in_a_pipe():
    pipe = io.StringIO()
    with ProgressLine(stream=pipe) as line:
        line.stage("reading")(1.0)
    assert pipe.getvalue() == ""
