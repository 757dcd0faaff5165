"""How regions are sought: every number that changes what is found."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cpcapp._io.ranges import check_ranges, ranged


@dataclass(frozen=True)
class RegionOptions:
    """Settings of the search for the pasted part.

    Where no other origin is given, a value was set by hand and not tuned.

    Attributes
    ----------
    max_pixels : int
        Larger photos are made smaller first: regions are not about single pixels.
    superpixel_spacing : int
        Pixels from one superpixel to the next.
    compactness : float
        How much nearness counts beside likeness of colour in a superpixel.
    iterations : int
        Of the clustering that makes superpixels.
    min_superpixel_percent : int
        Superpixels that end up smaller than this share of the mean size join a neighbour.
    colour_smoothing : float
        Standard deviation of the blur before clustering, in pixels.
    statistics_step : int
        The mosaic's statistics are read at every so many pixels; their windows are far wider.
    n_statistics : int
        How many main directions of the mosaic's statistics are kept.
    max_deviation : float
        Statistics are clipped at so many robust standard deviations.
    prior : float
        Subtracted from the evidence of each border pixel: most borders are no seam.
    trim_per_pixel : float
        See `cpcapp.splicing.decide.cut.best_cut`.
    mosaic_weight, trace_weight : float
        Of a pixel of the mosaic's statistics and of the learned traces, against one of the seam;
        see `cpcapp.splicing.decide.sides.SideStatistics`. That of the traces finds most of made
        splices and least of genuine photos: benchmarks/results/trace_background.json.
    seam_length_factor : float
        Seams of made splices are 1 to 2.3 times as long as the square root of the photo's pixels.
        Some other borders are as strong: this many times that root was best on made splices, of
        1, 2, 4 and 8.
    min_strength_unit : float
        The unit of relative strength is at least this: a map that is 0 nearly everywhere has no
        scale.
    certainty_evidence : float
        Evidence for the side of a superpixel, in log-likelihood, at which its certainty is 1 - 1/e.
    reference_pixels : int
        Size of a photo for which the weight of the learned traces is given; it falls with the
        square root of the size.
    min_side_odds : float
        Logarithm of the odds by which the network must prefer one of two sides to decide which of
        them was pasted.
    border_sigma : float
        Pixels to either side of the region's border in which the boundary map is emphasised.
    border_offset : float
        What the border adds there by itself.
    far_weight : float
        What is left of the boundary map far from the border.
    odds_share : float
        With a network: its share in how certain the region is of each pixel. Made splices gain by
        it (best F1 .912 to .926), and can't tell .25, .5 and .75 apart.
    n_trace_filters : int
        How many directions of the learned traces tell two sides apart.
    own_pixels : int
        Size of a photo that is itself half of the background that its traces are contrasted with.
        Of made splices the region is the same from a million to this one, and genuine photos are
        told from them best: benchmarks/results/trace_background.json.
    """

    max_pixels: int = ranged(1_200_000, 4096, 1 << 28)
    superpixel_spacing: int = ranged(16, 4, 256)
    compactness: float = ranged(15.0, 0.1, 1e4)
    iterations: int = ranged(5, 1, 100)
    min_superpixel_percent: int = ranged(25, 0, 100)
    colour_smoothing: float = ranged(1.0, 0.1, 20.0)
    statistics_step: int = ranged(4, 1, 64)
    n_statistics: int = ranged(6, 1, 12)
    max_deviation: float = ranged(6.0, 0.1, 1e3)
    prior: float = ranged(1.0, -100.0, 100.0)
    trim_per_pixel: float = ranged(1.25, 0.0, 100.0)
    mosaic_weight: float = ranged(0.02, 0.0, 100.0)
    trace_weight: float = ranged(0.01, 0.0, 100.0)
    seam_length_factor: float = ranged(4.0, 0.01, 1e3)
    min_strength_unit: float = ranged(0.01, 1e-6, 1.0)
    certainty_evidence: float = ranged(40.0, 1e-3, 1e6)
    reference_pixels: int = ranged(150_000, 1, 1 << 30)
    min_side_odds: float = ranged(1.0, 0.0, 1e3)
    border_sigma: float = ranged(3.0, 0.1, 100.0)
    border_offset: float = ranged(0.05, 1e-6, 1.0)
    far_weight: float = ranged(0.15, 0.0, 1.0)
    odds_share: float = ranged(0.5, 0.0, 1.0)
    n_trace_filters: int = ranged(6, 1, 64)
    own_pixels: int = ranged(100_000, 1, 1 << 30)

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class VerdictOptions:
    """Settings of score and p-value.

    Where no other origin is given, a value was set by hand and not tuned.

    Attributes
    ----------
    patch_size : int
        Side of the squares whose strengths are compared, in pixels.
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
    min_quality : int
        Photos of a lower JPEG quality are called too compressed: 60 is the lowest quality of the
        photos that models are calibrated by.
    """

    patch_size: int = ranged(8, 2, 256)
    peak_quantile: float = ranged(0.999, 0.0, 1.0)
    outline_length: float = ranged(12.0, 0.0, 1e3)
    min_mosaic_level: float = ranged(0.02, 1e-6, 10.0)
    min_quality: int = ranged(60, 1, 100)

    def __post_init__(self) -> None:
        check_ranges(self)

    def background_quantile(self, n_squares: int) -> float:
        """Return the share of a photo's squares that make up its level.

        Edges of a length of L sides cross L √n of n squares, which is a share of L / √n: a small
        photo consists of edges to a larger part. At least half of the squares count.

        >>> VerdictOptions(outline_length=12.0).background_quantile(6400)
        0.85
        """
        return 1.0 - min(0.5, self.outline_length / math.sqrt(n_squares))
