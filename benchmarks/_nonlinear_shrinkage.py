"""Analytical nonlinear shrinkage of covariance eigenvalues, to compare rules with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

FloatArray = NDArray[np.float64]
_FIVE = 5.0**0.5


def nonlinear_shrinkage(eigenvalues: FloatArray, n_samples: int) -> FloatArray:
    """Return the shrunk eigenvalues, ascending as those given.

    O. Ledoit, M. Wolf, "Analytical nonlinear shrinkage of large-dimensional covariance matrices",
    Annals of Statistics 48(5), 2020: equations 4.7 to 4.9 and C.1 to C.5, with an Epanechnikov
    kernel of bandwidth ``n^-1/3``.
    """
    p, n = len(eigenvalues), n_samples - 1
    largest = float(eigenvalues[-1])
    values = np.maximum(eigenvalues[max(0, p - n) :], 1e-12 * largest)
    width = n ** (-1.0 / 3.0)
    h = width * values
    x = (values[:, None] - values) / h
    density = 0.75 / _FIVE * np.mean(np.maximum(1.0 - x**2 / 5.0, 0.0) / h, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = (1.0 - x**2 / 5.0) * np.log(np.abs((_FIVE - x) / (_FIVE + x)))
    log = np.where(np.isclose(np.abs(x), _FIVE, rtol=0.0, atol=1e-12), 0.0, log)
    hilbert = np.mean((-0.3 * x + 0.75 / _FIVE * log) / np.pi / h, axis=1)
    if p <= n:
        c = p / n
        apart = 1.0 - c - np.pi * c * values * hilbert
        shrunk = values / ((np.pi * c * values * density) ** 2 + apart**2)
    else:
        edge = _FIVE * width
        log_edge = np.log((1.0 + edge) / abs(1.0 - edge))
        at_zero = 0.3 / width**2 + 0.75 / _FIVE / width * (1.0 - 0.2 / width**2) * log_edge
        null = 1.0 / ((p - n) / n * at_zero * np.mean(1.0 / values))
        rest = 1.0 / (np.pi**2 * values * (density**2 + hilbert**2))
        shrunk = np.concatenate([np.full(p - n, null), rest])
    return np.maximum(isotonic_regression(shrunk), 1e-9 * largest)
