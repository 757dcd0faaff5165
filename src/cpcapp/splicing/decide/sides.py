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
# Added to backgrounds: this share of each variance, and what no trace comes near.
_LOADING, _TINY = 1e-3, 1e-6
# Of the largest eigenvalue: below, it is rounding.
_LEAST_SHARE = 1e-9
# No model comes near; products of such numbers are finite.
_MAX_NUMBER = 1e9
_MAX_FEATURES = 512


@dataclass(frozen=True)
class TraceContrast:
    """What tells two sides of a seam apart in learned traces, and what varies within one side.

    In a photo the filters are cPCA++'s, ``across v = λ background v``. The background is a mixture:
    what was learned of sides of made splices, which vary little, and how the photo itself varies,
    which a larger photo tells better. Where its traces drift, they are no evidence.

    Attributes
    ----------
    across, within : ndarray of shape (n_features, n_features), float64
        Second moments of the difference of two sides, and of superpixels about the mean of their
        side, of learned photos.
    """

    across: FloatArray = field(repr=False)
    within: FloatArray = field(repr=False)

    def __post_init__(self) -> None:
        for name, moment in (("across", self.across), ("within", self.within)):
            n = len(moment)
            if moment.shape != (n, n) or not 0 < n <= _MAX_FEATURES:
                raise ValueError(
                    f"{name} of shape {moment.shape} must be square, of at most {_MAX_FEATURES}"
                )
            if not (np.abs(moment) <= _MAX_NUMBER).all():
                raise ValueError(f"{name} must be finite, within ±{_MAX_NUMBER:g}")
            if not np.array_equal(moment, moment.T):
                raise ValueError(f"{name} must be symmetric")
        if self.across.shape != self.within.shape:
            raise ValueError("across and within must be of one shape")
        if np.linalg.eigvalsh(_loaded(self.within))[0] <= 0.0:
            raise ValueError("within must be positive")

    @classmethod
    def learn(cls, photos: Sequence[tuple[FloatArray, FloatArray]]) -> TraceContrast | None:
        """Learn from spliced photos; each counts as much as another.

        ``photos``: for each photo the difference of the means of its two sides, (n_features,), and
        the differences of superpixels from the mean of their side, (n, n_features).
        """
        if not photos:
            return None
        across = np.mean([np.outer(apart, apart) for apart, _ in photos], axis=0)
        within = np.mean([rows.T @ rows / len(rows) for _, rows in photos], axis=0)
        return cls(across, within) if across.any() else None

    def filters(self, background: FloatArray, n_filters: int) -> FloatArray:
        """Return the filters that contrast sides with a background of moments, (features, filters).

        They are those of `cpcapp.contrast.solve.solve_contrast`, which needs SciPy; that takes
        longer to import than a small photo to localize.
        """
        inverse = np.linalg.inv(np.linalg.cholesky(_loaded(background)))
        values, found = np.linalg.eigh(inverse @ self.across @ inverse.T)
        # Of few photos: no more than what differs across their seams.
        n_filters = min(n_filters, int((values > _LEAST_SHARE * values[-1]).sum()))
        return np.asarray(inverse.T @ found[:, ::-1][:, :n_filters])

    def statistics(
        self, vectors: FloatArray, pixels: FloatArray, weight: float, options: RegionOptions
    ) -> SideStatistics:
        """Return the statistics of a photo's superpixels for the search of a cut."""
        if vectors.shape[1] != len(self.within):
            raise ValueError(
                f"the model tells sides apart by {len(self.within)} traces, and a photo has "
                f"{vectors.shape[1]}: train it with this version"
            )
        size = pixels.sum()
        own_share = size / (size + options.own_pixels)
        own = _moment_within(vectors, pixels, options.max_deviation)
        mixture = (1.0 - own_share) * self.within + own_share * own
        values = vectors @ self.filters(mixture, options.n_trace_filters)
        values = values - np.median(values, axis=0)
        values = np.clip(values, -options.max_deviation, options.max_deviation)
        values -= np.average(values, axis=0, weights=np.maximum(pixels, 1e-9))
        return SideStatistics(values * pixels[:, None], pixels, weight, scaled_within=True)

    def to_dict(self) -> dict[str, Any]:
        """Return it in types that JSON knows."""
        return {"across": self.across.tolist(), "within": self.within.tolist()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> TraceContrast:
        """Return what `to_dict` wrote."""
        return cls(*(np.asarray(content[n], np.float64) for n in ("across", "within")))


def _loaded(moment: FloatArray) -> FloatArray:
    """Return a moment with a thousandth of its diagonal added: traces may be copies of others."""
    return np.asarray(moment + np.diag(_LOADING * np.diag(moment) + _TINY))


def _moment_within(vectors: FloatArray, pixels: FloatArray, max_deviation: float) -> FloatArray:
    """Return how the superpixels of a photo vary, those far from most drawn in."""
    values = vectors - np.median(vectors, axis=0)
    # 1.48 times the median deviation is the standard deviation of normal values.
    most = max_deviation * (1.48 * np.median(np.abs(values), axis=0) + _TINY)
    values = np.clip(values, -most, most)
    shares = pixels / max(pixels.sum(), 1.0)
    values -= shares @ values
    return np.asarray((values * shares[:, None]).T @ values)


def superpixel_vectors(
    learned: LearnedTraces, labels: Labels, count: int, shape: tuple[int, ...]
) -> FloatArray:
    """Return the mean vector of each superpixel, (count, n_features).

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
    return np.asarray(sums / np.maximum(area, 1.0)[:, None])


def across_and_within(
    vectors: FloatArray, pasted: NDArray[Any], certain: BoolArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return what `TraceContrast.learn` needs of a photo; None if it has no two sides."""
    inside, outside = vectors[pasted & certain], vectors[~pasted & certain]
    if min(len(inside), len(outside)) < _MIN_SUPERPIXELS:
        return None
    means = [side.mean(axis=0) for side in (inside, outside)]
    within = np.concatenate([inside - means[0], outside - means[1]])
    return means[0] - means[1], within
