"""Learning the weights of the cut on spliced photos: which of them finds the pasted parts best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
# For each weight the number of the value in `_TRIED`.
Places = tuple[int, ...]
# A superpixel lies on one side if at least this share of it does.
_CERTAIN = 0.95


class CutTrial(NamedTuple):
    """What a cut of a spliced photo needs, and the truth: small enough to keep for all photos.

    Two superpixels and the measures of each pixel along borders; and of each superpixel the
    statistics and pixels of the mosaic, the traces, the area and how many pixels were pasted.
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
        pair = across_and_within(trial.vectors, share > 0.5, certain)
        if pair is not None:
            photos.append(pair)
    return SideContrast.learn(photos, n_filters)


def learn_cut_weights(
    trials: Sequence[CutTrial],
    evidence: SeamEvidence,
    sides: SideContrast | None,
    options: RegionOptions,
    *,
    jobs: int = 1,
) -> SeamEvidence:
    """Learn prior and weights: those whose cuts have the highest mean F1 on spliced photos.

    One weight after the other is moved as far as the score rises, twice. In the end the learned
    traces get the least weight, and a seam the lowest prior, that is not worse by more than a
    standard error; with less weight of the traces a lower prior and more trimming are tried too.
    """
    borders = [(trial, trial.borders()) for trial in choose_evenly(trials, _MAX_TRIALS)]
    known: dict[Places, FloatArray] = {}

    def weights(places: Places) -> SeamEvidence:
        values: dict[str, Any] = {
            name: tried[place] for (name, tried), place in zip(_TRIED.items(), places, strict=True)
        }
        return replace(evidence, **values)

    def scores(places: Places) -> FloatArray:
        if places not in known:
            candidate = weights(places)

            def cut(pair: tuple[CutTrial, ExtractedBorders]) -> float:
                return pair[0].f1(pair[1].find_cut(candidate, sides, options)[0].side)

            known[places] = np.array(list(map_threads(cut, borders, jobs=jobs)))
        return known[places]

    places: Places = tuple(len(tried) // 2 for tried in _TRIED.values())
    if not borders:
        return weights(places)
    for _ in range(_ROUNDS):
        for name in _TRIED:
            for step in (1, -1):
                start = places
                while moved := _move(places, name, step):
                    if scores(moved).mean() <= scores(places).mean():
                        break
                    places = moved
                if places != start:  # one way was better, so the other is not
                    break
    # Real photos differ within themselves more than made ones do, and their seams are fainter: of
    # values that can't be told apart, by one standard error, those that trust the traces least and
    # ask least of a seam. Who trusts the traces less must ask less of a seam, or trim the cut more.
    best = scores(places)

    def as_good(candidate: Places) -> bool:
        lost = best - scores(candidate)
        return bool(lost.mean() <= lost.std() / len(lost) ** 0.5)

    for name in ("trace_weight", "prior"):
        while less := next(filter(as_good, _weakened(places, name)), None):
            places = less
    return weights(places)


def _move(places: Places, name: str, step: int) -> Places | None:
    """Return the next value of a weight; None beyond the last."""
    number = list(_TRIED).index(name)
    place = places[number] + step
    if not 0 <= place < len(_TRIED[name]):
        return None
    return (*places[:number], place, *places[number + 1 :])


def _weakened(places: Places, name: str) -> Iterator[Places]:
    """Yield places with less of a weight, and of the traces with what may make up for it."""
    less = _move(places, name, -1)
    if less is None:
        return
    yield less
    if name == "trace_weight":
        lower = _move(less, "prior", -1) or _move(less, "trim_per_pixel", 1)
        while lower:
            yield lower
            lower = _move(lower, "trim_per_pixel", 1)
