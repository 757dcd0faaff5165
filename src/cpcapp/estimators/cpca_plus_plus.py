"""cPCA++: what is special about a target set against a background set."""

from __future__ import annotations

import contextlib
import threading
import warnings
from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError

from cpcapp.contrast.solve import (
    Contrast,
    InsufficientRankError,
    SingularBackgroundError,
    check_n_components,
    solve_contrast,
)
from cpcapp.contrast.views import Views, ViewsDisagreeWarning, may_disagree, views_of
from cpcapp.estimators._base import ContrastiveTransformer, check_moments
from cpcapp.estimators._extras import Extras, is_several, mix
from cpcapp.estimators._rows_at_hand import (
    RowsAtHand,
    calibrate,
    count_by_permutation,
    wants_calibration,
)
from cpcapp.estimators._streams import apply_to_source, read_source
from cpcapp.inference.glrt import count_components, power_p_value, warn_of_heavy_tails
from cpcapp.inference.permutation import PermutationTest
from cpcapp.inference.power import Calibration, expected_power
from cpcapp.moments.moments import FloatArray, Moments
from cpcapp.moments.sources import as_host_array, kind_of

_COUNTING = ("auto", "permutation")
# Not of each estimator, which could not be pickled then.
_solving = threading.RLock()


class NoComponentsWarning(UserWarning):
    """``n_components="auto"`` or ``"permutation"`` found nothing; the output has no columns."""


