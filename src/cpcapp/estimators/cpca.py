"""cPCA of Abid et al.: the difference of covariances."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np

from cpcapp.contrast.difference import solve_cpca
from cpcapp.contrast.solve import check_n_components
from cpcapp.estimators.base import ContrastiveTransformer
from cpcapp.estimators.inputs import FitArguments, Sides, read_moments, read_sides
from cpcapp.moments.moments import Moments
from cpcapp.moments.rows import FeatureRangeError


class CPCA(ContrastiveTransformer):
    """Contrastive PCA: the leading eigenvectors of ``R_f - α R_b``.

    Parameters
    ----------
    n_components : int, default=2
    alpha : "auto" or float, default="auto"
        How much of the background is taken off. 0 is PCA of the target. ``"auto"`` takes the one of
        3, 12 and 48 whose first two outputs show classes best (least kurtosis), and 12 if none
        does, as `CPCAPlusPlus` chooses its bound: a component with a positive eigenvalue has more
        than ``alpha_`` times the variance of the background.
    standardize : bool or None, default=None
        Whether features are taken in units ``D`` of their variance, the mean of both sets, that is
        whether ``(R_f - α R_b) v = λ D v`` is solved. False is the method as published, which goes
        by the features' own units. None: True with ``alpha="auto"``, which means little in units
        that have nothing to do with each other, and False with a number.
    random_state : int or None, default=0
        Chooses the rows that are looked at for ``"auto"``, where there are many.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Filters, in rows. Orthonormal without ``standardize``; with it ``F D Fᵀ = I``.
    atoms_ : ndarray of shape (n_components, n_features)
        ``components_`` without ``standardize``, with it ``components_`` times ``D``.
    eigenvalues_ : ndarray of shape (n_components,)
        Of ``R_f - alpha_ R_b``, descending.
    contrast_ : ndarray of shape (n_components,)
        Variance of the target over variance of the background.
    alpha_ : float
    mean_, background_mean_ : ndarray of shape (n_features,)
    background_weights_, covariate_effects_
        As in `CPCAPlusPlus`.

    Notes
    -----
    Sparse data stay sparse while their moments are added up. With fewer samples than features
    the eigenproblems are solved in the span of the rows, which are made dense for it. The sweep
    over many α of the method's authors is :func:`cpcapp.contrast.difference.solve_difference`.

    References
    ----------
    A. Abid, M. J. Zhang, V. K. Bagaria, J. Zou, "Exploring patterns enriched in a dataset with
    contrastive principal component analysis", Nature Communications 9, 2018.

    Examples
    --------
    >>> from cpcapp import CPCA
    >>> from cpcapp.datasets import synthetic
    >>> data = synthetic(random_state=0)
    >>> est = CPCA(alpha=2.7).fit(data.target, background=data.background)
    >>> est.transform(data.target).shape
    (400, 2)
    >>> CPCA().fit(data.target, background=data.background).alpha_
    3.0
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        alpha: str | float = "auto",
        standardize: bool | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.standardize = standardize
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        background: Any = None,
        is_background: Any = None,
        *,
        sample_weight: Any = None,
        background_sample_weight: Any = None,
        background_mixture: Any = None,
        covariates: Any = None,
        background_covariates: Any = None,
    ) -> Self:
        """Find the filters.

        Parameters
        ----------
        X, background, is_background
            As in `CPCAPlusPlus.fit`. Without a background the result is PCA, whatever ``alpha``.
        y : ignored
        sample_weight, background_sample_weight, background_mixture
            As in `CPCAPlusPlus.fit`.
        covariates, background_covariates
            As in `CPCAPlusPlus.fit`.

        Returns
        -------
        CPCA
            itself.
        """
        self._forget()
        given = FitArguments(
            sample_weight,
            background_sample_weight,
            background_mixture,
            covariates,
            background_covariates,
        )
        return self._solve(read_sides(self, X, y, background, is_background, given))

    def fit_moments(self, target: Moments, background: Moments | None = None) -> Self:
        """Find the filters from moments that were added up elsewhere.

        Parameters
        ----------
        target : Moments
        background : Moments, optional

        Returns
        -------
        CPCA
            itself.

        Examples
        --------
        >>> import numpy as np
        >>> from cpcapp import CPCA, Moments
        >>> rng = np.random.default_rng(0)
        >>> target, background = (Moments.of(rng.normal(size=(50, 5))) for _ in range(2))
        >>> CPCA(n_components=1, alpha=2.0).fit_moments(target, background).components_.shape
        (1, 5)
        """
        self._forget()
        return self._solve(read_moments(self, target, background, None))

    def _solve(self, sides: Sides) -> Self:
        alpha = _check_alpha(self.alpha)
        if self.standardize not in (None, True, False):
            raise ValueError(f"standardize={self.standardize!r} must be True, False or None")
        standardize = alpha is None if self.standardize is None else self.standardize
        if alpha is None and not standardize:
            raise ValueError(
                "alpha='auto' chooses α in units of the features' variance, which standardize="
                "False rules out; give alpha as a number, or standardize=True"
            )
        target, background = sides.target, sides.background
        k = check_n_components(self.n_components, target, name="n_components")
        rows, weights = sides.rows_to_look_at() if alpha is None else (None, None)
        try:
            if background is None:
                found = solve_cpca(target, target, k, 0.0, standardize=False)
                unknown = np.full(k, np.nan)
                found = replace(found, contrast=unknown, background_mean=None)
            else:
                found = solve_cpca(
                    *(target, background, k, alpha),
                    standardize=standardize,
                    rows=rows,
                    row_weights=weights,
                )
        except FeatureRangeError as error:
            raise self._named(error) from None
        self._store(found, sides)
        self.alpha_ = float(found.bound or 0.0)
        return self


def _check_alpha(alpha: Any) -> float | None:
    """Return α as a number, or None where it is to be chosen."""
    if isinstance(alpha, str) and alpha == "auto":
        return None
    if isinstance(alpha, str) or not isinstance(alpha, Real) or isinstance(alpha, bool | np.bool_):
        raise TypeError(f"alpha={alpha!r} must be 'auto' or a number of at least 0")
    if not (np.isfinite(float(alpha)) and float(alpha) >= 0.0):
        raise ValueError(f"alpha={alpha!r} must be 'auto' or a number of at least 0")
    return float(alpha)
