"""Contrast of cells, by the conventions of scanpy; on real cells where it matters."""

from __future__ import annotations

import warnings
from importlib.metadata import files

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from anndata import AnnData

from cpcapp import CPCA, CPCAPlusPlus, permutation_test
from cpcapp.anndata import contrast
from cpcapp.estimators.cpca_plus_plus import NoComponentsWarning
from cpcapp.tables import TableError, apply_model, reduce_tables, write_results
from helpers import peak_bytes

MYELOID = ["CD14+ Monocyte", "Dendritic"]


@pytest.fixture(scope="module")
def real_cells():
    """700 blood cells of 10x Genomics with 765 genes, as they come with scanpy."""
    (path,) = (f for f in files("scanpy") if f.name == "10x_pbmc68k_reduced.h5ad")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it was written by a very old version
        return anndata.read_h5ad(path.locate())


@pytest.fixture
def pbmc(real_cells):
    return real_cells.copy()


@pytest.fixture
def cells(rng):
    X = rng.poisson(1.0, size=(300, 8)).astype(float)
    X[200:, 5] *= 4
    found = AnnData(sp.csr_matrix(X))
    found.var_names = [f"g{i}" for i in range(8)]
    found.obs["sample"] = pd.Categorical(["healthy"] * 200 + ["ill"] * 60 + ["worse"] * 40)
    found.obs["control"] = np.arange(300) < 200
    return found


def test_real_cells_are_contrasted_as_matrices_are(pbmc):
    back = pbmc.obs["bulk_labels"].isin(MYELOID).to_numpy()
    assert contrast(pbmc, ("bulk_labels", MYELOID), 3, min_cells=0) is None
    X = pbmc.X[:, pbmc.var["highly_variable"]].astype(np.float64)
    expected = CPCAPlusPlus(3).fit(X[~back], background=X[back])
    np.testing.assert_allclose(pbmc.obsm["X_cpcapp"], expected.transform(X), atol=0.05)
    np.testing.assert_allclose(pbmc.uns["cpcapp"]["eigenvalues"], expected.eigenvalues_, rtol=1e-4)
    assert pbmc.uns["cpcapp"]["n_target"] == (~back).sum()
    assert pbmc.uns["cpcapp"]["params"]["mask_var"] == "highly_variable"


@pytest.fixture
def lymphocytes(pbmc):
    """95 B cells and 192 T cells; X is scaled, raw.X are sparse logarithms of counts."""
    kinds = pbmc.obs["bulk_labels"].astype(str)
    found = pbmc[kinds.str.startswith(("CD4+", "CD8+", "CD19+"))].copy()
    found.obs["T"] = ~found.obs["bulk_labels"].astype(str).str.startswith("CD19+")
    return found


def take_raw(cells):
    raw = cells.raw.to_adata()
    raw.obs["T"] = cells.obs["T"]
    return raw


@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "counts"])
def test_real_genes_that_hardly_a_background_cell_expresses_are_left_out(lymphocytes, scaled):
    raw = take_raw(lymphocytes)
    expressing = np.asarray((raw[raw.obs["T"]].X > 0).sum(axis=0)).ravel()
    cells = lymphocytes if scaled else raw
    with pytest.warns(
        UserWarning, match=r"78 of 765 genes are left out, because fewer than 5 of the 192 backg"
    ) as said:
        contrast(cells, "T", 2, mask_var=None)
    assert said[0].filename == __file__
    used = cells.varm["cpcapp"].any(axis=1)
    np.testing.assert_array_equal(used, expressing >= 5)
    assert cells.uns["cpcapp"]["n_genes_left_out"] == 78
    assert cells.uns["cpcapp"]["params"]["min_cells"] == 5
    kept = contrast(cells, "T", 2, mask_var=None, min_cells=0, copy=True)
    assert kept.uns["cpcapp"]["n_genes_left_out"] == 0
    # Of the two kinds of genes, those left out are the ones with the extreme contrasts.
    assert kept.uns["cpcapp"]["eigenvalues"][1] > 1.05 * cells.uns["cpcapp"]["eigenvalues"][1]
    chosen = contrast(cells, "T", 2, mask_var=expressing >= 5, copy=True)
    np.testing.assert_allclose(chosen.obsm["X_cpcapp"], cells.obsm["X_cpcapp"])


