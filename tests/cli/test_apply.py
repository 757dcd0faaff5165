"""``cpcapp apply``, run as a user runs it."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cpcapp import CPCAPlusPlus
from cpcapp.cli import main
from cpcapp.tables import reduce_tables

NAMES = [f"gene {i}" for i in range(4)]
NO_POWER = (
    "note: the model was made by an earlier version, without what power and p need; make it again "
    "for these columns\n"
)


@pytest.fixture
def model(rng, tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "t.csv"
    pd.DataFrame(rng.normal(size=(30, 4)) @ rng.normal(size=(4, 4)), columns=NAMES).to_csv(
        path, index=False
    )
    found = reduce_tables(path, None, 2, method="pca", standardize="each").model
    return replace(found, fill=np.full(4, 5.0))


@pytest.fixture
def table(rng):
    found = pd.DataFrame(rng.normal(size=(50, 4)), columns=NAMES)
    found.insert(0, "sample", [f"s{i}" for i in range(50)])
    return found


@pytest.fixture
def expected(model, table):
    return model.transform(table[NAMES].to_numpy())


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, model, table):
    monkeypatch.chdir(tmp_path)
    model.save("model.safetensors")
    table.to_csv("table.csv", index=False)
    return tmp_path


@pytest.fixture
def apply(capfdbinary):
    """Run the command; return standard output and standard error."""

    def call(*arguments, status=0):
        found = main(["apply", "model.safetensors", *map(str, arguments)])
        out, err = (stream.decode() for stream in capfdbinary.readouterr())
        assert found == status, err
        if status:
            assert len(err.splitlines()) == 1
        return out, err

    return call


def scores(path):
    table = pd.read_parquet(path) if str(path).lower().endswith("parquet") else pd.read_csv(path)
    return table.filter(like="component_").to_numpy()


@pytest.mark.parametrize("output", ["new.CSV", "new.parquet", "new.Pq"])
def test_new_rows_in_the_format_of_the_name(apply, table, expected, folder, output):
    table[table.columns[::-1]].to_parquet("turned.parquet")
    out, err = apply("turned.parquet", "-o", output, "--id", "sample")
    assert (out, err) == (f"50 rows -> {output}\n", "")
    read = pd.read_csv if output.lower().endswith("csv") else pd.read_parquet
    found = read(folder / output)
    np.testing.assert_allclose(found.filter(like="component_"), expected, atol=1e-12)
    assert found["sample"][3] == "s3"


def test_mistakes(apply, table, folder):
    (folder / "new.csv").write_text("mine")
    assert (
        "new.csv exists already; replace with --force"
        in apply("table.csv", "-o", "new.csv", status=2)[1]
    )
    assert (folder / "new.csv").read_text() == "mine"
    table.drop(columns="gene 2").to_csv("less.csv", index=False)
    _, error = apply("less.csv", status=2)
    assert "less.csv has no column 'gene 2', which model.safetensors needs" in error
    assert "is read by this run" in apply("table.csv", "-o", "table.csv", "--force", status=2)[1]
    assert "use .csv or .parquet" in apply("table.csv", "-o", "new.xlsx", status=2)[1]
    assert "there is no folder none" in apply("table.csv", "-o", "none/new.csv", status=2)[1]
    (folder / "model.safetensors").write_text("a,b\n")
    assert "is not a model" in apply("table.csv", status=2)[1]


@pytest.mark.parametrize("output", ["-", "new.csv", "new.parquet"])
@pytest.mark.parametrize("problem", ["bad", "missing"])
def test_a_problem_leaves_no_output(apply, folder, output, problem):
    row = "x,y\n" if problem == "bad" else "s50,1,2,,4\n"
    (folder / "t.csv").write_text((folder / "table.csv").read_text() + row)
    out, error = apply("t.csv", "-o", output, status=2)
    assert out == ""
    assert "t.csv: 1 " in error
    assert "line 52" in error
    option = "--skip-bad-rows" if problem == "bad" else "--missing zero"
    assert option in error
    assert not list(folder.glob("new*"))


@pytest.mark.parametrize("rule", ["zero", "mean", "drop"])
def test_the_advice_on_missing_values_can_be_followed(apply, model, table, folder, rule):
    table.loc[[5, 9], "gene 1"] = np.nan
    table.to_csv("holes.csv", index=False)
    out, err = apply("holes.csv", "--missing", rule)
    values = table[NAMES]
    filled = {"zero": values.fillna(0.0), "mean": values.fillna(5.0)}.get(rule, values.dropna())
    expected = model.transform(filled.to_numpy())
    np.testing.assert_allclose(scores(io.StringIO(out)), expected, atol=1e-12)
    where = "line 7: column 'gene 1'; line 11: column 'gene 1'"
    note = f"note: holes.csv: 2 rows with missing values left out: {where}\n"
    assert err == (note if rule == "drop" else "")


def test_rows_left_out_are_named_on_standard_error(apply, expected, folder):
    (folder / "t.csv").write_text((folder / "table.csv").read_text() + "x,y\n")
    out, err = apply("t.csv", "-o", "new.csv", "--skip-bad-rows")
    assert out == "50 rows -> new.csv\n"
    assert err == "note: t.csv: 1 bad row left out: line 52: 2 fields where the header has 5\n"
    out, err = apply("t.csv", "--skip-bad-rows")
    assert "1 bad row left out" in err
    np.testing.assert_allclose(scores(io.StringIO(out)), expected, atol=1e-12)


def test_power_and_p_value(apply, model, table, folder):
    rng = np.random.default_rng(0)
    background = pd.DataFrame(rng.normal(size=(200, 4)), columns=NAMES)
    background.to_csv("background.csv", index=False)
    (3 * background).to_csv("target.csv", index=False)
    assert main(["reduce", "target.csv", "background.csv", "-o", ".", "--force"]) == 0
    table.loc[0, NAMES] *= 100
    table.to_csv("table.csv", index=False)
    apply("table.csv", "--id", "sample", "-o", "new.csv")
    found = pd.read_csv("new.csv")
    assert list(found) == ["sample", "component_1", "component_2", "power", "p"]
    assert found["p"][0] == pytest.approx(1 / 201)  # of 200 background rows and itself
    assert 0.01 < found["p"][1:].mean() < 0.9
    estimator = CPCAPlusPlus(2, calibrate=True).fit(3 * background, background=background)
    np.testing.assert_allclose(found["p"], estimator.p_value(table[NAMES]), rtol=1e-6)


def test_a_model_of_an_earlier_version_gives_no_power_and_says_so(apply, model):
    replace(model, method="cpca++").save("model.safetensors")
    _, err = apply("table.csv", "-o", "new.csv")
    assert "power" not in pd.read_csv("new.csv")
    assert err == NO_POWER


def test_a_table_without_rows_gives_a_header(apply, folder):
    (folder / "t.csv").write_text(",".join(NAMES) + "\n")
    assert apply("t.csv") == ("row,component_1,component_2\n", "")


def test_a_pipe_from_end_to_end(expected):
    command = f"'{sys.executable}' -m cpcapp apply model.safetensors"
    shell = {"shell": True, "capture_output": True, "text": True, "check": False}
    done = subprocess.run(f"cat table.csv | {command} - --id sample", **shell)
    assert done.stderr == ""
    found = pd.read_csv(io.StringIO(done.stdout))
    np.testing.assert_allclose(found.filter(like="component_"), expected, atol=1e-12)
    done = subprocess.run(f"{command} table.csv | head -n 2", **shell)
    assert done.stdout.startswith("row,component_1,component_2\n1,")
    assert done.stderr == ""


def test_leftovers_of_a_killed_run_are_removed(apply, folder):
    for name in ("new.csv", "other.csv"):
        (folder / f"{name}.0123456789abcdef.part").touch()
    apply("table.csv", "--id", "sample", "-o", "new.csv")
    left = [path.name for path in folder.glob("*.part")]
    assert left == ["other.csv.0123456789abcdef.part"]  # perhaps of somebody else
