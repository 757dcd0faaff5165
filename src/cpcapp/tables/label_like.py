"""Columns that are numbers, but look like labels or row numbers rather than measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

# More kinds than this are seldom classes.
_MAX_VALUES = 10
# Where more of the features than this look like labels, they are counts or answers.
_MAX_OF_FEATURES = 0.25


class LabelLike:
    """Looks at rows as they pass by, and tells which columns are hardly measurements.

    Parameters
    ----------
    features : sequence of str

    Examples
    --------
    >>> import numpy as np
    >>> seen = LabelLike(["height", "group", "number"])
    >>> seen.update(np.array([[1.62, 0, 1], [1.75, 1, 2], [1.58, 1, 3]]))
    >>> seen.labels, seen.row_numbers
    ({'group': 2}, ['number'])
    """

    def __init__(self, features: Sequence[str]) -> None:
        self._features = list(features)
        # Columns that were whole numbers so far: the values of those with few, and the number
        # that has to come next in those that count.
        self._values = {place: set[float]() for place in range(len(features))}
        self._next: dict[int, float] | None = None

    def update(self, rows: Any) -> None:
        """Take further rows, of shape (n, n_features), dense or sparse."""
        if sp.issparse(rows):  # no table that somebody keeps labels in
            self._values, self._next = {}, {}
            return
        counting = range(len(self._features)) if self._next is None else self._next
        whole = _whole(rows, sorted({*self._values, *counting}))
        self._next = self._counted_on(rows, whole)
        few = {place: self._values[place] for place in whole if place in self._values}
        for place, seen in few.items():
            seen.update(np.unique(rows[:, place]).tolist())
        self._values = {place: seen for place, seen in few.items() if len(seen) <= _MAX_VALUES}

    def _counted_on(self, rows: NDArray[np.float64], whole: Sequence[int]) -> dict[int, float]:
        found = {}
        for place in whole:
            column = rows[:, place]
            expected = column[0] if self._next is None else self._next.get(place)
            if column[0] == expected and (np.diff(column) == 1.0).all():
                found[place] = float(column[-1] + 1.0)
        return found

    @property
    def row_numbers(self) -> list[str]:
        """Columns that count the rows."""
        return [self._features[place] for place in self._next or ()]

    @property
    def labels(self) -> dict[str, int]:
        """Columns with a few whole numbers, and how many; none where many columns are so."""
        found = {
            self._features[place]: len(seen)
            for place, seen in self._values.items()
            if len(seen) > 1 and place not in (self._next or ())
        }
        return found if len(found) <= max(1.0, _MAX_OF_FEATURES * len(self._features)) else {}


def _whole(rows: NDArray[np.float64], places: list[int]) -> list[int]:
    # A look at a few rows rules out nearly all measurements, and saves a pass over all of them.
    for some in (rows[:100], rows):
        part = some[:, places]
        is_whole = (part == np.rint(part)).all(axis=0)
        places = [place for place, found in zip(places, is_whole, strict=True) if found]
    return places
