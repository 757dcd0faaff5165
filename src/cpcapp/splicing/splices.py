"""Making spliced photos whose masks are exact: for training, and for measuring robustness."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cpcapp.splicing._cuts import LEAST_SIDE, Cut, SpliceOptions, between, draw_cut
from cpcapp.splicing.cameras import Camera
from cpcapp.splicing.edges.bsds import BSDSPhoto, bsds_photos
from cpcapp.splicing.images import image_files, read_image
from cpcapp.splicing.samples import Problem, Sample, SampleSet
from cpcapp.splicing.shapes import lift, shifted, tight

__all__ = [
    "LEAST_SIDE",
    "SourcePhoto",
    "Splice",
    "SpliceMaker",
    "SpliceOptions",
    "bsds_sources",
    "encode_jpeg",
    "make_splice",
    "photos_from",
    "readable",
    "recompress",
    "training_splices",
]

_LEAST_PIXELS = 16


@dataclass(frozen=True)
class Splice:
    """A spliced photo.

    Attributes
    ----------
    image : ndarray of shape (height, width, 3), uint8
    mask : ndarray of shape (height, width), bool
        The pasted part: where ``alpha`` is at least a half.
    alpha : ndarray of shape (height, width), float32
        The donor's weight in each pixel. Where it is 0, the host is as it was (up to JPEG).
    recipe : dict
        What was drawn, in types that JSON knows. Pixel (x, y) shows the donor's pixel
        ``donor_map @ (x, y, 1)``.
    jpeg : bytes, optional
        If the photo was compressed in the end: the file, whose pixels are ``image``.
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

    Parameters
    ----------
    host, donor : array-like of shape (height, width, 3), uint8 or uint16
        RGB, of any two sizes. They are not changed.
    rng : numpy.random.Generator
        All that is random comes from here.
    options : SpliceOptions, optional
    segments : sequence of ndarray of shape of the donor, int, optional
        Segmentations of the donor: the number of the thing that each pixel belongs to.

    Returns
    -------
    Splice
        Of the size of the host, unless ``options.size`` is less.

    Examples
    --------
    >>> import numpy as np
    >>> host = np.full((120, 160, 3), 90, dtype=np.uint8)
    >>> donor = np.full((100, 200, 3), 200, dtype=np.uint8)
    >>> splice = make_splice(host, donor, np.random.default_rng(0), SpliceOptions.hard())
    >>> splice.image.shape, splice.mask.shape
    ((120, 160, 3), (120, 160))
    >>> np.unique(splice.image[splice.mask]), np.unique(splice.image[~splice.mask])
    (array([200], dtype=uint8), array([90], dtype=uint8))
    >>> 0.02 <= splice.recipe["area"] <= 0.35
    True
    """
    options = options or SpliceOptions()
    below, above = _pixels("host", host), _pixels("donor", donor)
    maps = _label_maps(segments, above.shape[:2])
    below, _, host_fit = _fit(below, [], options.size, rng)
    above, maps, donor_fit = _fit(above, maps, options.size, rng)
    below, above, cameras = _taken(below, above, options.camera_share, rng)
    below, host_jpeg = _history(below, options.host_jpeg_share, options.host_jpeg, rng)
    above, donor_jpeg = _history(above, options.donor_jpeg_share, options.donor_jpeg, rng)
    if options.area[0] * below[..., 0].size < _LEAST_PIXELS:
        raise ValueError(
            f"area={options.area!r} of a host of {below.shape[1]}x{below.shape[0]} pixels is less "
            f"than {_LEAST_PIXELS} pixels; take larger photos or areas"
        )

    cut, alpha, feather = draw_cut(below.shape[:2], above.shape[:2], maps, options, rng)
    strength = 0.0
    if rng.random() < options.colour_match_share:
        strength = between(options.colour_match, rng)
    image = _pasted(below, above, cut, alpha, strength)
    quality, jpeg = None, None
    if rng.random() < options.jpeg_share:
        quality = _quality(options.jpeg, rng)
        jpeg = encode_jpeg(image, quality)
        image = _decode(jpeg)
    mask = alpha >= 0.5
    box, top, left = tight(mask)
    edge = np.concatenate([mask[0], mask[-1], mask[:, 0], mask[:, -1]])
    recipe = {
        "shape": cut.kind,
        **cut.details,
        "area": round(float(mask.mean()), 6),
        "box": [top, left, *box.shape],
        "reaches_border": bool(edge.any()),
        "flip": cut.move.flip,
        "scale": round(cut.move.scale, 4),
        "rotate": round(cut.move.rotate, 4),
        "donor_map": shifted(cut.affine, -cut.top, -cut.left).round(6).tolist(),
        "interpolation": None if cut.move.exact else cut.move.interpolation,
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


def _pasted(
    host: NDArray[np.uint8],
    donor: NDArray[np.uint8],
    cut: Cut,
    alpha: NDArray[np.float32],
    strength: float,
) -> NDArray[np.uint8]:
    image = host.copy()
    seen, top, left = tight(alpha > 0)
    box = (slice(top, top + seen.shape[0]), slice(left, left + seen.shape[1]))
    affine = shifted(cut.affine, top - cut.top, left - cut.left)
    patch = lift(donor, affine, (seen.shape[0], seen.shape[1]), cut.move)
    if strength:
        patch = _matched(patch, host[box], alpha[box] >= 0.5, strength)
    weight = alpha[box][..., None]
    # Where the weight is 0 or 1 this is exact: whole numbers stay whole in float32.
    mixed = host[box] + weight * (patch.astype(np.float32) - host[box])
    image[box] = np.rint(mixed).astype(np.uint8)
    return image


def _matched(
    patch: NDArray[np.uint8],
    place: NDArray[np.uint8],
    region: NDArray[np.bool_],
    strength: float,
) -> NDArray[np.uint8]:
    """Draw the colours of a patch towards the mean and spread of the place it covers."""
    ours, theirs = (
        cv2.cvtColor(p.astype(np.float32) / np.float32(255), cv2.COLOR_RGB2Lab)
        for p in (patch, place)
    )
    mean, spread = ours[region].mean(axis=0), ours[region].std(axis=0)
    # Without limits, a flat patch of sky would become a picture of its own noise.
    gain = np.clip(theirs.std(axis=(0, 1)) / np.maximum(spread, 1e-3), 0.5, 2.0)
    wanted = (ours - mean) * gain + theirs.mean(axis=(0, 1))
    mixed = (ours + np.float32(strength) * (wanted - ours)).astype(np.float32)
    shown = cv2.cvtColor(mixed, cv2.COLOR_Lab2RGB)
    return np.asarray(np.rint(255 * np.clip(shown, 0, 1)), dtype=np.uint8)


def recompress(pixels: ArrayLike, quality: int) -> NDArray[np.uint8]:
    """Return what is left of a photo after JPEG.

    Parameters
    ----------
    pixels : array-like of shape (height, width, 3), uint8 or uint16
        RGB.
    quality : int
        From 1 to 100.

    Returns
    -------
    ndarray of shape (height, width, 3), uint8

    Examples
    --------
    >>> import numpy as np
    >>> photo = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    >>> errors = [np.abs(recompress(photo, q) - photo.astype(float)).mean() for q in (95, 50)]
    >>> bool(0 < errors[0] < errors[1])
    True
    """
    return _decode(encode_jpeg(_pixels("pixels", pixels), quality))


def encode_jpeg(pixels: NDArray[np.uint8], quality: int) -> bytes:
    """Return a photo as a JPEG file.

    Parameters
    ----------
    pixels : ndarray of shape (height, width, 3), uint8
        RGB.
    quality : int
        From 1 to 100.

    Returns
    -------
    bytes

    Examples
    --------
    >>> import numpy as np
    >>> b"JFIF" in encode_jpeg(np.zeros((8, 8, 3), dtype=np.uint8), quality=90)
    True
    """
    if not 1 <= quality <= 100:
        raise ValueError(f"quality={quality!r} must be from 1 to 100")
    settings = [cv2.IMWRITE_JPEG_QUALITY, int(quality)]
    _, data = cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), settings)
    return bytes(data)


def _decode(data: bytes) -> NDArray[np.uint8]:
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    return np.asarray(cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB))


def _pixels(name: str, value: ArrayLike) -> NDArray[np.uint8]:
    array = np.asarray(value)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype not in (np.uint8, np.uint16):
        raise ValueError(
            f"{name} of shape {array.shape} and type {array.dtype} must be an RGB photo: "
            "(height, width, 3), uint8 or uint16"
        )
    if name != "pixels" and min(array.shape[:2]) < LEAST_SIDE:
        raise ValueError(
            f"{name} of {array.shape[1]}x{array.shape[0]} pixels is too small: "
            f"at least {LEAST_SIDE}x{LEAST_SIDE} are needed"
        )
    if array.dtype == np.uint16:
        return np.asarray((array.astype(np.uint32) + 128) // 257, dtype=np.uint8)
    return array.astype(np.uint8, copy=False)


def _label_maps(
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


def _fit(
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
    height, width = (max(LEAST_SIDE, round(share * side)) for side in (rows, columns))
    # A long strip can't be shrunk that far and stay in shape.
    if rng.random() < 0.5 or share * min(rows, columns) < LEAST_SIDE:
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


def _taken(
    host: NDArray[np.uint8], donor: NDArray[np.uint8], share: float, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], dict[str, Any] | None]:
    """Take both photos again, each with a camera of its own."""
    if rng.random() >= share:
        return host, donor, None
    first, second = Camera.random(rng), Camera.random(rng)
    cameras = {"host": first.to_dict(), "donor": second.to_dict()}
    return first.shoot(host, rng), second.shoot(donor, rng), cameras


def _history(
    pixels: NDArray[np.uint8], share: float, qualities: tuple[int, int], rng: np.random.Generator
) -> tuple[NDArray[np.uint8], int | None]:
    if rng.random() >= share:
        return pixels, None
    quality = _quality(qualities, rng)
    return recompress(pixels, quality), quality


def _quality(qualities: tuple[int, int], rng: np.random.Generator) -> int:
    return int(rng.integers(qualities[0], qualities[1] + 1))


@dataclass(frozen=True)
class SourcePhoto:
    """A photo to make splices of, read when asked for.

    Attributes
    ----------
    name : str
        Unique among the photos that are used together.
    read : callable
        Returns the pixels, (height, width, 3), uint8 or uint16. A module's function or a
        `functools.partial` of one, so that it can be sent to other processes.
    segments : callable, optional
        Returns a list of segmentations, each (height, width), int.
    """

    name: str
    read: Callable[[], NDArray[np.uint8] | NDArray[np.uint16]] = field(repr=False)
    segments: Callable[[], Sequence[NDArray[np.integer]]] | None = field(default=None, repr=False)


def photos_from(paths: Sequence[str | Path]) -> list[SourcePhoto]:
    """Return the photos in some files and folders.

    Parameters
    ----------
    paths : sequence of path
        As for `cpcapp.splicing.images.image_files`.

    Returns
    -------
    list of SourcePhoto
        Named after their files; of files with the same name, by the whole path.

    Examples
    --------
    >>> import pathlib, tempfile, cv2, numpy as np
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> cv2.imwrite(str(folder / "grey.png"), np.full((40, 50, 3), 128, np.uint8))
    True
    >>> photo, = photos_from([folder])
    >>> photo.name, photo.read().shape
    ('grey.png', (40, 50, 3))
    """
    files = image_files(paths)
    known = Counter(file.name for file in files)
    return [
        SourcePhoto(
            file.name if known[file.name] == 1 else file.as_posix(), partial(_read_file, file)
        )
        for file in files
    ]


def bsds_sources(folder: str | Path, splits: Sequence[str] = ("train", "val")) -> list[SourcePhoto]:
    """Return the photos of BSDS500 with what people outlined in them.

    Parameters
    ----------
    folder : path
        With the folders ``images`` and ``groundTruth``.
    splits : sequence of {"train", "val", "test"}
        The test photos are for scoring edges and stay out, unless asked for.

    Returns
    -------
    list of SourcePhoto
        Named like ``train/100075``.
    """
    return [
        SourcePhoto(
            f"{photo.image_path.parent.name}/{photo.name}",
            partial(_read_file, photo.image_path),
            partial(BSDSPhoto.segmentations, photo),
        )
        for photo in bsds_photos(folder, splits)
    ]


def _read_file(path: Path) -> NDArray[np.uint8] | NDArray[np.uint16]:
    return read_image(path).pixels


def readable(
    sources: Sequence[SourcePhoto],
    *,
    n_jobs: int = 1,
    progress: Callable[[float], None] | None = None,
) -> tuple[list[SourcePhoto], list[Problem]]:
    """Read every photo once, and tell the good ones from the others.

    Parameters
    ----------
    sources : sequence of SourcePhoto
    n_jobs : int
        Photos read at the same time.
    progress : callable, optional
        Called with the share done, from 0 to 1.

    Returns
    -------
    photos : list of SourcePhoto
        Those that a splice can be made of.
    problems : list of Problem
        What is wrong with the others.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> good = SourcePhoto("good", partial(np.zeros, (40, 40, 3), np.uint8))
    >>> small = SourcePhoto("small", partial(np.zeros, (4, 4, 3), np.uint8))
    >>> photos, problems = readable([good, small])
    >>> photos
    [SourcePhoto(name='good')]
    >>> print(problems[0])
    small: of 4x4 pixels is too small: at least 32x32 are needed
    """
    photos, problems = [], []
    with ThreadPoolExecutor(n_jobs) as pool:
        jobs = [pool.submit(_reason_against, source) for source in sources]
        try:
            for done, (source, job) in enumerate(zip(sources, jobs, strict=True), start=1):
                reason = job.result()
                if reason is None:
                    photos.append(source)
                else:
                    problems.append(Problem(source.name, reason))
                if progress is not None:
                    progress(done / len(sources))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return photos, problems


def _reason_against(source: SourcePhoto) -> str | None:
    try:
        shape = _pixels("photo", source.read()).shape[:2]
        if source.segments is not None:
            _label_maps(source.segments(), shape)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split()).removeprefix("photo ")
        # An error of the reader begins with the path, which ends with the photo's name.
        return re.sub(rf"^(.*[/\\])?{re.escape(source.name)}(\.\w+)?: ", "", reason)
    return None


@dataclass(frozen=True)
class SpliceMaker:
    """Makes any number of splices from a set of photos, each one when it is asked for.

    Splice ``i`` depends on the photos, the options, the seed and ``i`` only: not on the order
    in which splices are asked for, nor on the process.

    Parameters
    ----------
    sources : sequence of SourcePhoto
        At least two.
    options : SpliceOptions, optional
    seed : int

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
        if self.seed < 0:
            raise ValueError(f"seed={self.seed!r} must be at least 0")

    @staticmethod
    def name(index: int) -> str:
        """Return the name of a splice."""
        return f"splice{index:05d}"

    def make(self, index: int) -> Splice:
        """Return a splice; its recipe also has its name, its host's and its donor's."""
        return _make(self._order(index))

    def sample(self, index: int) -> Sample:
        """Return a splice as a sample, which is made when its image or mask is asked for."""
        order = self._order(index)
        return Sample(self.name(index), False, partial(_image, order), partial(_mask, order))

    def samples(self, n: int, *, start: int = 0) -> SampleSet:
        """Return the samples ``start`` to ``start + n``."""
        return SampleSet("splices", tuple(self.sample(i) for i in range(start, start + n)))

    def _order(self, index: int) -> _Order:
        if index < 0:
            raise ValueError(f"index={index} must be at least 0")
        rng = np.random.default_rng([self.seed, index])
        host, donor = rng.choice(len(self.sources), 2, replace=False)
        return _Order(self.sources[host], self.sources[donor], self.options, self.seed, index)


