"""Small data sets in the formats in which the real ones are published."""

from __future__ import annotations

import gzip
import tarfile

import numpy as np


def write_mex(folder, counts, genes, cells=None, *, version=2, kinds=None):
    """Write a folder as Cell Ranger does: genes are rows, numbered from 1."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = [
        f"{gene + 1} {cell + 1} {counts[cell, gene]}"
        for gene, cell in zip(*np.nonzero(counts.T), strict=True)
    ]
    size = f"{counts.shape[1]} {counts.shape[0]} {len(entries)}"
    rows = ["\t".join(gene) for gene in genes]
    if version == 3:
        kinds = kinds or ["Gene Expression"] * len(genes)
        rows = [f"{row}\t{kind}" for row, kind in zip(rows, kinds, strict=True)]
    files = {
        "matrix.mtx": ["%%MatrixMarket matrix coordinate integer general", "%", size, *entries],
        "genes.tsv" if version == 2 else "features.tsv": rows,
        "barcodes.tsv": cells or [f"CELL{i}-1" for i in range(len(counts))],
    }
    for name, lines in files.items():
        text = ("\n".join(lines) + "\n").encode()
        if version == 2:
            (folder / name).write_bytes(text)
        else:
            (folder / f"{name}.gz").write_bytes(gzip.compress(text))
    return folder


def packed(folder, path, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        archive.add(folder, arcname=".")
    return path


def mhealth_log(signals, activities):
    """Return rows as mHealth has them: 23 signals and the label, by tabs."""
    return "".join(
        "\t".join([*(f"{value:.6f}" for value in row), str(activity)]) + "\n"
        for row, activity in zip(signals, activities, strict=True)
    )
