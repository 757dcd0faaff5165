"""Parquet and NumPy files."""

from __future__ import annotations

import tracemalloc
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from cpcapp.tables import TableError, open_table
from table_reading import read_all


def test_arrays(tmp_path, rng):
    X, y = rng.normal(size=(7, 4)), np.arange(7)
    np.save(tmp_path / "t.npy", X)
    np.savez(tmp_path / "t.npz", x=X, other=X[:, :2], y=y)
    np.testing.assert_array_equal(read_all(tmp_path / "t.npy", ["x3", "x0"], [])[0], X[:, [3, 0]])
    values, kept, _ = read_all(f"{tmp_path / 't.npz'}::x", ["x1"], ["y"])
    np.testing.assert_array_equal(values, X[:, [1]])
    assert kept["y"] == list(y)
    with pytest.raises(TableError, match=r"holds 2 matrices .*t.npz::NAME"):
        open_table(str(tmp_path / "t.npz"))
    with pytest.raises(TableError, match="there is no array 'z'"):
        open_table(f"{tmp_path / 't.npz'}::z")
    np.save(tmp_path / "pickled.npy", np.array([[object()]]), allow_pickle=True)
    with pytest.raises(TableError, match=r"not a \.npy file of numbers"):
        open_table(str(tmp_path / "pickled.npy"))
    # A loop over so many rows, or a list of so many names, would not end.
    for array in (y, np.empty((10**12, 0)), np.empty((0, 10**9))):
        np.save(tmp_path / "flat.npy", array)
        with pytest.raises(TableError, match="it must have rows and columns"):
            open_table(str(tmp_path / "flat.npy"))


def test_a_folder_of_parquet_files_is_one_table(tmp_path, rng):
    X = rng.normal(size=(90, 3))
    for number, start in ((2, 30), (10, 60), (1, 0)):
        part = {name: X[start : start + 30, i] for i, name in enumerate("abc")}
        part["label"] = [f"row {row}" for row in range(start, start + 30)]
        names = list(part)[:: -1 if number == 2 else 1]  # columns are matched by name
        table = pa.table({name: part[name] for name in names})
        pa.parquet.write_table(table, tmp_path / f"part-{number}.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "_metadata.parquet").write_bytes(b"not a part")
    values, kept, _ = read_all(tmp_path, ["c", "a"], ["label"])
    np.testing.assert_array_equal(values, X[:, [2, 0]])
    assert kept["label"] == [f"row {row}" for row in range(90)]
    table = open_table(tmp_path)
    assert table.text_columns(table.columns) == ["label"]
    chunks = list(table.chunks(["a"], []))
    assert np.concatenate([chunk.rows for chunk in chunks]).tolist() == list(range(1, 91))
    shares = []
    assert len(list(table.chunks(["a"], [], shares.append))) == 3
    assert shares == pytest.approx([1 / 3, 2 / 3, 1])
    pa.parquet.write_table(pa.table({"a": [1.0], "d": [2.0]}), tmp_path / "part-11.parquet")
    with pytest.raises(TableError, match=r"part-11\.parquet and part-1\.parquet have different"):
        open_table(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match="is a folder without Parquet files"):
        open_table(tmp_path / "empty")


def header(text, version=1):
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode()


def promise(shape, descr="<f8"):
    return header(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n")


@pytest.mark.parametrize(
    "start",
    [
        promise("(4611686018427387904, 4611686018427387904)"),  # the product wraps around to 0
        promise("(1000000000000,)"),
        promise("(-3, -4)"),
        promise("(2,)", "|O"),
        promise("(2,)", "no type"),
        header("(" * 5000),
        header("{'descr': '<f8', 'shape': (1,)}"),
        header("\0\0\0\0"),
        header("{'descr': '<f8',\n  'fortran_order'\n "),
        header("{}", version=2)[:9],
        header("{}").replace(b"\x01\x00", b"\x09\x00", 1),
        b"",
        b"\x93NUMPY",
    ],
)
def test_headers_that_promise_what_is_not_there(start, tmp_path):
    (tmp_path / "a.npy").write_bytes(start + bytes(96))
    with pytest.raises(TableError, match=r"a\.npy is not a \.npy file of numbers: ") as caught:
        open_table(tmp_path / "a.npy")
    assert len(str(caught.value).splitlines()) == 1
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", start + bytes(96))
    with pytest.raises(TableError, match=r"its member 'a.npy' is damaged: ") as caught:
        open_table(tmp_path / "a.npz")
    assert len(str(caught.value).splitlines()) == 1


def test_an_archive_that_unpacks_to_a_hundred_times_its_size_is_refused_unread(tmp_path):
    path = tmp_path / "large.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w", force_zip64=True) as member,
    ):
        member.write(promise("(40000000,)"))
        for _ in range(320):
            member.write(bytes(1_000_000))
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(TableError, match=r"its 0 MB unpack to 305 MB; .*without compression"):
            open_table(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_flipped_bytes_of_an_archive_are_an_error_or_change_nothing(tmp_path, rng):
    path, array = tmp_path / "a.npz", rng.normal(size=(9, 7))
    np.savez_compressed(path, a=array)
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            table = open_table(path)
        except TableError as error:
            assert len(str(error).splitlines()) == 1
        else:
            np.testing.assert_array_equal(table.matrix, array)
