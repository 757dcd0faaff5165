"""Contrast for single-cell data, by the conventions of scanpy. Needs the extra ``anndata``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp._genes import Mask, check_mask, select_genes
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.moments.rows import refuse_damaged

__all__ = ["contrast"]

if TYPE_CHECKING:
    from anndata import AnnData

_METHODS = ("cpca++", "cpca")
# Cells in a block: dense, 2,000 genes of them take 65 MB.
_BLOCK_ROWS = 4096
# Of fewer cells a variance is known to less than its half: its relative error is about √(1/cells).
_MIN_CELLS = 5


def contrast(
    adata: AnnData,
    background: Any,
    n_components: int | str = 2,
    *,
    method: str = "cpca++",
    alpha: str | float = "auto",
    loading: str | float = "auto",
    layer: str | None = None,
    use_raw: bool = False,
    mask_var: Any = "auto",
    min_cells: int | str = "auto",
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Find the directions along which cells vary most, relative to background cells.

    Every cell of ``adata`` gets its components, background cells too. A sparse matrix stays
    sparse. Up to 2000 genes a square matrix of the genes used is dense, or one of the cells where
    these are fewer; with more genes nothing is.

    Parameters
    ----------
    adata : AnnData
    background : AnnData, array of bool, str or (str, value)
        Other cells, whose genes are matched by ``var_names``; or the cells of ``adata`` that
        are background: a mask of shape (n_obs,), the name of a boolean column of
        ``adata.obs``, or a column and a value of it (or a list of values). All other cells are
        the target.
    n_components : int or "auto", default=2
        ``"auto"`` keeps the significant ones, by shuffling the cells of both sets
        (:func:`cpcapp.permutation_test`; of many cells a random sample).
    method : {"cpca++", "cpca"}, default="cpca++"
    alpha : "auto" or float, default="auto"
        Contrast parameter of ``method="cpca"``.
    loading : default="auto"
        Of ``method="cpca++"``; see :func:`cpcapp.solve_contrast`.
    layer : str, optional
        Use ``adata.layers[layer]`` in place of ``adata.X``.
    use_raw : bool, default=False
        Use ``adata.raw.X``, of the genes that ``adata`` has.
    mask_var : "auto", None, str or array of bool of shape (n_vars,), default="auto"
        Genes to use: a mask, or the name of one in ``adata.var``; None for all. ``"auto"``
        uses ``adata.var["highly_variable"]`` if there is one, as scanpy does, and as ``cpcapp
        reduce`` does with ``.h5ad`` files.
    min_cells : int or "auto", default="auto"
        Leave out genes that fewer background cells express, with a warning that says how many:
        hardly any variance to divide by is known of them. A cell expresses a gene if its value is
        above the smallest that any cell has. ``"auto"`` is 5, or a tenth of the background cells
        if that is less; 0 keeps all genes. Not used by ``method="cpca"``, which divides by nothing.
    key_added : str, optional
        Write to ``obsm[key_added]``, ``varm[key_added]`` and ``uns[key_added]``.
    copy : bool, default=False
        Return a copy with the result instead of writing into ``adata``.

    Returns
    -------
    AnnData or None
        ``.obsm["X_cpcapp"]`` has the scores (n_obs, n_components), ``.varm["cpcapp"]`` the
        filters (n_vars, n_components), 0 for genes that were not used, and
        ``.uns["cpcapp"]`` a dict with ``params``, ``eigenvalues``, ``contrast`` (target over
        background variance), ``variance`` (of the target's scores), ``mean`` and ``atoms`` of the
        genes (n_vars, n_components), and ``n_target``, ``n_background`` and
        ``n_genes_left_out``. With ``n_components="auto"`` also ``p_values``, one for each step of
        the permutation test.

    See Also
    --------
    cpcapp.CPCAPlusPlus : the same on plain matrices.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from anndata import AnnData
    >>> from cpcapp.anndata import contrast
    >>> rng = np.random.default_rng(0)
    >>> cells = AnnData(rng.normal(size=(300, 5)))
    >>> cells.obs["sample"] = ["healthy"] * 100 + ["ill"] * 200
    >>> cells.X[100:, 3] *= 4
    >>> contrast(cells, ("sample", "healthy"), n_components=1)
    >>> cells.obsm["X_cpcapp"].shape, int(np.abs(cells.varm["cpcapp"][:, 0]).argmax())
    ((300, 1), 3)
    >>> 10 < cells.uns["cpcapp"]["contrast"][0] < 25
    np.True_
    """
    if method not in _METHODS:
        raise ValueError(f"method={method!r} must be one of {', '.join(map(repr, _METHODS))}")
    if isinstance(n_components, str) and n_components != "auto":
        raise ValueError(f"n_components={n_components!r} must be a whole number or 'auto'")
    if n_components == "auto" and method == "cpca":
        raise ValueError("n_components='auto' is for method='cpca++'; give a number")
    adata = adata.copy() if copy else adata
    try:
        genes, gene_mask = select_genes(adata.var, mask_var)
    except ValueError as error:
        raise ValueError(
            f"{error}; mask_var must be a column of adata.var, a mask, or None for all genes"
        ) from error
    names = adata.var_names[genes]
    cells = _get_cells(adata, layer, use_raw, names, "adata")
    own, others = _find_sides(adata, cells, background, (layer, use_raw), names)
    least, expressed = 0, np.ones(len(names), dtype=bool)
    if method == "cpca++":
        least, expressed = _find_expressed(own, others, min_cells)
    if not expressed.all():
        left_out = names[~expressed]
        warnings.warn(
            f"{len(left_out)} of {len(names)} genes are left out, because fewer than {least} of "
            f"the {others.n_cells} background cells express them ({_first_five(left_out)}): "
            "their variance in the background is hardly known, and would give components of "
            "their own; min_cells=0 keeps them",
            UserWarning,
            stacklevel=2,
        )
        genes[genes] = expressed
        own, others, cells = (
            replace(c, columns=c.columns[expressed]) for c in (own, others, cells)
        )
    estimator: Any = CPCAPlusPlus(n_components, loading=loading)
    if method == "cpca":
        estimator = CPCA(int(n_components), alpha=alpha)
    try:
        estimator.fit(own.blocks(), background=others.blocks())
    except ValueError as error:
        raise ValueError(f"{own.name} against {others.name}: {error}") from error
    scores = np.concatenate([estimator.transform(block) for block in cells.blocks()]).astype(float)
    params: dict[str, Any] = {"method": method, "use_raw": use_raw}
    params |= {} if layer is None else {"layer": layer}
    params |= {} if gene_mask is None else {"mask_var": gene_mask}
    if method == "cpca":
        params["alpha"] = estimator.alpha_
    else:
        params |= {"loading": str(loading), "min_cells": least}
    found = {
        "params": params,
        "eigenvalues": np.asarray(estimator.eigenvalues_),
        "contrast": np.asarray(estimator.contrast_),
        "variance": scores[own.rows].var(axis=0),
        "mean": _expand_genes(estimator.mean_[:, None], genes)[:, 0],
        "atoms": _expand_genes(estimator.atoms_.T, genes),
        "n_target": own.n_cells,
        "n_background": others.n_cells,
        "n_genes_left_out": int((~expressed).sum()),
    }
    test = getattr(estimator, "permutation_test_", None)
    if test is not None:
        found["p_values"] = np.asarray(test.p_values)
    obsm, rest = ("X_cpcapp", "cpcapp") if key_added is None else (key_added, key_added)
    with warnings.catch_warnings():
        # A view becomes a copy, which is what is wanted here.
        warnings.filterwarnings("ignore", message=".*view.*")
        adata.obsm[obsm] = scores
        adata.varm[rest] = _expand_genes(estimator.components_.T, genes)
        adata.uns[rest] = found
    return adata if copy else None


