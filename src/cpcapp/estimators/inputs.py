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

from cpcapp.contrast.loading import MOST_ROWS
from cpcapp.estimators.callers import refuse_misrouted_background
from cpcapp.inference.backgrounds import combine_backgrounds
from cpcapp.moments.covariates import CovariateCoder, CovariateEffect, regress_out
from cpcapp.moments.missing import MISSING, pairwise_moments
from cpcapp.moments.moments import Moments
from cpcapp.moments.reservoir import Reservoir
from cpcapp.moments.rows import (
    FloatArray,
    NonFiniteError,
    TextColumnsError,
    align,
    as_rows,
    check_weights,
    refuse_damaged,
    refuse_masked,
    refuse_text,
)
from cpcapp.moments.sample import Sample, make_sample, mix_samples, sample_size
from cpcapp.moments.sources import KINDS, add_up, as_host_array, column_names, kind_of

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

    @classmethod
    def of(cls, rows: Reservoir) -> RowSet:
        """Return the rows that were kept of many."""
        return cls(rows.rows(), weights=rows.weights(), numbers=rows.index())

    def __len__(self) -> int:
        return int(self.X.shape[0]) if self.index is None else len(self.index)

    def where(self, chosen: NDArray[Any]) -> RowSet:
        """Return some of the rows, given as a mask or by number."""
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        beside = {
            name: None if getattr(self, name) is None else getattr(self, name)[chosen]
            for name in ("weights", "groups", "covariates", "numbers")
        }
        return RowSet(self.X, chosen if self.index is None else self.index[chosen], **beside)

    def rows(self) -> Any:
        """Return the rows, an array or a CSR matrix."""
        return self.X if self.index is None else self.X[self.index]

    def bounded(self, most: int, random_state: Any) -> RowSet:
        """Return a random sample of the rows, in their order, if there are more."""
        if len(self) <= most:
            return self
        rng = np.random.default_rng(random_state)
        return self.where(np.sort(rng.choice(len(self), most, replace=False)))

    def blocks(self) -> Iterator[tuple[Any, FloatArray | None]]:
        """Yield rows with their covariates beside them; a memory map is never read whole."""
        as_given = self.index is None and self.covariates is None
        step = len(self) if as_given else _BLOCK
        for start in range(0, len(self), step):
            part = slice(start, min(start + step, len(self)))
            rows = self.X[part if self.index is None else self.index[part]]
            if self.covariates is not None:
                both = (rows, self.covariates[part])
                rows = sp.hstack(both, format="csr") if sp.issparse(rows) else np.hstack(both)
            rows = as_rows(rows) if sp.issparse(rows) else rows
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

    def rows_to_look_at(self) -> tuple[Any, FloatArray | None]:
        """Return rows of the target and their weights, to see how they spread."""
        if self.target_rows is None:
            return None, None
        if self.target_rows.covariates is None and not self.fills:
            part = self.target_rows.bounded(MOST_ROWS, self.random_state)
            return part.rows(), part.weights
        return self.target_sample.rows, self.target_sample.weights


# -- reading -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """One set as it was given, and what belongs to its rows."""

    data: Any
    name: str  # "X" or "background"
    weights: Any = None
    covariates: Any = None
    groups: Any = None


@dataclass(frozen=True)
class _ReadSet:
    """One set as it was read."""

    moments: Moments
    rows: RowSet | None
    effect: CovariateEffect | None = None


def read_sides(
    estimator: Any, X: Any, y: Any, background: Any, is_background: Any, given: FitArguments
) -> Sides:
    """Return both sets, whichever way they were given; the estimator learns its features."""
    if given.missing not in MISSING:
        allowed = ", ".join(map(repr, MISSING))
        raise ValueError(f"missing={given.missing!r} must be one of {allowed}")
    if is_background is not None:
        if background is not None:
            raise ValueError("give either background or is_background, not both")
        coder, sets = _divide(estimator, X, is_background, given)
    elif getattr(y, "ndim", 1) == 2 and y.shape[1] == np.shape(X)[1] > 1:
        raise ValueError(
            "y is ignored, but it looks like a background; call fit(X, background=...)"
        )
    else:
        coder, sets = _read_apart(estimator, X, background, given)
    return _make_sides(
        estimator,
        sets,
        background,
        given.background_mixture,
        coder=coder,
        fills=given.missing == "pairwise",
    )


