"""Which genes of an AnnData object are used, and which are expressed.

`select_genes` is one rule for `contrast` and for `.h5ad` tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


def select_genes(var: Any, mask_var: Any = "auto") -> tuple[Mask, str | None]:
    """Return which genes to use, as ``scanpy.pp.pca`` does, and the column of ``var`` that says so.

    ``mask_var`` is a mask, the name of one in ``var``, or None for all genes; ``"auto"`` is
    ``"highly_variable"`` if there is such a column. Callers add their advice to the errors.
    """
    if isinstance(mask_var, str) and mask_var == "auto":
        mask_var = "highly_variable" if "highly_variable" in var else None
    if mask_var is None:
        return np.ones(len(var), dtype=bool), None
    column = mask_var if isinstance(mask_var, str) else None
    if column is not None and column not in var:
        names = ", ".join(repr(str(name)) for name in var.columns[:8]) or "none"
        raise ValueError(f"var has no column {column!r}; its columns are: {names}")
    name = "mask_var" if column is None else f"var[{column!r}]"
    mask = check_mask(mask_var if column is None else var[column], len(var), name)
    if not mask.any():
        raise ValueError(f"{name} selects no gene")
    return mask, column


def check_mask(values: Any, length: int, name: str) -> Mask:
    """Return a mask as an array, or raise ``ValueError`` if it is not one of this length."""
    mask = np.asarray(values)
    if mask.shape != (length,) or mask.dtype != bool:
        raise ValueError(
            f"{name} has shape {mask.shape} and dtype {mask.dtype}; it must be ({length},) of bool"
        )
    return mask


def count_cells_above(
    target: Callable[[], Iterator[Any]], background: Callable[[], Iterator[Any]], n_genes: int
) -> NDArray[np.intp]:
    """Return how many background cells have more of a gene than the cell that has least.

    With counts, or logarithms of counts, these are the cells that express the gene. After scaling
    they still are: what was 0 is then the smallest value. Both sides give blocks of cells. A gene
    with NaN counts as expressed by all: it is an error elsewhere.
    """
    lowest = np.full(n_genes, np.inf)
    for side in (target, background):
        for block in side():
            least = block.min(axis=0)
            lowest = np.minimum(lowest, least.toarray().ravel() if sp.issparse(least) else least)
    above = np.zeros(n_genes, dtype=np.intp)
    n_cells = 0
    for block in background():
        n_cells += block.shape[0]
        if sp.issparse(block):
            places = block.indices
            above += np.bincount(places[block.data > lowest[places]], minlength=n_genes)
            # What is not stored is 0.
            zeros = block.shape[0] - np.bincount(places, minlength=n_genes)
            above += np.where(lowest < 0.0, zeros, 0)
        else:
            above += (block > lowest).sum(axis=0)
    return np.where(np.isnan(lowest), n_cells, above)
