"""What the findings of a localizer mean: scores of authentic photos, and p-values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.decide.evidence import SeamEvidence
from cpcapp.splicing.decide.features import PhotoFeatures
from cpcapp.splicing.decide.hot_spots import PatchTail
from cpcapp.splicing.decide.side_contrast import SideContrast
from cpcapp.splicing.decide.verdict_options import VerdictOptions
from cpcapp.splicing.photo.pixels import FloatArray, FloatMap

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
