"""What the report quotes of the benchmarks is what the benchmarks wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cpcapp.experiments import _benchmarked as quoted

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_speed():
    found = json.loads((RESULTS / "estimators.json").read_text())
    assert quoted.SPEED_MEASURED.startswith(found["date"][:10])
    assert found["machine"]["processor"] in quoted.SPEED_MEASURED
    for figures, name in (
        (quoted.CONTRASTIVE, "contrastive"),
        (quoted.OUR_CPCA, "CPCA sweep (ours)"),
    ):
        measured = [shape["times_ours"][name] for shape in found["shapes"]]
        assert list(figures.values()) == [round(ratio) for ratio in measured]


def test_rules():
    found = json.loads((RESULTS / "loading_rules.json").read_text())
    regrets = {entry["rule"]: entry["reporting"] for entry in found["summary"]}
    default = regrets[next(iter(quoted.REGRETS))]
    deciding = sum(pair["half"] == "deciding" for pair in found["pairs"])
    assert (len(regrets), deciding) == (quoted.N_RULES, quoted.N_DECIDING)
    assert (default["n_pairs"], default["n_judged"]) == (quoted.N_PAIRS, quoted.N_JUDGED)
    for rule, regret in quoted.REGRETS.items():
        assert regrets[rule]["mean_regret"] == pytest.approx(regret, abs=6e-4)
    assert default["worst"] == pytest.approx(quoted.WORST_REGRET, abs=6e-4)


def test_gcpca():
    found = json.loads((RESULTS / "gcpca.json").read_text())
    assert f"{found['date']}, {found['package']}" == quoted.GCPCA_MEASURED
    assert not found["quick"]
    for size, methods in found["sizes"].items():
        theirs = {name: entry["mean"] for name, entry in methods.items() if "gcPCA" in name}
        assert theirs == quoted.GCPCA[size]


def test_mfcn():
    found = json.loads((RESULTS / "mfcn.json").read_text())
    assert quoted.MFCN_MEASURED.endswith(found["date"])
    for name, methods in quoted.MFCN_SCORES.items():
        for method, figures in methods.items():
            one = found["sets"][name][method]
            assert figures == [one["edge"]["mcc"], one["edge"]["f1"], one["surface"]["f1"]]
    for method, figures in quoted.MFCN_COSTS.items():
        one = found["costs"][method]
        names = ("processor_seconds_a_photo", "peak_mb")
        wanted = [one["parameters"], round(one["bytes"] / 1e6, 1), *(one[name] for name in names)]
        assert figures == wanted
    theirs, _, paper, _ = found["training"]["runs"]
    assert {
        "seconds": theirs["seconds"],
        "splices": theirs["splices"],
        "card": theirs["on"].removeprefix("GPU: "),
        "seconds of paper": paper["seconds"],
    } == quoted.MFCN_TRAINING


def test_the_rules_can_be_judged_again():
    script = RESULTS.parent / "loading_rules.py"
    ran = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "--output" in ran.stdout
