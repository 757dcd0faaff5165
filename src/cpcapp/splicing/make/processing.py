"""Processing that photos went through before they are seen: resizing and sharpening."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.sources import SourcePhoto

INTERPOLATION = {
    "linear": cv2.INTER_LINEAR,
    "cubic": cv2.INTER_CUBIC,
    "lanczos": cv2.INTER_LANCZOS4,
    "area": cv2.INTER_AREA,
}
# Of crisp photos: their share, and the ranges of size and sharpening. Set by hand.
_CRISP_SHARE = 0.2
_CRISP = ((0.45, 0.8), (1.0, 2.5))


@dataclass(frozen=True)
class Processing:
    """How a photo is processed.

    Attributes
    ----------
    size : float
        By how much its sides get longer.
    interpolation : {"linear", "cubic", "lanczos", "area"}
    sharpening : float
        How much of the difference to a blurred copy is added.
    radius : float
        Of the blur, in pixels.
    defocus : float
        Standard deviation of a blur, in pixels, that comes and goes over the photo, as where a lens
        is out of focus; 0 for none.
    focus : int
        Seed that decides where.
    """

    size: float = 1.0
    interpolation: str = "cubic"
    sharpening: float = 0.0
    radius: float = 1.0
    defocus: float = 0.0
    focus: int = 0

    def __post_init__(self) -> None:
        if self.interpolation not in INTERPOLATION:
            raise ValueError(
                f"interpolation={self.interpolation!r} must be one of {', '.join(INTERPOLATION)}"
            )
        for name, lowest, highest in (
            ("size", 0.1, 10.0),
            ("sharpening", 0.0, 10.0),
            ("radius", 0.1, 10.0),
            ("defocus", 0.0, 10.0),
        ):
            value = getattr(self, name)
            if not lowest <= value <= highest:
                raise ValueError(f"{name}={value} must be from {lowest} to {highest}")

    @classmethod
    def random(cls, rng: np.random.Generator, size: tuple[float, float] = (0.8, 2.3)) -> Processing:
        """Draw one at random: four of five are resized, a third sharpened, a third out of focus.

        One in five is crisp, as small photos of cameras are: made much smaller, and sharpened
        until edges have halos.
        """
        resized, sharpened = rng.random(2) < (0.8, 0.35)
        ranges = np.log([size, (0.2, 1.0), (0.7, 1.5)])
        longer, sharpening, radius = np.exp(rng.uniform(*ranges.T)).tolist()
        interpolation = list(INTERPOLATION)[rng.integers(len(INTERPOLATION))]
        defocused, defocus, focus = (
            rng.random() < 0.35,
            rng.uniform(0.6, 2.0),
            rng.integers(1 << 30),
        )
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
        """Return the photo, processed.

        >>> import numpy as np
        >>> Processing(size=1.5).apply(np.zeros((40, 60, 3), dtype=np.uint8)).shape
        (60, 90, 3)
        """
        if self.size != 1.0:
            size = self._shape(photo.shape)[::-1]
            photo = cv2.resize(photo, size, interpolation=INTERPOLATION[self.interpolation])
        if self.defocus:
            photo = _defocus(photo, self.defocus, self.focus)
        if self.sharpening:
            blurred = cv2.GaussianBlur(photo, (0, 0), self.radius)
            photo = cv2.addWeighted(photo, 1.0 + self.sharpening, blurred, -self.sharpening, 0.0)
        return np.asarray(photo)

    def apply_to_mask(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Return a mask or labels of the photo, resized in the same way."""
        rows, cols = (
            np.arange(there) * here // there
            for here, there in zip(labels.shape, self._shape(labels.shape), strict=True)
        )
        return labels[np.ix_(rows, cols)]

    def process_source(self, source: SourcePhoto) -> SourcePhoto:
        """Return a source whose photo and segments are processed when they are read."""
        segments = None if source.segments is None else partial(_read_segments, self, source)
        return SourcePhoto(source.name, partial(_read_processed, self, source), segments)

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


def _read_processed(processing: Processing, source: SourcePhoto) -> NDArray[Any]:
    return processing.apply(source.read())


def _read_segments(processing: Processing, source: SourcePhoto) -> list[NDArray[np.integer]]:
    assert source.segments is not None
    return [processing.apply_to_mask(labels) for labels in source.segments()]
