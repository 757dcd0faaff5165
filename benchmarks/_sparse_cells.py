"""Sparse cells by genes, made in seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

_KINDS, _OWN_KINDS = 8, 2


def cells(n_cells: int, n_genes: int, density: float, *, target: bool) -> Any:
    """Return the logarithms of counts of eight kinds of cells, and of two more in a target."""
    genes = np.random.default_rng(0)
    common = genes.normal(0.0, 1.5, n_genes)
    marked = genes.random((_KINDS + _OWN_KINDS, n_genes)) < 0.05
    profiles = np.exp(common + marked * genes.normal(0.0, 1.5, marked.shape))
    profiles /= profiles.sum(axis=1, keepdims=True)
    depth = _depth(profiles[0], density)
    rng = np.random.default_rng(1 + target)
    kinds = rng.integers(_KINDS + (_OWN_KINDS if target else 0), size=n_cells)
    totals = rng.poisson(depth * np.exp(rng.normal(0.0, 0.3, n_cells)))
    rows, columns = [], []
    for kind, profile in enumerate(profiles):
        own = np.flatnonzero(kinds == kind)
        # Single molecules, each of one gene: counts are then Poisson.
        rows.append(np.repeat(own, totals[own]))
        columns.append(rng.choice(n_genes, size=int(totals[own].sum()), p=profile))
    places = (np.concatenate(rows), np.concatenate(columns))
    counts = sp.coo_array((np.ones(len(places[0])), places), shape=(n_cells, n_genes)).tocsr()
    counts.data = np.log1p(counts.data)
    return sp.csr_array((counts.data, counts.indices.astype(np.int32), counts.indptr), counts.shape)


def noise(n_cells: int, n_genes: int, density: float, *, target: bool) -> Any:
    """Return uniform values at random places."""
    rng = np.random.default_rng(3 + target)
    return sp.random_array((n_cells, n_genes), density=density, format="csr", rng=rng)


def _depth(profile: Any, density: float) -> float:
    """Return how many molecules a cell needs for this share of genes to have one."""
    low, high = 1.0, 1e7
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (
            (low, middle) if np.mean(-np.expm1(-middle * profile)) > density else (middle, high)
        )
    return high
