"""How much likelier a strength of the boundary map is at a seam than elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photos.pixels import FloatArray
from cpcapp.splicing.regions.options import RegionOptions

# Logarithms of smaller strengths are not taken.
_TINY = 1e-6
_N_BINS = 24


@dataclass(frozen=True)
class SeamEvidence:
    """How much likelier a strength is at a seam than at another border, learned in training.

    Attributes
    ----------
    strength : ndarray of shape (n,)
        Logarithms of the strength as `relative_strength` gives it, rising.
    ratio : ndarray of shape (n,)
        Logarithms of the likelihood ratio there, not falling; linear between, constant beyond.
    prior : float
        Subtracted from each: most borders are no seam.
    mosaic_weight, trim_per_pixel : float
        See `cpcapp.splicing.regions.search.best_cut`. Chosen on made splices.
    """

    strength: FloatArray
    ratio: FloatArray
    prior: float = 1.0
    mosaic_weight: float = 0.02
    trim_per_pixel: float = 1.25

    def __post_init__(self) -> None:
        if self.strength.ndim != 1 or self.strength.shape != self.ratio.shape:
            raise ValueError(
                f"strength of shape {self.strength.shape} and ratio of shape {self.ratio.shape} "
                "must be of one length"
            )
        finite = np.isfinite(self.strength).all() and np.isfinite(self.ratio).all()
        if len(self.strength) < 2 or not finite or (np.diff(self.strength) <= 0).any():
            raise ValueError("strength must rise over at least two values, all finite")
        if not np.isfinite([self.prior, self.mosaic_weight, self.trim_per_pixel]).all():
            raise ValueError(
                f"prior={self.prior}, mosaic_weight={self.mosaic_weight} and "
                f"trim_per_pixel={self.trim_per_pixel} must be finite"
            )
        if self.mosaic_weight < 0.0 or self.trim_per_pixel < 0.0:
            raise ValueError(
                f"mosaic_weight={self.mosaic_weight} and trim_per_pixel={self.trim_per_pixel} must "
                "be at least 0"
            )

    def __call__(self, strength: NDArray[Any]) -> FloatArray:
        """Return the evidence for a seam at places of a strength."""
        seen = np.log(np.maximum(strength, _TINY))
        return np.asarray(np.interp(seen, self.strength, self.ratio) - self.prior)

    @classmethod
    def learn(cls, seam: FloatArray, other: FloatArray, **settings: float) -> SeamEvidence:
        """Learn from strengths at seams and at other borders.

        Parameters
        ----------
        seam, other : ndarray of shape (n,)

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> seam, other = (np.exp(rng.normal(mean, 1.0, 20_000)) for mean in (2.0, 0.0))
        >>> found = SeamEvidence.learn(seam, other, prior=0.0)
        >>> float(found(np.exp(2.0)).round(1))  # (2² - 0²) / 2 for two normal distributions
        2.0
        """
        at_seam, elsewhere = (np.log(np.maximum(v, _TINY)) for v in (seam, other))
        inner = np.unique(np.quantile(at_seam, np.linspace(0.0, 1.0, _N_BINS + 1)[1:-1]))
        edges = np.concatenate([[-np.inf], inner, [np.inf]])
        # One more everywhere: what was never seen is not impossible.
        shares = [np.histogram(v, edges)[0] + 1.0 for v in (at_seam, elsewhere)]
        ratio = np.log(shares[0] / shares[0].sum()) - np.log(shares[1] / shares[1].sum())
        middle = np.concatenate([[inner[0] - 0.5], (inner[1:] + inner[:-1]) / 2, [inner[-1] + 0.5]])
        return cls(middle, np.maximum.accumulate(ratio), **settings)

    def to_dict(self) -> dict[str, Any]:
        """Return it in types that JSON knows."""
        return {
            "strength": self.strength.round(4).tolist(),
            "ratio": self.ratio.round(4).tolist(),
            "prior": self.prior,
            "mosaic_weight": self.mosaic_weight,
            "trim_per_pixel": self.trim_per_pixel,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> SeamEvidence:
        """Return what `to_dict` wrote."""
        strength, ratio = (np.asarray(content[n], np.float64) for n in ("strength", "ratio"))
        return cls(
            strength,
            ratio,
            *(float(content[n]) for n in ("prior", "mosaic_weight", "trim_per_pixel")),
        )


def relative_strength(
    strength: NDArray[np.float32], size: int, options: RegionOptions | None = None
) -> NDArray[np.float32]:
    """Return strengths along borders in units of a strength that a seam should have.

    A map's highest value may stand alone, or be one of many in a photo whose traces compression
    has washed out. What counts is how many border pixels are stronger, compared with the length
    of a seam: the unit is the strength that ``seam_length_factor`` times the square root of the
    photo's pixels exceed.

    Parameters
    ----------
    strength : ndarray of shape (n,), float32 in [0, 1]
    size : int
        Pixels of the photo.
    options : RegionOptions, optional

    Returns
    -------
    ndarray of shape (n,), float32

    Examples
    --------
    >>> import numpy as np
    >>> relative_strength(np.repeat([0.8, 0.4, 0.2], 40).astype(np.float32), 100)[::40]
    array([2. , 1. , 0.5], dtype=float32)
    """
    options = options or RegionOptions()
    rank = min(round(options.seam_length_factor * size**0.5), len(strength) - 1)
    if rank < 0:
        return strength
    unit = np.partition(strength, len(strength) - 1 - rank)[len(strength) - 1 - rank]
    return np.asarray(strength / max(unit, np.float32(options.min_strength_unit)), np.float32)
