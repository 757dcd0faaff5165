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
from cpcapp.splicing.development import Development
from cpcapp.splicing.edges import detect_edges
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.mosaic_trace import mosaic_trace
from cpcapp.splicing.regions import LEAST_SIDE, SeamEvidence, divide
from cpcapp.splicing.samples import Sample, SampleSet
from cpcapp.splicing.splices import SourcePhoto, SpliceMaker, SpliceOptions, recompress
from cpcapp.splicing.verdict import Calibration, Facts, PatchTail, patch_strengths

# A seam is found on a border of superpixels if it is that near.
_NEAR = 3
_MOST_PER_PHOTO = 4000
_FEWEST = 20
_RIDGE = 0.02


class _Look(NamedTuple):
    """What a photo shows: small enough to keep for all photos."""

    authentic: bool
    at_seam: NDArray[np.float32]  # strengths along borders
    elsewhere: NDArray[np.float32]
    facts: Facts
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
    if not sum(len(look.at_seam) for look in looks):
        return
    evidence = SeamEvidence.learn(
        np.concatenate([look.at_seam for look in looks]),
        np.concatenate([look.elsewhere for look in looks]),
    )
    localizer.calibration = _calibration(evidence, looks)
    n_authentic = sum(look.authentic for look in looks)
    localizer.facts["calibration_photos"] = {
        "spliced": len(looks) - n_authentic,
        "authentic": n_authentic,
    }


def _calibration(evidence: SeamEvidence, looks: Sequence[_Look]) -> Calibration:
    authentic = np.array([look.authentic for look in looks])
    if min(authentic.sum(), (~authentic).sum()) < _FEWEST:
        return Calibration(evidence)
    telling = np.array([look.facts.telling for look in looks])
    kinds = np.array([look.facts.kind for look in looks])
    weights = _discriminant(telling[~authentic], telling[authentic])
    known = np.column_stack([kinds, telling @ weights])[authentic]
    if weights[0] <= 0.0:  # the peak does not speak for a splice, nor does any square
        return Calibration(evidence, weights, known)
    squares = []
    for number, look in enumerate(look for look in looks if look.authentic):
        # By the others: no photo is like itself.
        others = Calibration(evidence, weights, np.delete(known, number, axis=0))
        surprise = others.surprise(look.facts, look.patches)
        squares += [] if surprise is None else [surprise]
    tail = PatchTail.learn(squares) if squares else None
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
    at_seam, strength = near.ravel()[places], candidates.strength
    patches = patch_strengths(seam).ravel()
    return _Look(
        sample.authentic,
        strength[at_seam],
        _few(strength[~at_seam]),
        Facts.of(pixels, seam, trace),
        patches,
    )


def _few(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return at most so many of the values that no photo outweighs the others."""
    if len(values) <= _MOST_PER_PHOTO:
        return values
    return np.random.default_rng(0).choice(values, _MOST_PER_PHOTO, replace=False)


def calibration_photos(sources: Sequence[SourcePhoto], n: int, *, seed: int = 0) -> SampleSet:
    """Return spliced and authentic photos of all kinds, in equal numbers, made from photos.

    Photos that people ask about come from elsewhere and went through other things. So most of these
    are made larger or smaller first, and a third is sharpened: see
    `cpcapp.splicing.development.Development.random`. Of each six, four are then taken with a
    simulated camera, two of which are made smaller and sharpened afterwards in the same way; one
    of each two is compressed.

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


class _History(NamedTuple):
    """What happens to a photo before it is seen."""

    taken: bool  # with a simulated camera
    smaller: bool
    compressed: bool


_HISTORIES = (
    _History(False, False, False),
    _History(True, False, False),
    _History(True, False, True),
    _History(False, False, True),
    _History(True, True, False),
    _History(True, True, True),
)
_SMALLER = (0.5, 0.95)
_LEAST_QUALITY, _BEST_QUALITY = 60, 98


class _Ending(NamedTuple):
    """What happens to a photo last, whether it was spliced or not."""

    development: Development
    quality: int | None

    @classmethod
    def of(cls, history: _History, rng: np.random.Generator) -> _Ending:
        development = Development.random(rng, _SMALLER) if history.smaller else Development()
        quality = int(rng.integers(_LEAST_QUALITY, _BEST_QUALITY + 1))
        return cls(development, quality if history.compressed else None)

    def of_photo(self, read: Callable[[], NDArray[Any]]) -> NDArray[np.uint8]:
        pixels = self.development.develop(read())
        return pixels if self.quality is None else recompress(pixels, self.quality)

    def of_mask(self, read: Callable[[], NDArray[np.bool_]]) -> NDArray[np.bool_]:
        return self.development.follow(read())


def _photos(sources: Sequence[SourcePhoto], n: int, seed: int) -> Iterator[Sample]:
    hard = replace(SpliceOptions.hard(), area=(0.03, 0.45))
    for number in range(n):
        history = _HISTORIES[number // 2 % len(_HISTORIES)]
        rng = np.random.default_rng([seed, number // 2, 4])
        development, ending = Development.random(rng), _Ending.of(history, rng)
        if number % 2 == 0:
            options = replace(hard, camera_share=float(history.taken))
            developed = [development.of(source) for source in sources]
            spliced = SpliceMaker(developed, options, seed).sample(number)
            assert spliced.read_mask is not None
            yield Sample(
                f"spliced{number:05d}",
                False,
                partial(ending.of_photo, spliced.read_image),
                partial(ending.of_mask, spliced.read_mask),
            )
            continue
        rng = np.random.default_rng([seed, number, 2])
        source = development.of(sources[int(rng.integers(len(sources)))])
        read = partial(_whole, source, history.taken, seed, number)
        yield Sample(f"authentic{number:05d}", True, partial(ending.of_photo, read))


def _whole(source: SourcePhoto, taken: bool, seed: int, number: int) -> NDArray[np.uint8]:
    """Return a photo with the history that spliced ones have, but whole."""
    pixels: Any = source.read()
    if pixels.dtype != np.uint8:
        pixels = (pixels >> 8).astype(np.uint8)
    if taken:
        rng = np.random.default_rng([seed, number, 3])
        pixels = Camera.random(rng).shoot(pixels, rng)
    return np.asarray(pixels)
