"""``cpcapp reduce``, run as a user runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from cpcapp import CPCA, CPCAPlusPlus
from cpcapp.cli import main
from cpcapp.datasets import synthetic

FILES = ["loadings.csv", "model.safetensors", "scores.csv", "summary.json", "top_features.csv"]


@pytest.fixture
def data():
    return synthetic(noise_variance=100.0, random_state=0)


@pytest.fixture
def tables(data, tmp_path):
    """Two CSV files; the background's columns stand in another order."""
    names = [f"gene {i}" for i in range(30)]
    target = pd.DataFrame(data.target, columns=names)
    target.insert(0, "sample", [f"s{i}" for i in range(len(target))])
    target["group"] = data.labels
    target["group"] = "group " + target["group"].astype(str)
    background = pd.DataFrame(data.background, columns=names)[names[::-1]]
    target.to_csv(tmp_path / "target.csv", index=False)
    background.to_csv(tmp_path / "background.csv", index=False)
    return tmp_path


KEPT = ("--id", "sample", "--label", "group")
MARKED = ("--split", "group", "--id", "sample")


@pytest.fixture
def reduce(tables, capsys, monkeypatch):
    """Run the command within a folder; return what it printed, or else its notes or its error."""
    monkeypatch.chdir(tables)

    def call(*arguments, status=0, notes=False):
        found = main(["reduce", *map(str, arguments), "-o", "out"])
        out, err = capsys.readouterr()
        assert found == status, err
        if status:
            assert out == ""
            assert len(err.splitlines()) == 1
        return err if status or notes else out

    return call


def scores(path="out/scores.csv"):
    table = pd.read_csv(path) if str(path).endswith(".csv") else pd.read_parquet(path)
    return table[[name for name in table if name.startswith("component_")]].to_numpy()


def test_two_tables(reduce, data, tables):
    printed = reduce("target.csv", "background.csv", *KEPT)
    expected = CPCAPlusPlus().fit(data.target, background=data.background)
    np.testing.assert_allclose(scores(), expected.transform(data.target), rtol=1e-8)
    table = pd.read_csv("out/scores.csv")
    assert list(table) == ["sample", "group", "component_1", "component_2"]
    assert table["sample"][7] == "s7"
    assert table["group"].iloc[0] == f"group {data.labels[0]}"
    assert sorted(path.name for path in (tables / "out").iterdir()) == FILES
    loadings = pd.read_csv("out/loadings.csv", index_col="feature")
    np.testing.assert_allclose(loadings[["filter_1", "filter_2"]].T, expected.components_)
    np.testing.assert_allclose(loadings[["atom_1", "atom_2"]].T, expected.atoms_)
    deviation = data.target.std(axis=0)
    np.testing.assert_allclose(loadings["weight_2"], expected.components_[1] * deviation)
    summary = json.loads((tables / "out/summary.json").read_bytes())
    np.testing.assert_allclose(summary["eigenvalues"], expected.eigenvalues_)
    assert summary["components_that_stand_out"] == 2
    assert summary["target"]["rows_used"] == summary["background"]["rows_used"] == 400
    top = pd.read_csv("out/top_features.csv")
    first = np.abs(expected.components_[0] * deviation).argmax()
    assert top["feature"][0] == f"gene {first}"
    assert f"top features: gene {first} " in printed
    assert "2 components are significant (permutation test)" in printed


def test_scores_of_parquet_tables_are_parquet_in_upper_case_too(reduce, data, tables):
    for path, values in (("t.PARQUET", data.target), ("b.Pq", data.background)):
        pd.DataFrame(values, columns=[f"x{i}" for i in range(30)]).to_parquet(tables / path)
    reduce("t.PARQUET", "b.Pq")
    expected = CPCAPlusPlus().fit(data.target, background=data.background)
    np.testing.assert_allclose(scores("out/scores.parquet"), expected.transform(data.target))


def test_other_methods(reduce, data):
    reduce("target.csv", "background.csv", *KEPT, "--method", "cpca", "--alpha", "2.7")
    expected = CPCA(alpha=2.7).fit(data.target, background=data.background)
    np.testing.assert_allclose(scores(), expected.transform(data.target), atol=1e-8)
    reduce("target.csv", *KEPT, "--method", "pca", "-k", "3", "--force")
    found, expected = scores(), PCA(3).fit_transform(data.target)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-8)


def test_many_small_chunks_give_the_same(reduce, data, monkeypatch):
    monkeypatch.setattr("cpcapp.tables.read.csv._MAX_BLOCK_BYTES", 3000)
    monkeypatch.setattr("cpcapp.tables.read.csv._HEAD_BYTES", 3000)
    reduce("target.csv", "background.csv", *KEPT)
    expected = CPCAPlusPlus().fit(data.target, background=data.background)
    np.testing.assert_allclose(scores(), expected.transform(data.target), rtol=1e-6)


