"""Compute the components of new rows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from cpcapp._io.files import remove_leftovers
from cpcapp.moments.rows import FloatArray
from cpcapp.tables.cleaning import Cleaner, RowCounts, describe_incomplete, describe_skipped
from cpcapp.tables.columns import choose_columns
from cpcapp.tables.messages import Message, TableError, quote_names
from cpcapp.tables.model import TableModel, load_model
from cpcapp.tables.read import open_table
from cpcapp.tables.read.table import ProgressReport, Table, report_nothing
from cpcapp.tables.scores import check_outputs, is_parquet, name_score_columns, open_scores


@dataclass(frozen=True)
class AppliedRows:
    """What :func:`apply_model` did.

    Attributes
    ----------
    table : Table
    counts : RowCounts
        Rows read, used and left out.
    model : TableModel
    """

    table: Table
    counts: RowCounts
    model: TableModel

    def notes(self) -> list[Message]:
        """Return what was recognised in the table, and which rows were left out."""
        texts = [self.table.describe_reading()]
        if self.model.method == "cpca++" and not self.model.has_power:
            texts.append(
                "the model was made by an earlier version, without what power and p need; "
                "make it again for these columns"
            )
        elif self.model.has_power and self.model.calibration is None:
            texts.append(
                "there is no column p: the model was made with fewer than 20 background rows"
            )
        texts.append(describe_skipped(self.counts, self.table))
        if not self.counts.n_filled:
            texts.append(describe_incomplete(self.counts, self.table))
        return [Message(text) for text in texts if text]


def apply_model(
    model: TableModel | str | os.PathLike[str],
    table: Table | str | os.PathLike[str],
    output: str | os.PathLike[str] | IO[bytes],
    *,
    ids: Iterable[str] | str = (),
    labels: Iterable[str] | str = (),
    missing: str | None = None,
    skip_bad_rows: bool = False,
    overwrite: bool = False,
    progress: ProgressReport | None = None,
) -> AppliedRows:
    r"""Write the components of the rows of a table, and how unlike the background they are.

    With a model of cPCA++ there are two columns besides the components: ``power``, and ``p``, how
    likely background is to have a power as high. See :meth:`TableModel.power`.

    Parameters
    ----------
    model : TableModel or path-like
        Of :func:`reduce_tables`, or a file of it.
    table : Table, str or path-like
        Columns are found by their names. It is read once, in chunks.
    output : path-like or binary file
        ``.csv`` or ``.parquet``: a file that is written whole or not at all. Or an open stream,
        which gets CSV while the table is read; nothing is written to it before the first chunk
        has been read without an error.
    ids, labels : str or sequence of str
        Columns that are copied to the output.
    missing : {"error", "zero", "mean", "drop"}, optional
        As for :func:`reduce_tables`; by default the rule that the model was made with. Means
        are those of the target.
    skip_bad_rows : bool, default=False
        Leave out rows that can't be read; otherwise they are an error.
    overwrite : bool, default=False
        Whether the output may be replaced.
    progress : callable of a title, optional
        As for :func:`reduce_tables`.

    Returns
    -------
    AppliedRows

    Raises
    ------
    TableError
        If the model, the table or the output can't be used.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from cpcapp.tables import apply_model, reduce_tables
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "t.csv").write_text("a,b\n1,0\n3,0\n2,1\n2,-1\n0,0\n4,0\n")
    >>> model = reduce_tables(folder / "t.csv", None, 1, method="pca").model
    >>> _ = (folder / "new.csv").write_text("mouse,b,a\nm1,5,7\n")
    >>> apply_model(model, folder / "new.csv", folder / "scores.csv", ids="mouse").counts.n_used
    1
    >>> print((folder / "scores.csv").read_text().strip())
    mouse,component_1
    m1,5.0
    """
    destination = _check_output(output, model, table, overwrite=overwrite)
    new_rows = table if isinstance(table, Table) else open_table(table, mask_var=None)
    found = model if isinstance(model, TableModel) else load_model(model)
    if absent := new_rows.find_absent(found.features):
        source = "the model" if isinstance(model, TableModel) else os.fspath(model)
        raise TableError(
            f"{new_rows.name} has no column {quote_names(absent)}, which {source} needs"
        )
    kept = choose_columns(new_rows, columns=found.features, ids=ids, labels=labels).kept
    power = ["power", "p"][: found.has_power + (found.calibration is not None)]
    names = name_score_columns(kept, found.n_components, power=power)
    cleaner = Cleaner(missing or found.missing, found.fill, skip_bad_rows=skip_bad_rows)
    report = report_nothing if progress is None else progress
    with open_scores(destination, names) as write, report("applying") as share:
        chunks = new_rows.chunks(found.features, kept, share)
        for chunk in cleaner.clean(chunks, found.features):
            # After an error the others are read only to count all problems.
            if not cleaner.find_error(new_rows):
                write(chunk, _compute_columns(found, chunk.values))
        # Within the block: the file must not take its name if this raises.
        if error := cleaner.find_error(new_rows):
            raise error
    return AppliedRows(new_rows, cleaner.counts, found)


def _compute_columns(model: TableModel, values: Any) -> FloatArray:
    columns = [model.transform(values)]
    if model.has_power:
        columns.append(model.power(values))
    if model.calibration is not None:
        columns.append(model.calibration.p_value(columns[-1]))
    return np.column_stack(columns)


def _check_output(
    output: str | os.PathLike[str] | IO[bytes], model: object, table: object, *, overwrite: bool
) -> Path | IO[bytes]:
    if not isinstance(output, str | os.PathLike):
        return output
    path = Path(output)
    if path.suffix.lower() != ".csv" and not is_parquet(path):
        raise TableError(f"scores can't be written as {path.name!r}; use .csv or .parquet")
    if not path.parent.is_dir():
        raise TableError(f"there is no folder {path.parent}", "make it, or choose another {output}")
    remove_leftovers(path.parent, path.name)
    inputs = [os.fspath(read) for read in (model, table) if isinstance(read, str | os.PathLike)]
    inputs += [table.name] if isinstance(table, Table) else []
    check_outputs([path], inputs, overwrite=overwrite, name="output")
    return path
