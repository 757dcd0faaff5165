"""The named protocols, and scoring one map by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cpcapp.splicing.photo.pixels import BoolArray, FloatArray


def boundary_band(mask: BoolArray, radius: int = 4) -> BoolArray:
    """Return the pixels near the seam: ``dilate(mask, r) − erode(mask, r)``.

    The element is OpenCV's ellipse of diameter 2r + 1. There is a seam only where pasted and
    original pixels of the photo meet: what lies outside the photo counts as neither, so a pasted
    part that is cut by the photo's border has no seam along that border.
    """
    mask = np.asarray(mask)
    if mask.ndim != 2 or mask.dtype != bool:
        raise ValueError(
            f"mask has shape {mask.shape} and dtype {mask.dtype}; it must be (height, width), bool"
        )
    if mask.size == 0:
        return mask.copy()
    side = 2 * radius + 1
    element = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    # The default border of either operation is its neutral value: outside pixels change nothing.
    plane = mask.astype(np.uint8)
    return np.asarray(cv2.dilate(plane, element) > cv2.erode(plane, element))


@dataclass(frozen=True)
class ScoringProtocol:
    """The rules by which a map is scored.

    The truth is a band of ``radius`` pixels to either side of the seam, or the mask for None. A
    pixel is marked from a value of the map on: ``threshold`` is a number, ``"best"`` for each photo
    and for each of F1 and MCC, or ``"given"``, with the method. ``inverts``: whether the inverted
    map is scored too, and the better of both counts.
    """

    name: str
    radius: int | None
    threshold: float | str
    inverts: bool = False


#: The protocols by name.
PROTOCOLS: dict[str, ScoringProtocol] = {
    protocol.name: protocol
    for protocol in (
        ScoringProtocol("edge", 4, "best"),
        ScoringProtocol("edge-r2", 2, "best"),
        ScoringProtocol("edge-fixed", 4, "given"),
        ScoringProtocol("surface", None, "best", inverts=True),
        ScoringProtocol("surface-fixed", None, 0.5),
    )
}


@dataclass(frozen=True)
class ImageScore:
    """How one map scores by one protocol.

    F1 = 2 TP / (2 TP + FN + FP), from 0 to 1; 0 where the truth has no pixel. The Matthews
    correlation coefficient, from −1 to 1, is 0 where it is not defined: if the truth or what is
    marked is everything or nothing. At the best threshold it is never below 0, since marking
    nothing is one of the choices.

    Pixels are marked where the map is at least the threshold, or, if ``inverted``, at most; no
    pixel is if it is None. ``auc``, the area under the ROC curve, needs no threshold; with
    inversion it is the better one, and None where the truth is everything or nothing.
    """

    name: str
    f1: float
    f1_threshold: float | None
    f1_inverted: bool
    mcc: float
    mcc_threshold: float | None
    mcc_inverted: bool
    auc: float | None


@dataclass(frozen=True)
class MeanScore:
    """Mean scores over ``n`` photos, ``auc`` over those that have one; None where there is none."""

    n: int
    f1: float | None
    mcc: float | None
    auc: float | None


@dataclass(frozen=True)
class ProtocolScores:
    """The scores of one method by one protocol, a photo each."""

    protocol: str
    images: tuple[ImageScore, ...]

    @property
    def mean(self) -> MeanScore:
        """The mean over photos, each counting the same."""
        areas = [image.auc for image in self.images if image.auc is not None]
        return MeanScore(
            len(self.images),
            _mean([image.f1 for image in self.images]),
            _mean([image.mcc for image in self.images]),
            _mean(areas),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold: ``{"mean": {...}, "images": [{...}, ...]}``."""
        return {"mean": asdict(self.mean), "images": [asdict(image) for image in self.images]}


def score_map(
    values: ArrayLike,
    mask: BoolArray,
    protocols: Iterable[str] = ("edge",),
    *,
    threshold: float | None = None,
    name: str = "",
) -> dict[str, ImageScore]:
    """Score a map against the pasted part.

    ``protocols``: names from ``PROTOCOLS``. Whether the map shows the seam or the pasted part is
    for the caller to know.

    The best threshold is exact: all distinct values of the map are tried, by sorting it once,
    and marking nothing besides. Of thresholds that score the same the highest is taken.
    """
    chosen = check_protocols(protocols)
    if threshold is None and any(protocol.threshold == "given" for protocol in chosen):
        raise ValueError("threshold=None must be a number for the protocol 'edge-fixed'")
    if threshold is not None and not np.isfinite(threshold):
        raise ValueError(f"threshold={threshold!r} must be a finite number")
    array = _check_map(values, mask)
    ordered: dict[bool, _SortedMap] = {}
    truths: dict[int | None, BoolArray] = {}
    scores = {}
    for protocol in chosen:
        radius = protocol.radius
        if radius not in truths:
            truths[radius] = mask if radius is None else boundary_band(mask, radius)
        limit = threshold if protocol.threshold == "given" else protocol.threshold
        both = []
        for inverted in (False, True) if protocol.inverts else (False,):
            if inverted not in ordered:
                ordered[inverted] = _SortedMap(array, inverted)
            both.append(ordered[inverted].score(name, truths[radius], limit))
        scores[protocol.name] = _pick_better(both)
    return scores


