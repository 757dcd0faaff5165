"""How good verdicts are: spliced photos against authentic ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.verdicts.wording import ALARM_LEVEL


@dataclass(frozen=True)
class PhotoVerdict:
    """The verdict on one photo, and the truth.

    Attributes
    ----------
    name : str
    authentic : bool
    height, width : int
    score, p_value : float or None
    """

    name: str
    authentic: bool
    height: int
    width: int
    score: float | None
    p_value: float | None


@dataclass(frozen=True)
class VerdictScores:
    """The verdicts on the photos of a data set.

    Photos without a score are left out of all figures and counted.

    Examples
    --------
    >>> photos = [
    ...     PhotoVerdict("a", True, 10, 10, 0.1, 0.9),
    ...     PhotoVerdict("b", True, 20, 20, 0.7, 0.04),
    ...     PhotoVerdict("c", False, 10, 10, 0.5, 0.03),
    ... ]
    >>> found = VerdictScores(tuple(photos))
    >>> found.auc(), found.auc(same_size=True), found.alarms(), found.alarms(authentic=False)
    (0.5, 1.0, 0.5, 1.0)
    """

    photos: tuple[PhotoVerdict, ...]

    def _judged(self, authentic: bool) -> list[PhotoVerdict]:
        return [p for p in self.photos if p.score is not None and p.authentic is authentic]

    def auc(self, *, same_size: bool = False) -> float | None:
        """Return how often a spliced photo scores higher than an authentic one.

        Parameters
        ----------
        same_size : bool, default=False
            Count only pairs of the same height and width: where cameras differ, the size of a
            photo alone can tell.

        Returns
        -------
        float or None
            Ties count half. None if there is no pair.
        """
        spliced, authentic = self._judged(False), self._judged(True)
        if not spliced or not authentic:
            return None
        ahead = np.array([p.score for p in spliced])[:, None] - [p.score for p in authentic]
        counted = np.ones(ahead.shape, dtype=bool)
        if same_size:
            one, other = (_sizes(group) for group in (spliced, authentic))
            counted = (one[:, None] == other[None]).all(axis=2)
        if not counted.any():
            return None
        return float(((ahead > 0.0) + 0.5 * (ahead == 0.0))[counted].mean())

    def alarms(self, level: float = ALARM_LEVEL, *, authentic: bool = True) -> float | None:
        """Return the share of authentic, or of spliced photos with a p-value of at most a level."""
        values = [p.p_value for p in self._judged(authentic) if p.p_value is not None]
        return float(np.mean(np.array(values) <= level)) if values else None

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "n_spliced": len(self._judged(False)),
            "n_authentic": len(self._judged(True)),
            "n_without_score": sum(p.score is None for p in self.photos),
            "auc": self.auc(),
            "auc_same_size": self.auc(same_size=True),
            "alarm_level": ALARM_LEVEL,
            "alarms_on_authentic": self.alarms(),
            "found_of_spliced": self.alarms(authentic=False),
            "photos": [asdict(photo) for photo in self.photos],
        }


def _sizes(photos: Sequence[PhotoVerdict]) -> NDArray[np.int64]:
    return np.array([(photo.height, photo.width) for photo in photos], dtype=np.int64)
