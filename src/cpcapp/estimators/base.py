"""What the estimators share: linear maps there and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from sklearn.utils.validation import _check_feature_names_in, check_array

from cpcapp.contrast.loading import Loading
from cpcapp.contrast.solution import Contrast, rank_features
from cpcapp.contrast.solve import remove_main_subspace
from cpcapp.estimators.inputs import Sides, check_rows
from cpcapp.estimators.streams import apply_to_source
from cpcapp.moments.covariates import CovariateCoder, CovariateEffect
from cpcapp.moments.rows import FeatureRangeError, FloatArray, refuse_masked
from cpcapp.moments.sources import kind_of

# What is stored beside the attributes that end in an underscore.
_STORED = (
    *("_target_variance", "_loading", "_coder", "_calibration"),
    *("_target", "_background", "_rows", "_why_unfitted"),
)


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
    _target_variance: FloatArray
    _loading: Loading | None
    # Only with several backgrounds, and with covariates.
    background_weights_: FloatArray
    covariate_effects_: dict[str, CovariateEffect | None]
    _coder: CovariateCoder

    def _store(self, found: Contrast, sides: Sides) -> None:
        """Store what every contrast has, and what was taken out of its sets."""
        self.components_ = found.filters.T
        self.atoms_ = found.atoms.T
        self.eigenvalues_ = found.eigenvalues
        self.contrast_ = found.contrast
        self.mean_ = found.mean
        self.background_mean_ = found.background_mean
        self._target_variance = found.target_variance
        self._loading = found.loading
        if sides.shares is not None:
            self.background_weights_ = sides.shares
        if sides.coder is not None:
            self._coder, self.covariate_effects_ = sides.coder, sides.effects

    def _forget(self) -> None:
        """Drop what an earlier fit stored."""
        for name in list(vars(self)):
            if name in _STORED or (name.endswith("_") and not name.endswith("__")):
                del self.__dict__[name]

    def _as_contrast(self) -> Contrast:
        """Return the fitted maps as the one value that knows how to apply them."""
        self._check_fitted()
        return Contrast(
            filters=self.components_.T,
            atoms=self.atoms_.T,
            eigenvalues=self.eigenvalues_,
            contrast=self.contrast_,
            loading=self._loading,
            bound=None,
            solver="dense",
            target_variance=self._target_variance,
            explained_variance=np.full(len(self.eigenvalues_), np.nan),
            mean=self.mean_,
            background_mean=self.background_mean_,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def _check_fitted(self) -> None:
        if not hasattr(self, "components_"):
            why = getattr(self, "_why_unfitted", "Call 'fit' or 'partial_fit' first.")
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet. {why}")

    @contextmanager
    def _naming_features(self) -> Iterator[None]:
        """Give the features that a solver complains of by their names."""
        try:
            yield
        except FeatureRangeError as error:
            names = getattr(self, "feature_names_in_", None)
            raise FeatureRangeError(error.columns, names, source=error.source) from None

    @property
    def _allows_nan(self) -> bool:
        return getattr(self, "missing", "error") == "pairwise"

    def _check_new(self, X: Any) -> Any:
        self._check_fitted()
        finite = "allow-nan" if self._allows_nan and not sp.issparse(X) else True
        return check_rows(self, X, "X", finite=finite, min_samples=1)

    # -- linear maps -----------------------------------------------------------------------

    def transform(self, X: Any) -> NDArray[Any]:
        """Reduce samples to their components, ``Fᵀ(x - mean_)``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Also all other sources that ``fit`` takes; they are read in chunks.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            float32 for float32 input, else float64. For a Dask array or dataframe a Dask array of
            the same blocks, which is not computed yet.
        """
        contrast = self._as_contrast()
        if kind_of(X) is not None:
            return apply_to_source(self, "transform", X, len(self.components_))  # type: ignore[no-any-return]
        return contrast.transform(self._check_new(X))

    def inverse_transform(self, Y: Any) -> NDArray[Any]:
        """Return the samples that the atoms make of given components, ``mean_ + W y``.

        Parameters
        ----------
        Y : array-like of shape (n_samples, n_components)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        contrast = self._as_contrast()
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

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        contrast = self._as_contrast()
        if kind_of(X) is not None:
            return apply_to_source(self, "denoise", X, self.n_features_in_)  # type: ignore[no-any-return]
        return contrast.denoise(self._check_new(X))

    def correct(
        self,
        X: Any,
        *,
        remove: str = "contrast",
        background: Any = None,
        n_components: int | None = None,
    ) -> NDArray[Any]:
        """Return what is left of samples when the contrast, or the background, is removed.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        remove : {"contrast", "background"}, default="contrast"
            ``"contrast"``: what the components explain, ``x - W Fᵀ(x - mean_)``; the output of the
            filters is 0 then. ``"background"``: the main subspace of the background,
            ``x - UUᵀ(x - background mean)`` with ``U`` its principal directions.
        background : Moments or array-like of shape (n_background, n_features), optional
            Needed for ``"background"``, as ``fit`` keeps no data; not after ``partial_fit``.
        n_components : int, optional
            Dimensions of the background's subspace; by default as many as there are components.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Values that are missing stay missing.

        Examples
        --------
        >>> import numpy as np
        >>> from cpcapp import CPCAPlusPlus
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(900, 4)) * [9, 1, 3, 1]
        >>> B = rng.normal(size=(900, 4)) * [9, 1, 1, 1]
        >>> est = CPCAPlusPlus(n_components=1).fit(X, background=B)
        >>> est.correct(X).std(axis=0).round(1)
        array([8.8, 1. , 0. , 1. ])
        >>> est.correct(X, remove="background", background=B).std(axis=0).round(1)
        array([0. , 1. , 3.1, 1. ])
        """
        contrast = self._as_contrast()
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
            corrected = remove_main_subspace(rows, source, k)
        else:
            raise ValueError(f"remove={remove!r} must be one of 'contrast', 'background'")
        return corrected.astype(np.float32) if X.dtype == np.float32 else np.asarray(corrected)

    def remove_covariates(self, X: Any, covariates: Any, *, side: str = "target") -> FloatArray:
        """Take out of samples what their covariates explain, as it was learned in ``fit``.

        ``transform`` of the result gives scores without the influence of the covariates.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        covariates : array-like of shape (n_samples,) or (n_samples, n_covariates)
            As in ``fit``.
        side : {"target", "background"}, default="target"
            Whose coefficients to use.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            With the mean that the target (or background) had in ``fit``.
        """
        X = self._check_new(X)
        effects = getattr(self, "covariate_effects_", {})
        effect = effects.get(side)
        if effect is None:
            known = ", ".join(map(repr, effects)) or "none"
            raise ValueError(f"no covariates were fitted for side={side!r} (but for: {known})")
        rows = X.toarray() if sp.issparse(X) else X
        return np.asarray(rows - effect.predict(self._coder.encode(covariates, X.shape[0])))

    def top_features(self, n: int = 10) -> list[list[tuple[str, float]]]:
        """Return for each component the features of largest weight, with their weights.

        A weight is the filter times the standard deviation of the feature in the target. It says
        how much the score changes when the feature changes by one standard deviation, whatever its
        unit. ``cpcapp reduce`` ranks features by the same weights.

        Parameters
        ----------
        n : int, default=10
            Features of each component.

        Returns
        -------
        list of list of (str, float)
            For each component the names and signed weights, largest first. Without
            ``feature_names_in_`` the features are called ``x0``, ``x1`` and so on.

        Examples
        --------
        >>> import numpy as np
        >>> from cpcapp import CPCAPlusPlus
        >>> rng = np.random.default_rng(0)
        >>> X, B = rng.normal(size=(900, 4)) * [1, 1, 3, 1], rng.normal(size=(900, 4))
        >>> est = CPCAPlusPlus(n_components=1).fit(X, background=B)
        >>> [name for name, weight in est.top_features(1)[0]]
        ['x2']
        """
        self._check_fitted()
        if isinstance(n, bool) or not isinstance(n, Integral):
            raise TypeError(f"n={n!r} must be a whole number")
        if n < 1:
            raise ValueError(f"n={n} must be at least 1")
        weights = self.components_ * np.sqrt(self._target_variance)
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
