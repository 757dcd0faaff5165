"""The gallery of the documentation: what is made, and what must not be in it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from cpcapp.experiments import NAMES, Missing, Result, Settings
from cpcapp.experiments.results import Picture

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def make_gallery():
    spec = importlib.util.spec_from_file_location("make_gallery", DOCS / "make_gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pieces_of_the_data_and_paths_stay_out(make_gallery, tmp_path):
    kept = Picture("dots", b"dots", "some dots", "Dots.")
    private = Picture("photos", b"photos", "some photos", "Photos.", shareable=False)
    result = Result(
        "needle", "A title", "It shows.", "Look.", "Data.", ("Found.",), {}, (kept, private)
    )
    missing = Missing("mhealth", "Another title", "not at /home/someone/data")
    make_gallery.write_gallery([result, missing], Settings(), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"dots.png", "needle.md", "mhealth.md", "index.md", "numbers.json"}
    for path in tmp_path.iterdir():
        assert b"photos.png" not in path.read_bytes()
        assert b"someone" not in path.read_bytes()
    assert "![some dots](dots.png)" in (tmp_path / "needle.md").read_text()
    assert "data were not at hand" in (tmp_path / "mhealth.md").read_text()
    index = (tmp_path / "index.md").read_text()
    assert "| [![A title](dots.png)](needle.md) | **[A title](needle.md)** It shows. |" in index
    assert "|  | **[Another title](mhealth.md)** No data here. |" in index
    assert "\nneedle\nmhealth\n" in index


def test_what_is_in_the_repository():
    folder = DOCS / "gallery"
    assert {path.stem for path in folder.glob("*.md")} == {*NAMES, "index"}
    index = (folder / "index.md").read_text(encoding="utf-8")
    for page in folder.glob("*.md"):
        shown = re.findall(r"!\[.*\]\((.+?)\)", page.read_text(encoding="utf-8"))
        if shown and page.stem != "index":
            assert f"({shown[0]})]({page.name})" in index  # a thumbnail that is a link
    for picture in folder.glob("*.png"):
        assert picture.stat().st_size < 150_000
        assert not picture.stem.endswith(("examples", "pictures"))  # pieces of the grass photos
