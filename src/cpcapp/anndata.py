"""Contrast for single-cell data, by the conventions of scanpy. Needs the extra ``anndata``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.moments import Moments

if TYPE_CHECKING:
    from anndata import AnnData

_METHODS = ("cpca++", "cpca")
_ROWS = 4096
_Mask = NDArray[np.bool_]


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
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Find what is special about cells against a background of others.

    Every cell of ``adata`` gets its components, also those that serve as background. A sparse
    matrix stays sparse; what is dense is a square matrix of the genes used, or, with fewer
    cells than genes, one of the cells.

    Parameters
    ----------
    adata : AnnData
    background : AnnData, array of bool, str or (str, value)
        Other cells, whose genes are matched by ``var_names``; or which cells of ``adata`` are
        background: a mask of shape (n_obs,), the name of a boolean column of ``adata.obs``, or
        a column and a value of it (or a list of values). All cells that are not background are
        the target.
    n_components : int or "auto", default=2
        ``"auto"`` keeps those that stand out from noise; it needs more background cells than
        genes.
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
        takes ``adata.var["highly_variable"]`` if there is one, as scanpy does.
    key_added : str, optional
        Write to ``obsm[key_added]``, ``varm[key_added]`` and ``uns[key_added]``.
    copy : bool, default=False
        Return a copy with the result instead of writing into ``adata``.

    Returns
    -------
    AnnData or None
        ``.obsm["X_cpcapp"]`` has the scores (n_obs, n_components), ``.varm["cpcapp"]`` the
        filters (n_vars, n_components), 0 for genes that were not used, and
        ``.uns["cpcapp"]`` a dict with ``params``, ``eigenvalues`` (target over background
        variance), ``variance`` (of the target's scores), ``mean`` and ``atoms`` of the genes
        (n_vars, n_components), and ``n_target`` and ``n_background``.

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
    >>> cells.uns["cpcapp"]["eigenvalues"].round()
    array([12.])
    """
    if method not in _METHODS:
        raise ValueError(f"method={method!r} must be one of {', '.join(map(repr, _METHODS))}")
    adata = adata.copy() if copy else adata
    genes, gene_mask = _genes(adata, mask_var)
    matrix = _matrix(adata, layer, use_raw, adata.var_names[genes], "adata")
    target, other, is_background = _moments(adata, matrix, background, (layer, use_raw), genes)
    estimator: Any = CPCAPlusPlus(n_components, loading=loading)
    if method == "cpca":
        estimator = CPCA(_whole(n_components), alpha=alpha)
    estimator.fit_moments(target, other)
    scores = _scores(estimator, matrix)
    in_target = slice(None) if is_background is None else ~is_background
    params: dict[str, Any] = {"method": method, "use_raw": use_raw}
    params |= {} if layer is None else {"layer": layer}
    params |= {} if gene_mask is None else {"mask_var": gene_mask}
    params |= {"alpha": estimator.alpha_} if method == "cpca" else {"loading": str(loading)}
    found = {
        "params": params,
        "eigenvalues": np.asarray(estimator.eigenvalues_),
        "variance": scores[in_target].var(axis=0),
        "mean": _at_genes(estimator.mean_[:, None], genes)[:, 0],
        "atoms": _at_genes(estimator.atoms_.T, genes),
        "n_target": target.n_samples,
        "n_background": other.n_samples,
    }
    obsm, rest = ("X_cpcapp", "cpcapp") if key_added is None else (key_added, key_added)
    with warnings.catch_warnings():
        # A view becomes a copy of its own, as whoever asks for a result wants it to.
        warnings.filterwarnings("ignore", message=".*view.*")
        adata.obsm[obsm] = scores
        adata.varm[rest] = _at_genes(estimator.components_.T, genes)
        adata.uns[rest] = found
    return adata if copy else None


def _whole(n_components: int | str) -> int:
    if isinstance(n_components, str):
        raise ValueError(f"n_components={n_components!r} is for method='cpca++'; give a number")
    return n_components


def _genes(adata: AnnData, mask_var: Any) -> tuple[_Mask, str | None]:
    """Return which genes are used, (n_vars,), and the column of `var` that says so."""
    column: str | None = None
    if isinstance(mask_var, str):
        column = "highly_variable" if mask_var == "auto" else mask_var
        if column not in adata.var:
            if mask_var != "auto":
                raise ValueError(f"mask_var={mask_var!r} must be a column of adata.var, or a mask")
            column = mask_var = None
        else:
            mask_var = adata.var[column]
    if mask_var is None:
        return np.ones(adata.n_vars, dtype=bool), None
    genes = _as_mask(mask_var, adata.n_vars, "mask_var")
    if not genes.any():
        raise ValueError("mask_var chooses no gene; use mask_var=None for all")
    return genes, column


