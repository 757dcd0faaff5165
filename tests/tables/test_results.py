"""Results written from Python: the files, and the summary in words and in JSON."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from cpcapp.tables import TableError, load_model, reduce_tables, write_results


@pytest.fixture
def found(rng, tmp_path):
    for name, scale in (("target", 3.0), ("background", 1.0)):
        table = pd.DataFrame(rng.normal(size=(100, 4)) * [1, scale, 1, 1], columns=list("abcd"))
        table.insert(0, "who", [f"{name} {i}" for i in range(100)])
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    return reduce_tables(tmp_path / "target.csv", tmp_path / "background.csv", ids="who")


@pytest.mark.parametrize(("kind", "ending"), [(None, "PNG"), ("parquet", "svg"), (None, "pdf")])
def test_files_and_summary(found, tmp_path, kind, ending):
    results = write_results(
        found,
        tmp_path / "new" / "folder",
        scores_format=kind,
        plot=tmp_path / "new" / "folder" / f"p.{ending}",
        include_background=True,
    )
    files = results.files
    assert sorted(tmp_path.glob("new/folder/*")) == sorted(files.all)
    read = pd.read_csv if kind is None else pd.read_parquet
    scores = read(files.scores)
    assert scores["set"].tolist() == ["target"] * 100 + ["background"] * 100
    assert scores["who"][150] == "background 50"
    start = {"PNG": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert files.plot.read_bytes().startswith(start)
    assert ending != "PNG" or imread(files.plot)[..., :3].std() > 0.05
    np.testing.assert_array_equal(load_model(files.model).components, found.model.components)
    stored = json.loads(files.summary.read_bytes())
    assert stored == results.summary.to_dict()
    assert stored["components_that_stand_out"] == found.n_significant == 1
    test = stored["permutation_test"]
    assert test["p"] <= 0.05
    assert test["test_statistic"] > test["test_statistic_of_chance"] > 1.0
    first, second = stored["held_out_contrasts"]
    assert 4.0 < first["interval"][0] < first["contrast"] < first["interval"][1] < 30.0
    assert first["contrast"] < stored["contrasts"][0]
    assert second["contrast"] < stored["contrasts"][1]
    assert stored["components_that_stand_out_by"] == "permutation test"
    assert pd.read_csv(files.top_features)["feature"][0] == "b"
    assert "1 component is significant (permutation test)" in str(results.summary)


def test_a_row_that_carries_a_component_is_named_by_its_line(rng, tmp_path):
    for name in ("target", "background"):
        table = pd.DataFrame(rng.normal(size=(100, 4)), columns=list("abcd"))
        if name == "target":
            table.loc[6, "c"] = np.nan
            table.loc[41, "c"] = 1e3
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    found = reduce_tables(tmp_path / "target.csv", tmp_path / "background.csv", 1, missing="drop")
    results = write_results(found, tmp_path / "out")
    (note,) = json.loads(results.files.summary.read_bytes())["notes"]
    assert "row 43 (feature 'c' = 1000)" in note
    assert note in str(results.summary)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores_format": "xlsx"}, "scores_format must be one of 'csv', 'parquet'"),
        ({"plot": "p.bmp"}, r"plot must end in \.png"),
        ({"plot": "none/p.png"}, "there is no folder none"),
    ],
)
def test_mistakes(found, tmp_path, options, message):
    with pytest.raises(TableError, match=message):
        write_results(found, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_pca_has_no_background_to_write(found, tmp_path):
    pca = reduce_tables(tmp_path / "target.csv", method="pca", ids="who")
    with pytest.raises(TableError, match="leave out include_background"):
        write_results(pca, tmp_path / "out", include_background=True)
    assert "not tested" not in str(write_results(pca, tmp_path / "out").summary)
