"""Fitting and applying estimators to rows that are read in chunks, and never held as a whole."""

from __future__ import annotations

import copy
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cpcapp.moments.dask_blocks import map_blocks
from cpcapp.moments.moments import Moments
from cpcapp.moments.rows import NonFiniteError, TextColumnsError
from cpcapp.moments.sources import KINDS, column_names, kind_of, row_chunks


def moments_of_source(data: Any, sample_weight: Any = None) -> Moments:
    """Return the moments of a source; tensors on a device are added up there.

    Parameters
    ----------
    data : any of `cpcapp.moments.sources.KINDS`
    sample_weight : as in `cpcapp.Moments.of`

    Examples
    --------
    >>> moments_of_source(iter([np.eye(2), np.eye(2)])).n_samples
    4
    """
    if kind_of(data) == "torch":
        # By name, as it imports torch.
        backend = import_module("cpcapp.moments.torch")
        found: Moments = backend.moments_of_tensor(data, weights=sample_weight)
        return found
    return Moments.of(data, sample_weight=sample_weight)


def read_source(
    estimator: Any,
    data: Any,
    name: str,
    *,
    reset: bool,
    sample_weight: Any = None,
    min_samples: int = 2,
) -> Moments:
    """Return the moments of a source, after the checks that rows in memory get too.

    Parameters
    ----------
    estimator : ContrastiveTransformer
        With ``reset`` it learns number and names of the features; otherwise they must be the same.
    data : any of `cpcapp.moments.sources.KINDS`
    name : {"X", "background"}
    reset : bool
    sample_weight : as in `cpcapp.Moments.of`
    min_samples : int
    """
    names = column_names(data)
    named = names is not None and all(isinstance(column, str) for column in names)
    own = None if reset else getattr(estimator, "feature_names_in_", None)
    if named and own is not None:
        _require_same_names(names, own, name)
    try:
        found = moments_of_source(data, sample_weight)
    except NonFiniteError as error:
        raise NonFiniteError(
            error.columns,
            names if named else own,
            source=name,
            advice=f"drop or fill in such rows before; {KINDS[kind_of(data) or '']} is read once",
        ) from None
    except TextColumnsError as error:
        raise TextColumnsError(error.columns, name) from None
    if found.n_samples < min_samples:
        raise ValueError(
            f"{name} holds {found.n_samples} samples, but at least {min_samples} are needed"
        )
    if reset:
        estimator.__dict__.pop("feature_names_in_", None)
        if named:
            estimator.feature_names_in_ = np.asarray(names, dtype=object)
        estimator.n_features_in_ = found.n_features
    elif found.n_features != estimator.n_features_in_:
        raise ValueError(
            f"{name} has {found.n_features} features, but {type(estimator).__name__} has "
            f"{estimator.n_features_in_}; both must have the same"
        )
    return found


def _require_same_names(names: Any, own: Any, name: str) -> None:
    if len(names) == len(own) and not np.array_equal(names, own):
        first = np.flatnonzero(np.asarray(names, dtype=object) != np.asarray(own))[0]
        raise ValueError(
            f"{name} must have the feature names of the fit in the same order; column {first} is "
            f"{names[first]!r}, but it was {own[first]!r}"
        )


def apply_to_source(estimator: Any, method: str, data: Any, n_columns: int | None) -> Any:
    """Return what a method makes of the rows of a source.

    Parameters
    ----------
    estimator : ContrastiveTransformer
        As it is now: a later fit does not change what is computed later.
    method : str
        Which takes rows and returns as many.
    data : any of `cpcapp.moments.sources.KINDS`
    n_columns : int or None
        Of the result; None for one number a row.

    Returns
    -------
    dask.array.Array or ndarray
        Not computed yet and in the same blocks for Dask; else computed chunk by chunk.
    """
    check_is_fitted(estimator)
    names, own = column_names(data), getattr(estimator, "feature_names_in_", None)
    if names is not None and own is not None:
        _require_same_names(names, own, "X")
    frozen = copy.copy(estimator)
    # The moments of partial_fit need not travel, and blocks have no names.
    for kept in ("_target", "_background", "feature_names_in_"):
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
