"""How regions are sought: every number that changes what is found."""

from __future__ import annotations

from dataclasses import dataclass


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
    odds_sigma, odds_emphasis : float
        With a network: pixels to either side of the border in which the odds of a seam are raised,
        and by how much their logarithm is raised there and lowered far away. Best on made splices,
        of 5 and 8 pixels and of 1, 2 and 3.
    odds_share : float
        With a network: its share in how certain the region is of each pixel. Made splices gain by
        it (best F1 .912 to .926), and can't tell .25, .5 and .75 apart.
    odds_offset : float
        Subtracted from the logarithm of the odds: with it, a half is about the best threshold on
        made splices. Seams weigh three times as much in the network's training.
    """

    max_pixels: int = 1_200_000
    superpixel_spacing: int = 16
    compactness: float = 15.0
    iterations: int = 5
    min_superpixel_percent: int = 25
    colour_smoothing: float = 1.0
    statistics_step: int = 4
    n_statistics: int = 6
    max_deviation: float = 6.0
    seam_length_factor: float = 4.0
    min_strength_unit: float = 0.01
    certainty_evidence: float = 40.0
    reference_pixels: int = 150_000
    min_side_odds: float = 1.0
    border_sigma: float = 3.0
    border_offset: float = 0.05
    far_weight: float = 0.15
    odds_sigma: float = 5.0
    odds_emphasis: float = 2.0
    odds_share: float = 0.5
    odds_offset: float = 0.3

    def __post_init__(self) -> None:
        for name, low, high in (
            ("max_pixels", 4096, 1 << 28),
            ("superpixel_spacing", 4, 256),
            ("compactness", 0.1, 1e4),
            ("iterations", 1, 100),
            ("min_superpixel_percent", 0, 100),
            ("colour_smoothing", 0.1, 20.0),
            ("statistics_step", 1, 64),
            ("n_statistics", 1, 12),
            ("max_deviation", 0.1, 1e3),
            ("seam_length_factor", 0.01, 1e3),
            ("min_strength_unit", 1e-6, 1.0),
            ("certainty_evidence", 1e-3, 1e6),
            ("reference_pixels", 1, 1 << 30),
            ("min_side_odds", 0.0, 1e3),
            ("border_sigma", 0.1, 100.0),
            ("border_offset", 1e-6, 1.0),
            ("far_weight", 0.0, 1.0),
            ("odds_sigma", 0.1, 100.0),
            ("odds_emphasis", 0.0, 100.0),
            ("odds_share", 0.0, 1.0),
            ("odds_offset", -100.0, 100.0),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name}={value} must be from {low:g} to {high:g}")
