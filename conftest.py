"""What pytest leaves out where an optional package is missing, and how it says so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator
from importlib.util import find_spec

import pytest

collect_ignore_glob: list[str] = []
if find_spec("torch") is None:
    # Their tests say so, and are skipped; doctests could not even be collected.
    collect_ignore_glob = [
        "src/cpcapp/*torch*.py",
        "src/cpcapp/splicing/networks/*.py",
        "src/cpcapp/splicing/make/histories.py",
        "src/cpcapp/splicing/make/stream.py",
        "src/cpcapp/splicing/devices.py",
        "docs/gpu.md",
        "docs/make_mfcn_pictures.py",
    ]
elif find_spec("onnx") is None:
    collect_ignore_glob = ["src/cpcapp/splicing/networks/export.py"]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let a skipped file name itself: xdist reports only one of those skipped by the same line."""
    report = yield
    if report.skipped:
        _, line, reason = report.longrepr
        report.longrepr = str(collector.path), line, reason
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write a line for each reason to skip: how many tests, and what helps."""
    tests, files = Counter[str](), Counter[str]()
    for report in terminalreporter.stats.get("skipped", ()):
        counts = files if isinstance(report, pytest.CollectReport) else tests
        counts[report.longrepr[2].removeprefix("Skipped: ")] += 1
    if tests or files:
        terminalreporter.section("skipped")
    for reason in sorted(tests | files):
        terminalreporter.line(_skipped_line(reason, tests[reason], files[reason]))


def _skipped_line(reason: str, n_tests: int, n_files: int) -> str:
    counts = [
        f"{n} {noun}{'s' * (n > 1)}" for n, noun in ((n_tests, "test"), (n_files, "file")) if n
    ]
    reason = re.sub(r"^needs the extra (\w+)$", r"needs \1: pip install -e '.[\1]'", reason)
    if not reason.startswith("needs "):
        reason = f"skipped: {reason}"
    elif n_tests + n_files > 1:
        reason = reason.replace("needs", "need", 1)
    return f"{' and '.join(counts)} {reason}"
