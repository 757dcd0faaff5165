"""How photos are judged: every number that changes the meaning of a stored score or p-value."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class VerdictOptions:
    """Settings of score and p-value.

    Where no other origin is given, a value was set by hand and not tuned.

    Attributes
    ----------
    patch_size : int
        Side of the squares that hot spots are made of, in pixels.
    peak_quantile : float
        The peak of a photo is this quantile of its squares: a maximum would rise with the photo's
        size.
    outline_length : float
        How long the edges of a photo are together, in sides of the photo. With a network, the
        strengths of squares are counted from the photo's own level, which is that of all squares
        but those on its edges, and the evidence for a pasted part from its median: processing that
        nobody has foreseen raises the evidence all over a photo, a seam only at some edges. Of 3
        to 24, 12 told made splices from untouched photos best, by little.
    min_mosaic_level : float
        Added to the mosaic's level before its logarithm is taken; below, it is noise.
    mean_width, mosaic_width, compression_width : float
        Photos are compared with similar ones: how much those may differ in the mean of the
        boundary map, in the mosaic's level and in compression, as standard deviations of a
        Gaussian weight.
    min_similar : float
        With less total weight of similar photos there is no p-value.
    collection_spread : float
        How much more the scores of another collection of photos vary than those of the photos that
        a model was calibrated by: z-scores are divided by it before the p-value is taken. That of
        the default model is the smallest with which at most 5 % of genuine photos raise an alarm
        when their whole collection is left out of the calibration, at 80 % confidence:
        benchmarks/results/collection_spread.json.
    min_quality : int
        Photos of a lower JPEG quality are called too compressed: 60 is the lowest quality of the
        photos that models are calibrated by.
    """

    patch_size: int = 8
    peak_quantile: float = 0.999
    outline_length: float = 12.0
    min_mosaic_level: float = 0.02
    mean_width: float = 1.0
    mosaic_width: float = 0.7
    compression_width: float = 0.25
    min_similar: float = 4.0
    collection_spread: float = 1.0
    min_quality: int = 60

    def __post_init__(self) -> None:
        for name, low, high in (
            ("patch_size", 2, 256),
            ("peak_quantile", 0.0, 1.0),
            ("outline_length", 0.0, 1e3),
            ("min_mosaic_level", 1e-6, 10.0),
            ("mean_width", 1e-3, 1e3),
            ("mosaic_width", 1e-3, 1e3),
            ("compression_width", 1e-3, 1e3),
            ("min_similar", 1.5, 1e6),
            ("collection_spread", 1.0, 100.0),
            ("min_quality", 1, 100),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name}={value} must be from {low:g} to {high:g}")

    def background_quantile(self, n_squares: int) -> float:
        """Return the share of a photo's squares that make up its level.

        Edges of a length of L sides cross L √n of n squares, which is a share of L / √n: a small
        photo consists of edges to a larger part. At least half of the squares count.

        >>> VerdictOptions(outline_length=12.0).background_quantile(6400)
        0.85
        """
        return 1.0 - min(0.5, self.outline_length / math.sqrt(n_squares))

    @property
    def widths(self) -> tuple[float, float, float]:
        """In the order of `cpcapp.splicing.decide.features.PhotoFeatures.similarity_features`."""
        return self.mean_width, self.mosaic_width, self.compression_width
