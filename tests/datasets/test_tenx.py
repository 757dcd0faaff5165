from __future__ import annotations

import gzip
import importlib.util
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse as sp

from cpcapp._io import hdf5
from cpcapp.datasets import DataNotFoundError, read_10x
from published_data import packed
from published_data import write_mex as write_cells

GENES = [("ENSG00000243485", "MIR1302-10"), ("ENSG00000237613", "FAM138A"), ("ENSG2", "TP53")]
CELLS = ["AAACATACAACCAC-1", "AAACATTGAGCTAC-1"]
COUNTS = np.array([[0, 3, 1], [7, 0, 0]])


def write_mex(folder, counts=COUNTS, **options):
    return write_cells(folder, counts, GENES, CELLS, **options)


def write_h5(path: Path, counts=COUNTS, version=2, genome="hg19", kinds=None, genomes=None):
    """Write the HDF5 of Cell Ranger: genes by cells in compressed columns."""
    columns = sp.csc_array(counts.T)
    with h5py.File(path, "a") as file:
        group = file.create_group(genome if version == 2 else "matrix")
        group["barcodes"] = np.array(CELLS, dtype="S18")
        group["data"] = columns.data.astype(np.int32)
        group["indices"] = columns.indices.astype(np.int64)
        group["indptr"] = columns.indptr.astype(np.int64)
        group["shape"] = np.array(columns.shape, dtype=np.int32)
        ids, names = (np.array(part, dtype="S32") for part in zip(*GENES, strict=True))
        if version == 2:
            group["genes"], group["gene_names"] = ids, names
        else:
            features = group.create_group("features")
            features["_all_tag_keys"] = np.array(["genome"], dtype="S")
            features["id"], features["name"] = ids, names
            features["feature_type"] = np.array(kinds or ["Gene Expression"] * 3, dtype="S")
            features["genome"] = np.array(genomes or [genome] * 3, dtype="S")
    return path


def expect(cells, counts=COUNTS, genes=GENES):
    assert sp.issparse(cells.counts)
    assert cells.counts.format == "csr"
    np.testing.assert_array_equal(cells.counts.toarray(), counts)
    assert cells.barcodes == CELLS
    assert cells.gene_ids == [gene for gene, _ in genes]
    assert cells.gene_names == [name for _, name in genes]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("within", ["", "filtered_matrices_mex/hg19"])
def test_folders_archives_and_hdf5(tmp_path, version, within):
    folder = tmp_path / "sample"
    write_mex(folder / within, version=version)
    expect(read_10x(folder))
    expect(read_10x(packed(folder, tmp_path / "sample.tar.gz")))
    expect(read_10x(packed(folder, tmp_path / "sample.tar", "w")))
    expect(read_10x(write_h5(tmp_path / "sample.h5", version=version)))


def test_several_genomes(tmp_path):
    for genome, factor in (("hg19", 1), ("mm10", 2)):
        write_mex(tmp_path / "barnyard" / genome, factor * COUNTS)
        write_h5(tmp_path / "barnyard.h5", factor * COUNTS, genome=genome)
    write_h5(tmp_path / "three.h5", version=3, genomes=["hg19", "mm10", "hg19"])
    for name in ("barnyard", "barnyard.h5"):
        expect(read_10x(tmp_path / name, genome="mm10"), 2 * COUNTS)
    expect(read_10x(tmp_path / "three.h5", genome="mm10"), COUNTS[:, [1]], GENES[1:2])
    for name in ("barnyard", "barnyard.h5", "three.h5"):
        with pytest.raises(ValueError, match="several genomes; choose by genome=: hg19, mm10"):
            read_10x(tmp_path / name)
        with pytest.raises(ValueError, match="genome='rn6' must be one of hg19, mm10"):
            read_10x(tmp_path / name, genome="rn6")


def test_kinds_of_features(tmp_path):
    kinds = ["Gene Expression", "Antibody Capture", "Gene Expression"]
    folder = write_mex(tmp_path / "cite", version=3, kinds=kinds)
    file = write_h5(tmp_path / "cite.h5", version=3, kinds=kinds, genomes=["GRCh38", "", "GRCh38"])
    for path in (folder, file):
        expect(read_10x(path), COUNTS[:, [0, 2]], [GENES[0], GENES[2]])
        expect(read_10x(path, feature_type=None))
        expect(read_10x(path, feature_type="Antibody Capture"), COUNTS[:, [1]], GENES[1:2])
        with pytest.raises(ValueError, match="must be None or one of Antibody Capture, Gene"):
            read_10x(path, feature_type="Peaks")


@pytest.fixture(scope="module")
def anndata():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("anndata")


@pytest.mark.parametrize("layout", [sp.csr_matrix, sp.csc_matrix, np.asarray])
def test_h5ad_as_anndata_writes_it(tmp_path, anndata, layout):
    import pandas as pd

    ids, names = ([gene[i] for gene in GENES] for i in (0, 1))
    without = [ids[0], None, ids[2]]
    for column, expected in (
        (None, names),
        (ids, ids),
        (pd.Categorical(ids), ids),
        (pd.Categorical(without), [ids[0], "", ids[2]]),
    ):
        var = pd.DataFrame({} if column is None else {"gene_ids": column}, index=names)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = anndata.AnnData(layout(COUNTS), obs=pd.DataFrame(index=CELLS), var=var)
            data.write_h5ad(tmp_path / "cells.h5ad")
        expect(read_10x(tmp_path / "cells.h5ad"), genes=list(zip(expected, names, strict=True)))


