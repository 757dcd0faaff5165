"""The table of scores in README.md and docs/splicing.md: what the benchmark measured."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "models.json"


@pytest.fixture(scope="module")
def make_scores():
    spec = importlib.util.spec_from_file_location("make_scores", ROOT / "docs" / "make_scores.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(n_authentic=10, **protocols):
    """What benchmarks/models.py writes of a model and a set."""
    return {
        **{name: {"f1": f1, "mcc": mcc} for name, (f1, mcc) in protocols.items()},
        "verdict": {
            "n_spliced": 20,
            "n_authentic": n_authentic,
            "found_of_spliced": 0.75,
            "alarms_on_authentic": 0.049 if n_authentic else None,
            "weak_on_authentic": 0.07 if n_authentic else None,
        },
        "p_values": {},
        "problems": [],
        "seconds_a_photo": 1.0,
    }


@pytest.fixture
def results():
    regions = {"surface": (0.917, 0.9), "surface-fixed": (0.861, 0.8), "edge": (0.6, 0.59)}
    controls = {"constant": {"edge": {"f1": 0.1, "mcc": 0.0}}}
    return {
        "looks": 3,
        "date": "2026-01-02",
        "machine": {"processor": "Some CPU", "cores": 4},
        "sets": {
            "casia1": {"default": measured(n_authentic=0, edge=(0.4, 0.449))},
            "feathered": {"default": measured(**regions)},
            "columbia": {
                "controls": controls,
                "default": measured(**regions),
                "paper": measured(edge=(0.3, 0.31)),
            },
        },
    }


def test_what_was_measured_and_nothing_else_is_in_the_table(make_scores, results):
    head, rule, *rows, _, note = make_scores.scores_table(results).split("\n")
    assert head.count("|") == rule.count("|") == 9
    assert rows == [
        "| Columbia, uncompressed (20 spliced, 10 genuine) "
        "| `paper` | – | – | 0.31 | 75 % | 5 % | 12 % |",
        "|  | `default` | 0.92 | 0.86 | 0.59 | 75 % | 5 % | 12 % |",
        "| CASIA 1.0 (20 spliced, 0 genuine) | `default` | – | – | 0.45 | 75 % | – | – |",
    ]
    assert note.startswith("Measured on 2026-01-02 on Some CPU with 4 cores.")
    assert note.endswith("Looks at these photos so far: 3.")


def test_a_page_keeps_all_but_its_table(make_scores, results, tmp_path):
    file, page = tmp_path / "models.json", tmp_path / "page.md"
    file.write_text(json.dumps(results), encoding="utf-8")
    start, end = "# Ü\n\n<!-- scores:begin -->\n", "<!-- scores:end -->\n\nThe end.\n"
    page.write_text(f"{start}old{end}", encoding="utf-8")
    for _ in range(2):  # the second time nothing changes
        assert make_scores.main(["--results", str(file), str(page)]) == 0
        table = make_scores.scores_table(results)
        assert page.read_text(encoding="utf-8") == f"{start}\n{table}\n\n{end}"


@pytest.mark.parametrize("page", ["", "<!-- scores:end --> <!-- scores:begin -->"])
def test_a_page_without_the_two_comments_is_an_error(make_scores, page):
    with pytest.raises(ValueError, match=r"scores:begin.*scores:end"):
        make_scores.with_scores(page, "table")


@pytest.mark.parametrize(
    ("name", "models"),
    [("README.md", ("default",)), ("docs/splicing.md", ("paper", "filters", "default"))],
)
def test_the_pages_say_what_was_measured(make_scores, name, models):
    page = (ROOT / name).read_text(encoding="utf-8")
    table = make_scores.scores_table(json.loads(RESULTS.read_text(encoding="utf-8")), models)
    message = f"{name} is not what benchmarks/results/models.json says; run: make scores"
    assert make_scores.with_scores(page, table) == page, message


def test_the_page_about_verdicts_says_what_was_measured(make_scores):
    page = make_scores.ALARM_PAGE.read_text(encoding="utf-8")
    results = json.loads(make_scores.ALARM_RESULTS.read_text(encoding="utf-8"))
    table = make_scores.alarms_table(results)
    assert table in page, "docs/verdicts.md is not what was measured; run: make scores"
    assert len(table.splitlines()) == 2 + 1 + len(results["models"]["default"]["collections"])


def test_the_page_about_mfcn_says_what_was_measured(make_scores):
    page = make_scores.MFCN_PAGE.read_text(encoding="utf-8")
    results = json.loads(make_scores.MFCN_RESULTS.read_text(encoding="utf-8"))
    message = "docs/mfcn.md is not what benchmarks/results/mfcn.json says; run: make scores"
    assert make_scores.with_mfcn(page, results) == page, message
    rows = make_scores.mfcn_scores_table(results).splitlines()[2:]
    assert len(rows) == 5 * len(make_scores.MFCN_METHODS) + 2
    mcc = results["sets"]["columbia"]["mfcn"]["edge"]["mcc"]
    assert rows[3].split(" | ")[1:3] == ["MFCN", f"{mcc:.2f}"]


def test_the_page_about_the_method_says_what_was_measured(make_scores):
    page = make_scores.LOADING_PAGE.read_text(encoding="utf-8")
    results = json.loads(make_scores.LOADING_RESULTS.read_text(encoding="utf-8"))
    message = "docs/method.md is not what loading_rules.json says; run: make scores"
    assert make_scores.with_loading(page, results) == page, message
    for found in results["summary"]:
        found["small class"]["mean_regret"] = 0.123
    assert "0.12" in make_scores.with_loading(page, results)
