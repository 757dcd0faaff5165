"""Parquet, NumPy and AnnData files."""

from __future__ import annotations

import anndata
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse as sp

from cpcapp.tables import TableError, open_table
from cpcapp.tables.columns import choose_columns
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
    values, kept, _ = read_all(path, ["5", "0"], ["cell", "type"])
    np.testing.assert_array_equal(values, X[:, [5, 0]] * (1 if layer is None else 2))
    assert kept == {"cell": [str(i) for i in range(20)], "type": ["a", "b"] * 10}


def test_a_damaged_parquet_file(tmp_path):
    pa.parquet.write_table(pa.table({"a": np.arange(1000.0)}), tmp_path / "t.parquet")
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    data[10:200] = bytes(190)
    (tmp_path / "t.parquet").write_bytes(data)
    table = open_table(str(tmp_path / "t.parquet"))
    with pytest.raises(TableError, match="is damaged"):
        list(table.chunks(["a"], []))
