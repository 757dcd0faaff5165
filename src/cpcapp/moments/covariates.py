"""Covariates and batches, taken out of moments before anything is contrasted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from cpcapp.moments.moments import Moments
from cpcapp.moments.rows import FloatArray, are_numbers, frame_columns, refuse_masked

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class CovariateEffect:
    """What a least-squares fit on covariates says of each feature."""

    coef: FloatArray  # (n_covariates, n_features), the shortest if covariates are collinear
    mean: FloatArray  # of the covariates

    def predict(self, covariates: FloatArray) -> FloatArray:
        """Return how far covariates move each feature from its mean, (n, n_features)."""
        return np.asarray((covariates - self.mean) @ self.coef)


def partial_out(moments: Moments, columns: ArrayLike) -> Moments:
    """Return the moments of the other features without what covariates explain of them.

    These are the moments of the residuals of a least-squares fit, with an intercept, of each
    feature on the covariates, plus the feature's mean.

    Parameters
    ----------
    moments : Moments
        Of features and covariates together.
    columns : array-like of int, or of bool of shape (n_features,)
        Which columns are covariates. They may be collinear, as the columns of a one-hot code are.

    Returns
    -------
    Moments
        Of the features that are not covariates, in their order.

    Notes
    -----
    The covariance of residuals is the Schur complement ``S_xx - S_xz S_zz⁻¹ S_zx`` of the scatter.
    So chunks of features and covariates side by side can be added up first. Each covariate that
    the others do not explain costs a degree of freedom: with q of them the covariance of residuals
    is divided by ``n - q``, where a plain one is divided by n, the number of samples (with weights
    Kish's effective number). ``n_samples`` stays as it is.

    It is exact to the rounding of the whole variance: of a feature of which covariates explain all
    but 1e-6, ten digits are left.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import Moments, partial_out
    >>> rng = np.random.default_rng(0)
    >>> age = rng.normal(size=(500, 1))
    >>> X = rng.normal(size=(500, 2)) + age * [3.0, 0.0]
    >>> both = Moments.of(np.hstack([X, age]))
    >>> both.variance()[:2].round(1), partial_out(both, [2]).variance().round(1)
    (array([10.1,  1. ]), array([1., 1.]))
    """
    return regress_out(moments, columns)[0]


def regress_out(moments: Moments, columns: ArrayLike) -> tuple[Moments, CovariateEffect]:
    """Return the moments of the residuals, as `partial_out` does, and what was taken out."""
    if not isinstance(moments, Moments) or moments.mean is None:
        raise ValueError(f"moments must be Moments with samples, not {moments!r}")
    z = _mask(columns, len(moments.mean))  # which columns are covariates
    rows = moments.centred_rows() if moments.is_thin else None
    scatter = moments.scatter() if rows is None else rows[:, z].T @ rows[:, z]
    # The range of S_zz, in units in which each covariate has length 1, so that units do not decide
    # about the rank: with D these units, basis = D⁻¹U/roots of D⁻¹S_zzD⁻¹ = U diag(roots²) Uᵀ.
    inner = scatter[np.ix_(z, z)] if rows is None else scatter
    # What varies by rounding explains nothing, and costs nothing.
    varies = ~moments.spread().constant[z]
    inner = inner * np.multiply.outer(varies, varies)
    scale = np.sqrt(np.where(inner.diagonal() > 0.0, inner.diagonal(), 1.0))
    values, vectors = eigh(inner / np.multiply.outer(scale, scale))
    kept = values > 10.0 * len(values) * _EPS * max(values[-1], 0.0)
    basis = vectors[:, kept] / scale[:, None] / np.sqrt(values[kept])
    # Residuals of covariates of rank q have lost q degrees of freedom: n/(n - q) in their place.
    effective, rank = moments.effective_samples, int(kept.sum())
    if effective <= rank + 1:
        raise ValueError(
            f"{effective:g} samples are too few for {z.sum()} columns of covariates; give more "
            "samples, or fewer covariates"
        )
    gain, mean = effective / (effective - rank), moments.mean[~z]
    if rows is not None:
        scores = rows[:, z] @ basis  # orthonormal columns
        loads = scores.T @ rows[:, ~z]
        residuals = rows[:, ~z] - scores @ loads
        left = Moments.from_centred_rows(residuals * np.sqrt(gain), moments, mean)
    else:
        loads = basis.T @ scatter[np.ix_(z, ~z)]
        before = scatter[np.ix_(~z, ~z)]
        after = before - loads.T @ loads
        # What covariates explain to rounding does not vary at all.
        gone = after.diagonal() <= 1e3 * _EPS * rank * before.diagonal()
        after[gone], after[:, gone] = 0.0, 0.0
        left = Moments.from_scatter(after * gain, moments, mean)
    return left, CovariateEffect(basis @ loads, moments.mean[z])


def _mask(columns: ArrayLike, n_features: int) -> NDArray[np.bool_]:
    """Return which columns are meant, by indices or by a mask."""
    chosen = np.atleast_1d(np.asarray(columns))
    mask = np.zeros(n_features, dtype=bool)
    if chosen.dtype == bool and chosen.shape != mask.shape:
        raise ValueError(f"columns has shape {chosen.shape}; a mask must be ({n_features},)")
    if chosen.dtype.kind not in "iub" or chosen.ndim != 1:
        raise ValueError(f"columns={columns!r} must be indices of columns, or a mask")
    try:
        mask[chosen] = True
    except IndexError:
        raise ValueError(f"columns={columns!r} must be between 0 and {n_features - 1}") from None
    if not mask.any() or mask.all():
        raise ValueError(
            f"columns marks {int(mask.sum())} of {n_features} columns as covariates; there must "
            "be a covariate, and a feature besides"
        )
    return mask


class CovariateCoder:
    """Turns covariates into numbers: text and categories become one column for each category.

    ``categories`` holds for each covariate the sorted categories, or None if it is a number.

    >>> coder = CovariateCoder.learn(["a", "b", "a"])
    >>> coder.encode(["b", "b", "a"])
    array([[0., 1.],
           [0., 1.],
           [1., 0.]])
    """

    def __init__(self, categories: list[NDArray[Any] | None]) -> None:
        self.categories = categories

    @classmethod
    def learn(cls, *tables: Any) -> Self:
        """Return the code of covariates as they are in all of some tables, None left out."""
        columns = [_columns(table) for table in tables if table is not None]
        if len({len(table) for table in columns}) != 1:
            counts = " and ".join(str(len(table)) for table in columns)
            raise ValueError(f"covariates of target and background have {counts} columns")
        categories: list[NDArray[Any] | None] = []
        for number, together in enumerate(zip(*columns, strict=True)):
            are_labels = [_is_categorical(column) or _is_text(column) for column in together]
            if any(are_labels) and not all(are_labels):
                raise ValueError(
                    f"column {number} of the covariates is text or categories in one set, and "
                    "numbers in the other; make it the same in both"
                )
            texts = [np.asarray(column).astype(str) for column in together]
            categories.append(np.unique(np.concatenate(texts)) if all(are_labels) else None)
        return cls(categories)

    def encode(self, table: Any, n_rows: int | None = None, name: str = "covariates") -> FloatArray:
        """Return covariates as numbers, (n, n_columns)."""
        columns = _columns(table)
        if len(columns) != len(self.categories):
            raise ValueError(f"{name} has {len(columns)} columns, not {len(self.categories)}")
        coded = []
        for i, (column, categories) in enumerate(zip(columns, self.categories, strict=True)):
            if categories is None:
                coded.append(np.asarray(column, dtype=np.float64)[:, None])
                continue
            text = np.asarray(column).astype(str)
            unknown = ~np.isin(text, categories)
            if unknown.any():
                raise ValueError(
                    f"{name} has {str(text[unknown][0])!r} in column {i}, which was not there in "
                    f"fit (but {', '.join(map(repr, categories[:5].tolist()))})"
                )
            coded.append((text[:, None] == categories).astype(np.float64))
        encoded = np.hstack(coded)
        if n_rows is not None and len(encoded) != n_rows:
            raise ValueError(f"{name} has {len(encoded)} rows, but there are {n_rows} samples")
        if np.isinf(encoded).any():
            raise ValueError(f"{name} has infinite values")
        return encoded


def _columns(table: Any) -> list[Any]:
    """Return the columns of a list, an array of one or two dimensions, or a data frame."""
    if hasattr(table, "columns"):
        return [column for _, column in frame_columns(table)]
    if _is_categorical(table):
        return [table]
    values = np.asarray(refuse_masked(table, "covariates"))
    if values.ndim not in (1, 2) or values.size == 0:
        raise ValueError(f"covariates has shape {values.shape}; it must be (n,) or (n, n_columns)")
    return [values] if values.ndim == 1 else list(values.T)


def _is_text(column: Any) -> bool:
    """Return whether values are text, also text of digits as names of batches are."""
    values = np.asarray(column)
    if values.dtype.kind == "O":
        return any(isinstance(value, str | bytes) for value in values) or not are_numbers(values)
    return values.dtype.kind in "US"


def _is_categorical(column: Any) -> bool:
    return getattr(getattr(column, "dtype", None), "name", "") == "category"
