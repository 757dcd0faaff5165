"""Rows of numbers as users give them: what is taken, and the errors that name what is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[_SentError], args: tuple[Any, ...], facts: dict[str, Any]) -> _SentError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


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
            f"{source} contains NaN or infinity in column {_listed(columns, names)}; {advice}"
        )


class FeatureRangeError(_SentError):
    """Values are too large or too small to be squared; ``columns`` lists the features."""

    def __init__(
        self,
        columns: NDArray[np.intp],
        names: ArrayLike | None = None,
        *,
        source: str = "input",
    ) -> None:
        self.columns = columns
        self.source = source
        super().__init__(
            f"{source} has values that are too large or too small to be squared in column "
            f"{_listed(columns, names)}; standard deviations must be between 1e-150 and 1e150: "
            "give those columns in other units, or drop them"
        )


class MaskedValuesError(_SentError):
    """Data is a masked array with masked entries, which have no value to compute with."""

    def __init__(self, data: Any, source: str) -> None:
        mask = np.ma.getmaskarray(data)
        where = ""
        if mask.ndim == 2:
            where = f", in column {_listed(np.flatnonzero(mask.any(axis=0)))}"
        super().__init__(
            f"{source} is a masked array with {int(mask.sum())} masked values{where}; fill them "
            "in (data.filled(...)) or drop their rows (numpy.ma.compress_rows)"
        )


class TextColumnsError(_SentError):
    """Data holds columns that are no numbers; ``columns`` lists them, by name if they have one."""

    def __init__(self, columns: Sequence[Any], source: str) -> None:
        self.columns = list(columns)
        shown = ", ".join(repr(c) if isinstance(c, str) else str(c) for c in columns[:_NAMED])
        if len(columns) > _NAMED:
            shown += f" and {len(columns) - _NAMED} more"
        count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
        super().__init__(
            f"{source} has {count} of text or other values that are no numbers: {shown}; drop "
            "them, or turn them into numbers (for example with sklearn.preprocessing.OneHotEncoder)"
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
    if sp.issparse(data):
        return
    text = [name for name, column in _columns(data) if not _is_numeric(column)]
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
    if sp.issparse(rows):
        return rows if rows.dtype == np.float64 else rows.astype(np.float64)
    return rows


def raise_if_not_finite(column_values: NDArray[Any]) -> None:
    """Raise `NonFiniteError` unless the value of each column is finite."""
    finite = np.isfinite(column_values)
    if np.count_nonzero(finite) < finite.size:
        raise NonFiniteError(np.flatnonzero(~finite))


def _listed(columns: NDArray[np.intp], names: Any = None) -> str:
    """Return the first columns, by name if they have one, and how many more there are."""
    shown = [str(c) if names is None else repr(str(names[c])) for c in columns[:_NAMED]]
    more = f" and {len(columns) - _NAMED} more" if len(columns) > _NAMED else ""
    return ", ".join(shown) + more


def _columns(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the columns of a data frame, or of what an array can be made of, with their names."""
    names = getattr(data, "columns", None)
    if names is None:
        kind = getattr(getattr(data, "dtype", None), "kind", "O")
        array = np.asarray(data, dtype=object) if kind in "OUSmM" else np.empty(0)
        if array.ndim == 2:
            yield from enumerate(array.T)
        return
    for i, name in enumerate(names):
        # By place: names need not be unique in pandas. Others know columns by name only.
        yield name, data.iloc[:, i] if hasattr(data, "iloc") else data[name]


def _is_numeric(column: Any) -> bool:
    values = np.asarray(column)
    if values.dtype.kind not in "OUS":
        return values.dtype.kind not in "mM"
    try:
        values.astype(np.float64)
    except (ValueError, TypeError):
        return False
    return True
