"""From the seam to the region: which part of a photo came from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing._arrays import FloatArray
from cpcapp.splicing.mosaic_trace import LEAST_TOLD, MosaicTrace
from cpcapp.splicing.partition import (
    Borders,
    Cut,
    SideStatistics,
    best_cut,
    border_pixels,
    find_borders,
)
from cpcapp.splicing.patches import FloatMap
from cpcapp.splicing.superpixels import Labels, superpixels

# Larger photos are looked at smaller: regions are not about single pixels.
_MOST_PIXELS = 1_200_000
# Every so many pixels the statistics of the mosaic are read; their windows are far wider.
_STEP = 4
_N_STATISTICS = 6
_FARTHEST = 6.0
# Evidence against a superpixel's side, in units in which 1 is a pixel of border, at which it
# counts as sure.
_SURE = 40.0
_FAINTEST = 1e-6
# Seams of made splices are 1 to 2.3 times as long as the square root of the photo's pixels. Some
# other borders are as strong: this many times that root was best on made splices, of 1, 2, 4 and 8.
_AS_STRONG = 4.0
_LEAST_SCALE = 0.01
# Pixels to either side of the region's border in which the boundary map is brought out, what the
# border adds by itself, and what is left of the map far from it.
_NEAR = 3.0
_BORDER_ALONE = 0.05
_SEAM_ALONE = 0.15
#: Photos with a shorter side are too small to be divided.
LEAST_SIDE = 64


@dataclass(frozen=True)
class SeamEvidence:
    """How much likelier a strength is at a seam than at another border, learned in training.

    Attributes
    ----------
    strength : ndarray of shape (n,)
        Logarithms of the strength as `relative_strength` gives it, rising.
    ratio : ndarray of shape (n,)
        Logarithms of the likelihood ratio there, not falling; linear between, constant beyond.
    prior : float
        Taken away from each: most borders are no seam.
    trust, trim : float
        See `cpcapp.splicing.partition.best_cut`.
    """

    strength: FloatArray
    ratio: FloatArray
    prior: float = 1.0
    trust: float = 0.02
    trim: float = 1.25

    def __post_init__(self) -> None:
        if self.strength.ndim != 1 or self.strength.shape != self.ratio.shape:
            raise ValueError(
                f"strength of shape {self.strength.shape} and ratio of shape {self.ratio.shape} "
                "must be of one length"
            )
        finite = np.isfinite(self.strength).all() and np.isfinite(self.ratio).all()
        if len(self.strength) < 2 or not finite or (np.diff(self.strength) <= 0).any():
            raise ValueError("strength must rise over at least two values, all finite")
        if not np.isfinite([self.prior, self.trust, self.trim]).all():
            raise ValueError(
                f"prior={self.prior}, trust={self.trust} and trim={self.trim} must be finite"
            )
        if self.trust < 0.0 or self.trim < 0.0:
            raise ValueError(f"trust={self.trust} and trim={self.trim} must be at least 0")

    def __call__(self, strength: NDArray[Any]) -> FloatArray:
        """Return the evidence for a seam at places of a strength."""
        seen = np.log(np.maximum(strength, _FAINTEST))
        return np.asarray(np.interp(seen, self.strength, self.ratio) - self.prior)

    @classmethod
    def learn(cls, seam: FloatArray, other: FloatArray, **settings: float) -> SeamEvidence:
        """Learn from strengths at seams and at other borders.

        Parameters
        ----------
        seam, other : ndarray of shape (n,)

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> seam, other = (np.exp(rng.normal(mean, 1.0, 20_000)) for mean in (2.0, 0.0))
        >>> found = SeamEvidence.learn(seam, other, prior=0.0)
        >>> float(found(np.exp(2.0)).round(1))  # (2² - 0²) / 2 for two normal distributions
        2.0
        """
        bins = 24
        at_seam, elsewhere = (np.log(np.maximum(v, _FAINTEST)) for v in (seam, other))
        inner = np.unique(np.quantile(at_seam, np.linspace(0.0, 1.0, bins + 1)[1:-1]))
        edges = np.concatenate([[-np.inf], inner, [np.inf]])
        # One more everywhere: what was never seen is not impossible.
        shares = [np.histogram(v, edges)[0] + 1.0 for v in (at_seam, elsewhere)]
        ratio = np.log(shares[0] / shares[0].sum()) - np.log(shares[1] / shares[1].sum())
        middle = np.concatenate([[inner[0] - 0.5], (inner[1:] + inner[:-1]) / 2, [inner[-1] + 0.5]])
        return cls(middle, np.maximum.accumulate(ratio), **settings)

    def to_dict(self) -> dict[str, Any]:
        """Return it in types that JSON knows."""
        return {
            "strength": self.strength.round(4).tolist(),
            "ratio": self.ratio.round(4).tolist(),
            "prior": self.prior,
            "trust": self.trust,
            "trim": self.trim,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> SeamEvidence:
        """Return what `to_dict` wrote."""
        strength, ratio = (np.asarray(content[n], np.float64) for n in ("strength", "ratio"))
        return cls(strength, ratio, *(float(content[n]) for n in ("prior", "trust", "trim")))


class Seam(NamedTuple):
    """A boundary map and what it was divided by.

    Attributes
    ----------
    map : ndarray of shape (height, width), float32 in [0, 1]
    scale : float
        In units that are the same for all photos.
    """

    map: FloatMap
    scale: float


@dataclass(frozen=True)
class Candidates:
    """All that is seen of a photo when regions are sought in it.

    Attributes
    ----------
    count : int
        Superpixels.
    one, two : ndarray of shape (n,), int32
        The superpixels on either side of each pixel of a border.
    strength : ndarray of shape (n,), float32
        Of the boundary map there; see `relative_strength`.
    statistics : SideStatistics
    """

    count: int
    one: NDArray[np.int32] = field(repr=False)
    two: NDArray[np.int32] = field(repr=False)
    strength: NDArray[np.float32] = field(repr=False)
    statistics: SideStatistics = field(repr=False)

    def cut(self, evidence: SeamEvidence) -> tuple[Cut, Borders]:
        """Return the best cut and the borders it was trimmed by."""
        borders = find_borders(self.count, self.one, self.two, evidence(self.strength))
        cut = best_cut(borders, self.statistics, evidence.trust, evidence.trim)
        return cut, borders.trimmed(evidence.trim)


def divide(
    image: FloatMap, seam: Seam, trace: MosaicTrace | None
) -> tuple[Labels, NDArray[np.intp], Candidates]:
    """Divide a photo into superpixels and look at their borders.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]
    seam : Seam
    trace : MosaicTrace or None

    Returns
    -------
    labels : ndarray of shape (height, width), int32
        Of a photo of more than 1.2 megapixels, made smaller.
    pixels : ndarray of shape (n,)
        Where among the labels the pixels of borders are.
    candidates : Candidates
    """
    height, width = image.shape[:2]
    strength = seam.map
    factor = max(1.0, (height * width / _MOST_PIXELS) ** 0.5)
    if factor > 1.0:
        size = max(1, round(width / factor)), max(1, round(height / factor))
        # A seam must not get fainter by being narrow.
        reach = np.ones((round(factor), round(factor)), dtype=np.uint8)
        strength = cv2.resize(cv2.dilate(strength, reach), size, interpolation=cv2.INTER_AREA)
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    labels, count = superpixels(image)
    here, there = border_pixels(labels)
    flat, numbers = strength.ravel(), labels.ravel()
    return (
        labels,
        here,
        Candidates(
            count,
            numbers[here],
            numbers[there],
            relative_strength(np.maximum(flat[here], flat[there]), labels.size),
            side_statistics(trace, labels, count),
        ),
    )


def relative_strength(strength: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Return strengths along borders in units of a strength that a seam should have.

    A map's highest value may stand alone, or be one of many in a photo whose traces compression
    has washed out. What counts is how many pixels of borders are stronger, beside the length of a
    seam: the unit is the strength that four times the square root of the photo's pixels exceed.

    Parameters
    ----------
    strength : ndarray of shape (n,), float32 in [0, 1]
    size : int
        Pixels of the photo.

    Examples
    --------
    >>> import numpy as np
    >>> relative_strength(np.repeat([0.8, 0.4, 0.2], 40).astype(np.float32), 100)[::40]
    array([2. , 1. , 0.5], dtype=float32)
    """
    stronger = min(round(_AS_STRONG * size**0.5), len(strength) - 1)
    if stronger < 0:
        return strength
    unit = np.partition(strength, len(strength) - 1 - stronger)[len(strength) - 1 - stronger]
    return np.asarray(strength / max(unit, np.float32(_LEAST_SCALE)), dtype=np.float32)


