"""What a localizer's findings mean, learned from photos whose truth is known.

Three things are learned after the filters: how much likelier what is measured at a border of
superpixels is at a seam than elsewhere; with a network, which directions of its traces tell the two
sides of a seam apart, and all weights of the cut (`cpcapp.splicing.train.cut_weights`); and
which scores authentic photos reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.tensor_file import Tensors
from cpcapp._io.threads import map_threads
from cpcapp.moments.dask import map_in_order
from cpcapp.splicing.decide.decide import measure_features
from cpcapp.splicing.decide.evidence import SeamEvidence
from cpcapp.splicing.decide.region import MIN_REGION_SIDE, extract_borders
from cpcapp.splicing.decide.verdict import Calibration, PatchTail, PhotoFeatures
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.measure.measure import measure
from cpcapp.splicing.photo.pixels import FloatArray
from cpcapp.splicing.photo.samples import Sample
from cpcapp.splicing.presets import Preset
from cpcapp.splicing.train.checkpoint import Checkpoint
from cpcapp.splicing.train.cut_weights import CutTrial, learn_cut_weights, learn_sides

# Side of the square in which a border pixel counts as lying on the seam. Set by hand.
_SEAM_REACH = 3
# Of each photo, so that no photo outweighs the others. Chosen by hand, not tuned.
_MAX_BORDER_PIXELS = 4000
# Of each kind: with fewer authentic photos no p-value can be below 0.05.
_MIN_PHOTOS = 20
# Share of each variance that is added to it before the weights are solved for. Chosen by hand.
# Kinds of evidence say nearly the same: with little added, one of them would take all the weight
# by chance (.02 left the peak of the seam .021, and .41 for the pasted part).
_RIDGE, _EVIDENCE_RIDGE = 0.02, 0.5
# Of `PhotoFeatures.score_features`: mean and level.
_WITHOUT_SIGN = (1, 2)
# Photos that are kept in the checkpoint at a time: half a minute of work or so.
_PHOTOS_PER_SAVE = 16
_ARRAYS = ("authentic", "at_seam", "elsewhere", "strengths")


class CalibrationPhoto(NamedTuple):
    """What is measured in a photo to calibrate by: small enough to keep for all photos.

    Along borders of superpixels at the seam and elsewhere, (n_measures, n); what the photo is
    judged by, and its squares; and what a cut needs, of a spliced photo with a network.
    """

    authentic: bool
    at_seam: NDArray[np.float32]
    elsewhere: NDArray[np.float32]
    features: PhotoFeatures
    strengths: NDArray[np.float32]
    trial: CutTrial | None = None

    def arrays(self) -> Tensors:
        """Return all of it as arrays, for a checkpoint."""
        kept = {name: np.atleast_1d(getattr(self, name)) for name in _ARRAYS}
        kept["features"] = np.array([*self.features[:5], *self.features.learned])
        trial = {} if self.trial is None else self.trial._asdict()
        return kept | {f"trial.{name}": value for name, value in trial.items()}

    @classmethod
    def from_arrays(cls, arrays: Tensors) -> CalibrationPhoto:
        """Return what `arrays` gave."""
        row: Any = arrays["features"].tolist()
        trial = None
        if "trial.area" in arrays:
            trial = CutTrial(*(arrays[f"trial.{name}"] for name in CutTrial._fields))
        return cls(
            bool(arrays["authentic"][0]),
            arrays["at_seam"],
            arrays["elsewhere"],
            PhotoFeatures._make([*row[:5], tuple(row[5:])]),
            arrays["strengths"],
            trial,
        )


def calibrate(
    localizer: SpliceLocalizer,
    samples: Sequence[Sample],
    *,
    jobs: int = 2,
    progress: Callable[[float], None] | None = None,
    checkpoint: Checkpoint | None = None,
    client: Any = None,
) -> Calibration | None:
    """Learn what a localizer needs to find regions and to judge photos.

    ``samples``: spliced and authentic photos. Those that can't be read are left out.

    ``checkpoint``: where to keep what was measured; a stopped run goes on from there.

    ``client``: of a Dask cluster, which measures the photos in place of threads.

    With fewer than 20 authentic or 20 spliced photos it finds regions, but judges no photo. None if
    no photo has a seam.
    """
    photos = measure_photos(
        localizer, samples, jobs=jobs, progress=progress, checkpoint=checkpoint, client=client
    )
    return learn_calibration(photos, localizer.preset, jobs=jobs)


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
        for prefix in (f"{number}." for number in numbers):
            one = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
            photos.append(CalibrationPhoto.from_arrays(one))
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
                parts = [one.arrays() for one in unsaved]
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


def learn_calibration(
    photos: Sequence[CalibrationPhoto], preset: Preset, *, jobs: int = 1
) -> Calibration | None:
    """Learn a calibration from what was measured in photos; see `calibrate`."""
    if not sum(photo.at_seam.shape[1] for photo in photos):
        return None
    evidence = SeamEvidence.learn(
        np.concatenate([photo.at_seam for photo in photos], axis=1),
        np.concatenate([photo.elsewhere for photo in photos], axis=1),
    )
    sides = None
    if preset.network:
        trials = [photo.trial for photo in photos if photo.trial is not None]
        sides = learn_sides(trials, preset.n_side_filters)
        evidence = learn_cut_weights(trials, evidence, sides, preset.regions, jobs=jobs)
    authentic = np.array([photo.authentic for photo in photos])
    n_spliced, n_authentic = int((~authentic).sum()), int(authentic.sum())
    learned = Calibration(
        evidence,
        options=preset.verdict,
        n_spliced=n_spliced,
        n_authentic=n_authentic,
        sides=sides,
    )
    if min(n_spliced, n_authentic) < _MIN_PHOTOS:
        return learned
    features = np.array([photo.features.score_features for photo in photos])
    similarity = np.array([photo.features.similarity_features for photo in photos])
    direction = evidence_direction if preset.network else fisher_direction
    weights = direction(features[~authentic], features[authentic])
    known = np.column_stack([similarity, features @ weights])[authentic]
    offset = None
    if preset.network:
        offset = float((features[authentic][:, 1:] @ weights[1:]).mean())
    learned = replace(learned, weights=weights, authentic=known, square_offset=offset)
    if weights[0] <= 0.0:  # the peak does not speak for a splice, nor does any square
        return learned
    tail = _learn_tail(learned, [photo for photo in photos if photo.authentic])
    return replace(learned, patch_tail=tail)


def _learn_tail(
    calibration: Calibration, authentic: Sequence[CalibrationPhoto]
) -> PatchTail | None:
    """Learn how large z-scores of squares get, each photo judged by the others."""
    assert calibration.authentic is not None
    z_scores = []
    for number, photo in enumerate(authentic):
        others = replace(calibration, authentic=np.delete(calibration.authentic, number, axis=0))
        similar = others.similar_photos(photo.features)
        if similar is not None:
            z_scores.append(others.square_z_scores(photo.features, photo.strengths, similar))
    return PatchTail.learn(z_scores) if z_scores else None


def fisher_direction(
    target: FloatArray, background: FloatArray, ridge: float = _RIDGE
) -> FloatArray:
    """Return Fisher's direction, ``S⁻¹(m_f - m_b)`` with the mean of the two covariances."""
    covariance = np.atleast_2d((np.cov(target.T) + np.cov(background.T)) / 2.0)
    covariance += ridge * np.diag(np.diag(covariance)) + 1e-9 * np.eye(len(covariance))
    return np.asarray(np.linalg.solve(covariance, target.mean(axis=0) - background.mean(axis=0)))


