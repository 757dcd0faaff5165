"""Which genes of an AnnData object are used: one rule for `contrast` and for `.h5ad` tables."""

from __future__ import annotations

from typing import Any

import numpy as np
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
    mask = np.array(values)
    if mask.shape != (length,) or mask.dtype != bool:
        raise ValueError(
            f"{name} has shape {mask.shape} and dtype {mask.dtype}; it must be ({length},) of bool"
        )
    return mask
