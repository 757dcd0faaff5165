from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn

from cpcapp.datasets import DataNotFoundError, _mice_protein, mice_protein
from cpcapp.datasets._fetch import RemoteFile
from loopback import serving

HEADER = "MouseID,A_N,B_N,Genotype,Treatment,Behavior,class\n"
ROWS = (
    "50810A_1,1,5,Control,Saline,S/C,c-SC-s\n"
    "50810A_2,2,,Control,Saline,S/C,c-SC-s\n"
    "J3295_1,6,7,Ts65Dn,Saline,S/C,t-SC-s\n"
    "320_1,1,9,Control,Saline,C/S,c-CS-s\n"
    "320_2,3,9,Control,Saline,C/S,c-CS-s\n"
    "400_1,8,8,Ts65Dn,Saline,C/S,t-CS-s\n"
    "401_1,8,8,Control,Memantine,S/C,c-SC-m\n"
)


@pytest.fixture
def home(tmp_path):
    (tmp_path / "mice_protein").mkdir()
    return tmp_path


def written(home, text):
    (home / "mice_protein" / "Data_Cortex_Nuclear.csv").write_text(text)
    return home


@pytest.fixture(scope="module")
def by_pandas(data_folder):
    table = pd.read_csv(data_folder / "mice_protein" / "Data_Cortex_Nuclear.csv")
    saline = table["Treatment"] == "Saline"
    target = table[saline & (table["Behavior"] == "S/C")]
    other = table[saline & (table["Behavior"] == "C/S") & (table["Genotype"] == "Control")]
    return target, other, table.columns[1:78]


def test_the_real_table_reads_as_pandas_reads_it(data_folder, by_pandas):
    target, background, proteins = by_pandas
    data = mice_protein(data_home=data_folder)
    for ours, theirs in ((data.target, target), (data.background, background)):
        values = theirs[proteins].fillna(0.0)
        expected = (values - values.mean()) / values.std(ddof=0)
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-12)
    assert data.target.shape == (270, 77)
    assert data.background.shape == (135, 77)
    assert data.feature_names == list(proteins)
    assert [data.label_names[i] for i in data.labels] == target["Genotype"].tolist()
    mice = target["MouseID"].str.rsplit("_", n=1).str[0].to_numpy()
    np.testing.assert_array_equal(data.groups[:, None] == data.groups, mice[:, None] == mice)


@pytest.mark.parametrize("missing", ["mean", "drop-rows", "drop-features", "keep"])
def test_missing_values_on_the_real_table(data_folder, by_pandas, missing):
    target, background, proteins = by_pandas
    data = mice_protein(missing=missing, standardize=False, data_home=data_folder)
    expected = {
        "mean": lambda t: t.fillna(t.mean()),
        "drop-rows": lambda t: t.dropna(),
        "drop-features": lambda t: t[data.feature_names],
        "keep": lambda t: t,
    }[missing]
    np.testing.assert_allclose(data.target, expected(target[proteins]), rtol=1e-12)
    np.testing.assert_allclose(data.background, expected(background[proteins]), rtol=1e-12)
    assert len(data.labels) == len(data.groups) == len(data.target)
    if missing == "drop-features":
        whole = target[proteins].notna().all() & background[proteins].notna().all()
        assert data.feature_names == list(proteins[whole])
    assert np.isnan(data.target).any() == (missing == "keep")


def test_standardizing_ignores_what_is_missing(home):
    data = mice_protein(missing="keep", data_home=written(home, HEADER + ROWS))
    known = data.target[[0, 2], 1]
    np.testing.assert_allclose(known, [-1.0, 1.0])
    assert np.isnan(data.target[1, 1])
    assert data.background[:, 1].tolist() == [0.0, 0.0]  # constant
    assert data.groups.tolist() == [0, 0, 1]


def test_an_unknown_way(home):
    with pytest.raises(ValueError, match="missing='median' must be one of zero, mean, drop-rows"):
        mice_protein(missing="median", data_home=home)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column MouseID, Genotype, Treatment, Behavior"),
        ("a,b\n1,2\n", "it is not the mice protein table"),
        (HEADER.replace("_N", ""), "ends in _N"),
        (HEADER + ROWS[:60], "row 2 of .* has 5 values, its header 7; the file may be cut off"),
        (HEADER + ROWS.replace(",2,", ",two,"), "no number: .*'two'"),
        (HEADER + ROWS.replace("C/S", "S/C"), "0 of the background"),
    ],
)
def test_other_tables_are_refused(home, text, message):
    with pytest.raises(ValueError, match=message):
        mice_protein(data_home=written(home, text))


def as_arff(csv_text):
    """Return a table as OpenML publishes this one."""
    rows = [row.split(",") for row in csv_text.splitlines()]
    kinds = ["numeric" if name.endswith("_N") else "{'a','b'}" for name in rows[0]]
    head = [f"@attribute {name} {kind}" for name, kind in zip(rows[0], kinds, strict=True)]
    quoted = [
        ",".join(
            (value or "?") if kind == "numeric" else f"'{value}'"
            for value, kind in zip(row, kinds, strict=True)
        )
        for row in rows[1:]
    ]
    return "\n".join(["% about", "@relation mice", *head, "", "@DATA", *quoted]) + "\n"


def test_openml_has_the_same(data_folder, home, monkeypatch):
    """The real table in the layout of OpenML, fetched from a server."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    table = (data_folder / "mice_protein" / "Data_Cortex_Nuclear.csv").read_text()
    arff = as_arff(table).encode()
    with serving(arff) as server:
        md5 = hashlib.md5(arff).hexdigest()
        file = RemoteFile("mice_protein/MiceProtein.arff", server.address, f"md5:{md5}")
        monkeypatch.setattr(_mice_protein, "MICE", file)
        fetched = mice_protein(data_home=home)
    ours = mice_protein(data_home=data_folder)
    for part in ("target", "background", "labels", "groups"):
        np.testing.assert_array_equal(getattr(fetched, part), getattr(ours, part))


def test_the_file_of_openml(data_folder, tmp_path):
    """Its head and first rows, which scikit-learn carries for its own tests."""
    sample = "datasets/tests/data/openml/id_40966/data-v1-dl-17928620.arff.gz"
    path = Path(sklearn.__file__).parent / sample
    if not path.exists():
        pytest.skip("this scikit-learn comes without its tests")
    (tmp_path / "sample.arff").write_bytes(gzip.decompress(path.read_bytes()))
    names, values, facts = _mice_protein._read_table(tmp_path / "sample.arff")
    table = pd.read_csv(data_folder / "mice_protein" / "Data_Cortex_Nuclear.csv", nrows=len(values))
    assert len(values) == 7
    assert names.tolist() == list(table.columns[1:78])
    np.testing.assert_array_equal(values, table.iloc[:, 1:78])
    for name, known in facts.items():
        assert known.tolist() == table[name].tolist()


def test_no_table(tmp_path, monkeypatch):
    monkeypatch.setenv("CPCAPP_OFFLINE", "1")
    with pytest.raises(DataNotFoundError, match=r"from https://www.openml.org/.*put it at"):
        mice_protein(data_home=tmp_path)
