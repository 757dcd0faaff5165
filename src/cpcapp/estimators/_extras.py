"""What `fit` takes besides two sets: weights, covariates, several backgrounds, missing values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp.inference.backgrounds import combine_backgrounds
from cpcapp.moments.covariates import CovariateCoder, CovariateEffect, regress_out
from cpcapp.moments.missing import MISSING, pairwise_moments
from cpcapp.moments.moments import FloatArray, Moments
from cpcapp.moments.rows import NonFiniteError
from cpcapp.moments.sources import kind_of
from cpcapp.moments.weights import check_weights, drop_zero_weights

_BLOCK = 4096  # rows of a memory map read at once


@dataclass(frozen=True)
class Extras:
    """The further arguments of a fit, as they were given."""

    sample_weight: Any = None
    background_sample_weight: Any = None
    background_mixture: Any = None
    covariates: Any = None
    background_covariates: Any = None
    missing: str = "error"

    @property
    def can_stream(self) -> bool:
        """Whether moments are all that is needed, so that rows may come in chunks."""
        return (
            self.covariates is None
            and self.background_covariates is None
            and (self.missing == "error")
        )

    def is_plain(self, background: Any) -> bool:
        """Return whether target and background are read as they are."""
        given = (value for name, value in vars(self).items() if name != "missing")
        nothing = all(value is None for value in given)
        return nothing and self.missing == "error" and not is_several(background)


def is_several(background: Any) -> bool:
    """Return whether a background is a list of backgrounds, not one of rows.

    Examples
    --------
    >>> is_several([np.eye(2), np.eye(2)]), is_several([[1.0, 0.0], [0.0, 1.0]])
    (True, False)
    """
    if not isinstance(background, list | tuple) or not background:
        return False
    first = background[0]
    if kind_of(first) is not None:
        return True
    return isinstance(first, Moments) or sp.issparse(first) or getattr(first, "ndim", 0) == 2


def mix(
    backgrounds: Sequence[Moments], mixture: Any, target: Moments, n_components: Any
) -> tuple[Moments, FloatArray]:
    """Return several backgrounds as one, with the weights of each."""
    if isinstance(mixture, str):
        if mixture not in ("mean", "worst"):
            raise ValueError(
                f"background_mixture={mixture!r} must be 'mean', 'worst', or a weight for each"
            )
        k = int(n_components) if isinstance(n_components, Integral) else 1
        found = combine_backgrounds(backgrounds, how=mixture, target=target, n_components=k)
    else:
        found = combine_backgrounds(backgrounds, mixture)
    return found.moments, found.weights


@dataclass(frozen=True)
class Side:
    """Rows of target or background, with all that goes with them."""

    rows: Any
    name: str
    mask: NDArray[np.bool_] | None = None
    weights: FloatArray | None = None
    covariates: FloatArray | None = None

    def moments(self, missing: str) -> tuple[Moments, CovariateEffect | None]:
        """Return the moments, and what covariates explained."""
        found = self._of_all_columns(missing)
        if found.n_samples == 0:
            raise ValueError(
                f"the sample weights of {self.name} are all zero; at least 2 must be above 0"
            )
        if self.covariates is None:
            return found, None
        width = self.rows.shape[1]
        return regress_out(found, np.arange(width, width + self.covariates.shape[1]))

    def _of_all_columns(self, missing: str) -> Moments:
        if missing == "pairwise" and not sp.issparse(self.rows):
            parts: list[Any] = list(self._blocks())
            given = None if self.weights is None else np.concatenate([w for _, w in parts])
            return pairwise_moments(np.concatenate([rows for rows, _ in parts]), given)
        moments = Moments()
        for rows, weights in self._blocks():
            moments.update(rows, weights)
        return moments

    def _blocks(self) -> Iterator[tuple[Any, FloatArray | None]]:
        """Yield rows, with their covariates beside them, and their weights."""
        for start in range(0, self.rows.shape[0], _BLOCK):
            cut = np.arange(start, min(start + _BLOCK, self.rows.shape[0]))
            cut = cut if self.mask is None else cut[self.mask[cut]]
            if not len(cut):
                continue
            whole = self.mask is None
            rows = self.rows[start : start + _BLOCK] if whole else self.rows[cut]
            if self.covariates is not None:
                beside = self.covariates[cut]
                both = (rows, beside)
                rows = sp.hstack(both, format="csr") if sp.issparse(rows) else np.hstack(both)
            weights = None if self.weights is None else self.weights[cut]
            rows, weights = drop_zero_weights(rows, weights)
            if rows.shape[0]:
                yield rows, weights


class SideReader:
    """Reads target and background of one fit."""

    def __init__(self, extras: Extras, names: Any, *, several: bool = False) -> None:
        if extras.missing not in MISSING:
            allowed = ", ".join(map(repr, MISSING))
            raise ValueError(f"missing={extras.missing!r} must be one of {allowed}")
        self.extras = extras
        self.several = several
        self.names = names
        self.coder: CovariateCoder | None = None
        self.effects: dict[str, CovariateEffect | None] = {}

    def marked(self, X: Any, mask: NDArray[np.bool_]) -> tuple[Moments, Moments]:
        """Return the moments of both sides of one matrix."""
        given = self.extras
        for name in ("background_sample_weight", "background_covariates", "background_mixture"):
            if getattr(given, name) is not None:
                raise ValueError(f"with is_background, X holds both sides; do not give {name}")
        n = X.shape[0]
        self._learn(given.covariates)
        whole = Side(
            X, "X", ~mask, check_weights(given.sample_weight, n), self._encode(given.covariates, n)
        )
        back = replace(whole, mask=mask)
        return self._read(whole, "target"), self._read(back, "background")

    def target(self, X: Any) -> Moments:
        """Return the moments of the target."""
        given, n = self.extras, X.shape[0]
        if (given.covariates is None) and (given.background_covariates is not None):
            raise ValueError("background_covariates without covariates; give both, or neither")
        own = given.background_covariates
        self._learn(given.covariates, *(own if self.several and own is not None else [own]))
        weights = check_weights(given.sample_weight, n)
        return self._read(Side(X, "X", None, weights, self._encode(given.covariates, n)), "target")

    def backgrounds(self, backgrounds: Sequence[Any]) -> list[Moments]:
        """Return the moments of each background, given as rows or moments."""
        given, count = self.extras, len(backgrounds)
        weights = self._one_each("background_sample_weight", count)
        tables = self._one_each("background_covariates", count)
        found = []
        for rows, weight, table in zip(backgrounds, weights, tables, strict=True):
            if isinstance(rows, Moments):
                if weight is not None or given.covariates is not None:
                    raise ValueError(
                        "a background of Moments takes no weights and no covariates; put weights "
                        "into Moments.update, and covariates into partial_out"
                    )
                found.append(rows)
                continue
            if given.covariates is not None and table is None:
                raise ValueError("covariates without background_covariates; give both, or neither")
            its = check_weights(weight, rows.shape[0], "background_sample_weight")
            coded = self._encode(table, rows.shape[0], "background_covariates")
            found.append(self._read(Side(rows, "background", None, its, coded), "background"))
        return found

    def _one_each(self, name: str, count: int) -> Sequence[Any]:
        """Return an argument for each background."""
        given = getattr(self.extras, name)
        if given is None or not self.several:
            return [given] * count
        if not isinstance(given, list | tuple) or len(given) != count:
            raise ValueError(
                f"{name} must be a list with one entry for each of {count} backgrounds"
            )
        return given

    def _read(self, side: Side, role: str) -> Moments:
        try:
            moments, self.effects[role] = side.moments(self.extras.missing)
        except NonFiniteError as error:
            # Of dense data with missing values only infinity comes here.
            advice = None
            if self.extras.missing == "pairwise":
                advice = "missing values must be NaN in a dense array"
            error = NonFiniteError(error.columns, self.names, source=side.name, advice=advice)
            raise error from None
        return moments

    def _learn(self, *tables: Any) -> None:
        given = [table for table in tables if table is not None]
        self.coder = CovariateCoder.learn(*given) if given else None

    def _encode(self, table: Any, n_rows: int, name: str = "covariates") -> FloatArray | None:
        if table is None or self.coder is None:
            return None
        coded = self.coder.encode(table, n_rows, name)
        if self.extras.missing == "error" and np.isnan(coded).any():
            raise ValueError(f"{name} has NaN in {int(np.isnan(coded).any(axis=1).sum())} rows")
        return coded
