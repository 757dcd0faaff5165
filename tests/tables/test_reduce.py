"""Contrast of tables from Python: the same as the estimators on arrays."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cpcapp import CPCA, CPCAPlusPlus
from cpcapp.datasets import synthetic
from cpcapp.tables import TableError, open_table, reduce_tables

NAMES = [f"gene {i}" for i in range(30)]


@pytest.fixture
def data():
    return synthetic(noise_variance=100.0, random_state=0)


@pytest.fixture
def paths(data, tmp_path):
    target = pd.DataFrame(data.target, columns=NAMES)
    target["group"] = [f"group {label}" for label in data.labels]
    target.to_parquet(tmp_path / "target.parquet")
    background = pd.DataFrame(data.background, columns=NAMES)[NAMES[::-1]]
    background.to_csv(tmp_path / "background.csv", index=False)
    return tmp_path / "target.parquet", tmp_path / "background.csv"


def test_paths_without_progress(paths, data):
    found = reduce_tables(*paths, labels="group")
    expected = CPCAPlusPlus().fit(data.target, background=data.background)
    np.testing.assert_allclose(found.model.components, expected.components_, atol=1e-10)
    assert found.model.features == NAMES
    assert found.n_significant == 2
    assert found.significance.describe() == "permutation test"
    assert found.significance.permutations.n_rows == (400, 400)
    by_law = reduce_tables(*paths, labels="group", permutation_test=False)
    assert by_law.n_significant == 2
    assert by_law.significance.describe() == "Tracy-Widom test"


def test_open_tables_and_progress(paths, data):
    steps = []

    class Report:
        def __init__(self, title):
            self.title = title

        def __enter__(self):
            return lambda share: steps.append((self.title, share))

        def __exit__(self, *error):
            return None

    target, background = map(open_table, paths)
    reduce_tables(target, background, labels=["group"], method="cpca", alpha=1.0, progress=Report)
    assert ("reading target", 1.0) in steps
    assert ("reading background", 1.0) in steps


def test_one_table_with_both_sets(paths, data):
    split = {"split": "group", "background_values": ["group 0", "group 1"]}
    found = reduce_tables(paths[0], **split)
    inside = np.isin(data.labels, [2, 3])
    expected = CPCAPlusPlus().fit(data.target[inside], background=data.target[~inside])
    np.testing.assert_allclose(found.model.eigenvalues, expected.eigenvalues_)
    found = reduce_tables(paths[0], **split, method="cpca")
    expected = CPCA().fit(data.target[inside], background=data.target[~inside])
    assert found.model.info["alpha"] == expected.alpha_
    np.testing.assert_allclose(found.model.components, expected.components_)
    found = reduce_tables(paths[0], **split, method="cpca", alpha=2.0)
    expected = CPCA(alpha=2.0).fit(data.target[inside], background=data.target[~inside])
    np.testing.assert_allclose(found.model.eigenvalues, expected.eigenvalues_)


def test_numbers_as_values_of_a_split(tmp_path, data):
    table = pd.DataFrame(data.target, columns=NAMES).assign(group=data.labels)
    table.to_csv(tmp_path / "t.csv", index=False)
    found = reduce_tables(tmp_path / "t.csv", split="group", background_values=[0, 1])
    assert found.target.counts.n_used == np.isin(data.labels, [2, 3]).sum()


def test_the_law_needs_a_background_of_full_rank(paths, data, tmp_path):
    few = tmp_path / "few.csv"
    pd.DataFrame(data.background[:20], columns=NAMES).to_csv(few, index=False)
    found = reduce_tables(paths[0], few, labels="group", permutation_test=False)
    assert found.n_significant is None
    assert "permutation_test=True" in found.significance.reason.text()
    found = reduce_tables(paths[0], few, 1, labels="group")
    expected = CPCAPlusPlus("permutation").fit(data.target, background=data.background[:20])
    assert found.n_significant == expected.n_components_
    assert found.significance.test == "permutation test"
    assert found.model.n_components == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "ica"}, "'ica' is not known; method must be one of 'cpca\\+\\+', "),
        ({"standardize": "all"}, "standardize must be one of"),
        ({"missing": "guess"}, "missing must be one of"),
        ({"n_components": 0}, "n_components must be a whole number above 0, or 'auto'"),
        ({"n_components": 31}, "n_components must be at most 30"),
        ({"alpha": 2.0}, "alpha is for the method 'cpca' only"),
        ({"alpha": np.nan, "method": "cpca"}, "alpha must be 'auto' or at least 0"),
        ({"mask_var": "x"}, "mask_var is for .h5ad files only"),
        ({"method": "pca", "standardize": "background"}, "PCA has no background"),
        ({"labels": "gruop"}, "no column 'gruop'.*; correct labels"),
        ({"background": None}, "cpca\\+\\+ needs a background; give background, or split"),
        ({"split": "group", "background_values": "x"}, "give either background or split"),
        ({"background": None, "background_values": "x"}, "name the column with split"),
        ({"background": None, "split": "group"}, "give background_values"),
        (
            {"background": None, "split": "group", "target_values": "x", "background_values": "x"},
            "at once",
        ),
    ],
)
def test_mistakes(paths, options, message):
    options = {"background": paths[1], "labels": "group", **options}
    with pytest.raises(TableError, match=message):
        reduce_tables(paths[0], **options)


def test_auto_without_a_significant_component(paths):
    with pytest.raises(TableError, match=r"no component is significant .* give n_components=2"):
        reduce_tables(paths[1], paths[1], "auto")


def test_the_summary_says_that_it_is_a_sample(rng, tmp_path):
    X, B = rng.normal(size=(6000, 3)) * [3, 1, 1], rng.normal(size=(7000, 3))
    np.save(tmp_path / "t.npy", X)
    np.save(tmp_path / "b.npy", B)
    found = reduce_tables(tmp_path / "t.npy", tmp_path / "b.npy", "auto")
    assert found.n_significant == 1
    said = "permutation test of 5,000 + 5,000 rows drawn at random"
    assert found.significance.describe() == said
    assert len(found.model.calibration.powers) == 5000
    new = rng.normal(size=(4000, 3))
    assert (found.model.p_value(new) <= 0.05).mean() == pytest.approx(0.05, abs=0.02)
