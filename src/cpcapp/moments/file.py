"""Files of moments: NumPy archives without pickles, checked before anything is computed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp._io.files import atomic_write
from cpcapp._io.npy_files import read_npz
from cpcapp.moments.sparse import check_indices, check_pointers

FloatArray = NDArray[np.float64]

_PLAIN = "cpcapp-moments-1"
# With weights, which readers of the first format would not see.
_WEIGHTED = "cpcapp-moments-2"
# Up to here every count is a float64 exactly.
_MOST_SAMPLES = 1 << 53


@dataclass
class Content:
    """What a file of moments holds."""

    form: str
    weights: tuple[float, float]  # Σw and Σw²
    mean: FloatArray
    mean_low: FloatArray
    rounding: FloatArray | None
    scatter: FloatArray | None = None
    rows: list[Any] = field(default_factory=list)
    row_weights: list[FloatArray | None] = field(default_factory=list)


def write(
    path: str | os.PathLike[str],
    content: dict[str, Any],
    weights: tuple[float, float] | None,
    rows: Sequence[Any] = (),
    row_weights: Sequence[FloatArray | None] = (),
) -> None:
    """Write moments, with rows or with a scatter matrix in ``content``."""
    content["format"] = np.array(_PLAIN if weights is None else _WEIGHTED)
    if weights is not None:
        content["weights"] = np.array(weights)
    if any(sp.issparse(block) for block in rows):
        stacked = sp.vstack([sp.csr_array(block) for block in rows], format="csr")
        content |= {"data": stacked.data, "indices": stacked.indices, "indptr": stacked.indptr}
    elif rows:
        content["rows"] = np.concatenate(rows)
    if rows and weights is not None:
        content["row_weights"] = np.concatenate(
            [
                np.ones(block.shape[0]) if its is None else its
                for block, its in zip(rows, row_weights, strict=True)
            ]
        )
    with atomic_write(path) as file:
        np.savez(file, **content)


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[Content]:
    """Give the content of a file; any error names the file and says what is wrong with it."""
    try:
        yield _read(path)
    except KeyError as error:
        raise ValueError(f"{path} is not a whole file of moments: no {error}") from error
    except FileNotFoundError:
        raise
    except (ValueError, OSError, OverflowError) as error:
        raise ValueError(f"{path} is not a whole file of moments: {error}") from error


def _read(path: str | os.PathLike[str]) -> Content:
    content = read_npz(path)
    kind = _scalar(content, "format", "U")
    if kind not in (_PLAIN, _WEIGHTED):
        raise ValueError(f"its format is not {_PLAIN} or {_WEIGHTED}")
    form = str(_scalar(content, "form", "U"))
    n = int(_scalar(content, "n_samples", "iu"))
    if not 1 <= n <= _MOST_SAMPLES:
        raise ValueError(f"n_samples={n} must be between 1 and {_MOST_SAMPLES}")
    weights = _weights(content) if kind == _WEIGHTED else (float(n), float(n))
    mean = _floats(content, "mean", (-1,))
    m = len(mean)
    found = Content(
        form,
        weights,
        mean,
        _floats(content, "mean_low", (m,)) if "mean_low" in content else np.zeros(m),
        _floats(content, "rounding", (m,)) if "rounding" in content else None,
    )
    if "scatter" in content:
        found.scatter = np.asfortranarray(_floats(content, "scatter", (m, m)))
        if (found.scatter.diagonal() < 0.0).any():
            raise ValueError("its scatter has a variance below 0")
        return found
    if kind == _WEIGHTED:
        its = _floats(content, "row_weights", (-1,))
        if not (its > 0.0).all():
            raise ValueError("its row_weights are not all above 0")
        n, found.row_weights = len(its), [its]
    else:
        found.row_weights = [None]
    if "rows" in content:
        found.rows = [_floats(content, "rows", (n, m))]
    else:
        found.rows = [_sparse_rows(content, n, m)]
    return found


def _weights(content: dict[str, NDArray[Any]]) -> tuple[float, float]:
    total, squared = _floats(content, "weights", (2,))
    if not (total > 0.0 and squared > 0.0):
        raise ValueError(f"its weights add up to {total:g} and {squared:g}, not above 0")
    with np.errstate(over="ignore"):
        effective = total / squared * total  # Kish's number of samples
    if not effective <= _MOST_SAMPLES:
        raise ValueError(f"its weights, {total:g} and squared {squared:g}, are of no samples")
    return float(total), float(squared)


def _scalar(content: dict[str, NDArray[Any]], name: str, kinds: str) -> Any:
    value = content[name]
    if value.shape != () or value.dtype.kind not in kinds:
        raise ValueError(f"its {name} is {value.dtype} of shape {value.shape}")
    return value[()]


def _floats(
    content: dict[str, NDArray[Any]], name: str, shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return an array of finite float64 of a shape; -1 stands for any length."""
    value = content[name]
    fits = value.ndim == len(shape) and all(
        size in (-1, found) for size, found in zip(shape, value.shape, strict=True)
    )
    if value.dtype != np.float64 or not fits:
        raise ValueError(
            f"its arrays do not fit together: its {name} is {value.dtype} of shape "
            f"{value.shape}, not float64 of {shape}"
        )
    if not np.isfinite(value).all():
        raise ValueError("it holds NaN or infinity")
    return value.astype(np.float64, copy=False)  # in the byte order of this machine


def _sparse_rows(content: dict[str, NDArray[Any]], n: int, m: int) -> Any:
    data, indices, indptr = _floats(content, "data", (-1,)), content["indices"], content["indptr"]
    check_pointers(indptr, n, len(data))
    check_indices(indices, len(data), m)
    rows = sp.csr_array((data, indices, indptr), shape=(n, m))
    rows.sum_duplicates()
    return rows
