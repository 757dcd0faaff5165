"""All kinds of tables give the same rows."""

from __future__ import annotations

import gzip

import anndata
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse as sp

from cpcapp.tables import TableError, open_table
from cpcapp.tables.columns import choose_columns


@pytest.fixture
def frame(rng):
    values = rng.normal(size=(50, 3)) * [1e-5, 1, 1e9]
    frame = pd.DataFrame(values, columns=["a b", "c,d", 'e"f'])
    frame.insert(0, "who", [f"Zoë {i}\nline two" for i in range(50)])
    frame.iloc[3, 2] = np.nan
    return frame


def numbers(frame):
    return frame.drop(columns="who").to_numpy()


def read(path, features=("c,d", "a b"), kept=("who",)):
    chunks = list(open_table(str(path)).chunks(list(features), list(kept)))
    assert not any(chunk.bad or chunk.unreadable for chunk in chunks)
    values = [c.values.toarray() if sp.issparse(c.values) else c.values for c in chunks]
    columns = {name: [v for c in chunks for v in c.kept[name].to_pylist()] for name in kept}
    return np.concatenate(values), columns, np.concatenate([c.rows for c in chunks])


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.tsv.gz", "t.parquet"])
def test_rows_come_back_exactly_and_by_name(tmp_path, frame, name):
    path = tmp_path / name
    if name.endswith(".parquet"):
        frame.to_parquet(path)
    else:
        frame.to_csv(path, sep="\t" if "tsv" in name else ",", index=False)
    values, kept, rows = read(path)
    np.testing.assert_array_equal(values, frame[["c,d", "a b"]])
    assert kept["who"] == list(frame["who"])
    assert rows.tolist() == list(range(1, 51))


def test_lines_count_those_within_quotes(tmp_path, frame):
    frame.to_csv(tmp_path / "t.csv", index=False)
    (chunk,) = open_table(str(tmp_path / "t.csv")).chunks(["a b"], [])
    assert chunk.positions.tolist() == list(range(2, 102, 2))


@pytest.mark.parametrize("sep", [";", "|", "\t"])
def test_the_delimiter_is_seen(tmp_path, sep):
    (tmp_path / "t.csv").write_text(sep.join("ab") + "\n" + sep.join("12") + "\n")
    assert open_table(str(tmp_path / "t.csv")).columns == ["a", "b"]


@pytest.mark.parametrize("compress", [lambda data: data, gzip.compress])
def test_a_mark_of_spreadsheets_is_not_part_of_a_name(tmp_path, compress):
    path = tmp_path / "t.csv"
    path.write_bytes(compress(b"\xef\xbb\xbfa,b\r\n1,2\r\n"))
    table = open_table(str(path))
    assert table.columns == ["a", "b"]
    (chunk,) = table.chunks(["b"], ["a"])
    assert (chunk.values.tolist(), chunk.kept["a"].to_pylist()) == ([[2.0]], ["1"])