@dataclass(frozen=True)
class Region:
    """The part of a photo that came from elsewhere, if any did.

    Attributes
    ----------
    map : ndarray of shape (height, width), float32 in [0, 1]
        Above a half inside. The surer, the farther from it.
    boundary : ndarray of shape (height, width), float32 in [0, 1]
        The boundary map, drawn towards the border of the region.
    cut : Cut
    """

    map: FloatMap = field(repr=False)
    boundary: FloatMap = field(repr=False)
    cut: Cut = field(repr=False)


def find_region(
    image: FloatMap, seam: Seam, trace: MosaicTrace | None, evidence: SeamEvidence
) -> Region:
    """Find the pasted part of a photo.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]
    seam : Seam
    trace : MosaicTrace or None
        None for a photo without one.
    evidence : SeamEvidence

    Returns
    -------
    Region

    Examples
    --------
    >>> import numpy as np
    >>> photo = np.full((96, 128, 3), 0.2, dtype=np.float32)
    >>> photo[32:64, 48:96] = 0.8
    >>> seam = np.zeros((96, 128), dtype=np.float32)
    >>> seam[30:66, 46:98], seam[34:62, 50:94] = 1.0, 0.0
    >>> rule = SeamEvidence(np.log([0.1, 1.0]), np.array([-3.0, 3.0]))
    >>> found = find_region(photo, Seam(seam, 1.0), None, rule)
    >>> bool(found.map[40:60, 60:90].min() > 0.5), bool(found.map[:20].max() < 0.5)
    (True, True)
    """
    shape = image.shape[:2]
    if min(shape) < LEAST_SIDE:
        nothing = Cut(np.zeros(1, dtype=bool), 0.0, 0.0, 0.0)
        return Region(np.zeros(shape, np.float32), seam.map, nothing)
    labels, _, candidates = divide(image, seam, trace)
    cut, borders = candidates.cut(evidence)
    if not cut.side.any():
        return Region(np.zeros(shape, np.float32), seam.map, cut)
    sure = _sureness(borders, candidates.statistics, cut.side, evidence.trust)
    pasted = cut.side == _looks_pasted(cut.side, labels, candidates.count)
    values = np.where(pasted, 0.5 + 0.5 * sure, 0.5 - 0.5 * sure).astype(np.float32)
    found = values[labels]
    if found.shape != shape:
        found = cv2.resize(found, shape[::-1], interpolation=cv2.INTER_LINEAR)
    return Region(found, _drawn_to(cut.side[labels], seam.map), cut)


