"""How much likelier what is measured at a border is at a seam than elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.decide.options import RegionOptions
from cpcapp.splicing.photo.pixels import FloatArray

# Logarithms of smaller strengths are not taken.
_TINY = 1e-6
_N_BINS = 24
# Logarithms of likelihood ratios that were learned are below 20, and weights about 1. The search
# for a cut adds up millions of them, and must see the difference of one more.
_MAX_WEIGHT = 1e3
_MAX_VALUES = 10_000


@dataclass(frozen=True)
class LikelihoodTable:
    """How much likelier a measured value is at a seam than at another border.

    Attributes
    ----------
    value : ndarray of shape (n,)
        Rising.
    ratio : ndarray of shape (n,)
        Logarithms of the likelihood ratio there, not falling; linear between, constant beyond.
    """

    value: FloatArray
    ratio: FloatArray

    def __post_init__(self) -> None:
        if self.value.ndim != 1 or self.value.shape != self.ratio.shape:
            raise ValueError(
                f"value of shape {self.value.shape} and ratio of shape {self.ratio.shape} must be "
                "of one length"
            )
        finite = np.isfinite(self.value).all() and np.isfinite(self.ratio).all()
        if len(self.value) < 2 or not finite or (np.diff(self.value) <= 0).any():
            raise ValueError("value must rise over at least two values, all finite")
        for name, array, most in (("value", self.value, 1e6), ("ratio", self.ratio, _MAX_WEIGHT)):
            if np.abs(array).max() > most:
                raise ValueError(f"{name} must lie within ±{most:g}")
        if len(self.value) > _MAX_VALUES:
            raise ValueError(f"value has {len(self.value)} entries; at most {_MAX_VALUES}")

    def __call__(self, value: NDArray[Any]) -> FloatArray:
        """Return the logarithm of the likelihood ratio."""
        return np.asarray(np.interp(value, self.value, self.ratio))

    @classmethod
    def learn(cls, seam: NDArray[Any], other: NDArray[Any]) -> LikelihoodTable:
        """Learn from values at seams and at other borders, each of shape (n,)."""
        inner = np.unique(np.quantile(seam, np.linspace(0.0, 1.0, _N_BINS + 1)[1:-1]))
        edges = np.concatenate([[-np.inf], inner, [np.inf]])
        # One more everywhere: what was never seen is not impossible.
        shares = [np.histogram(v, edges)[0] + 1.0 for v in (seam, other)]
        ratio = np.log(shares[0] / shares[0].sum()) - np.log(shares[1] / shares[1].sum())
        middle = np.concatenate([[inner[0] - 0.5], (inner[1:] + inner[:-1]) / 2, [inner[-1] + 0.5]])
        return cls(middle, np.maximum.accumulate(ratio))

    def to_dict(self) -> dict[str, list[float]]:
        """Return it in types that JSON knows."""
        # Values are not rounded: two of them must not become one.
        return {"value": self.value.tolist(), "ratio": self.ratio.round(4).tolist()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> LikelihoodTable:
        """Return what `to_dict` wrote."""
        return cls(*(np.asarray(content[n], np.float64) for n in ("value", "ratio")))


def log_strength(strength: NDArray[Any]) -> FloatArray:
    """Return the logarithm of a strength, at least that of a millionth."""
    return np.asarray(np.log(np.maximum(strength, _TINY)))


def strength_unit(
    strength: NDArray[np.float32], size: int, options: RegionOptions | None = None
) -> float:
    """Return the strength that a seam should have, by what is seen along all borders.

    A map's highest value may stand alone, or be one of many in a photo whose traces compression
    has washed out. What counts is how many border pixels are stronger, compared with the length
    of a seam: the unit is the strength that ``seam_length_factor`` times the square root of the
    photo's pixels exceed.

    >>> import numpy as np
    >>> round(strength_unit(np.repeat([0.8, 0.4, 0.2], 40).astype(np.float32), 100), 3)
    0.4
    """
    options = options or RegionOptions()
    rank = min(round(options.seam_length_factor * size**0.5), len(strength) - 1)
    if rank < 0:
        return 1.0
    unit = np.partition(strength, len(strength) - 1 - rank)[len(strength) - 1 - rank]
    return max(float(unit), options.min_strength_unit)
