from __future__ import annotations

import numpy as np
import pytest

from cpcapp.tables import reduce_tables


def test_the_summary_says_that_it_is_a_sample(rng, tmp_path):
    X, B = rng.normal(size=(6000, 3)) * [3, 1, 1], rng.normal(size=(7000, 3))
    np.save(tmp_path / "t.npy", X)
    np.save(tmp_path / "b.npy", B)
    found = reduce_tables(tmp_path / "t.npy", tmp_path / "b.npy", "auto")
    assert found.n_significant == 1
    said = "permutation test of 5,000 + 5,000 rows drawn at random"
    assert found.significance.describe() == said
    assert len(found.model.calibration) == 5000
    new = rng.normal(size=(4000, 3))
    assert (found.model.p_value(new) <= 0.05).mean() == pytest.approx(0.05, abs=0.02)
