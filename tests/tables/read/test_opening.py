"""All kinds of tables give the same rows, and other files are refused in one line."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from cpcapp.tables import TableError, open_table
from table_reading import read_all


@pytest.fixture
def frame(rng):
    values = rng.normal(size=(50, 3)) * [1e-5, 1, 1e9]
    frame = pd.DataFrame(values, columns=["a b", "c,d", 'e"f'])
    frame.insert(0, "who", [f"Zoë {i}\nline two" for i in range(50)])
    frame.iloc[3, 2] = np.nan
    return frame


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.tsv.gz", "t.parquet"])
def test_rows_come_back_exactly_and_by_name(tmp_path, frame, name):
    path = tmp_path / name
    if name.endswith(".parquet"):
        frame.to_parquet(path)
    else:
        frame.to_csv(path, sep="\t" if "tsv" in name else ",", index=False)
    values, kept, rows = read_all(path)
    np.testing.assert_array_equal(values, frame[["c,d", "a b"]])
    assert kept["who"] == list(frame["who"])
    assert rows.tolist() == list(range(1, 51))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"\n\n", "is empty"),
        ("t.csv", b"a,b,a\n1,2,3\n", "two columns are called 'a'"),
        ("t.csv", b"a,,b\n1,2,3\n", "column 2 has no name"),
        ("t.csv", b"\xff\xfea\0,\0b", "is UTF-16 and damaged in line 1 or after it"),
        ("t.csv", b"PK\x03\x04\0\0\0", "is not text"),
        ("t.csv", b"a,b\r1,2\r", "old Mac line ends"),
        ("t.csv", b"a,b\n\x81,2\n", "line 2 is neither UTF-8 nor Latin-1"),
        ("t.csv", "\u00e4,\u00f6\n\u00fc,".encode() + b"\xe4\n", "line 2 is not UTF-8"),
        ("t.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 99, mtime=0)[:-9], "is damaged"),
        ("t.parquet", b"PAR1 no more", "is not a Parquet file"),
        ("t.npy", b"no array", "not a .npy file"),
        ("t.npz", b"no archive", "not a .npz archive"),
        ("t.h5ad", b"no HDF5", "not a readable AnnData file"),
        ("t.xlsx", b"PK", "is not a readable workbook"),
        ("t.xlsx", b"", "is not a readable workbook"),
        ("t.xls", b"\xd0\xcf\x11\xe0", "is not a readable workbook"),
        ("t.ods", b"PK\x05\x06" + bytes(18), "is not a readable workbook"),
        ("t.docx", b"PK", "unknown ending"),
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
