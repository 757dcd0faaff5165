"""Sparse matrices of strangers: compiled code trusts their indices, so they are checked first."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def check_pointers(indptr: NDArray[Any], n_major: int, n_stored: int) -> None:
    """Raise ValueError unless pointers divide the stored values into rows (or columns)."""
    if indptr.ndim != 1 or indptr.dtype.kind not in "iu" or len(indptr) != n_major + 1:
        raise ValueError(
            f"its indptr is {indptr.dtype} of shape {indptr.shape}, not {n_major + 1} integers"
        )
    # Compared, not subtracted: the difference of unsigned integers is never negative.
    if indptr[0] != 0 or indptr[-1] != n_stored or (indptr[1:] < indptr[:-1]).any():
        raise ValueError(f"its indptr does not rise from 0 to the {n_stored} values stored")


def check_indices(indices: NDArray[Any], n_stored: int, n_minor: int) -> None:
    """Raise ValueError unless every index lies in the matrix."""
    if indices.ndim != 1 or indices.dtype.kind not in "iu" or len(indices) != n_stored:
        raise ValueError(
            f"its indices are {indices.dtype} of shape {indices.shape}, not {n_stored} integers"
        )
    if n_stored and not 0 <= int(indices.min()) <= int(indices.max()) < n_minor:
        wrong = int(indices.min()) if indices.min() < 0 else int(indices.max())
        raise ValueError(f"its indices hold {wrong}, not from 0 to {n_minor - 1}")


def check_sparse(matrix: Any) -> None:
    """Raise ValueError unless a CSR, CSC or COO matrix of SciPy is whole; others are not looked at.

    SciPy's own products and sums do not look: an index outside the matrix writes to memory that is
    not theirs.
    """
    if matrix.ndim != 2:
        return
    n_rows, n_columns = matrix.shape
    if matrix.format == "coo":
        for indices, size in zip(matrix.coords, matrix.shape, strict=True):
            check_indices(indices, len(matrix.data), size)
    elif matrix.format in ("csr", "csc"):
        major, minor = (n_rows, n_columns) if matrix.format == "csr" else (n_columns, n_rows)
        # SciPy keeps room behind the values that are stored.
        n_stored = int(matrix.indptr[-1]) if len(matrix.indptr) else 0
        if not n_stored <= min(len(matrix.data), len(matrix.indices)):
            raise ValueError(f"its indptr ends at {n_stored}, beyond the values stored")
        check_pointers(matrix.indptr, major, n_stored)
        check_indices(matrix.indices[:n_stored], n_stored, minor)
