"""Applying estimators to rows that are read in chunks, and never held as a whole."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np

from cpcapp.estimators.inputs import require_same_names
from cpcapp.moments.dask import map_blocks
from cpcapp.moments.sources import column_names, kind_of, row_chunks


def apply_to_source(estimator: Any, method: str, data: Any, n_columns: int | None) -> Any:
    """Return what a method makes of the rows of a source: lazily for Dask, else chunk by chunk.

    ``n_columns`` of the result; None for one number a row. The estimator is taken as it is now: a
    later fit does not change what is computed later.
    """
    names, known = column_names(data), getattr(estimator, "feature_names_in_", None)
    if names is not None and known is not None:
        require_same_names(names, known, "X")
    frozen = copy.copy(estimator)
    # What partial_fit keeps need not travel, and blocks have no names.
    for kept in ("_target", "_background", "_rows", "feature_names_in_"):
        frozen.__dict__.pop(kept, None)
    work = partial(_apply, frozen, method, n_columns)
    if kind_of(data) == "dask":
        return map_blocks(data, work, n_columns)
    parts = [work(rows) for rows in row_chunks(data)]
    if not parts:
        raise ValueError("X holds no samples")
    return np.concatenate(parts)


def _apply(estimator: Any, method: str, n_columns: int | None, rows: Any) -> Any:
    if rows.shape[0] == 0:  # a partition from which all rows were filtered
        single = n_columns is not None and rows.dtype == np.float32
        shape = (0,) if n_columns is None else (0, n_columns)
        return np.empty(shape, np.float32 if single else np.float64)
    return getattr(estimator, method)(rows)
