"""Target and background of a contrast, checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpcapp.moments.moments import FeatureRangeError, FloatArray, Moments, Spread

_EPS = float(np.finfo(np.float64).eps)


class SingularBackgroundError(ValueError):
    """The background covariance can't be divided by as it is; ``rank`` says how far it is off."""

    def __init__(self, rank: int, n_features: int, n_background: int) -> None:
        self.rank = rank
        super().__init__(
            f"loading='none' needs a background covariance of full rank, but its rank is {rank} "
            f"of {n_features} features (from {n_background} samples); use loading='auto', or drop "
            "constant and duplicate features"
        )


class InsufficientRankError(ValueError):
    """More components were asked for than the target covariance has; ``rank`` is what it has."""

    def __init__(self, rank: int, asked: str) -> None:
        self.rank = rank
        super().__init__(f"{asked} must be at most {rank} (the rank of the target covariance)")


@dataclass(frozen=True)
class Side:
    """Target or background. What is taken from its moments stays when those are used up."""

    moments: Moments
    spread: Spread
    n_samples: int
    width: int


def n_features_of(moments: Moments) -> int:
    """Return the number of features of moments that have seen samples."""
    assert moments.n_features is not None
    return moments.n_features


def check_sides(target: Moments, background: Moments | None) -> tuple[Side, Side | None]:
    """Return both sides, of one width and with covariances that can be computed."""
    for name, moments in (("target", target), ("background", background)):
        if moments is not None and moments.n_samples < 2:
            raise ValueError(
                f"the {name} has n_samples={moments.n_samples}; a covariance needs at least 2"
            )
    if background is not None and background.n_features != target.n_features:
        raise ValueError(
            f"background has {background.n_features} features, but the target has "
            f"{target.n_features}"
        )
    f = _side(target, "the target")
    if background is None:
        return f, None
    b = f if background is target else _side(background, "the background")
    if b.spread.constant.all():
        raise ValueError("the background does not vary at all: there is nothing to contrast with")
    return f, b


def _side(moments: Moments, name: str) -> Side:
    spread = moments.spread()
    if np.count_nonzero(spread.out_of_range):
        raise FeatureRangeError(np.flatnonzero(spread.out_of_range), source=name)
    return Side(moments, spread, moments.n_samples, n_features_of(moments))


def check_rank(values: FloatArray, n_features: int, k: int) -> None:
    """Raise an error if one of the ``k`` largest eigenvalues, descending, is rounding only."""
    rank = int((values > n_features * _EPS * values[0]).sum()) if values[0] > 0.0 else 0
    if rank < k:
        raise InsufficientRankError(rank, f"k={k}")