def _find_expressed(own: _Cells, others: _Cells, min_cells: int | str) -> tuple[int, Mask]:
    """Return how many background cells have to express a gene, and which genes as many do.

    They have more of it than the cell that has least. With counts, or logarithms of counts, these
    are the cells that express it. After scaling they still are: what was 0 is then the smallest
    value. NaN is an error elsewhere, and is above all here.
    """
    if min_cells == "auto":
        least = min(_MIN_CELLS, -(-others.n_cells // 10))
    elif isinstance(min_cells, Integral) and min_cells >= 0:
        least = int(min_cells)
    else:
        raise ValueError(
            f"min_cells={min_cells!r} must be 'auto' or a whole number of at least 0 (0 keeps all "
            "genes)"
        )
    n_genes = len(own.columns)
    if least == 0:
        return 0, np.ones(n_genes, dtype=bool)
    lowest, above = np.full(n_genes, np.inf), np.zeros(n_genes, dtype=np.intp)
    for cells in (own, others):
        for block in cells.blocks():
            low = block.min(axis=0)
            lowest = np.minimum(lowest, low.toarray().ravel() if sp.issparse(low) else low)
    for block in others.blocks():
        if sp.issparse(block):
            stored = np.bincount(block.indices, minlength=n_genes)
            higher = block.indices[block.data > lowest[block.indices]]
            above += np.bincount(higher, minlength=n_genes)
            above += np.where(lowest < 0.0, block.shape[0] - stored, 0)  # others are 0
        else:
            above += (block > lowest).sum(axis=0)
    expressed: Mask = (above >= least) | np.isnan(lowest)
    if not expressed.any():
        raise ValueError(
            f"min_cells={min_cells} leaves no gene: none is expressed in as many of the "
            f"{others.n_cells} background cells; give a smaller one, or 0 to keep all genes"
        )
    return least, expressed


def _first_five(names: Any) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(str, names[:5])) + more


@dataclass(frozen=True)
class _Cells:
    """Some rows and columns of a matrix, in blocks of rows; sparse blocks stay sparse."""

    matrix: Any
    rows: Mask
    columns: NDArray[np.intp]
    name: str

    @property
    def n_cells(self) -> int:
        return int(self.rows.sum())

    def blocks(self) -> Iterator[Any]:
        has_all_columns = np.array_equal(self.columns, np.arange(self.matrix.shape[1]))
        for start in range(0, self.matrix.shape[0], _BLOCK_ROWS):
            block = self.matrix[start : start + _BLOCK_ROWS]
            if not sp.issparse(self.matrix):
                refuse_damaged(block, self.name)  # it comes from a file just now
            rows = self.rows[start : start + _BLOCK_ROWS]
            if not rows.any():
                continue
            block = block if rows.all() else block[rows]
            block = sp.csr_array(block) if sp.issparse(block) else np.asarray(block)
            yield block if has_all_columns else block[:, self.columns]


def _get_cells(adata: AnnData, layer: str | None, use_raw: bool, wanted: Any, name: str) -> _Cells:
    """Return all cells, with the values of the genes of these names."""
    if layer is not None and use_raw:
        raise ValueError("give either layer or use_raw=True, not both")
    if use_raw and adata.raw is None:
        raise ValueError(f"use_raw=True, but there is no {name}.raw")
    if layer is not None and layer not in adata.layers:
        there = ", ".join(map(repr, adata.layers)) or "none"
        raise ValueError(f"layer={layer!r} is not in {name}.layers; there are: {there}")
    source, owner = (adata.raw, f"{name}.raw") if use_raw else (adata, name)
    matrix = source.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise ValueError(f"there is no {name}.X; choose a layer")
    where = f"{owner}.X" if layer is None else f"{name}.layers[{layer!r}]"
    if not source.var_names.is_unique:
        raise ValueError(f"var_names of {owner} are not unique; call var_names_make_unique()")
    columns = np.asarray(source.var_names.get_indexer(wanted), dtype=np.intp)
    if (columns < 0).any():
        raise ValueError(
            f"{owner} has no gene {_first_five(wanted[columns < 0])}; keep the genes that both "
            "have, or choose with mask_var"
        )
    refuse_damaged(matrix, where)
    # Rows of a CSC matrix are slow to select.
    matrix = matrix.tocsr() if sp.issparse(matrix) and matrix.format == "csc" else matrix
    return _Cells(matrix, np.ones(adata.n_obs, dtype=bool), columns, where)


def _find_sides(
    adata: AnnData, cells: _Cells, background: Any, source: tuple[str | None, bool], genes: Any
) -> tuple[_Cells, _Cells]:
    """Return the cells of the target and of the background."""
    from anndata import AnnData

    if isinstance(background, AnnData):
        return cells, _get_cells(background, *source, genes, "background")
    mask = _find_background(adata, background)
    for name, count in (("target", int((~mask).sum())), ("background", int(mask.sum()))):
        if count < 2:
            raise ValueError(f"background leaves {count} {name} cells; at least 2 are needed")
    return replace(cells, rows=~mask), replace(cells, rows=mask)


def _find_background(adata: AnnData, background: Any) -> Mask:
    if isinstance(background, str):
        if background not in adata.obs:
            raise ValueError(f"background={background!r} must be a boolean column of adata.obs")
        return check_mask(adata.obs[background], adata.n_obs, f"adata.obs[{background!r}]")
    if isinstance(background, tuple) and len(background) == 2 and isinstance(background[0], str):
        column, value = background
        if column not in adata.obs:
            there = ", ".join(map(repr, adata.obs.columns[:8]))
            raise ValueError(f"adata.obs has no column {column!r}; there are: {there}")
        values = value if isinstance(value, (list, tuple, set, frozenset)) else [value]
        mask = np.asarray(adata.obs[column].isin(list(values)), dtype=bool)
        if not mask.any():
            counts = adata.obs[column].value_counts()
            there = ", ".join(f"{name!r} ({count} cells)" for name, count in counts[:8].items())
            raise ValueError(
                f"no cell has {value!r} in adata.obs[{column!r}]; it has {len(counts)} values: "
                f"{there}{', ...' if len(counts) > 8 else ''}"
            )
        return mask
    if background is None:
        raise TypeError("background must be AnnData, a mask, or a column of obs and a value")
    if hasattr(background, "reindex"):  # a Series goes by the names of its cells, as in pandas
        if not (background.index.is_unique and adata.obs_names.isin(background.index).all()):
            raise ValueError(
                "background is a Series whose index does not name each cell of adata once; give "
                "it the index adata.obs_names, or pass background.to_numpy()"
            )
        background = background.reindex(adata.obs_names)
    return check_mask(background, adata.n_obs, "background")


def _expand_genes(values: NDArray[np.float64], genes: Mask) -> NDArray[np.float64]:
    """Return rows for all genes, 0 for those that were not used."""
    whole = np.zeros((len(genes), values.shape[1]))
    whole[genes] = values
    return whole
