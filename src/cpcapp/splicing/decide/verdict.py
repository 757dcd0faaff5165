"""Score and p-value of a photo; `words` makes the verdict of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cv2
import numpy as np

from cpcapp.splicing.decide.cut import Cut
from cpcapp.splicing.decide.evidence import LikelihoodTable
from cpcapp.splicing.decide.options import VerdictOptions
from cpcapp.splicing.decide.sides import TraceContrast
from cpcapp.splicing.measure.filters import BoundaryMap
from cpcapp.splicing.measure.measure import Measured
from cpcapp.splicing.measure.mosaic import MosaicOptions, mosaic_levels
from cpcapp.splicing.photo.pixels import FloatArray, FloatMap

# Logarithms of smaller values are not taken.
_TINY = 1e-6
# A pasted part is seen in several blocks; a single one may be an accident.
_PASTED_BLOCKS = 3
# No calibration comes near; products of such numbers are finite.
_MAX_NUMBER = 1e9
_MAX_PHOTOS = 1_000_000

# Share of the collections that count for p: the largest with which the default model finds signs in
# at most .08 of the photos of a collection that is left out, and at least weak ones in .20.
_COUNTED = 1 / 3

_OF_CUT = ("seam", "sides")
# The first of all, then those of the cut.
_OF_FILTERS = ("peak", "opposite_phase", "fineness", "mosaic")
_OF_NETWORK = ("peak", "opposite_phase", "pasted")
#: Say what kind of photo it is. Of all other features, more speaks for a splice.
WITHOUT_SIGN = ("fineness", "mosaic")


def feature_names(network: bool) -> tuple[str, ...]:
    """Return what the score of a model is a weighted sum of.

    - ``peak``: the strength that one square in a thousand exceeds: of the network's evidence,
      above the photo's own level, or of the filters' map;
    - ``opposite_phase``: how strongly a part of the photo shows another mosaic;
    - ``pasted``: the highest evidence for a pasted part, above its median;
    - ``fineness``: logarithm of the mean of the filters' map: fine detail raises the peak as well;
    - ``mosaic``: logarithm of how clearly the photo shows a camera's mosaic;
    - ``seam``, ``sides``: the evidence of the best cut; see `cut_features`.
    """
    return (*(_OF_NETWORK if network else _OF_FILTERS), *_OF_CUT)


def photo_features(
    measured: Measured, options: VerdictOptions, mosaic: MosaicOptions
) -> list[float]:
    """Return the features of a photo but those of its cut, in the order of `feature_names`."""
    levels = mosaic_levels(measured.mosaic, mosaic)
    if measured.learned is not None:
        pasted = cv2.blur(measured.learned.pasted, (_PASTED_BLOCKS, _PASTED_BLOCKS))
        squares = seam_strengths(measured.learned.seam, options.patch_size)
        squares -= np.quantile(squares, options.background_quantile(squares.size))
        further = [float(np.quantile(pasted, options.peak_quantile) - np.median(pasted))]
    else:
        boundary = measured.boundary
        squares = patch_strengths(boundary, options.patch_size)
        scale = max(boundary.scale, _TINY)
        further = [
            math.log(scale * max(float(boundary.map.mean()), _TINY)),
            math.log(levels.level + options.min_mosaic_level),
        ]
    return [float(np.quantile(squares, options.peak_quantile)), levels.opposite_phase, *further]


def cut_features(cut: Cut, n_pixels: float) -> list[float]:
    """Return the evidence of a cut on a scale that photos of all sizes share.

    A seam is about as long as the root of the photo's pixels, and the traces weigh as much.
    """
    return [math.log1p(max(found, 0.0) / n_pixels**0.5) for found in (cut.seam, cut.sides)]


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


class Rank(NamedTuple):
    """Where a photo stands among genuine ones.

    Attributes
    ----------
    p_value : float
    n_as_high, n_photos : int
        How many of so many genuine photos scored as high.
    """

    p_value: float
    n_as_high: int
    n_photos: int


@dataclass(frozen=True)
class Calibration:
    """What a localizer learned about the meaning of its findings.

    Attributes
    ----------
    table : LikelihoodTable
        Of what is measured along borders.
    weights : ndarray of shape (n_features,), or None
        Of `feature_names` in the score. None if there were too few photos to learn them.
    genuine : dict of str to ndarray
        The scores of genuine photos, by collection.
    options : VerdictOptions
    n_spliced, n_authentic : int
        Photos it was learned from.
    traces : TraceContrast or None
        What tells two sides apart in learned traces. None without a network.
    """

    table: LikelihoodTable
    weights: FloatArray | None = field(default=None, repr=False)
    genuine: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)
    options: VerdictOptions = field(default_factory=VerdictOptions, repr=False)
    n_spliced: int = 0
    n_authentic: int = 0
    traces: TraceContrast | None = None

    def __post_init__(self) -> None:
        if self.weights is not None:
            allowed = [len(feature_names(network)) for network in (True, False)]
            if self.weights.ndim != 1 or len(self.weights) not in allowed:
                raise ValueError(f"weights of shape {self.weights.shape} must be one a feature")
        for name, value in (("weights", self.weights), *self.genuine.items()):
            if value is None:
                continue
            if value.ndim != 1 or not 0 < len(value) <= _MAX_PHOTOS:
                raise ValueError(f"{name} of shape {value.shape} must be a list of numbers")
            if not (np.abs(value) <= _MAX_NUMBER).all():
                raise ValueError(f"{name} must be finite, within ±{_MAX_NUMBER:g}")
        for name, count in (("n_spliced", self.n_spliced), ("n_authentic", self.n_authentic)):
            if not 0 <= count <= _MAX_NUMBER:
                raise ValueError(f"{name}={count} must be from 0 to {_MAX_NUMBER:g}")

    @property
    def can_judge(self) -> bool:
        """Whether there were enough photos to learn a score, and genuine ones to compare with."""
        return self.weights is not None and bool(self.genuine)

    def rank(self, score: float) -> Rank:
        """Return where a score stands among those of genuine photos.

        Of n photos, k scored as high: p is (k + 1) / (n + 1), as the photo is one more of them.
        Collections weigh the same, however many photos they have, and those count in which most
        scored as high: k is n times the mean of the share of such photos over that third of the
        collections. So p holds for a collection that is not among them, see
        benchmarks/results/comparison_photos.json.

        >>> import numpy as np
        >>> table = LikelihoodTable(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
        >>> known = {"phones": np.arange(9.0), "web": np.zeros(90)}
        >>> Calibration(table, np.ones(5), known).rank(7.0)
        Rank(p_value=0.23, n_as_high=2, n_photos=99)
        """
        as_high = [scores >= score for scores in self.genuine.values()]
        n = sum(map(len, as_high))
        shares = np.sort([found.mean() for found in as_high])[::-1]
        k = n * float(shares[: max(1, round(len(shares) * _COUNTED))].mean())
        return Rank((k + 1.0) / (n + 1.0), int(sum(found.sum() for found in as_high)), n)

    def to_dict(self) -> dict[str, Any]:
        """Return it in types that JSON knows; the options are kept in the preset."""
        return {
            "table": self.table.to_dict(),
            "weights": None if self.weights is None else self.weights.round(5).tolist(),
            "genuine": {name: scores.round(4).tolist() for name, scores in self.genuine.items()},
            "photos": {"spliced": self.n_spliced, "authentic": self.n_authentic},
            "traces": self.traces and self.traces.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any], options: VerdictOptions) -> Calibration:
        """Return what `to_dict` wrote."""
        weights, traces = content["weights"], content["traces"]
        genuine = dict(content["genuine"]).items()
        return cls(
            LikelihoodTable.from_dict(content["table"]),
            None if weights is None else np.asarray(weights, np.float64),
            {str(name): np.asarray(scores, np.float64) for name, scores in genuine},
            options,
            int(content["photos"]["spliced"]),
            int(content["photos"]["authentic"]),
            None if traces is None else TraceContrast.from_dict(traces),
        )
