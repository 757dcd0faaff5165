"""The figures in docs/gpu.md: what the benchmark measured."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def make_gpu():
    spec = importlib.util.spec_from_file_location("make_gpu", ROOT / "docs" / "make_gpu.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(make_gpu):
    page = make_gpu.PAGE.read_text(encoding="utf-8")
    text = make_gpu.figures_text(json.loads(make_gpu.RESULTS.read_text(encoding="utf-8")))
    assert make_gpu.with_figures(page, text) == page, "run python docs/make_gpu.py"


def test_figures_come_from_the_file(make_gpu):
    found = json.loads(make_gpu.RESULTS.read_text(encoding="utf-8"))
    found["card"] = "Card X"
    found["sections"]["patches"]["float64"]["seconds"] = 123.4
    text = make_gpu.figures_text(found)
    assert "On one Card X with" in text
    assert "| float64 | 123.4 |" in text
