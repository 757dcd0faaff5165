"""A bounded random sample of rows, drawn while they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

# Rows of one set that are kept: what the permutation test uses at most (half of it for each set),
# and enough for p-values of 0.0002. For wide tables fewer, 8 MB of them, but never below 500 rows.
_MAX_ROWS = 5000
_MAX_CELLS = 1 << 20
_MIN_ROWS = 500


class RowSample:
    """Rows of a set, all of them or a random sample, in their order.

    Parameters
    ----------
    n_features : int
    seed : int, default=0
        The same rows in every run.

    Examples
    --------
    >>> sample = RowSample(2)
    >>> for start in (0, 4000, 8000):
    ...     sample.update(np.arange(2.0 * start, 2.0 * start + 8000).reshape(4000, 2))
    >>> sample.rows().shape, sample.n_seen, bool((np.diff(sample.rows()[:, 0]) > 0).all())
    ((5000, 2), 12000, True)
    """

    def __init__(self, n_features: int, seed: int = 0) -> None:
        self.max_rows = max(_MIN_ROWS, min(_MAX_ROWS, _MAX_CELLS // max(n_features, 1)))
        self.n_seen = 0
        self._rng = np.random.default_rng(seed)
        self._blocks: list[Any] = []
        self._keys: list[NDArray[np.float64]] = []

    @property
    def is_complete(self) -> bool:
        """Whether no row was left out."""
        return self.n_seen <= self.max_rows

    def update(self, values: Any) -> None:
        """Add the rows of a chunk."""
        # The rows with the smallest of as many random keys are a random sample.
        keys = self._rng.random(values.shape[0])
        self.n_seen += len(keys)
        if self._keys and not self.is_complete:
            largest = self._largest_key()
            chosen = np.flatnonzero(keys < largest)
            values, keys = values[chosen], keys[chosen]
        if len(keys):
            self._blocks.append(values.copy())  # of a chunk that may be overwritten
            self._keys.append(keys)
        if sum(map(len, self._keys)) > self.max_rows:
            self._trim()

    def _largest_key(self) -> float:
        found = np.concatenate(self._keys)
        return float(found.max()) if len(found) >= self.max_rows else np.inf

    def _trim(self) -> None:
        keys = np.concatenate(self._keys)
        limit = np.partition(keys, self.max_rows - 1)[self.max_rows - 1]
        for i, (block, its) in enumerate(zip(self._blocks, self._keys, strict=True)):
            stays = np.flatnonzero(its <= limit)
            if len(stays) < len(its):
                self._blocks[i], self._keys[i] = block[stays], its[stays]

    def rows(self) -> Any:
        """Return the rows, sparse if those of the table are."""
        if any(sp.issparse(block) for block in self._blocks):
            return sp.csr_array(sp.vstack([sp.csr_array(block) for block in self._blocks]))
        return np.concatenate(self._blocks)