def evidence_direction(target: FloatArray, background: FloatArray) -> FloatArray:
    """Return Fisher's direction over evidence alone, none of which may count against a splice.

    A negative weight of evidence says how the photos of the calibration differ, not what a splice
    looks like: it would raise alarms on photos of another kind. The features without a sign, the
    mean of the filters' map and the mosaic's level, are what photos are compared by in any case.
    """
    kept = [number for number in range(target.shape[1]) if number not in _WITHOUT_SIGN]
    while True:
        direction = fisher_direction(target[:, kept], background[:, kept], _EVIDENCE_RIDGE)
        worst = int(direction.argmin())
        if direction[worst] >= 0.0 or len(kept) == 1:
            break
        del kept[worst]
    weights = np.zeros(target.shape[1])
    weights[kept] = np.maximum(direction, 0.0)
    return weights


def _measure(localizer: SpliceLocalizer, sample: Sample) -> CalibrationPhoto | None:
    """Measure a photo; None if it can't be read or is too small."""
    try:
        photo = sample.photo
        mask = np.zeros(photo.pixels.shape[:2], bool) if sample.authentic else sample.mask
    except (OSError, ValueError):
        return None
    if min(mask.shape) < MIN_REGION_SIDE:
        return None
    measured = measure(photo, localizer)
    borders = extract_borders(
        measured.image,
        measured.boundary,
        measured.mosaic,
        localizer.preset.regions,
        measured.learned,
    )
    size = borders.labels.shape[::-1]
    pasted = cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
    reach = np.ones((_SEAM_REACH, _SEAM_REACH), dtype=np.uint8)
    near = cv2.dilate(pasted, reach) != cv2.erode(pasted, reach)
    at_seam = near.ravel()[borders.pixels]
    features, strengths = measure_features(measured, localizer.preset)
    trial = None
    if measured.learned is not None and not sample.authentic:
        trial = CutTrial.measure(borders, pasted > 0)
    return CalibrationPhoto(
        sample.authentic,
        borders.measured[:, at_seam],
        _draw(borders.measured[:, ~at_seam]),
        features,
        strengths.ravel(),
        trial,
    )


def _draw(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return at most so many of the values that no photo outweighs the others."""
    n = values.shape[1]
    if n <= _MAX_BORDER_PIXELS:
        return values
    chosen = np.random.default_rng(0).choice(n, _MAX_BORDER_PIXELS, replace=False)
    return values[:, chosen]
