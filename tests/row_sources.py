"""The same rows from everywhere: what tests of moments and of estimators read."""

from __future__ import annotations

import tempfile
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import zarr

NAMES = [f"gene {i}" for i in range(12)]


def rows(seed, n=900):
    """Rows with a mean that would cancel all digits of a naive sum of squares."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 12)) * np.r_[1.0 + 3.0 * seed, np.ones(11)] + 1e6


def frame(X):
    return pd.DataFrame(X, columns=NAMES)


def table(X):
    return pa.table(dict(zip(NAMES, X.T, strict=True)))


def h5py_dataset(X, folder, **layout):
    file = h5py.File(Path(tempfile.mkdtemp(dir=folder)) / "rows.h5", "w")
    return file.create_dataset("rows", data=X, **layout)


def parquet_folder(X, folder):
    folder = Path(tempfile.mkdtemp(dir=folder))
    for number, part in enumerate(np.array_split(X, 3)):
        pq.write_table(table(part), folder / f"{number}.parquet")
    return folder


def tensor(X, **options):
    return pytest.importorskip("torch", reason="needs the extra torch").tensor(X, **options)


SOURCES = {
    "dask array": lambda X, folder: da.from_array(X, chunks=(100, 5)),
    "dask array of unknown sizes": lambda X, folder: (x := da.from_array(X, chunks=(90, 12)))[
        x[:, 0] > -np.inf
    ],
    "dask dataframe": lambda X, folder: dd.from_pandas(frame(X), npartitions=4),
    "h5py chunks": lambda X, folder: h5py_dataset(X, folder, chunks=(70, 5), compression="gzip"),
    "h5py contiguous": h5py_dataset,
    "h5py columns": lambda X, folder: h5py_dataset(X, folder, chunks=(len(X), 1)),
    "zarr": lambda X, folder: zarr.create_array(
        tempfile.mkdtemp(dir=folder), data=X, chunks=(70, 5), overwrite=True
    ),
    "arrow table": lambda X, folder: table(X),
    "arrow reader": lambda X, folder: table(X).to_reader(max_chunksize=100),
    "arrow batch": lambda X, folder: table(X).to_batches()[0],
    "arrow data set": lambda X, folder: ds.dataset(parquet_folder(X, folder)),
    "parquet file": lambda X, folder: pq.ParquetFile(
        pa.BufferReader((s := pa.BufferOutputStream(), pq.write_table(table(X), s))[0].getvalue())
    ),
    "generator": lambda X, folder: (part for part in np.array_split(X, 7)),
    "iterator of batches": lambda X, folder: iter(table(X).to_batches(max_chunksize=99)),
    "iterator of tensors": lambda X, folder: iter(tensor(X).split(64)),
    "tensor": lambda X, folder: tensor(X, requires_grad=True),
}


class Cupy:
    """Stands for a CuPy array, which needs a GPU: its rows come to NumPy by ``get``."""

    __module__ = "cupy"

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def __len__(self):
        return len(self.values)

    def __getitem__(self, part):
        return Cupy(self.values[part])

    def get(self):
        return self.values


SOURCES["cupy"] = lambda X, folder: Cupy(X)
