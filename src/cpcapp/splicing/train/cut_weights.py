"""Learning the weights of the cut on spliced photos: which of them finds the pasted parts best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.threads import map_threads
from cpcapp.splicing.decide.evidence import SeamEvidence
from cpcapp.splicing.decide.options import RegionOptions
from cpcapp.splicing.decide.region import ExtractedBorders
from cpcapp.splicing.decide.sides import SideContrast, SideStatistics, across_and_within
from cpcapp.splicing.photo.pixels import BoolArray, FloatArray
from cpcapp.splicing.photo.samples import choose_evenly

# Photos that weights are tried on: some seconds for each weight.
_MAX_TRIALS = 150
_ROUNDS = 2
# What is tried for each weight; far enough that the best is not at an end.
_TRIED = {
    "trace_weight": (0.0025, 0.005, 0.01, 0.02, 0.05, 0.1),
    "prior": (0.5, 1.0, 1.5, 2.0, 3.0),
    "mosaic_weight": (0.0, 0.002, 0.005, 0.01, 0.02, 0.04),
    "trim_per_pixel": (0.0, 0.5, 1.0, 1.5, 2.0),
}
# A superpixel lies on one side if at least this share of it does.
_CERTAIN = 0.95


class CutTrial(NamedTuple):
    """What a cut of a spliced photo needs, and the truth: small enough to keep for all photos.

    Attributes
    ----------
    one, two : ndarray of shape (n,), int32
        The superpixels on either side of each pixel along borders.
    measured : ndarray of shape (n_measures, n), float16
    total : ndarray of shape (count, n_statistics)
    pixels : ndarray of shape (count,)
        Of the mosaic's statistics.
    vectors : ndarray of shape (count, n_features)
    area : ndarray of shape (count,)
    pasted : ndarray of shape (count,)
        How many of the pixels were pasted.
    """

    one: NDArray[np.int32]
    two: NDArray[np.int32]
    measured: NDArray[np.float16]
    total: NDArray[np.float64]
    pixels: NDArray[np.float64]
    vectors: NDArray[np.float64]
    area: NDArray[np.float64]
    pasted: NDArray[np.float64]

    @classmethod
    def measure(cls, borders: ExtractedBorders, mask: BoolArray) -> CutTrial:
        """Keep what is needed of a photo whose mask is known, in the size of the labels."""
        assert borders.vectors is not None
        inside = np.bincount(borders.labels.ravel(), mask.ravel(), borders.count)
        return cls(
            borders.one.astype(np.int32),
            borders.two.astype(np.int32),
            borders.measured.astype(np.float16),
            borders.statistics.total,
            borders.statistics.pixels,
            borders.vectors,
            borders.area,
            inside.astype(np.float64),
        )

    def borders(self) -> ExtractedBorders:
        """Return what cuts are made of."""
        nowhere: NDArray[Any] = np.zeros(0, np.intp)
        return ExtractedBorders(
            np.zeros((0, 0), np.int32),
            len(self.area),
            nowhere,
            self.one,
            self.two,
            self.measured.astype(np.float32),
            1.0,
            SideStatistics(self.total, self.pixels),
            self.vectors,
            self.area,
        )

    def f1(self, side: BoolArray) -> float:
        """Return the F1 score of a cut, the better of its two sides; 0 if it finds nothing."""
        if not side.any() or side.all():
            return 0.0
        scores = []
        for inside in (side, ~side):
            marked = self.area[inside].sum()
            scores.append(2.0 * self.pasted[inside].sum() / (marked + self.pasted.sum()))
        return float(max(scores))


def learn_sides(trials: Sequence[CutTrial], n_filters: int) -> SideContrast | None:
    """Learn which directions of the learned traces tell the two sides of a seam apart."""
    photos = []
    for trial in trials:
        share = trial.pasted / np.maximum(trial.area, 1.0)
        certain = (share <= 1.0 - _CERTAIN) | (share >= _CERTAIN)
        found = across_and_within(trial.vectors, share > 0.5, certain)
        if found is not None:
            photos.append(found)
    return SideContrast.learn(photos, n_filters)


def learn_cut_weights(
    trials: Sequence[CutTrial],
    evidence: SeamEvidence,
    sides: SideContrast | None,
    options: RegionOptions,
    *,
    jobs: int = 1,
    report: Callable[[str, float, float], None] | None = None,
) -> SeamEvidence:
    """Learn prior and weights: those whose cuts have the highest mean F1 on spliced photos.

    One weight after the other is moved as far as the score rises, twice. In the end the learned
    traces get the least weight, and a seam the lowest prior, that is not worse by more than a
    standard error; with less weight of the traces a lower prior and more trimming are tried too.

    ``report``: called with the name of a weight, its value and the mean F1.
    """
    borders = [(trial, trial.borders()) for trial in choose_evenly(trials, _MAX_TRIALS)]

    def scores(candidate: SeamEvidence) -> FloatArray:
        def cut(pair: tuple[CutTrial, ExtractedBorders]) -> float:
            return pair[0].f1(pair[1].find_cut(candidate, sides, options)[0].side)

        return np.array(list(map_threads(cut, borders, jobs=jobs)))

    def score(candidate: SeamEvidence) -> float:
        return float(scores(candidate).mean())

    def at(places: dict[str, int]) -> SeamEvidence:
        values: dict[str, Any] = {name: _TRIED[name][place] for name, place in places.items()}
        return replace(evidence, **values)

    places = {name: len(tried) // 2 for name, tried in _TRIED.items()}
    if not borders:
        return at(places)
    highest = score(at(places))
    for _ in range(_ROUNDS):
        before = dict(places)
        for name, tried in _TRIED.items():
            for step in (1, -1):
                moved = False
                # As far as the score rises; if one way was better, the other is not.
                while 0 <= places[name] + step < len(tried):
                    candidate = places | {name: places[name] + step}
                    found = score(at(candidate))
                    if report is not None:
                        report(name, tried[candidate[name]], found)
                    if found <= highest:
                        break
                    places, highest, moved = candidate, found, True
                if moved:
                    break
        if places == before:
            break
    # Real photos differ within themselves more than made ones do, and their seams are fainter: of
    # values that can't be told apart, by one standard error, those that trust the traces least and
    # ask least of a seam. Who trusts the traces less must ask less of a seam, or trim the cut more.
    best = scores(at(places))

    def as_good(name: str, candidate: dict[str, int]) -> bool:
        lost = best - scores(at(candidate))
        if report is not None:
            report(f"less {name}", _TRIED[name][candidate[name]], -float(lost.mean()))
        return bool(lost.mean() <= lost.std() / len(lost) ** 0.5)

    for name in ("trace_weight", "prior"):
        while places[name]:
            less = places | {name: places[name] - 1}
            accepted = next((c for c in _with_compensation(less, name) if as_good(name, c)), None)
            if accepted is None:
                break
            places = accepted
    return at(places)


def _with_compensation(places: dict[str, int], weakened: str) -> Iterator[dict[str, int]]:
    """Yield weights, and if the traces were weakened what may make up for it."""
    yield places
    if weakened != "trace_weight":
        return
    lower = places | {"prior": max(0, places["prior"] - 1)}
    for trim in range(places["trim_per_pixel"], len(_TRIED["trim_per_pixel"])):
        candidate = lower | {"trim_per_pixel": trim}
        if candidate != places:
            yield candidate
