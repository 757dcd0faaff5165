"""Reading counts of genes in cells: the formats of 10x Genomics and AnnData, kept sparse."""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp._io.hdf5 import Hdf5Process, check_contents
from cpcapp._io.worker import Arrays, answer_requests
from cpcapp.datasets._fetch import DataNotFoundError, PathLike, import_extra
from cpcapp.moments.sparse import check_indices, check_pointers

_MEX_PARTS = ("matrix.mtx", "genes.tsv", "features.tsv", "barcodes.tsv")
_TAR_SUFFIXES = (".tar.gz", ".tgz", ".tar")
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

    The last two need h5py: ``pip install 'cpcapp[datasets]'``. They are read by a process of its
    own, with limits on time and memory, because HDF5 may crash or never end on a damaged file.

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
        if path.is_dir():
            names = [found.relative_to(path).as_posix() for found in sorted(path.rglob("*"))]
            return _from_mex(names, lambda name: (path / name).open("rb"), genome, feature_type)
        if path.name.endswith(_TAR_SUFFIXES):
            with tarfile.open(path) as archive:
                names = [member.name for member in archive if member.isfile()]
                return _from_mex(names, lambda name: _member(archive, name), genome, feature_type)
        if path.suffix in (".h5ad", ".h5", ".hdf5"):
            import_extra("h5py", f"reading {path.suffix}")
            return _ask_for_hdf5(path, genome, feature_type)
    except ImportError:
        raise
    except (*_BROKEN, tarfile.TarError) as error:
        raise ValueError(f"{path} can't be read: {_said(error)}") from error
    raise ValueError(f"{path} must be a folder or end in .tar.gz, .h5 or .h5ad")


def _said(error: BaseException) -> str:
    missing = re.search(r"object '(.+)' doesn't exist", str(error))  # by h5py
    return f"it has no {missing[1]}" if missing else str(error) or type(error).__name__


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is not a file")
    return file


def _from_mex(
    names: Iterable[str],
    opened: Callable[[str], IO[bytes]],
    genome: str | None,
    feature_type: str | None,
) -> CellCounts:
    folders: dict[str, dict[str, str]] = {}
    for name in names:
        folder, _, base = name.rpartition("/")
        if base.removesuffix(".gz") in _MEX_PARTS:
            folders.setdefault(folder, {})[base.removesuffix(".gz")] = name
    with_matrix = {
        folder.rpartition("/")[2]: f for folder, f in folders.items() if _MEX_PARTS[0] in f
    }
    files = with_matrix[_the_one(list(with_matrix), genome, "a matrix.mtx")]
    table = files.get("features.tsv") or files.get("genes.tsv")
    if table is None or "barcodes.tsv" not in files:
        raise ValueError("beside matrix.mtx must lie barcodes.tsv and genes.tsv or features.tsv")
    genes = [line.split("\t") for line in _lines(opened, table)]
    barcodes = _lines(opened, files["barcodes.tsv"])

    from scipy.io import mmread

    with _open_part(opened, files["matrix.mtx"]) as file:
        matrix = mmread(file)
    return _kept(
        sp.csr_array(matrix.T),
        barcodes,
        [gene[0] for gene in genes],
        [gene[1] if len(gene) > 1 else gene[0] for gene in genes],
        _of_type([gene[2] if len(gene) > 2 else feature_type for gene in genes], feature_type),
    )


@contextmanager
def _open_part(opened: Callable[[str], IO[bytes]], name: str) -> Iterator[IO[bytes]]:
    with opened(name) as file:
        yield gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file  # type: ignore[misc]


def _lines(opened: Callable[[str], IO[bytes]], name: str) -> list[str]:
    with _open_part(opened, name) as file:
        return file.read().decode().splitlines()


def _the_one(found: Sequence[str], wanted: str | None, what: str) -> str:
    if wanted is not None and wanted not in found:
        raise ValueError(f"genome={wanted!r} must be one of {', '.join(found) or 'none'}")
    if not found:
        raise ValueError(f"there is no {what.removeprefix('a ')} in it")
    if wanted is None and len(found) > 1:
        raise ValueError(f"it has several genomes; choose by genome=: {', '.join(found)}")
    return wanted if wanted is not None else found[0]


def _of_type(kinds: Sequence[str | None], wanted: str | None) -> NDArray[np.bool_]:
    """Return which features are of a type; where a file tells none, all are of the wanted one."""
    kept = np.array([wanted in (None, kind) for kind in kinds], dtype=bool)
    if kinds and not kept.any():
        there = ", ".join(sorted({str(kind) for kind in kinds}))
        raise ValueError(f"feature_type={wanted!r} must be None or one of {there}")
    return kept


def _kept(
    counts: Any,
    barcodes: list[str],
    gene_ids: list[str],
    gene_names: list[str],
    kept: NDArray[np.bool_],
) -> CellCounts:
    """Drop the features that are not kept, after checking that all parts belong together."""
    if counts.shape != (len(barcodes), len(gene_ids)) or len(gene_ids) != len(gene_names):
        raise ValueError(
            f"a matrix of {counts.shape[0]} cells and {counts.shape[1]} genes has names of "
            f"{len(barcodes)} and {len(gene_ids)}"
        )
    if not kept.all():
        chosen = np.flatnonzero(kept)
        counts = counts[:, chosen]
        gene_ids, gene_names = ([names[i] for i in chosen] for names in (gene_ids, gene_names))
    return CellCounts(counts, barcodes, gene_ids, gene_names)


