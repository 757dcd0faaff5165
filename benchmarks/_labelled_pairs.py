"""Pairs of sets with labels to judge a loading rule by, and which of them may decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from _pairs_generated import generated
from _pairs_known import FloatArray, known, subjects
from _pairs_tables import tables
from _pairs_text import texts

_SPLIT_SEED = 20261118


@dataclass(frozen=True)
class LabelledPair:
    """A target with classes that no rule may see, and a background.

    Pairs of one family share data or the way they were made, so they are in the same half:
    ``"deciding"`` or ``"reporting"``. Those that are ``"named"`` are in neither. In place of
    classes there may be two signals, of shape (n, 2).
    """

    name: str
    family: str
    half: str
    target: FloatArray
    background: FloatArray
    labels: NDArray[np.intp]

    @property
    def has_classes(self) -> bool:
        """Whether the labels are classes."""
        return self.labels.ndim == 1


def labelled_pairs(half: str | None = None) -> Iterator[LabelledPair]:
    """Yield the pairs of one half, or of both; those whose files are missing are left out."""
    for family, name, make in (*known(), *tables(), *texts(), *generated()):
        own = _half(family)
        if half in (None, own):
            yield LabelledPair(name, family, own, *make())
    if half is None:
        for family, name, make in subjects():
            yield LabelledPair(name, family, "named", *make())


def _half(family: str) -> str:
    # By a hash, so that the half of a family does not depend on which packages are installed.
    digest = sha256(f"{_SPLIT_SEED} {family}".encode()).digest()
    return ("deciding", "reporting")[digest[0] % 2]
