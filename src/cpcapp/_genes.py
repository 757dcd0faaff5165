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
    """Return which genes to use, by the convention of ``scanpy.pp.pca``.

    Parameters
    ----------
    var : DataFrame of shape (n_vars, n_columns)
        ``adata.var``.
    mask_var : "auto", None, str or array of bool of shape (n_vars,), default="auto"
        A mask, or the name of one in ``var``; None for all genes. ``"auto"`` uses
        ``var["highly_variable"]`` if it exists, otherwise all genes.

    Returns
    -------
    mask : ndarray of bool of shape (n_vars,)
    column : str or None
        The column of ``var`` that was used.

    Raises
    ------
    ValueError
        With the problem alone; callers add the advice that fits them.

    Examples
    --------
    >>> import pandas as pd
    >>> var = pd.DataFrame({"highly_variable": [True, False]})
    >>> select_genes(var)
    (array([ True, False]), 'highly_variable')
    >>> select_genes(var, None)
    (array([ True,  True]), None)
    """
    column: str | None = None
    if isinstance(mask_var, str):
        column = "highly_variable" if mask_var == "auto" else mask_var
        if column not in var:
            if mask_var != "auto":
                names = ", ".join(repr(str(name)) for name in var.columns[:8]) or "none"
                raise ValueError(f"var has no column {mask_var!r}; its columns are: {names}")
            column = mask_var = None
        else:
            mask_var = var[column]
    if mask_var is None:
        return np.ones(len(var), dtype=bool), None
    name = "mask_var" if column is None else f"var[{column!r}]"
    mask = check_mask(mask_var, len(var), name)
    if not mask.any():
        raise ValueError(f"{name} selects no gene")
    return mask, column


def check_mask(values: Any, length: int, name: str) -> Mask:
    """Return a mask as an array, or raise ``ValueError`` if it is not one of this length.

    Examples
    --------
    >>> check_mask([True, False], 2, "mask_var")
    array([ True, False])
    """
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
    they still are: what was 0 is then the smallest value.

    Parameters
    ----------
    target, background : callable
        Return the cells block by block, arrays or CSR matrices of shape (n, n_genes).
    n_genes : int

    Returns
    -------
    ndarray of int of shape (n_genes,)
        A gene with NaN counts as expressed by all: it is an error elsewhere.

    Examples
    --------
    >>> cells = np.array([[0.0, -0.5], [2.0, -0.5], [0.0, 1.5]])
    >>> count_cells_above(lambda: iter([cells]), lambda: iter([cells[1:]]), 2)
    array([1, 1])
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
