"""Rows of numbers as users give them: what is taken, and the errors that name what is not."""

from __future__ import annotations

import copyreg
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cpcapp.moments.sparse import check_sparse

FloatArray = NDArray[np.float64]

_NAMED = 5  # columns that a message names; of the others it gives the number


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
        if advice is None:
            advice = (
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


class MaskedValuesError(_SentError):
    """Data is a masked array with masked entries, which have no value to compute with."""

    def __init__(self, data: Any, source: str) -> None:
        mask = np.ma.getmaskarray(data)
        where = ""
        if mask.ndim == 2:
            where = f", in column {listed(np.flatnonzero(mask.any(axis=0)))}"
        super().__init__(
            f"{source} is a masked array with {int(mask.sum())} masked values{where}; fill them "
            "in (data.filled(...)) or drop their rows (numpy.ma.compress_rows)"
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
    if np.ma.is_masked(data):
        raise MaskedValuesError(data, source)
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
    chunk = refuse_masked(chunk, "chunk")
    if sp.issparse(chunk):
        refuse_damaged(chunk, "chunk")
        rows = sp.csr_array(chunk)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
    else:
        rows = np.asanyarray(chunk)
    if rows.ndim != 2:
        raise ValueError(f"chunk has shape {rows.shape}; it must be (n_samples, n_features)")
    if rows.dtype.kind not in "biuf":
        if rows.dtype.kind in "OUS":
            refuse_text(chunk, "chunk")
        raise ValueError(f"chunk has dtype {rows.dtype}; it must be real numbers")
    return rows.astype(np.float64, copy=False) if sp.issparse(rows) else rows


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
