"""Contrast for single-cell data, by the conventions of scanpy. Needs the extra ``anndata``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp._genes import Mask, check_mask, select_genes
from cpcapp._rows import refuse_damaged
from cpcapp.contrast import SingularBackgroundError
from cpcapp.detection import count_components
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.moments import Moments

__all__ = ["contrast"]

if TYPE_CHECKING:
    from anndata import AnnData

_METHODS = ("cpca++", "cpca")
# Cells in a block: dense, 2,000 genes of them take 65 MB.
_BLOCK_ROWS = 4096


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
    """Find the directions along which cells vary most, relative to background cells.

    Every cell of ``adata`` gets its components, background cells too. A sparse matrix stays
    sparse. Only a square matrix of the genes used is dense, or one of the cells where these are
    fewer.

    Parameters
    ----------
    adata : AnnData
    background : AnnData, array of bool, str or (str, value)
        Other cells, whose genes are matched by ``var_names``; or the cells of ``adata`` that
        are background: a mask of shape (n_obs,), the name of a boolean column of
        ``adata.obs``, or a column and a value of it (or a list of values). All other cells are
        the target.
    n_components : int or "auto", default=2
        ``"auto"`` keeps the significant ones (Tracy-Widom test); it needs more background
        cells than genes.
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
    _check_n_components(n_components, method)
    adata = adata.copy() if copy else adata
    genes, gene_mask = _select_genes(adata, mask_var)
    matrix = _get_matrix(adata, layer, use_raw, adata.var_names[genes], "adata")
    target, other, is_background = _compute_moments(
        adata, matrix, background, (layer, use_raw), genes
    )
    # The estimator gives no components only if it counts them itself.
    k: Any = (_count(target, other) or "auto") if n_components == "auto" else n_components
    estimator: Any = CPCAPlusPlus(k, loading=loading)
    if method == "cpca":
        estimator = CPCA(k, alpha=alpha)
    estimator.fit_moments(target, other)
    scores = _compute_scores(estimator, matrix)
    in_target = slice(None) if is_background is None else ~is_background
    params: dict[str, Any] = {"method": method, "use_raw": use_raw}
    params |= {} if layer is None else {"layer": layer}
    params |= {} if gene_mask is None else {"mask_var": gene_mask}
    params |= {"alpha": estimator.alpha_} if method == "cpca" else {"loading": str(loading)}
    found = {
        "params": params,
        "eigenvalues": np.asarray(estimator.eigenvalues_),
        "variance": scores[in_target].var(axis=0),
        "mean": _expand_genes(estimator.mean_[:, None], genes)[:, 0],
        "atoms": _expand_genes(estimator.atoms_.T, genes),
        "n_target": target.n_samples,
        "n_background": other.n_samples,
    }
    obsm, rest = ("X_cpcapp", "cpcapp") if key_added is None else (key_added, key_added)
    with warnings.catch_warnings():
        # A view becomes a copy, which is what is wanted here.
        warnings.filterwarnings("ignore", message=".*view.*")
        adata.obsm[obsm] = scores
        adata.varm[rest] = _expand_genes(estimator.components_.T, genes)
        adata.uns[rest] = found
    return adata if copy else None


def _check_n_components(n_components: int | str, method: str) -> None:
    if not isinstance(n_components, str):
        return
    if n_components != "auto":
        raise ValueError(f"n_components={n_components!r} must be a whole number or 'auto'")
    if method != "cpca++":
        raise ValueError("n_components='auto' is for method='cpca++'; give a number")


def _count(target: Moments, background: Moments) -> int:
    """Return the number of significant components; an error names what `contrast` has."""
    n, p = background.n_samples, background.n_features
    assert p is not None
    problem = f"the background has {n} cells and {p} genes are used"
    if n - 1 > p:
        try:
            k = count_components(target, background)
        except SingularBackgroundError as error:
            problem = f"the background covariance has rank {error.rank} of {p} genes"
        else:
            return min(k, target.n_samples - 1)
    raise ValueError(
        "n_components='auto' needs more background cells than genes, and a background covariance "
        f"of full rank, but {problem}; give a number, or choose fewer genes with mask_var"
    )


