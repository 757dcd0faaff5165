"""How sure are directions: fit again to rows drawn with replacement and see what stays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import subspace_angles

from cpcapp.contrast.solution import Contrast
from cpcapp.inference.refit import match, refit
from cpcapp.moments.rows import FloatArray
from cpcapp.moments.sample import Sample


@dataclass(frozen=True)
class ComponentStability:
    """How much the directions of components change from sample to sample.

    Attributes
    ----------
    atom_intervals : ndarray of shape (n_components, n_features, 2)
        Lower and upper end of each value of ``atoms_``.
    top_frequency : ndarray of shape (n_components, n_features)
        Share of replicates in which a feature is among the ``n_top`` of largest weight.
    angles : ndarray of shape (n_replicates,)
        Largest angle between the components of a replicate and those of all rows, in degrees: 0
        if both give the target the same scores up to a rotation, 90 if one is missed altogether.
    n_top : int
    confidence : float
    """

    atom_intervals: FloatArray
    top_frequency: FloatArray
    angles: FloatArray
    n_top: int
    confidence: float

    @property
    def n_replicates(self) -> int:
        """Number of replicates that could be solved."""
        return len(self.angles)


def resample(
    target: Sample,
    background: Sample,
    contrast: Contrast,
    *,
    n: int = 200,
    confidence: float = 0.95,
    n_top: int = 10,
    random_state: int | np.random.Generator | None = 0,
) -> ComponentStability:
    """Draw rows, or groups, of both sets again, solve each time, and return how much changes."""
    if n < 2:
        raise ValueError(f"n={n} must be at least 2")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence} must be between 0 and 1")
    if n_top < 1:
        raise ValueError(f"n_top={n_top} must be at least 1")
    rng = np.random.default_rng(random_state)
    scores = target.rows @ contrast.filters
    atoms, angles = [], []
    top = np.zeros(contrast.filters.T.shape)
    for _ in range(n):
        try:
            drawn = target.take(_draw(target, rng)), background.take(_draw(background, rng))
            found = refit(contrast, *drawn, (target, background))
        except ValueError:
            continue  # a replicate without enough different rows
        order, signs = match(found, contrast)
        atoms.append((found.atoms[:, order] * signs).T)
        weights = found.filters[:, order].T * np.sqrt(found.target_variance)
        largest = np.argsort(-np.abs(weights), axis=1)[:, :n_top]
        np.put_along_axis(top, largest, np.take_along_axis(top, largest, axis=1) + 1.0, axis=1)
        angles.append(subspace_angles(target.rows @ found.filters, scores)[0])
    if not angles:
        raise ValueError(
            "no replicate could be solved (too few different rows or groups); use loading='auto', "
            "or fit fewer components"
        )
    tails = [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0]
    return ComponentStability(
        atom_intervals=np.moveaxis(np.quantile(atoms, tails, axis=0), 0, -1),
        top_frequency=top / len(angles),
        angles=np.degrees(angles),
        n_top=n_top,
        confidence=confidence,
    )


def _draw(sample: Sample, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the rows of as many groups as there are, drawn with replacement."""
    drawn = rng.integers(sample.n_groups, size=sample.n_groups)
    if sample.n_groups == len(sample):
        return drawn
    times = np.bincount(drawn, minlength=sample.n_groups)
    return np.repeat(np.arange(len(sample)), times[sample.groups])
