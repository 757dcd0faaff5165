"""Making spliced photos whose masks are exact: for training, and for measuring robustness."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cpcapp._io.threads import map_threads
from cpcapp.splicing.make.cameras import Camera
from cpcapp.splicing.make.cuts import (
    MIN_SOURCE_SIDE,
    CutOut,
    SpliceOptions,
    crop_tight,
    draw_cut_out,
    lift,
    shift_affine,
)
from cpcapp.splicing.photo.jpeg import decode_jpeg, encode_jpeg, recompress
from cpcapp.splicing.photo.pixels import as_bytes
from cpcapp.splicing.photo.samples import Problem, Sample, SampleSet, SourcePhoto

# Of the pasted part. Chosen by hand: less is no region.
_MIN_PIXELS = 16


@dataclass(frozen=True)
class Splice:
    """A spliced photo.

    The mask, the pasted part, is where ``alpha``, the donor's weight in each pixel, is at least a
    half; where it is 0, the host is as it was (up to JPEG). The recipe says what was drawn, in
    types that JSON knows: pixel (x, y) shows the donor's pixel ``donor_map @ (x, y, 1)``. If the
    photo was compressed in the end, ``jpeg`` is the file, whose pixels are ``image``.
    """

    image: NDArray[np.uint8] = field(repr=False)
    mask: NDArray[np.bool_] = field(repr=False)
    alpha: NDArray[np.float32] = field(repr=False)
    recipe: dict[str, Any]
    jpeg: bytes | None = field(default=None, repr=False)


def make_splice(
    host: ArrayLike,
    donor: ArrayLike,
    rng: np.random.Generator,
    options: SpliceOptions | None = None,
    *,
    segments: Sequence[NDArray[np.integer]] | None = None,
) -> Splice:
    """Paste a part of one photo into another.

    ``segments``: segmentations of the donor: the number of the thing that each pixel belongs to.
    """
    options = options or SpliceOptions()
    below, above = _check_photo("host", host), _check_photo("donor", donor)
    maps = _check_segments(segments, above.shape[:2])
    below, _, host_fit = _fit_to_size(below, [], options.size, rng)
    above, maps, donor_fit = _fit_to_size(above, maps, options.size, rng)
    cameras = None
    if rng.random() < options.camera_share:
        first, second = Camera.random(rng), Camera.random(rng)
        below, above = first.shoot(below, rng), second.shoot(above, rng)
        cameras = {"host": first.to_dict(), "donor": second.to_dict()}
    below, host_jpeg = _precompress(below, options.host_jpeg_share, options.host_jpeg, rng)
    above, donor_jpeg = _precompress(above, options.donor_jpeg_share, options.donor_jpeg, rng)
    if options.area[0] * below[..., 0].size < _MIN_PIXELS:
        raise ValueError(
            f"area={options.area!r} of a host of {below.shape[1]}x{below.shape[0]} pixels is less "
            f"than {_MIN_PIXELS} pixels; take larger photos or areas"
        )

    cut_out, alpha, feather = draw_cut_out(below.shape[:2], above.shape[:2], maps, options, rng)
    strength = 0.0
    if rng.random() < options.colour_match_share:
        strength = float(rng.uniform(*options.colour_match))
    image = _paste(below, above, cut_out, alpha, strength)
    quality, jpeg = None, None
    if rng.random() < options.jpeg_share:
        quality = _draw_quality(options.jpeg, rng)
        jpeg = encode_jpeg(image, quality)
        image = decode_jpeg(jpeg)
    mask = alpha >= 0.5
    box, top, left = crop_tight(mask)
    edge = np.concatenate([mask[0], mask[-1], mask[:, 0], mask[:, -1]])
    recipe = {
        "shape": cut_out.kind,
        **cut_out.details,
        "area": round(float(mask.mean()), 6),
        "box": [top, left, *box.shape],
        "reaches_border": bool(edge.any()),
        "flip": cut_out.move.flip,
        "scale": round(cut_out.move.scale, 4),
        "rotate": round(cut_out.move.rotate, 4),
        "donor_map": shift_affine(cut_out.affine, -cut_out.top, -cut_out.left).round(6).tolist(),
        "interpolation": None if cut_out.move.exact else cut_out.move.interpolation,
        "feather": round(feather, 4),
        "colour_match": round(strength, 4),
        "cameras": cameras,
        "host_fit": host_fit,
        "host_jpeg": host_jpeg,
        "donor_fit": donor_fit,
        "donor_jpeg": donor_jpeg,
        "jpeg": quality,
    }
    return Splice(image, mask, alpha, recipe, jpeg)


def _paste(
    host: NDArray[np.uint8],
    donor: NDArray[np.uint8],
    cut_out: CutOut,
    alpha: NDArray[np.float32],
    strength: float,
) -> NDArray[np.uint8]:
    image = host.copy()
    seen, top, left = crop_tight(alpha > 0)
    box = (slice(top, top + seen.shape[0]), slice(left, left + seen.shape[1]))
    affine = shift_affine(cut_out.affine, top - cut_out.top, left - cut_out.left)
    patch = lift(donor, affine, (seen.shape[0], seen.shape[1]), cut_out.move)
    if strength:
        patch = _match_colours(patch, host[box], alpha[box] >= 0.5, strength)
    weight = alpha[box][..., None]
    # Where the weight is 0 or 1 this is exact: whole numbers stay whole in float32.
    mixed = host[box] + weight * (patch.astype(np.float32) - host[box])
    image[box] = np.rint(mixed).astype(np.uint8)
    return image


def _match_colours(
    patch: NDArray[np.uint8],
    covered: NDArray[np.uint8],
    region: NDArray[np.bool_],
    strength: float,
) -> NDArray[np.uint8]:
    """Draw the colours of a patch towards the mean and spread of the place it covers."""
    ours, theirs = (
        cv2.cvtColor(p.astype(np.float32) / np.float32(255), cv2.COLOR_RGB2Lab)
        for p in (patch, covered)
    )
    mean, spread = ours[region].mean(axis=0), ours[region].std(axis=0)
    # Without limits, a flat patch of sky would become a picture of its own noise.
    gain = np.clip(theirs.std(axis=(0, 1)) / np.maximum(spread, 1e-3), 0.5, 2.0)
    wanted = (ours - mean) * gain + theirs.mean(axis=(0, 1))
    mixed = (ours + np.float32(strength) * (wanted - ours)).astype(np.float32)
    shown = cv2.cvtColor(mixed, cv2.COLOR_Lab2RGB)
    return np.asarray(np.rint(255 * np.clip(shown, 0, 1)), dtype=np.uint8)


def _check_photo(name: str, value: ArrayLike) -> NDArray[np.uint8]:
    array = np.asarray(value)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype not in (np.uint8, np.uint16):
        raise ValueError(
            f"{name} of shape {array.shape} and type {array.dtype} must be an RGB photo: "
            "(height, width, 3), uint8 or uint16"
        )
    if min(array.shape[:2]) < MIN_SOURCE_SIDE:
        raise ValueError(
            f"{name} of {array.shape[1]}x{array.shape[0]} pixels is too small: "
            f"at least {MIN_SOURCE_SIDE}x{MIN_SOURCE_SIDE} are needed"
        )
    return as_bytes(array)


def _check_segments(
    segments: Sequence[NDArray[np.integer]] | None, shape: tuple[int, ...]
) -> list[NDArray[np.integer]]:
    maps = list(segments or [])
    for labels in maps:
        if labels.shape != shape or labels.dtype.kind not in "ui" or labels.min() < 0:
            raise ValueError(
                f"segments with a map of shape {labels.shape} and type {labels.dtype} must hold "
                f"numbers from 0 on in the donor's shape {shape}"
            )
    return maps


def _fit_to_size(
    pixels: NDArray[np.uint8],
    maps: list[NDArray[np.integer]],
    size: int | None,
    rng: np.random.Generator,
) -> tuple[NDArray[np.uint8], list[NDArray[np.integer]], dict[str, Any] | None]:
    """Crop or shrink a photo, and its label maps, to a longest side."""
    rows, columns = pixels.shape[:2]
    if size is None or max(rows, columns) <= size:
        return pixels, maps, None
    share = size / max(rows, columns)
    height, width = (max(MIN_SOURCE_SIDE, round(share * side)) for side in (rows, columns))
    # A long strip can't be shrunk that far and stay in shape.
    if rng.random() < 0.5 or share * min(rows, columns) < MIN_SOURCE_SIDE:
        top = int(rng.integers(rows - height + 1))
        left = int(rng.integers(columns - width + 1))
        box = (slice(top, top + height), slice(left, left + width))
        return pixels[box], [m[box] for m in maps], {"crop": [top, left, height, width]}
    small = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    picked = np.ix_(
        ((np.arange(height) + 0.5) * rows / height).astype(int),
        ((np.arange(width) + 0.5) * columns / width).astype(int),
    )
    return small, [m[picked] for m in maps], {"shrink": [height, width]}


def _precompress(
    pixels: NDArray[np.uint8], share: float, qualities: tuple[int, int], rng: np.random.Generator
) -> tuple[NDArray[np.uint8], int | None]:
    if rng.random() >= share:
        return pixels, None
    quality = _draw_quality(qualities, rng)
    return recompress(pixels, quality), quality


def _draw_quality(qualities: tuple[int, int], rng: np.random.Generator) -> int:
    return int(rng.integers(qualities[0], qualities[1] + 1))


def split_readable(
    sources: Sequence[SourcePhoto],
    *,
    jobs: int = 1,
    progress: Callable[[float], None] | None = None,
) -> tuple[list[SourcePhoto], list[Problem]]:
    """Read every photo once, and separate those that can be used from the others."""
    checked = map_threads(_find_problem, sources, jobs=jobs, progress=progress)
    judged = list(zip(sources, checked, strict=True))
    problems = [problem for _, problem in judged if problem is not None]
    return [source for source, problem in judged if problem is None], problems


def _find_problem(source: SourcePhoto) -> Problem | None:
    found = read_source(source)
    return found if isinstance(found, Problem) else None


def read_source(
    source: SourcePhoto,
) -> tuple[NDArray[np.uint8], list[NDArray[np.integer]]] | Problem:
    """Return the pixels and the segmentations of a photo, or why it can't be used."""
    try:
        pixels = _check_photo("photo", source.read())
        segments = None if source.segments is None else source.segments()
        return pixels, _check_segments(segments, pixels.shape[:2])
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split()).removeprefix("photo ")
        # An error of the reader begins with the path, which ends with the photo's name.
        reason = re.sub(rf"^(.*[/\\])?{re.escape(source.name)}(\.\w+)?: ", "", reason)
        return Problem(source.name, reason)


