"""AnnData files: what is read, and what damaged ones may do."""

from __future__ import annotations

import gc
import gzip
import warnings
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from cpcapp._io import hdf5
from cpcapp.tables import TableError, open_table
from cpcapp.tables.columns import choose_columns
from table_reading import read_all

HERE = Path(__file__).parent


@pytest.fixture
def path(tmp_path, rng):
    """40 cells of 5 genes, sparse; the same values in layers of other kinds."""
    X = rng.poisson(0.5, size=(40, 5)).astype(float)
    layers = {"c": sp.csc_matrix(X), "d": X, "r": sp.csr_matrix(X)}
    anndata.AnnData(sp.csr_matrix(X), layers=layers).write_h5ad(tmp_path / "t.h5ad")
    return tmp_path / "t.h5ad"


def read(path):
    table = open_table(path)
    return [chunk.values for chunk in table.chunks(table.default_features, [])]


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("layer", [None, "counts"])
def test_annotated_data(tmp_path, rng, kind, layer):
    X = rng.poisson(0.5, size=(20, 6)).astype(float)
    cells = anndata.AnnData(kind(X), layers={"counts": kind(2 * X)})
    cells.obs["type"] = pd.Categorical(["a", "b"] * 10)
    cells.obs["whole"] = pd.array([1, None] * 10, dtype="Int64")
    cells.obs["size"] = np.array([0.5, 2.0] * 10, np.float32)
    cells.obs["flag"] = [True, False] * 10
    cells.write_h5ad(tmp_path / "t.h5ad")
    path = tmp_path / "t.h5ad" if layer is None else f"{tmp_path / 't.h5ad'}::{layer}"
    table = open_table(str(path))
    assert table.row_names == "cell"
    assert choose_columns(table).features == list("012345")
    with pytest.raises(TableError, match="column 'type' is not numeric"):
        choose_columns(table, columns=["0", "type"])
    names = ["cell", "type", "whole", "size", "flag"]
    values, kept, _ = read_all(path, ["5", "0"], names)
    np.testing.assert_array_equal(values, X[:, [5, 0]] * (1 if layer is None else 2))
    columns = [["a", "b"], [1, None], [0.5, 2.0], [True, False]]
    columns = [[str(i) for i in range(20)], *(pair * 10 for pair in columns)]
    assert kept == dict(zip(names, columns, strict=True))


@pytest.mark.parametrize("layer", ["", "::c", "::d", "::r"])
def test_genes_that_are_copied(path, layer):
    """A gene may be kept beside the features, whatever the matrix is stored as."""
    genes = ["0", "3"]
    values, kept, _ = read_all(f"{path}{layer}", ["1"], genes)
    with h5py.File(path) as file:
        expected = file["layers/d"][:]
    np.testing.assert_array_equal(values, expected[:, [1]])
    assert kept == {gene: expected[:, int(gene)].tolist() for gene in genes}


@pytest.mark.parametrize(
    ("place", "index"),
    [*(("X", i) for i in (-1, 7, 1000, 100_000, 10**7)), ("layers/c", 10**7), ("layers/r", 7)],
)
def test_an_index_outside_the_matrix(path, place, index):
    """With five genes, compiled code would write to memory that is not its own."""
    with h5py.File(path, "r+") as file:
        file[f"{place}/indices"][3] = index
    with pytest.raises(TableError, match=rf"t\.h5ad.* its indices hold {index}, not from 0 to"):
        read(path if place == "X" else f"{path}::{place[-1]}")


@pytest.mark.parametrize(("place", "value"), [(0, 3), (5, 10**6), (7, -1), (-1, 10**6)])
def test_pointers_that_do_not_rise(path, place, value):
    with h5py.File(path, "r+") as file:
        file["X/indptr"][place] = value
    with pytest.raises(TableError, match=r"t\.h5ad is not a readable AnnData file: its indptr"):
        read(path)


def test_parts_that_are_missing_or_of_another_kind(path):
    with h5py.File(path, "r+") as file:
        n_stored = len(file["X/data"])
        del file["X/data"]
        file["X/data"] = [b"text"] * n_stored
    with pytest.raises(TableError, match="is not a readable AnnData file"):
        read(path)
    with h5py.File(path, "r+") as file:
        del file["X/indices"]
    with pytest.raises(TableError, match="is not a readable AnnData file"):
        read(path)


def test_a_part_that_claims_gigabytes_is_not_read(path):
    with h5py.File(path, "r+") as file:
        file.create_dataset("uns/large", shape=(10**11,), dtype="f8", chunks=(1000,))
    assert path.stat().st_size < 1e6
    with pytest.raises(TableError, match="its parts besides X take 762939 MB in memory"):
        open_table(path)


def test_parts_in_other_files_are_not_read(path, tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["secret"] = np.ones(40)
    with h5py.File(path, "r+") as file:
        file["obs/secret"] = h5py.ExternalLink("other.h5", "/secret")
    with pytest.raises(TableError, match="its /obs/secret lies in another file"):
        open_table(path)
    with h5py.File(path, "r+") as file:
        del file["obs/secret"]
        layout = h5py.VirtualLayout((40,), "f8")
        layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "secret", (40,))
        file.create_virtual_dataset("obs/secret", layout)
    with pytest.raises(TableError, match="its /obs/secret lies in another file"):
        open_table(path)


@pytest.mark.parametrize("hangs", [True, False])
def test_reading_that_does_not_end_is_ended(path, monkeypatch, hangs):
    """HDF5 1.14 loops for ever on the first file. The other one is good, and the limit too low."""
    if hangs:
        path.write_bytes(gzip.decompress((HERE / "hanging.h5ad.gz").read_bytes()))
    monkeypatch.setattr(hdf5, "_SECONDS", 2.0 if hangs else 0.0)
    monkeypatch.setattr(hdf5, "_BYTES_PER_SECOND", 1e12)
    with pytest.raises(TableError, match=r"t\.h5ad is (damaged|not a readable AnnData file)"):
        open_table(path)


def test_the_process_that_crashed_is_named_and_ends_with_the_table(path):
    table = open_table(path)
    process = table.matrix.process._worker._process
    process.kill()
    with pytest.raises(TableError, match="it is damaged: reading it was stopped"):
        list(table.chunks(["0"], []))
    table = open_table(path)
    process = table.matrix.process._worker._process
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del table
        gc.collect()
    assert process.returncode is not None