def test_a_real_h5ad_of_old():
    """The 68k PBMC of 10x, reduced, that scanpy carries: X dense, tables as compound arrays."""
    spec = importlib.util.find_spec("scanpy")
    if spec is None:
        pytest.skip("scanpy is not installed")
    path = Path(spec.submodule_search_locations[0]) / "datasets" / "10x_pbmc68k_reduced.h5ad"
    cells = read_10x(path)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(cells.counts.toarray(), file["X"][:])
    assert cells.counts.shape == (700, 765)
    assert cells.barcodes[0] == "AAAGCCTGGCTAAC-1"
    assert {"HES4", "CD3D", "LYZ"} <= set(cells.gene_names)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "barcodes.tsv").unlink(), "must lie barcodes.tsv and genes.tsv"),
        (lambda f: (f / "genes.tsv").unlink(), "must lie barcodes.tsv and genes.tsv"),
        (lambda f: (f / "matrix.mtx").unlink(), "there is no matrix.mtx in it"),
        (lambda f: (f / "genes.tsv").write_text("A\n"), "names of 2 and 1"),
        (lambda f: (f / "matrix.mtx").write_text("%%MatrixMarket matrix\n1"), "can't be read"),
        (
            lambda f: (f / "matrix.mtx").write_text(
                "%%MatrixMarket matrix coordinate integer general\n%\n3 2 3\n1 1 1\n"
            ),
            "can't be read",
        ),
    ],
)
def test_folders_that_are_none(tmp_path, spoil, message):
    folder = write_mex(tmp_path / "sample")
    spoil(folder)
    with pytest.raises(ValueError, match=message):
        read_10x(folder)


@pytest.mark.parametrize("name", ["a.h5", "a.h5ad", "a.tar.gz"])
@pytest.mark.parametrize("content", [b"", b"not what it says"])
def test_files_that_are_none(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} can't be read"):
        read_10x(tmp_path / name)


def test_an_archive_that_was_cut_off(tmp_path, rng):
    counts = rng.integers(1, 1000, (2, 3))
    path = packed(write_mex(tmp_path / "sample", counts), tmp_path / "sample.tar.gz")
    path.write_bytes(path.read_bytes()[:-120])
    with pytest.raises(ValueError, match=r"sample.tar.gz can't be read"):
        read_10x(path)


def test_hdf5_of_something_else(tmp_path):
    for name, reason in (("a.h5", "it has no genes"), ("a.h5ad", "AnnData")):
        with h5py.File(tmp_path / name, "w") as file:
            file.create_group("images")
        with pytest.raises(ValueError, match=f"{name} can't be read: {reason}"):
            read_10x(tmp_path / name)


@pytest.mark.parametrize(
    ("part", "place", "value", "said"),
    [
        ("indices", 0, -1, "its indices hold -1, not"),
        ("indices", 0, 3, "its indices hold 3, not"),
        ("indptr", 0, 1, "index pointer should start with 0"),
        ("indptr", 1, -1, "its indptr does not rise"),
        ("indptr", -1, 10**7, "Last value of index pointer"),
    ],
)
def test_numbers_out_of_range(tmp_path, part, place, value, said):
    path = write_h5(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        file[f"hg19/{part}"][place] = value
    with pytest.raises(ValueError, match=rf"a\.h5 can't be read: {said}"):
        read_10x(path)


def test_a_part_in_another_file_is_not_read(tmp_path):
    path, other = write_h5(tmp_path / "a.h5"), write_h5(tmp_path / "b.h5")
    with h5py.File(path, "a") as file:
        del file["hg19/data"]
        file["hg19/data"] = h5py.ExternalLink(other, "/hg19/data")
    with pytest.raises(ValueError, match="its /hg19/data lies in another file"):
        read_10x(path)


def test_reading_that_does_not_end_is_ended(tmp_path, monkeypatch):
    """HDF5 1.14 loops for ever on this file."""
    hanging = Path(__file__).parents[1] / "tables" / "read" / "hanging.h5ad.gz"
    (tmp_path / "a.h5ad").write_bytes(gzip.decompress(hanging.read_bytes()))
    monkeypatch.setattr(hdf5, "_SECONDS", 2.0)
    with pytest.raises(ValueError, match=r"a\.h5ad can't be read: it"):
        read_10x(tmp_path / "a.h5ad")


def test_other_names(tmp_path):
    with pytest.raises(DataNotFoundError, match="does not exist"):
        read_10x(tmp_path / "none.h5")
    (tmp_path / "cells.csv").write_text("1")
    with pytest.raises(ValueError, match=r"must be a folder or end in .tar.gz, .h5 or .h5ad"):
        read_10x(tmp_path / "cells.csv")
