"""Files of moments: arrays with a JSON header, checked before anything is computed."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from cpcapp._io.tensor_file import Tensors, read_tensors, write_tensors
from cpcapp.moments.rows import FloatArray
from cpcapp.moments.sparse import check_indices, check_pointers

_KIND, _VERSION = "cpcapp-moments", 3
# What a file of moments holds: the form, Σw and Σw², and arrays: "mean", "mean_low", perhaps
# "rounding", and either "scatter" or "rows" (an array or a CSR matrix), perhaps with "row_weights".
Content = tuple[str, tuple[float, float], dict[str, Any]]
# Up to here every count is a float64 exactly.
_MOST_SAMPLES = 1 << 53


def write(
    path: str | os.PathLike[str], form: str, weights: tuple[float, float], arrays: dict[str, Any]
) -> None:
    """Write moments; sparse rows as the three arrays that they are made of."""
    if sp.issparse(rows := arrays.get("rows")):
        arrays = arrays | {name: getattr(rows, name) for name in ("data", "indices", "indptr")}
        del arrays["rows"]
    header = {"form": form, "weights": list(weights), "crc32": _checksum(arrays)}
    write_tensors(path, arrays, header, _KIND, _VERSION)


def read(path: str | os.PathLike[str]) -> Content:
    """Return the content of a file; any error names the file and says what is wrong with it."""
    try:
        max_bytes = Path(path).stat().st_size
        header, arrays = read_tensors(path, _KIND, _VERSION, max_bytes=max_bytes)
        content = _check(header, arrays)
        if header["crc32"] != _checksum(arrays):
            raise ValueError("its values are not those that were written")
        return content
    except FileNotFoundError:
        raise
    except (ValueError, TypeError, KeyError, OSError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} is not a whole file of moments: {reason}") from error


def _checksum(arrays: Tensors) -> int:
    """Return the CRC of all values, by which a byte that was flipped on disk is noticed."""
    crc = 0
    for name in sorted(arrays):
        crc = zlib.crc32(np.ascontiguousarray(arrays[name]).data, crc)
    return crc


def _check(header: dict[str, Any], arrays: Tensors) -> Content:
    """Return what fits together, or raise an error that says what does not."""
    form, (total, squared) = str(header["form"]), map(float, header["weights"])
    if form not in ("auto", "scatter"):
        raise ValueError(f"its form is {form!r}")
    with np.errstate(over="ignore"):
        effective = total / squared * total if total > 0.0 and squared > 0.0 else 0.0
    if not 0.0 < effective <= _MOST_SAMPLES:
        raise ValueError(f"its weights add up to {total:g}, and squared to {squared:g}")
    m = len(_floats(arrays, "mean", (-1,)))
    content: dict[str, Any] = {}
    for name in ("mean", "mean_low", *({"rounding"} & arrays.keys())):
        content[name] = _floats(arrays, name, (m,))
    if "scatter" in arrays:
        content["scatter"] = scatter = np.asfortranarray(_floats(arrays, "scatter", (m, m)))
        if (scatter.diagonal() < 0.0).any():
            raise ValueError("its scatter has a variance below 0")
        return form, (total, squared), content
    if "rows" in arrays:
        content["rows"] = _floats(arrays, "rows", (-1, m))
    else:
        data, indices, indptr = _floats(arrays, "data", (-1,)), arrays["indices"], arrays["indptr"]
        check_pointers(indptr, len(indptr) - 1, len(data))
        check_indices(indices, len(data), m)
        content["rows"] = sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, m))
        content["rows"].sum_duplicates()
    if "row_weights" in arrays:
        n = content["rows"].shape[0]
        content["row_weights"] = weights = _floats(arrays, "row_weights", (n,))
        if not (weights > 0.0).all():
            raise ValueError("its row_weights are not all above 0")
    return form, (total, squared), content


def _floats(arrays: Tensors, name: str, shape: tuple[int, ...]) -> FloatArray:
    """Return an array of finite float64 of a shape; -1 stands for any length from 1."""
    value = arrays[name]
    fits = value.size > 0 and len(shape) == value.ndim
    fits = fits and all(size in (-1, n) for size, n in zip(shape, value.shape, strict=True))
    if value.dtype != np.float64 or not fits:
        raise ValueError(f"its {name} is {value.dtype} of {value.shape}, not float64 of {shape}")
    if not np.isfinite(value).all():
        raise ValueError(f"its {name} holds NaN or infinity")
    return value
