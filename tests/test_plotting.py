from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.linalg import eigh

from cpcapp import CPCAPlusPlus, Moments, noise_threshold, plotting, solve_contrast
from cpcapp.plotting import PALETTE, contrast_figure


@pytest.fixture
def ax():
    return Figure().add_subplot()


def test_scatter_shows_every_class_by_colour_and_marker(ax, rng):
    labels = np.repeat(["a", "b", "c"], 10)
    plotting.scatter(ax, rng.normal(size=(30, 2)), labels, eigenvalues=[30.33, 23.5], title="t")
    assert [c.get_label() for c in ax.collections] == ["a", "b", "c"]
    assert len({tuple(c.get_facecolor()[0]) for c in ax.collections}) == 3
    assert "30.3" in ax.get_xlabel()
    assert "23.5" in ax.get_ylabel()


def test_grid_with_rows_of_different_length(rng, tmp_path):
    Y = rng.normal(size=(10, 2))
    rows = [("one", None, [("PCA", Y), ("cPCA++", Y)]), ("two", None, [("PCA", Y)])]
    figure = plotting.scatter_grid(rows)
    figure.savefig(tmp_path / "grid.png")
    assert (tmp_path / "grid.png").read_bytes().startswith(b"\x89PNG")
    assert [a.get_visible() for a in figure.axes] == [True, True, True, False]


def test_spectrum(ax):
    plotting.spectrum(ax, [30.0, 2.0, 1.0], threshold=2.2)
    assert ax.get_lines()[0].get_ydata().tolist() == [30.0, 2.0, 1.0]
    assert ax.get_yscale() == "log"


class TestScree:
    def test_shows_the_eigenvalues_and_what_is_above_the_noise(self, ax, rng):
        B = rng.normal(size=(400, 6))
        X = rng.normal(size=(400, 6)) * [5, 3, 1, 1, 1, 1]
        assert plotting.scree(X, B, ax=ax) is ax
        drawn, line, noise = ax.get_lines()
        expected = eigh(np.cov(X.T, ddof=0), np.cov(B.T, ddof=0), eigvals_only=True)[::-1]
        np.testing.assert_allclose(drawn.get_ydata(), expected, rtol=1e-10)
        assert line.get_ydata()[0] == noise_threshold(400, 400, 6)
        np.testing.assert_allclose(noise.get_ydata(), expected[2:], rtol=1e-10)
        assert noise.get_xdata().tolist() == [3, 4, 5, 6]
        assert noise.get_markerfacecolor() == "white"
        assert ax.get_title() == "2 of 6 above the noise"
        assert ax.get_yscale() == "log"

    def test_the_rate_moves_the_line(self, rng):
        X, B = rng.normal(size=(2, 300, 5))
        lines = [
            plotting.scree(X, B, false_alarm_rate=rate, ax=Figure().add_subplot()).get_lines()[1]
            for rate in (0.5, 0.001)
        ]
        assert lines[0].get_ydata()[0] < lines[1].get_ydata()[0]

    def test_few_background_samples_have_no_line(self, ax, rng):
        X, B = rng.normal(size=(40, 60)), rng.normal(size=(30, 60))
        plotting.scree(Moments.of(X), Moments.of(B), n_components=5, ax=ax)
        (drawn,) = ax.get_lines()
        expected = solve_contrast(X, B, 5, loading="oas").eigenvalues
        np.testing.assert_allclose(drawn.get_ydata(), expected, rtol=1e-9)
        assert ax.get_title() == "5 largest of 60, shrunk"


def test_loadings_are_the_largest_with_the_largest_on_top(ax):
    plotting.loadings(ax, [0.1, -3.0, 2.0, 0.0], ["a", "b", "c", "d"], top=2)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["c", "b"]


def test_bad_input(ax):
    with pytest.raises(ValueError, match="scores has shape"):
        plotting.scatter(ax, [1, 2, 3])
    with pytest.raises(ValueError, match="labels has shape"):
        plotting.scatter(ax, [[1, 2]], ["a", "b"])
    with pytest.raises(ValueError, match="give one row"):
        plotting.loadings(ax, np.eye(2))
    with pytest.raises(ValueError, match="1 names for 2 weights"):
        plotting.loadings(ax, [1, 2], ["a"])