def _select_genes(adata: AnnData, mask_var: Any) -> tuple[Mask, str | None]:
    try:
        return select_genes(adata.var, mask_var)
    except ValueError as error:
        raise ValueError(
            f"{error}; mask_var must be a column of adata.var, a mask, or None for all genes"
        ) from error


class _Rows:
    """Some columns of a matrix, in blocks of rows; sparse blocks stay sparse."""

    def __init__(self, matrix: Any, columns: NDArray[np.intp], name: str) -> None:
        self.name = name
        refuse_damaged(matrix, name)
        # Rows of a CSC matrix are slow to select.
        self.matrix = matrix.tocsr() if sp.issparse(matrix) and matrix.format == "csc" else matrix
        everything = np.array_equal(columns, np.arange(matrix.shape[1]))
        self.columns = None if everything else columns

    def blocks(self, rows: Mask | None = None) -> Iterator[Any]:
        for start in range(0, self.matrix.shape[0], _BLOCK_ROWS):
            block = self.matrix[start : start + _BLOCK_ROWS]
            if not sp.issparse(self.matrix):
                refuse_damaged(block, self.name)  # it comes from a file just now
            if rows is not None:
                block = block[rows[start : start + _BLOCK_ROWS]]
            if block.shape[0]:
                block = sp.csr_array(block) if sp.issparse(block) else np.asarray(block)
                yield block if self.columns is None else block[:, self.columns]


def _get_matrix(adata: AnnData, layer: str | None, use_raw: bool, wanted: Any, name: str) -> _Rows:
    """Return the values of the genes of these names."""
    if layer is not None and use_raw:
        raise ValueError("give either layer or use_raw=True, not both")
    if use_raw:
        if adata.raw is None:
            raise ValueError(f"use_raw=True, but there is no {name}.raw")
        genes = _find_genes(adata.raw.var_names, wanted, f"{name}.raw")
        return _Rows(adata.raw.X, genes, f"{name}.raw.X")
    if layer is not None and layer not in adata.layers:
        there = ", ".join(map(repr, adata.layers)) or "none"
        raise ValueError(f"layer={layer!r} is not in {name}.layers; there are: {there}")
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise ValueError(f"there is no {name}.X; choose a layer")
    where = f"{name}.X" if layer is None else f"{name}.layers[{layer!r}]"
    return _Rows(matrix, _find_genes(adata.var_names, wanted, name), where)


def _find_genes(names: Any, wanted: Any, where: str) -> NDArray[np.intp]:
    if not names.is_unique:
        raise ValueError(f"var_names of {where} are not unique; call var_names_make_unique()")
    indices = names.get_indexer(wanted)
    absent = [str(name) for name in wanted[indices < 0]]
    if absent:
        more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
        raise ValueError(
            f"{where} has no gene {', '.join(map(repr, absent[:5]))}{more}; keep the genes that "
            "both have, or choose with mask_var"
        )
    return np.asarray(indices, dtype=np.intp)


def _compute_moments(
    adata: AnnData, matrix: _Rows, background: Any, source: tuple[str | None, bool], genes: Mask
) -> tuple[Moments, Moments, Mask | None]:
    """Return the moments of both sets, and which cells of ``adata`` are background."""
    from anndata import AnnData

    if isinstance(background, AnnData):
        layer, use_raw = source
        other = _get_matrix(background, layer, use_raw, adata.var_names[genes], "background")
        return _collect(matrix.blocks(), "adata"), _collect(other.blocks(), "background"), None
    mask = _find_background(adata, background)
    for name, count in (("background", int(mask.sum())), ("target", int((~mask).sum()))):
        if count < 2:
            raise ValueError(f"background leaves {count} {name} cells; at least 2 are needed")
    return _collect(matrix.blocks(~mask), "adata"), _collect(matrix.blocks(mask), "adata"), mask


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
    return check_mask(background, adata.n_obs, "background")


def _collect(blocks: Iterator[Any], name: str) -> Moments:
    try:
        return Moments.of(blocks)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _compute_scores(estimator: Any, matrix: _Rows) -> NDArray[np.float64]:
    return np.concatenate([estimator.transform(block) for block in matrix.blocks()]).astype(float)


def _expand_genes(values: NDArray[np.float64], genes: Mask) -> NDArray[np.float64]:
    """Return rows for all genes, 0 for those that were not used."""
    whole = np.zeros((len(genes), values.shape[1]))
    whole[genes] = values
    return whole
