"""The report: complete, self-contained, the same for the same seed."""

from __future__ import annotations

import base64
import json

import pytest

from cpcapp.experiments import Missing, Settings, run_experiment
from cpcapp.experiments.report import cell_text, json_text, plain, write_report
from pages import Page

QUICK = Settings(quick=True)
REASON = "mHealth is not here; get it from <https://example.org/a_b> & put it there"


@pytest.fixture(scope="module")
def outcomes(data_folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPCAPP_DATA", str(data_folder))
        return [
            run_experiment("needle", QUICK),
            run_experiment("mice_protein", QUICK),
            Missing("mhealth", "MHealth", REASON),
        ]


@pytest.fixture
def folder(outcomes, tmp_path):
    write_report(outcomes, tmp_path / "new" / "report", QUICK)
    return tmp_path / "new" / "report"


def test_the_page_needs_nothing_else(folder, outcomes):
    page = Page((folder / "report.html").read_text())
    page.check_policy()
    ids = [found["id"] for _, found in page.tags if "id" in found]
    assert ids == [outcome.name for outcome in outcomes]
    assert page.links == [f"#{name}" for name in ids]
    assert len(page.sources) == 2
    for source, picture in zip(page.sources, outcomes[1].pictures, strict=True):
        head, _, data = source.partition(",")
        assert head == "data:image/png;base64"
        assert base64.b64decode(data) == picture.png
    assert all(len(found["alt"]) > 40 for tag, found in page.tags if tag == "img")


def test_the_page_says_everything(folder, outcomes):
    text = Page((folder / "report.html").read_text()).text
    for outcome in outcomes[:2]:
        for sentence in (outcome.title, outcome.shows, outcome.look_at, *outcome.findings):
            assert sentence in text
        for source, says in outcome.paper.items():
            assert source in text
            assert says in text
    assert REASON in text
    assert "1 of 3 experiments could not be made" in text
    assert "quick run" in text


def test_markdown_has_its_pictures_beside_it(folder, outcomes):
    text = (folder / "report.md").read_text()
    for picture in outcomes[1].pictures:
        assert f"](figures/{picture.name}.png)" in text
        assert (folder / "figures" / f"{picture.name}.png").read_bytes() == picture.png
    assert plain(REASON) in text
    for line in text.splitlines():
        if line.startswith("| "):
            assert line.endswith(" |")
    assert "| cPCA++, nothing to choose | 0.7" in text


def test_json_has_all_numbers(folder, outcomes):
    found = json.loads((folder / "report.json").read_text())
    assert found["missing"] == {"mhealth": REASON}
    assert (found["seed"], found["quick"]) == (0, True)
    mice = found["experiments"]["mice_protein"]
    assert mice["numbers"]["cPCA++"]["ari"] == pytest.approx(
        outcomes[1].numbers["cPCA++"]["ari"], rel=1e-5
    )
    assert len(mice["numbers"]["cPCA sweep"]) == 11
    assert mice["paper"][0]["source"] == "Section III-B3"


def test_a_second_report_replaces_the_first(folder, outcomes):
    before = {path.name for path in folder.rglob("*")}
    write_report(outcomes, folder, QUICK)
    assert {path.name for path in folder.rglob("*")} == before


def stable(outcome, settings):
    found = json.loads(json_text([outcome], settings, "now"))
    for experiment in found["experiments"].values():
        experiment["timings"] = None
    return found


def test_the_same_seed_gives_the_same_numbers_and_pictures(outcomes, data_folder, monkeypatch):
    monkeypatch.setenv("CPCAPP_DATA", str(data_folder))
    again = run_experiment("mice_protein", QUICK)
    assert stable(again, QUICK) == stable(outcomes[1], QUICK)
    assert [p.png for p in again.pictures] == [p.png for p in outcomes[1].pictures]
    other = run_experiment("needle", Settings(seed=1))
    assert other.numbers["exact"] == outcomes[0].numbers["exact"]
    assert other.numbers["sampled"] != outcomes[0].numbers["sampled"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        ("words", "words"),
        (12, "12"),
        (0.0, "0.000"),
        (0.5, "0.500"),
        (-0.04567, "-0.046"),
        (0.00065, "0.00065"),
        (26.0, "26"),
        (2155.4, "2,155"),
        (1e-9, "0.000"),
    ],
)
def test_cells(value, text):
    assert cell_text(value) == text
