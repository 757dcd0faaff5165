"""Small data sets in the formats in which mHealth and the leukemia cells are published."""

from __future__ import annotations

import numpy as np
import pytest

from published_data import mhealth_log, write_mex


@pytest.fixture
def data_home(tmp_path, monkeypatch):
    """A folder for data sets, empty, from which nothing is fetched."""
    home = tmp_path / "data"
    home.mkdir()
    monkeypatch.setenv("CPCAPP_DATA", str(home))
    monkeypatch.setenv("CPCAPP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CPCAPP_OFFLINE", "1")
    return home


@pytest.fixture
def mhealth_of_one(data_home, rng):
    """One subject: 200 rows each of lying (3), knees bending (8), cycling (9), and of nothing."""
    activities = np.repeat([0, 3, 0, 8, 0, 9], 200)
    signals = rng.normal(size=(len(activities), 23)) @ rng.normal(size=(23, 23))
    signals[activities == 8, :4] += 6.0
    (data_home / "mhealth").mkdir()
    (data_home / "mhealth" / "mHealth_subject1.log").write_text(mhealth_log(signals, activities))


@pytest.fixture
def leukemia_cells(data_home, rng):
    """60 cells of each sample in Cell Ranger's files, 520 genes; ten tell before from after."""
    rates, genes = rng.uniform(0.2, 2.0, 520), [(f"ENSG{i}", f"GENE{i}") for i in range(520)]
    samples = ("aml027_pre_transplant", "aml027_post_transplant", "frozen_bmmc_healthy_donor1")
    for sample in samples:
        shifted = rates + 8.0 * ("post" in sample) * (np.arange(520) < 10)
        counts = rng.poisson(shifted, size=(60, 520))
        write_mex(data_home / "leukemia" / sample / "hg19", counts, genes)
