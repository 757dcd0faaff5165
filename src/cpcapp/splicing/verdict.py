"""The verdict on a photo, in numbers that authentic photos gave meaning to, and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing._arrays import FloatArray
from cpcapp.splicing.jpeg_trace import grid_trace
from cpcapp.splicing.mosaic_trace import MosaicTrace, mosaic_levels
from cpcapp.splicing.patches import FloatMap
from cpcapp.splicing.regions import LEAST_SIDE, Seam, SeamEvidence

#: False-alarm probability from which on nothing is said to be found.
ALARM_LEVEL = 0.05
#: Share of false places among those shown, on average at most.
FALSE_DISCOVERY_RATE = 0.05

_PATCH = 8
_FAINTEST = 1e-6
_BUT_A_FEW = 0.999
# Below this a mosaic's level says nothing.
_LEAST_LEVEL = 0.02
# How much photos that are alike may differ in mean, level and compression, and how many are enough.
_WIDTHS = np.array([1.0, 0.7, 0.25])
_FEWEST_ALIKE = 4.0
_TOO_COMPRESSED = 1.3


class Facts(NamedTuple):
    """What tells a spliced photo from an authentic one.

    Attributes
    ----------
    peak : float
        What one in a thousand squares exceeds, of `patch_strengths`: their maximum would rise
        with the size of the photo.
    mean : float
        Logarithm of the mean value of the boundary map, undivided. Photos with much fine detail
        have more of both: what counts is the peak for such a mean.
    level : float
        Logarithm of how clearly the photo shows a camera's mosaic.
    opposed : float
        How strongly a part of the photo shows another mosaic. Of both see
        `cpcapp.splicing.mosaic_trace.MosaicLevels`.
    compression : float
        How clearly the photo shows JPEG's grid; see `cpcapp.splicing.jpeg_trace.grid_trace`. It
        does not tell by itself, but photos are compared with photos like them.
    """

    peak: float
    mean: float
    level: float
    opposed: float
    compression: float

    @property
    def telling(self) -> FloatArray:
        """What the score is made of: peak, mean, level and opposed."""
        return np.array(self[:4])

    @property
    def kind(self) -> FloatArray:
        """What photos are compared by: mean, level and compression."""
        return np.array([self.mean, self.level, self.compression])

    @classmethod
    def of(cls, image: FloatMap, seam: Seam, trace: MosaicTrace | None) -> Facts:
        """Return what is seen in a photo."""
        scale = max(seam.scale, _FAINTEST)
        levels = mosaic_levels(trace)
        return cls(
            float(np.quantile(patch_strengths(seam), _BUT_A_FEW)),
            math.log(scale * max(float(seam.map.mean()), _FAINTEST)),
            math.log(levels.level + _LEAST_LEVEL),
            levels.opposed,
            grid_trace(image),
        )


@dataclass(frozen=True)
class PatchTail:
    """How far the squares of authentic photos stand out.

    Attributes
    ----------
    surprise : ndarray of shape (n,)
        See `Calibration.surprise`, rising.
    log_survival : ndarray of shape (n,)
        Logarithm of the share of squares that stand out more, falling. Beyond the last the line
        goes on: rare values are about exponential.
    """

    surprise: FloatArray
    log_survival: FloatArray

    def __post_init__(self) -> None:
        if (
            self.surprise.shape != self.log_survival.shape
            or self.surprise.ndim != 1
            or len(self.surprise) < 2
            or not np.isfinite([self.surprise, self.log_survival]).all()
            or (np.diff(self.surprise) <= 0.0).any()
            or (np.diff(self.log_survival) >= 0.0).any()
        ):
            raise ValueError("surprise must rise and log_survival fall, all of them finite")

    @classmethod
    def learn(cls, photos: Sequence[NDArray[Any]]) -> PatchTail:
        """Learn from the squares of authentic photos, each of which counts the same."""
        values = np.concatenate(photos)
        weights = np.concatenate([np.full(len(photo), 1.0 / len(photo)) for photo in photos])
        order = np.argsort(values)
        values, weights = values[order], weights[order] / len(photos)
        survival = np.cumsum(weights[::-1])[::-1]
        # Down to where some tens of squares are left.
        levels = np.exp(np.linspace(np.log(0.9), np.log(20.0 / len(values)), 40))
        at = np.searchsorted(-survival, -levels)
        chosen = values[np.minimum(at, len(values) - 1)]
        rising = np.concatenate([[True], np.diff(chosen) > 1e-9])
        return cls(chosen[rising], np.log(levels[rising]))

    def p_value(self, surprise: NDArray[Any]) -> FloatArray:
        """Return the share of squares of authentic photos that stand out as much."""
        inside = np.interp(surprise, self.surprise, self.log_survival, left=0.0)
        slope = (self.log_survival[-1] - self.log_survival[-2]) / (
            self.surprise[-1] - self.surprise[-2]
        )
        beyond = self.log_survival[-1] + slope * (surprise - self.surprise[-1])
        return np.asarray(np.exp(np.where(surprise > self.surprise[-1], beyond, inside)))

    def to_dict(self) -> dict[str, Any]:
        """Return it in types that JSON knows."""
        return {
            "surprise": self.surprise.round(5).tolist(),
            "log_survival": self.log_survival.round(5).tolist(),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> PatchTail:
        """Return what `to_dict` wrote."""
        return cls(*(np.asarray(content[n], np.float64) for n in ("surprise", "log_survival")))


def patch_strengths(seam: Seam) -> FloatMap:
    """Return for each square of 8 pixels its highest value, comparable with `Facts.peak`.

    The squares at the right and at the bottom may be smaller.
    """
    height, width = seam.map.shape
    across = np.maximum.reduceat(seam.map, np.arange(0, width, _PATCH), axis=1)
    patches = np.maximum.reduceat(across, np.arange(0, height, _PATCH), axis=0)
    return np.asarray(np.log(np.maximum(patches * np.float32(seam.scale), _FAINTEST)))


class _Alike(NamedTuple):
    """Scores of authentic photos like one: their mean, their spread, how many they are worth."""

    middle: float
    spread: float
    worth: float


@dataclass(frozen=True)
class Calibration:
    """What a localizer learned of the meaning of its findings.

    Attributes
    ----------
    evidence : SeamEvidence
    weights : ndarray of shape (4,) or None
        Of the telling `Facts` in the score. None if there were too few authentic photos to learn
        them.
    authentic : ndarray of shape (n, 4) or None
        Kind (mean, level and compression, see `Facts`) and score of authentic photos.
    patch_tail : PatchTail or None
    """

    evidence: SeamEvidence
    weights: FloatArray | None = field(default=None, repr=False)
    authentic: FloatArray | None = field(default=None, repr=False)
    patch_tail: PatchTail | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, value, shape in (
            ("weights", self.weights, (4,)),
            ("authentic", self.authentic, (-1, 4)),
        ):
            if value is None:
                continue
            known = tuple(n if m == -1 else m for n, m in zip(value.shape, shape, strict=False))
            if value.shape != known or value.ndim != len(shape) or not np.isfinite(value).all():
                raise ValueError(f"{name} of shape {value.shape} must be finite, {shape}")

    def score(self, facts: Facts) -> float | None:
        """Return how much speaks for a splice, on one scale for all photos."""
        return None if self.weights is None else float(self.weights @ facts.telling)

    def p_value(self, facts: Facts) -> float | None:
        """Return the share of authentic photos that would score as high.

        Of photos like this one in fine detail, in how clearly they show the mosaic of a camera,
        and in compression: those weigh most, with a Gaussian of their distance in kind. With
        their weighted mean and spread, both uncertain by as many photos as the weights are worth,
        the score of another one follows Student's distribution; see `student_tail` for its
        degrees of freedom. What was learned from n photos says nothing of rarer ones than one in
        n + 1. With fewer than four photos like this one, the answer is 1. None if the model has
        not learned it.
        """
        if self.weights is None or self.authentic is None:
            return None
        alike = self._alike(facts)
        if alike is None:
            return 1.0
        far = float(self._surprise(facts, np.array(facts.peak), alike))
        return max(student_tail(far), 1.0 / (len(self.authentic) + 1))

    def surprise(self, facts: Facts, peak: NDArray[Any]) -> FloatArray | None:
        """Return how far photos with other peaks would stand out from authentic ones like them.

        Parameters
        ----------
        facts : Facts
        peak : ndarray
            To take the place of that in ``facts``.

        Returns
        -------
        ndarray or None
            Of the same shape: the score less the mean of the scores of authentic photos like this
            one, in standard deviations. None if there are not enough of them.
        """
        alike = self._alike(facts)
        return None if alike is None else self._surprise(facts, peak, alike)

    def _surprise(self, facts: Facts, peak: NDArray[Any], alike: _Alike) -> FloatArray:
        assert self.weights is not None
        rest = float(self.weights @ facts.telling) - float(self.weights[0]) * facts.peak
        spread = max(alike.spread * (1.0 + 1.0 / alike.worth) ** 0.5, 1e-9)
        return np.asarray((self.weights[0] * peak + rest - alike.middle) / spread)

    def _alike(self, facts: Facts) -> _Alike | None:
        if self.weights is None or self.authentic is None:
            return None
        kinds, scores = self.authentic[:, :-1], self.authentic[:, -1]
        near = np.exp(-0.5 * np.square((kinds - facts.kind) / _WIDTHS).sum(axis=1))
        if near.sum() < _FEWEST_ALIKE:
            return None
        worth = near.sum() ** 2 / (near**2).sum()
        middle = near @ scores / near.sum()
        variance = near @ (scores - middle) ** 2 / near.sum() * worth / (worth - 1.0)
        return _Alike(float(middle), float(variance) ** 0.5, float(worth))

    def patch_p_values(self, seam: Seam, facts: Facts) -> FloatArray | None:
        """Return for each square of 8 pixels how many of authentic photos stand out as much.

        Each is judged as if it were the photo's peak.

        Parameters
        ----------
        seam : Seam
        facts : Facts

        Returns
        -------
        ndarray of shape (ceil(height / 8), ceil(width / 8)) or None
            All 1 where there are not enough authentic photos like this one.
        """
        if self.patch_tail is None or self.weights is None:
            return None
        strengths = patch_strengths(seam)
        surprise = self.surprise(facts, strengths)
        if surprise is None:
            return np.ones(strengths.shape)
        return self.patch_tail.p_value(surprise)

    def to_dict(self) -> dict[str, Any]:
        """Return it in types that JSON knows."""
        known, tail = self.authentic, self.patch_tail
        return {
            "evidence": self.evidence.to_dict(),
            "weights": None if self.weights is None else self.weights.round(5).tolist(),
            "authentic": None if known is None else known.round(4).tolist(),
            "patch_tail": None if tail is None else tail.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Calibration:
        """Return what `to_dict` wrote."""
        weights, known, tail = (content[n] for n in ("weights", "authentic", "patch_tail"))
        return cls(
            SeamEvidence.from_dict(content["evidence"]),
            None if weights is None else np.asarray(weights, dtype=np.float64),
            None if known is None else np.asarray(known, dtype=np.float64),
            None if tail is None else PatchTail.from_dict(tail),
        )


def student_tail(value: float) -> float:
    """Return how often Student's variable with three degrees of freedom is larger than a value.

    With so few it asks for 2.35 standard deviations at 0.05, where a normal variable has 1.65. This
    leaves room for collections that differ as much as the photos of one, for 1.65 √2 = 2.33. The
    two that the shipped model was calibrated by differ by 0.2, but two are few, and with six
    degrees more of Columbia's authentic photos raised an alarm than should. In closed form, with
    ``θ = atan(value / √3)``: ``1/2 - (θ + sin θ cos θ) / π``.

    Examples
    --------
    >>> round(student_tail(2.353), 3), student_tail(0.0)
    (0.05, 0.5)
    """
    angle = math.atan(value / math.sqrt(3.0))
    return 0.5 - (angle + math.sin(angle) * math.cos(angle)) / math.pi


def words(p_value: float | None, shape: tuple[int, ...], compressed: float) -> str:
    """Say in words what was found, carefully.

    Parameters
    ----------
    p_value : float or None
    shape : (height, width)
    compressed : float
        Of `blockiness`.

    Returns
    -------
    str

    Examples
    --------
    >>> words(0.004, (480, 640), 1.0)
    'signs of splicing'
    >>> words(0.4, (480, 640), 1.0)
    'no signs found'
    >>> words(0.4, (40, 640), 1.0)
    "can't tell (too small)"
    """
    if min(shape[:2]) < LEAST_SIDE:
        return "can't tell (too small)"
    if p_value is None:
        return "can't tell (the model has not learned to judge)"
    if p_value <= ALARM_LEVEL:
        return "signs of splicing"
    return "can't tell (too compressed)" if compressed > _TOO_COMPRESSED else "no signs found"


def blockiness(image: FloatMap) -> float:
    """Return how much larger steps between pixels are at JPEG's blocks than elsewhere.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]

    Returns
    -------
    float
        Near 1 if there are no blocks to be seen. For each of the eight columns (rows) at which a
        block can begin, the median of the mean steps there; the largest of them over their median.

    Examples
    --------
    >>> import numpy as np
    >>> ramp = np.tile(np.linspace(0, 1, 64, dtype=np.float32)[:, None], (1, 64))
    >>> round(blockiness(np.dstack([ramp, ramp.T, ramp + ramp.T])), 2)
    1.0
    """
    height, width = image.shape[:2]
    if min(height, width) < 2 * LEAST_SIDE // 4:
        return 1.0
    grey = image[:, :, 1]
    ratios = []
    for steps in (
        np.abs(np.diff(grey, axis=1)).mean(axis=0),
        np.abs(np.diff(grey, axis=0)).mean(1),
    ):
        phases = np.array([np.median(steps[k::8]) for k in range(8)]) + 1e-4
        ratios.append(phases.max() / np.median(phases))
    return float(np.sqrt(ratios[0] * ratios[1]))


def significant(p_values: NDArray[Any], rate: float = FALSE_DISCOVERY_RATE) -> NDArray[np.bool_]:
    """Choose places so that on average at most a share ``rate`` of them is false.

    The rule of Benjamini and Hochberg: of the ``n`` sorted p-values all up to the last one with
    ``p_k <= rate · k/n``.

    Parameters
    ----------
    p_values : ndarray
        Of any shape.
    rate : float, default=0.05

    Returns
    -------
    ndarray of bool
        Of the same shape.

    Examples
    --------
    >>> import numpy as np
    >>> significant(np.array([0.001, 0.2, 0.024, 0.9]), rate=0.05)
    array([ True, False,  True, False])
    """
    if not 0.0 < rate < 1.0:
        raise ValueError(f"rate={rate} must be between 0 and 1")
    ranked = np.sort(p_values, axis=None)
    good = ranked <= rate * np.arange(1, ranked.size + 1) / max(ranked.size, 1)
    if not good.any():
        return np.zeros(p_values.shape, dtype=bool)
    return np.asarray(p_values <= ranked[np.flatnonzero(good)[-1]])


def enlarged(patches: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Return a map of the photo's size from one value for each patch."""
    size = patches.shape[1] * _PATCH, patches.shape[0] * _PATCH
    wide = cv2.resize(patches, size, interpolation=cv2.INTER_NEAREST)
    return np.asarray(wide[: shape[0], : shape[1]])
