"""Photos to calibrate by: spliced and authentic ones of all kinds, made from plain photos."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.make.cameras import Camera
from cpcapp.splicing.make.cuts import SpliceOptions
from cpcapp.splicing.make.processing import Processing
from cpcapp.splicing.make.splices import SpliceMaker
from cpcapp.splicing.photo.jpeg import encode_jpeg, recompress
from cpcapp.splicing.photo.pixels import as_bytes
from cpcapp.splicing.photo.read import ReadImage, read_image
from cpcapp.splicing.photo.samples import Sample, SampleSet
from cpcapp.splicing.photo.sources import SourcePhoto


def calibration_photos(
    sources: Sequence[SourcePhoto], n: int, *, seed: int = 0, as_they_are: int = 0
) -> SampleSet:
    """Return spliced and authentic photos of all kinds, in equal numbers, made from plain photos.

    The photos that people ask about have other histories than the sources. So most of these are
    resized first, and a third is sharpened: see
    `cpcapp.splicing.make.processing.Processing.random`. After that every second one is taken with
    a simulated camera, every second one was saved as JPEG before it was spliced, a quarter is made
    smaller and sharpened afterwards, and most are compressed in the end. Half of the splices are
    plain cut and paste; in the others edges are soft, colours matched, and parts turned and scaled.

    ``as_they_are``: so many of the sources follow unchanged, spread evenly over them: the history
    that a file has in the world is none of the simulated ones.
    """
    if not 0 <= as_they_are <= len(sources):
        raise ValueError(
            f"as_they_are={as_they_are} must be from 0 to {len(sources)}, the number of sources"
        )
    chosen = [sources[i * len(sources) // as_they_are] for i in range(as_they_are)]
    unchanged = (Sample.of_photo(f"source {s.name}", partial(_read_source, s)) for s in chosen)
    return SampleSet("calibration", (*_photos(sources, n, seed), *unchanged))


def authentic_source(sources: Sequence[SourcePhoto], number: int, seed: int = 0) -> SourcePhoto:
    """Return the source of the authentic photo of this number in `calibration_photos`."""
    rng = np.random.default_rng([seed, number, 2])
    return sources[int(rng.integers(len(sources)))]


def _read_source(source: SourcePhoto) -> ReadImage:
    return source.as_it_is()


class _History(NamedTuple):
    """What happens to a photo before it is seen."""

    simulated_camera: bool
    saved_before: bool
    smaller: bool
    compressed: bool
    plain: bool


_HISTORIES = (
    _History(False, False, False, False, True),
    _History(True, False, False, False, True),
    _History(True, False, False, True, True),
    _History(False, True, False, True, False),
    _History(False, True, False, False, False),
    _History(True, False, True, True, True),
    _History(True, True, False, True, False),
    _History(False, True, True, True, False),
    _History(True, False, True, False, False),
    _History(False, True, False, True, True),
    _History(False, False, False, True, False),
    _History(True, True, False, False, True),
)
# Range of sizes for photos that are made smaller. Chosen by hand, not tuned.
_SMALLER = (0.5, 0.95)
# From `cpcapp.splicing.decide.options.VerdictOptions.min_quality`, below which nothing is
# judged, to where compression hardly changes a pixel.
_MIN_QUALITY, _MAX_QUALITY = 60, 98


class _FinalProcessing(NamedTuple):
    """What happens to a photo last, whether it was spliced or not."""

    processing: Processing
    quality: int | None

    @classmethod
    def random(cls, history: _History, rng: np.random.Generator) -> _FinalProcessing:
        processing = Processing.random(rng, _SMALLER) if history.smaller else Processing()
        processing = replace(processing, defocus=0.0)  # a lens comes before
        quality = int(rng.integers(_MIN_QUALITY, _MAX_QUALITY + 1))
        return cls(processing, quality if history.compressed else None)

    def read_photo(self, read: Callable[[], NDArray[Any]]) -> ReadImage:
        pixels = self.processing.apply(read())
        source = pixels if self.quality is None else encode_jpeg(as_bytes(pixels), self.quality)
        return read_image(source)

    def read_mask(self, read: Callable[[], NDArray[np.bool_]]) -> NDArray[np.bool_]:
        return self.processing.apply_to_mask(read())


def _photos(sources: Sequence[SourcePhoto], n: int, seed: int) -> Iterator[Sample]:
    for number in range(n):
        history = _HISTORIES[number // 2 % len(_HISTORIES)]
        rng = np.random.default_rng([seed, number // 2, 4])
        processing, final = Processing.random(rng), _FinalProcessing.random(history, rng)
        if number % 2 == 0:
            processed = [processing.process_source(source) for source in sources]
            spliced = SpliceMaker(processed, _splice_options(history), seed).sample(number)
            assert spliced.read_mask is not None
            yield Sample.of_photo(
                f"spliced{number:05d}",
                partial(final.read_photo, spliced.read_image),
                partial(final.read_mask, spliced.read_mask),
            )
            continue
        source = processing.process_source(authentic_source(sources, number, seed))
        read = partial(_read_authentic, source, history, seed, number)
        yield Sample.of_photo(f"authentic{number:05d}", partial(final.read_photo, read))


def _splice_options(history: _History) -> SpliceOptions:
    options = SpliceOptions.hard() if history.plain else SpliceOptions.varied()
    return replace(
        options,
        area=(0.03, 0.45),
        camera_share=float(history.simulated_camera),
        jpeg_share=0.0,
        host_jpeg_share=float(history.saved_before),
        donor_jpeg_share=0.7 * history.saved_before,
    )


def _read_authentic(
    source: SourcePhoto, history: _History, seed: int, number: int
) -> NDArray[np.uint8]:
    """Return a photo with the history that hosts have, but whole."""
    pixels = as_bytes(source.read())
    rng = np.random.default_rng([seed, number, 3])
    if history.simulated_camera:
        pixels = Camera.random(rng).shoot(pixels, rng)
    if history.saved_before:
        low, high = SpliceOptions().host_jpeg
        pixels = recompress(pixels, int(rng.integers(low, high + 1)))
    return pixels
