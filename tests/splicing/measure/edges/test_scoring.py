from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.spatial.distance import cdist

from cpcapp.splicing.datasets.sources import bsds_photos

# Only the benchmark of edges scores them. Its folder is on no path: it has a module "sparse".
_FILE = Path(__file__).parents[4] / "benchmarks" / "_edge_scores.py"
_SPEC = spec_from_file_location("_edge_scores", _FILE)
scores = sys.modules["_edge_scores"] = module_from_spec(_SPEC)
_SPEC.loader.exec_module(scores)
count_correspondences, summarize = scores.count_correspondences, scores.summarize


@given(seed=st.integers(0, 10_000), density=st.sampled_from([0.02, 0.1, 0.4]))
def test_the_assignment_is_one_to_one_and_as_large_as_can_be(seed, density):
    rng = np.random.default_rng(seed)
    detected = np.argwhere(rng.random((25, 30)) < density)
    truth = rng.random((25, 30)) < density
    radius = 2.3
    matched = scores.match_pixels(detected, truth, scores._disk(radius))
    near = csr_array(cdist(detected, np.argwhere(truth)) <= radius)
    if min(near.shape) == 0:
        assert not matched.any()
        return
    largest = maximum_bipartite_matching(near, perm_type="column")
    assert matched.sum() == (largest >= 0).sum()


def line(shape=(200, 200), row=100):
    out = np.zeros(shape, dtype=bool)
    out[row, 20:180] = True
    return out


class TestKnownAnswers:
    def test_the_truth_itself(self):
        counts = count_correspondences(line().astype(float), [line()])
        np.testing.assert_allclose(counts.f_measure, 1.0)

    def test_within_reach_and_beyond(self):
        # 0.0075 of the diagonal of 200 x 200 is 2.12 pixels.
        assert count_correspondences(line(row=102) * 1.0, [line()]).f_measure.max() == 1.0
        assert count_correspondences(line(row=103) * 1.0, [line()]).f_measure.max() == 0.0

    def test_a_second_line_beside_the_first_counts_as_false(self):
        both = line(row=99) | line(row=101)
        counts = count_correspondences(both * 1.0, [line()])
        assert counts.recall[0] == 1.0
        assert counts.precision[0] == pytest.approx(0.5)

    def test_two_annotators(self):
        other = line(row=150)
        counts = count_correspondences(line() * 1.0, [line(), other])
        assert counts.precision[0] == 1.0  # someone drew each
        assert counts.recall[0] == 0.5  # half of all that was drawn

    def test_strength_and_thresholds(self):
        edges = 0.8 * line() + 0.3 * line(row=150)
        counts = count_correspondences(edges, [line()])
        found = summarize([counts])
        assert found.ods == 1.0
        assert 0.3 < found.ods_threshold <= 0.8
        assert counts.precision[0] == pytest.approx(0.5)
        assert counts.detected[-1] == 0
        assert counts.precision[-1] == 1.0

    def test_ois_is_at_least_ods(self):
        a = count_correspondences(0.9 * line() + 0.5 * line(row=150), [line()])
        b = count_correspondences(0.4 * line(), [line()])
        found = summarize([a, b])
        assert found.ois == 1.0
        assert found.ods < 1.0

    def test_shapes_must_fit(self):
        with pytest.raises(ValueError, match=r"edges have shape \(5, 5\)"):
            count_correspondences(np.zeros((5, 5)), [np.zeros((5, 6), bool)])
        with pytest.raises(ValueError, match="no counts"):
            summarize([])


def test_people_agree_with_each_other_to_about_four_fifths(data_folder):
    """The known figure for BSDS500 is .80: each annotator against all others."""
    total = []
    for photo in bsds_photos(data_folder / "bsds500", ["test"])[::10]:
        truths = photo.boundaries()
        for i, mine in enumerate(truths):
            others = truths[:i] + truths[i + 1 :]
            total.append(count_correspondences(mine * 1.0, others, thresholds=np.array([0.5])))
    assert summarize(total, np.array([0.5])).ods == pytest.approx(0.80, abs=0.04)
