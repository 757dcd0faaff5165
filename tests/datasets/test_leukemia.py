from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from cpcapp.datasets import UnverifiedDownloadWarning, _leukemia, leukemia
from cpcapp.datasets._fetch import RemoteFile
from loopback import serving
from published_data import packed, write_mex

SAMPLES = ["aml027_pre_transplant", "aml027_post_transplant", "frozen_bmmc_healthy_donor1"]
N_GENES = 40


@pytest.fixture
def counts(rng):
    rates = rng.uniform(0.0, 0.3, N_GENES) * (rng.random(N_GENES) < 0.8)
    rates[5] = 6.0
    return [rng.poisson(rates * rng.gamma(1.0, size=(n, 1))) for n in (30, 25, 20)]


GENES = [(f"ENSG{i}", "SAME" if i in (5, 6) else f"G{i}") for i in range(N_GENES)]


@pytest.fixture
def home(tmp_path, counts):
    (tmp_path / "leukemia").mkdir()
    for sample, rows in zip(SAMPLES, counts, strict=True):
        write_sample(tmp_path, sample, rows, GENES)
    return tmp_path


def write_sample(home, sample, counts, genes):
    """Write a sample as 10x Genomics publishes it."""
    folder = home / "made" / sample
    write_mex(folder / "filtered_matrices_mex" / "hg19", counts, genes)
    packed(folder, home / "leukemia" / f"{sample}_filtered_gene_bc_matrices.tar.gz")


def test_genes_by_variance_over_mean(home, counts):
    data = leukemia(n_genes=7, standardize=False, data_home=home)
    together = np.concatenate(counts).astype(float)
    present = np.flatnonzero(together.sum(axis=0))
    dispersion = together[:, present].var(axis=0) / together[:, present].mean(axis=0)
    best = np.sort(present[np.argsort(dispersion)[-7:]])
    np.testing.assert_array_equal(data.target, together[:55, best])
    np.testing.assert_array_equal(data.background, together[55:, best])
    assert data.labels.tolist() == [0] * 30 + [1] * 25
    assert data.label_names == ["before transplant", "after transplant"]
    names = [f"SAME (ENSG{i})" if i in (5, 6) else f"G{i}" for i in best]
    assert data.feature_names == names
    scaled = leukemia(n_genes=7, data_home=home)
    for ours, rows in ((scaled.target, data.target), (scaled.background, data.background)):
        np.testing.assert_allclose(ours, StandardScaler().fit_transform(rows), atol=1e-12)


def test_samples_with_other_genes(home, counts):
    """Genes are matched by their ids, wherever they stand."""
    plain = leukemia(n_genes=3, standardize=False, data_home=home)
    order = np.arange(N_GENES)[::-1]
    write_sample(home, SAMPLES[1], counts[1][:, order], [GENES[i] for i in order])
    other = leukemia(n_genes=3, standardize=False, data_home=home)
    np.testing.assert_array_equal(plain.target, other.target)
    assert plain.feature_names == other.feature_names
    write_sample(home, SAMPLES[1], counts[1], [(f"ENSMUSG{i}", "x") for i in range(N_GENES)])
    with pytest.raises(ValueError, match="no gene in common"):
        leukemia(data_home=home)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patient": "aml1"}, "patient='aml1' must be 'aml027' or 'aml035'"),
        ({"donor": 3}, "donor=3 must be 1 or 2"),
        ({"n_genes": 0}, "n_genes=0 must be between 1 and"),
        ({"n_genes": 500}, r"n_genes=500 must be between 1 and \d\d, the genes present"),
    ],
)
def test_bad_parameters(home, options, message):
    with pytest.raises(ValueError, match=message):
        leukemia(data_home=home, **options)


def test_fetched(home, tmp_path, monkeypatch):
    """From archives that are served, of which nobody publishes a hash."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("CPCAPP_CACHE", str(cache))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("CPCAPP_DATA", raising=False)
    with serving(b"") as server:

        def served(sample):
            name = f"leukemia/{sample}_filtered_gene_bc_matrices.tar.gz"
            server.content = (home / name).read_bytes()
            return RemoteFile(name, server.address, None)

        monkeypatch.setattr(_leukemia, "tenx_sample", served)
        with pytest.warns(UnverifiedDownloadWarning):
            fetched = leukemia(n_genes=7)
        np.testing.assert_array_equal(fetched.target, leukemia(n_genes=7, data_home=home).target)
        np.testing.assert_array_equal(fetched.target, leukemia(n_genes=7).target)
        assert server.requests == 3
