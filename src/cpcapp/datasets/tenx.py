"""Reading counts of genes in cells: the formats of 10x Genomics and AnnData, kept sparse."""

from __future__ import annotations

import gzip
import re
import sys
import tarfile
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp._io.hdf5 import Hdf5Process, check_contents
from cpcapp._io.packages import require_packages
from cpcapp._io.worker import Arrays, answer_requests
from cpcapp.datasets._fetch import DataNotFoundError, PathLike
from cpcapp.moments.sparse import check_sparse

_TAR_SUFFIXES = (".tar.gz", ".tgz", ".tar")
# The package that reads a file.
_HDF5_PACKAGES = {".h5": "h5py", ".hdf5": "h5py", ".h5ad": "anndata"}
_BROKEN = (OSError, EOFError, KeyError, TypeError, ValueError, IndexError, zlib.error)


@dataclass(frozen=True, eq=False)
class CellCounts:
    """How often each gene was read in each cell.

    Attributes
    ----------
    counts : sparse array of shape (n_cells, n_genes)
        In compressed rows (CSR).
    barcodes : list of str
        The names of the cells.
    gene_ids : list of str
        Such as ``"ENSG00000141510"``.
    gene_names : list of str
        Such as ``"TP53"``; not always unique.
    """

    counts: Any
    barcodes: list[str]
    gene_ids: list[str]
    gene_names: list[str]


def read_10x(
    path: PathLike, *, genome: str | None = None, feature_type: str | None = "Gene Expression"
) -> CellCounts:
    r"""Read a matrix of counts in one of the published formats.

    - A folder, or a ``.tar.gz`` of one, with ``matrix.mtx``, ``barcodes.tsv`` and ``genes.tsv``
      (Cell Ranger 1 and 2) or ``features.tsv`` (3 and later), each also as ``.gz``. They may lie
      in folders within, as in ``filtered_matrices_mex/hg19``. An archive is not unpacked.
    - ``.h5`` of Cell Ranger: a group for each genome (1 and 2) or the group ``matrix`` (3 and
      later).
    - ``.h5ad`` of AnnData, current and old: its ``X``.

    The last two need h5py and anndata: ``pip install 'cpcapp[datasets]'``. They are read by a
    process of its own, with limits on time and memory, because HDF5 may crash or never end on a
    damaged file.

    Parameters
    ----------
    path : path
    genome : str, optional
        Which one, if there are several.
    feature_type : str or None, default="Gene Expression"
        What is kept where the file tells kinds of features apart (Cell Ranger 3 and later); None
        keeps all, such as antibodies.

    Returns
    -------
    CellCounts
        A cell is a row.

    Raises
    ------
    DataNotFoundError
        If there is no such file.
    ValueError
        If it can't be read, or has several genomes and ``genome`` names none of them.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "matrix.mtx").write_text('''%%MatrixMarket matrix coordinate integer general
    ... 3 2 2
    ... 1 1 4
    ... 3 2 1
    ... ''')
    >>> _ = (folder / "genes.tsv").write_text("ENSG1\tA\nENSG2\tB\nENSG3\tC\n")
    >>> _ = (folder / "barcodes.tsv").write_text("AAAC-1\nAAAG-1\n")
    >>> cells = read_10x(folder)
    >>> cells.counts.toarray()
    array([[4, 0, 0],
           [0, 0, 1]])
    >>> cells.gene_names
    ['A', 'B', 'C']
    """
    path = Path(path)
    if not path.exists():
        raise DataNotFoundError(f"{path} does not exist")
    try:
        if package := _HDF5_PACKAGES.get(path.suffix):
            require_packages("datasets", package, purpose=f"reading {path.suffix}")
            request = {"path": str(path.absolute()), "genome": genome, "feature_type": feature_type}
            message, arrays = Hdf5Process(__name__, path, package).ask(request)
            counts = sp.csr_array(tuple(arrays), shape=tuple(message.pop("shape")))
            return CellCounts(counts, **message)
        if path.is_dir():
            names = [inner.relative_to(path).as_posix() for inner in sorted(path.rglob("*"))]
            return _read_mex(names, lambda name: (path / name).open("rb"), genome, feature_type)
        if path.name.endswith(_TAR_SUFFIXES):
            with tarfile.open(path) as archive:
                names = [member.name for member in archive if member.isfile()]
                return _read_mex(names, archive.extractfile, genome, feature_type)
    except (*_BROKEN, tarfile.TarError) as error:
        raise ValueError(f"{path} can't be read: {_reason(error)}") from error
    raise ValueError(f"{path} must be a folder or end in .tar.gz, .h5 or .h5ad")


def _reason(error: BaseException) -> str:
    missing = re.search(r"object '(.+)' doesn't exist", str(error))  # by h5py
    return f"it has no {missing[1]}" if missing else str(error) or type(error).__name__