def read_moments(estimator: Any, target: Any, background: Any, mixture: Any) -> Sides:
    """Return both sets from moments that were added up elsewhere."""
    sets = []
    for name, moments in [("target", target), *(("background", b) for b in _listed(background))]:
        if not isinstance(moments, Moments):
            raise TypeError(f"{name} must be Moments, not {type(moments).__name__}; use fit")
        if moments.n_features is None:
            raise ValueError(f"{name} holds no samples yet")
        if name == "target":
            estimator.__dict__.pop("feature_names_in_", None)
            estimator.n_features_in_ = target.n_features
        require_features(estimator, moments.n_features)
        sets.append(_ReadSet(moments, _kept_rows(moments)))
    return _make_sides(estimator, sets, background, mixture, ours=False)


def _make_sides(
    estimator: Any,
    sets: list[_ReadSet],
    background: Any,
    mixture: Any,
    *,
    coder: CovariateCoder | None = None,
    ours: bool = True,
    fills: bool = False,
) -> Sides:
    """Return both sets, several backgrounds mixed."""
    target, *others = sets
    mixed, shares = (others[0].moments if others else None), None
    if is_several(background):
        backgrounds, components = [one.moments for one in others], estimator.n_components
        if not isinstance(mixture, str):
            found = combine_backgrounds(backgrounds, mixture)
        elif mixture in ("mean", "worst"):
            k = int(components) if isinstance(components, Integral) else 1
            found = combine_backgrounds(
                backgrounds, how=mixture, target=target.moments, n_components=k
            )
        else:
            raise ValueError(
                f"background_mixture={mixture!r} must be 'mean', 'worst', or a weight for each"
            )
        mixed, shares = found.moments, found.weights
        ours = ours and not any(isinstance(one, Moments) for one in background)
    elif mixture is not None:
        raise ValueError("background_mixture needs a list of backgrounds")
    rows = [one.rows for one in others if one.rows is not None]
    return Sides(
        target.moments,
        mixed,
        target.rows,
        rows if len(rows) == len(others) else [],
        shares,
        coder,
        # What covariates explain of several backgrounds differs from one to the other.
        {"target": target.effect, "background": others[0].effect if len(others) == 1 else None},
        ours=ours and not isinstance(background, Moments),
        fills=fills,
        random_state=estimator.random_state,
    )


def _divide(
    estimator: Any, X: Any, is_background: Any, given: FitArguments
) -> tuple[CovariateCoder | None, list[_ReadSet]]:
    """Read both sets from one matrix."""
    for name, value in vars(given).items():
        if name.startswith("background_") and value is not None:
            raise ValueError(f"with is_background, X holds both sides; do not give {name}")
    if kind_of(X) is not None:
        raise ValueError(
            f"X is {KINDS[kind_of(X) or '']}, which is read in chunks: is_background needs it "
            "as an array; give target and background apart"
        )
    coder = None if given.covariates is None else CovariateCoder.learn(given.covariates)
    whole = Given(X, "X", given.sample_weight, given.covariates, given.groups)
    both = check_set(estimator, whole, coder)
    mask = _check_mask(align(is_background, X, "is_background"), len(both))
    sets = [_add_up(estimator, both.where(part), "X", given.missing) for part in (~mask, mask)]
    return coder, sets