def test_one_table_with_both_sets(reduce, data, tables):
    both = pd.concat([pd.read_csv("target.csv"), pd.read_csv("background.csv")])
    both["group"] = both["group"].fillna("control")
    both["sample"] = np.arange(len(both))
    both.sample(frac=1, random_state=0).to_csv("both.csv", index=False)
    expected = CPCAPlusPlus().fit(data.target, background=data.background)
    reduce("both.csv", "--split", "group", "--background", "control", "--id", "sample")
    table = pd.read_csv("out/scores.csv").sort_values("sample")
    np.testing.assert_allclose(
        table.filter(like="component_"), expected.transform(data.target), rtol=1e-8
    )
    values = ("--target", "group 0,group 1", "--background", "control", "--include-background")
    reduce("both.csv", "--split", "group", *values, "--id", "sample", "--label", "group", "--force")
    table = pd.read_csv("out/scores.csv")
    assert set(table["group"][table["set"] == "target"]) == {"group 0", "group 1"}
    assert set(table["group"][table["set"] == "background"]) == {"control"}


def test_standardized_each_by_its_own_deviation(reduce, data):
    reduce("target.csv", "background.csv", *KEPT, "--standardize", "each", "--include-background")
    T, B = ((X - X.mean(axis=0)) / X.std(axis=0) for X in (data.target, data.background))
    expected = CPCAPlusPlus().fit(T, background=B)
    found = scores()
    np.testing.assert_allclose(found[:400], expected.transform(T), atol=1e-8)
    np.testing.assert_allclose(found[400:], B @ expected.components_.T, atol=1e-8)


def test_standardized_by_the_background(reduce, data):
    options = ("--standardize", "background", "--method", "cpca", "--alpha", "1")
    reduce("target.csv", "background.csv", *KEPT, *options)
    scale = data.background.std(axis=0)
    T, B = data.target / scale, data.background / scale
    expected = CPCA(alpha=1.0).fit(T, background=B)
    np.testing.assert_allclose(scores(), expected.transform(T), atol=1e-8)


@pytest.mark.parametrize("rule", ["zero", "mean", "drop"])
def test_missing_values(reduce, data, rule):
    table = pd.read_csv("target.csv")
    table.loc[[5, 90], "gene 3"] = np.nan
    table.loc[90, "gene 4"] = np.nan
    table.to_csv("holes.csv", index=False)
    error = reduce("holes.csv", "background.csv", *KEPT, status=2)
    assert "3 missing values in 2 rows: line 7: column 'gene 3'; line 92: column 'gene 3'" in error
    reduce("holes.csv", "background.csv", *KEPT, "--missing", rule)
    values = table.filter(like="gene")
    values = {"zero": values.fillna(0.0), "mean": values.fillna(values.mean())}.get(
        rule, values.dropna()
    ).to_numpy()
    expected = CPCAPlusPlus().fit(values, background=data.background)
    np.testing.assert_allclose(scores(), expected.transform(values), atol=1e-8)


def test_bad_rows(reduce, tables, data):
    lines = (tables / "target.csv").read_text().splitlines()
    lines[3] = lines[3] + ",1"
    for place in (10, 20, 30, 40, 50):
        lines[place] = lines[place].replace(f"s{place - 1},", f"s{place - 1},abc", 1)
    lines[60] = ",".join(["s59", "inf", *lines[60].split(",")[2:]])
    (tables / "bad.csv").write_text("\n".join(lines))
    error = reduce("bad.csv", "background.csv", *KEPT, status=2)
    assert "bad.csv: 7 bad rows: line 4: 33 fields where the header has 32; line 11: " in error
    assert "; and 2 more; correct them, or leave them out with --skip-bad-rows" in error
    arguments = ("bad.csv", "background.csv", *KEPT, "--skip-bad-rows")
    assert "393 rows of bad.csv (7 bad rows left out)" in reduce(*arguments)
    notes = reduce(*arguments, "--force", notes=True)
    assert "note: bad.csv: 7 bad rows left out: line 4: 33 fields" in notes
    good = np.delete(data.target, [2, 9, 19, 29, 39, 49, 59], axis=0)
    expected = CPCAPlusPlus().fit(good, background=data.background)
    np.testing.assert_allclose(scores(), expected.transform(good), rtol=1e-8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("target.csv", "background.csv"), "column 'sample', 'group' is not numeric; copy it"),
        (
            ("target.csv",),
            "cpca++ needs a background; give BACKGROUND, or --split and --background",
        ),
        (("target.csv", "none.csv"), "there is no file none.csv"),
        (("target.csv", "b.csv", *KEPT), "b.csv has no column 'gene 2', 'gene 3'"),
        (
            ("target.csv", "background.csv", *KEPT, "--alpha", "2"),
            "--alpha is for the method 'cpca' only",
        ),
        (("target.csv", "--split", "group"), "by no value; give --background"),
        (
            ("target.csv", "--split", "group", "--background", "x", "--id", "sample"),
            "no row has 'x' in column 'group'; it has 4 values: 'group 3' (116 rows), ",
        ),
        (
            ("target.csv", *MARKED, "--target", "group 1,x", "--background", "group 2"),
            "no row has 'x' in column 'group'; it has 4 values: 'group 3' (116 rows), ",
        ),
        (("target.csv", "background.csv", *KEPT, "--columns", "gene 1,sample"), "at once"),
        (("target.csv", "background.csv", *KEPT, "--columns-from", "none"), "none"),
    ],
)
def test_mistakes_are_one_line(reduce, tables, arguments, message):
    (tables / "b.csv").write_text("gene 0,gene 1\n1,2\n3,4\n")
    assert message in reduce(*arguments, status=2)
    assert not list(tables.glob("out/*"))


