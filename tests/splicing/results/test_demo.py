"""The example photos, with the model that is shipped."""

from __future__ import annotations

import numpy as np
import pytest

from cpcapp.splicing.results.demo import localize_examples, measure_distance_to_seam


def test_results_and_pictures(tmp_path):
    shares = []
    results = localize_examples(tmp_path, progress=shares.append)
    assert shares == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [result.photo.authentic for result in results] == [False, False, False, True]
    assert [result.distance is None for result in results] == [False, False, False, True]
    assert results[1].distance <= 4  # the cup, which every model so far has found
    assert results[1].reaches_threshold
    names = {path.name for path in tmp_path.iterdir()}
    assert {"demo.png", "astronaut.hot_spots.png", "astronaut.region.png"} < names


@pytest.mark.parametrize(("column", "distance"), [(0, 20), (19, 1), (20, 1), (29, 10)])
def test_distance_to_a_straight_seam(column, distance):
    mask = np.zeros((60, 30), dtype=bool)
    mask[:, 20:] = True
    assert measure_distance_to_seam(mask, 30, column) == pytest.approx(distance, abs=0.1)