def test_a_contrast_with_many_classes_puts_the_rarest_together(rng):
    labels = np.repeat([f"class {i}" for i in range(12)], np.arange(12, 0, -1))
    scores = rng.normal(size=(len(labels), 2))
    figure = contrast_figure(scores, labels, weights=np.eye(2, 5), label_title="kind")
    legend = figure.axes[0].get_legend()
    names = [text.get_text() for text in legend.get_texts()]
    assert len(names) == len(PALETTE)
    assert names[-1] == "other"
    assert "class 0" in names
    assert len(figure.axes) == 3


@pytest.mark.parametrize("n_components", [1, 2])
@pytest.mark.parametrize("labelled", [True, False])
def test_background_points_are_grey_and_named(rng, n_components, labelled):
    scores, behind = rng.normal(size=(9, n_components)), rng.normal(size=(7, n_components))
    labels = np.repeat(["x", "y", "z"], 3) if labelled else None
    weights = rng.normal(size=(n_components, 4))
    figure = contrast_figure(scores, labels, weights=weights, background=behind)
    ax = figure.axes[0]
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["background", *(["x", "y", "z"] if labelled else ["target"])]
    points = ax.collections[0].get_offsets()
    np.testing.assert_allclose(points[:, :n_components], behind)
    red, green, blue, _ = ax.collections[0].get_facecolor()[0]
    assert red == green == blue > 0.6
    # No target point hides one of the background, also on a single axis.
    assert not {*map(tuple, points)} & {*map(tuple, ax.collections[1].get_offsets())}


def test_a_contrast_of_one_component(rng):
    figure = contrast_figure(rng.normal(size=(9, 1)), weights=rng.normal(size=(1, 4)))
    assert [ax.get_title() for ax in figure.axes] == ["", "component 1"]
    assert figure.axes[0].get_legend() is None


@pytest.fixture
def fitted(rng):
    X = pd.DataFrame(rng.normal(size=(60, 5)) * [3, 2, 1, 1, 1], columns=list("abcde"))
    return CPCAPlusPlus().fit(X, background=X * 0 + rng.normal(size=(60, 5))), X


def test_plot_draws_what_the_estimator_gives(ax, fitted):
    est, X = fitted
    labels = np.repeat(["sick", "well"], 30)
    assert plotting.plot(est, X, labels, ax=ax) is ax
    drawn = np.concatenate([points.get_offsets() for points in ax.collections])
    np.testing.assert_allclose(drawn, est.transform(X))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["sick", "well"]
    assert f"{est.eigenvalues_[0]:.3g}" in ax.get_xlabel()


def test_plot_has_the_background_behind_the_target(ax, fitted):
    est, X = fitted
    plotting.plot(est, X, background=X[:7], ax=ax)
    behind, front = ax.collections
    assert len(behind.get_offsets()) == 7
    assert behind.get_zorder() < front.get_zorder()


def test_plot_shows_many_numbers_as_a_range_of_colours(ax, fitted):
    est, X = fitted
    ages = np.linspace(20.0, 80.0, 60)
    plotting.plot(est, X, ages, ax=ax)
    assert len(ax.collections) == 1
    np.testing.assert_array_equal(ax.collections[0].get_array(), ages)
    assert len(ax.get_figure().axes) == 2  # with the bar of colours


def test_labels_go_by_the_index_of_the_rows(ax, fitted):
    plotting.plot(*fitted, pd.Series(np.arange(60.0))[::-1], ax=ax)
    np.testing.assert_array_equal(ax.collections[0].get_array(), np.arange(60.0))


@pytest.mark.parametrize("draw", [plotting.plot, lambda _, X: plotting.scree(X, X[::-1])])
def test_without_axes_a_figure_is_made(fitted, draw):
    ax = draw(*fitted)
    assert ax.has_data()
    plt.close(ax.get_figure())


def test_plot_of_one_component_and_bad_labels(ax, rng):
    X = rng.normal(size=(9, 3))
    est = CPCAPlusPlus(1).fit(X)
    assert plotting.plot(est, X, background=X, ax=ax).get_ylabel() == ""
    with pytest.raises(ValueError, match="labels has shape"):
        plotting.plot(est, X, ["a", "b"], ax=ax)