def test_chosen_columns(reduce, tables):
    (tables / "genes.txt").write_text("gene 4\ngene 2\n")
    reduce("target.csv", "background.csv", "--columns-from", "genes.txt", "--columns", "gene 9")
    assert list(pd.read_csv("out/loadings.csv")["feature"]) == ["gene 9", "gene 4", "gene 2"]
    assert pd.read_csv("out/scores.csv").columns[0] == "row"


def test_nothing_is_replaced_unless_asked_to(reduce, tables):
    reduce("target.csv", "background.csv", *KEPT)
    before = (tables / "out/scores.csv").read_bytes()
    error = reduce("target.csv", "background.csv", *KEPT, "-k", "1", status=2)
    assert "scores.csv exists already, with 4 more; replace with --force" in error
    assert (tables / "out/scores.csv").read_bytes() == before
    reduce("target.csv", "background.csv", *KEPT, "-k", "1", "--force")
    assert (tables / "out/scores.csv").read_bytes() != before
    assert "exists already" in reduce(
        "target.csv", "background.csv", *KEPT, "--format", "parquet", status=2
    )
    error = reduce("out/scores.csv", "background.csv", "--force", status=2)
    assert "is read by this run" in error
    reduce("target.csv", "background.csv", *KEPT, "--format", "parquet", "--force")
    assert scores("out/scores.parquet").shape == (400, 2)
    assert not (tables / "out/scores.csv").exists()
    error = reduce("out/scores.parquet", "background.csv", "--force", status=2)
    assert "is read by this run" in error


def test_a_picture_has_a_bounded_number_of_points_of_both_sets(reduce, tables, monkeypatch):
    monkeypatch.setattr("cpcapp.tables.results._MAX_POINTS", 50)
    reduce("target.csv", "background.csv", *KEPT, "--plot", "out/p.svg")
    text = (tables / "out/p.svg").read_text()
    assert "400 rows (50 shown); background 400 rows (50 shown)" in text
    assert text.count("fill: #c4c4c4") >= 50


def test_what_was_recognised_in_a_file_is_one_line(reduce, tables):
    for name in ("target", "background"):
        frame = pd.read_csv(f"{name}.csv").rename(columns={"gene 0": "größe"})
        frame["größe"] = [f"{1000 + value:,.4f}" for value in frame["größe"]]
        frame.to_csv(f"{name}.csv", index=False, encoding="latin-1")
    lines = reduce("target.csv", "background.csv", *KEPT).splitlines()
    assert re.fullmatch(
        r"recognised  target\.csv: Latin-1 \(Windows-1252\), not UTF-8, thousands separators in "
        r"\d+ numbers \(line \d+: '1,\d{3}\.\d{4}' is 1\d{3}\.\d+\)",
        lines[2],
    )
    assert lines[3].startswith("recognised  background.csv: Latin-1")
    assert len(json.loads(Path("out/summary.json").read_text())["target"]["recognised"]) == 2


def test_the_mice_of_the_paper(data_folder, reduce):
    """One file as published: the two genotypes come apart in the shocked mice."""
    path = data_folder / "mice_protein" / "Data_Cortex_Nuclear.csv"
    sets = ("--split", "class", "--target", "c-SC-s,t-SC-s", "--background", "c-CS-s")
    kept = ("--id", "MouseID", "--label", "Genotype", "--drop", "Treatment,Behavior,label")
    printed = reduce(path, *sets, *kept, "--missing", "zero", "--standardize", "each")
    assert "features    77" in printed
    table = pd.read_csv("out/scores.csv")
    values = table.filter(like="component_")
    clusters = KMeans(2, n_init=10, random_state=0).fit_predict(values / values.std())
    assert adjusted_rand_score(table["Genotype"], clusters) > 0.78