@pytest.mark.parametrize(
    "text", [",x,y\n0,1,2\n1,3,4\n", 'x\ty\n"0"\t1\t2\n"1"\t3\t4\n'], ids=["pandas", "R"]
)
def test_names_of_rows_are_no_feature(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    table = open_table(str(path))
    columns = choose_columns(table)
    assert (columns.features, columns.ids) == (["x", "y"], ["row_name"])
    (chunk,) = table.chunks(columns.features, columns.kept)
    assert chunk.values.tolist() == [[1, 2], [3, 4]]
    assert chunk.kept["row_name"].to_pylist() == ["0", "1"]


@pytest.mark.parametrize("text", ["NA", "nan", "", " NA", "null", "#N/A", "None"])
def test_missing_values(tmp_path, text):
    (tmp_path / "t.csv").write_text(f"a,b\n1,{text}\n2,3\n")
    (chunk,) = open_table(str(tmp_path / "t.csv")).chunks(["a", "b"], [])
    np.testing.assert_array_equal(chunk.values, [[1, np.nan], [2, 3]])
    assert not chunk.bad


def test_ids_are_kept_as_they_are_written(tmp_path):
    (tmp_path / "t.csv").write_text("id,b\n007,1\nNA,2\n1e3,3\n")
    (chunk,) = open_table(str(tmp_path / "t.csv")).chunks(["b"], ["id"])
    assert chunk.kept["id"].to_pylist() == ["007", "NA", "1e3"]


def test_what_is_wrong_with_rows(tmp_path):
    lines = ["a,b", "1,2", "3,x", '"4\n",5', "6", "7,8,9", "1_0,1", "", '10,"1,5"', "+11,12"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (chunk,) = open_table(str(tmp_path / "t.csv")).chunks(["a", "b"], [])
    assert chunk.rows.tolist() == [1, 2, 3, 6, 7, 8]
    assert chunk.positions.tolist() == [2, 3, 4, 8, 10, 11]
    assert chunk.bad == {
        1: "column 'b' is 'x', not a number",
        3: "column 'a' is '1_0', not a number",
        4: "column 'b' is '1,5', not a number (a decimal comma? write 1.5)",
    }
    assert chunk.unreadable == [
        (6, "1 field where the header has 2"),
        (7, "3 fields where the header has 2"),
    ]
    np.testing.assert_array_equal(chunk.values[[0, 2, 5]], [[1, 2], [4, 5], [11, 12]])


def test_arrays(tmp_path, rng):
    X, y = rng.normal(size=(7, 4)), np.arange(7)
    np.save(tmp_path / "t.npy", X)
    np.savez(tmp_path / "t.npz", x=X, other=X[:, :2], y=y)
    np.testing.assert_array_equal(read(tmp_path / "t.npy", ["x3", "x0"], [])[0], X[:, [3, 0]])
    values, kept, _ = read(f"{tmp_path / 't.npz'}::x", ["x1"], ["y"])
    np.testing.assert_array_equal(values, X[:, [1]])
    assert kept["y"] == list(y)
    with pytest.raises(TableError, match=r"holds 2 matrices .*t.npz::NAME"):
        open_table(str(tmp_path / "t.npz"))
    with pytest.raises(TableError, match="there is no array 'z'"):
        open_table(f"{tmp_path / 't.npz'}::z")
    np.save(tmp_path / "pickled.npy", np.array([[object()]]), allow_pickle=True)
    with pytest.raises(TableError, match=r"not a \.npy file of numbers"):
        open_table(str(tmp_path / "pickled.npy"))
    np.save(tmp_path / "flat.npy", y)
    with pytest.raises(TableError, match="it must have rows and columns"):
        open_table(str(tmp_path / "flat.npy"))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("layer", [None, "counts"])
def test_annotated_data(tmp_path, rng, kind, layer):
    X = rng.poisson(0.5, size=(20, 6)).astype(float)
    cells = anndata.AnnData(kind(X), layers={"counts": kind(2 * X)})
    cells.obs["type"] = pd.Categorical(["a", "b"] * 10)
    cells.write_h5ad(tmp_path / "t.h5ad")
    path = tmp_path / "t.h5ad" if layer is None else f"{tmp_path / 't.h5ad'}::{layer}"
    table = open_table(str(path))
    assert table.row_names == "cell"
    assert choose_columns(table).features == list("012345")
    with pytest.raises(TableError, match="column 'type' is not numeric"):
        choose_columns(table, columns=["0", "type"])
    values, kept, _ = read(path, ["5", "0"], ["cell", "type"])
    np.testing.assert_array_equal(values, X[:, [5, 0]] * (1 if layer is None else 2))
    assert kept == {"cell": [str(i) for i in range(20)], "type": ["a", "b"] * 10}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"\n\n", "is empty"),
        ("t.csv", b"a,b,a\n1,2,3\n", "two columns are called 'a'"),
        ("t.csv", b"a,,b\n1,2,3\n", "column 2 has no name"),
        ("t.csv", b"\xff\xfea\0,\0b\0", "is UTF-16"),
        ("t.csv", b"PK\x03\x04\0\0\0", "is not text"),
        ("t.csv", b"a,b\r1,2\r", "old Mac line ends"),
        ("t.csv", b"a,b\xe4\n1,2\n", "line 1 is not UTF-8"),
        ("t.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 99)[:-9], "is damaged"),
        ("t.parquet", b"PAR1 no more", "is not a Parquet file"),
        ("t.npy", b"no array", "not a .npy file"),
        ("t.npz", b"no archive", "not a .npz archive"),
        ("t.h5ad", b"no HDF5", "not a readable AnnData file"),
        ("t.xlsx", b"PK", "unknown ending"),
    ],
)
def test_files_that_can_not_be_read(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TableError, match=message) as caught:
        open_table(str(tmp_path / name))
    assert len(str(caught.value).splitlines()) == 1
    assert name in str(caught.value)


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(TableError, match="there is no file"):
        open_table(str(tmp_path / "t.csv"))
    with pytest.raises(TableError, match="is a folder"):
        open_table(str(tmp_path))


def test_bytes_that_are_no_text_further_on_are_named_by_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + b"x,1\n" * 300_000 + b"\xe4,2\n")
    table = open_table(str(path))
    with pytest.raises(TableError, match="line 300002 is not UTF-8"):
        list(table.chunks(["b"], ["a"]))


def test_a_damaged_parquet_file(tmp_path):
    pa.parquet.write_table(pa.table({"a": np.arange(1000.0)}), tmp_path / "t.parquet")
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    data[10:200] = bytes(190)
    (tmp_path / "t.parquet").write_bytes(data)
    table = open_table(str(tmp_path / "t.parquet"))
    with pytest.raises(TableError, match="is damaged"):
        list(table.chunks(["a"], []))


@pytest.mark.parametrize("extra", ["", "+3,5;x\n"], ids=["fast", "exact"])
def test_decimal_commas_of_spreadsheets(tmp_path, extra):
    (tmp_path / "t.csv").write_text("a;b\n1,5;-2,5e3\n2;NA\n" + extra)
    table = open_table(str(tmp_path / "t.csv"))
    assert table.text_columns(["a", "b"]) == []
    (chunk,) = table.chunks(["a", "b"], [])
    np.testing.assert_array_equal(chunk.values[:2], [[1.5, -2500], [2, np.nan]])
    assert list(chunk.bad) == ([2] if extra else [])
