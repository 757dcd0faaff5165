"""The figures in SECURITY.md: what the benchmarks counted."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def make_security():
    path = ROOT / "docs" / "make_security.py"
    spec = importlib.util.spec_from_file_location("make_security", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(make_security):
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    results = map(make_security.read_results, ("fuzz", "faults"))
    text = make_security.figures_text(*results)
    assert make_security.with_figures(page, text) == page, "run python docs/make_security.py"


def test_findings_and_losses_are_shown(make_security):
    about = {"date": "2026-01-02", "machine": {"processor": "Some CPU", "cores": 4}}
    row = {"files": 1200, "accepted": 7, "refused": 1190, "crash": 3, "hang": 0, "foreign": 0}
    row |= {"memory": 0, "slowest_seconds": 1.5}
    fuzz = {**about, "files": 1200, "findings": 3, "targets": {"csv": row}}
    cells = {"write: EIO": {"old": 4, "lost": 1}, "rename: kill": {"new": 2}}
    faults = {**about, "faults": 7, "lost": 1, "by_command": {"train": cells}}
    text = make_security.figures_text(fuzz, faults)
    assert "1,200 files on 2026-01-02, 3 findings" in text
    assert "| csv | 1,200 | 7 | 1,190 | 3 | 0 | 0 | 0 | 1.5 s |" in text
    assert "7 faults on 2026-01-02, 1 with something lost" in text
    assert "| `train` | 7 | 4 | 2 | 0 | 0 | 1 |" in text


def test_what_has_not_run_is_said(make_security):
    text = make_security.figures_text(None, None)
    assert text.count("Not counted yet") == 2
