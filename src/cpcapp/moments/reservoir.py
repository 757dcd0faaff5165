"""A bounded random sample of rows, drawn while they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cpcapp.moments.moments import stack
from cpcapp.moments.rows import FloatArray
from cpcapp.moments.sample import sample_size

# Rows beyond the bound that are held before the largest keys are dropped, as a share of it: to drop
# copies all that stay.
_SLACK = 0.25


class Reservoir:
    """Rows of a set, all of them or a uniform random sample, in their order.

    Each row gets a random key, and those with the smallest keys stay. So every row is as likely,
    however the rows are divided into chunks, and reservoirs of consecutive parts add up.

    The bound is by default what `sample_size` gives for the features of the first rows, and the
    seed gives the same rows in every run. ``n_seen`` counts rows, without those of weight 0.
    """

    def __init__(self, max_rows: int | None = None, seed: int | Sequence[int] = 0) -> None:
        self.max_rows = max_rows or 0
        self.seed = seed
        self.n_seen = 0
        self._n_given = 0  # with rows of weight 0, which have numbers too
        self._rng = np.random.default_rng(seed)
        self._limit = np.inf  # rows with keys beyond it are not among those that stay
        self._blocks: list[Any] = []
        self._tags = np.empty((3, 0))  # of each row its key, its number and its weight
        self._is_weighted = False

    def update(self, rows: Any, weights: FloatArray | None = None) -> None:
        """Add the rows of a chunk: an array, a CSR matrix, or a torch tensor on any device."""
        n = rows.shape[0]
        self.max_rows = self.max_rows or sample_size(rows.shape[1])
        keys = self._rng.random(n)
        if weights is not None:
            self._is_weighted = True
            keys[weights == 0.0] = np.inf
        self.n_seen += int(np.isfinite(keys).sum())
        chosen = np.flatnonzero(keys < self._limit)
        if len(chosen) > self.max_rows:
            chosen = chosen[_smallest(keys[chosen], self.max_rows)]
        if len(chosen):
            taken = rows[chosen]  # a copy: the chunk may be overwritten
            if hasattr(taken, "detach"):
                taken = taken.detach().cpu().double().numpy()
            each = np.ones(n) if weights is None else weights
            tags = np.stack([keys[chosen], chosen + self._n_given, each[chosen]])
            self._blocks.append(taken)
            self._tags = np.concatenate([self._tags, tags], axis=1)
        self._n_given += n
        self._trim(_SLACK)

    def __iadd__(self, later: Reservoir) -> Self:
        """Add the rows of another reservoir, which come after these."""
        self.max_rows = self.max_rows or later.max_rows
        self._blocks += later._blocks
        tags = later._tags + np.array([[0.0], [self._n_given], [0.0]])
        self._tags = np.concatenate([self._tags, tags], axis=1)
        self._is_weighted |= later._is_weighted
        self.n_seen += later.n_seen
        self._n_given += later._n_given
        self._trim(_SLACK)
        return self

    def __add__(self, later: Reservoir) -> Reservoir:
        total = Reservoir(self.max_rows, self.seed)
        total += self
        total += later
        return total

    def rows(self) -> Any:
        """Return the rows; as a CSR matrix if any of them came sparse."""
        self._trim()
        if not self._blocks:
            raise ValueError("no rows have been added yet")
        return self._blocks[0]

    def weights(self) -> FloatArray | None:
        """Return the weights of the rows, or None if none were given."""
        self._trim()
        return self._tags[2] if self._is_weighted else None

    def index(self) -> NDArray[np.intp]:
        """Return the numbers of the rows among all that were given, from 0."""
        self._trim()
        return np.asarray(self._tags[1], dtype=np.intp)

    def _trim(self, slack: float = 0.0) -> None:
        """Drop what is beyond the bound, and join the blocks; not while it is little."""
        if slack and self._tags.shape[1] <= (1.0 + slack) * self.max_rows:
            return
        if self._blocks:
            self._blocks = [stack(self._blocks)]
        if self._tags.shape[1] > self.max_rows:
            stays = _smallest(self._tags[0], self.max_rows)
            self._blocks, self._tags = [self._blocks[0][stays]], self._tags[:, stays]
            self._limit = float(self._tags[0].max())


def _smallest(keys: FloatArray, count: int) -> NDArray[np.intp]:
    """Return where the smallest keys are, in order of place."""
    return np.sort(np.argpartition(keys, count - 1)[:count])
