"""Features, score and p-value of a photo, and its hot spots; `words` makes the verdict of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.decide.evidence import SeamEvidence
from cpcapp.splicing.decide.options import VerdictOptions
from cpcapp.splicing.decide.sides import SideContrast
from cpcapp.splicing.measure.filters import BoundaryMap
from cpcapp.splicing.measure.mosaic import MosaicLevels
from cpcapp.splicing.measure.network import LearnedTraces
from cpcapp.splicing.photo.jpeg import grid_strength
from cpcapp.splicing.photo.pixels import BoolArray, FloatArray, FloatMap

# Logarithms of smaller values are not taken.
_TINY = 1e-6
# A pasted part is seen in several blocks; a single one may be an accident.
_PASTED_BLOCKS = 3


class PhotoFeatures(NamedTuple):
    """What is measured in a photo to judge it.

    Attributes
    ----------
    peak : float
        The quantile of the strengths of squares that one in a thousand exceeds: those of
        `seam_strengths` above the photo's own level if there is a network, else of
        `patch_strengths`.
    mean : float
        Logarithm of the mean value of the boundary map, before it was divided by its maximum.
        Photos with much fine detail have more of both: what counts is the peak for such a mean.
    level : float
        Logarithm of how clearly the photo shows a camera's mosaic.
    opposite_phase : float
        How strongly a part of the photo shows another mosaic. For both see
        `cpcapp.splicing.measure.mosaic.MosaicLevels`.
    compression : float
        How clearly the photo shows JPEG's grid; see `cpcapp.splicing.photo.jpeg`. It is no
        evidence by itself, but photos are compared with similar ones.
    learned : tuple of float
        If there is a network: the highest evidence for a pasted part, above its median, and the
        peak of the filters.
    """

    peak: float
    mean: float
    level: float
    opposite_phase: float
    compression: float
    learned: tuple[float, ...] = ()

    @property
    def score_features(self) -> FloatArray:
        """What the score is a weighted sum of: all but compression."""
        return np.array([*self[:4], *self.learned])

    @property
    def similarity_features(self) -> FloatArray:
        """What photos are compared by: mean, level and compression."""
        return np.array([self.mean, self.level, self.compression])

    @classmethod
    def measure(
        cls,
        image: FloatMap,
        boundary: BoundaryMap,
        levels: MosaicLevels,
        options: VerdictOptions,
        traces: LearnedTraces | None = None,
        grid_offset: tuple[int, int] = (0, 0),
    ) -> tuple[PhotoFeatures, FloatMap]:
        """Measure a photo."""
        scale = max(boundary.scale, _TINY)
        strengths = patch_strengths(boundary, options.patch_size)
        learned: tuple[float, ...] = ()
        if traces is not None:
            pasted = cv2.blur(traces.pasted, (_PASTED_BLOCKS, _PASTED_BLOCKS))
            filters_peak = float(np.quantile(strengths, options.peak_quantile))
            above = np.quantile(pasted, options.peak_quantile) - np.median(pasted)
            learned = float(above), filters_peak
            strengths = seam_strengths(traces.seam, options.patch_size)
            level = np.quantile(strengths, options.background_quantile(strengths.size))
            strengths -= level.astype(np.float32)
        features = cls(
            float(np.quantile(strengths, options.peak_quantile)),
            math.log(scale * max(float(boundary.map.mean()), _TINY)),
            math.log(levels.level + options.min_mosaic_level),
            levels.opposite_phase,
            grid_strength(image, grid_offset),
            learned,
        )
        return features, strengths


def seam_strengths(seam: FloatMap, size: int) -> FloatMap:
    """Return for each square the mean of the network's evidence for a seam.

    ``size``: side of a square in pixels. Those at the right and at the bottom may be smaller.

    >>> import numpy as np
    >>> seam_strengths(np.arange(4, dtype=np.float32).reshape(2, 2), 8)
    array([[1.5]], dtype=float32)
    """
    tops, lefts = (np.arange(0, side, size) for side in seam.shape)
    sums = np.add.reduceat(np.add.reduceat(seam, lefts, axis=1), tops, axis=0)
    rows, columns = (
        np.diff(np.append(starts, side))
        for starts, side in zip((tops, lefts), seam.shape, strict=True)
    )
    return np.asarray(sums / np.outer(rows, columns), np.float32)


def patch_strengths(boundary: BoundaryMap, size: int) -> FloatMap:
    """Return for each square the logarithm of the highest value of the undivided boundary map.

    ``size``: side of a square in pixels. Those at the right and at the bottom may be smaller.

    >>> import numpy as np
    >>> found = BoundaryMap(np.eye(12, dtype=np.float32), 2.0)
    >>> patch_strengths(found, 8).round(2)
    array([[  0.69, -13.82],
           [-13.82,   0.69]], dtype=float32)
    """
    height, width = boundary.map.shape
    across = np.maximum.reduceat(boundary.map, np.arange(0, width, size), axis=1)
    patches = np.maximum.reduceat(across, np.arange(0, height, size), axis=0)
    return np.asarray(np.log(np.maximum(patches * np.float32(boundary.scale), _TINY)))


#: Share of false hot spots among those shown, on average at most.
FALSE_DISCOVERY_RATE = 0.05
# Down to where some tens of squares are left.
_MIN_SQUARES = 20.0
_N_LEVELS = 40
# No calibration comes near; products of such numbers are finite.
_MAX_NUMBER = 1e9


@dataclass(frozen=True)
class PatchTail:
    """How large the z-scores of squares of authentic photos are.

    Attributes
    ----------
    z_score : ndarray of shape (n,)
        See `cpcapp.splicing.decide.verdict.Calibration`; rising.
    log_survival : ndarray of shape (n,)
        Logarithm of the share of squares with a larger one, falling. Beyond the last value it is
        extrapolated in a line: rare values are about exponential.
    """

    z_score: FloatArray
    log_survival: FloatArray

    def __post_init__(self) -> None:
        if (
            self.z_score.shape != self.log_survival.shape
            or self.z_score.ndim != 1
            or len(self.z_score) < 2
            or not np.isfinite([self.z_score, self.log_survival]).all()
            or (np.diff(self.z_score) <= 0.0).any()
            or (np.diff(self.log_survival) >= 0.0).any()
        ):
            raise ValueError("z_score must rise and log_survival fall, all of them finite")
        if max(np.abs(self.z_score).max(), np.abs(self.log_survival).max()) > _MAX_NUMBER:
            raise ValueError(f"z_score and log_survival must lie within ±{_MAX_NUMBER:g}")

    @classmethod
    def learn(cls, photos: Sequence[NDArray[Any]]) -> PatchTail:
        """Learn from the squares of authentic photos; all photos weigh the same."""
        values = np.concatenate(photos)
        weights = np.concatenate([np.full(len(photo), 1.0 / len(photo)) for photo in photos])
        order = np.argsort(values)
        values, weights = values[order], weights[order] / len(photos)
        survival = np.cumsum(weights[::-1])[::-1]
        levels = np.exp(np.linspace(np.log(0.9), np.log(_MIN_SQUARES / len(values)), _N_LEVELS))
        at = np.searchsorted(-survival, -levels)
        chosen = values[np.minimum(at, len(values) - 1)]
        rising = np.concatenate([[True], np.diff(chosen) > 1e-9])
        return cls(chosen[rising], np.log(levels[rising]))

    def p_value(self, z_score: NDArray[Any]) -> FloatArray:
        """Return the share of squares of authentic photos with as large a z-score."""
        inside = np.interp(z_score, self.z_score, self.log_survival, left=0.0)
        slope = (self.log_survival[-1] - self.log_survival[-2]) / (
            self.z_score[-1] - self.z_score[-2]
        )
        beyond = self.log_survival[-1] + slope * (z_score - self.z_score[-1])
        return np.asarray(np.exp(np.where(z_score > self.z_score[-1], beyond, inside)))

    def to_dict(self) -> dict[str, Any]:
        """Return it in types that JSON knows."""
        return {
            "z_score": self.z_score.round(5).tolist(),
            "log_survival": self.log_survival.round(5).tolist(),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> PatchTail:
        """Return what `to_dict` wrote."""
        return cls(*(np.asarray(content[n], np.float64) for n in ("z_score", "log_survival")))


def benjamini_hochberg(p_values: NDArray[Any], rate: float = FALSE_DISCOVERY_RATE) -> BoolArray:
    """Choose p-values so that on average at most a share ``rate`` of them is false.

    Of the ``n`` sorted p-values all up to the last one with ``p_k <= rate · k/n``.

    >>> import numpy as np
    >>> benjamini_hochberg(np.array([0.001, 0.2, 0.024, 0.9]), rate=0.05)
    array([ True, False,  True, False])
    """
    if not 0.0 < rate < 1.0:
        raise ValueError(f"rate={rate} must be between 0 and 1")
    ranked = np.sort(p_values, axis=None)
    good = ranked <= rate * np.arange(1, ranked.size + 1) / max(ranked.size, 1)
    if not good.any():
        return np.zeros(p_values.shape, dtype=bool)
    return np.asarray(p_values <= ranked[np.flatnonzero(good)[-1]])


def upsample_patches(patches: NDArray[Any], shape: tuple[int, ...], size: int) -> NDArray[Any]:
    """Return a map of the photo's size from one value for each square.

    >>> import numpy as np
    >>> upsample_patches(np.array([[1, 2]], dtype=np.uint8), (2, 3), 2)
    array([[1, 1, 2],
           [1, 1, 2]], dtype=uint8)
    """
    whole = patches.shape[1] * size, patches.shape[0] * size
    wide = cv2.resize(patches, whole, interpolation=cv2.INTER_NEAREST)
    return np.asarray(wide[: shape[0], : shape[1]])


# By how much photos may differ more if few are similar. Set by hand.
_WIDENINGS = (1.0, 1.5, 2.0, 3.0)
# No calibration comes near; products of such numbers are finite.
_MAX_NUMBER = 1e9
_MAX_PHOTOS = 1_000_000


class SimilarPhotos(NamedTuple):
    """The scores of authentic photos similar to one.

    Attributes
    ----------
    mean, deviation : float
        Weighted, of their scores.
    effective_count : float
        How many equally weighted photos the weights are worth: ``(Σw)² / Σw²``.
    """

    mean: float
    deviation: float
    effective_count: float

    def z_scores(self, scores: NDArray[Any]) -> FloatArray:
        """Return how far scores lie above the mean, in standard deviations."""
        # The mean of n photos is itself uncertain by a variance of 1/n.
        deviation = self.deviation * (1.0 + 1.0 / self.effective_count) ** 0.5
        return np.asarray((scores - self.mean) / max(deviation, 1e-9))


class PhotoJudgement(NamedTuple):
    """Score and p-values of a photo.

    Attributes
    ----------
    score : float or None
        How much speaks for a splice, on one scale for all photos. None if the model has not
        learned to judge.
    p_value : float or None
        How often a genuine photo scores this high. None if too few of the photos that the model
        was calibrated by are similar.
    patch_p_values : ndarray of shape (rows, columns) or None
        The same for each square of the photo; all 1 where too few photos are similar.
    """

    score: float | None
    p_value: float | None
    patch_p_values: FloatArray | None


@dataclass(frozen=True)
class Calibration:
    """What a localizer learned about the meaning of its findings.

    The *z-score* of a photo is its score less the mean score of similar authentic photos, in
    standard deviations of theirs.

    Attributes
    ----------
    evidence : SeamEvidence
    weights : ndarray of shape (4,), or (6,) with a network, or None
        Of `PhotoFeatures.score_features` in the score. None if there were too few authentic photos
        to learn them.
    authentic : ndarray of shape (n, 4) or None
        `PhotoFeatures.similarity_features` and score of authentic photos.
    patch_tail : PatchTail or None
    options : VerdictOptions
    n_spliced, n_authentic : int
        Photos it was learned from.
    sides : SideContrast or None
        Which directions of learned traces tell two sides apart. None without a network.
    square_offset : float or None
        With a network: the mean over genuine photos of what the score has besides the peak. Squares
        are judged with it, and not with the other evidence of their photo, which says nothing of
        where it is. None without a network.
    """

    evidence: SeamEvidence
    weights: FloatArray | None = field(default=None, repr=False)
    authentic: FloatArray | None = field(default=None, repr=False)
    patch_tail: PatchTail | None = field(default=None, repr=False)
    options: VerdictOptions = field(default_factory=VerdictOptions, repr=False)
    n_spliced: int = 0
    n_authentic: int = 0
    sides: SideContrast | None = field(default=None, repr=False)
    square_offset: float | None = None

    def __post_init__(self) -> None:
        n_weights = 4 if len(self.evidence.tables) == 1 else 6
        for name, value, shape in (
            ("weights", self.weights, (n_weights,)),
            ("authentic", self.authentic, (-1, 4)),
        ):
            if value is None:
                continue
            known = tuple(n if m == -1 else m for n, m in zip(value.shape, shape, strict=False))
            if value.shape != known or value.ndim != len(shape) or not np.isfinite(value).all():
                raise ValueError(f"{name} of shape {value.shape} must be finite, {shape}")
            if len(value) > _MAX_PHOTOS or not (np.abs(value) <= _MAX_NUMBER).all():
                raise ValueError(
                    f"{name} must lie within ±{_MAX_NUMBER:g}, of at most {_MAX_PHOTOS} photos"
                )
        for name, count in (("n_spliced", self.n_spliced), ("n_authentic", self.n_authentic)):
            if not 0 <= count <= _MAX_NUMBER:
                raise ValueError(f"{name}={count} must be from 0 to {_MAX_NUMBER:g}")

    @property
    def can_judge(self) -> bool:
        """Whether there were enough authentic photos to learn scores and p-values."""
        return self.weights is not None and self.authentic is not None

    def judge(self, features: PhotoFeatures, strengths: FloatMap) -> PhotoJudgement:
        """Return the score and the p-values of a photo."""
        score = self.score(features)
        similar = self.similar_photos(features)
        if similar is None:
            unknown = self.can_judge and self.patch_tail is not None
            return PhotoJudgement(score, None, np.ones(strengths.shape) if unknown else None)
        patches = None
        if self.patch_tail is not None:
            patches = self.patch_tail.p_value(self.square_z_scores(features, strengths, similar))
        return PhotoJudgement(score, self.p_value(features, similar), patches)

    def score(self, features: PhotoFeatures) -> float | None:
        """Return how much speaks for a splice, on one scale for all photos."""
        return None if self.weights is None else float(self.weights @ features.score_features)

    def p_value(self, features: PhotoFeatures, similar: SimilarPhotos) -> float:
        """Return how often a genuine photo scores this high.

        With the mean and deviation of similar photos, both uncertain by their effective count, the
        score of another one follows Student's distribution; see `student_tail` for its degrees of
        freedom. Photos of other collections vary more, by `VerdictOptions.collection_spread`. What
        was learned from n photos says nothing of rarer ones than one in n + 1.
        """
        assert self.authentic is not None
        score = self.score(features)
        assert score is not None
        z_score = float(similar.z_scores(np.array(score))) / self.options.collection_spread
        return max(student_tail(z_score), 1.0 / (len(self.authentic) + 1))

    def square_z_scores(
        self, features: PhotoFeatures, strengths: NDArray[Any], similar: SimilarPhotos
    ) -> FloatArray:
        """Return the z-scores of squares, each judged as if it were the photo's peak."""
        assert self.weights is not None
        rest = self.square_offset
        if rest is None:
            rest = float(self.weights[1:] @ features.score_features[1:])
        return similar.z_scores(self.weights[0] * strengths + rest)

    def similar_photos(self, features: PhotoFeatures) -> SimilarPhotos | None:
        """Compare a photo with the authentic ones, by a Gaussian weight of their distance.

        Where few are similar, less similar ones count too, up to a limit.

        None if there are not enough, or the model has not learned to judge.
        """
        if self.weights is None or self.authentic is None:
            return None
        known, scores = self.authentic[:, :-1], self.authentic[:, -1]
        apart = (known - features.similarity_features) / np.array(self.options.widths)
        distance = np.square(apart).sum(axis=1)
        for wider in _WIDENINGS:
            weight = np.exp(-0.5 * distance / wider**2)
            if weight.sum() >= self.options.min_similar:
                break
        else:
            return None
        count = weight.sum() ** 2 / (weight**2).sum()
        mean = weight @ scores / weight.sum()
        variance = weight @ (scores - mean) ** 2 / weight.sum() * count / (count - 1.0)
        return SimilarPhotos(float(mean), float(variance) ** 0.5, float(count))

    def to_dict(self) -> dict[str, Any]:
        """Return it in types that JSON knows; the options are kept in the preset."""
        known, tail = self.authentic, self.patch_tail
        return {
            "evidence": self.evidence.to_dict(),
            "weights": None if self.weights is None else self.weights.round(5).tolist(),
            "authentic": None if known is None else known.round(4).tolist(),
            "patch_tail": None if tail is None else tail.to_dict(),
            "photos": {"spliced": self.n_spliced, "authentic": self.n_authentic},
            "sides": None if self.sides is None else self.sides.to_dict(),
            "square_offset": None if self.square_offset is None else round(self.square_offset, 5),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any], options: VerdictOptions) -> Calibration:
        """Return what `to_dict` wrote."""
        weights, known, tail = (content[n] for n in ("weights", "authentic", "patch_tail"))
        sides, offset = content["sides"], content["square_offset"]
        return cls(
            SeamEvidence.from_dict(content["evidence"]),
            None if weights is None else np.asarray(weights, dtype=np.float64),
            None if known is None else np.asarray(known, dtype=np.float64),
            None if tail is None else PatchTail.from_dict(tail),
            options,
            int(content["photos"]["spliced"]),
            int(content["photos"]["authentic"]),
            None if sides is None else SideContrast.from_dict(sides),
            None if offset is None else float(offset),
        )


def student_tail(value: float) -> float:
    """Return how often Student's variable with three degrees of freedom exceeds a value.

    With so few it asks for 2.35 standard deviations at 0.05, where a normal variable has 1.65. This
    leaves room for collections that differ as much as the photos of one, for 1.65 √2 = 2.33. The
    two that the shipped model was calibrated by differ by 0.2, but two are few, and with six
    degrees more of Columbia's authentic photos raised an alarm than should. In closed form, with
    ``θ = atan(value / √3)``: ``1/2 - (θ + sin θ cos θ) / π``.

    >>> round(student_tail(2.353), 3), student_tail(0.0)
    (0.05, 0.5)
    """
    angle = math.atan(value / math.sqrt(3.0))
    return 0.5 - (angle + math.sin(angle) * math.cos(angle)) / math.pi