def _read_apart(
    estimator: Any, X: Any, background: Any, given: FitArguments
) -> tuple[CovariateCoder | None, list[_ReadSet]]:
    """Read a target and one background, several, or none."""
    backgrounds = _listed(background)
    if (given.groups is None) != (given.background_groups is None):
        names = ("groups", "background_groups")
        present, absent = names if given.background_groups is None else names[::-1]
        raise ValueError(
            f"{present} was given without {absent}; rows are shuffled between both sets, so give "
            "the groups of both (numpy.arange(n) where each row is its own)"
        )
    if given.groups is not None and (
        not backgrounds or any(isinstance(one, Moments) for one in backgrounds)
    ):
        raise ValueError("groups need the rows of a background, not None or Moments")
    if given.covariates is None and given.background_covariates is not None:
        raise ValueError("background_covariates without covariates; give both, or neither")
    sets = [Given(X, "X", given.sample_weight, given.covariates, given.groups)]
    for number, data in enumerate(backgrounds):
        beside = []
        for name in ("background_sample_weight", "background_covariates", "background_groups"):
            values = getattr(given, name)
            if backgrounds is background and values is not None:
                if not isinstance(values, list | tuple) or len(values) != len(backgrounds):
                    raise ValueError(
                        f"{name} must be a list with one entry for each of {len(backgrounds)} "
                        "backgrounds"
                    )
                values = values[number]
            beside.append(values)
        sets.append(Given(data, "background", *beside))
    coder = None
    if given.covariates is not None:
        coder = CovariateCoder.learn(*(one.covariates for one in sets))
    found: list[_ReadSet] = []
    for one in sets:
        if found:
            n_target = -1 if found[0].rows is None else len(found[0].rows)
            refuse_misrouted_background(estimator, n_target, one.data)
        found.append(_read(estimator, one, coder, given.missing))
    return coder, found


def _read(estimator: Any, given: Given, coder: CovariateCoder | None, missing: str) -> _ReadSet:
    """Read one set: its moments, and its rows as far as they are at hand."""
    data, name = given.data, given.name
    if isinstance(data, Moments) and name == "background":
        if given.weights is not None or coder is not None:
            raise ValueError(
                "a background of Moments takes no weights and no covariates; put weights "
                "into Moments.update, and covariates into partial_out"
            )
        require_features(estimator, data.n_features)
        return _ReadSet(data, _kept_rows(data))
    kind = None if type(data) is np.ndarray else kind_of(data)
    if kind is None:
        return _add_up(estimator, check_set(estimator, given, coder), name, missing)
    if given.covariates is not None or given.groups is not None or missing != "error":
        raise ValueError(
            f"{name} is {KINDS[kind]}, which is read in chunks: covariates, groups and "
            "missing='pairwise' need it as an array"
        )
    moments, kept = read_source(
        estimator, data, name, reset=name == "X", sample_weight=given.weights
    )
    return _ReadSet(moments, RowSet.of(kept))


def check_set(
    estimator: Any, given: Given, coder: CovariateCoder | None = None, **options: Any
) -> RowSet:
    """Return all rows of a matrix with what belongs to them, checked."""
    data, name = given.data, given.name
    X = check_rows(estimator, data, name, **({"reset": name == "X"} | options))
    n, prefix = X.shape[0], "" if name == "X" else "background_"
    weights = labels = coded = None
    if given.weights is not None:
        label = f"{prefix}sample_weight"
        weights = check_weights(align(given.weights, data, label), n, label)
    if given.groups is not None:
        label = f"{prefix}groups"
        labels = _check_labels(align(given.groups, data, label), n, label)
    if coder is not None:
        label = f"{prefix}covariates"
        if given.covariates is None:
            raise ValueError("covariates without background_covariates; give both, or neither")
        coded = coder.encode(align(given.covariates, data, label), n, label)
        lacking = int(np.isnan(coded).any(axis=1).sum())
        if lacking:
            raise ValueError(
                f"{label} has NaN in {lacking} rows; fill it in or leave those rows out "
                "(missing='pairwise' is for features)"
            )
    return RowSet(X, None, weights, labels, coded)