def _drawn_to(side: NDArray[np.bool_], seam: FloatMap) -> FloatMap:
    """Return the boundary map with what lies near the border of the region brought out.

    The border adds a little of its own, for the parts of a seam that no filter sees.
    """
    border = np.zeros(side.shape, dtype=np.uint8)
    border[:, 1:] |= side[:, 1:] != side[:, :-1]
    border[1:] |= side[1:] != side[:-1]
    distance = cv2.distanceTransform(1 - border, cv2.DIST_L2, 5)
    near = np.exp(distance**2 * np.float32(-0.5 / _NEAR**2))
    if near.shape != seam.shape:
        near = cv2.resize(near, seam.shape[::-1], interpolation=cv2.INTER_LINEAR)
    drawn = (seam + np.float32(_BORDER_ALONE)) * near + np.float32(_SEAM_ALONE) * seam
    return np.asarray(drawn / drawn.max(), dtype=np.float32)


def side_statistics(trace: MosaicTrace | None, labels: Labels, count: int) -> SideStatistics:
    """Sum the statistics of the mosaic over superpixels.

    They are scaled by their median deviation, clipped, and turned to their main directions, each
    with variance 1 over the photo.
    """
    nothing = SideStatistics(np.zeros((count, 1)), np.zeros(count))
    if trace is None or trace.told.size == 0:
        return nothing
    height, width = labels.shape
    rows, cols = np.arange(0, height, _STEP), np.arange(0, width, _STEP)
    places = np.ix_(
        *(
            np.minimum((at * there) // here, there - 1)
            for at, here, there in zip((rows, cols), labels.shape, trace.told.shape, strict=True)
        )
    )
    values = np.stack([plane[places] for plane in trace.statistics], axis=-1).astype(np.float64)
    told = trace.told[places] > LEAST_TOLD
    if told.sum() < 50:
        return nothing
    whitened = _whitened(values[told])
    where = labels[np.ix_(rows, cols)][told]
    pixels = np.asarray(np.bincount(where, minlength=count) * float(_STEP**2), dtype=np.float64)
    total = np.stack([np.bincount(where, column, minlength=count) for column in whitened.T], axis=1)
    return SideStatistics(np.asarray(total * float(_STEP**2), dtype=np.float64), pixels)


def _whitened(values: FloatArray) -> FloatArray:
    middle = np.median(values, axis=0)
    spread = 1.48 * np.median(np.abs(values - middle), axis=0) + 1e-3
    values = np.clip((values - middle) / spread, -_FARTHEST, _FARTHEST)
    values = values - values.mean(axis=0)
    variances, directions = np.linalg.eigh(values.T @ values / len(values))
    kept = np.argsort(-variances)[:_N_STATISTICS]
    kept = kept[variances[kept] > 1e-3 * max(variances[kept[0]], 1e-12)]
    return np.asarray(values @ (directions[:, kept] / np.sqrt(variances[kept])))


def _looks_pasted(side: NDArray[np.bool_], labels: Labels, count: int) -> bool:
    """Tell the pasted part from its host: it is the smaller."""
    area = np.bincount(labels.ravel(), minlength=count)
    return bool(2 * area[side].sum() <= labels.size)


def _sureness(
    borders: Borders, statistics: SideStatistics, side: NDArray[np.bool_], trust: float
) -> FloatArray:
    """Return how sure the side of each superpixel is, from 0 to 1."""
    sign = np.where(side, 1.0, -1.0)
    alike = borders.evidence * sign[borders.one] * sign[borders.two]
    lost = sign * trust * statistics.preference(side) - borders.around(alike)
    return np.asarray(1.0 - np.exp(-np.maximum(lost, 0.0) / _SURE))
