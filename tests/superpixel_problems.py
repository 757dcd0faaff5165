"""Small problems of cutting superpixels in two, for the tests of regions."""

from __future__ import annotations

import numpy as np

from cpcapp.splicing.decide.sides import SideStatistics
from cpcapp.splicing.decide.superpixels import border_pixels, collect_borders


def random_problem(rng, rows=3, cols=4, n_statistics=2):
    """A chessboard of superpixels with random evidence, and statistics with covariance I."""
    count = rows * cols
    labels = np.kron(np.arange(count).reshape(rows, cols), np.ones((3, 3), int)).astype(np.int32)
    one, two = (labels.ravel()[places] for places in border_pixels(labels))
    borders = collect_borders(count, one, two, rng.normal(-0.3, 1.0, len(one)))
    means = rng.normal(size=(count, n_statistics))
    means -= means.mean(axis=0)
    means = means @ np.linalg.inv(np.linalg.cholesky(means.T @ means / count)).T
    return borders, SideStatistics(means * 9.0, np.full(count, 9.0))
