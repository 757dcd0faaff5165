"""cPCA of Abid et al.: the difference of covariances, with a contrast parameter to sweep."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import SpectralClustering

from cpcapp.contrast.solve import check_n_components, solve_difference
from cpcapp.estimators._alpha import bound_alpha, unique_alpha
from cpcapp.estimators._base import ContrastiveTransformer, check_moments
from cpcapp.estimators._extras import Extras
from cpcapp.moments.moments import FloatArray, Moments

_CHOICES = ("auto", "uca", "clustering")


class CPCA(ContrastiveTransformer):
    """Contrastive PCA: the leading eigenvectors of ``R_f - α R_b``.

    Unless ``alpha`` is a number, the contrast parameter is swept, the subspaces found are clustered
    by their principal angles, and the medoid of each cluster is offered as a view of the data
    (``selected_alphas_``). Which of them to look at is left to a person by the method's authors.
    ``alpha_``, the one used by ``transform``, is chosen as ``alpha`` says.

    Parameters
    ----------
    n_components : int, default=2
    alpha : {"auto", "uca", "clustering"} or float, default="auto"
        Which α to use.

        - ``"auto"``: 6, or more where noise alone gives more
          (:func:`cpcapp.contrast.loading.contrast_bound`). Components with a positive eigenvalue
          have
          more than 6 times the power of the background. Of the three it is the best by far on
          labelled
          data.
        - ``"uca"``: the α of unique component analysis, with which the first component has no more
          background power than the median principal component of the background.
        - ``"clustering"``: the medoid of the largest cluster that does not hold plain PCA.
        - a number: the contrast itself; nothing is swept. 0 is PCA of the target.
    alphas : array-like, optional
        Values to sweep, to which ``"auto"`` and ``"uca"`` add the one they choose; by default 0
        and 40 values from 0.1 to 1000, evenly spaced in logarithm.
    n_clusters : int, default=4
        How many views to offer.
    random_state : int or None, default=0
        Seed of the clustering.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal filters at ``alpha_``, in rows. They are their own atoms (``atoms_``).
    eigenvalues_ : ndarray of shape (n_components,)
        Of ``R_f - alpha_ R_b``, descending.
    alpha_ : float
    alphas_ : ndarray of shape (n_alphas,)
        All values that were tried, ascending.
    subspaces_ : ndarray of shape (n_alphas, n_components, n_features)
        The filters at each of them.
    subspace_eigenvalues_ : ndarray of shape (n_alphas, n_components)
        Of ``R_f - α R_b`` at each of them, descending.
    labels_ : ndarray of shape (n_alphas,)
        Cluster of each.
    selected_alphas_ : ndarray
        The medoids of the clusters, ascending.
    mean_, background_mean_ : ndarray of shape (n_features,)

    Notes
    -----
    Sparse data stay sparse while their moments are added up. With fewer samples than features
    the eigenproblems are solved in the span of the rows, which are made dense for it.

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
    >>> est = CPCA().fit(data.target, background=data.background)
    >>> est.subspaces_.shape
    (42, 2, 30)
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        alpha: str | float = "auto",
        alphas: ArrayLike | None = None,
        n_clusters: int = 4,
        random_state: int | None = 0,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.alphas = alphas
        self.n_clusters = n_clusters
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
        X : array-like, memory map or sparse matrix of shape (n_samples, n_features)
            The target; with ``is_background``, target and background together.
        y : ignored
        background : like X or Moments, of the same features, or a list of those, optional
            Without one the result is PCA, whatever ``alpha``.
        is_background : array-like of shape (n_samples,), optional
            True for the rows of ``X`` that are background.
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

        Returns
        -------
        CPCA
            itself.
        """
        alphas = self._check_alphas()
        extras = Extras(
            sample_weight,
            background_sample_weight,
            background_mixture,
            covariates,
            background_covariates,
        )
        target, back = self._read_both(X, y, background, is_background, extras)
        return self._solve(target, back, alphas)

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
        alphas = self._check_alphas()
        self.n_features_in_ = check_moments(target, background)
        return self._solve(target, background, alphas)

    def _solve(self, target: Moments, back: Moments | None, alphas: FloatArray) -> Self:
        check_n_components(self.n_components, target, name="n_components")
        chosen: int | None = None
        if back is None:
            alphas, back = np.zeros(1), target
        elif self.alpha in ("auto", "uca"):
            uca = self.alpha == "uca"
            alpha = unique_alpha(target, back) if uca else bound_alpha(target)
            alphas = np.unique(np.append(alphas, alpha))
            chosen = int(np.searchsorted(alphas, alpha))
        self._deviation = np.sqrt(target.variance())
        with self._naming_features():
            values, filters = solve_difference(target, back, self.n_components, alphas)
        self.alphas_ = alphas
        self.subspaces_ = filters.transpose(0, 2, 1)
        self.subspace_eigenvalues_ = values
        self.labels_ = _cluster(self.subspaces_, self.n_clusters, self.random_state)
        medoids = _medoids(self.subspaces_, self.labels_)
        self.selected_alphas_ = alphas[np.sort(medoids)]
        if chosen is None:
            chosen = _largest_other_cluster(self.labels_, medoids)
        self.alpha_ = float(alphas[chosen])
        self.components_ = self.subspaces_[chosen]
        self.atoms_ = self.components_
        self.eigenvalues_ = values[chosen]
        assert target.mean is not None
        self.mean_ = target.mean
        self.background_mean_ = None if back is target else back.mean
        return self

    def transform_at(self, X: Any, alpha: float) -> FloatArray:
        """Reduce samples with the filters of another α of the sweep (the nearest one).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        alpha : float

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        X = self._check_new(X)
        filters = self.subspaces_[int(np.abs(self.alphas_ - alpha).argmin())]
        return np.asarray(X @ filters.T - filters @ self.mean_)

    def _check_alphas(self) -> FloatArray:
        alpha: Any = self.alpha
        if isinstance(alpha, str):
            if alpha not in _CHOICES:
                names = ", ".join(map(repr, _CHOICES))
                raise ValueError(f"alpha={alpha!r} must be one of {names}, or a number")
            if self.alphas is None:
                return np.concatenate([[0.0], np.logspace(-1, 3, 40)])
            alphas = np.unique(np.asarray(self.alphas, dtype=np.float64))
        elif isinstance(alpha, Real) and not isinstance(alpha, bool | np.bool_):
            alphas = np.array([float(alpha)])
        else:
            names = ", ".join(map(repr, _CHOICES))
            raise TypeError(f"alpha={alpha!r} must be one of {names}, or a number")
        if alphas.size == 0 or not (np.isfinite(alphas).all() and (alphas >= 0.0).all()):
            raise ValueError("alpha and alphas must be finite numbers of at least 0")
        return alphas


