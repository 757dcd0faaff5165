"""Which genes of an AnnData object are used: one rule for `contrast` and for `.h5ad` tables."""

from __future__ import annotations

from typing import Any

import numpy as np
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
