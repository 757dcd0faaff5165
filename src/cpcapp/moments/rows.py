"""Rows of numbers as users give them: what is taken, and the errors that name what is not."""

from __future__ import annotations

import copyreg
from collections.abc import Iterable, Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cpcapp.moments.sparse import check_sparse

FloatArray = NDArray[np.float64]

_NAMED = 5  # columns that a message names; of the others it gives the number
LEAST_WEIGHT = 1e-100  # its square is still a number, and so is that of its inverse


class _SentError(ValueError):
    """An error that keeps its text and facts when a worker sends it."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Made without __init__, which would write the text anew.
        made = (type(self), *self.args)
        return copyreg.__newobj__, made, self.__dict__  # type: ignore[attr-defined]


class NonFiniteError(_SentError):
    """Data holds NaN or infinity; ``columns`` lists the indices of the features concerned."""

    def __init__(
        self,
        columns: NDArray[np.intp],
        names: ArrayLike | None = None,
        *,
        source: str = "input",
        advice: str | None = None,
    ) -> None:
        self.columns = columns
        advice = advice or (
            "remove those rows or fill them in (for example with "
            "sklearn.impute.SimpleImputer); CPCAPlusPlus(missing='pairwise') takes NaN"
        )
        super().__init__(
            f"{source} contains NaN or infinity in column {listed(columns, names)}; {advice}"
        )


class FeatureRangeError(_SentError):
    """Values are too large or too small to be squared; ``columns`` lists the features."""

    def __init__(
        self, columns: NDArray[np.intp], names: ArrayLike | None = None, *, source: str = "input"
    ) -> None:
        self.columns = columns
        self.source = source
        super().__init__(
            f"{source} has values that are too large or too small to be squared in column "
            f"{listed(columns, names)}; standard deviations must be between 1e-150 and 1e150: "
            "give those columns in other units, or drop them"
        )


class TextColumnsError(_SentError):
    """Data holds columns that are no numbers; ``columns`` lists them, by name if they have one."""

    def __init__(self, columns: Sequence[Any], source: str) -> None:
        self.columns = list(columns)
        count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
        super().__init__(
            f"{source} has {count} of text or other values that are no numbers: {listed(columns)}; "
            "drop them, or turn them into numbers (for example with "
            "sklearn.preprocessing.OneHotEncoder)"
        )


def refuse_masked(data: Any, source: str) -> Any:
    """Return data as it is, or without an empty mask; masked entries are an error."""
    if not isinstance(data, np.ma.MaskedArray):
        return data
    mask = np.ma.getmaskarray(data)
    if mask.any():
        columns = listed(np.flatnonzero(mask.any(axis=0))) if mask.ndim == 2 else ""
        raise ValueError(
            f"{source} is a masked array with {int(mask.sum())} masked values"
            f"{columns and ', in column '}{columns}; fill them in (data.filled(...)) or drop their "
            "rows (numpy.ma.compress_rows)"
        )
    return np.ma.getdata(data)


def refuse_damaged(data: Any, source: str) -> None:
    """Raise ValueError if the indices of a sparse matrix do not lie in it."""
    if sp.issparse(data):
        try:
            check_sparse(data)
        except ValueError as error:
            raise ValueError(f"{source} is a damaged sparse matrix: {error}") from error


def refuse_text(data: Any, source: str) -> None:
    """Raise `TextColumnsError` if columns of an array or a data frame are no numbers."""
    columns: Iterable[tuple[Any, Any]] = ()
    if hasattr(data, "columns"):
        columns = frame_columns(data)
    elif getattr(getattr(data, "dtype", None), "kind", "O") in "OUSmM":
        array = np.asarray(data, dtype=object)
        columns = enumerate(array.T) if array.ndim == 2 else ()
    arrays = ((name, np.asarray(column)) for name, column in columns)
    text = [name for name, a in arrays if a.dtype.kind in "mM" or not are_numbers(a)]
    if text:
        raise TextColumnsError(text, source)


def as_rows(chunk: Any) -> Any:
    """Return a chunk as an array or a CSR matrix of real numbers, (n_samples, n_features)."""
    if sp.issparse(chunk):
        refuse_damaged(chunk, "chunk")
        rows = sp.csr_array(chunk)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
    else:
        rows = np.asanyarray(refuse_masked(chunk, "chunk"))
    if rows.ndim != 2:
        raise ValueError(f"chunk has shape {rows.shape}; it must be (n_samples, n_features)")
    if rows.dtype.kind not in "biuf":
        if rows.dtype.kind in "OUS":
            refuse_text(chunk, "chunk")
        raise ValueError(f"chunk has dtype {rows.dtype}; it must be real numbers")
    return rows.astype(np.float64, copy=False) if sp.issparse(rows) else rows


def align(values: Any, data: Any, name: str) -> Any:
    """Return what belongs to the rows of ``data`` in their order: pandas objects go by labels."""
    if not (_is_pandas(values) and _is_pandas(data)) or values.index.equals(data.index):
        return values
    if len(values) != len(data):
        return values  # another error says so
    unique = values.index.is_unique and data.index.is_unique
    if not (unique and values.index.isin(data.index).all()):
        raise ValueError(
            f"{name} has other labels in its index than the rows it belongs to; give it their "
            f"index, or pass {name}.to_numpy() to go by position"
        )
    return values.reindex(data.index)


def _is_pandas(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "iloc")


def check_weights(weights: Any, n_rows: int, name: str = "sample_weight") -> FloatArray | None:
    """Return one weight as float64 for each row; None if there are none."""
    if weights is None:
        return None
    if isinstance(weights, Real):
        weights = np.full(n_rows, float(weights))
    try:
        values = np.array(weights, dtype=np.float64)  # a copy, which the caller can't change
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number for each of {n_rows} rows: {error}") from error
    if values.shape != (n_rows,):
        raise ValueError(f"{name} has shape {values.shape}; it must be ({n_rows},), one a row")
    allowed = (values == 0.0) | ((values >= LEAST_WEIGHT) & (values <= 1.0 / LEAST_WEIGHT))
    bad = np.flatnonzero(~allowed)
    if len(bad):
        raise ValueError(
            f"{name} has {values[bad[0]]} at row {bad[0]}; weights must be finite and at least 0"
            + (f", from {LEAST_WEIGHT:g} to 1e100" if values[bad[0]] > 0.0 else "")
        )
    return values


def drop_zero_weights(rows: Any, weights: FloatArray | None) -> tuple[Any, FloatArray | None]:
    """Return rows, of a torch tensor too, and weights without the rows that count for nothing."""
    if weights is None or weights.all():
        return rows, weights
    kept = np.flatnonzero(weights)
    return rows[kept], weights[kept]


def listed(columns: Sequence[Any] | NDArray[np.intp], names: ArrayLike | None = None) -> str:
    """Return the first columns, quoted if they are names, and how many more there are."""
    first = columns[:_NAMED] if names is None else [str(c) for c in np.asarray(names)[columns]]
    shown = [repr(c) if isinstance(c, str) else str(c) for c in first[:_NAMED]]
    more = f" and {len(columns) - _NAMED} more" if len(columns) > _NAMED else ""
    return ", ".join(shown) + more


def frame_columns(frame: Any) -> Iterator[tuple[Any, Any]]:
    """Yield names and columns of a data frame of any library."""
    for i, name in enumerate(frame.columns):
        # By place: names need not be unique in pandas. Others know columns by name only.
        yield name, frame.iloc[:, i] if hasattr(frame, "iloc") else frame[name]


def are_numbers(values: NDArray[Any]) -> bool:
    """Return whether values are numbers, or text and objects that can be read as numbers."""
    if values.dtype.kind in "OUS":
        try:
            values.astype(np.float64)
        except (ValueError, TypeError):
            return False
    return True
