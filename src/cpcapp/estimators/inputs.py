"""What `fit` is given becomes two sets: their moments, and their rows at hand.

The kind of input is asked here, once: rows in memory, rows in chunks, or moments. Rows stay at hand
with their weights, groups and covariates, so that whatever counts or calibrates sees what the
moments saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import _get_feature_names, check_array, validate_data

from cpcapp.estimators.callers import refuse_misrouted_background
from cpcapp.inference.backgrounds import combine_backgrounds
from cpcapp.moments.accumulate import add_up
from cpcapp.moments.covariates import CovariateCoder, CovariateEffect, regress_out
from cpcapp.moments.missing import MISSING, pairwise_moments
from cpcapp.moments.moments import Moments
from cpcapp.moments.reservoir import Reservoir
from cpcapp.moments.rows import (
    FloatArray,
    NonFiniteError,
    TextColumnsError,
    refuse_damaged,
    refuse_masked,
    refuse_text,
)
from cpcapp.moments.sample import Sample, make_sample, mix_samples, sample_size
from cpcapp.moments.sources import KINDS, as_host_array, column_names, kind_of
from cpcapp.moments.weights import check_weights

_BLOCK = 4096  # rows that are read at once where they are picked from an array


@dataclass(frozen=True)
class FitArguments:
    """What `fit` takes beside the two sets, as it was given."""

    sample_weight: Any = None
    background_sample_weight: Any = None
    background_mixture: Any = None
    covariates: Any = None
    background_covariates: Any = None
    groups: Any = None
    background_groups: Any = None
    missing: str = "error"


@dataclass(frozen=True)
class RowSet:
    """Rows of one set, with what belongs to each."""

    X: Any  # ndarray, memory map or CSR matrix
    index: NDArray[np.intp] | None = None  # which of its rows; None for all
    weights: FloatArray | None = None
    groups: NDArray[Any] | None = None  # labels
    covariates: FloatArray | None = None  # as numbers
    numbers: NDArray[np.intp] | None = None  # in what was given, where X holds some rows only

    def __len__(self) -> int:
        return int(self.X.shape[0]) if self.index is None else len(self.index)

    def where(self, chosen: NDArray[Any]) -> RowSet:
        """Return some of the rows, given as a mask or by number."""
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen

        def pick(values: Any) -> Any:
            return None if values is None else values[chosen]

        return RowSet(
            self.X,
            chosen if self.index is None else self.index[chosen],
            pick(self.weights),
            pick(self.groups),
            pick(self.covariates),
            pick(self.numbers),
        )

    def rows(self) -> Any:
        """Return the rows, an array or a CSR matrix."""
        return self.X if self.index is None else self.X[self.index]

    def bounded(self, most: int, random_state: Any) -> RowSet:
        """Return a random sample of the rows, in their order, if there are more."""
        if len(self) <= most:
            return self
        rng = np.random.default_rng(random_state)
        return self.where(np.sort(rng.choice(len(self), most, replace=False)))

    def moments(self, missing: str) -> tuple[Moments, CovariateEffect | None]:
        """Return the moments without what covariates explain, and what that was."""
        if missing == "pairwise" and not sp.issparse(self.X):
            rows = self.rows()
            beside = rows if self.covariates is None else np.hstack([rows, self.covariates])
            found = pairwise_moments(beside, self.weights)
        elif self.index is None and self.covariates is None:
            found = Moments.of(self.X, sample_weight=self.weights)
        else:
            found = Moments()
            for rows, weights in self._blocks():
                found.update(rows, weights)
        if self.covariates is None:
            return found, None
        width = self.X.shape[1]
        return regress_out(found, np.arange(width, width + self.covariates.shape[1]))

    def _blocks(self) -> Iterator[tuple[Any, FloatArray | None]]:
        """Yield rows with their covariates beside them; a memory map is never read whole."""
        for start in range(0, len(self), _BLOCK):
            part = slice(start, min(start + _BLOCK, len(self)))
            rows = self.X[part if self.index is None else self.index[part]]
            if self.covariates is not None:
                both = (rows, self.covariates[part])
                rows = sp.hstack(both, format="csr") if sp.issparse(rows) else np.hstack(both)
            yield rows, None if self.weights is None else self.weights[part]

    def sample(self, random_state: Any) -> Sample:
        """Return the rows as a sample, at most `sample_size` of them."""
        part = self.bounded(sample_size(self.X.shape[1]), random_state)
        design = None
        if part.covariates is not None:
            design = np.column_stack([np.ones(len(part)), part.covariates])
        numbers = part.index if part.numbers is None else part.numbers
        return make_sample(
            part.rows(), weights=part.weights, groups=part.groups, design=design, index=numbers
        )


@dataclass(frozen=True)
class Sides:
    """Target and background as they were read."""

    target: Moments
    background: Moments | None
    target_rows: RowSet | None = None  # None where only moments are at hand
    background_rows: Sequence[RowSet] = ()  # one a background; empty where one came as moments
    shares: FloatArray | None = None  # with which several backgrounds are mixed
    coder: CovariateCoder | None = None
    effects: dict[str, CovariateEffect | None] = field(default_factory=dict)
    ours: bool = True  # nobody else holds these moments
    fills: bool = False  # missing values are filled in
    random_state: Any = 0  # chooses the rows of samples

    @property
    def has_rows(self) -> bool:
        """Whether rows of both sets are at hand."""
        return self.target_rows is not None and len(self.background_rows) > 0

    @cached_property
    def target_sample(self) -> Sample:
        """The rows of the target as a sample."""
        if self.target_rows is None:
            raise ValueError("the rows of the target are not at hand, only its moments")
        return self.target_rows.sample(self.random_state)

    @cached_property
    def background_sample(self) -> Sample:
        """The rows of the background as a sample, several of them mixed."""
        if not self.background_rows:
            raise ValueError("the rows of the background are not at hand, only its moments")
        shares = np.ones(1) if self.shares is None else self.shares
        used = np.flatnonzero(shares).tolist()
        samples = [self.background_rows[i].sample(self.random_state) for i in used]
        return samples[0] if len(used) == 1 else mix_samples(samples, shares[used])

    def rows_to_look_at(self, most: int) -> tuple[Any, FloatArray | None]:
        """Return rows of the target, at most so many, and their weights, to see how they spread."""
        if self.target_rows is None:
            return None, None
        if self.target_rows.covariates is None and not self.fills:
            part = self.target_rows.bounded(most, self.random_state)
            return part.rows(), part.weights
        return self.target_sample.rows, self.target_sample.weights


# -- reading -------------------------------------------------------------------------------


def read_sides(
    estimator: Any, X: Any, y: Any, background: Any, is_background: Any, given: FitArguments
) -> Sides:
    """Return both sets, whichever way they were given; the estimator learns its features."""
    if given.missing not in MISSING:
        allowed = ", ".join(map(repr, MISSING))
        raise ValueError(f"missing={given.missing!r} must be one of {allowed}")
    reader = _Reader(estimator, given)
    if is_background is not None:
        return reader.marked(X, background, is_background)
    if getattr(y, "ndim", 1) == 2 and y.shape[1] == np.shape(X)[1] > 1:
        raise ValueError(
            "y is ignored, but it looks like a background; call fit(X, background=...)"
        )
    return reader.both(X, background)


def read_moments(
    estimator: Any, target: Any, background: Any, mixture: Any, n_components: Any
) -> Sides:
    """Return both sets from moments that were added up elsewhere."""
    several = is_several(background)
    backgrounds = list(background) if several else [] if background is None else [background]
    for name, moments in [("target", target), *(("background", b) for b in backgrounds)]:
        if not isinstance(moments, Moments):
            raise TypeError(f"{name} must be Moments, not {type(moments).__name__}; use fit")
        if moments.n_features is None:
            raise ValueError(f"{name} holds no samples yet")
        if moments.n_features != target.n_features:
            raise _other_features(moments.n_features, target.n_features)
    estimator.__dict__.pop("feature_names_in_", None)
    estimator.n_features_in_ = target.n_features
    back, shares = _mix(backgrounds, several, mixture, target, n_components)
    return Sides(
        target,
        back,
        _kept_rows(target),
        _all_or_none([_kept_rows(moments) for moments in backgrounds]),
        shares,
        ours=False,
        random_state=getattr(estimator, "random_state", 0),
    )


class _Reader:
    """Reads the two sets of one fit."""

    def __init__(self, estimator: Any, given: FitArguments) -> None:
        self.estimator, self.given = estimator, given
        self.coder: CovariateCoder | None = None
        self.effects: dict[str, CovariateEffect | None] = {}

    @property
    def _shared(self) -> dict[str, Any]:
        """What both ways to give two sets have in common."""
        return {
            "coder": self.coder,
            "effects": self.effects,
            "fills": self.given.missing == "pairwise",
            "random_state": getattr(self.estimator, "random_state", 0),
        }

    def marked(self, X: Any, background: Any, is_background: Any) -> Sides:
        """Return both sets of one matrix."""
        given = self.given
        if background is not None:
            raise ValueError("give either background or is_background, not both")
        for name in (
            "background_sample_weight",
            "background_covariates",
            "background_mixture",
            "background_groups",
        ):
            if getattr(given, name) is not None:
                raise ValueError(f"with is_background, X holds both sides; do not give {name}")
        if kind_of(X) is not None:
            raise ValueError(
                f"X is {KINDS[kind_of(X) or '']}, which is read in chunks: is_background needs it "
                "as an array; give target and background apart"
            )
        X = check_rows(self.estimator, X, "X", reset=True)
        mask = _check_mask(is_background, X.shape[0])
        self._learn_covariates(given.covariates)
        both = self._row_set(X, given.sample_weight, given.covariates, given.groups)
        target, back = (_without_zero_weights(both.where(chosen)) for chosen in (~mask, mask))
        for rows in (target, back):
            _require_two_groups(rows.groups, "groups")
        moments = self._moments(target, "target", "X"), self._moments(back, "background", "X")
        return Sides(*moments, target, [back], **self._shared)

    def both(self, X: Any, background: Any) -> Sides:
        """Return a target and one background, several, or none."""
        given, several = self.given, is_several(background)
        backgrounds = list(background) if several else [] if background is None else [background]
        if (given.groups is None) != (given.background_groups is None):
            names = ("groups", "background_groups")
            here, gone = names if given.background_groups is None else names[::-1]
            raise ValueError(
                f"{here} was given without {gone}; rows are shuffled between both sets, so give "
                "the groups of both (numpy.arange(n) where each row is its own)"
            )
        if given.groups is not None and (
            not backgrounds or any(isinstance(one, Moments) for one in backgrounds)
        ):
            raise ValueError("groups need the rows of a background, not None or Moments")
        each = {
            name: self._one_each(name, len(backgrounds), several)
            for name in ("background_sample_weight", "background_covariates", "background_groups")
        }
        if given.covariates is None and given.background_covariates is not None:
            raise ValueError("background_covariates without covariates; give both, or neither")
        self._learn_covariates(given.covariates, *each["background_covariates"])
        target, target_rows = self._read(
            X, "X", given.sample_weight, given.covariates, given.groups, reset=True
        )
        found, sets = [], []
        for number, rows in enumerate(backgrounds):
            moments, its = self._read(
                rows,
                "background",
                each["background_sample_weight"][number],
                each["background_covariates"][number],
                each["background_groups"][number],
                n_target=-1 if target_rows is None else len(target_rows),
            )
            found.append(moments)
            sets.append(its)
        components = getattr(self.estimator, "n_components", 1)
        back, shares = _mix(found, several, given.background_mixture, target, components)
        ours = not any(isinstance(rows, Moments) for rows in backgrounds)
        at_hand = _all_or_none(sets)
        return Sides(target, back, target_rows, at_hand, shares, ours=ours, **self._shared)

    def _read(
        self,
        data: Any,
        name: str,
        weights: Any,
        covariates: Any,
        groups: Any,
        *,
        reset: bool = False,
        n_target: int = -1,
    ) -> tuple[Moments, RowSet | None]:
        """Return the moments of one set and its rows, as far as they are at hand."""
        given = self.given
        if not reset:
            refuse_misrouted_background(self.estimator, n_target, data)
        if isinstance(data, Moments) and not reset:
            if weights is not None or given.covariates is not None:
                raise ValueError(
                    "a background of Moments takes no weights and no covariates; put weights "
                    "into Moments.update, and covariates into partial_out"
                )
            if data.n_features != self.estimator.n_features_in_:
                raise _other_features(data.n_features, self.estimator.n_features_in_)
            return data, _kept_rows(data)
        data = as_host_array(data)
        if kind_of(data) is not None:
            if covariates is not None or groups is not None or given.missing != "error":
                raise ValueError(
                    f"{name} is {KINDS[kind_of(data) or '']}, which is read in chunks: covariates, "
                    "groups and missing='pairwise' need it as an array"
                )
            return read_source(self.estimator, data, name, reset=reset, sample_weight=weights)
        rows = check_rows(self.estimator, data, name, reset=reset)
        if given.covariates is not None and covariates is None:
            raise ValueError("covariates without background_covariates; give both, or neither")
        prefix = "" if reset else "background_"
        rowset = _without_zero_weights(self._row_set(rows, weights, covariates, groups, prefix))
        _require_two_groups(rowset.groups, f"{prefix}groups")
        return self._moments(rowset, "target" if reset else "background", name), rowset

    def _row_set(
        self, rows: Any, weights: Any, covariates: Any, groups: Any, prefix: str = ""
    ) -> RowSet:
        """Return all rows of a matrix with what belongs to them, checked."""
        n = rows.shape[0]
        labels = None if groups is None else check_labels(groups, n, f"{prefix}groups")
        coded = self._encode(covariates, n, f"{prefix}covariates")
        checked = check_weights(weights, n, f"{prefix}sample_weight")
        return RowSet(rows, None, checked, labels, coded)

    def _moments(self, rows: RowSet, role: str, name: str) -> Moments:
        if len(rows) == 0:
            raise ValueError(
                f"the sample weights of {name} are all zero; at least 2 must be above 0"
            )
        try:
            moments, self.effects[role] = rows.moments(self.given.missing)
        except NonFiniteError as error:
            # Of dense data with missing values only infinity comes here.
            advice = None
            if self.given.missing == "pairwise":
                advice = "missing values must be NaN in a dense array"
            names = getattr(self.estimator, "feature_names_in_", None)
            raise NonFiniteError(error.columns, names, source=name, advice=advice) from None
        return moments

    def _one_each(self, name: str, count: int, several: bool) -> Sequence[Any]:
        """Return an argument for each background."""
        values = getattr(self.given, name)
        if values is None or not several:
            return [values] * max(count, 1)
        if not isinstance(values, list | tuple) or len(values) != count:
            raise ValueError(
                f"{name} must be a list with one entry for each of {count} backgrounds"
            )
        return values

    def _learn_covariates(self, *tables: Any) -> None:
        tables = tuple(table for table in tables if table is not None)
        self.coder = CovariateCoder.learn(*tables) if tables else None

    def _encode(self, table: Any, n_rows: int, name: str) -> FloatArray | None:
        if table is None or self.coder is None:
            return None
        coded = self.coder.encode(table, n_rows, name)
        if self.given.missing == "error" and np.isnan(coded).any():
            raise ValueError(f"{name} has NaN in {int(np.isnan(coded).any(axis=1).sum())} rows")
        return coded


def read_source(
    estimator: Any,
    data: Any,
    name: str,
    *,
    reset: bool,
    sample_weight: Any = None,
    min_samples: int = 2,
) -> tuple[Moments, RowSet]:
    """Return the moments of rows in chunks, and a random sample of the rows."""
    names = column_names(data)
    named = names is not None and all(isinstance(column, str) for column in names)
    known = None if reset else getattr(estimator, "feature_names_in_", None)
    if named and known is not None:
        require_same_names(names, known, name)
    reservoir = Reservoir()
    try:
        moments = add_up(data, sample_weight, reservoir=reservoir)
    except NonFiniteError as error:
        raise NonFiniteError(
            error.columns,
            names if named else known,
            source=name,
            advice=f"drop or fill in such rows before; {KINDS[kind_of(data) or '']} is read once",
        ) from None
    except TextColumnsError as error:
        raise TextColumnsError(error.columns, name) from None
    if moments.n_samples < min_samples:
        raise ValueError(
            f"{name} holds {moments.n_samples} samples, but at least {min_samples} are needed"
        )
    if reset:
        estimator.__dict__.pop("feature_names_in_", None)
        if named:
            estimator.feature_names_in_ = np.asarray(names, dtype=object)
        estimator.n_features_in_ = moments.n_features
    elif moments.n_features != estimator.n_features_in_:
        raise _other_features(moments.n_features, estimator.n_features_in_)
    return moments, RowSet(reservoir.rows(), weights=reservoir.weights(), numbers=reservoir.index())


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
    rows = sp.issparse(first) or getattr(first, "ndim", 0) == 2
    return isinstance(first, Moments) or rows or kind_of(first) is not None


def _mix(
    backgrounds: Sequence[Moments], several: bool, mixture: Any, target: Moments, components: Any
) -> tuple[Moments | None, FloatArray | None]:
    """Return several backgrounds as one, with the share of each."""
    if not several:
        if mixture is not None:
            raise ValueError("background_mixture needs a list of backgrounds")
        return (backgrounds[0] if backgrounds else None), None
    if isinstance(mixture, str):
        if mixture not in ("mean", "worst"):
            raise ValueError(
                f"background_mixture={mixture!r} must be 'mean', 'worst', or a weight for each"
            )
        k = int(components) if isinstance(components, Integral) else 1
        found = combine_backgrounds(backgrounds, how=mixture, target=target, n_components=k)
    else:
        found = combine_backgrounds(backgrounds, mixture)
    return found.moments, found.weights


def _kept_rows(moments: Moments) -> RowSet | None:
    """Return the rows that moments of few samples still hold."""
    n_features = moments.n_features or 0
    if not moments.is_thin or not 2 <= moments.n_samples <= sample_size(n_features):
        return None
    rows, weights = moments.kept_rows()
    return RowSet(rows, weights=weights)


def _all_or_none(sets: Sequence[RowSet | None]) -> list[RowSet]:
    """Return the rows of several backgrounds, or nothing where those of one are not at hand."""
    found = [rows for rows in sets if rows is not None]
    return found if len(found) == len(sets) else []


def _without_zero_weights(rows: RowSet) -> RowSet:
    if rows.weights is None or (rows.weights > 0.0).all():
        return rows
    return rows.where(rows.weights > 0.0)


# -- checks --------------------------------------------------------------------------------


def check_rows(
    estimator: Any,
    data: Any,
    name: str,
    *,
    reset: bool = False,
    finite: bool | str = False,
    min_samples: int = 2,
) -> Any:
    """Return rows as an array or a CSR matrix of numbers, with the features of the estimator.

    scikit-learn drops masks, and says of text which value is no number but not where it stands.
    """
    data = refuse_masked(as_host_array(data), name)
    refuse_damaged(data, name)
    options = {
        "accept_sparse": "csr",
        "dtype": "numeric",
        "ensure_all_finite": finite,
        "ensure_min_samples": min_samples,
    }
    try:
        if name == "background" and not reset:
            rows = check_array(data, estimator=estimator, input_name=name, **options)
        else:
            rows = validate_data(estimator, data, reset=reset, **options)
    except ValueError as error:
        refuse_text(data, name)
        if name == "background" and not str(error).startswith("background"):
            raise ValueError(f"background: {error}") from error
        raise
    if rows.dtype == object:  # dates beside numbers, for one
        refuse_text(data, name)
    if name == "background" and not reset:
        if rows.shape[1] != estimator.n_features_in_:
            raise _other_features(rows.shape[1], estimator.n_features_in_)
        names, known = _get_feature_names(data), getattr(estimator, "feature_names_in_", None)
        if names is not None and known is not None:
            require_same_names(names, known, name)
    return rows


def require_same_names(names: Any, known: Any, name: str) -> None:
    """Raise ``ValueError`` unless features have the names of the fit, in the same order."""
    if len(names) == len(known) and not np.array_equal(names, known):
        first = np.flatnonzero(np.asarray(names, dtype=object) != np.asarray(known))[0]
        raise ValueError(
            f"{name} must have the feature names of the fit in the same order; column {first} is "
            f"{names[first]!r} in {name}, but it was {known[first]!r}"
        )


def check_labels(values: Any, n: int, name: str) -> NDArray[Any]:
    """Return labels of groups, one a row."""
    labels = np.asarray(refuse_masked(values, name))
    if labels.shape != (n,):
        raise ValueError(f"{name} has shape {labels.shape}; it must be ({n},), one per row")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(f"{name} contains NaN or infinity; give every row a label")
    return labels


def _require_two_groups(labels: Any, name: str) -> None:
    if labels is not None and len(np.unique(labels)) < 2:
        raise ValueError(f"{name} has 1 group; at least 2 are needed")


def _check_mask(is_background: Any, n_rows: int) -> NDArray[np.bool_]:
    mask = np.asarray(refuse_masked(is_background, "is_background"))
    if mask.shape != (n_rows,):
        raise ValueError(f"is_background has shape {mask.shape}; it must be ({n_rows},), as X")
    if mask.dtype != bool:
        if not np.isin(mask, (0, 1)).all():
            raise ValueError("is_background must be True/False (or 1/0) for each row of X")
        mask = mask.astype(bool)
    for name, count in (("background", int(mask.sum())), ("target", int((~mask).sum()))):
        if count < 2:
            raise ValueError(f"is_background leaves {count} {name} samples; at least 2 are needed")
    return mask


def _other_features(given: int | None, expected: int | None) -> ValueError:
    return ValueError(
        f"background has {given} features, but X has {expected}; both must have the same"
    )
