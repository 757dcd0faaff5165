"""How much likelier what is measured at a border is at a seam than elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
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


@dataclass(frozen=True)
class SeamEvidence:
    """Evidence for a seam at a border and for two sides, learned in training.

    Attributes
    ----------
    tables : tuple of LikelihoodTable
        One for each thing that is measured at a border: the logarithm of the strength of the
        filters' map in units of `strength_unit` and, if there is a network, the logarithm of
        the odds that it gives.
    weights : tuple of float
        Of the tables in the sum: what they say is not independent.
    prior : float
        Subtracted from the sum: most borders are no seam.
    mosaic_weight, trace_weight : float
        Of a pixel of the mosaic's statistics and of the learned traces; see
        `cpcapp.splicing.decide.sides.SideStatistics`.
    trim_per_pixel : float
        See `cpcapp.splicing.decide.cut.best_cut`. All weights are chosen on made splices.
    """

    tables: tuple[LikelihoodTable, ...]
    weights: tuple[float, ...] = (1.0,)
    prior: float = 1.0
    mosaic_weight: float = 0.02
    trace_weight: float = 0.0
    trim_per_pixel: float = 1.25

    def __post_init__(self) -> None:
        if not self.tables or len(self.tables) != len(self.weights):
            raise ValueError(
                f"{len(self.tables)} tables and {len(self.weights)} weights must be as many, at "
                "least one"
            )
        for name in (entry.name for entry in fields(self)[1:]):
            value = getattr(self, name)
            if not np.isfinite(value).all():
                raise ValueError(f"{name}={value} must be finite")
            if name != "prior" and np.min(value) < 0.0:
                raise ValueError(f"{name}={value} must be at least 0")
            if np.abs(value).max() > _MAX_WEIGHT:
                raise ValueError(f"{name}={value} must lie within ±{_MAX_WEIGHT:g}")

    def __call__(self, measured: NDArray[Any]) -> FloatArray:
        """Return the evidence for a seam at some places."""
        found = -self.prior * np.ones(measured.shape[1:])
        for table, weight, values in zip(self.tables, self.weights, measured, strict=True):
            found += weight * table(values)
        return found

    @classmethod
    def learn(cls, seam: FloatArray, other: FloatArray, **settings: Any) -> SeamEvidence:
        """Learn from what is measured at seams and at other borders.

        The weights of the tables are those of a logistic regression; of one table alone it is 1.
        """
        tables = tuple(LikelihoodTable.learn(*pair) for pair in zip(seam, other, strict=True))
        weights = (1.0,) if len(tables) == 1 else _regress(tables, seam, other)
        return cls(tables, weights, **settings)

    def to_dict(self) -> dict[str, Any]:
        """Return it in types that JSON knows."""
        return {
            "tables": [
                # Values are not rounded: two of them must not become one.
                {"value": table.value.tolist(), "ratio": table.ratio.round(4).tolist()}
                for table in self.tables
            ],
            "weights": list(self.weights),
            **{entry.name: getattr(self, entry.name) for entry in fields(self)[2:]},
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> SeamEvidence:
        """Return what `to_dict` wrote."""
        tables = tuple(
            LikelihoodTable(*(np.asarray(table[n], np.float64) for n in ("value", "ratio")))
            for table in content["tables"]
        )
        return cls(
            tables,
            tuple(float(weight) for weight in content["weights"]),
            **{entry.name: float(content[entry.name]) for entry in fields(cls)[2:]},
        )


def _regress(
    tables: Sequence[LikelihoodTable], seam: FloatArray, other: FloatArray
) -> tuple[float, ...]:
    from sklearn.linear_model import LogisticRegression

    said = [
        np.stack([table(values) for table, values in zip(tables, kind, strict=True)], axis=1)
        for kind in (seam, other)
    ]
    truth = np.repeat([1, 0], [len(part) for part in said])
    # Both kinds weigh the same: the sum is a likelihood ratio.
    fit = LogisticRegression(class_weight="balanced").fit(np.concatenate(said), truth)
    return tuple(float(max(weight, 0.0)) for weight in fit.coef_[0])


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