def _texts(dataset: Any) -> list[str]:
    return [text.decode() if isinstance(text, bytes) else str(text) for text in dataset[:]]


def _sparse_matrix(group: Any, shape: Any, by_columns: bool = False) -> Any:
    make = sp.csc_array if by_columns else sp.csr_array
    n_rows, n_columns = (int(size) for size in shape)
    data, indices, indptr = (group[name][:] for name in ("data", "indices", "indptr"))
    if data.ndim != 1 or data.dtype.kind not in "biuf":
        raise ValueError(f"its data is {data.dtype} of shape {data.shape}")
    check_pointers(indptr, n_columns if by_columns else n_rows, len(data))
    check_indices(indices, len(data), n_rows if by_columns else n_columns)
    return sp.csr_array(make((data, indices, indptr), shape=(n_rows, n_columns)))


def _ask_for_hdf5(path: Path, genome: str | None, feature_type: str | None) -> CellCounts:
    request = {"path": str(path.absolute()), "genome": genome, "feature_type": feature_type}
    message, arrays = Hdf5Process(__name__, path).ask(request)
    counts = sp.csr_array(tuple(arrays), shape=tuple(message.pop("shape")))
    return CellCounts(counts, **message)


def main() -> None:
    """Answer requests for HDF5 files, in a process of its own, which may crash."""
    answer_requests(_read_hdf5, lambda: import_module("h5py"))


def _read_hdf5(request: dict[str, Any], _: Arrays) -> tuple[dict[str, Any], Arrays]:
    path = Path(request["path"])
    try:
        check_contents(str(path))
        if path.suffix == ".h5ad":
            cells = _from_h5ad(path)
        else:
            cells = _from_h5(path, request["genome"], request["feature_type"])
    except Exception as error:  # h5py raises all kinds of errors on damaged files
        raise ValueError(" ".join(_said(error).split())[:300]) from error
    message = {**vars(cells), "shape": cells.counts.shape}
    counts = message.pop("counts")
    return message, [counts.data, counts.indices, counts.indptr]


def _from_h5(path: Path, genome: str | None, feature_type: str | None) -> CellCounts:
    h5py: Any = import_module("h5py")
    with h5py.File(path, "r") as file:
        if "matrix" in file:
            group = file["matrix"]
            features = group["features"]
            ids, names = _texts(features["id"]), _texts(features["name"])
            has_types = "feature_type" in features
            kinds = _texts(features["feature_type"]) if has_types else [feature_type] * len(ids)
            kept = _of_type(kinds, feature_type)
            if "genome" in features:
                genomes = np.array(_texts(features["genome"]))
                # Antibodies and the like have no genome.
                there = sorted(set(genomes[kept]) - {""})
                if genome is not None or (len(there) > 1 and feature_type is not None):
                    kept &= genomes == _the_one(there, genome, "a genome")
        else:
            group = file[_the_one(list(file), genome, "a genome")]
            ids, names = _texts(group["genes"]), _texts(group["gene_names"])
            kept = np.ones(len(ids), dtype=bool)
        # Genes by cells in compressed columns: the same arrays as cells by genes in rows.
        counts = _sparse_matrix(group, group["shape"][:][::-1])
        return _kept(counts, _texts(group["barcodes"]), ids, names, kept)


def _from_h5ad(path: Path) -> CellCounts:
    h5py: Any = import_module("h5py")
    with h5py.File(path, "r") as file:
        matrix = file["X"]
        if isinstance(matrix, h5py.Dataset):
            counts = sp.csr_array(matrix[:])
        else:
            attributes = matrix.attrs
            old = "h5sparse_format" in attributes
            layout = attributes["h5sparse_format" if old else "encoding-type"]
            shape = attributes["h5sparse_shape" if old else "shape"]
            counts = _sparse_matrix(matrix, shape, by_columns=str(layout).startswith("csc"))
        barcodes, names = _index(file["obs"]), _index(file["var"])
        ids = _column(file["var"], "gene_ids") or names
        return _kept(counts, barcodes, ids, names, np.ones(len(ids), dtype=bool))


def _index(table: Any) -> list[str]:
    """Return the names of the rows of a table, which old files keep as one compound array."""
    if hasattr(table, "dtype"):
        name = "index" if "index" in table.dtype.names else "_index"
        return _texts(table[name])
    index: str = table.attrs["_index"]
    return _column(table, index) or []


def _column(table: Any, name: str) -> list[str] | None:
    if hasattr(table, "dtype"):
        return _texts(table[name]) if name in table.dtype.names else None
    if name not in table:
        return None
    column = table[name]
    if hasattr(column, "dtype"):
        return _texts(column)
    if "values" in column:  # nullable strings
        return _texts(column["values"])
    categories = _texts(column["categories"])
    # A code below 0 stands for no name.
    return [categories[code] if code >= 0 else "" for code in column["codes"][:]]
