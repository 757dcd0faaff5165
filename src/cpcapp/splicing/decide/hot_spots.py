"""Hot spots: the squares of a photo that are significant after correcting for multiple testing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.pixels import BoolArray, FloatArray

#: Share of false hot spots among those shown, on average at most.
FALSE_DISCOVERY_RATE = 0.05
# Down to where some tens of squares are left.
_MIN_SQUARES = 20.0
_N_LEVELS = 40
# No calibration comes near; products of such numbers are finite.
_MAX_NUMBER = 1e9


@dataclass(frozen=True)
class PatchTail:
    """How large the z-scores of squares of authentic photos are.

    Attributes
    ----------
    z_score : ndarray of shape (n,)
        See `cpcapp.splicing.decide.calibration.Calibration`; rising.
    log_survival : ndarray of shape (n,)
        Logarithm of the share of squares with a larger one, falling. Beyond the last value it is
        extrapolated in a line: rare values are about exponential.
    """

    z_score: FloatArray
    log_survival: FloatArray

    def __post_init__(self) -> None:
        if (
            self.z_score.shape != self.log_survival.shape
            or self.z_score.ndim != 1
            or len(self.z_score) < 2
            or not np.isfinite([self.z_score, self.log_survival]).all()
            or (np.diff(self.z_score) <= 0.0).any()
            or (np.diff(self.log_survival) >= 0.0).any()
        ):
            raise ValueError("z_score must rise and log_survival fall, all of them finite")
        if max(np.abs(self.z_score).max(), np.abs(self.log_survival).max()) > _MAX_NUMBER:
            raise ValueError(f"z_score and log_survival must lie within ±{_MAX_NUMBER:g}")

    @classmethod
    def learn(cls, photos: Sequence[NDArray[Any]]) -> PatchTail:
        """Learn from the squares of authentic photos; all photos weigh the same."""
        values = np.concatenate(photos)
        weights = np.concatenate([np.full(len(photo), 1.0 / len(photo)) for photo in photos])
        order = np.argsort(values)
        values, weights = values[order], weights[order] / len(photos)
        survival = np.cumsum(weights[::-1])[::-1]
        levels = np.exp(np.linspace(np.log(0.9), np.log(_MIN_SQUARES / len(values)), _N_LEVELS))
        at = np.searchsorted(-survival, -levels)
        chosen = values[np.minimum(at, len(values) - 1)]
        rising = np.concatenate([[True], np.diff(chosen) > 1e-9])
        return cls(chosen[rising], np.log(levels[rising]))

    def p_value(self, z_score: NDArray[Any]) -> FloatArray:
        """Return the share of squares of authentic photos with as large a z-score."""
        inside = np.interp(z_score, self.z_score, self.log_survival, left=0.0)
        slope = (self.log_survival[-1] - self.log_survival[-2]) / (
            self.z_score[-1] - self.z_score[-2]
        )
        beyond = self.log_survival[-1] + slope * (z_score - self.z_score[-1])
        return np.asarray(np.exp(np.where(z_score > self.z_score[-1], beyond, inside)))

    def to_dict(self) -> dict[str, Any]:
        """Return it in types that JSON knows."""
        return {
            "z_score": self.z_score.round(5).tolist(),
            "log_survival": self.log_survival.round(5).tolist(),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> PatchTail:
        """Return what `to_dict` wrote."""
        return cls(*(np.asarray(content[n], np.float64) for n in ("z_score", "log_survival")))


def benjamini_hochberg(p_values: NDArray[Any], rate: float = FALSE_DISCOVERY_RATE) -> BoolArray:
    """Choose p-values so that on average at most a share ``rate`` of them is false.

    Of the ``n`` sorted p-values all up to the last one with ``p_k <= rate · k/n``.

    >>> import numpy as np
    >>> benjamini_hochberg(np.array([0.001, 0.2, 0.024, 0.9]), rate=0.05)
    array([ True, False,  True, False])
    """
    if not 0.0 < rate < 1.0:
        raise ValueError(f"rate={rate} must be between 0 and 1")
    ranked = np.sort(p_values, axis=None)
    good = ranked <= rate * np.arange(1, ranked.size + 1) / max(ranked.size, 1)
    if not good.any():
        return np.zeros(p_values.shape, dtype=bool)
    return np.asarray(p_values <= ranked[np.flatnonzero(good)[-1]])


def upsample_patches(patches: NDArray[Any], shape: tuple[int, ...], size: int) -> NDArray[Any]:
    """Return a map of the photo's size from one value for each square.

    >>> import numpy as np
    >>> upsample_patches(np.array([[1, 2]], dtype=np.uint8), (2, 3), 2)
    array([[1, 1, 2],
           [1, 1, 2]], dtype=uint8)
    """
    whole = patches.shape[1] * size, patches.shape[0] * size
    wide = cv2.resize(patches, whole, interpolation=cv2.INTER_NEAREST)
    return np.asarray(wide[: shape[0], : shape[1]])
