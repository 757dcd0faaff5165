"""cPCA++: what is special about a target set against a background set."""

from __future__ import annotations

import contextlib
import threading
import warnings
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from cpcapp.contrast import (
    Contrast,
    InsufficientRankError,
    SingularBackgroundError,
    check_n_components,
    solve_contrast,
)
from cpcapp.detection import (
    count_above,
    count_components,
    permutation_threshold,
    power_p_value,
)
from cpcapp.estimators._base import ContrastiveTransformer, check_moments
from cpcapp.moments import FloatArray, Moments
from cpcapp.views import Views, ViewsDisagreeWarning, views_of

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
        sampling noise gives for these sample sizes, by the law of F-matrices where the background
        covariance has full rank and by permutation otherwise. ``"permutation"`` always uses
        permutations: slower, and free of assumptions about the distribution. Either may find
        nothing: then ``transform`` returns arrays of shape ``(n_samples, 0)``, which most later
        steps of a pipeline refuse, and ``fit`` gives a `NoComponentsWarning`
        (``from cpcapp.estimators import NoComponentsWarning``).
    loading : {"auto", "likelihood", "oas", "none", "diagonal"} or float, default="auto"
        How to keep the background covariance safe to divide by; see
        :func:`cpcapp.solve_contrast`. ``"auto"`` prefers loud directions to a contrast beyond 6, as
        long as they keep most of it; ``"likelihood"`` is the plain ratio, however faint what it
        finds. ``views_`` has both, and ``fit`` gives a `ViewsDisagreeWarning`
        if they show different things.
    solver : {"auto", "dense", "iterative", "dual"}, default="auto"
        See :func:`cpcapp.solve_contrast`.
    scaling : {"background", "unit"}, default="background"
        Filters such that background data comes out with variance 1, or of length 1.
    false_alarm_rate : float, default=0.05
        For ``n_components="auto"`` and ``"permutation"``: the probability to keep anything when
        both sets are samples of one population.
    random_state : int or None, default=0
        Seed of the permutations.

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
        :class:`cpcapp.views.Views`. With other loadings both are the same.
    n_components_ : int
    solver_ : {"dense", "iterative", "dual"}
        The solver that was used.
    n_samples_seen_ : tuple of int
        Samples of target and background.
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
    ) -> None:
        self.n_components = n_components
        self.loading = loading
        self.solver = solver
        self.scaling = scaling
        self.false_alarm_rate = false_alarm_rate
        self.random_state = random_state

    # -- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, background: Any = None, is_background: Any = None) -> Self:
        """Find the filters.

        Parameters
        ----------
        X : array-like, memory map or sparse matrix of shape (n_samples, n_features)
            The target; with ``is_background``, target and background together.
        y : ignored
        background : like X or Moments, of the same features, optional
        is_background : array-like of shape (n_samples,), optional
            True for the rows of ``X`` that are background. This form goes through pipelines and
            cross-validation like any other data.

        Returns
        -------
        CPCAPlusPlus
            itself.
        """
        self._reset()
        target, back = self._read_both(X, y, background, is_background)
        with self._naming_features():
            k = self._count(target, back, (X, background, is_background))
            return self._solve(target, back, k, overwrite=True)

    def fit_moments(self, target: Moments, background: Moments | None = None) -> Self:
        """Find the filters from moments that were added up elsewhere.

        Parameters
        ----------
        target : Moments
        background : Moments, optional

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
        self.n_features_in_ = check_moments(target, background)
        return self._solve(target, background, self._count(target, background, None))

    def partial_fit(self, X: Any = None, y: Any = None, background: Any = None) -> Self:
        """Add samples of either side, or of both, in any order.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features), optional
            Target samples.
        y : ignored
        background : like X, or Moments, optional
            Background samples.

        Returns
        -------
        CPCAPlusPlus
            itself.
        """
        if X is None and background is None:
            raise ValueError("partial_fit needs X, background or both")
        first = not hasattr(self, "_target")
        if first and hasattr(self, "_contrast"):
            warnings.warn(
                "partial_fit starts anew after fit, which keeps only the filters and no moments; "
                "to go on from earlier data, use partial_fit from the first chunk on",
                stacklevel=2,
            )
        chunk, added = None, None
        if X is not None:
            X = self._check_target(X, reset=first, min_samples=1)
            chunk = self._moments(X, "X")
        elif first:
            self._learn_features(background)
        if background is not None:
            rows = -1 if X is None else X.shape[0]
            added = self._read_background(background, rows, min_samples=1)
        # Both sides are read and sound: nothing is lost to a bad chunk before this line.
        if first:
            self._target, self._background = Moments(), Moments()
        if chunk is not None:
            self._target += chunk
        if added is not None:
            self._background += added
        self.__dict__.pop("_contrast", None)
        return self

    def _learn_features(self, background: Any) -> None:
        """Take the number and names of the features from the first chunk, a background."""
        if isinstance(background, Moments):
            if background.n_features is None:
                raise ValueError("background holds no samples yet")
            self.n_features_in_ = background.n_features
        else:
            self._check_target(background, reset=True, min_samples=1, name="background")

    def _reset(self) -> None:
        for name in ("_contrast", "_target", "_background"):
            self.__dict__.pop(name, None)

    def _count(self, target: Moments, background: Moments | None, data: Any) -> int:
        """Return how many components to compute; 0 only if noise explains them all."""
        k = self.n_components
        if not isinstance(k, str):
            return check_n_components(k, target, name="n_components")
        if k not in _COUNTING:
            raise ValueError(f"n_components={k!r} must be a whole number, 'auto' or 'permutation'")
        if background is None:
            raise ValueError(f"n_components={k!r} needs a background to compare with")
        assert target.n_features is not None
        if k == "auto" and background.n_samples - 1 > target.n_features:
            # A singular background (copies of a feature, say) is beyond the law of F-matrices.
            with contextlib.suppress(SingularBackgroundError):
                rate = self.false_alarm_rate
                count = count_components(target, background, false_alarm_rate=rate)
                return min(count, target.n_samples - 1)
        if data is None:
            raise ValueError(
                f"n_components={k!r} must permute the samples here, which moments do not hold; "
                "use fit with all data, or give a number"
            )
        return self._count_by_permutation(target, background, data)

    def _count_by_permutation(self, target: Moments, background: Moments, data: Any) -> int:
        X, other, is_background = data
        if is_background is not None:
            mask = np.asarray(is_background, dtype=bool)
            X, other = _take_rows(X, ~mask), _take_rows(X, mask)
        if isinstance(other, Moments):
            raise ValueError("n_components by permutation needs background samples, not Moments")
        # "auto" need not give the largest eigenvalues, which are to be compared here.
        loading = "oas" if self.loading == "auto" else self.loading
        threshold = permutation_threshold(
            _as_matrix(X),
            _as_matrix(other),
            false_alarm_rate=self.false_alarm_rate,
            loading=loading,
            random_state=self.random_state,
        )
        return count_above(target, background, threshold, loading=loading)

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
        if contrast.loud is not None and k:
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
        X = self._check_new(X)
        mean = self.mean_ if self.background_mean_ is None else self.background_mean_
        outputs = self._project(X, mean)
        return np.asarray(np.einsum("ij,ij->i", outputs, outputs))

    def p_value(self, X: Any) -> FloatArray:
        """Return for each sample how likely background is to have a power as high.

        Assumes a Gaussian background; allows for the loading and for the filters having been
        made with the help of the background's samples (by the factor of generalized
        cross-validation). That factor holds for directions that the target has: for components
        that are noise themselves, or with fewer background samples than features, the values
        come out too small. ``n_components="auto"`` keeps to the significant ones.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        power = self.power(X)
        covariance = self._get_contrast().output_covariance
        if covariance is None:
            raise ValueError("p_value needs a background; this estimator was fitted without one")
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
    )


def _as_matrix(data: Any) -> Any:
    return sp.csr_array(data) if sp.issparse(data) else np.asarray(data)


def _take_rows(X: Any, mask: Any) -> Any:
    return _as_matrix(X)[mask]
