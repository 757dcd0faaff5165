"""What a localizer's findings mean, learned from photos whose truth is known.

How much likelier what is measured at a border of superpixels is at a seam than elsewhere; with a
network, what tells the two sides of a seam apart in its traces; the weights of a score; and which
scores genuine photos reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.threads import map_threads
from cpcapp.moments.dask import map_in_order
from cpcapp.splicing.decide.evidence import LikelihoodTable
from cpcapp.splicing.decide.region import MIN_REGION_SIDE, ExtractedBorders, extract_borders
from cpcapp.splicing.decide.sides import SideStatistics, TraceContrast, across_and_within
from cpcapp.splicing.decide.verdict import (
    WITHOUT_SIGN,
    Calibration,
    cut_features,
    feature_names,
    photo_features,
)
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.measure.measure import measure
from cpcapp.splicing.photo.pixels import BoolArray, FloatArray
from cpcapp.splicing.photo.samples import Sample
from cpcapp.splicing.presets import Preset
from cpcapp.splicing.train.checkpoint import Checkpoint

# Side of the square in which a border pixel counts as lying on the seam. Set by hand.
_SEAM_REACH = 3
# Of each photo, so that no photo outweighs the others. Chosen by hand, not tuned.
_MAX_BORDER_PIXELS = 4000
# Of each kind: with fewer genuine photos no p-value can be below 0.05.
_MIN_PHOTOS = 20
# A superpixel lies on one side if at least this share of it does.
_CERTAIN = 0.95
# Share of each variance that is added to it before the weights are solved for, with a network and
# without. Chosen by hand. Kinds of evidence say nearly the same: with little added, one of them
# would take all the weight by chance.
_RIDGE = {True: 0.5, False: 0.02}
# Photos that are kept in the checkpoint at a time: half a minute of work or so.
_PHOTOS_PER_SAVE = 16


class CalibrationPhoto(NamedTuple):
    """What is measured in a photo to calibrate by: small enough to keep for all photos.

    Of each pixel along borders the two superpixels, what is measured, and whether it lies on the
    seam; of each superpixel the statistics and pixels of the mosaic, the traces (none without a
    network), the area and how many pixels were pasted; and the features of the photo.
    """

    authentic: NDArray[np.bool_]
    one: NDArray[np.int32]
    two: NDArray[np.int32]
    measured: NDArray[np.float32]
    at_seam: NDArray[np.bool_]
    total: FloatArray
    pixels: FloatArray
    vectors: FloatArray
    area: FloatArray
    pasted: FloatArray
    features: FloatArray

    @property
    def borders(self) -> ExtractedBorders:
        """What cuts are made of."""
        return ExtractedBorders(
            np.zeros((0, 0), np.int32),
            np.zeros(0, np.intp),
            self.one,
            self.two,
            self.measured,
            SideStatistics(self.total, self.pixels),
            self.vectors if self.vectors.size else None,
            self.area,
        )

    def at_borders(self, at_seam: bool) -> NDArray[np.float32]:
        """Return what is measured on the seam or elsewhere; of many pixels, a random part."""
        values: NDArray[np.float32] = self.measured[self.at_seam == at_seam]
        if at_seam or len(values) <= _MAX_BORDER_PIXELS:
            return values
        chosen = np.random.default_rng(0).choice(len(values), _MAX_BORDER_PIXELS, replace=False)
        return np.asarray(values[chosen])

    def sides(self) -> tuple[FloatArray, FloatArray] | None:
        """Return how the traces differ across the seam and within the sides, if there are two."""
        share = self.pasted / np.maximum(self.area, 1.0)
        certain = (share <= 1.0 - _CERTAIN) | (share >= _CERTAIN)
        return across_and_within(self.vectors, share > 0.5, certain) if self.vectors.size else None


def calibrate(
    localizer: SpliceLocalizer,
    samples: Sequence[Sample],
    *,
    genuine: Mapping[str, Sequence[Sample]] | None = None,
    jobs: int = 2,
    progress: Callable[[float], None] | None = None,
    checkpoint: Checkpoint | None = None,
    client: Any = None,
) -> Calibration | None:
    """Learn what a localizer needs to find regions and to judge photos.

    ``samples``: spliced and authentic photos. Those that can't be read are left out.

    ``genuine``: collections of genuine photos, by name, that photos are compared with. By default
    the authentic ones of the samples.

    ``checkpoint``: where to keep what was measured; a stopped run goes on from there.

    ``client``: of a Dask cluster, which measures the photos in place of threads.

    With fewer than 20 authentic or 20 spliced photos it finds regions, but judges no photo. None if
    no photo has a seam.
    """
    photos = measure_photos(
        localizer, samples, jobs=jobs, progress=progress, checkpoint=checkpoint, client=client
    )
    learned = learn_calibration(photos, localizer.preset)
    if learned is None or learned.weights is None or genuine is None:
        return learned
    return compare_with(localizer, learned, genuine, jobs=jobs, client=client)


def compare_with(
    localizer: SpliceLocalizer,
    calibration: Calibration,
    genuine: Mapping[str, Sequence[Sample]],
    *,
    jobs: int = 2,
    client: Any = None,
) -> Calibration:
    """Return a calibration that compares photos with these genuine ones."""
    judge = SpliceLocalizer(
        localizer.preset, localizer.banks, calibration=calibration, network=localizer.network
    )
    scores = {}
    for name, samples in genuine.items():
        found = map_photos(partial(_score, judge), samples, jobs, client)
        scores[name] = np.array([score for score in found if score is not None])
    return replace(calibration, genuine={name: s for name, s in scores.items() if s.size})


def _score(localizer: SpliceLocalizer, sample: Sample) -> float | None:
    try:
        photo = sample.photo
    except (OSError, ValueError):
        return None
    return localizer.localize(photo).score


def measure_photos(
    localizer: SpliceLocalizer,
    samples: Sequence[Sample],
    *,
    jobs: int = 2,
    progress: Callable[[float], None] | None = None,
    checkpoint: Checkpoint | None = None,
    client: Any = None,
) -> list[CalibrationPhoto]:
    """Measure photos of known truth; see `calibrate` for the parameters."""
    photos: list[CalibrationPhoto] = []
    n_done = 0
    for n_done, arrays in checkpoint.load_parts() if checkpoint else ():  # noqa: B007
        numbers = sorted({int(name.partition(".")[0]) for name in arrays})
        photos += [
            CalibrationPhoto(*(arrays[f"{number}.{name}"] for name in CalibrationPhoto._fields))
            for number in numbers
        ]
    left, n_before = samples[n_done:], n_done

    def report(share: float) -> None:
        if progress is not None:
            progress((n_before + share * len(left)) / len(samples))

    work = partial(_measure, localizer)
    results = map_photos(work, left, jobs, client, progress=report)
    unsaved: list[CalibrationPhoto] = []
    for number, photo in enumerate(results, start=n_before + 1):
        unsaved += [] if photo is None else [photo]
        if number % _PHOTOS_PER_SAVE == 0 or number == len(samples):
            photos += unsaved
            if checkpoint is not None:
                parts = [one._asdict() for one in unsaved]
                named = {f"{i}.{k}": v for i, part in enumerate(parts) for k, v in part.items()}
                checkpoint.save_part(n_done, number, named)
            n_done, unsaved = number, []
    return photos


def map_photos(
    work: Callable[[Sample], Any], samples: Sequence[Sample], jobs: int, client: Any, **options: Any
) -> Iterator[Any]:
    """Yield the results for photos in their order, by threads or by a Dask cluster."""
    if client is None:
        return map_threads(work, samples, jobs=jobs, **options)
    return map_in_order(client, work, samples, **options)


def learn_calibration(photos: Sequence[CalibrationPhoto], preset: Preset) -> Calibration | None:
    """Learn a calibration from what was measured in photos; see `calibrate`."""
    if not any(photo.at_seam.any() for photo in photos):
        return None
    table = LikelihoodTable.learn(
        *(np.concatenate([photo.at_borders(kind) for photo in photos]) for kind in (True, False))
    )
    pairs = [pair for pair in (photo.sides() for photo in photos) if pair is not None]
    learned = Calibration(table, options=preset.verdict, traces=TraceContrast.learn(pairs))
    return learn_score(learned, photos, preset)


def learn_score(
    calibration: Calibration, photos: Sequence[CalibrationPhoto], preset: Preset
) -> Calibration:
    """Learn the weights of the score, and what the authentic photos score."""
    authentic = np.array([bool(photo.authentic) for photo in photos])
    n_spliced, n_authentic = int((~authentic).sum()), int(authentic.sum())
    learned = replace(calibration, n_spliced=n_spliced, n_authentic=n_authentic)
    if min(n_spliced, n_authentic) < _MIN_PHOTOS:
        return learned
    features = np.array([_features(photo, learned, preset) for photo in photos])
    weights = score_weights(features[~authentic], features[authentic], network=preset.network)
    return replace(learned, weights=weights, genuine={"training": features[authentic] @ weights})


def _features(photo: CalibrationPhoto, learned: Calibration, preset: Preset) -> list[float]:
    cut, _, _ = photo.borders.find_cut(learned.table, learned.traces, preset.regions)
    return [*photo.features.tolist(), *cut_features(cut, photo.area.sum())]


def score_weights(spliced: FloatArray, authentic: FloatArray, *, network: bool) -> FloatArray:
    """Return Fisher's direction, ``S⁻¹(m_f - m_b)``, in which no evidence counts against a splice.

    A negative weight of evidence says how the photos of the calibration differ, not what a splice
    looks like: it would raise alarms on photos of another kind.
    """
    names = feature_names(network)
    covariance = (np.cov(spliced.T) + np.cov(authentic.T)) / 2.0
    covariance += np.diag(_RIDGE[network] * np.diag(covariance) + 1e-9)
    apart = spliced.mean(axis=0) - authentic.mean(axis=0)
    signed = np.array([name not in WITHOUT_SIGN for name in names])
    kept = np.ones(len(names), dtype=bool)
    while True:
        weights = np.zeros(len(names))
        weights[kept] = np.linalg.solve(covariance[np.ix_(kept, kept)], apart[kept])
        worst = int(np.where(signed, weights, 0.0).argmin())
        if weights[worst] >= 0.0 or not signed[worst]:
            return weights
        kept[worst] = False


def _measure(localizer: SpliceLocalizer, sample: Sample) -> CalibrationPhoto | None:
    """Measure a photo; None if it can't be read or is too small."""
    try:
        photo = sample.photo
        mask = np.zeros(photo.pixels.shape[:2], bool) if sample.authentic else sample.mask
    except (OSError, ValueError):
        return None
    if min(mask.shape) < MIN_REGION_SIDE:
        return None
    preset = localizer.preset
    measured = measure(photo, localizer)
    borders = extract_borders(measured, preset.regions)
    at_seam, pasted = _truth(borders, mask)
    return CalibrationPhoto(
        np.array([sample.authentic]),
        borders.one,
        borders.two,
        borders.measured,
        at_seam,
        borders.statistics.total,
        borders.statistics.pixels,
        np.zeros((0, 0)) if borders.vectors is None else borders.vectors,
        borders.area,
        pasted,
        np.array(photo_features(measured, preset.verdict, preset.mosaic)),
    )


def _truth(borders: ExtractedBorders, mask: BoolArray) -> tuple[BoolArray, FloatArray]:
    """Return which border pixels lie on the seam, and how many of each superpixel were pasted."""
    size = borders.labels.shape[::-1]
    pasted = cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
    reach = np.ones((_SEAM_REACH, _SEAM_REACH), dtype=np.uint8)
    near = cv2.dilate(pasted, reach) != cv2.erode(pasted, reach)
    inside = np.bincount(borders.labels.ravel(), pasted.ravel(), len(borders.area))
    return near.ravel()[borders.pixels], inside.astype(np.float64)
