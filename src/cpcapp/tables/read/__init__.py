"""Read tables of all formats: names of columns, and rows in chunks."""

from __future__ import annotations

import os
import sys
from io import BufferedReader
from pathlib import Path
from typing import cast

from cpcapp._io.packages import require_packages
from cpcapp.tables.messages import TableError
from cpcapp.tables.read.arrays import PARQUET_ENDINGS, ParquetTable, npy_table, npz_table
from cpcapp.tables.read.csv import CsvTable
from cpcapp.tables.read.excel import EXCEL_ENDINGS, excel_table
from cpcapp.tables.read.h5ad import h5ad_table
from cpcapp.tables.read.table import Chunk, Table

__all__ = ["Chunk", "Table", "open_table"]

TEXT_ENDINGS = (".csv.gz", ".tsv.gz", ".tab.gz", ".txt.gz", ".csv", ".tsv", ".tab", ".txt")


def open_table(path: str | os.PathLike[str], *, mask_var: str | None = "auto") -> Table:
    r"""Open a table; the ending of its name says the format, in upper or lower case.

    Parameters
    ----------
    path : str or path-like
        ``.csv``, ``.tsv`` (also with ``.gz``), ``.parquet``, ``.xlsx``, ``.xls``, ``.ods``,
        ``.npy``, ``.npz`` or ``.h5ad``. ``FILE.npz::NAME`` is one array of an archive,
        ``FILE.h5ad::NAME`` a layer, ``FILE.xlsx::NAME`` a sheet. ``-`` is a CSV on standard input.
        A name with another ending that is not a plain file (a pipe) is read as CSV. A folder is one
        table of all its Parquet files, in the natural order of their names.
    mask_var : str or None, default="auto"
        For ``.h5ad``: the column of ``var`` that marks the genes to use; None for all.
        ``"auto"`` uses ``highly_variable`` if there is such a column, as scanpy and
        :func:`cpcapp.anndata.contrast` do.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        If the file can't be read in the format of its name.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "mice.csv"
    >>> _ = path.write_text("mouse,weight,length\na,21.5,9\nb,19,8.5\n")
    >>> table = open_table(path)
    >>> table.columns, table.text_columns(table.columns)
    (['mouse', 'weight', 'length'], ['mouse'])
    >>> next(table.chunks(["length", "weight"], ["mouse"])).values
    array([[ 9. , 21.5],
           [ 8.5, 19. ]])
    """
    require_packages("tables", "pyarrow")
    path = os.fspath(path)
    if path == "-":
        return CsvTable(cast(BufferedReader, sys.stdin.buffer), "standard input")
    plain, _, part = path.partition("::")
    file, ending = Path(plain), plain.lower()
    if Path(path).exists():
        file, ending, part = Path(path), path.lower(), ""
    if file.is_dir():
        return ParquetTable(file, path)
    if not file.exists():
        raise TableError(f"there is no file {plain}")
    if part and not ending.endswith((".npz", ".h5ad", *EXCEL_ENDINGS)):
        raise TableError(
            f"{path}: '::' chooses an array of .npz, a layer of .h5ad or a sheet of .xlsx only"
        )
    if mask_var not in (None, "auto") and not ending.endswith(".h5ad"):
        raise TableError(f"{path} has no genes to choose", "{mask_var} is for .h5ad files only")
    try:
        if ending.endswith(PARQUET_ENDINGS):
            return ParquetTable(file, path)
        if ending.endswith(EXCEL_ENDINGS):
            return excel_table(file, path, part or None)
        if ending.endswith(".npy"):
            return npy_table(file, path)
        if ending.endswith(".npz"):
            return npz_table(file, path, part or None)
        if ending.endswith(".h5ad"):
            return h5ad_table(file, path, part or None, mask_var)
        if ending.endswith(TEXT_ENDINGS) or not file.is_file():
            return CsvTable(file, path)
    except OSError as error:
        raise TableError(f"can't read {path}: {error.strerror or error}") from error
    raise TableError(
        f"{path}: unknown ending; tables are .csv, .tsv (.gz too), .parquet, .xlsx, .xls, .ods, "
        ".npy, .npz, .h5ad"
    )
