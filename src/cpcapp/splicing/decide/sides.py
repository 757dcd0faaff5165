"""Evidence that the two sides of a cut differ: statistics of the mosaic, and learned traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.decide.options import RegionOptions
from cpcapp.splicing.decide.superpixels import Labels, MergeTree, Side
from cpcapp.splicing.measure.mosaic import MosaicTrace
from cpcapp.splicing.measure.network import LearnedTraces
from cpcapp.splicing.photo.pixels import BoolArray, FloatArray

# The statistics explain at most this share of their own variance: no evidence is infinite.
_MAX_EXPLAINED = 0.999


@dataclass(frozen=True)
class SideStatistics:
    """Sums of some statistics over each superpixel.

    Attributes
    ----------
    total : ndarray of shape (count, n_statistics)
        Sums over pixels of statistics with mean 0 over the photo.
    pixels : ndarray of shape (count,)
        How many pixels were summed.
    weight : float
        Of a pixel of the statistics against a pixel of the seam. Below 1, since the windows of
        neighbouring pixels overlap.
    scaled_within : bool
        Whether the covariance is I within each side, as a contrast scales statistics, or over the
        whole photo.
    """

    total: FloatArray
    pixels: FloatArray
    weight: float = 1.0
    scaled_within: bool = False

    def gain(self, total: FloatArray, pixels: FloatArray) -> FloatArray:
        """Return the evidence for two means of candidates, given the sums inside each.

        For the shares ``p`` and ``1-p`` of the two sides and the difference ``d`` of their means
        ``det(S_within) / det(S_total)`` is ``1 - p(1-p)|d|²`` if the covariance over the photo is
        I, and ``1 / (1 + p(1-p)|d|²)`` if that within the sides is.
        """
        n = self.pixels.sum()
        rest = n - pixels
        possible = (pixels > 0.0) & (rest > 0.0)
        inside, outside = (np.where(possible, k, 1.0)[:, None] for k in (pixels, rest))
        apart = total / inside - (self.total.sum(axis=0) - total) / outside
        between = pixels * rest / max(n, 1.0) ** 2 * (apart**2).sum(axis=1)
        if self.scaled_within:
            gain = 0.5 * n * np.log1p(between)
        else:
            gain = -0.5 * n * np.log1p(-np.minimum(between, _MAX_EXPLAINED))
        return np.asarray(np.where(possible, self.weight * gain, 0.0))

    def gain_of_nodes(self, tree: MergeTree) -> FloatArray:
        """Return the evidence for each node of a tree against the rest of the photo."""
        total = np.stack([tree.sums(column) for column in self.total.T], axis=1)
        return self.gain(total, tree.sums(self.pixels))

    def evidence(self, side: Side) -> float:
        """Return the evidence for two means, one on each side."""
        inside = self.total[side].sum(axis=0)[None], self.pixels[side].sum()[None]
        return float(self.gain(*inside)[0])

    def preference(self, side: Side) -> FloatArray:
        """Return for each superpixel how much better it fits inside than outside.

        The log-likelihood ratio of two Gaussians with the means of the sides and the covariance
        within them: I, or ``S = I - p(1-p) ddᵀ``, whose inverse is
        ``I + p(1-p) ddᵀ/(1 - p(1-p)|d|²)``.
        """
        n, inside = self.pixels.sum(), self.pixels[side].sum()
        if inside <= 0.0 or inside >= n:
            return np.zeros(len(side))
        mean_in = self.total[side].sum(axis=0) / inside
        mean_out = self.total[~side].sum(axis=0) / (n - inside)
        weights = mean_in - mean_out
        if not self.scaled_within:
            between = inside * (n - inside) / n**2 * (weights @ weights)
            weights = weights * (1.0 + between / (1.0 - min(between, _MAX_EXPLAINED)))
        middle = weights @ (mean_in + mean_out) / 2
        return np.asarray(self.weight * (self.total @ weights - self.pixels * middle))

    def starts(self) -> list[Side]:
        """Return for each statistic the superpixels that have more of it than the photo."""
        known = self.pixels > 0.0
        return [column > 0.0 for column in self.total.T if known.any() and column.any()]


@dataclass(frozen=True)
class Sides:
    """All that tells the two sides of a cut apart: evidence of several kinds, which adds up."""

    kinds: tuple[SideStatistics, ...]

    def gain_of_nodes(self, tree: MergeTree) -> FloatArray:
        """Return the evidence for each node of a tree against the rest of the photo."""
        return np.asarray(sum(kind.gain_of_nodes(tree) for kind in self.kinds))

    def evidence(self, side: Side) -> float:
        """Return the evidence that the two sides differ."""
        return sum(kind.evidence(side) for kind in self.kinds)

    def preference(self, side: Side) -> FloatArray:
        """Return for each superpixel how much better it fits inside than outside."""
        return np.asarray(sum(kind.preference(side) for kind in self.kinds))

    def starts(self) -> list[Side]:
        """Return labellings that the statistics suggest."""
        return [start for kind in self.kinds for start in kind.starts()]


# Fewer windows say nothing of a spread.
_MIN_WINDOWS = 50


def side_statistics(
    trace: MosaicTrace | None,
    labels: Labels,
    count: int,
    options: RegionOptions | None = None,
    weight: float = 1.0,
) -> SideStatistics:
    """Sum the statistics of the mosaic over superpixels.

    They are scaled by their median deviation, clipped, and projected to their main directions,
    each with variance 1 over the photo.
    """
    options = options or RegionOptions()
    nothing = SideStatistics(np.zeros((count, 1)), np.zeros(count), weight)
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
    return SideStatistics(np.asarray(total * area, dtype=np.float64), pixels, weight)


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


#: Of the vectors: the evidence for the pasted side.
PASTED_COLUMN = -1

# Of a side: less is no side to speak of.
_MIN_SUPERPIXELS = 3
# No model comes near; products of such numbers are finite.
_MAX_NUMBER = 1e9
_MAX_FEATURES = 4096


@dataclass(frozen=True)
class SideContrast:
    """Filters for the vectors of superpixels.

    Attributes
    ----------
    filters : ndarray of shape (n_features, n_filters), float64
        Scaled so that superpixels of one side have variance 1.
    eigenvalues : ndarray of shape (n_filters,), float64
        Power across seams over power within a side, descending.
    """

    filters: FloatArray = field(repr=False)
    eigenvalues: FloatArray

    def __post_init__(self) -> None:
        if self.filters.ndim != 2 or self.eigenvalues.shape != self.filters.shape[1:]:
            raise ValueError(
                f"filters of shape {self.filters.shape} do not fit eigenvalues of shape "
                f"{self.eigenvalues.shape}"
            )
        if not (np.isfinite(self.filters).all() and np.isfinite(self.eigenvalues).all()):
            raise ValueError("filters and eigenvalues must be finite")
        if self.filters.shape[0] > _MAX_FEATURES or self.filters.shape[1] > _MAX_FEATURES:
            raise ValueError(f"filters of shape {self.filters.shape} are more than {_MAX_FEATURES}")
        for name, array in (("filters", self.filters), ("eigenvalues", self.eigenvalues)):
            if array.size and np.abs(array).max() > _MAX_NUMBER:
                raise ValueError(f"{name} must lie within ±{_MAX_NUMBER:g}")

    @classmethod
    def learn(
        cls,
        photos: Sequence[tuple[FloatArray, FloatArray]],
        n_filters: int,
    ) -> SideContrast | None:
        """Learn from spliced photos.

        ``photos``: for each photo the difference of the means of its two sides, (n_features,), and
        the differences of superpixels from the mean of their side, (n, n_features).
        """
        # Here: a photo is localized without SciPy, which takes long to import.
        from cpcapp.contrast.solve import InsufficientRankError, solve_contrast
        from cpcapp.moments.moments import Moments

        if not photos:
            return None
        # Which of the sides is subtracted is arbitrary: both ways, so that the mean is 0.
        across = np.array([sign * photo[0] for photo in photos for sign in (1.0, -1.0)])
        target, background = Moments(), Moments()
        target.update(across)
        background.update(np.concatenate([photo[1] for photo in photos]))
        k = min(n_filters, across.shape[1], len(photos))
        try:
            found = solve_contrast(target, background, k, loading="oas")
        except InsufficientRankError as error:
            if not error.rank:
                return None
            found = solve_contrast(target, background, error.rank, loading="oas")
        return cls(np.asarray(found.filters, np.float64), np.asarray(found.eigenvalues))

    def statistics(
        self, vectors: FloatArray, pixels: FloatArray, weight: float, max_deviation: float
    ) -> SideStatistics:
        """Return the statistics of superpixels for the search of a cut.

        ``max_deviation``: statistics are clipped at so many standard deviations from the photo's
        median.
        """
        if vectors.shape[1] != len(self.filters):
            raise ValueError(
                f"the model tells sides apart by {len(self.filters)} traces, and a photo has "
                f"{vectors.shape[1]}: train it with this version"
            )
        values = vectors @ self.filters
        values = values - np.median(values, axis=0)
        values = np.clip(values, -max_deviation, max_deviation)
        values -= np.average(values, axis=0, weights=np.maximum(pixels, 1e-9))
        return SideStatistics(values * pixels[:, None], pixels, weight, scaled_within=True)

    def to_dict(self) -> dict[str, Any]:
        """Return it in types that JSON knows."""
        return {
            "filters": self.filters.round(6).tolist(),
            "eigenvalues": self.eigenvalues.round(4).tolist(),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> SideContrast:
        """Return what `to_dict` wrote."""
        return cls(*(np.asarray(content[n], np.float64) for n in ("filters", "eigenvalues")))


def superpixel_vectors(
    learned: LearnedTraces, labels: Labels, count: int, shape: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Return the mean vector of each superpixel, and its size.

    A vector is what was measured in a block: the network's traces, those of JPEG (which `measure`
    appends), and the evidence for one of two sides and for the pasted one.
    """
    rows, columns = (
        (np.arange(here) * there) // here for here, there in zip(labels.shape, shape, strict=True)
    )
    cells = np.ix_(*learned.block_of(rows, columns))
    blocks = np.concatenate(
        [learned.vectors, learned.region[..., None], learned.pasted[..., None]], axis=2
    )
    index = np.arange(blocks[..., 0].size).reshape(blocks.shape[:2])[cells]
    # Superpixels hold few blocks each: count the pixels of each pair once, then sum vectors.
    pairs, pixels = np.unique(
        labels.ravel().astype(np.int64) * (int(index.max()) + 1) + index.ravel(),
        return_counts=True,
    )
    where, block = np.divmod(pairs, int(index.max()) + 1)
    flat = blocks.reshape(-1, blocks.shape[2]).astype(np.float64)
    sums = np.stack(
        [np.bincount(where, flat[block, i] * pixels, count) for i in range(flat.shape[1])], axis=1
    )
    area = np.bincount(where, pixels, count).astype(np.float64)
    return sums / np.maximum(area, 1.0)[:, None], area


def across_and_within(
    vectors: FloatArray, pasted: NDArray[Any], certain: BoolArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return what `SideContrast.learn` needs of a photo; None if it has no two sides."""
    inside, outside = vectors[pasted & certain], vectors[~pasted & certain]
    if min(len(inside), len(outside)) < _MIN_SUPERPIXELS:
        return None
    means = [side.mean(axis=0) for side in (inside, outside)]
    within = np.concatenate([inside - means[0], outside - means[1]])
    return means[0] - means[1], within
