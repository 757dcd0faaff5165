"""What the estimators share: reading target and background, and linear maps there and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import (
    _check_feature_names_in,
    _get_feature_names,
    check_array,
    check_is_fitted,
    validate_data,
)

from cpcapp.contrast.correction import REMOVALS, remove_main_subspace
from cpcapp.contrast.top_features import rank_features
from cpcapp.estimators._callers import refuse_misrouted_background
from cpcapp.estimators._extras import Extras, SideReader, is_several, mix
from cpcapp.estimators._streams import apply_to_source, read_source
from cpcapp.moments.covariates import CovariateCoder, CovariateEffect
from cpcapp.moments.moments import FeatureRangeError, FloatArray, Moments, NonFiniteError
from cpcapp.moments.rows import (
    MaskedValuesError,
    TextColumnsError,
    refuse_damaged,
    refuse_masked,
    refuse_text,
)
from cpcapp.moments.sources import KINDS, as_host_array, kind_of

_BLOCK = 4096  # rows of a memory map read at once
_PROJECTED = 256  # rows centred at once


class ContrastiveTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of linear transformers that are fitted to a target and a background."""

    # Given by the subclass once fitted.
    components_: FloatArray
    atoms_: FloatArray
    mean_: FloatArray
    background_mean_: FloatArray | None
    # Only with several backgrounds, and with covariates.
    background_weights_: FloatArray
    covariate_effects_: dict[str, CovariateEffect | None]
    _coder: CovariateCoder
    # Standard deviation of each feature in the target.
    _deviation: FloatArray

    def _read_both(
        self, X: Any, y: Any, background: Any, is_background: Any, extras: Extras
    ) -> tuple[Moments, Moments | None]:
        """Return the moments of target and background, whichever way they were given."""
        if kind_of(X) is not None:
            self._forget_extras()
            return self._read_streams(X, background, is_background, extras)
        X = self._check_target(X, reset=True)
        _refuse_background_as_y(X, y)
        self._forget_extras()
        if not extras.is_plain(background):
            return self._read_with_extras(X, background, is_background, extras)
        if is_background is None:
            target = self._moments(X, "X")
            return target, self._read_background(background, X.shape[0])
        if background is not None:
            raise ValueError("give either background or is_background, not both")
        mask = _check_mask(is_background, X.shape[0])
        target = self._moments(_iter_rows(X, ~mask), "X")
        return target, self._moments(_iter_rows(X, mask), "X")

    def _read_streams(
        self, X: Any, background: Any, is_background: Any, extras: Extras
    ) -> tuple[Moments, Moments | None]:
        """Return the moments of a target that is read in chunks, and of any background."""
        if is_background is not None or not extras.can_stream:
            kind = KINDS[kind_of(X) or ""]
            raise ValueError(
                f"X is {kind}, which is read in chunks: is_background, covariates and "
                "missing='pairwise' need it as an array; give target and background apart"
            )
        target = read_source(self, X, "X", reset=True, sample_weight=extras.sample_weight)
        weights = extras.background_sample_weight
        if not is_several(background):
            if extras.background_mixture is not None:
                raise ValueError("background_mixture needs a list of backgrounds")
            return target, self._read_background(background, -1, sample_weight=weights)
        each = [None] * len(background) if weights is None else list(weights)
        if len(each) != len(background):
            raise ValueError(
                f"background_sample_weight must be a list of {len(background)}, one a background"
            )
        found = []
        for rows, its in zip(background, each, strict=True):
            one = self._read_background(rows, -1, sample_weight=its)
            assert one is not None
            found.append(one)
        components = getattr(self, "n_components", 1)
        back, self.background_weights_ = mix(found, extras.background_mixture, target, components)
        return target, back

    def _forget_extras(self) -> None:
        for name in ("background_weights_", "covariate_effects_", "_coder"):
            self.__dict__.pop(name, None)

    def _read_with_extras(
        self, X: Any, background: Any, is_background: Any, extras: Extras
    ) -> tuple[Moments, Moments | None]:
        several = is_several(background)
        reader = SideReader(extras, getattr(self, "feature_names_in_", None), several=several)
        back: Moments | None = None
        if is_background is not None:
            if background is not None:
                raise ValueError("give either background or is_background, not both")
            target, back = reader.marked(X, _check_mask(is_background, X.shape[0]))
        else:
            target = reader.target(X)
            given = list(background) if several else [] if background is None else [background]
            sound = [self._sound_background(rows, X.shape[0]) for rows in given]
            backgrounds = reader.backgrounds(sound)
            if several or extras.background_mixture is not None:
                if not several:
                    raise ValueError("background_mixture needs a list of backgrounds")
                components = getattr(self, "n_components", 1)
                mixture = extras.background_mixture
                back, self.background_weights_ = mix(backgrounds, mixture, target, components)
            elif backgrounds:
                back = backgrounds[0]
        if reader.coder is not None:
            self._coder, self.covariate_effects_ = reader.coder, reader.effects
        return target, back

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
        effect = getattr(self, "covariate_effects_", {}).get(side)
        if effect is None:
            known = ", ".join(map(repr, getattr(self, "covariate_effects_", {}))) or "none"
            raise ValueError(f"no covariates were fitted for side={side!r} (but for: {known})")
        rows = X.toarray() if sp.issparse(X) else X
        return np.asarray(rows - effect.predict(self._coder.encode(covariates, X.shape[0])))

    def _check_target(self, X: Any, *, reset: bool, min_samples: int = 2, name: str = "X") -> Any:
        X = as_host_array(X)
        if reset and _is_plain(X, min_samples):
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = X.shape[1]
            return X
        check = partial(
            validate_data,
            self,
            reset=reset,
            accept_sparse="csr",
            dtype="numeric",
            ensure_all_finite=False,
            ensure_min_samples=min_samples,
        )
        return _check_input(X, name, check)

    def _read_background(
        self, background: Any, n_target: int, *, min_samples: int = 2, sample_weight: Any = None
    ) -> Moments | None:
        if background is None:
            return None
        if kind_of(background) is not None:
            refuse_misrouted_background(self, n_target, Moments())
            return read_source(
                self,
                background,
                "background",
                reset=False,
                sample_weight=sample_weight,
                min_samples=min_samples,
            )
        sound = self._sound_background(background, n_target, min_samples=min_samples)
        if isinstance(sound, Moments):
            return sound
        return self._moments(sound, "background", sample_weight)

    def _sound_background(self, background: Any, n_target: int, *, min_samples: int = 2) -> Any:
        """Return a background as a matrix, or as moments that may be changed."""
        if kind_of(background) is not None:
            background = read_source(self, background, "background", reset=False)
        background = as_host_array(background)
        if isinstance(background, Moments):
            refuse_misrouted_background(self, n_target, background)
            if background.n_features != self.n_features_in_:
                raise _other_features(background.n_features, self.n_features_in_)
            return background.copy()
        names = None
        if not _is_plain(background, min_samples):
            names = _get_feature_names(background)
            background = self._check_background(background, min_samples)
        if background.shape[1] != self.n_features_in_:
            raise _other_features(background.shape[1], self.n_features_in_)
        own = getattr(self, "feature_names_in_", None)
        if names is not None and own is not None and not np.array_equal(names, own):
            first = np.flatnonzero(np.asarray(names) != np.asarray(own))[0]
            raise ValueError(
                f"background and X must have the same feature names in the same order; column "
                f"{first} is {names[first]!r} in background and {own[first]!r} in X"
            )
        refuse_misrouted_background(self, n_target, background)
        return background

    def _check_background(self, background: Any, min_samples: int) -> Any:
        check = partial(
            check_array,
            accept_sparse="csr",
            dtype="numeric",
            ensure_all_finite=False,
            ensure_min_samples=min_samples,
            estimator=self,
            input_name="background",
        )
        try:
            return _check_input(background, "background", check)
        except (MaskedValuesError, TextColumnsError):
            raise
        except ValueError as error:
            raise ValueError(f"background: {error}") from error

    def _moments(self, data: Any, name: str, sample_weight: Any = None) -> Moments:
        try:
            return Moments.of(data, sample_weight=sample_weight)
        except NonFiniteError as error:
            names = getattr(self, "feature_names_in_", None)
            advice = "partial_fit takes no missing values; use fit" if self._allows_nan else None
            raise NonFiniteError(error.columns, names, source=name, advice=advice) from None

    @contextmanager
    def _naming_features(self) -> Iterator[None]:
        """Give the features that a solver complains of by their names."""
        try:
            yield
        except FeatureRangeError as error:
            names = getattr(self, "feature_names_in_", None)
            raise FeatureRangeError(error.columns, names, source=error.source) from None

    # -- linear maps -----------------------------------------------------------------------

    def _project(self, X: Any, mean: FloatArray) -> FloatArray:
        """Return ``(X - mean) F``, centred before it is multiplied to keep small deviations."""
        filters = self.components_.T
        if sp.issparse(X):
            return np.asarray(X @ filters) - mean @ filters
        out = np.empty((X.shape[0], filters.shape[1]))
        # One workspace that stays in the cache: fresh pages cost more than the products.
        work = np.empty((min(len(X), _PROJECTED), X.shape[1]))
        for start in range(0, len(X), _PROJECTED):
            block = X[start : start + _PROJECTED]
            centred = np.subtract(block, mean, out=work[: len(block)])
            if self._allows_nan:
                np.nan_to_num(centred, copy=False, nan=0.0)  # as if it were the mean
            np.matmul(centred, filters, out=out[start : start + len(block)])
        return out

    def _check_new(self, X: Any) -> Any:
        check_is_fitted(self)
        X = as_host_array(X)
        check = partial(
            validate_data,
            self,
            reset=False,
            accept_sparse="csr",
            dtype="numeric",
            ensure_all_finite="allow-nan" if self._allows_nan and not sp.issparse(X) else True,
        )
        return _check_input(X, "X", check)

    @property
    def _allows_nan(self) -> bool:
        return getattr(self, "missing", "error") == "pairwise"

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
        if kind_of(X) is not None:
            return apply_to_source(self, "transform", X, len(self.components_))  # type: ignore[no-any-return]
        X = self._check_new(X)
        reduced = self._project(X, self.mean_)
        return reduced.astype(np.float32) if X.dtype == np.float32 else reduced

    def inverse_transform(self, Y: Any) -> NDArray[Any]:
        """Return the samples that the atoms make of given components, ``mean_ + W y``.

        Parameters
        ----------
        Y : array-like of shape (n_samples, n_components)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        check = partial(
            check_array,
            dtype=[np.float64, np.float32],
            ensure_min_features=0,
            estimator=self,
            input_name="Y",
        )
        Y = _check_input(Y, "Y", check)
        if Y.shape[1] != len(self.atoms_):
            raise ValueError(
                f"Y has {Y.shape[1]} components, but {type(self).__name__} has {len(self.atoms_)}"
            )
        return np.asarray(Y @ self.atoms_ + self.mean_, dtype=Y.dtype)

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
        if kind_of(X) is not None:
            return apply_to_source(self, "denoise", X, self.n_features_in_)  # type: ignore[no-any-return]
        X = self._check_new(X)
        denoised = self._project(X, self.mean_) @ self.atoms_ + self.mean_
        return denoised.astype(np.float32) if X.dtype == np.float32 else denoised

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
        X = self._check_new(X)
        rows = X.toarray() if sp.issparse(X) else X
        if remove == "contrast":
            corrected = rows - self._project(X, self.mean_) @ self.atoms_
        elif remove == "background":
            source = getattr(self, "_background", None) if background is None else background
            if source is None:
                raise ValueError(
                    "remove='background' needs background=..., as fit keeps no data of it"
                )
            k = len(self.components_) if n_components is None else n_components
            corrected = remove_main_subspace(rows, source, k)
        else:
            names = ", ".join(map(repr, REMOVALS))
            raise ValueError(f"remove={remove!r} must be one of {names}")
        return corrected.astype(np.float32) if X.dtype == np.float32 else np.asarray(corrected)

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
        check_is_fitted(self)
        if isinstance(n, bool) or not isinstance(n, Integral):
            raise TypeError(f"n={n!r} must be a whole number")
        if n < 1:
            raise ValueError(f"n={n} must be at least 1")
        names = _check_feature_names_in(self)
        return rank_features(self.components_ * self._deviation, names, int(n))

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._allows_nan
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def check_moments(target: Any, background: Any) -> int:
    """Return the number of features of moments that ``fit_moments`` was given, or raise."""
    for name, given in (("target", target), ("background", background)):
        if given is None and name == "background":
            continue
        if not isinstance(given, Moments):
            raise TypeError(f"{name} must be Moments, not {type(given).__name__}; use fit")
        if given.n_features is None:
            raise ValueError(f"{name} holds no samples yet")
    n_features: int = target.n_features
    if background is not None and background.n_features != n_features:
        raise _other_features(background.n_features, n_features)
    return n_features


def _check_input(data: Any, name: str, check: Callable[[Any], Any]) -> Any:
    """Return what scikit-learn's checks make of data; refuse masked values and columns of text.

    scikit-learn drops masks, and says of text which value is no number but not where it stands.
    """
    data = refuse_masked(data, name)
    refuse_damaged(data, name)
    try:
        rows = check(data)
    except ValueError:
        refuse_text(data, name)
        raise
    if rows.dtype == object:  # dates beside numbers, for one
        refuse_text(data, name)
    return rows


def _is_plain(data: Any, min_samples: int) -> bool:
    """Return whether scikit-learn's checks would hand this array back as it is.

    On small data they are a good part of the time of a fit.
    """
    return (
        type(data) is np.ndarray
        and data.dtype in (np.float64, np.float32)
        and data.ndim == 2
        and data.shape[0] >= max(min_samples, 1)
        and data.shape[1] >= 1
    )


def _refuse_background_as_y(X: Any, y: Any) -> None:
    if getattr(y, "ndim", 1) == 2 and y.shape[1] == X.shape[1] > 1:
        raise ValueError(
            "y is ignored, but it looks like a background; call fit(X, background=...)"
        )


def _other_features(given: int | None, expected: int) -> ValueError:
    return ValueError(
        f"background has {given} features, but X has {expected}; both must have the same"
    )


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


def _iter_rows(X: Any, mask: NDArray[np.bool_]) -> Iterator[Any]:
    """Yield the rows of a mask block by block, so that a memory map is never read whole."""
    for start in range(0, X.shape[0], _BLOCK):
        chosen = mask[start : start + _BLOCK]
        if chosen.any():
            yield X[start : start + _BLOCK][chosen]
