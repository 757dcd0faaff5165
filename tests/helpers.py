"""Small things that several test modules need."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings

# How many times as many examples hypothesis tries, for a run that may take long.
EXAMPLES_TIMES = int(os.environ.get("CPCAPP_EXAMPLES", "1"))


def examples(count: int) -> settings:
    """Let hypothesis try so many examples of a test, times CPCAPP_EXAMPLES."""
    return settings(max_examples=count * EXAMPLES_TIMES)


def random_covariance(rng: np.random.Generator, n_features: int, spread: float = 1.0) -> Any:
    """Return a well-conditioned random covariance."""
    q, _ = np.linalg.qr(rng.standard_normal((n_features, n_features)))
    return (q * np.exp(spread * rng.uniform(-1, 1, n_features))) @ q.T


def correlated(rng: np.random.Generator, n: int, mixing: Any) -> Any:
    return rng.standard_normal((n, len(mixing))) @ mixing


def subspace_angle(a: Any, b: Any) -> float:
    """Return the largest principal angle between the spans of the columns, in radians."""
    qa, qb = np.linalg.qr(a).Q, np.linalg.qr(b).Q
    # From the sine: the cosine can't see angles below the root of the rounding unit.
    return float(np.arcsin(min(1.0, np.linalg.norm(qb - qa @ (qa.T @ qb), 2))))


def peak_bytes(call: Callable[[], Any]) -> int:
    """Return the most memory that a call held at once, beyond what was there before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before
