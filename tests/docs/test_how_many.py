"""The figures in docs/how-many.md: what its script measured."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def make_pictures():
    path = ROOT / "docs" / "make_how_many_pictures.py"
    spec = importlib.util.spec_from_file_location("make_how_many_pictures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_says_what_was_measured(make_pictures):
    page = make_pictures.PAGE.read_text(encoding="utf-8")
    figures = json.loads(make_pictures.RESULTS.read_text(encoding="utf-8"))
    message = "run python docs/make_how_many_pictures.py"
    assert make_pictures.with_figures(page, figures) == page, message
    figures["mice"]["n_components"] = 7
    assert "Shuffling mice counts 7:" in make_pictures.with_figures(page, figures)
