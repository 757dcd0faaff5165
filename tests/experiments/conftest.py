"""Small data sets in the formats in which mHealth and the leukemia cells are published."""

from __future__ import annotations

import pytest


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
def mhealth_log(data_home, rng):
    """One subject: 200 rows each of lying (3), knees bending (8), cycling (9), and of nothing."""
    mixing = rng.normal(size=(23, 23))
    rows = []
    for activity in (0, 3, 0, 8, 0, 9):
        signals = rng.normal(size=(200, 23)) @ mixing
        if activity == 8:
            signals[:, :4] += 6.0
        lines = ([*(f"{value:.6f}" for value in signal), str(activity)] for signal in signals)
        rows += ["\t".join(line) for line in lines]
    (data_home / "mhealth").mkdir()
    (data_home / "mhealth" / "mHealth_subject1.log").write_text("\n".join(rows) + "\n")


@pytest.fixture
def leukemia_cells(data_home, rng):
    """60 cells of each sample in Cell Ranger's files, 520 genes; ten tell before from after."""
    rates = rng.uniform(0.2, 2.0, 520)
    samples = ("aml027_pre_transplant", "aml027_post_transplant", "frozen_bmmc_healthy_donor1")
    for sample in samples:
        shifted = rates.copy()
        if "post" in sample:
            shifted[:10] += 8.0
        counts = rng.poisson(shifted, size=(60, 520))
        folder = data_home / "leukemia" / sample / "hg19"
        folder.mkdir(parents=True)
        entries = [
            f"{gene + 1} {cell + 1} {counts[cell, gene]}"
            for cell, gene in zip(*counts.nonzero(), strict=True)
        ]
        head = ["%%MatrixMarket matrix coordinate integer general", f"520 60 {len(entries)}"]
        (folder / "matrix.mtx").write_text("\n".join([*head, *entries]) + "\n")
        genes = [f"ENSG{i}\tGENE{i}" for i in range(520)]
        (folder / "genes.tsv").write_text("\n".join(genes) + "\n")
        (folder / "barcodes.tsv").write_text("\n".join(f"CELL{i}-1" for i in range(60)) + "\n")