@dataclass(frozen=True)
class SpliceMaker:
    """Makes any number of splices from a set of photos, each one when it is asked for.

    Splice ``i`` depends on the photos, the options, the seed and ``i`` only: not on the order
    in which splices are asked for, nor on the process.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> dark = SourcePhoto("dark", partial(np.full, (60, 80, 3), 30, np.uint8))
    >>> light = SourcePhoto("light", partial(np.full, (70, 70, 3), 220, np.uint8))
    >>> maker = SpliceMaker([dark, light], SpliceOptions.hard(), seed=1)
    >>> for sample in maker.samples(2):
    ...     print(sample.name, sample.image.shape, np.unique(sample.image[sample.mask]))
    splice00000 (60, 80, 3) [220]
    splice00001 (70, 70, 3) [30]
    """

    sources: Sequence[SourcePhoto]
    options: SpliceOptions = field(default_factory=SpliceOptions)
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", tuple(self.sources))
        if len(self.sources) < 2:
            raise ValueError(
                f"sources has {len(self.sources)} photos; at least two are needed, "
                "a host and a donor"
            )
        name, often = Counter(source.name for source in self.sources).most_common(1)[0]
        if often > 1:
            raise ValueError(f"sources has {often} photos named {name!r}; names must be unique")

    @staticmethod
    def name(index: int) -> str:
        """Return the name of a splice."""
        return f"splice{index:05d}"

    def make(self, index: int) -> Splice:
        """Return a splice; its recipe also has its name, its host's and its donor's."""
        return self._recipe(index).make()

    def sample(self, index: int) -> Sample:
        """Return a splice as a sample, which is made when its image or mask is asked for."""
        recipe = self._recipe(index)
        return Sample(self.name(index), False, recipe.image, recipe.mask)

    def samples(self, n: int) -> SampleSet:
        """Return the first samples."""
        return SampleSet("splices", tuple(self.sample(i) for i in range(n)))

    def _recipe(self, index: int) -> _Recipe:
        rng = np.random.default_rng([self.seed, index])
        host, donor = rng.choice(len(self.sources), 2, replace=False)
        return _Recipe(self.sources[host], self.sources[donor], self.options, self.seed, index)


