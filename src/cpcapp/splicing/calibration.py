"""What a localizer's findings mean, learned from photos whose truth is known.

Two things are learned after the filters: how much likelier each strength of the map is at a seam
than at another border of superpixels, and which scores authentic photos reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing._arrays import FloatArray, as_unit_float
from cpcapp.splicing._parallel import in_order
from cpcapp.splicing.cameras import Camera
from cpcapp.splicing.edges import detect_edges
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.mosaic_trace import mosaic_trace
from cpcapp.splicing.regions import LEAST_SIDE, Candidates, Facts, SeamEvidence, divide
from cpcapp.splicing.samples import Sample, SampleSet
from cpcapp.splicing.splices import SourcePhoto, SpliceMaker, SpliceOptions, recompress
from cpcapp.splicing.verdict import Calibration, PatchTail, level_factor

# A seam is found on a border of superpixels if it is that near.
_NEAR = 3
_MOST_PER_PHOTO = 4000
_FEWEST = 20
_RIDGE = 0.02


class _Look(NamedTuple):
    """What a photo shows: small enough to keep for all photos."""

    authentic: bool
    candidates: Candidates
    near: NDArray[np.bool_]  # which pixels of borders are at the seam
    patches: NDArray[np.float32]


def calibrate(
    localizer: SpliceLocalizer,
    samples: Sequence[Sample],
    *,
    jobs: int = 2,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Give a localizer what it needs to find regions and to judge photos.

    Parameters
    ----------
    localizer : SpliceLocalizer
        Its ``calibration`` is set, and its ``facts`` say by how many photos.
    samples : sequence of Sample
        Spliced and authentic photos. Those that can't be read are passed over. Without at least
        20 authentic and 20 spliced ones regions are found, but no photo is judged.
    jobs : int, default=2
    progress : callable, optional
        Called with the share done, from 0 to 1.
    """
    tell = progress or (lambda share: None)
    looks: list[_Look] = []
    with ThreadPoolExecutor(jobs) as pool:
        for number, look in enumerate(in_order(pool, partial(_look, localizer), samples, 2 * jobs)):
            looks += [] if look is None else [look]
            tell((number + 1) / len(samples))
        at_seam = [look.candidates.strength[look.near] for look in looks]
        elsewhere = [_few(look.candidates.strength[~look.near]) for look in looks]
        if not sum(map(len, at_seam)):
            return
        evidence = SeamEvidence.learn(np.concatenate(at_seam), np.concatenate(elsewhere))
        facts = list(pool.map(lambda look: look.candidates.cut(evidence)[2], looks))
    localizer.calibration = _calibration(evidence, looks, facts)
    n_authentic = sum(look.authentic for look in looks)
    localizer.facts["calibration_photos"] = {
        "spliced": len(looks) - n_authentic,
        "authentic": n_authentic,
    }


def _calibration(
    evidence: SeamEvidence, looks: Sequence[_Look], facts: Sequence[Facts]
) -> Calibration:
    authentic = np.array([look.authentic for look in looks])
    if min(authentic.sum(), (~authentic).sum()) < _FEWEST:
        return Calibration(evidence)
    values = np.array(facts)
    weights = _discriminant(values[~authentic], values[authentic])
    levels = [look.candidates.level for look in looks]
    known = np.column_stack([levels, values @ weights])[authentic]
    tail = PatchTail.learn(
        [
            look.patches * level_factor(weights, look.candidates.level)
            for look in looks
            if look.authentic
        ]
    )
    return Calibration(evidence, weights, known, tail)


def _discriminant(target: FloatArray, background: FloatArray) -> FloatArray:
    """Return Fisher's direction, ``S⁻¹(m_f - m_b)`` with the mean of the two covariances."""
    spread = (np.cov(target.T) + np.cov(background.T)) / 2.0
    spread += _RIDGE * np.diag(np.diag(spread)) + 1e-9 * np.eye(len(spread))
    return np.asarray(np.linalg.solve(spread, target.mean(axis=0) - background.mean(axis=0)))


