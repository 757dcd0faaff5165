"""Photos to calibrate by: spliced and authentic ones of all kinds, made from plain photos."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.make.cameras import Camera
from cpcapp.splicing.make.cuts import INTERPOLATIONS, SpliceOptions
from cpcapp.splicing.make.splices import SpliceMaker
from cpcapp.splicing.photo.jpeg import encode_jpeg, recompress
from cpcapp.splicing.photo.pixels import as_bytes
from cpcapp.splicing.photo.read import ReadImage, read_image
from cpcapp.splicing.photo.samples import Sample, SampleSet, SourcePhoto

_KERNELS = ("linear", "cubic", "lanczos", "area")
# Of crisp photos: their share, and the ranges of size and sharpening. Set by hand.
_CRISP_SHARE = 0.2
_CRISP = ((0.45, 0.8), (1.0, 2.5))


@dataclass(frozen=True)
class Processing:
    """How a photo is processed: its sides get longer, it is blurred in parts, and sharpened.

    ``sharpening`` is how much of the difference to a copy blurred by ``radius`` pixels is added.
    ``defocus`` is the standard deviation of a blur, in pixels, that comes and goes over the photo,
    as where a lens is out of focus; the seed ``focus`` decides where.
    """

    size: float = 1.0
    interpolation: str = "cubic"
    sharpening: float = 0.0
    radius: float = 1.0
    defocus: float = 0.0
    focus: int = 0

    @classmethod
    def random(cls, rng: np.random.Generator, size: tuple[float, float] = (0.8, 2.3)) -> Processing:
        """Draw one at random: four of five are resized, a third sharpened, a third out of focus.

        One in five is crisp, as small photos of cameras are: made much smaller, and sharpened
        until edges have halos.
        """
        resized, sharpened = rng.random(2) < (0.8, 0.35)
        ranges = np.log([size, (0.2, 1.0), (0.7, 1.5)])
        longer, sharpening, radius = np.exp(rng.uniform(*ranges.T)).tolist()
        interpolation = _KERNELS[rng.integers(len(_KERNELS))]
        defocused, defocus = rng.random() < 0.35, rng.uniform(0.6, 2.0)
        focus = rng.integers(1 << 30)
        if rng.random() < _CRISP_SHARE:
            resized = sharpened = True
            longer, sharpening = np.exp(rng.uniform(*np.log(_CRISP).T)).tolist()
        return cls(
            longer if resized else 1.0,
            interpolation,
            sharpening if sharpened else 0.0,
            radius,
            float(defocus) if defocused else 0.0,
            int(focus),
        )

    def apply(self, photo: NDArray[Any]) -> NDArray[Any]:
        """Return the photo, processed."""
        if self.size != 1.0:
            size = self._shape(photo.shape)[::-1]
            photo = cv2.resize(photo, size, interpolation=INTERPOLATIONS[self.interpolation])
        if self.defocus:
            photo = _defocus(photo, self.defocus, self.focus)
        if self.sharpening:
            blurred = cv2.GaussianBlur(photo, (0, 0), self.radius)
            photo = cv2.addWeighted(photo, 1.0 + self.sharpening, blurred, -self.sharpening, 0.0)
        return np.asarray(photo)

    def apply_to_mask(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Return a mask or labels of the photo, resized in the same way."""
        rows, cols = (
            np.arange(size) * side // size
            for side, size in zip(labels.shape, self._shape(labels.shape), strict=True)
        )
        return labels[np.ix_(rows, cols)]

    def process_source(self, source: SourcePhoto) -> SourcePhoto:
        """Return a source whose photo and segments are processed when they are read."""
        segments = source.segments and partial(self._read_segments, source.segments)
        return SourcePhoto(source.name, partial(self._read_photo, source.read), segments)

    def _read_photo(self, read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        return self.apply(read())

    def _read_segments(self, read: Callable[[], Sequence[NDArray[Any]]]) -> list[NDArray[Any]]:
        return [self.apply_to_mask(labels) for labels in read()]

    def _shape(self, shape: Sequence[int]) -> tuple[int, int]:
        height, width = (max(1, round(self.size * n)) for n in shape[:2])
        return height, width


def _defocus(photo: NDArray[Any], sigma: float, seed: int) -> NDArray[Any]:
    """Blend a photo with a blurred copy by weights that vary smoothly."""
    height, width = photo.shape[:2]
    nodes = np.random.default_rng(seed).normal(0.0, 3.0, (4, 5)).astype(np.float32)
    weight = 1.0 / (
        1.0 + np.exp(-cv2.resize(nodes, (width, height), interpolation=cv2.INTER_CUBIC))
    )
    sharp = photo.astype(np.float32)
    blurred = cv2.GaussianBlur(sharp, (0, 0), sigma)
    mixed = sharp + weight[..., None] * (blurred - sharp)
    return np.asarray(np.rint(mixed).clip(0, np.iinfo(photo.dtype).max).astype(photo.dtype))


def calibration_photos(
    sources: Sequence[SourcePhoto], n: int, *, seed: int = 0, as_they_are: int = 0
) -> SampleSet:
    """Return spliced and authentic photos of all kinds, in equal numbers, made from plain photos.

    The photos that people ask about have other histories than the sources. So most of these are
    resized first, and a third is sharpened: see
    `Processing.random`. After that every second one is taken with
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
    unchanged = (
        Sample.of_photo(f"source {s.name}", partial(SourcePhoto.as_it_is, s)) for s in chosen
    )
    return SampleSet("calibration", (*_photos(sources, n, seed), *unchanged))


def authentic_source(sources: Sequence[SourcePhoto], number: int, seed: int = 0) -> SourcePhoto:
    """Return the source of the authentic photo of this number in `calibration_photos`."""
    rng = np.random.default_rng([seed, number, 2])
    return sources[int(rng.integers(len(sources)))]


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
    options = SpliceOptions.hard() if history.plain else SpliceOptions()
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