def training_splices(sources: Sequence[SourcePhoto], n: int, *, seed: int = 0) -> SampleSet:
    """Return the mix of splices that the localizer of the package is trained on.

    Of four, one is plain cut and paste, two are the same from simulated cameras, and one has a bit
    of everything.

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
    >>> len(training_splices([dark, light], 10))
    10
    """
    plain = SpliceOptions.hard()
    taken = replace(plain, camera_share=1.0)
    makers = [SpliceMaker(sources, o, seed) for o in (plain, taken, SpliceOptions.varied(), taken)]
    return SampleSet("splices", tuple(makers[i % 4].sample(i) for i in range(n)))


@dataclass(frozen=True, eq=False)
class _Order:
    """All that one splice needs: little to send to another process."""

    host: SourcePhoto
    donor: SourcePhoto
    options: SpliceOptions
    seed: int
    index: int


def _make(order: _Order) -> Splice:
    # The third number sets this stream apart from the one that chose the photos.
    rng = np.random.default_rng([order.seed, order.index, 1])
    segments = None if order.donor.segments is None else order.donor.segments()
    splice = make_splice(
        order.host.read(), order.donor.read(), rng, order.options, segments=segments
    )
    names = {
        "name": SpliceMaker.name(order.index),
        "host": order.host.name,
        "donor": order.donor.name,
    }
    return replace(splice, recipe={**names, **splice.recipe})


# Image and mask are mostly asked for one after the other, and are made in one go.
_last = threading.local()


def _made(order: _Order) -> Splice:
    if getattr(_last, "order", None) is not order:
        _last.splice = _make(order)
        _last.order = order
    splice: Splice = _last.splice
    return splice


def _image(order: _Order) -> NDArray[np.uint8]:
    return _made(order).image.copy()


def _mask(order: _Order) -> NDArray[np.bool_]:
    return _made(order).mask.copy()