def _read_mex(
    names: Sequence[str], open_file: Any, genome: str | None, feature_type: str | None
) -> CellCounts:
    """Read the files of Cell Ranger; a folder with a matrix is called as its genome."""
    matrices = {
        folder.rpartition("/")[2]: folder
        for folder, _, base in (name.rpartition("/") for name in names)
        if base in ("matrix.mtx", "matrix.mtx.gz")
    }
    folder = matrices[_choose_genome(list(matrices), genome, "matrix.mtx")]

    @contextmanager
    def opened(*bases: str) -> Iterator[Any]:
        within = [f"{folder}/{base}{gz}".lstrip("/") for base in bases for gz in ("", ".gz")]
        name = next((name for name in within if name in names), None)
        if name is None:
            raise ValueError(
                "beside matrix.mtx must lie barcodes.tsv and genes.tsv or features.tsv"
            )
        with open_file(name) as file:
            yield gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file

    with opened("features.tsv", "genes.tsv") as file:
        genes = [line.split("\t") for line in file.read().decode().splitlines()]
    with opened("barcodes.tsv") as file:
        barcodes = file.read().decode().splitlines()

    from scipy.io import mmread

    with opened("matrix.mtx") as file:
        counts = sp.csr_array(mmread(file).T)
    kinds = [gene[2] if len(gene) > 2 else feature_type for gene in genes]
    ids, symbols = [gene[0] for gene in genes], [gene[min(1, len(gene) - 1)] for gene in genes]
    return _cells_of(counts, barcodes, ids, symbols, _is_of_type(kinds, feature_type))


def _choose_genome(available: Sequence[str], wanted: str | None, what: str = "genome") -> str:
    if wanted is not None and wanted not in available:
        raise ValueError(f"genome={wanted!r} must be one of {', '.join(available) or 'none'}")
    if not available:
        raise ValueError(f"there is no {what} in it")
    if wanted is None and len(available) > 1:
        raise ValueError(f"it has several genomes; choose by genome=: {', '.join(available)}")
    return wanted if wanted is not None else available[0]


def _is_of_type(kinds: Sequence[str | None], wanted: str | None) -> NDArray[np.bool_]:
    kept = np.array([wanted in (None, kind) for kind in kinds], dtype=bool)
    if kinds and not kept.any():
        named = ", ".join(sorted({str(kind) for kind in kinds}))
        raise ValueError(f"feature_type={wanted!r} must be None or one of {named}")
    return kept


def _cells_of(
    counts: Any, barcodes: Any, gene_ids: Any, gene_names: Any, kept: Any = None
) -> CellCounts:
    """Return the features that are kept, after checking that all parts belong together."""
    if counts.shape != (len(barcodes), len(gene_ids)) or len(gene_ids) != len(gene_names):
        raise ValueError(
            f"a matrix of {counts.shape[0]} cells and {counts.shape[1]} genes has names of "
            f"{len(barcodes)} and {len(gene_ids)}"
        )
    if counts.dtype.kind not in "biuf":
        raise ValueError(f"its counts are {counts.dtype}")
    check_sparse(counts)
    if kept is not None and not kept.all():
        counts = counts[:, kept]
        gene_ids, gene_names = (list(compress(part, kept)) for part in (gene_ids, gene_names))
    return CellCounts(counts, list(barcodes), list(gene_ids), list(gene_names))


def main() -> None:
    """Read HDF5 files by the package of the command line, in a process that may crash."""
    package = sys.argv[1]
    read = _read_h5ad if package == "anndata" else _read_h5

    def answer(request: dict[str, Any], _: Arrays) -> tuple[dict[str, Any], Arrays]:
        try:
            check_contents(request["path"])
            cells = read(**request)
        except Exception as error:  # h5py raises all kinds of errors on damaged files
            raise ValueError(" ".join(_reason(error).split())[:300]) from error
        message = {**vars(cells), "shape": cells.counts.shape}
        counts = message.pop("counts")
        return message, [counts.data, counts.indices, counts.indptr]

    answer_requests(answer, lambda: import_module(package))


def _read_h5ad(path: str, **_: Any) -> CellCounts:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # files of older versions can be read
        adata = import_module("anndata").read_h5ad(path)
    if adata.X is None:
        raise ValueError("it has no X")
    if sp.issparse(adata.X):
        check_sparse(adata.X)
    names = adata.var_names.to_series()
    # A gene without an id has a missing value.
    ids = adata.var.get("gene_ids", names).astype(object).fillna("").astype(str)
    return _cells_of(sp.csr_array(adata.X), adata.obs_names.tolist(), ids, names)


def _read_h5(path: str, genome: str | None, feature_type: str | None) -> CellCounts:
    with import_module("h5py").File(path, "r") as file:

        def texts(name: str) -> list[str]:
            return [str(text) for text in group[name].asstr()[:]]

        if "matrix" in file:
            group = file["matrix"]
            ids, names = texts("features/id"), texts("features/name")
            has_types = "feature_type" in group["features"]
            kinds = texts("features/feature_type") if has_types else [feature_type] * len(ids)
            kept = _is_of_type(kinds, feature_type)
            if "genome" in group["features"]:
                genomes = np.array(texts("features/genome"))
                available = sorted(set(genomes[kept]) - {""})  # antibodies have no genome
                if genome is not None or (len(available) > 1 and feature_type is not None):
                    kept &= genomes == _choose_genome(available, genome)
        else:
            group = file[_choose_genome(list(file), genome)]
            ids, names = texts("genes"), texts("gene_names")
            kept = np.ones(len(ids), dtype=bool)
        # Genes by cells in compressed columns: the same arrays as cells by genes in rows.
        parts = tuple(group[name][:] for name in ("data", "indices", "indptr"))
        counts = sp.csr_array(parts, shape=tuple(group["shape"][:][::-1].tolist()))
        return _cells_of(counts, texts("barcodes"), ids, names, kept)
