"""Cells of a leukemia patient before and after a transplant."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from cpcapp.datasets._contrast_data import ContrastData, standardize_columns
from cpcapp.datasets._fetch import PathLike, fetch, find, tenx_sample
from cpcapp.datasets.tenx import read_10x
from cpcapp.moments.rows import FloatArray

_SUFFIXES = (".h5", ".h5ad", ".tar.gz", ".tgz", ".tar")


def leukemia(
    *,
    patient: Literal["aml027", "aml035"] = "aml027",
    donor: Literal[1, 2] = 1,
    n_genes: int = 500,
    standardize: bool = True,
    data_home: PathLike | None = None,
) -> ContrastData:
    r"""Load single cells of a leukemia patient, against those of a healthy donor.

    Mononuclear cells of the bone marrow (BMMC), by Zheng et al. 2017. The target are those of a
    patient before and after a transplant of stem cells, the background those of a healthy donor.
    Of the genes that occur in either, those with the largest variance over mean of the counts,
    taken over both sets together, are kept. The defaults are the choice of the paper, which counts
    7898 and 1985 cells and 500 genes. Everything is sparse until the genes are chosen.

    Parameters
    ----------
    patient : {"aml027", "aml035"}, default="aml027"
    donor : {1, 2}, default=1
    n_genes : int, default=500
    standardize : bool, default=True
        Centre each gene and divide it by its standard deviation, in each set by its own, as the
        authors of cPCA do. Otherwise the counts are returned.
    data_home : path, optional
        The folder with ``leukemia/SAMPLE``, where ``SAMPLE`` begins with
        ``aml027_pre_transplant``, ``aml027_post_transplant`` or ``frozen_bmmc_healthy_donor1``
        and is anything that :func:`read_10x` reads. What is not there is fetched; see
        :doc:`/datasets`.

    Returns
    -------
    ContrastData
        ``labels`` is 0 before and 1 after the transplant.

    Raises
    ------
    DataNotFoundError
        If a sample is not here and can't be fetched.

    Examples
    --------
    Three samples in the format of Cell Ranger, with two cells and three genes each:

    >>> import pathlib, tempfile
    >>> home = pathlib.Path(tempfile.mkdtemp())
    >>> for i, sample in enumerate(
    ...     ["aml027_pre_transplant", "aml027_post_transplant", "frozen_bmmc_healthy_donor1"]
    ... ):
    ...     folder = home / "leukemia" / sample / "hg19"
    ...     folder.mkdir(parents=True)
    ...     entries = f"3 2 3\n1 1 1\n2 1 {9 * i + 1}\n3 2 {i + 1}\n"
    ...     header = "%%MatrixMarket matrix coordinate integer general\n"
    ...     _ = (folder / "matrix.mtx").write_text(header + entries)
    ...     _ = (folder / "genes.tsv").write_text("ENSG1\tA\nENSG2\tB\nENSG3\tC\n")
    ...     _ = (folder / "barcodes.tsv").write_text("AAAC-1\nAAAG-1\n")
    >>> data = leukemia(n_genes=2, standardize=False, data_home=home)
    >>> data.feature_names, data.target.tolist()
    (['B', 'C'], [[1.0, 0.0], [0.0, 1.0], [10.0, 0.0], [0.0, 2.0]])
    >>> [data.label_names[label] for label in data.labels[1:3]]
    ['before transplant', 'after transplant']
    """
    if patient not in ("aml027", "aml035"):
        raise ValueError(f"patient={patient!r} must be 'aml027' or 'aml035'")
    if donor not in (1, 2):
        raise ValueError(f"donor={donor!r} must be 1 or 2")
    samples = [
        f"{patient}_pre_transplant",
        f"{patient}_post_transplant",
        f"frozen_bmmc_healthy_donor{donor}",
    ]
    cells = [read_10x(_place(name, data_home)) for name in samples]
    shared = set.intersection(*(set(sample.gene_ids) for sample in cells))
    ids = [gene for gene in cells[0].gene_ids if gene in shared]
    if not ids:
        raise ValueError("the three samples have no gene in common; are they of one genome?")
    columns = [{gene: i for i, gene in enumerate(sample.gene_ids)} for sample in cells]
    parts = [
        sample.counts[:, [column[gene] for gene in ids]]
        for sample, column in zip(cells, columns, strict=True)
    ]
    counts = sp.vstack(parts, format="csr").astype(np.float64)
    genes = _most_dispersed(counts, n_genes)
    chosen: FloatArray = counts[:, genes].toarray()
    n_before, n_after = (part.shape[0] for part in parts[:2])
    sets = np.split(chosen, [n_before + n_after])
    target, background = map(standardize_columns, sets) if standardize else sets
    symbols = [cells[0].gene_names[columns[0][gene]] for gene in ids]
    times = Counter(cells[0].gene_names)
    # The id tells genes of one symbol apart.
    names = [
        name if times[name] == 1 else f"{name} ({gene})"
        for name, gene in zip(symbols, ids, strict=True)
    ]
    return ContrastData(
        target,
        background,
        np.repeat([0, 1], [n_before, n_after]),
        [names[gene] for gene in genes],
        label_names=["before transplant", "after transplant"],
        source=f"Zheng et al. 2017, 10x Genomics: {', '.join(samples)}",
    )


def _place(sample: str, data_home: PathLike | None) -> Path:
    """Return a file of a sample; the official archive is left to fetch, which checks it."""
    official = tenx_sample(sample)
    for path in find(data_home, f"leukemia/{sample}*"):
        fits = path.is_dir() or path.name.endswith(_SUFFIXES)
        if fits and path.name != Path(official.name).name:
            return path
    return fetch(official, data_home)


def _most_dispersed(counts: Any, n_genes: int) -> Any:
    """Return the columns with the largest variance over mean, in their own order."""
    from sklearn.utils.sparsefuncs import mean_variance_axis

    mean, variance = mean_variance_axis(counts, axis=0)
    present = int((mean > 0.0).sum())
    if not 1 <= n_genes <= present:
        raise ValueError(f"n_genes={n_genes} must be between 1 and {present}, the genes present")
    dispersion = np.divide(variance, mean, out=np.full_like(mean, -np.inf), where=mean > 0.0)
    return np.sort(np.argsort(-dispersion, kind="stable")[:n_genes])
