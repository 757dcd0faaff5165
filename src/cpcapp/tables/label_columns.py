"""Find numeric columns that look like labels or row numbers, not like measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

# Both chosen by eye. Labels seldom have more values than this.
_MAX_LABEL_VALUES = 10
# If a larger share of the features looks like labels, they are counts or answers.
_MAX_LABEL_SHARE = 0.25


class LabelColumnFinder:
    """Reads rows in chunks and finds columns that are probably not measurements."""

    def __init__(self, features: Sequence[str]) -> None:
        self._features = list(features)
        # For columns of whole numbers so far: the distinct values of those with few, and the
        # number that has to come next in those that count the rows.
        self._values = {index: set[float]() for index in range(len(features))}
        self._next: dict[int, float] | None = None

    def update(self, rows: Any) -> None:
        """Read further rows, of shape (n, n_features), dense or sparse."""
        if sp.issparse(rows):  # sparse tables hold no labels
            self._values, self._next = {}, {}
            return
        counting = range(len(self._features)) if self._next is None else self._next
        whole = _find_whole(rows, sorted({*self._values, *counting}))
        self._next = self._continue_counting(rows, whole)
        few = {index: self._values[index] for index in whole if index in self._values}
        for index, seen in few.items():
            seen.update(np.unique(rows[:, index]).tolist())
        self._values = {
            index: seen for index, seen in few.items() if len(seen) <= _MAX_LABEL_VALUES
        }

    def _continue_counting(
        self, rows: NDArray[np.float64], whole: Sequence[int]
    ) -> dict[int, float]:
        found = {}
        for index in whole:
            column = rows[:, index]
            expected = column[0] if self._next is None else self._next.get(index)
            if column[0] == expected and (np.diff(column) == 1.0).all():
                found[index] = float(column[-1] + 1.0)
        return found

    @property
    def row_numbers(self) -> list[str]:
        """Columns that count the rows."""
        return [self._features[index] for index in self._next or ()]

    @property
    def labels(self) -> dict[str, int]:
        """Columns with few distinct whole numbers, and how many; none if many columns are so."""
        found = {
            self._features[index]: len(seen)
            for index, seen in self._values.items()
            if len(seen) > 1 and index not in (self._next or ())
        }
        return found if len(found) <= max(1.0, _MAX_LABEL_SHARE * len(self._features)) else {}


def _find_whole(rows: NDArray[np.float64], indices: list[int]) -> list[int]:
    # The first rows rule out nearly all measurements, which saves a pass over all rows.
    for some in (rows[:100], rows):
        part = some[:, indices]
        is_whole = (part == np.rint(part)).all(axis=0)
        indices = [index for index, found in zip(indices, is_whole, strict=True) if found]
    return indices