def _add_up(estimator: Any, rows: RowSet, name: str, missing: str) -> _ReadSet:
    """Add up the rows of a set that count for something, without what covariates explain."""
    if rows.weights is not None and not rows.weights.all():
        rows = rows.where(rows.weights > 0.0)
        if len(rows) == 0:
            raise ValueError(
                f"the sample weights of {name} are all zero; at least 2 must be above 0"
            )
    if rows.groups is not None and len(np.unique(rows.groups)) < 2:
        prefix = "" if name == "X" else "background_"
        raise ValueError(f"{prefix}groups has 1 group; at least 2 are needed")
    moments = Moments()
    try:
        if missing == "pairwise" and not sp.issparse(rows.X):
            X = rows.rows()
            beside = X if rows.covariates is None else np.hstack([X, rows.covariates])
            moments = pairwise_moments(beside, rows.weights)
        else:
            for block, weights in rows.blocks():
                moments.add_checked(block, weights)
    except NonFiniteError as error:
        # Of dense data with missing values only infinity comes here.
        advice = "missing values must be NaN in a dense array" if missing == "pairwise" else None
        names = getattr(estimator, "feature_names_in_", None)
        raise NonFiniteError(error.columns, names, source=name, advice=advice) from None
    if rows.covariates is None:
        return _ReadSet(moments, rows)
    width = rows.X.shape[1]
    columns = np.arange(width, width + rows.covariates.shape[1])
    moments, effect = regress_out(moments, columns)
    return _ReadSet(moments, rows, effect)


def read_source(
    estimator: Any,
    data: Any,
    name: str,
    *,
    reset: bool,
    sample_weight: Any = None,
    min_samples: int = 2,
    seed: Sequence[int] = (0,),
) -> tuple[Moments, Reservoir]:
    """Return the moments of rows in chunks, and a random sample of the rows."""
    names = column_names(data)
    named = names is not None and all(isinstance(column, str) for column in names)
    known = None if reset else getattr(estimator, "feature_names_in_", None)
    if named and known is not None:
        require_same_names(names, known, name)
    reservoir = Reservoir(seed=seed)
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
    require_features(estimator, moments.n_features)
    return moments, reservoir


def _listed(background: Any) -> Any:
    """Return a list of backgrounds as it is, another background as a list of one."""
    if is_several(background):
        return background
    return [] if background is None else [background]


def is_several(background: Any) -> bool:
    """Return whether a background is a list of backgrounds, not one of rows.

    >>> is_several([np.eye(2), np.eye(2)]), is_several([[1.0, 0.0], [0.0, 1.0]])
    (True, False)
    """
    if not isinstance(background, list | tuple) or not background:
        return False
    first = background[0]
    rows = sp.issparse(first) or getattr(first, "ndim", 0) == 2
    return isinstance(first, Moments) or rows or kind_of(first) is not None


def _kept_rows(moments: Moments) -> RowSet | None:
    """Return the rows that moments of few samples still hold."""
    n_features = moments.n_features or 0
    if not moments.is_thin or not 2 <= moments.n_samples <= sample_size(n_features):
        return None
    rows, weights = moments.kept_rows()
    return RowSet(rows, weights=weights)


# -- checks --------------------------------------------------------------------------------


def check_rows(
    estimator: Any,
    data: Any,
    name: str,
    *,
    reset: bool = False,
    min_samples: int = 2,
) -> Any:
    """Return rows as an array or a CSR matrix of numbers, with the features of the estimator.

    scikit-learn drops masks, and says of text which value is no number but not where it stands.
    """
    if type(data) is not np.ndarray:
        data = refuse_masked(as_host_array(data), name)
        refuse_damaged(data, name)
    options = {
        "accept_sparse": "csr",
        "dtype": "numeric",
        "ensure_all_finite": False,  # NaN is looked for where it can be named
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
    if rows.dtype == object:
        refuse_text(data, name)  # dates beside numbers, for one
        rows = rows.astype(np.float64)
    if name == "background" and not reset:
        require_features(estimator, rows.shape[1])
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


def _check_labels(values: Any, n: int, name: str) -> NDArray[Any]:
    """Return labels of groups, one a row."""
    labels = np.asarray(refuse_masked(values, name))
    if labels.shape != (n,):
        raise ValueError(f"{name} has shape {labels.shape}; it must be ({n},), one per row")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(f"{name} contains NaN or infinity; give every row a label")
    return labels


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


def require_features(estimator: Any, n_features: int | None, name: str = "background") -> None:
    """Raise ``ValueError`` unless there are as many features as in the fit."""
    if n_features != estimator.n_features_in_:
        raise ValueError(
            f"{name} has {n_features} features, but X has {estimator.n_features_in_}; "
            "both must have the same"
        )
