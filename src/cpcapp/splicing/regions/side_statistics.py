"""Evidence that the two sides of a cut differ: the statistics of the mosaic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpcapp.splicing.photos.pixels import FloatArray
from cpcapp.splicing.regions.borders import Side
from cpcapp.splicing.regions.options import RegionOptions
from cpcapp.splicing.regions.superpixels import Labels
from cpcapp.splicing.traces.mosaic import MosaicTrace

# The statistics explain at most this share of their own variance: no evidence is infinite.
_MAX_EXPLAINED = 0.999


@dataclass(frozen=True)
class SideStatistics:
    """Sums of the statistics of each superpixel, in units of their spread over the photo.

    Attributes
    ----------
    total : ndarray of shape (count, n_statistics)
        Sums over pixels of statistics with mean 0 and covariance I over the photo.
    pixels : ndarray of shape (count,)
        How many pixels were summed.
    """

    total: FloatArray
    pixels: FloatArray

    def gain(self, total: FloatArray, pixels: FloatArray) -> FloatArray:
        """Return the evidence for two means of candidates, given the sums inside each.

        With covariance I, ``det(S_within) = 1 - p(1-p)|d|²`` for the shares ``p`` and ``1-p`` of
        the two sides and the difference ``d`` of their means.
        """
        n = self.pixels.sum()
        rest = n - pixels
        possible = (pixels > 0.0) & (rest > 0.0)
        inside, outside = (np.where(possible, k, 1.0)[:, None] for k in (pixels, rest))
        apart = total / inside - (self.total.sum(axis=0) - total) / outside
        explained = pixels * rest / max(n, 1.0) ** 2 * (apart**2).sum(axis=1)
        gain = -0.5 * n * np.log1p(-np.minimum(explained, _MAX_EXPLAINED))
        return np.asarray(np.where(possible, gain, 0.0))

    def evidence(self, side: Side) -> float:
        """Return the evidence for two means, one on each side."""
        inside = self.total[side].sum(axis=0)[None], self.pixels[side].sum()[None]
        return float(self.gain(*inside)[0])

    def preference(self, side: Side) -> FloatArray:
        """Return for each superpixel how much better it fits inside than outside.

        The log-likelihood ratio of two Gaussians with the means of the sides and the covariance
        within them, ``S = I - p(1-p) ddᵀ``, whose inverse is ``I + p(1-p) ddᵀ/(1 - p(1-p)|d|²)``.
        """
        n, inside = self.pixels.sum(), self.pixels[side].sum()
        if inside <= 0.0 or inside >= n:
            return np.zeros(len(side))
        mean_in = self.total[side].sum(axis=0) / inside
        mean_out = self.total[~side].sum(axis=0) / (n - inside)
        apart = mean_in - mean_out
        shares = inside * (n - inside) / n**2
        explained = min(shares * (apart @ apart), _MAX_EXPLAINED)
        weights = apart * (1.0 + shares * (apart @ apart) / (1.0 - explained))
        return np.asarray(self.total @ weights - self.pixels * (weights @ (mean_in + mean_out) / 2))


# Fewer windows say nothing of a spread.
_MIN_WINDOWS = 50


def side_statistics(
    trace: MosaicTrace | None,
    labels: Labels,
    count: int,
    options: RegionOptions | None = None,
) -> SideStatistics:
    """Sum the statistics of the mosaic over superpixels.

    They are scaled by their median deviation, clipped, and projected to their main directions,
    each with variance 1 over the photo.

    Parameters
    ----------
    trace : MosaicTrace or None
    labels : ndarray of shape (height, width), int32
        Superpixels of the photo or of a smaller copy.
    count : int
        Superpixels.
    options : RegionOptions, optional

    Returns
    -------
    SideStatistics
        Without any if no mosaic shows.
    """
    options = options or RegionOptions()
    nothing = SideStatistics(np.zeros((count, 1)), np.zeros(count))
    if trace is None or trace.usable.size == 0:
        return nothing
    step = options.statistics_step
    height, width = labels.shape
    rows, cols = np.arange(0, height, step), np.arange(0, width, step)
    cells = np.ix_(
        *(
            np.minimum((at * there) // here, there - 1)
            for at, here, there in zip((rows, cols), labels.shape, trace.usable.shape, strict=True)
        )
    )
    values = np.stack([plane[cells] for plane in trace.statistics], axis=-1).astype(np.float64)
    usable = trace.usable[cells]
    if usable.sum() < _MIN_WINDOWS:
        return nothing
    whitened = _whiten(values[usable], options)
    if not whitened.shape[1]:  # the same everywhere: a flat photo
        return nothing
    where = labels[np.ix_(rows, cols)][usable]
    area = float(step**2)
    pixels = np.asarray(np.bincount(where, minlength=count) * area, dtype=np.float64)
    total = np.stack([np.bincount(where, column, minlength=count) for column in whitened.T], axis=1)
    return SideStatistics(np.asarray(total * area, dtype=np.float64), pixels)


def _whiten(values: FloatArray, options: RegionOptions) -> FloatArray:
    median = np.median(values, axis=0)
    # 1.48 times the median deviation is the standard deviation of normal values.
    spread = 1.48 * np.median(np.abs(values - median), axis=0) + 1e-3
    values = np.clip((values - median) / spread, -options.max_deviation, options.max_deviation)
    values = values - values.mean(axis=0)
    variances, directions = np.linalg.eigh(values.T @ values / len(values))
    kept = np.argsort(-variances)[: options.n_statistics]
    kept = kept[variances[kept] > 1e-3 * max(variances[kept[0]], 1e-12)]
    return np.asarray(values @ (directions[:, kept] / np.sqrt(variances[kept])))