def test_few_background_cells_leave_out_only_what_they_do_not_express(cells):
    X = cells.X.toarray()
    X[:12, 2] = np.arange(12) == 0
    cells.X = sp.csr_matrix(X)
    with pytest.warns(UserWarning, match=r"1 of 8 genes are left out.* fewer than 2 .*\(g2\)"):
        contrast(cells, np.arange(300) < 12)
    assert (cells.varm["cpcapp"][2] == 0.0).all()
    contrast(cells, np.arange(300) < 10)  # one of ten is enough
    assert (cells.varm["cpcapp"][2] != 0.0).all()
    contrast(cells, np.arange(300) < 12, method="cpca")
    assert "min_cells" not in cells.uns["cpcapp"]["params"]


def test_sparse_values_below_zero_are_counted_as_dense_ones(rng):
    X = sp.random_array((50, 20), density=0.3, rng=rng, format="csr")
    X.data -= 0.5
    X.data[X.indices == 0] = 0.0
    X, mask = sp.csr_matrix(X), np.arange(50) >= 20
    above = (X.toarray()[20:] > X.toarray().min(axis=0)).sum(axis=0)
    assert (above < 12).any()
    for cells in (AnnData(X), AnnData(X.toarray())):
        with pytest.warns(UserWarning, match="fewer than 12 of the 30 background cells"):
            contrast(cells, mask, 1, min_cells=12)
        np.testing.assert_array_equal(cells.varm["cpcapp"][:, 0] != 0.0, above >= 12)


def test_real_raw_counts_stay_sparse_and_tell_cell_types_apart(lymphocytes):
    """B cells against T cells: their own genes come out on top."""
    raw = take_raw(lymphocytes)
    with pytest.warns(UserWarning, match="genes are left out"):
        contrast(raw, "T", 1)
    assert sp.issparse(raw.X)
    cells = raw[~raw.obs["T"]].X.toarray()
    weights = raw.varm["cpcapp"][:, 0] * cells.std(axis=0)
    top = raw.var_names[np.argsort(-np.abs(weights))]
    assert set(top[:3]) == {"MZB1", "IGJ", "MS4A1"}


@pytest.mark.parametrize(
    "background",
    [("sample", "healthy"), ("sample", ["healthy"]), "control", np.arange(300) < 200],
    ids=["value", "values", "column", "mask"],
)
def test_ways_to_name_the_background(cells, background):
    X = cells.X.toarray()
    expected = CPCAPlusPlus().fit(X[200:], background=X[:200])
    contrast(cells, background)
    np.testing.assert_allclose(cells.obsm["X_cpcapp"], expected.transform(X), atol=1e-8)
    np.testing.assert_allclose(cells.varm["cpcapp"], expected.components_.T, atol=1e-8)
    np.testing.assert_allclose(cells.uns["cpcapp"]["atoms"], expected.atoms_.T, atol=1e-8)
    variance = expected.transform(X[200:]).var(axis=0)
    np.testing.assert_allclose(cells.uns["cpcapp"]["variance"], variance, atol=1e-8)


def test_other_cells_as_background_have_their_genes_matched_by_name(cells):
    X = cells.X.toarray()
    ill, healthy = cells[200:].copy(), cells[:200, ::-1].copy()
    extra = AnnData(np.ones((200, 1)), obs=healthy.obs)
    extra.var_names = ["more"]
    healthy = anndata.concat([extra, healthy], axis="var")
    contrast(ill, healthy)
    expected = CPCAPlusPlus().fit(X[200:], background=X[:200])
    np.testing.assert_allclose(ill.obsm["X_cpcapp"], expected.transform(X[200:]), atol=1e-8)
    with pytest.raises(ValueError, match="background has no gene g0, g1; keep the genes"):
        contrast(ill, healthy[:, 1:-2].copy())


def test_chosen_genes_and_keys(cells):
    cells.var["highly_variable"] = [True, False] * 3 + [True, True]
    result = contrast(cells, "control", 1, key_added="mine", copy=True)
    assert "X_cpcapp" not in cells.obsm
    used = cells.var["highly_variable"].to_numpy()
    assert (result.varm["mine"][~used] == 0).all()
    assert (result.varm["mine"][used] != 0).all()
    X = cells.X.toarray()[:, used]
    expected = CPCAPlusPlus(1).fit(X[200:], background=X[:200])
    np.testing.assert_allclose(result.obsm["mine"], expected.transform(X), atol=1e-8)
    contrast(cells, "control", 1, mask_var=None)
    assert (cells.varm["cpcapp"] != 0).all()


