from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from cpcapp import plotting
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


def test_one_component_and_no_labels(ax, rng):
    plotting.scatter(ax, rng.normal(size=(30, 1)))
    assert len(ax.collections[0].get_offsets()) == 30


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


def test_a_contrast_of_one_component(rng):
    figure = contrast_figure(rng.normal(size=(9, 1)), weights=rng.normal(size=(1, 4)))
    assert [ax.get_title() for ax in figure.axes] == ["", "component 1"]
    assert figure.axes[0].get_legend() is None