def _as_mask(values: Any, length: int, name: str) -> _Mask:
    mask = np.asarray(values)
    if mask.shape != (length,) or mask.dtype != bool:
        raise ValueError(
            f"{name} has shape {mask.shape} and dtype {mask.dtype}; it must be ({length},) of bool"
        )
    return mask


class _Rows:
    """Some columns of a matrix, a block of rows at a time; sparse blocks stay sparse."""

    def __init__(self, matrix: Any, columns: NDArray[np.intp]) -> None:
        # Cutting rows from columns is slow; this is as sparse as it was.
        self.matrix = matrix.tocsr() if sp.issparse(matrix) and matrix.format == "csc" else matrix
        everything = np.array_equal(columns, np.arange(matrix.shape[1]))
        self.columns = None if everything else columns

    def blocks(self, rows: _Mask | None = None) -> Iterator[Any]:
        for start in range(0, self.matrix.shape[0], _ROWS):
            block = self.matrix[start : start + _ROWS]
            if rows is not None:
                block = block[rows[start : start + _ROWS]]
            if block.shape[0]:
                block = sp.csr_array(block) if sp.issparse(block) else np.asarray(block)
                yield block if self.columns is None else block[:, self.columns]


def _matrix(adata: AnnData, layer: str | None, use_raw: bool, wanted: Any, name: str) -> _Rows:
    """Return the values of the genes of these names."""
    if layer is not None and use_raw:
        raise ValueError("give either layer or use_raw=True, not both")
    if use_raw:
        if adata.raw is None:
            raise ValueError(f"use_raw=True, but {name}.raw is not there")
        return _Rows(adata.raw.X, _found(adata.raw.var_names, wanted, f"{name}.raw"))
    if layer is not None and layer not in adata.layers:
        there = ", ".join(map(repr, adata.layers)) or "none"
        raise ValueError(f"layer={layer!r} is not in {name}.layers; there are: {there}")
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise ValueError(f"{name}.X is not there; choose a layer")
    return _Rows(matrix, _found(adata.var_names, wanted, name))


def _found(names: Any, wanted: Any, where: str) -> NDArray[np.intp]:
    if not names.is_unique:
        raise ValueError(f"var_names of {where} are not unique; call var_names_make_unique()")
    places = names.get_indexer(wanted)
    absent = [str(name) for name in wanted[places < 0]]
    if absent:
        more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
        raise ValueError(
            f"{where} has no gene {', '.join(map(repr, absent[:5]))}{more}; keep the genes that "
            "both have, or choose with mask_var"
        )
    return np.asarray(places, dtype=np.intp)


def _moments(
    adata: AnnData, matrix: _Rows, background: Any, source: tuple[str | None, bool], genes: _Mask
) -> tuple[Moments, Moments, _Mask | None]:
    """Return the moments of both sets, and which cells of ``adata`` are background."""
    from anndata import AnnData

    if isinstance(background, AnnData):
        layer, use_raw = source
        other = _matrix(background, layer, use_raw, adata.var_names[genes], "background")
        return _sum(matrix.blocks(), "adata"), _sum(other.blocks(), "background"), None
    mask = _background_mask(adata, background)
    for name, count in (("background", int(mask.sum())), ("target", int((~mask).sum()))):
        if count < 2:
            raise ValueError(f"background leaves {count} {name} cells; at least 2 are needed")
    return _sum(matrix.blocks(~mask), "adata"), _sum(matrix.blocks(mask), "adata"), mask


def _background_mask(adata: AnnData, background: Any) -> _Mask:
    if isinstance(background, str):
        if background not in adata.obs:
            raise ValueError(f"background={background!r} must be a boolean column of adata.obs")
        return _as_mask(adata.obs[background], adata.n_obs, f"adata.obs[{background!r}]")
    if isinstance(background, tuple) and len(background) == 2 and isinstance(background[0], str):
        column, value = background
        if column not in adata.obs:
            there = ", ".join(map(repr, adata.obs.columns[:8]))
            raise ValueError(f"adata.obs has no column {column!r}; there are: {there}")
        values = value if isinstance(value, (list, tuple, set, frozenset)) else [value]
        mask = np.asarray(adata.obs[column].isin(list(values)), dtype=bool)
        if not mask.any():
            raise ValueError(f"no cell has {value!r} in adata.obs[{column!r}]")
        return mask
    if background is None:
        raise TypeError("background must be AnnData, a mask, or a column of obs and a value")
    return _as_mask(background, adata.n_obs, "background")


def _sum(blocks: Iterator[Any], name: str) -> Moments:
    try:
        return Moments.of(blocks)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _scores(estimator: Any, matrix: _Rows) -> NDArray[np.float64]:
    return np.concatenate([estimator.transform(block) for block in matrix.blocks()]).astype(float)


def _at_genes(values: NDArray[np.float64], genes: _Mask) -> NDArray[np.float64]:
    """Return rows for all genes, 0 for those that were not used."""
    whole = np.zeros((len(genes), values.shape[1]))
    whole[genes] = values
    return whole
