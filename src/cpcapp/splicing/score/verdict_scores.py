"""How good verdicts are: spliced photos against authentic ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.threads import map_threads
from cpcapp.splicing.decide.words import ALARM_LEVEL, WEAK_LEVEL
from cpcapp.splicing.photo.samples import Problem, Sample
from cpcapp.splicing.score.evaluate import Maps, Method, ask


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

    @classmethod
    def from_maps(cls, name: str, authentic: bool, maps: Maps) -> PhotoVerdict:
        """Return the verdict in what a method says of a photo; no score if it has none."""
        height, width = maps.boundary.shape
        score, p_value = (getattr(maps, key, None) for key in ("score", "p_value"))
        return cls(name, authentic, height, width, score, p_value)


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

    def _with_score(self, authentic: bool) -> list[PhotoVerdict]:
        return [p for p in self.photos if p.score is not None and p.authentic is authentic]

    def auc(self, *, same_size: bool = False) -> float | None:
        """Return how often a spliced photo scores higher than an authentic one.

        ``same_size``: count only pairs of the same height and width: where cameras differ, the size
        of a photo alone can tell.
        """
        spliced, authentic = self._with_score(False), self._with_score(True)
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
        """Return the share of authentic, or of spliced photos with a p-value of at most a level.

        A photo without a p-value, which is like too few of those of the calibration, counts as one
        without alarm. None if no photo has a score.
        """
        return self._share(authentic, -np.inf, level)

    def weak_signs(self, *, authentic: bool = True) -> float | None:
        """Return the share of authentic, or of spliced photos with weak signs; see `alarms`."""
        return self._share(authentic, ALARM_LEVEL, WEAK_LEVEL)

    def _share(self, authentic: bool, above: float, up_to: float) -> float | None:
        inside = [
            photo.p_value is not None and above < photo.p_value <= up_to
            for photo in self._with_score(authentic)
        ]
        return float(np.mean(inside)) if inside else None

    def describe(self) -> str:
        """Return a sentence on how well spliced photos are told from authentic ones.

        >>> print(VerdictScores((PhotoVerdict("c", False, 10, 10, 0.5, 0.03),)).describe())
        verdict: signs of splicing (p <= 0.05) in 100 % of 1 spliced photos, weak signs (p <= 0.15)
        in 0 %; no authentic ones
        """
        spliced, authentic = self._with_score(False), self._with_score(True)
        line = (
            f"verdict: signs of splicing (p <= {ALARM_LEVEL}) in "
            f"{_percent(self.alarms(authentic=False))} of {len(spliced)} spliced photos"
        )
        weak = f", weak signs (p <= {WEAK_LEVEL}) in {_percent(self.weak_signs(authentic=False))}"
        if not authentic:
            return line + weak + "; no authentic ones"
        line += f" and {_percent(self.alarms())} of {len(authentic)} authentic ones"
        line += f"{weak} and {_percent(self.weak_signs())}"
        for what, area in (("", self.auc()), (" over pairs of one size", self.auc(same_size=True))):
            if area is not None:
                line += f", area under the ROC curve{what} {area:.3f}"
        return line

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "n_spliced": len(self._with_score(False)),
            "n_authentic": len(self._with_score(True)),
            "n_without_score": sum(p.score is None for p in self.photos),
            "n_without_p_value": sum(
                p.score is not None and p.p_value is None for p in self.photos
            ),
            "auc": self.auc(),
            "auc_same_size": self.auc(same_size=True),
            "alarm_level": ALARM_LEVEL,
            "alarms_on_authentic": self.alarms(),
            "found_of_spliced": self.alarms(authentic=False),
            "weak_level": WEAK_LEVEL,
            "weak_on_authentic": self.weak_signs(),
            "weak_of_spliced": self.weak_signs(authentic=False),
            "photos": [asdict(photo) for photo in self.photos],
        }


def judge_photos(
    samples: Sequence[Sample],
    method: Method,
    *,
    jobs: int = 1,
    progress: Callable[[float], None] | None = None,
) -> tuple[list[PhotoVerdict], list[Problem]]:
    """Ask a method for its verdict on photos."""
    results = list(map_threads(partial(_judge, method), samples, jobs=jobs, progress=progress))
    verdicts = [result for result in results if isinstance(result, PhotoVerdict)]
    return verdicts, [result for result in results if isinstance(result, Problem)]


def _judge(method: Method, sample: Sample) -> PhotoVerdict | Problem:
    try:
        return PhotoVerdict.from_maps(sample.name, sample.authentic, ask(method, sample.photo))
    except (OSError, ValueError) as error:
        return Problem(sample.name, " ".join(str(error).split()))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _sizes(photos: Sequence[PhotoVerdict]) -> NDArray[np.int64]:
    return np.array([(photo.height, photo.width) for photo in photos], dtype=np.int64)