def test_layers_raw_and_the_other_method(cells):
    cells.layers["twice"] = sp.csc_matrix(2 * cells.X)
    cells.raw = cells.copy()
    X = cells.X.toarray()
    contrast(cells, "control", layer="twice", method="cpca", alpha=1.0)
    expected = CPCA(alpha=1.0).fit(2 * X[200:], background=2 * X[:200])
    np.testing.assert_allclose(cells.obsm["X_cpcapp"], expected.transform(2 * X), atol=1e-8)
    few = cells[:, [5, 2]].copy()
    contrast(few, "control", 1, use_raw=True)
    expected = CPCAPlusPlus(1).fit(X[200:, [5, 2]], background=X[:200, [5, 2]])
    np.testing.assert_allclose(few.obsm["X_cpcapp"], expected.transform(X[:, [5, 2]]), atol=1e-8)


def test_auto_counts(cells):
    contrast(cells, "control", "auto")
    assert cells.obsm["X_cpcapp"].shape == (300, 1)
    p_values = cells.uns["cpcapp"]["p_values"]
    assert p_values[0] == 0.01
    X, control = cells.X.toarray(), cells.obs["control"].to_numpy()
    np.testing.assert_allclose(p_values, permutation_test(X[~control], X[control]).p_values)


def test_a_mask_given_as_a_series_goes_by_the_names_of_its_cells(cells, rng):
    mask = cells.obs["control"]
    expected = contrast(cells, mask.to_numpy(), 1, copy=True).uns["cpcapp"]["eigenvalues"]
    shuffled = mask.iloc[rng.permutation(len(mask))]
    found = contrast(cells, shuffled, 1, copy=True).uns["cpcapp"]["eigenvalues"]
    np.testing.assert_allclose(found, expected)
    with pytest.raises(ValueError, match="does not name each cell of adata once"):
        contrast(cells, mask.reset_index(drop=True), 1)


def test_auto_that_finds_nothing(cells, rng):
    cells.X = sp.csr_matrix(rng.normal(size=(300, 8)))
    with pytest.warns(NoComponentsWarning, match="found no component: nothing in the target"):
        contrast(cells, "control", "auto")
    assert cells.obsm["X_cpcapp"].shape == (300, 0)
    assert cells.varm["cpcapp"].shape == cells.uns["cpcapp"]["atoms"].shape == (8, 0)
    assert len(cells.uns["cpcapp"]["eigenvalues"]) == 0


@pytest.mark.parametrize("mask_var", ["auto", None, "chosen"])
def test_the_same_genes_as_reduce_of_a_file(pbmc, tmp_path, mask_var):
    """On real cells: one rule for both, that of scanpy."""
    pbmc.var["chosen"] = np.arange(pbmc.n_vars) % 3 == 0
    assert 0 < pbmc.var["highly_variable"].sum() < pbmc.n_vars
    plain = AnnData(pbmc.X, obs=pbmc.obs[["bulk_labels"]], var=pbmc.var)
    plain.write_h5ad(tmp_path / "cells.h5ad")
    contrast(plain, ("bulk_labels", MYELOID), mask_var=mask_var, min_cells=0)
    found = reduce_tables(
        tmp_path / "cells.h5ad",
        split="bulk_labels",
        background_values=MYELOID,
        mask_var=mask_var,
        permutation_test=False,
    )
    used = plain.varm["cpcapp"].any(axis=1)
    assert found.model.features == list(plain.var_names[used])
    expected = plain.var[{"auto": "highly_variable"}.get(mask_var, mask_var)] if mask_var else True
    assert (used == expected).all()
    eigenvalues = plain.uns["cpcapp"]["eigenvalues"]
    said = write_results(found, tmp_path / "out").summary.lines()[2]
    assert ("(genes in var[" in said) == (mask_var is not None)
    np.testing.assert_allclose(found.model.eigenvalues, eigenvalues, rtol=1e-4)


