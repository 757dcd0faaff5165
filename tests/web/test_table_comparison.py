"""Three methods side by side: against scikit-learn, the estimators and the commands."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

from cpcapp import CPCA, CPCAPlusPlus
from cpcapp.datasets import synthetic
from cpcapp.tables import TableError, reduce_tables
from cpcapp.web.table_comparison import compare_methods
from cpcapp.web.table_description import describe_tables

NAMES = [f"f{i}" for i in range(6)]


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(3)
    mixing = rng.normal(size=(6, 6))
    X = rng.normal(size=(120, 6)) @ mixing + 3.0
    X[:, 2] += np.repeat([-4.0, 4.0], 60)
    B = rng.normal(size=(90, 6)) @ mixing
    return pd.DataFrame(X, columns=NAMES), pd.DataFrame(B, columns=NAMES)


@pytest.fixture(scope="module")
def tables(frames, tmp_path_factory):
    """A target with names and labels, one bad row and two with missing values; a background."""
    folder = tmp_path_factory.mktemp("tables")
    X, B = (frame.copy() for frame in frames)
    X.insert(0, "mouse", [f"m{i}" for i in range(120)])
    X["kind"] = np.repeat(["sick", "well"], 60)
    X["age"] = np.arange(120) / 2.0
    text = X.astype(object)
    text.loc[7, "f1"], text.loc[11, "f3"], text.loc[12, "f4"] = "n.d.", "", "NA"
    text.to_csv(folder / "x.csv", index=False)
    B.assign(more=1.0).to_parquet(folder / "b.parquet")
    kept = X.drop(index=[7, 11, 12])
    return folder / "x.csv", folder / "b.parquet", kept


@pytest.fixture(scope="module")
def found(tables, tmp_path_factory):
    x, b, _ = tables
    folder = tmp_path_factory.mktemp("out")
    result = compare_methods(x, b, columns=NAMES, label="kind", folder=folder)
    return json.loads(json.dumps(result, allow_nan=False)), folder


def read(folder, result, role, method, shape=(-1, 2)):
    return np.fromfile(folder / result["points"][role][method], "<f4").reshape(shape)


def test_pca_is_that_of_scikit_learn(found, tables):
    result, folder = found
    X = tables[2][NAMES].to_numpy()
    pca = PCA(2).fit(X)
    np.testing.assert_allclose(
        read(folder, result, "target", "pca"), pca.transform(X), rtol=1e-5, atol=1e-5
    )
    shares = result["methods"]["pca"]["variance_shares"]
    np.testing.assert_allclose(shares, pca.explained_variance_ratio_, rtol=1e-5)


def test_cpca_plus_plus_is_the_estimator(found, tables, frames):
    result, folder = found
    X, B = tables[2][NAMES], frames[1]
    est = CPCAPlusPlus(2).fit(X, background=B)
    for role, rows in (("target", X), ("background", B)):
        scores = read(folder, result, role, "cpca++")
        np.testing.assert_allclose(scores, est.transform(rows), rtol=1e-5, atol=1e-5)
    method = result["methods"]["cpca++"]
    np.testing.assert_allclose(method["contrasts"], est.contrast_, rtol=1e-5)
    for part in result["held_out"]:
        assert part["interval"][0] < part["contrast"] < part["interval"][1]
    for ours, theirs in zip(method["top_features"], est.top_features(10), strict=True):
        assert [entry["feature"] for entry in ours] == [name for name, _ in theirs]
        weights = [weight for _, weight in theirs]
        np.testing.assert_allclose([entry["weight"] for entry in ours], weights, rtol=1e-4)


def test_cpca_is_the_estimator_at_its_own_alpha_and_turned_elsewhere(found, tables, frames):
    result, folder = found
    X, B = tables[2][NAMES].to_numpy(), frames[1].to_numpy()
    method = result["methods"]["cpca"]
    est = CPCA(2).fit(X, background=B)
    assert method["alphas"][method["automatic"]] == est.alpha_
    assert [method["alphas"][i] for i in method["offered"]] == [3.0, 12.0, 48.0]
    assert result["n_alphas"] == len(method["alphas"])
    scores = read(folder, result, "target", "cpca", (len(method["alphas"]), -1, 2))
    np.testing.assert_allclose(scores[method["automatic"]], est.transform(X), rtol=1e-5, atol=1e-5)
    for i, alpha in enumerate(method["alphas"]):
        single = CPCA(2, alpha=alpha, standardize=True).fit(X, background=B)
        np.testing.assert_allclose(method["eigenvalues"][i], single.eigenvalues_, rtol=1e-3)
        expected = single.transform(X)
        turn = np.linalg.lstsq(expected, scores[i].astype(float), rcond=None)[0]
        np.testing.assert_allclose(turn @ turn.T, np.eye(2), atol=1e-3)
        np.testing.assert_allclose(scores[i], expected @ turn, atol=1e-2)


def test_points_do_not_jump_between_neighbouring_alphas(tmp_path):
    """Where two eigenvalues cross, the components of cPCA itself change places at once."""
    data = synthetic(noise_variance=30.0, random_state=1)
    for name in ("target", "background"):
        np.save(tmp_path / f"{name}.npy", getattr(data, name))
    paths = tmp_path / "target.npy", tmp_path / "background.npy"
    result = compare_methods(*paths, folder=tmp_path)
    alphas = result["methods"]["cpca"]["alphas"]
    scores = read(tmp_path, result, "target", "cpca", (len(alphas), -1, 2)).astype(float)
    plain = np.stack(
        [
            CPCA(2, alpha=alpha, standardize=True)
            .fit(data.target, background=data.background)
            .transform(data.target)
            for alpha in alphas
        ]
    )

    def steps(points):
        moved = np.linalg.norm(np.diff(points, axis=0), axis=(1, 2))
        return moved / np.linalg.norm(points[:-1], axis=(1, 2))

    assert (steps(scores) <= steps(plain) + 1e-4).all()
    assert steps(scores).sum() < 0.9 * steps(plain).sum()


def test_rows_that_were_left_out_are_counted_with_reasons(found, tables):
    result, folder = found
    target = result["target"]
    assert (target["rows"], target["rows_used"], target["rows_left_out"]) == (120, 117, 3)
    assert len(target["reasons"]) == 2
    assert "1 bad row left out: line 9: column 'f1' is 'n.d.'" in target["reasons"][0]
    assert "2 rows with missing values left out: line 13: column 'f3'" in target["reasons"][1]
    assert (target["drawn"], target["sampled"]) == (117, False)
    assert not [note for note in result["notes"] if "left out" in note]  # said once is enough
    rows = json.loads((folder / result["rows"]["target"]).read_text())
    assert rows["unit"] == "line"
    assert rows["positions"][:8] == [2, 3, 4, 5, 6, 7, 8, 10]
    assert rows["ids"]["mouse"] == list(tables[2]["mouse"])


def test_classes_as_labels(found, tables):
    result, folder = found
    label = result["label"]
    assert (label["name"], label["kind"], label["missing"]) == ("kind", "class", 0)
    assert label["classes"] == [{"name": "sick", "count": 57}, {"name": "well", "count": 60}]
    codes = np.fromfile(folder / result["points"]["target"]["label"], "<f4")
    np.testing.assert_array_equal(codes, np.repeat([0, 1], [57, 60]))


def test_numbers_as_labels_and_filled_values(tables, tmp_path):
    x, b, _ = tables
    options = {"label": "age", "missing": "mean", "standardize": "each"}
    result = compare_methods(x, b, columns=NAMES, folder=tmp_path, **options)
    label = result["label"]
    assert (label["kind"], label["low"], label["high"]) == ("number", 0.0, 59.5)
    codes = np.fromfile(tmp_path / result["points"]["target"]["label"], "<f4")
    assert codes[:8].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0]
    assert "2 missing values filled in" in result["target"]["reasons"][1]
    # As the command does it.
    reduced = reduce_tables(
        x, b, 2, columns=NAMES, missing="mean", standardize="each", skip_bad_rows=True
    )
    for role, one in (("target", reduced.target), ("background", reduced.background)):
        expected = np.concatenate([scores for _, scores in reduced.scores(one, [])])
        np.testing.assert_allclose(
            read(tmp_path, result, role, "cpca++"), expected, rtol=1e-4, atol=1e-4
        )
    assert result["n_significant"] == reduced.n_significant


def test_downloads_have_all_rows_and_features(found, tables):
    result, folder = found
    scores = pd.read_csv(folder / "scores.csv")
    assert len(scores) == 117 + 90
    alpha = result["methods"]["cpca"]["alphas"][result["methods"]["cpca"]["automatic"]]
    assert list(scores.columns) == [
        *("mouse", "kind", "set", "pca_1", "pca_2"),
        *(f"cpca_alpha_{alpha:.4g}_1", f"cpca_alpha_{alpha:.4g}_2", "cpca++_1", "cpca++_2"),
    ]
    own = scores[scores["set"] == "target"]
    assert list(own["kind"]) == list(tables[2]["kind"])
    drawn = read(folder, result, "target", "cpca++")
    np.testing.assert_allclose(own[["cpca++_1", "cpca++_2"]], drawn, rtol=1e-5, atol=1e-6)
    features = pd.read_csv(folder / "features.csv")
    assert len(features) == (len(result["methods"]["cpca"]["alphas"]) + 2) * 2 * 6
    plus = features[(features["method"] == "cpca++") & (features["component"] == 1)]
    best = plus.iloc[plus["weight"].abs().argmax()]
    top = result["methods"]["cpca++"]["top_features"][0][0]
    assert (best["feature"], best["weight"]) == (top["feature"], pytest.approx(top["weight"]))


def test_values_of_top_features_come_with_the_points(found, tables):
    result, folder = found
    names = result["values"]
    assert result["methods"]["cpca++"]["top_features"][0][0]["feature"] == names[0]
    values = read(folder, result, "target", "values", (-1, len(names)))
    np.testing.assert_allclose(values, tables[2][names], rtol=1e-6)


def test_many_rows_are_sampled_for_drawing_only(tables, found, tmp_path, monkeypatch):
    x, b, _ = tables
    monkeypatch.setattr("cpcapp.web.table_comparison._MAX_POINTS", 20)
    few = compare_methods(x, b, columns=NAMES, folder=tmp_path)
    assert (few["target"]["drawn"], few["target"]["sampled"]) == (20, True)
    assert few["target"]["rows_used"] == 117
    scores = read(tmp_path, few, "target", "cpca++")
    assert len(scores) == 20
    whole, folder = found
    # The components are those of all rows, and rows keep their order.
    rows = json.loads((tmp_path / "target-rows.json").read_text())["positions"]
    everybody = json.loads((folder / "target-rows.json").read_text())["positions"]
    same = read(folder, whole, "target", "cpca++")[np.searchsorted(everybody, rows)]
    np.testing.assert_allclose(scores, same, rtol=1e-5, atol=1e-6)
    assert len(pd.read_csv(tmp_path / "scores.csv")) == 117 + 90
    again = compare_methods(x, b, columns=NAMES, folder=tmp_path / "again")
    np.testing.assert_array_equal(read(tmp_path / "again", again, "target", "cpca++"), scores)


def test_without_columns_all_shared_numbers_are_features(tables, tmp_path):
    x, b, _ = tables
    result = compare_methods(x, b, folder=tmp_path)
    assert result["n_features"] == 6
    assert {"name": "age", "reason": "not in the background"} in result["left_out"]
    assert {"name": "kind", "reason": "text"} in result["left_out"]
    assert result["label"] is None


def test_doubtful_features_and_what_was_recognised_are_noted(tmp_path, rng):
    X = pd.DataFrame(rng.normal(size=(30, 3)), columns=["a", "b", "größe"])
    paths = tmp_path / "x.csv", tmp_path / "b.csv"
    X.to_csv(paths[0], index=False, encoding="latin-1")
    X.assign(b=2.0).to_csv(paths[1], index=False)
    notes = compare_methods(*paths, folder=tmp_path)["notes"]
    assert "'b' is constant in the background" in notes
    assert f"{paths[0]}: Latin-1 (Windows-1252), not UTF-8" in notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["f0"]}, "at least 2 features"),
        ({"columns": ["f0", "kind"]}, "'kind' is not numeric"),
        ({"columns": ["f0", "nothing"]}, "has no column 'nothing'"),
        ({"columns": ["f0", "age"]}, "b.parquet has no column 'age'"),
        ({"columns": NAMES, "label": "nothing"}, "has no column 'nothing'"),
        ({"columns": NAMES, "label": "f0"}, "can't be a feature and an id or label"),
        ({"columns": NAMES, "missing": "error"}, "2 missing values in 2 rows"),
    ],
)
def test_requests_that_can_not_be_met(tables, tmp_path, options, message):
    x, b, _ = tables
    with pytest.raises(TableError, match=message) as caught:
        compare_methods(x, b, folder=tmp_path / "out", **options)
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_columns_that_do_not_vary_enough(tmp_path):
    lines = "\n".join(f"{i},{2 * i},5" for i in range(9))
    (tmp_path / "x.csv").write_text(f"a,b,c\n{lines}\n")
    path = tmp_path / "x.csv"
    with pytest.raises(TableError, match="only 1 direction that varies; 2 are needed"):
        compare_methods(path, path, folder=tmp_path)


class TestDescribe:
    def test_columns_with_kinds_and_reasons(self, tables):
        x, b, _ = tables
        described = json.loads(json.dumps(describe_tables(x, b)))
        columns = {column["name"]: column for column in described["columns"]}
        assert list(columns) == ["mouse", *NAMES, "kind", "age"]
        assert (columns["f3"]["kind"], columns["f3"]["missing"]) == ("number", 1)
        assert columns["mouse"]["reason"] == "text"
        assert (columns["kind"]["kind"], columns["kind"]["distinct"]) == ("text", 2)
        assert columns["age"]["reason"] == "not in the background"
        assert [name for name, column in columns.items() if column["selected"]] == NAMES
        assert described["label"] == "kind"
        assert described["only_in_background"] == ["more"]
        assert described["target"]["n_rows"] == 120
        assert described["target"]["problems"] == ["line 9: column 'f1' is 'n.d.', not a number"]
        assert described["background"]["n_rows"] == 90

    def test_labels_that_are_numbers_and_row_numbers_are_not_features(self, tmp_path, rng):
        frame = pd.DataFrame(rng.normal(size=(40, 3)), columns=list("abc"))
        frame.insert(0, "number", np.arange(1, 41))
        frame["cluster"] = np.arange(40) % 3
        frame.to_csv(tmp_path / "x.csv", index=False)
        described = describe_tables(tmp_path / "x.csv", tmp_path / "x.csv")
        selected = [column["name"] for column in described["columns"] if column["selected"]]
        assert (selected, described["label"]) == (["a", "b", "c"], "cluster")

    def test_text_in_the_background_and_empty_columns(self, tmp_path):
        (tmp_path / "x.csv").write_text("a,b,c\n1,2,\n3,4,\n")
        (tmp_path / "b.csv").write_text("a,b,c\n1,x,1\n2,y,2\n")
        described = describe_tables(tmp_path / "x.csv", tmp_path / "b.csv")
        reasons = [column["reason"] for column in described["columns"]]
        assert reasons == ["", "text in the background", "no values"]
        assert described["columns"][2]["missing"] == 2

    def test_ids_are_not_counted_without_end(self, tmp_path):
        lines = "\n".join(f"id{i},{i / 7}" for i in range(3000))
        (tmp_path / "x.csv").write_text(f"who,a\n{lines}\n")
        described = describe_tables(tmp_path / "x.csv", tmp_path / "x.csv")
        assert [column["distinct"] for column in described["columns"]] == [1000, 1000]
        assert described["label"] is None


def test_columns_of_very_different_scale_are_noted(tmp_path):
    rng = np.random.default_rng(0)
    paths = tmp_path / "x.csv", tmp_path / "b.csv"
    for path in paths:
        values = rng.normal(size=(60, 3)) * [1.0, 4e5, 0.0] + [0.0, 0.0, 7.0]
        pd.DataFrame(values, columns=["age", "income", "year"]).to_csv(path, index=False)
    raw, scaled = (
        compare_methods(*paths, standardize=rule, folder=tmp_path / rule)["notes"]
        for rule in ("none", "each")
    )
    note = r"the columns differ in scale up to [345]00,000 times: PCA follows the largest"
    assert [text for text in raw if re.match(note, text)]
    assert not [text for text in scaled if "scale" in text]
