"""cPCA++: what is special about a target set against a background set."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import _check_feature_names_in

from cpcapp.contrast.solution import Contrast, InsufficientRankError, SingularBackgroundError
from cpcapp.contrast.solve import check_n_components, check_sides, solve_contrast
from cpcapp.estimators.base import KEPT, ContrastiveTransformer
from cpcapp.estimators.callers import refuse_misrouted_background
from cpcapp.estimators.inputs import (
    FitArguments,
    Given,
    RowSet,
    Sides,
    check_set,
    is_several,
    read_moments,
    read_sides,
    read_source,
    require_features,
)
from cpcapp.inference.noise import count_components
from cpcapp.inference.notes import MOST, Note, notes_on, shared_components
from cpcapp.inference.permutation import PermutationTest, count_components_of
from cpcapp.inference.power import Calibration, calibrate
from cpcapp.moments.moments import Moments
from cpcapp.moments.reservoir import Reservoir
from cpcapp.moments.rows import FeatureRangeError, FloatArray, NonFiniteError
from cpcapp.moments.sources import kind_of

_COUNTING = ("auto", "permutation")
# What partial_fit learns from the first chunk, and keeps.
_LEARNED = ("n_features_in_", "feature_names_in_")


class NoComponentsWarning(UserWarning):
    """``n_components="auto"`` or ``"permutation"`` found nothing; the output has no columns."""


class LawOfNoiseWarning(UserWarning):
    """Components were counted by a law for Gaussian samples, as there were no rows to shuffle."""


class CPCAPlusPlus(ContrastiveTransformer):
    """Contrastive feature extraction with no parameter to tune (cPCA++).

    Finds the directions along which a target set varies most *relative to* a background set:
    the filters ``F`` of ``R_f v = λ R_b v``. Without a background this is PCA.

    Parameters
    ----------
    n_components : int, "auto" or "permutation", default=2
        How many components to keep. ``"auto"`` keeps those whose contrast stands above what
        shuffling the rows of both sets gives (:func:`cpcapp.permutation_test`). Where only moments
        are at hand (``fit_moments``, a background of `Moments`) it goes by the law of F-matrices,
        which is for Gaussian samples, and says so in a `LawOfNoiseWarning`; ``"permutation"``
        raises an error there. Either may find nothing: then ``transform`` returns arrays of shape
        ``(n_samples, 0)``, which most later steps of a pipeline refuse, and ``fit`` gives a
        `NoComponentsWarning` (both in ``cpcapp.estimators``).
    loading : {"auto", "oas", "none"} or float, default="auto"
        What is added to the background covariance to make it safe to divide by.

        ``"auto"`` solves ``R_f v = λ (R_b + ρD) v`` with ``D`` the mean of both sets' variance of
        each feature, so that units do not matter, and ``ρ`` the least for which no ``λ`` exceeds a
        bound ``c``: ``ρc`` is the largest eigenvalue of ``D^-½ (R_f - c R_b) D^-½``, or 0. Of
        ``c = 3, 12, 48`` it keeps the one whose first two outputs show classes best (least
        kurtosis), and 12 if none does. See :func:`cpcapp.solve_contrast`.
        Without rows (`fit_moments`) the bound is 12.
        ``"none"`` is Algorithm 1 of the paper to the last digit (with ``scaling="unit"`` filters
        have its length too), a number its diagonal loading, ``"oas"`` shrinkage of least squared
        error.
    solver : {"auto", "dense", "iterative", "dual", "matrix-free"}, default="auto"
        See :func:`cpcapp.solve_contrast`.
    scaling : {"background", "unit"}, default="background"
        Filters such that (loaded) background comes out with variance 1, or of length 1.
    false_alarm_rate : float, default=0.05
        For ``n_components="auto"`` and ``"permutation"``: the probability to keep anything when
        both sets are samples of one population.
    random_state : int or None, default=0
        Seed of the permutations, of folds, and of the rows that are looked at where there are many.
    missing : {"error", "pairwise"}, default="error"
        What to do about NaN. ``"pairwise"`` takes each covariance from the rows that have both
        features (:func:`cpcapp.pairwise_moments`), and ``transform`` takes a missing value for the
        mean. Infinity is always an error.
    calibrate : bool, default=False
        Whether ``fit`` solves five times more, without a fifth of the background each, to learn
        what power background has that the filters have not seen. `p_value` needs it.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features)
        Filters, in rows. The largest coefficient of each is positive.
    atoms_ : ndarray of shape (n_components_, n_features)
        Dictionary atoms ``W``, in rows, with ``components_ @ atoms_.T`` the identity.
    eigenvalues_ : ndarray of shape (n_components_,)
        Target power over *loaded* background power, descending. Without a background the
        variances.
    contrast_ : ndarray of shape (n_components_,)
        Variance of the target over variance of the background, without loading: what "times the
        background's variance" means. Where rows are few it is far too high, as the filters were
        chosen for it: :func:`cpcapp.held_out_contrasts` has it on rows they have not seen.
    bound_ : float or None
        The bound ``c`` of ``loading="auto"``.
    loading_ : ndarray of shape (n_features,) or None
        What was added to the diagonal of the background covariance.
    shrinkage_ : float or None
        Share by which the background covariance itself was scaled down (``loading="oas"``).
    mean_ : ndarray of shape (n_features,)
        Mean of the target.
    background_mean_ : ndarray of shape (n_features,) or None
    n_components_ : int
    notes_ : list of Note
        What to know before the result is believed: a component that one row or one cell carries
        alone, one that varies no more in the target, a direction that was counted but is not shown.
        Each has a ``code`` and a ``text``.
    permutation_test_ : PermutationTest or None
        How the components were counted; None if no rows were shuffled.
    smallest_p_value_ : float or None
        The smallest value that `p_value` can give; None without ``calibrate=True``.
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
    CPCA : the difference ``R_f - αR_b`` in place of the ratio.
    sklearn.decomposition.PCA : without a background.

    Notes
    -----
    ``fit`` keeps no data and no covariances, only the filters, so ``partial_fit`` after ``fit``
    starts anew (with a warning). ``partial_fit`` keeps the moments of both sides and a bounded
    random sample of their rows, as shuffling and kurtosis need rows.

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
        calibrate: bool = False,
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
            data set of many), a torch tensor, a CuPy array, or an iterator of chunks. Of these the
            moments are added up chunk by chunk, and a random sample of the rows is kept while
            `fit` runs, to count components and to calibrate p-values.
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
            one column for each category. NaN is an error. See `remove_covariates` for the scores.
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

        Notes
        -----
        A mask, weights, covariates and groups belong to rows by position. Where these and the rows
        are pandas objects they go by the labels of the index, which must be the same.
        """
        self._forget()
        given = FitArguments(
            sample_weight,
            background_sample_weight,
            background_mixture,
            covariates,
            background_covariates,
            groups,
            background_groups,
            self.missing,
        )
        return self._solve(read_sides(self, X, y, background, is_background, given))

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
        self._forget()
        return self._solve(read_moments(self, target, background, background_mixture))

    def partial_fit(
        self,
        X: Any = None,
        y: Any = None,
        background: Any = None,
        *,
        sample_weight: Any = None,
        background_sample_weight: Any = None,
        solve: bool = True,
    ) -> Self:
        """Add samples of either side, or of both, in any order, and solve.

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
        solve : bool, default=True
            False only adds up, for many small chunks; then call it once more with the last chunk,
            or with nothing.

        Returns
        -------
        CPCAPlusPlus
            itself.
        """
        started = hasattr(self, "_target")
        if X is None and background is None and not (started and solve):
            raise ValueError("partial_fit needs X, background or both")
        if is_several(background):
            raise ValueError(
                "partial_fit takes one background at a time; add up Moments of each, and give "
                "the list to fit_moments"
            )
        if isinstance(background, Moments) and background_sample_weight is not None:
            raise ValueError("a background of Moments has its weights; give them to Moments.update")
        if not started and hasattr(self, "components_"):
            warnings.warn(
                "partial_fit starts anew after fit, which keeps only the filters and no moments; "
                "to go on from earlier data, use partial_fit from the first chunk on",
                stacklevel=2,
            )
            self._forget()
        chunks = {}
        if X is not None:
            chunks["X"] = self._read_chunk(X, "X", sample_weight, reset=not started)
        if background is not None:
            reset = not started and X is None
            refuse_misrouted_background(
                self, -1 if X is None or kind_of(X) is not None else np.shape(X)[0], background
            )
            chunks["background"] = self._read_chunk(
                background, "background", background_sample_weight, reset=reset
            )
        # Both sides are read and sound: nothing is lost to a bad chunk before this line.
        if not started:
            self._target, self._background = Moments(), Moments()
            self._rows = {"X": Reservoir(), "background": Reservoir()}
        for name, (moments, rows) in chunks.items():
            if name == "X":
                self._target += moments
            else:
                self._background += moments
            if rows is None:
                self._rows.pop(name, None)
            elif name in self._rows:
                self._rows[name] += rows
        self._forget(kept=(*KEPT, *_LEARNED))
        self._why_unfitted = "partial_fit has added up only; call it with solve=True."
        if solve:
            self._solve_what_there_is()
        return self

    def _read_chunk(
        self, data: Any, name: str, weights: Any, *, reset: bool
    ) -> tuple[Moments, Reservoir | None]:
        """Return the moments of one chunk and a sample of its rows, if it has any."""
        if isinstance(data, Moments):
            if data.n_features is None:
                raise ValueError(f"{name} holds no samples yet")
            if reset:
                self.n_features_in_ = data.n_features
            require_features(self, data.n_features, name)
            return data, None
        # Each chunk with random keys of its own
        seed = (0, self._rows[name].n_seen if name in getattr(self, "_rows", ()) else 0)
        if kind_of(data) is not None:
            return read_source(
                self, data, name, reset=reset, sample_weight=weights, min_samples=1, seed=seed
            )
        rows = check_set(self, Given(data, name, weights), reset=reset, min_samples=1)
        try:
            moments = Moments.of(rows.X, sample_weight=rows.weights)
        except NonFiniteError as error:
            names = getattr(self, "feature_names_in_", None)
            advice = "partial_fit takes no missing values; use fit" if self._allows_nan else None
            raise NonFiniteError(error.columns, names, source=name, advice=advice) from None
        kept = Reservoir(seed=seed)
        kept.update(rows.X, rows.weights)
        return moments, kept

    def _solve_what_there_is(self) -> None:
        """Solve if there is enough of both sides; if not, keep the reason."""
        target, background = self._target, self._background
        if target.n_samples < 2:
            few = "only background has been seen so far; add target samples"
            self._why_unfitted = few if target.n_samples == 0 else "1 target sample is too few."
            return
        sets = {name: RowSet.of(rows) for name, rows in self._rows.items() if rows.n_seen}
        known = background if background.n_samples else None
        its = [sets["background"]] if "background" in sets else []
        try:
            self._solve(
                Sides(target, known, sets.get("X"), its, ours=False, random_state=self.random_state)
            )
        except ValueError as error:  # too few rows as yet, or all of them alike
            self._why_unfitted = str(error)

    def _solve(self, sides: Sides) -> Self:
        """Count if that is asked for, solve, store."""
        if self.calibrate not in (True, False):
            raise ValueError(f"calibrate={self.calibrate!r} must be True or False")
        target, background = sides.target, sides.background
        seen = (target.n_samples, 0 if background is None else background.n_samples)
        rows, weights = sides.rows_to_look_at()
        try:
            k, test = self._count(sides)
            contrast = self._find(sides, max(k, 1), rows, weights, counted=test is not None)
        except FeatureRangeError as error:
            raise self._named(error) from None
        if k == 0:
            contrast = contrast.first(0)
            warnings.warn(
                f"n_components={self.n_components!r} found no component: nothing in the target "
                "varies more, against the background, than sampling noise does (false_alarm_rate="
                f"{self.false_alarm_rate:g}). transform will return 0 columns, which most later "
                "steps of a pipeline refuse; give n_components as a number to keep some anyway",
                NoComponentsWarning,
                stacklevel=3,
            )
        calibration = self._calibrated(sides, contrast) if self.calibrate else None
        self._store(contrast, sides)
        loading = contrast.loading
        self.n_components_ = len(contrast.eigenvalues)
        self.loading_ = None if loading is None else loading.diagonal
        self.shrinkage_ = None if loading is None else 1.0 - loading.weight
        self.bound_ = contrast.bound
        self.solver_ = contrast.solver
        self.explained_variance_ = contrast.explained_variance
        total = contrast.target_variance.sum()
        self.explained_variance_ratio_ = contrast.explained_variance / total
        self.n_samples_seen_ = seen
        self.permutation_test_ = test
        self.smallest_p_value_ = None if calibration is None else calibration.smallest
        self._calibration = calibration
        self.notes_ = self._notes(sides, contrast, rows, test, seen)
        return self

    def _find(
        self, sides: Sides, k: int, rows: Any, weights: FloatArray | None, *, counted: bool
    ) -> Contrast:
        """Solve; fewer components than were counted, where there are not as many."""
        try:
            return solve_contrast(
                sides.target,
                sides.background,
                k,
                loading=self.loading,
                rows=rows,
                row_weights=weights,
                solver=self.solver,
                scaling=self.scaling,
                overwrite=sides.ours and not counted,
            )
        except InsufficientRankError as error:
            if counted and 1 <= error.rank < k:
                return self._find(sides, error.rank, rows, weights, counted=False)
            raise InsufficientRankError(error.rank, f"n_components={k}") from None

    def _count(self, sides: Sides) -> tuple[int, PermutationTest | None]:
        """Return how many components to keep, and the test that says so."""
        k: Any = self.n_components
        if not isinstance(k, str):
            return check_n_components(k, sides.target, name="n_components"), None
        if k not in _COUNTING:
            raise ValueError(f"n_components={k!r} must be a whole number, 'auto' or 'permutation'")
        if sides.background is None:
            raise ValueError(f"n_components={k!r} needs a background to compare with")
        check_sides(sides.target, sides.background)  # values that can't be squared
        if sides.has_rows:
            test = count_components_of(
                sides.target_sample,
                sides.background_sample,
                false_alarm_rate=self.false_alarm_rate,
                random_state=self.random_state,
            )
            return test.n_components, test
        if k == "permutation":
            raise ValueError(
                "n_components='permutation' must permute the samples of both sets, and only "
                "Moments are at hand; give rows to fit, or n_components as a number"
            )
        try:
            count = count_components(
                sides.target, sides.background, false_alarm_rate=self.false_alarm_rate
            )
        except (SingularBackgroundError, InsufficientRankError):
            raise ValueError(
                "n_components='auto' must permute the samples here, as the moments of the "
                "background have not full rank; give rows to fit, or n_components as a number"
            ) from None
        warnings.warn(
            "only moments are at hand, so components were counted by the law of F-matrices, which "
            "is for Gaussian samples and counts too many for heavy tails; give rows to fit, or "
            "n_components as a number",
            LawOfNoiseWarning,
            stacklevel=4,
        )
        return min(count, sides.target.n_samples - 1), None

    def _calibrated(self, sides: Sides, found: Contrast) -> Calibration:
        if sides.background is None:
            raise ValueError("calibrate=True needs a background")
        if not sides.has_rows:
            raise ValueError(
                "calibrate=True needs the rows of both sets, and only Moments are at hand"
            )
        if len(found.eigenvalues) == 0:  # all powers are 0, and all p-values 1
            return Calibration(np.zeros(len(sides.background_sample)))
        return calibrate(
            sides.target_sample,
            sides.background_sample,
            found,
            random_state=self.random_state,
        )

    def _notes(
        self,
        sides: Sides,
        found: Contrast,
        rows: Any,
        test: PermutationTest | None,
        seen: tuple[int, int],
    ) -> list[Note]:
        """Return what a reader should know; go through the rows only if they may say something."""
        if len(found.eigenvalues) == 0:
            return []
        notes = shared_components(found, *seen)
        if sides.target_rows is None:
            return notes
        outputs = rows @ found.filters
        squares = (outputs - outputs.mean(axis=0)) ** 2
        if test is None and (squares.max(axis=0) <= MOST * squares.sum(axis=0)).all():
            return notes
        back = sides.background_sample if sides.has_rows else None
        names = _check_feature_names_in(self)
        return notes + notes_on(found, sides.target_sample, back, test, feature_names=names)

    # -- results ---------------------------------------------------------------------------

    def power(self, X: Any) -> FloatArray:
        """Return the output power ``‖Fᵀ(x - background mean)‖²`` of each sample.

        Background samples have a power of about ``n_components_`` at most (with
        ``scaling="background"``), samples with more of what is special about the target a
        larger one. Without a background the mean of the target is subtracted.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._map(self._fitted().power, X, None)

    def p_value(self, X: Any) -> FloatArray:
        """Return for each sample how likely background is to have a power as high.

        This is the share of background rows with a power as high, each by filters that were fitted
        without it (five folds; the sample itself counts as one of them), and assumes no
        distribution. With ``n`` background rows, or groups of them, no value is below
        ``1 / (n + 1)``: see ``smallest_p_value_``. Nothing is extrapolated beyond. It takes
        ``calibrate=True`` before ``fit``, and at least 20 background rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        contrast = self._fitted()
        if contrast.background_mean is None:
            raise ValueError("p_value needs a background; this estimator was fitted without one")
        if self._calibration is None:
            raise ValueError(
                "p_value compares with background rows that the filters have not seen: set "
                "calibrate=True and fit again"
            )
        return self._map(partial(_p_value, self._calibration, contrast), X, None)


def _p_value(calibration: Calibration, contrast: Contrast, rows: Any) -> FloatArray:
    return calibration.p_value(contrast.power(rows))