def test_a_pipe_can_not_be_read_twice(reduce):
    command = (
        f"'{sys.executable}' -m cpcapp reduce <(cat target.csv) background.csv --id sample "
        "--label group -o out"
    )
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "is a pipe, but tables are read twice; give a file" in done.stderr


def test_constant_features_are_named(reduce, tables):
    table = pd.read_csv("target.csv").assign(batch=3)
    table["code"] = np.arange(len(table)) % 3
    table.to_csv("t.csv", index=False)
    pd.read_csv("background.csv").assign(code=1, batch=3).to_csv("b.csv", index=False)
    notes = reduce("t.csv", "b.csv", *KEPT, notes=True)
    assert "note: 'code' is constant in the background\n" in notes
    assert "note: 'batch' is constant in both sets\n" in notes
    summary = json.loads((tables / "out/summary.json").read_bytes())
    assert (summary["constant_in_background"], summary["constant"]) == (["code"], ["batch"])


def test_features_that_look_like_labels_are_named_unless_the_user_chose_them(reduce, tables):
    for name in ("target", "background"):
        table = pd.read_csv(tables / f"{name}.csv")
        table["the code"] = np.arange(len(table)) // 150  # sorted: constant in the first rows
        table["no"] = np.arange(7, len(table) + 7)
        table.to_csv(tables / f"{name}.csv", index=False)
    notes = reduce("target.csv", "background.csv", *KEPT, notes=True)
    assert "note: 'the code' is used as a feature, but has only 3 values" in notes
    assert "--label 'the code'" in notes
    assert "note: 'no' is used as a feature, but counts the rows" in notes
    assert notes.count("note: ") == 2
    stored = json.loads((tables / "out/summary.json").read_bytes())["notes"]
    assert len(stored) == 2
    assert "--" not in "".join(stored)
    roles = [*KEPT, "--label", "the code", "--id", "no", "--force"]
    assert reduce("target.csv", "background.csv", *roles, notes=True) == ""
    chosen = ["--columns", "gene 0,gene 1,the code,no", "--force"]
    notes = reduce("target.csv", "background.csv", *KEPT, *chosen, notes=True)
    assert "is used as a feature" not in notes


def test_few_background_rows_are_shuffled_or_too_few_for_the_law(reduce, tables):
    """The Tracy-Widom test needs more rows than features."""
    pd.read_csv(tables / "background.csv")[:20].to_csv(tables / "few.csv", index=False)
    options = "-k", "2", "--no-permutation-test"
    notes = reduce("target.csv", "few.csv", *KEPT, *options, notes=True)
    assert "the number of significant components was not tested: " in notes
    assert "--permutation-test needs no such background" in notes
    summary = json.loads((tables / "out/summary.json").read_bytes())
    assert summary["components_that_stand_out"] is summary["permutation_test"] is None
    printed = reduce("target.csv", "few.csv", *KEPT, "-k", "auto", "--force")
    assert "significant (permutation test)" in printed
    summary = json.loads((tables / "out/summary.json").read_bytes())
    assert summary["permutation_test"]["background_rows"] == 20
    assert summary["permutation_test"]["p"] <= 0.05


def test_problems_go_to_standard_error_in_one_line_of_options(reduce, tables):
    (tables / "empty.csv").write_text("gene 0,gene 1\n")
    error = reduce("empty.csv", "background.csv", status=2)
    assert error == (
        "cpcapp reduce: empty.csv: 0 of 0 rows can be used as target; at least 2 are needed\n"
    )
    assert not (tables / "out").exists()  # no empty folder after a mistake
    error = reduce("target.csv", "background.csv", *KEPT, "-k", "31", status=2)
    assert "30 features and 400 rows; -k must be at most 30" in error
    (tables / "out").write_text("a file")
    assert "out is not a folder; choose another -o" in reduce(
        "target.csv", "background.csv", status=2
    )


def test_a_folder_that_is_read_is_not_written_to(tables, capsys):
    (tables / "parts").mkdir()
    pd.read_csv(tables / "background.csv").to_parquet(tables / "parts" / "1.parquet")
    folder = str(tables / "parts")
    assert main(["reduce", folder, str(tables / "background.csv"), "-o", folder]) == 2
    assert "is read by this run; choose another -o" in capsys.readouterr().err