class CPCAPlusPlus(ContrastiveTransformer):
    """Contrastive feature extraction with no parameter to tune (cPCA++).

    Finds the directions along which a target set varies most *relative to* a background set:
    the filters ``F`` of ``R_f v = λ R_b v``. An eigenvalue of 5 reads "five times the variance
    of the background". Without a background this is PCA.

    Parameters
    ----------
    n_components : int, "auto" or "permutation", default=2
        How many components to keep. ``"auto"`` keeps those whose eigenvalue stands above what
        shuffling the rows of both sets gives (:func:`cpcapp.permutation_test`). Where only moments
        are at hand (``fit_moments``, ``partial_fit``, a background of `Moments`) it goes by the law
        of F-matrices, which is for Gaussian samples and needs a background covariance of full rank.
        ``"permutation"`` raises an error there. Either may find nothing: then ``transform`` returns
        arrays of shape ``(n_samples, 0)``, which most later steps of a pipeline refuse, and ``fit``
        gives a `NoComponentsWarning` (``from cpcapp.estimators import NoComponentsWarning``).
    loading : {"auto", "likelihood", "oas", "none", "diagonal"} or float, default="auto"
        How to keep the background covariance safe to divide by; see
        :func:`cpcapp.solve_contrast`. ``"auto"`` prefers loud directions to a contrast beyond 6, as
        long as they keep most of it; ``"likelihood"`` is the plain ratio, however faint what it
        finds. ``views_`` has both, and ``fit`` gives a `ViewsDisagreeWarning`
        if they show different things.
    solver : {"auto", "dense", "iterative", "dual", "matrix-free"}, default="auto"
        See :func:`cpcapp.solve_contrast`.
    scaling : {"background", "unit"}, default="background"
        Filters such that background data comes out with variance 1, or of length 1.
    false_alarm_rate : float, default=0.05
        For ``n_components="auto"`` and ``"permutation"``: the probability to keep anything when
        both sets are samples of one population.
    random_state : int or None, default=0
        Seed of the permutations, and of the folds of ``calibrate``.
    calibrate : bool or "auto", default="auto"
        Whether ``fit`` solves five times more, without a fifth of the background each, to learn
        what power background has that the filters have not seen; `p_value` goes by it. Loading and
        steering stay as they are, so that this takes about as long as the fit itself. ``"auto"``
        does so up to about 500 features.
    missing : {"error", "pairwise"}, default="error"
        What to do about NaN. ``"pairwise"`` takes each covariance from the rows that have both
        features (:func:`cpcapp.pairwise_moments`), and ``transform`` takes a missing value for the
        mean. Infinity is always an error.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features)
        Filters, in rows. The largest coefficient of each is positive.
    atoms_ : ndarray of shape (n_components_, n_features)
        Dictionary atoms ``W``, in rows, with ``components_ @ atoms_.T`` the identity.
    eigenvalues_ : ndarray of shape (n_components_,)
        Target power over loaded background power, descending. Without a background the
        variances.
    mean_ : ndarray of shape (n_features,)
        Mean of the target.
    background_mean_ : ndarray of shape (n_features,) or None
    loading_ : ndarray of shape (n_features,) or None
        What was added to the diagonal of the background covariance.
    shrinkage_ : float or None
        Share by which the background covariance itself was scaled down (``loading="auto"``,
        ``"likelihood"`` and ``"oas"``).
    views_ : Views
        The loud and the rare solution of ``loading="auto"``, from one fit; see
        :class:`cpcapp.contrast.views.Views`. With other loadings both are the same.
    n_components_ : int
    permutation_test_ : PermutationTest or None
        How the components were counted; None if no rows were shuffled.
    smallest_p_value_ : float or None
        The smallest value that `p_value` can give; None where it goes by the χ² law.
    explained_variance_ : ndarray of shape (n_components_,)
        How much of the target's variance (with ``ddof=0``, summed over features) each component
        explains, as a predictor of the features.
    explained_variance_ratio_ : ndarray of shape (n_components_,)
        The same as a share of the target's variance; together at most 1.
    background_weights_ : ndarray of shape (n_backgrounds,)
        The mixture. Only with a list of backgrounds.
    covariate_effects_ : dict
        What covariates explain of ``"target"`` and ``"background"``. Only with covariates.
    solver_ : {"dense", "iterative", "dual", "matrix-free"}
        The solver that was used.
    n_samples_seen_ : tuple of int
        Samples of target and background; with weights the effective number.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only if ``X`` has feature names that are all strings.

    See Also
    --------
    CPCA : the difference ``R_f - αR_b`` in place of the ratio, with α to choose.
    sklearn.decomposition.PCA : without a background.

    Notes
    -----
    ``fit`` keeps no data and no covariances, only the filters, so ``partial_fit`` after ``fit``
    starts anew (with a warning). ``partial_fit`` keeps the moments of both sides, and solves
    when a result is first asked for.

    References
    ----------
    R. Salloum, C.-C. J. Kuo, "Efficient image splicing localization via contrastive feature
    extraction", 2019.

    Examples
    --------
    >>> from cpcapp import CPCAPlusPlus
    >>> from cpcapp.datasets import synthetic
    >>> data = synthetic(random_state=0)
    >>> est = CPCAPlusPlus(n_components="auto").fit(data.target, background=data.background)
    >>> est.n_components_
    2
    >>> est.transform(data.target).shape
    (400, 2)
    """

    def __init__(
        self,
        n_components: int | str = 2,
        *,
        loading: str | float = "auto",
        solver: str = "auto",
        scaling: str = "background",
        false_alarm_rate: float = 0.05,
        random_state: int | None = 0,
        missing: str = "error",
        calibrate: bool | str = "auto",
    ) -> None:
        self.n_components = n_components
        self.loading = loading
        self.solver = solver
        self.scaling = scaling
        self.false_alarm_rate = false_alarm_rate
        self.random_state = random_state
        self.missing = missing
        self.calibrate = calibrate

    # -- fitting ---------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        background: Any = None,
        is_background: Any = None,
        *,
        groups: Any = None,
        background_groups: Any = None,
        sample_weight: Any = None,
        background_sample_weight: Any = None,
        background_mixture: Any = None,
        covariates: Any = None,
        background_covariates: Any = None,
    ) -> Self:
        """Find the filters.

        Parameters
        ----------
        X : array-like, memory map or sparse matrix of shape (n_samples, n_features)
            The target; with ``is_background``, target and background together. Also a Dask array or
            dataframe, a dataset of h5py or zarr, Arrow data (a table, batches, a Parquet file, a
            data set of many), a torch tensor, a CuPy array, or an iterator of chunks. Of these only
            the moments are taken (except for torch tensors on the CPU), so that components are
            counted and p-values computed as by ``fit_moments``.
        y : ignored
        background : like X or Moments, of the same features, or a list of those, optional
        is_background : array-like of shape (n_samples,), optional
            True for the rows of ``X`` that are background. This form goes through pipelines and
            cross-validation like any other data.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows of ``X``, at least 0. A whole number counts for mean and covariance
            as that many copies of the row; shrinkage and tests go by Kish's effective number of
            samples, ``(Σw)² / Σw²``.
        background_sample_weight : array-like of shape (n_background,), optional
            Weights of the rows of ``background``; a list for a list of backgrounds.
        background_mixture : {"mean", "worst"} or array-like of shape (n_backgrounds,), optional
            How to mix a list of backgrounds: with equal weights (the default), with weights that
            make the contrast smallest, or with these. See :func:`cpcapp.combine_backgrounds`.
        covariates : array-like of shape (n_samples,) or (n_samples, n_covariates), optional
            What they explain is taken out first, by least squares, in target and background each
            for itself. Numbers are taken as they are. Text and categories (batches, say) become
            one column for each category. See `remove_covariates` for the scores.
        background_covariates : like covariates, for the rows of ``background``, optional
        groups : array-like of shape (n_samples,), optional
            Labels of rows of ``X`` that belong together: cells of one patient, copies of a row.
            Such rows are shuffled together when components are counted, and held out together
            when p-values are calibrated.
        background_groups : array-like of shape (n_background,), optional
            The same for ``background``; give both or neither. With ``is_background`` the labels
            of all rows are in ``groups``.

        Returns
        -------
        CPCAPlusPlus
            itself.
        """
        self._reset()
        X, background = as_host_array(X), as_host_array(background)
        extras = Extras(
            sample_weight,
            background_sample_weight,
            background_mixture,
            covariates,
            background_covariates,
            self.missing,
        )
        target, back = self._read_both(X, y, background, is_background, extras)
        rows, streamed = None, kind_of(X) is not None
        if extras.is_plain(background) and not streamed:
            # A background that was read in chunks is gone.
            background = back if kind_of(background) is not None else background
            rows = RowsAtHand.of(X, background, is_background, groups, background_groups)
        elif groups is not None or background_groups is not None:
            raise ValueError(
                "groups can't be used together with weights, covariates, missing='pairwise', a "
                "list of backgrounds or an X that is read in chunks"
            )
        with self._naming_features():
            wanted = wants_calibration(self, target, back, rows)
            self._solve(target, back, self._count(target, back, rows), overwrite=not wanted)
            if wanted:
                assert back is not None and rows is not None
                self._calibration = calibrate(self, target, back, self._contrast, rows)
            return self

    def fit_moments(
        self, target: Moments, background: Any = None, *, background_mixture: Any = None
    ) -> Self:
        """Find the filters from moments that were added up elsewhere.

        Parameters
        ----------
        target : Moments
        background : Moments, or a list of them, optional
        background_mixture : {"mean", "worst"} or array-like of shape (n_backgrounds,), optional
            As in `fit`, for a list of backgrounds.

        Returns
        -------
        CPCAPlusPlus
            itself.

        Examples
        --------
        >>> import numpy as np
        >>> from cpcapp import CPCAPlusPlus, Moments
        >>> chunks = (np.random.default_rng(i).normal(size=(50, 5)) for i in range(4))
        >>> CPCAPlusPlus(n_components=1).fit_moments(Moments.of(chunks)).n_samples_seen_
        (200, 0)
        """
        self._reset()
        if is_several(background):
            for one in background:
                check_moments(target, one)
            background, self.background_weights_ = mix(
                background, background_mixture, target, self.n_components
            )
        elif background_mixture is not None:
            raise ValueError("background_mixture needs a list of backgrounds")
        self.n_features_in_ = check_moments(target, background)
        rows = RowsAtHand.kept_by(target, background)
        return self._solve(target, background, self._count(target, background, rows))

    def partial_fit(
        self,
        X: Any = None,
        y: Any = None,
        background: Any = None,
        *,
        sample_weight: Any = None,
        background_sample_weight: Any = None,
    ) -> Self:
        """Add samples of either side, or of both, in any order.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features), optional
            Target samples.
        y : ignored
        background : like X, or Moments, optional
            Background samples.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows of ``X``, as in `fit`.
        background_sample_weight : array-like of shape (n_background,), optional
            Weights of the rows of ``background``.

        Returns
        -------
        CPCAPlusPlus
            itself.
        """
        if X is None and background is None:
            raise ValueError("partial_fit needs X, background or both")
        self._check_partial(background, background_sample_weight)
        first = not hasattr(self, "_target")
        if first and hasattr(self, "_contrast"):
            warnings.warn(
                "partial_fit starts anew after fit, which keeps only the filters and no moments; "
                "to go on from earlier data, use partial_fit from the first chunk on",
                stacklevel=2,
            )
        chunk, added = None, None
        streamed = kind_of(X) is not None
        if streamed:
            weights = sample_weight
            chunk = read_source(self, X, "X", reset=first, sample_weight=weights, min_samples=1)
        elif X is not None:
            X = self._check_target(X, reset=first, min_samples=1)
            chunk = self._moments(X, "X", sample_weight)
        elif first and kind_of(background) is not None:
            # It is read only once, and says how many features there are.
            weights, background_sample_weight = background_sample_weight, None
            background = read_source(
                self, background, "background", reset=True, sample_weight=weights, min_samples=1
            )
        elif first:
            self._learn_features(background)
        if background is not None:
            rows = -1 if X is None or streamed else X.shape[0]
            added = self._read_background(
                background, rows, min_samples=1, sample_weight=background_sample_weight
            )
        # Both sides are read and sound: nothing is lost to a bad chunk before this line.
        if first:
            self._target, self._background = Moments(), Moments()
        if chunk is not None:
            self._target += chunk
        if added is not None:
            self._background += added
        self._forget_rows()
        return self

    def _check_partial(self, background: Any, background_sample_weight: Any) -> None:
        if is_several(background):
            raise ValueError(
                "partial_fit takes one background at a time; add up Moments of each, and give "
                "the list to fit_moments"
            )
        if isinstance(background, Moments) and background_sample_weight is not None:
            raise ValueError("a background of Moments has its weights; give them to Moments.update")

    def _learn_features(self, background: Any) -> None:
        """Take the number and names of the features from the first chunk, a background."""
        if isinstance(background, Moments):
            if background.n_features is None:
                raise ValueError("background holds no samples yet")
            self.n_features_in_ = background.n_features
        else:
            self._check_target(background, reset=True, min_samples=1, name="background")

    def _reset(self) -> None:
        self._forget_rows()
        for name in ("_target", "_background"):
            self.__dict__.pop(name, None)
        self._forget_extras()

    def _forget_rows(self) -> None:
        for name in ("_contrast", "_permutation_test", "_calibration"):
            self.__dict__.pop(name, None)

    def _count(self, target: Moments, background: Moments | None, rows: RowsAtHand | None) -> int:
        """Return how many components to compute; 0 only if noise explains them all."""
        k = self.n_components
        if not isinstance(k, str):
            return check_n_components(k, target, name="n_components")
        if k not in _COUNTING:
            raise ValueError(f"n_components={k!r} must be a whole number, 'auto' or 'permutation'")
        if background is None:
            raise ValueError(f"n_components={k!r} needs a background to compare with")
        if rows is not None and rows.background is not None:
            found, self._permutation_test = count_by_permutation(self, target, background, rows)
            return found
        assert target.n_features is not None
        if k == "auto" and background.n_samples - 1 > target.n_features:
            # A singular background (copies of a feature, say) is beyond the law of F-matrices.
            with contextlib.suppress(SingularBackgroundError):
                rate = self.false_alarm_rate
                count = count_components(target, background, false_alarm_rate=rate)
                if rows is not None:
                    warn_of_heavy_tails(rows.target, "X", stacklevel=3)
                return min(count, target.n_samples - 1)
        if rows is not None:
            raise ValueError("n_components by permutation needs background samples, not Moments")
        raise ValueError(
            f"n_components={k!r} must permute the samples here, which moments do not hold; "
            "use fit with all data (without weights, covariates, missing values or a list of "
            "backgrounds), or give a number"
        )

    def _solve(
        self, target: Moments, background: Moments | None, k: int, overwrite: bool = False
    ) -> Self:
        assert target.mean is not None
        self._mean = target.mean
        self._background_mean = None if background is None else background.mean
        self._counts = (target.n_samples, 0 if background is None else background.n_samples)
        try:
            contrast = solve_contrast(
                target,
                background,
                max(k, 1),
                loading=self.loading,
                solver=self.solver,
                scaling=self.scaling,
                overwrite=overwrite,
            )
        except InsufficientRankError as error:
            raise InsufficientRankError(error.rank, f"n_components={k}") from None
        self._contrast = contrast if k else _first(contrast, 0)
        if k and may_disagree(contrast):
            _warn_if_views_disagree(views_of(contrast, self._mean))
        if not k:
            warnings.warn(
                f"n_components={self.n_components!r} found no component: nothing in the target "
                "varies more, against the background, than sampling noise does (false_alarm_rate="
                f"{self.false_alarm_rate:g}). transform will return 0 columns, which most later "
                "steps of a pipeline refuse; give n_components as a number to keep some anyway",
                NoComponentsWarning,
                stacklevel=3,
            )
        return self

    # -- results ---------------------------------------------------------------------------

    def _get_contrast(self) -> Contrast:
        """Return the solution, computing it if chunks came in since the last one."""
        if not hasattr(self, "_contrast"):
            if not hasattr(self, "_target"):
                raise NotFittedError(
                    f"This {type(self).__name__} instance is not fitted yet. Call 'fit' or "
                    "'partial_fit' first."
                )
            if self._target.n_samples == 0:
                raise NotFittedError("only background has been seen so far; add target samples")
            with _solving, self._naming_features():
                target, background = self._target, self._background
                if not hasattr(self, "_contrast"):  # unless another thread was faster
                    known = background if background.n_samples else None
                    self._solve(target, known, self._count(target, known, None))
        return self._contrast

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_contrast") or hasattr(self, "_target")

    @property
    def components_(self) -> FloatArray:  # type: ignore[override]
        """Filters ``Fᵀ``, in rows."""
        return self._get_contrast().filters.T

    @property
    def atoms_(self) -> FloatArray:  # type: ignore[override]
        """Dictionary atoms ``Wᵀ``, in rows."""
        return self._get_contrast().atoms.T

    @property
    def eigenvalues_(self) -> FloatArray:
        """Target power over background power along each filter."""
        return self._get_contrast().eigenvalues

    @property
    def explained_variance_(self) -> FloatArray:
        """Variance of the target's features that each component explains."""
        return self._get_contrast().explained_variance

    @property
    def explained_variance_ratio_(self) -> FloatArray:
        """Share of the target's variance that each component explains."""
        contrast = self._get_contrast()
        return np.asarray(contrast.explained_variance / contrast.target_variance.sum())

    @property
    def n_components_(self) -> int:
        """Number of components."""
        return len(self._get_contrast().eigenvalues)

    @property
    def mean_(self) -> FloatArray:  # type: ignore[override]
        """Mean of the target."""
        self._get_contrast()
        return self._mean

    @property
    def background_mean_(self) -> FloatArray | None:  # type: ignore[override]
        """Mean of the background, or None."""
        self._get_contrast()
        return self._background_mean

    @property
    def loading_(self) -> FloatArray | None:
        """What was added to the diagonal of the background covariance, or None."""
        loading = self._get_contrast().loading
        return None if loading is None else loading.diagonal

    @property
    def shrinkage_(self) -> float | None:
        """Share by which the background covariance was scaled down, or None."""
        loading = self._get_contrast().loading
        return None if loading is None else 1.0 - loading.weight

    @property
    def views_(self) -> Views:
        """The loud and the rare solution."""
        return views_of(self._get_contrast(), self._mean)

    @property
    def solver_(self) -> str:
        """The solver that was used."""
        return self._get_contrast().solver

    @property
    def permutation_test_(self) -> PermutationTest | None:
        """How the components were counted, or None."""
        self._get_contrast()
        return getattr(self, "_permutation_test", None)

    @property
    def smallest_p_value_(self) -> float | None:
        """The smallest value that `p_value` can give, or None."""
        self._get_contrast()
        calibration: Calibration | None = getattr(self, "_calibration", None)
        return None if calibration is None else calibration.smallest

    @property
    def _deviation(self) -> FloatArray:  # type: ignore[override]
        return np.asarray(np.sqrt(self._get_contrast().target_variance))

    @property
    def n_samples_seen_(self) -> tuple[int, int]:
        """Samples of target and background."""
        self._get_contrast()
        return self._counts

    def power(self, X: Any) -> FloatArray:
        """Return the output power ``‖Fᵀ(x - background mean)‖²`` of each sample.

        Background samples have a power of about ``n_components_`` (with
        ``scaling="background"``), samples with more of what is special about the target a
        larger one. Without a background the mean of the target is subtracted.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if kind_of(X) is not None:
            return apply_to_source(self, "power", X, None)  # type: ignore[no-any-return]
        X = self._check_new(X)
        mean = self.mean_ if self.background_mean_ is None else self.background_mean_
        outputs = self._project(X, mean)
        return np.asarray(np.einsum("ij,ij->i", outputs, outputs))

    def p_value(self, X: Any) -> FloatArray:
        """Return for each sample how likely background is to have a power as high.

        After ``fit`` with background rows, this is the share of background rows with a power as
        high, each by filters that were fitted without it (five folds; the sample itself counts as
        one of them). That assumes no distribution. With ``n`` background rows, or groups of them,
        no value is below ``1 / (n + 1)``, and with more than 5000 rows none is below 0.0002: see
        ``smallest_p_value_``. Nothing is extrapolated beyond.

        Where only moments are at hand (``fit_moments``, ``partial_fit``, a background of
        `Moments`), with fewer than 20 background rows and with ``calibrate=False`` the background
        is taken to be Gaussian, so that the power has a scaled χ² law, which allows for the loading
        and for the filters having been made with the help of the background's samples (by the
        factor of generalized cross-validation). For heavy tails such values are too small: ten
        times too many are below 0.001. They are also too small for components that are noise
        themselves, and with fewer background samples than features.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if kind_of(X) is not None:
            return apply_to_source(self, "p_value", X, None)  # type: ignore[no-any-return]
        power = self.power(X)
        covariance = self._get_contrast().output_covariance
        if covariance is None:
            raise ValueError("p_value needs a background; this estimator was fitted without one")
        calibration: Calibration | None = getattr(self, "_calibration", None)
        if calibration is not None:
            return calibration.p_value(power / expected_power(covariance))
        return power_p_value(power, covariance)


def _warn_if_views_disagree(views: Views) -> None:
    if views.disagree:
        warnings.warn(
            "the loud and the rare view of this contrast show different things: their most similar "
            f"outputs have a correlation of {views.correlations[0]:.2f}. components_ prefers the "
            "loud view; look at views_.loud.transform(X) and views_.rare.transform(X), and set "
            "loading='likelihood' to keep the rare one",
            ViewsDisagreeWarning,
            stacklevel=4,
        )


def _first(contrast: Contrast, k: int) -> Contrast:
    output = contrast.output_covariance
    return Contrast(
        filters=contrast.filters[:, :k],
        atoms=contrast.atoms[:, :k],
        eigenvalues=contrast.eigenvalues[:k],
        loading=contrast.loading,
        output_covariance=None if output is None else output[:k, :k],
        solver=contrast.solver,
        target_variance=contrast.target_variance,
        explained_variance=contrast.explained_variance[:k],
    )