class _SortedMap:
    """A map or its negative, sorted once, to be scored against several truths."""

    def __init__(self, values: NDArray[Any], inverted: bool) -> None:
        self.inverted, self.values = inverted, -values if inverted else values
        ordered = np.sort(self.values, axis=None)
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        # From the highest on, so that of equal scores argmax takes the one that marks least.
        self.distinct = ordered[starts][::-1]
        self.marked = (ordered.size - starts)[::-1]

    def score(self, name: str, truth: BoolArray, threshold: float | str | None) -> ImageScore:
        """Return the scores at a threshold, or at the best ones."""
        positives = np.sort(self.values[truth])
        hits = positives.size - np.searchsorted(positives, self.distinct)
        # In front, what marking nothing gives.
        tp = np.concatenate([[0], hits])
        marked = np.concatenate([[0], self.marked])
        total, wanted = self.values.size, positives.size
        auc = _area(tp, marked, wanted, total)
        if not isinstance(threshold, str):
            # Many values are below the threshold, or none: the last that reaches it.
            reached = np.count_nonzero(self.distinct >= threshold)
            tp, marked = tp[reached : reached + 1], marked[reached : reached + 1]

        def best(scores: FloatArray) -> tuple[float, float | None]:
            place = int(scores.argmax())
            level = self._level(place) if isinstance(threshold, str) else threshold
            return float(scores[place]), level

        f1, f1_level = best(_f1(tp, marked, wanted))
        mcc, mcc_level = best(_mcc(tp, marked, wanted, total))
        return ImageScore(name, f1, f1_level, self.inverted, mcc, mcc_level, self.inverted, auc)

    def _level(self, place: int) -> float | None:
        if place == 0:
            return None
        level = float(self.distinct[place - 1])
        return -level if self.inverted else level


def _f1(tp: NDArray[np.int64], marked: NDArray[np.int64], wanted: int) -> FloatArray:
    """F1 = 2 TP / (2 TP + FN + FP); 0 where nothing is marked and nothing wanted."""
    return 2.0 * tp / np.maximum(marked + wanted, 1)


def _mcc(tp: NDArray[np.int64], marked: NDArray[np.int64], wanted: int, total: int) -> FloatArray:
    """MCC = (TP TN − FP FN) / √((TP+FP)(TP+FN)(TN+FP)(TN+FN)); 0 where that is not defined."""
    # TP TN − FP FN = TP n − (TP+FP)(TP+FN): whole numbers, exact for any photo that is read.
    covariance = tp * total - marked * wanted
    spread = np.sqrt(marked * (total - marked)) * np.sqrt(float(wanted) * (total - wanted))
    return np.asarray(np.where(spread > 0, covariance / np.where(spread > 0, spread, 1.0), 0.0))


def _area(
    tp: NDArray[np.int64], marked: NDArray[np.int64], wanted: int, total: int
) -> float | None:
    """Return the area under the ROC curve: equal values of the map count half."""
    if wanted in (0, total):
        return None
    # Beyond the least threshold everything is marked, so the curve ends in (1, 1).
    fp = marked - tp
    twice = np.sum(np.diff(fp) * (tp[1:] + tp[:-1]), dtype=np.float64)
    return float(twice / (2.0 * wanted * (total - wanted)))


def _pick_better(scores: Sequence[ImageScore]) -> ImageScore:
    """Return the better of the scores of a map and, where there are two, its negative."""
    f1, mcc = (max(scores, key=attrgetter(metric)) for metric in ("f1", "mcc"))
    return replace(
        f1,
        mcc=mcc.mcc,
        mcc_threshold=mcc.mcc_threshold,
        mcc_inverted=mcc.mcc_inverted,
        auc=max((score.auc for score in scores if score.auc is not None), default=None),
    )


def check_protocols(protocols: Iterable[str]) -> list[ScoringProtocol]:
    """Return the protocols of some names, each once."""
    if isinstance(protocols, str):
        protocols = (protocols,)
    names = list(dict.fromkeys(protocols))
    for name in names:
        if name not in PROTOCOLS:
            known = ", ".join(map(repr, PROTOCOLS))
            raise ValueError(f"protocols has {name!r}; it may have {known}")
    return [PROTOCOLS[name] for name in names]


def _check_map(values: ArrayLike, mask: BoolArray) -> NDArray[Any]:
    array = np.asarray(values)
    mask = np.asarray(mask)
    if mask.ndim != 2 or mask.dtype != bool or mask.size == 0:
        raise ValueError(
            f"mask has shape {mask.shape} and dtype {mask.dtype}; it must be (height, width), bool"
        )
    if array.shape != mask.shape:
        raise ValueError(f"values have shape {array.shape}; the mask has {mask.shape}")
    if array.dtype.kind in "biu":
        # Whole numbers can't all be negated.
        array = array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        raise ValueError(f"values of dtype {array.dtype} must be real and finite numbers")
    return array


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
