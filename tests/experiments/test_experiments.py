"""Each experiment, on small or real data."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from cpcapp.datasets import mice_protein, mnist_over_grass
from cpcapp.experiments import (
    NAMES,
    Missing,
    Result,
    Settings,
    denoising,
    gcpca_example,
    run_experiment,
    run_experiments,
    timing,
)
from cpcapp.experiments.measures import cluster_agreement
from cpcapp.experiments.timing import SPEED_UP_OVER_CPCA, SPEED_UP_OVER_TSNE, TABLES

QUICK = Settings(quick=True)


@pytest.fixture(scope="module")
def mice(data_folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPCAPP_DATA", str(data_folder))
        return run_experiment("mice_protein", QUICK)


def check(result):
    """What holds for every result."""
    assert isinstance(result, Result), result
    assert all((result.shows, result.look_at, result.data, result.findings))
    names = [picture.name for picture in result.pictures]
    assert len(set(names)) == len(names)
    for picture in result.pictures:
        assert picture.alt and picture.caption
        with Image.open(io.BytesIO(picture.png)) as image:
            assert image.width > 150
            assert np.asarray(image.convert("L")).std() > 5  # something is drawn
    for table in result.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    json.dumps([result.numbers, result.timings], allow_nan=False)


class TestComparisons:
    def test_mice(self, mice):
        check(mice)
        found = mice.numbers
        assert (found["n_target"], found["n_background"], found["n_features"]) == (270, 135, 77)
        assert found["n_individuals"] == 18
        assert found["cPCA++"]["ari"] >= 0.78
        assert found["PCA"]["ari"] < 0.2

    def test_the_sweep_is_cpca_by_numpy(self, mice, data_folder):
        data = mice_protein(data_home=data_folder)
        r_f, r_b = (np.cov(side.T, ddof=0) for side in (data.target, data.background))
        sweep = mice.numbers["cPCA sweep"]
        assert len(sweep) == 11
        for entry in (sweep[0], sweep[4], sweep[7]):
            values, vectors = np.linalg.eigh(r_f - entry["alpha"] * r_b)
            np.testing.assert_allclose(entry["eigenvalues"], values[[-1, -2]], rtol=1e-6)
            scores = data.target @ vectors[:, [-1, -2]]
            assert entry["ari"] == pytest.approx(cluster_agreement(scores, data.labels))
        assert sweep[0]["ari"] == pytest.approx(mice.numbers["PCA"]["ari"])  # α = 0

    def test_what_labels_would_pick_is_marked_and_is_the_best(self, mice):
        best = mice.numbers["cPCA, best by labels"]
        assert best["ari"] == max(entry["ari"] for entry in mice.numbers["cPCA sweep"])
        marked = [row for row in mice.tables[0].rows if str(row[0]).endswith("*")]
        assert len(marked) == 1
        assert "used the labels" in mice.tables[0].note

    def test_digits_over_grass(self, data_folder, monkeypatch):
        monkeypatch.setattr("cpcapp.experiments.mnist_over_grass._QUICK_ROWS", 400)
        monkeypatch.setenv("CPCAPP_DATA", str(data_folder))
        result = run_experiment("mnist_over_grass", QUICK)
        check(result)
        assert result.numbers["n_features"] == 784
        assert result.numbers["t-SNE"]["n_shown"] == 300
        assert [picture.shareable for picture in result.pictures] == [False, True, True]
        assert result.numbers["cPCA++"]["ari"] > 0.5 > result.numbers["PCA"]["ari"]

    def test_synthetic(self):
        result = run_experiment("synthetic", QUICK)
        check(result)
        quiet, loud = result.numbers.values()
        assert quiet["PCA"]["ari"] == loud["cPCA++"]["ari"] == quiet["cPCA++"]["ari"] == 1.0
        assert loud["PCA"]["ari"] < 0.2
        papers = min(loud["cPCA sweep"], key=lambda entry: abs(entry["alpha"] - 2.7))
        assert papers["ari"] == 1.0

    @pytest.mark.usefixtures("leukemia_cells")
    def test_leukemia_in_the_published_format(self):
        result = run_experiment("leukemia", QUICK)
        check(result)
        assert (result.numbers["n_target"], result.numbers["n_features"]) == (120, 500)
        assert "before transplant" in result.pictures[0].alt


class TestMhealth:
    def test_the_papers_result_on_its_own_data(self, data_folder, monkeypatch):
        """Raw units, squats and cycling against lying, one subject at a time."""
        monkeypatch.setenv("CPCAPP_DATA", str(data_folder))
        result = run_experiment("mhealth", QUICK)
        check(result)
        assert "rows are means of 0.64 seconds" in result.data
        found = result.numbers["ARI by subject"]
        together = found.pop("all together")
        assert len(found) == 10
        assert max(each["PCA"] for each in found.values()) <= 0.01
        assert min(each["cPCA++"] for each in found.values()) >= 0.95
        assert together["PCA"] == pytest.approx(0.0, abs=0.005)
        assert together["cPCA++"] > 0.5

    @pytest.mark.usefixtures("mhealth_of_one")
    def test_logs_in_the_published_format(self):
        result = run_experiment("mhealth", QUICK)
        check(result)
        assert (result.numbers["n_target"], result.numbers["n_background"]) == (400, 200)
        assert result.numbers["n_individuals"] == 20  # stretches of time
        assert "knees bending" in result.pictures[0].alt
        assert "0.64" not in result.data


class TestGcpcaExample:
    def test_filters_lie_in_the_plane_only_with_a_loading(self):
        result = run_experiment("gcpca_example", QUICK)
        check(result)
        found = result.numbers["found"]["10000"]
        assert min(found["cPCA++"][:2]) > 0.85
        assert max(found["cPCA++, no loading"][1], found["PCA"][1]) < 0.1
        assert result == run_experiment("gcpca_example", QUICK)

    def test_the_recipe(self):
        sets = gcpca_example.draw_sets(20_000, np.random.default_rng(0))
        np.testing.assert_allclose(sets.directions @ sets.directions.T, np.eye(100), atol=1e-10)
        # Factors have unit norm, so that the norms along the directions are the amplitudes.
        target, background = (np.linalg.norm(rows @ sets.directions.T, axis=0) for rows in sets[:2])
        np.testing.assert_allclose(target[[0, 99]], [10.0001, 1e-4], rtol=1e-6)
        np.testing.assert_allclose(target[70:72] / background[70:72], 2.0)
        np.testing.assert_allclose(background[80:82] / target[80:82], 2.0)
        np.testing.assert_allclose(np.delete(target / background, [70, 71, 80, 81]), 1.0)
        # A square with a hole.
        assert np.abs(sets.factors).max() <= 0.5
        assert not (np.abs(sets.factors) < (0.2, 0.1)).all(axis=1).any()

    def test_scores_of_a_perfect_and_of_a_blind_method(self):
        sets = gcpca_example.draw_sets(500, np.random.default_rng(0))
        turned = sets.directions[70:72].T @ [[1.0, 2.0], [-1.0, 1.0]]
        np.testing.assert_allclose(gcpca_example.score_filters(turned, sets), 1.0)
        first, second, explained = gcpca_example.score_filters(sets.directions[:2].T, sets)
        assert max(first, second) < 1e-10
        assert explained < 0.05


def test_needle_has_the_papers_claims():
    result = run_experiment("needle", Settings())
    check(result)
    exact = result.numbers["exact"]
    assert exact["PCA"] == exact["cPCA, α = 0.3"] == pytest.approx(90.0)
    assert exact["cPCA++"] == pytest.approx(0.0, abs=1e-6)
    assert exact["cPCA, α = 0.5"] == pytest.approx(0.0, abs=1e-5)  # α = β/γ
    assert result.numbers["sampled"]["cPCA++, default loading"] < 10.0


@pytest.fixture(scope="module")
def digits(data_folder):
    """Pictures to fit methods to, and others to denoise."""
    everything = mnist_over_grass(700, 500, random_state=0, data_home=data_folder)
    return denoising.split(everything, 500)


class TestDenoising:
    def test_all_methods_are_given_the_same_mean_digit(self, digits):
        """On what was fitted, the mean of what is found does not depend on the filters."""
        fitted, _ = digits
        average = fitted.target.mean(axis=0) - fitted.background.mean(axis=0)
        for found in denoising.denoise(fitted, fitted, 2, QUICK).values():
            np.testing.assert_allclose(found.mean(axis=0), average, atol=1e-10)

    def test_errors(self, digits):
        _, new = digits
        assert len(new.target) == 200
        assert denoising.errors_of(new.clean, new) == pytest.approx([0.0, 0.0, 1.0])
        assert denoising.errors_of(new.clean + 0.5, new) == pytest.approx([0.25, 0.0, 1.0])
        assert denoising.errors_of(3.0 * new.clean + 1.0, new)[2] == pytest.approx(1.0)
        assert denoising.errors_of(np.zeros_like(new.clean), new)[2] == 0.0

    @pytest.mark.parametrize("k", [3, 10])
    def test_cpca_plus_plus_takes_the_grass_away(self, digits, k):
        fitted, new = digits
        found = denoising.denoise(fitted, new, k, QUICK)
        errors = {name: denoising.errors_of(each, new)[0] for name, each in found.items()}
        assert errors[denoising.OAS] < errors["PCA"] / 10.0
        if k == 3:  # with many components the default loading is too strong
            assert errors["cPCA++"] < errors["PCA"] / 8.0

    def test_the_experiment(self, data_folder, monkeypatch):
        monkeypatch.setenv("CPCAPP_DATA", str(data_folder))
        monkeypatch.setattr(denoising, "_QUICK_COMPONENTS", (3,))
        result = run_experiment("denoising", QUICK)
        check(result)
        assert result.numbers["n_tested"] == 300
        assert result.tables[0].rows[-1][1:3] == (1.0, 1.0)  # the average digit


class TestTiming:
    def test_the_papers_averages_are_those_of_its_table(self):
        rows = TABLES.values()
        over_cpca = np.mean([row.cpca / row.cpca_plus_plus for row in rows])
        over_tsne = np.mean([row.tsne / row.cpca_plus_plus for row in rows])
        assert over_cpca == pytest.approx(SPEED_UP_OVER_CPCA, abs=0.5)
        assert over_tsne == pytest.approx(SPEED_UP_OVER_TSNE, abs=1.0)

    @pytest.mark.usefixtures("mhealth_of_one")
    def test_shapes_are_those_of_table_one_whatever_data_are_here(self):
        for shape, row in zip(timing.shapes(0), TABLES.values(), strict=True):
            assert shape.target.shape == (row.n_target, row.n_features)
            assert shape.background.shape == (row.n_background, row.n_features)
            assert not shape.real

    def test_real_data_are_said_to_be_real(self, data_folder, monkeypatch):
        monkeypatch.setenv("CPCAPP_DATA", str(data_folder))
        monkeypatch.setattr(timing, "TABLES", {"mice_protein": TABLES["mice_protein"]})
        result = run_experiment("timing", QUICK)
        check(result)
        assert result.numbers["mice_protein"]["real"]
        seconds = result.timings["seconds"]["mice_protein"]
        assert all(value > 0.0 for value in seconds.values())
        assert result.tables[0].rows[0][6] == pytest.approx(seconds["cPCA"] / seconds["cPCA++"])


class TestRunning:
    @pytest.mark.usefixtures("data_home")
    @pytest.mark.parametrize(
        "name", ["mnist_over_grass", "mice_protein", "mhealth", "leukemia", "denoising"]
    )
    def test_missing_data_are_an_outcome(self, name):
        outcome = run_experiment(name, QUICK)
        assert isinstance(outcome, Missing)
        assert outcome.title
        assert len(outcome.reason.splitlines()) == 1
        assert "not here" in outcome.reason

    def test_a_broken_table_is_an_outcome_too(self, data_home):
        (data_home / "mice_protein").mkdir()
        (data_home / "mice_protein" / "Data_Cortex_Nuclear.csv").write_text("a,b\n1,2\n")
        outcome = run_experiment("mice_protein", QUICK)
        assert isinstance(outcome, Missing)
        assert "is not the mice protein table" in outcome.reason

    def test_unknown_names(self):
        with pytest.raises(ValueError, match="name='nedle' must be one of needle, "):
            run_experiment("nedle", QUICK)

    @pytest.mark.usefixtures("data_home")
    def test_progress_goes_up_to_the_end(self):
        shares = []
        run_experiments(["mhealth", "needle"], QUICK, lambda name, share: shares.append(share))
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0.0, 1.0)
        assert "mfcn" not in NAMES  # its figures are those of a benchmark
