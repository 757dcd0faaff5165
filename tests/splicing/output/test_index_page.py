"""The page of a folder of results."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote_to_bytes

import cv2
import numpy as np
import pytest

import stand_in
from cpcapp.splicing import ResultsError, localize_files
from cpcapp.splicing import model as model_file
from cpcapp.splicing.output.index_page import is_index, write_index
from cpcapp.splicing.output.summary import read_results
from pages import Page

EVIL = [
    "<script>alert(1)",
    "<img src=x>",
    '"onmouseover="alert(1)',
    "a&b;c",
    "javascript:x",
    "%2e%2e",
    "a#b?c",
]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(model_file, "load_model", stand_in.load_model)


def write_photo(path, seed=0):
    path.parent.mkdir(exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (40, 60, 3), dtype=np.uint8)
    cv2.imwrite(str(path), pixels)
    return path


@pytest.fixture
def out(tmp_path):
    for seed in (1, 2, 10):
        write_photo(tmp_path / "photos" / f"{seed}.png", seed)
    localize_files(tmp_path / "photos", tmp_path / "out")
    return tmp_path / "out"


def page_of(folder):
    page = Page((folder / "index.html").read_text())
    page.check_policy()
    return page


def names(page):
    """The first words of the rows, without the header."""
    return [row[1].split()[0] for row in page.rows[1:]]


def change(folder, name, **changes):
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def write(folder):
    write_index(folder, read_results(folder, ()))
    return page_of(folder)


def test_links_lead_to_the_files(out):
    page = page_of(out)
    linked = {unquote_to_bytes(link).decode() for link in page.links}
    kinds = ("overlay.png", "boundary.png", "json")
    assert linked == {f"{name}.{kind}" for name in (1, 2, 10) for kind in kinds} | {"summary.csv"}
    assert sorted(page.sources) == ["1.thumbnail.jpg", "10.thumbnail.jpg", "2.thumbnail.jpg"]
    assert all((out / name).is_file() for name in [*linked, *page.sources])


def test_small_pictures_are_small(out):
    for path in out.glob("*.thumbnail.jpg"):
        assert path.stat().st_size < 30_000
        assert cv2.imread(str(path)).shape == (40, 60, 3)


def test_the_most_suspicious_photo_comes_first(out):
    change(out, "1", verdict_code="none", verdict="no signs found", p_value=0.9)
    change(out, "2", verdict_code="weak", verdict="weak signs of splicing", p_value=0.1)
    change(out, "10", verdict_code="signs", verdict="signs of splicing", p_value=0.03)
    page = write(out)
    assert names(page) == ["10.png", "2.png", "1.png"]
    assert [row[2:4] for row in page.rows[1:]] == [
        ["signs of splicing", "0.03"],
        ["weak signs of splicing", "0.1"],
        ["no signs found", "0.9"],
    ]
    assert "3 photos: 1 with signs of splicing, 1 with weak signs, 1 without signs" in page.text


def test_a_part_is_named_with_signs_only(out):
    change(out, "1", verdict_code="signs", region_share=0.064)
    change(out, "2", verdict_code="none", region_share=0.0)
    parts = {row[1].split()[0]: row[4] for row in write(out).rows[1:]}
    assert parts == {"1.png": "6.4", "2.png": "", "10.png": ""}


def test_earlier_results_are_on_it_and_failures_listed(out, tmp_path):
    (tmp_path / "photos" / "<b>.png").write_bytes(b"no photo")
    write_photo(tmp_path / "photos" / "3.png", 3)
    localize_files([tmp_path / "photos" / "<b>.png", tmp_path / "photos" / "3.png"], out)
    page = page_of(out)
    assert sorted(names(page)) == ["1.png", "10.png", "2.png", "3.png"]
    assert "1 could not be read" in page.text
    assert f"{tmp_path}/photos/<b>.png: is not a JPEG" in page.text


@pytest.mark.skipif(sys.platform != "linux", reason="such names are not allowed elsewhere")
@pytest.mark.parametrize("name", [*EVIL, "caf\udce9", "two\nlines"])
def test_names_of_strangers(tmp_path, name):
    photo = os.fsencode(tmp_path) + b"/" + os.fsencode(f"{name}.png")
    os.rename(write_photo(tmp_path / "x.png"), photo)  # noqa: PTH104
    localize_files(Path(os.fsdecode(photo)), tmp_path / "out")
    page = page_of(tmp_path / "out")
    assert len(page.rows) == 2
    for link in [*page.links, *page.sources]:
        # Nothing but a name: no scheme, no folder, no query.
        assert not set(link) & set(':/?#<>"& \n')
        path = os.fsencode(tmp_path / "out") + b"/" + unquote_to_bytes(link)
        assert os.path.isfile(path)  # noqa: PTH113


def test_json_of_strangers_leads_nowhere(out):
    evil = "https://example.org/x.png"
    change(out, "1", overlay=evil, boundary="../../x", thumbnail=evil, report="javascript:alert(1)")
    change(out, "2", region="/etc/passwd", hot_spots=evil, report_pdf=evil, verdict_code="<b>")
    change(out, "10", p_value=10**400, width=10**4000, height=-1, region_share="<i>", error=evil)
    page = write(out)
    assert len(page.rows) == 4
    assert not [link for link in [*page.links, *page.sources] if "x.png" in link or ":" in link]
    assert {attributes.get("class") for tag, attributes in page.tags if tag == "tr"} <= {
        *(None, "unknown", "none", "weak", "signs")
    }


def test_results_of_earlier_versions_have_no_thumbnail(out):
    (out / "2.thumbnail.jpg").unlink()
    change(out, "2", thumbnail=None)
    assert "2.overlay.png" in write(out).sources


def test_thousands_of_photos(out):
    """No picture is inside, and not all of them are loaded at once."""
    entry = json.loads((out / "1.json").read_text())
    entries = {
        f"IMG_{i:05d}": {**entry, "file": f"IMG_{i:05d}.jpg", "error": ""} for i in range(2000)
    }
    small = (out / "index.html").stat().st_size
    write_index(out, entries)
    page = page_of(out)
    assert len(page.rows) == 2001
    assert "data:" not in str(page.sources)
    assert len(page.sources) == 300
    waiting = [attributes for _, attributes in page.tags if "data-small" in attributes]
    assert len(waiting) == 1700
    assert all(attributes["loading"] == "lazy" for tag, attributes in page.tags if tag == "img")
    assert ((out / "index.html").stat().st_size - small) / 2000 < 700


class TestForeignPages:
    def test_one_of_somebody_else_is_kept(self, tmp_path):
        photo = write_photo(tmp_path / "1.png")
        out = tmp_path / "out"
        out.mkdir()
        (out / "index.html").write_text("<h1>My page</h1>")
        with pytest.raises(ResultsError, match=r"index.html is not a page of results; .*force="):
            localize_files(photo, out)
        assert (out / "index.html").read_text() == "<h1>My page</h1>"
        assert [path.name for path in out.iterdir()] == ["index.html"]
        localize_files(photo, out, force=True)
        assert is_index(out / "index.html")

    def test_the_page_of_another_command_is_foreign(self, out):
        text = (out / "index.html").read_text()
        (out / "index.html").write_text(text.replace("cpcapp localize", "cpcapp evaluate", 1))
        assert not is_index(out / "index.html")

    def test_a_folder_in_its_place(self, tmp_path):
        (tmp_path / "out" / "index.html").mkdir(parents=True)
        with pytest.raises(ResultsError, match=r"index.html is in the way: it is not a file"):
            localize_files(write_photo(tmp_path / "1.png"), tmp_path / "out")

    def test_it_can_not_be_written(self, tmp_path):
        def block(result):
            (tmp_path / "out" / "index.html").mkdir()

        with pytest.raises(ResultsError, match=r"can't write .*index.html: "):
            localize_files(write_photo(tmp_path / "1.png"), tmp_path / "out", on_result=block)


class TestInABrowser:
    @pytest.fixture
    def shown(self, browser, out):
        for number, name in enumerate(("1", "2", "10")):
            change(out, name, verdict_code="none", verdict="no signs", p_value=0.2 + 0.1 * number)
        change(out, "10", verdict_code="signs", verdict="signs", p_value=None, width=6, height=4)
        entries = read_results(out, ())
        more = {f"z{i}": {**entries["1"], "file": f"z{i}.png"} for i in range(300)}
        for name in more:
            shutil.copy(out / "1.thumbnail.jpg", out / f"{name}.thumbnail.jpg")
        write_index(out, {**entries, **more})
        page = browser.new_page()
        problems = []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto((out / "index.html").as_uri())
        yield page
        assert problems == []
        page.close()

    @staticmethod
    def names(page):
        return page.locator("tbody td b").all_inner_texts()

    def test_sorting(self, shown):
        assert self.names(shown)[:3] == ["10.png", "1.png", "z0.png"]
        shown.click("th:has-text('photo') button")
        assert self.names(shown)[:4] == ["1.png", "2.png", "10.png", "z0.png"]
        assert shown.get_attribute("th:has-text('photo')", "aria-sort") == "ascending"
        shown.click("th:has-text('photo') button")
        assert self.names(shown)[:2] == ["z299.png", "z298.png"]
        shown.click("th:has-text('size') button")
        assert self.names(shown)[0] == "10.png"
        # The one without a value is last, whichever way the others are sorted.
        shown.fill("#find", "0.png")
        for first in ("z0.png", "z0.png"):
            shown.click("th button:text-is('p')")
            assert self.names(shown)[0] == first
            assert self.names(shown)[-1] == "10.png"
        shown.fill("#find", "")
        assert self.names(shown)[0] == "2.png"

    def test_a_narrow_page_is_sorted_by_a_list(self, shown):
        assert not shown.locator("#sort").is_visible()
        shown.set_viewport_size({"width": 390, "height": 844})
        assert not shown.locator("th button").first.is_visible()
        shown.select_option("#sort", label="photo")
        assert self.names(shown)[:3] == ["1.png", "2.png", "10.png"]
        shown.select_option("#sort", label="p")
        assert self.names(shown)[0] == "1.png"
        shown.select_option("#sort", label="verdict")
        assert self.names(shown)[0] == "10.png"

    def test_pictures_have_names(self, shown):
        """They are links, which nobody finds by ear otherwise."""
        shown.click("#more button")
        link = shown.get_by_role("link", name="overlay of z299.png", exact=True)
        assert link.get_attribute("href") == "z299.overlay.png"
        assert shown.get_by_role("link", name="overlay of 10.png", exact=True).count() == 1

    def test_finding_and_more_rows(self, shown):
        assert shown.locator("tbody tr").count() == 200
        assert shown.inner_text("#shown") == "200 of 303 photos"
        shown.click("#more button")
        assert shown.locator("tbody tr:visible").count() == 303
        shown.fill("#find", "Z29")
        assert self.names(shown) == ["z29.png", *(f"z29{i}.png" for i in range(10))]
        assert shown.inner_text("#shown") == "11 photos"
        shown.fill("#find", "")
        shown.select_option("#code", "signs")
        assert self.names(shown) == ["10.png"]

    def test_pictures_are_loaded(self, shown):
        # They are loaded when they come into view, which may be later than the page.
        shown.locator("tbody img").first.scroll_into_view_if_needed()
        shown.wait_for_function("document.querySelector('tbody img').naturalWidth === 60")

    def test_without_scripts(self, browser, out):
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto((out / "index.html").as_uri())
        assert page.locator("tbody tr:visible").count() == 3
        assert not page.locator("#find").is_visible()
        context.close()
