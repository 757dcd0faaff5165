"""Two views of one contrast: what is loud in the target, and what is rare in the background."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from cpcapp.contrast.solve import Contrast
from cpcapp.contrast.steering import mean_squared_correlation, output_correlations
from cpcapp.moments.moments import FloatArray

# Below this, three quarters of the variance of even the most similar outputs are not shared. That
# is so in 8 of the 83 deciding pairs of benchmarks/loading_rules.py; in most of these one view
# shows the classes and the other does not.
DISAGREEMENT = 0.5


class ViewsDisagreeWarning(UserWarning):
    """The loud and the rare view of a contrast show different things; look at both."""


@dataclass(frozen=True)
class View:
    """One solution of a contrast.

    Attributes
    ----------
    components : ndarray of shape (n_components, n_features)
        Filters, in rows.
    atoms : ndarray of shape (n_components, n_features)
        Dictionary atoms, in rows.
    eigenvalues : ndarray of shape (n_components,)
        Target power over loaded background power, descending.
    mean : ndarray of shape (n_features,)
        Of the target.
    """

    components: FloatArray
    atoms: FloatArray
    eigenvalues: FloatArray
    mean: FloatArray

    def transform(self, X: Any) -> FloatArray:
        """Reduce samples to the components of this view.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        if sp.issparse(X):
            return np.asarray(X @ self.components.T) - self.components @ self.mean
        return np.asarray((np.asarray(X) - self.mean) @ self.components.T)


@dataclass(frozen=True)
class Views:
    """The loud and the rare view of one contrast.

    Attributes
    ----------
    loud : View
        Of the directions with a large contrast, those with much variance in the target.
    rare : View
        The directions with the largest contrast, however faint.
    correlations : ndarray of shape (n_components,)
        Canonical correlations between the outputs of the two over the target, descending. All 1 if
        both views show the same.
    n_loud : int
        How many dimensions of ``components_`` are of the loud view. The others are those of the
        largest contrast besides.
    """

    loud: View
    rare: View
    correlations: FloatArray
    n_loud: int

    @property
    def disagree(self) -> bool:
        """Whether not even one output of the loud view is much like one of the rare view."""
        return bool(len(self.correlations) and self.correlations[0] < DISAGREEMENT)


def views_of(contrast: Contrast, mean: FloatArray) -> Views:
    """Return both views of a contrast; they are the same if nothing was steered.

    Parameters
    ----------
    contrast : Contrast
    mean : ndarray of shape (n_features,)
        Of the target.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import solve_contrast
    >>> rng = np.random.default_rng(0)
    >>> B = rng.normal(size=(500, 4))
    >>> X = rng.normal(size=(500, 4)) * [2, 1, 1, 1]
    >>> views_of(solve_contrast(X, B, k=2), X.mean(axis=0)).correlations
    array([1., 1.])
    """
    k = len(contrast.eigenvalues)
    rare = contrast.rare
    if rare is None or k == 0:
        one = _view(contrast, mean)
        return Views(one, one, np.ones(k), 0)
    correlations = output_correlations(contrast, rare)
    return Views(_view(contrast, mean), _view(rare, mean), correlations, contrast.n_steered)


def may_disagree(contrast: Contrast) -> bool:
    """Return False if the views cannot disagree, in less time than it takes to see if they do."""
    rare = contrast.rare
    # The largest correlation is at least the mean one.
    return rare is not None and mean_squared_correlation(contrast, rare) < DISAGREEMENT**2


def _view(contrast: Contrast, mean: FloatArray) -> View:
    return View(contrast.filters.T, contrast.atoms.T, contrast.eigenvalues, mean)
