"""Photos to calibrate by: spliced and authentic ones of all kinds, made from plain photos."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.making.cameras import Camera
from cpcapp.splicing.making.cuts import SpliceOptions
from cpcapp.splicing.making.processing import Processing
from cpcapp.splicing.making.splices import SpliceMaker
from cpcapp.splicing.photos.jpeg import recompress
from cpcapp.splicing.photos.pixels import as_bytes
from cpcapp.splicing.photos.samples import Sample, SampleSet
from cpcapp.splicing.photos.sources import SourcePhoto


def calibration_photos(sources: Sequence[SourcePhoto], n: int, *, seed: int = 0) -> SampleSet:
    """Return spliced and authentic photos of all kinds, in equal numbers, made from plain photos.

    The photos that people ask about have other histories than the sources. So most of these are
    resized first, and a third is sharpened: see
    `cpcapp.splicing.making.processing.Processing.random`. Of six, four are then taken with a
    simulated camera, two of which are made smaller and sharpened afterwards in the same way. Every
    second one is compressed.

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

    simulated_camera: bool
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
# Range of sizes for photos that are made smaller. Chosen by hand, not tuned.
_SMALLER = (0.5, 0.95)
# From `cpcapp.splicing.verdicts.options.VerdictOptions.min_quality`, below which nothing is
# judged, to where compression hardly changes a pixel.
_MIN_QUALITY, _MAX_QUALITY = 60, 98


class _FinalProcessing(NamedTuple):
    """What happens to a photo last, whether it was spliced or not."""

    processing: Processing
    quality: int | None

    @classmethod
    def random(cls, history: _History, rng: np.random.Generator) -> _FinalProcessing:
        processing = Processing.random(rng, _SMALLER) if history.smaller else Processing()
        quality = int(rng.integers(_MIN_QUALITY, _MAX_QUALITY + 1))
        return cls(processing, quality if history.compressed else None)

    def read_photo(self, read: Callable[[], NDArray[Any]]) -> NDArray[np.uint8]:
        pixels = self.processing.apply(read())
        return pixels if self.quality is None else recompress(pixels, self.quality)

    def read_mask(self, read: Callable[[], NDArray[np.bool_]]) -> NDArray[np.bool_]:
        return self.processing.apply_to_mask(read())


def _photos(sources: Sequence[SourcePhoto], n: int, seed: int) -> Iterator[Sample]:
    hard = replace(SpliceOptions.hard(), area=(0.03, 0.45))
    for number in range(n):
        history = _HISTORIES[number // 2 % len(_HISTORIES)]
        rng = np.random.default_rng([seed, number // 2, 4])
        processing, final = Processing.random(rng), _FinalProcessing.random(history, rng)
        if number % 2 == 0:
            options = replace(hard, camera_share=float(history.simulated_camera))
            processed = [processing.process_source(source) for source in sources]
            spliced = SpliceMaker(processed, options, seed).sample(number)
            assert spliced.read_mask is not None
            yield Sample(
                f"spliced{number:05d}",
                False,
                partial(final.read_photo, spliced.read_image),
                partial(final.read_mask, spliced.read_mask),
            )
            continue
        rng = np.random.default_rng([seed, number, 2])
        source = processing.process_source(sources[int(rng.integers(len(sources)))])
        read = partial(_read_authentic, source, history.simulated_camera, seed, number)
        yield Sample(f"authentic{number:05d}", True, partial(final.read_photo, read))


def _read_authentic(
    source: SourcePhoto, simulated_camera: bool, seed: int, number: int
) -> NDArray[np.uint8]:
    """Return a photo with the history that spliced ones have, but whole."""
    pixels = as_bytes(source.read())
    if simulated_camera:
        rng = np.random.default_rng([seed, number, 3])
        pixels = Camera.random(rng).shoot(pixels, rng)
    return pixels
