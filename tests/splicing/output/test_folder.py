"""A folder of results: names, the files of a photo, the table and the page of all."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote_to_bytes

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stand_in
from cpcapp.splicing import Localization, ResultsError, localize_files, read_image
from cpcapp.splicing import model as model_file
from cpcapp.splicing.decide.verdict import Rank
from cpcapp.splicing.output.folder import (
    ResultFiles,
    is_complete,
    is_result_picture,
    make_result,
    name_results,
    read_entry,
    write_overviews,
    write_result,
)
from pages import Page

NAMES = st.text("aAbй-1", min_size=1, max_size=4) | st.sampled_from(["a" * 240, "й" * 120])
PHOTOS = st.lists(
    st.builds("/{}/{}{}".format, NAMES, NAMES, st.sampled_from([".jpg", ".PNG"])), unique=True
).map(lambda paths: [Path(path) for path in paths])

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
    write_overviews(folder)
    return page_of(folder)


@given(PHOTOS, st.randoms())
def test_every_photo_has_names_of_its_own_in_whatever_order(photos, random):
    named = {files.photo: files.name for files in name_results(photos, Path("out"))}
    assert len({name.casefold() for name in named.values()}) == len(photos)
    random.shuffle(photos)
    assert {files.photo: files.name for files in name_results(photos, Path("out"))} == named
    for files in name_results(photos, Path("out")):
        assert all(len(path.name.encode()) <= 255 for path in files.all)
        assert all(path.parent == Path("out") for path in files.all)
        assert len(set(files.all)) == 7


class TestFilesOfAPhoto:
    @pytest.fixture
    def files(self, tmp_path):
        return ResultFiles(Path("cat.jpg"), tmp_path, "cat")

    @staticmethod
    def write(files, **changes):
        image = read_image(np.full((80, 100, 3), 128, dtype=np.uint8))
        flat = np.zeros((80, 100), dtype=np.float32)
        found = replace(Localization(flat, jpeg_quality=90, calibrated=True), **changes)
        origin = {"sha256": "0", "model": {"name": "any"}}
        entry, contents = make_result(files, image, b"", found, origin)
        write_result(files, entry, contents)
        return entry

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"score": math.nan, "rank": Rank(math.nan, 0, 1), "seconds": math.inf},
            {"score": -math.inf, "rank": Rank(0.0, 0, 0), "jpeg_quality": None},
            {"calibrated": False},
            {"region": np.ones((80, 100), np.float32)},
        ],
    )
    def test_it_is_valid_json_whatever_is_unknown(self, files, changes):
        def refuse(name):
            raise ValueError(f"{name} is no JSON")

        entry = self.write(files, **changes)
        content = json.loads(files.entry.read_bytes(), parse_constant=refuse)
        assert content == entry == read_entry(files.entry)
        assert is_complete(files, entry)
        assert is_result_picture(files.overlay)
        assert files.region.exists() == ("region" in changes)

    def test_what_the_verdict_rests_on(self, files):
        entry = self.write(files)
        assert (entry["jpeg_quality"], entry["calibrated"], entry["p_value"]) == (90, True, None)
        assert entry["genuine_photos"] is entry["genuine_as_high"] is None
        assert entry["verdict"] == "can't tell (the model has not learned to judge)"
        assert entry["verdict_code"] == "unknown"
        entry = self.write(files, rank=Rank(0.1, 3, 40))
        assert (entry["verdict"], entry["verdict_code"]) == ("weak signs of splicing", "weak")
        assert (entry["p_value"], entry["genuine_as_high"], entry["genuine_photos"]) == (0.1, 3, 40)

    def test_the_region_is_shown_with_signs_only_and_the_boundary_map_always(self, files):
        boundary = np.random.default_rng(0).random((80, 100), dtype=np.float32)
        whole = {"region": np.ones((80, 100), np.float32), "boundary": boundary}
        maps = set()
        for p_value, share in ((0.01, 1), (0.1, 1), (0.2, 0), (None, 0)):
            rank = None if p_value is None else Rank(p_value, 9, 99)
            entry = self.write(files, rank=rank, **whole)
            assert entry["region_share"] == share
            assert read_image(files.region).pixels.mean() == 255 * share
            maps.add(files.boundary.read_bytes())
        assert len(maps) == 1

    def test_masks_of_an_earlier_model_do_not_stay(self, files):
        self.write(files, region=np.ones((80, 100), np.float32))
        assert files.region.exists()
        self.write(files)
        assert not files.region.exists()

    def test_other_files(self, files):
        assert read_entry(files.entry) is None
        for content in ("{", "[]", '{"file": "cat.jpg"}'):
            files.entry.write_text(content)
            assert read_entry(files.entry) is None
        assert not is_result_picture(files.overlay)
        assert not is_result_picture(files.folder / "cat.png")


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
    change(out, "2", region="/etc/passwd", report_pdf=evil, verdict_code="<b>")
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
    small, text = (out / "index.html").stat().st_size, (out / "1.json").read_text()
    for i in range(1000):
        (out / f"IMG_{i:05d}.json").write_text(text)
    page = write(out)
    assert len(page.rows) == 1004
    assert "data:" not in str(page.sources)
    assert len(page.sources) == 300
    waiting = [attributes for _, attributes in page.tags if "data-small" in attributes]
    assert len(waiting) == 703
    assert all(attributes["loading"] == "lazy" for tag, attributes in page.tags if tag == "img")
    assert ((out / "index.html").stat().st_size - small) / 1000 < 800


def test_a_page_of_somebody_else_is_kept(tmp_path):
    photo, out = write_photo(tmp_path / "1.png"), tmp_path / "out"
    out.mkdir()
    # One of another command is foreign too.
    for text in ("<h1>My page</h1>", '<meta name="generator" content="cpcapp evaluate">'):
        (out / "index.html").write_text(text)
        with pytest.raises(ResultsError, match=r"index.html is not a page of results; .*force="):
            localize_files(photo, out)
        assert (out / "index.html").read_text() == text
        assert [path.name for path in out.iterdir()] == ["index.html"]
    localize_files(photo, out, force=True)
    assert len(page_of(out).rows) == 2


class TestInABrowser:
    @pytest.fixture
    def shown(self, browser, out):
        for number, name in enumerate(("1", "2", "10")):
            change(out, name, verdict_code="none", verdict="no signs", p_value=0.2 + 0.1 * number)
        change(out, "10", verdict_code="signs", verdict="signs", p_value=None, width=6, height=4)
        for name in (f"z{i}" for i in range(300)):
            shutil.copy(out / "1.json", out / f"{name}.json")
            change(out, name, file=f"{name}.png")
            shutil.copy(out / "1.thumbnail.jpg", out / f"{name}.thumbnail.jpg")
        write_overviews(out)
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

    @pytest.mark.parametrize("width", [390, 1000])
    def test_a_narrow_page_is_sorted_by_a_list(self, shown, width):
        assert not shown.locator("#sort").is_visible()
        shown.set_viewport_size({"width": width, "height": 844})
        assert shown.locator("tbody td b").first.bounding_box()["height"] < 40
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
