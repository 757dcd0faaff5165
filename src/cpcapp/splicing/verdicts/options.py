"""How photos are judged: every number that changes the meaning of a stored score or p-value."""

from __future__ import annotations

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
    background_quantile : float
        With a network, the strengths of squares are counted from this quantile of them, and the
        evidence for a pasted part from its median: processing that nobody has foreseen raises the
        evidence at all edges of a photo, a seam only that at some.
    min_mosaic_level : float
        Added to the mosaic's level before its logarithm is taken; below, it is noise.
    mean_width, mosaic_width, compression_width : float
        Photos are compared with similar ones: how much those may differ in the mean of the
        boundary map, in the mosaic's level and in compression, as standard deviations of a
        Gaussian weight.
    min_similar : float
        With less total weight of similar photos there is no p-value.
    min_quality : int
        Photos of a lower JPEG quality are called too compressed: 60 is the lowest quality of the
        photos that models are calibrated by.
    """

    patch_size: int = 8
    peak_quantile: float = 0.999
    background_quantile: float = 0.9
    min_mosaic_level: float = 0.02
    mean_width: float = 1.0
    mosaic_width: float = 0.7
    compression_width: float = 0.25
    min_similar: float = 4.0
    min_quality: int = 60

    def __post_init__(self) -> None:
        for name, low, high in (
            ("patch_size", 2, 256),
            ("peak_quantile", 0.0, 1.0),
            ("background_quantile", 0.0, 1.0),
            ("min_mosaic_level", 1e-6, 10.0),
            ("mean_width", 1e-3, 1e3),
            ("mosaic_width", 1e-3, 1e3),
            ("compression_width", 1e-3, 1e3),
            ("min_similar", 1.5, 1e6),
            ("min_quality", 1, 100),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name}={value} must be from {low:g} to {high:g}")

    @property
    def widths(self) -> tuple[float, float, float]:
        """In the order of `cpcapp.splicing.verdicts.features.PhotoFeatures.similarity_features`."""
        return self.mean_width, self.mosaic_width, self.compression_width