def subspace_affinity(subspaces: NDArray[Any]) -> FloatArray:
    """Return the product of the cosines of the principal angles between subspaces.

    Parameters
    ----------
    subspaces : ndarray of shape (n, n_components, n_features)
        Orthonormal rows.

    Returns
    -------
    ndarray of shape (n, n)
        1 for equal subspaces, 0 if one holds a direction orthogonal to the other.

    Examples
    --------
    >>> import numpy as np
    >>> subspace_affinity(np.eye(3)[[[0, 1], [1, 0], [1, 2]]])
    array([[1., 1., 0.],
           [1., 1., 0.],
           [0., 0., 1.]])
    """
    # The cosines are the singular values of U_iᵀU_j; their product is |det|.
    inner = np.einsum("ikm,jlm->ijkl", subspaces, subspaces, optimize=True)
    affinity = np.abs(np.linalg.det(inner))
    return np.asarray(np.minimum((affinity + affinity.T) / 2.0, 1.0))


def _cluster(
    subspaces: NDArray[Any], n_clusters: int, random_state: int | None
) -> NDArray[np.intp]:
    if n_clusters < 1:
        raise ValueError(f"n_clusters={n_clusters} must be at least 1")
    if len(subspaces) <= n_clusters or n_clusters == 1:
        single = n_clusters == 1
        return np.zeros(len(subspaces), dtype=np.intp) if single else np.arange(len(subspaces))
    # A floor keeps the graph connected; it is far below any affinity that means something.
    affinity = np.maximum(subspace_affinity(subspaces), 1e-6)
    model = SpectralClustering(n_clusters, affinity="precomputed", random_state=random_state)
    return np.asarray(model.fit_predict(affinity))


def _medoids(subspaces: NDArray[Any], labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return, for each cluster, the member that is most alike to the others."""
    affinity = subspace_affinity(subspaces)
    medoids = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        within = affinity[np.ix_(members, members)].sum(axis=1)
        medoids.append(members[within.argmax()])
    return np.array(medoids)


def _largest_other_cluster(labels: NDArray[np.intp], medoids: NDArray[np.intp]) -> int:
    """Return the medoid of the largest cluster without the first (smallest) α."""
    others = [m for m in medoids if labels[m] != labels[0]] or list(medoids)
    return int(max(others, key=lambda m: ((labels == labels[m]).sum(), -m)))