def test_a_mask_that_a_file_lacks(cells, tmp_path):
    cells.write_h5ad(tmp_path / "t.h5ad")
    with pytest.raises(TableError, match=r"var has no column 'x'.*choose the genes with mask_var"):
        reduce_tables(tmp_path / "t.h5ad", split="sample", background_values="ill", mask_var="x")
    cells.var["highly_variable"] = False
    cells.write_h5ad(tmp_path / "t.h5ad")
    with pytest.raises(TableError, match=r"var\['highly_variable'\] selects no gene"):
        reduce_tables(tmp_path / "t.h5ad", split="sample", background_values="ill")


def test_genes_of_the_target_are_found_in_other_files_by_name(cells, tmp_path):
    cells.var["highly_variable"] = np.arange(8) < 5
    cells[200:].write_h5ad(tmp_path / "ill.h5ad")
    cells.var["highly_variable"] = False  # means nothing in these
    cells[:200, ::-1].copy().write_h5ad(tmp_path / "healthy.h5ad")
    found = reduce_tables(tmp_path / "ill.h5ad", tmp_path / "healthy.h5ad")
    assert found.model.features == [f"g{i}" for i in range(5)]
    apply_model(found.model, tmp_path / "healthy.h5ad", tmp_path / "new.csv")
    assert len(pd.read_csv(tmp_path / "new.csv")) == 200


@pytest.mark.parametrize("backed", [None, "r"])
def test_a_file_holds_the_result(cells, tmp_path, backed):
    contrast(cells, "control")
    cells.write_h5ad(tmp_path / "t.h5ad")
    found = anndata.read_h5ad(tmp_path / "t.h5ad", backed=backed)
    np.testing.assert_array_equal(found.obsm["X_cpcapp"], cells.obsm["X_cpcapp"])
    assert found.uns["cpcapp"]["params"]["method"] == "cpca++"
    contrast(found, "control")  # also with X on disk
    np.testing.assert_allclose(found.obsm["X_cpcapp"], cells.obsm["X_cpcapp"])
    view = found[100:] if backed is None else found[100:].to_memory()[:]
    contrast(view, "control")
    assert view.obsm["X_cpcapp"].shape == (200, 2)
    assert len(found.obsm["X_cpcapp"]) == 300


def test_sparse_cells_never_become_dense(rng):
    n, p = 40_000, 400
    X = sp.random_array((n, p), density=0.01, rng=rng, format="csr")
    large = AnnData(sp.csr_matrix(X))
    mask = np.arange(n) < n // 2
    dense = 8 * n * p
    assert peak_bytes(lambda: contrast(large, mask, 2)) < dense / 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"background": ("smaple", "x")}, "adata.obs has no column 'smaple'"),
        (
            {"background": ("sample", "x")},
            r"no cell has 'x' in .*; it has 3 values: 'healthy' \(200 cells\), ",
        ),
        ({"background": "sample"}, "it must be .300,. of bool"),
        ({"background": "none"}, "must be a boolean column"),
        ({"background": np.ones(300, bool)}, "leaves 0 target cells"),
        ({"background": np.ones(5, bool)}, "background has shape"),
        ({"background": None}, "must be AnnData"),
        ({"layer": "x"}, "layer='x' is not in adata.layers"),
        ({"use_raw": True}, "there is no adata.raw"),
        ({"mask_var": "x"}, "var has no column 'x'; .*must be a column of adata.var"),
        ({"mask_var": np.zeros(8, bool)}, "selects no gene"),
        ({"method": "pca"}, "method='pca' must be one of"),
        ({"method": "cpca", "n_components": "auto"}, "give a number"),
        ({"n_components": 9}, "n_components=9"),
        ({"n_components": "permutation"}, "'permutation' must be a whole number or 'auto'"),
        ({"min_cells": -1}, "min_cells=-1 must be 'auto' or a whole number"),
        ({"min_cells": 2.5}, "min_cells=2.5 must be 'auto' or a whole number"),
        ({"min_cells": 201}, "min_cells=201 leaves no gene: .* of the 200 background cells"),
    ],
)
def test_mistakes(cells, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        contrast(cells, **{"background": "control", **arguments})


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_damaged_matrices_are_an_error(cells, form):
    cells.X = sp.csr_matrix(cells.X).asformat(form)
    cells.X.data[0] = np.nan
    with pytest.raises(ValueError, match=r"adata\.X: .*NaN or infinity"):
        contrast(cells, "control")
    cells.X.indices[3] = 100_000
    with pytest.raises(ValueError, match=r"adata\.X is a damaged sparse matrix: its indices hold"):
        contrast(cells, "control")
