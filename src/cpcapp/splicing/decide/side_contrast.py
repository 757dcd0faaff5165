"""Which directions of learned traces differ across a seam, and not within a photo.

The same mathematics as that of the filters: target are differences between the two sides of made
splices, background those of superpixels within one side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.decide.side_statistics import SideStatistics
from cpcapp.splicing.decide.superpixels import Labels
from cpcapp.splicing.measure.network import LearnedTraces
from cpcapp.splicing.photo.pixels import BoolArray, FloatArray

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

    A vector is what the network measured in a block: its traces, and the evidence for one of two
    sides and for the pasted one.
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
