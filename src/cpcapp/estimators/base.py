"""What the estimators share: linear maps there and back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from sklearn.utils.validation import _check_feature_names_in, check_array

from cpcapp.contrast.solution import Contrast, rank_features
from cpcapp.contrast.solve import solve_contrast
from cpcapp.estimators.inputs import Sides, check_rows, require_same_names
from cpcapp.moments.covariates import CovariateCoder, CovariateEffect
from cpcapp.moments.dask import map_blocks
from cpcapp.moments.rows import (
    FeatureRangeError,
    FloatArray,
    NonFiniteError,
    align,
    refuse_masked,
)
from cpcapp.moments.sources import column_names, kind_of, row_chunks

# What partial_fit keeps, and all that is stored under names without an underscore at the end.
KEPT = ("_target", "_background", "_rows")
_STORED = (*KEPT, "_contrast", "_coder", "_calibration", "_why_unfitted")


class ContrastiveTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of linear transformers that are fitted to a target and a background."""

    # Given by the subclass once fitted.
    components_: FloatArray
    atoms_: FloatArray
    eigenvalues_: FloatArray
    contrast_: FloatArray
    mean_: FloatArray
    background_mean_: FloatArray | None
    n_features_in_: int
    # Only with several backgrounds, and with covariates.
    background_weights_: FloatArray
    covariate_effects_: dict[str, CovariateEffect | None]
    _contrast: Contrast
    _coder: CovariateCoder

    def _store(self, contrast: Contrast, sides: Sides) -> None:
        """Store what every contrast has, and what was taken out of its sets."""
        self._contrast = contrast
        self.components_ = contrast.filters.T
        self.atoms_ = contrast.atoms.T
        self.eigenvalues_ = contrast.eigenvalues
        self.contrast_ = contrast.contrast
        self.mean_ = contrast.mean
        self.background_mean_ = contrast.background_mean
        if sides.shares is not None:
            self.background_weights_ = sides.shares
        if sides.coder is not None:
            self._coder, self.covariate_effects_ = sides.coder, sides.effects

    def _forget(self, kept: Sequence[str] = ()) -> None:
        """Drop what an earlier fit stored."""
        for name in list(vars(self)):
            stored = name in _STORED or (name.endswith("_") and not name.endswith("__"))
            if stored and name not in kept:
                del self.__dict__[name]

    def _named(self, error: FeatureRangeError) -> FeatureRangeError:
        """Give the features that a solver complains of by their names."""
        names = getattr(self, "feature_names_in_", None)
        return FeatureRangeError(error.columns, names, source=error.source)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def _fitted(self) -> Contrast:
        """Return the fitted maps."""
        if not hasattr(self, "components_"):
            why = getattr(self, "_why_unfitted", "Call 'fit' or 'partial_fit' first.")
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet. {why}")
        return self._contrast

    @property
    def _allows_nan(self) -> bool:
        return getattr(self, "missing", "error") == "pairwise"

    def _check_new(self, X: Any) -> Any:
        self._fitted()
        X = check_rows(self, X, "X", min_samples=1)
        values = X.data if sp.issparse(X) else X
        # The sum says in most cases at once that all is finite.
        if values.dtype.kind == "f" and not np.isfinite(values.sum()):
            missing = self._allows_nan and not sp.issparse(X)
            bad = np.isinf(values) if missing else ~np.isfinite(values)
            if bad.any():
                where = X.tocoo().col[bad] if sp.issparse(X) else np.nonzero(bad)[1]
                names = getattr(self, "feature_names_in_", None)
                raise NonFiniteError(np.unique(where), names, source="X")
        return X

    def _map(self, function: Callable[[Any], Any], X: Any, n_columns: int | None) -> NDArray[Any]:
        """Return what a function makes of rows; chunk by chunk where they are not in memory.

        Lazily for Dask, by the contrast of today. ``n_columns`` of the result; None for one number
        a row.
        """
        if kind_of(X) is None:
            return function(self._check_new(X))  # type: ignore[no-any-return]
        names, known = column_names(X), getattr(self, "feature_names_in_", None)
        if names is not None and known is not None:
            require_same_names(names, known, "X")
        frozen = copy.copy(self)
        for name in (*KEPT, "feature_names_in_"):  # need not travel, and blocks have no names
            frozen.__dict__.pop(name, None)
        work = partial(_map_chunk, frozen, function, n_columns)
        if kind_of(X) == "dask":
            return map_blocks(X, work, n_columns)  # type: ignore[no-any-return]
        parts = [work(rows) for rows in row_chunks(X)]
        if not parts:
            raise ValueError("X holds no samples")
        return np.concatenate(parts)

    # -- linear maps -----------------------------------------------------------------------

    def transform(self, X: Any) -> NDArray[Any]:
        """Reduce samples to their components, ``Fᵀ(x - mean_)``.

        ``X``: also all other sources that ``fit`` takes; they are read in chunks.

        float32 for float32 input, else float64. For a Dask array or dataframe a Dask array of the
        same blocks, which is not computed yet.
        """
        contrast = self._fitted()
        return self._map(contrast.transform, X, len(contrast.eigenvalues))

    def inverse_transform(self, Y: Any) -> NDArray[Any]:
        """Return the samples that the atoms make of given components, ``mean_ + W y``."""
        contrast = self._fitted()
        Y = check_array(
            refuse_masked(Y, "Y"),
            dtype=[np.float64, np.float32],
            ensure_min_features=0,
            estimator=self,
            input_name="Y",
        )
        if Y.shape[1] != len(self.atoms_):
            raise ValueError(
                f"Y has {Y.shape[1]} components, but {type(self).__name__} has {len(self.atoms_)}"
            )
        return contrast.inverse_transform(Y)

    def denoise(self, X: Any) -> NDArray[Any]:
        """Keep of each sample only what its components explain, ``mean_ + W Fᵀ(x - mean_)``.

        Appendix B of the paper; the same as ``inverse_transform(transform(X))``.
        """
        contrast = self._fitted()
        return self._map(contrast.denoise, X, len(contrast.mean))

    def correct(
        self,
        X: Any,
        *,
        remove: str = "contrast",
        background: Any = None,
        n_components: int | None = None,
    ) -> NDArray[Any]:
        """Return what is left of samples when the contrast, or the background, is removed.

        ``remove``: ``"contrast"``: what the components explain, ``x - W Fᵀ(x - mean_)``; the output
        of the filters is 0 then. ``"background"``: the main subspace of the background, ``x - UUᵀ(x
        - background mean)`` with ``U`` its principal directions.

        ``n_components``: dimensions of the background's subspace; by default as many as there are
        components.
        """
        contrast = self._fitted()
        X = self._check_new(X)
        rows = X.toarray() if sp.issparse(X) else X
        if remove == "contrast":
            corrected = rows - (contrast.denoise(X) - self.mean_)
        elif remove == "background":
            source = getattr(self, "_background", None) if background is None else background
            if source is None:
                raise ValueError(
                    "remove='background' needs background=..., as fit keeps no data of it"
                )
            k = len(self.components_) if n_components is None else n_components
            main = solve_contrast(source, None, k)
            if len(main.mean) != rows.shape[1]:
                raise ValueError(
                    f"background has {len(main.mean)} features, but X has {rows.shape[1]}"
                )
            # A missing value counts as the mean, but stays missing.
            centred = np.nan_to_num(rows - main.mean, nan=0.0)
            corrected = rows - (centred @ main.filters) @ main.filters.T
        else:
            raise ValueError(f"remove={remove!r} must be one of 'contrast', 'background'")
        return corrected.astype(np.float32) if X.dtype == np.float32 else np.asarray(corrected)

    def remove_covariates(self, X: Any, covariates: Any, *, side: str = "target") -> FloatArray:
        """Take out of samples what their covariates explain, as it was learned in ``fit``.

        ``transform`` of the result gives scores without the influence of the covariates.
        """
        covariates = align(covariates, X, "covariates")
        X = self._check_new(X)
        if side not in ("target", "background"):
            raise ValueError(f"side={side!r} must be one of 'target', 'background'")
        effects = getattr(self, "covariate_effects_", None)
        if effects is None:
            raise ValueError("fit had no covariates; give them to fit first")
        effect = effects[side]
        if effect is None:
            why = "several backgrounds, each with effects of its own"
            if self.background_mean_ is None:
                why = "no background"
            raise ValueError(f"side={side!r} can't be cleaned: fit had {why}; use side='target'")
        rows = X.toarray() if sp.issparse(X) else X
        return np.asarray(rows - effect.predict(self._coder.encode(covariates, X.shape[0])))

    def top_features(self, n: int = 10) -> list[list[tuple[str, float]]]:
        """Return for each component the features of largest weight, with their weights.

        A weight is the filter times the standard deviation of the feature in the target. It says
        how much the score changes when the feature changes by one standard deviation, whatever its
        unit. ``cpcapp reduce`` ranks features by the same weights.

        For each component the names and signed weights, largest first. Without
        ``feature_names_in_`` the features are called ``x0``, ``x1`` and so on.
        """
        contrast = self._fitted()
        if isinstance(n, bool) or not isinstance(n, Integral):
            raise TypeError(f"n={n!r} must be a whole number")
        if n < 1:
            raise ValueError(f"n={n} must be at least 1")
        weights = self.components_ * np.sqrt(contrast.target_variance)
        return rank_features(weights, _check_feature_names_in(self), int(n))

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._allows_nan
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _map_chunk(
    estimator: Any, function: Callable[[Any], Any], n_columns: int | None, rows: Any
) -> NDArray[Any]:
    if rows.shape[0] == 0:  # a partition from which all rows were filtered
        single = n_columns is not None and rows.dtype == np.float32
        shape = (0,) if n_columns is None else (0, n_columns)
        return np.empty(shape, np.float32 if single else np.float64)
    return function(estimator._check_new(rows))  # type: ignore[no-any-return]