def training_splices(sources: Sequence[SourcePhoto], n: int, *, seed: int = 0) -> SampleSet:
    """Return the mix of splices that the localizer of the package is trained on.

    Of four, one is plain cut and paste, two are the same from simulated cameras, and one has a bit
    of everything.
    """
    plain = SpliceOptions.hard()
    taken = replace(plain, camera_share=1.0)
    makers = [SpliceMaker(sources, o, seed) for o in (plain, taken, SpliceOptions(), taken)]
    return SampleSet("splices", tuple(makers[i % 4].sample(i) for i in range(n)))


# Image and mask are mostly asked for one after the other, and are made in one go.
_last = threading.local()


@dataclass(frozen=True, eq=False)
class _Recipe:
    """All that one splice needs: little to send to another process."""

    host: SourcePhoto
    donor: SourcePhoto
    options: SpliceOptions
    seed: int
    index: int

    def make(self) -> Splice:
        # The third number sets this stream apart from the one that chose the photos.
        rng = np.random.default_rng([self.seed, self.index, 1])
        segments = None if self.donor.segments is None else self.donor.segments()
        splice = make_splice(
            self.host.read(), self.donor.read(), rng, self.options, segments=segments
        )
        name, host, donor = SpliceMaker.name(self.index), self.host.name, self.donor.name
        return replace(splice, recipe={"name": name, "host": host, "donor": donor} | splice.recipe)

    def image(self) -> NDArray[np.uint8]:
        return self._make_once().image.copy()

    def mask(self) -> NDArray[np.bool_]:
        return self._make_once().mask.copy()

    def _make_once(self) -> Splice:
        if getattr(_last, "recipe", None) is not self:
            _last.splice, _last.recipe = self.make(), self
        splice: Splice = _last.splice
        return splice