def _look(localizer: SpliceLocalizer, sample: Sample) -> _Look | None:
    """Look at a photo; None if it can't be read."""
    try:
        image, mask = sample.image, sample.mask
    except (OSError, ValueError):
        return None
    pixels = as_unit_float(image)
    if min(pixels.shape[:2]) < LEAST_SIDE:
        return None
    trace = mosaic_trace(pixels)
    seam = localizer.seam(pixels, detect_edges(pixels), trace)
    labels, places, candidates = divide(pixels, seam, trace)
    size = labels.shape[::-1]
    pasted = cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
    around = np.ones((_NEAR, _NEAR), dtype=np.uint8)
    near = cv2.dilate(pasted, around) != cv2.erode(pasted, around)
    patches = PatchTail.patches(seam).ravel()
    return _Look(sample.authentic, candidates, near.ravel()[places], patches)


def _few(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return at most so many of the values that no photo outweighs the others."""
    if len(values) <= _MOST_PER_PHOTO:
        return values
    return np.random.default_rng(0).choice(values, _MOST_PER_PHOTO, replace=False)


def calibration_photos(sources: Sequence[SourcePhoto], n: int, *, seed: int = 0) -> SampleSet:
    """Return spliced and authentic photos of all kinds, in equal numbers, made from photos.

    Half of them are enlarged to twice their size: fine texture gets rarer, as in photos of many
    pixels. Of each four, one is left as it is, two are taken with a simulated camera, one of them
    then compressed, and one is compressed only.

    Parameters
    ----------
    sources : sequence of SourcePhoto
    n : int
    seed : int, default=0

    Returns
    -------
    SampleSet

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> dark = SourcePhoto("dark", partial(np.full, (60, 80, 3), 30, np.uint8))
    >>> light = SourcePhoto("light", partial(np.full, (70, 70, 3), 220, np.uint8))
    >>> [sample.authentic for sample in calibration_photos([dark, light], 4)]
    [False, True, False, True]
    """
    return SampleSet("calibration", tuple(_photos(sources, n, seed)))


def _photos(sources: Sequence[SourcePhoto], n: int, seed: int) -> Iterator[Sample]:
    plain = replace(SpliceOptions.hard(), area=(0.03, 0.45))
    histories = (
        plain,
        replace(plain, camera_share=1.0),
        replace(plain, camera_share=1.0, jpeg_share=1.0, jpeg=(75, 98)),
        replace(plain, jpeg_share=1.0, jpeg=(75, 98), hard_share=0.5),
    )
    sizes = (sources, [_enlarged_source(source) for source in sources])
    makers = [[SpliceMaker(s, o, seed) for o in histories] for s in sizes]
    for number in range(n):
        kind, size = number // 2 % len(histories), number // 2 // len(histories) % 2
        if number % 2 == 0:
            yield replace(makers[size][kind].sample(number), name=f"spliced{number:05d}")
            continue
        rng = np.random.default_rng([seed, number, 2])
        source = sizes[size][int(rng.integers(len(sources)))]
        read = partial(_authentic, source, histories[kind], seed, number)
        yield Sample(f"authentic{number:05d}", True, read)


def _authentic(
    source: SourcePhoto, history: SpliceOptions, seed: int, number: int
) -> NDArray[np.uint8]:
    """Return a photo with the history that spliced ones have, but whole."""
    rng = np.random.default_rng([seed, number, 3])
    pixels: Any = source.read()
    if pixels.dtype != np.uint8:
        pixels = (pixels >> 8).astype(np.uint8)
    if rng.random() < history.camera_share:
        pixels = Camera.random(rng).shoot(pixels, rng)
    if rng.random() < history.jpeg_share:
        pixels = recompress(pixels, int(rng.integers(history.jpeg[0], history.jpeg[1] + 1)))
    return np.asarray(pixels)


def _enlarged_source(source: SourcePhoto) -> SourcePhoto:
    segments = None if source.segments is None else partial(_enlarged_maps, source)
    return SourcePhoto(source.name, partial(_enlarged, source), segments)


def _enlarged(source: SourcePhoto) -> NDArray[Any]:
    return np.asarray(cv2.resize(source.read(), None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC))


def _enlarged_maps(source: SourcePhoto) -> list[NDArray[np.integer]]:
    assert source.segments is not None
    return [np.kron(labels, np.ones((2, 2), labels.dtype)) for labels in source.segments()]
