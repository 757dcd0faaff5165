"""The fitted model of two tables, and its file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp._tensor_files import read_tensors, write_tensors
from cpcapp.tables.cleaning import MISSING_RULES
from cpcapp.tables.messages import TableError, require_package

_FORMAT = "cpcapp-table-model"
_FORMAT_VERSION = 1
_MAX_BYTES = 2 << 30
# Features may have standard deviations from 1e-150 to 1e150. Eigenvalues can be their squares.
_MAX_NUMBER = 1e160

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class TableModel:
    """Filters with the names of their features, and the preparation of new rows.

    Attributes
    ----------
    features : list of str
        Names of the columns, in the order of everything below.
    components, atoms : ndarray of shape (n_components, n_features)
        In units of `scale`.
    eigenvalues : ndarray of shape (n_components,)
    mean : ndarray of shape (n_features,)
        Of the target, subtracted from every row.
    scale : ndarray of shape (n_features,)
        Every feature is divided by it; 1 unless standardized.
    fill : ndarray of shape (n_features,)
        Replaces missing values with ``missing="mean"``.
    method : {"cpca++", "cpca", "pca"}
    standardize : {"none", "each", "background"}
    missing : {"error", "zero", "mean", "drop"}
    info : dict
        Number of rows and version it was made with; not used in computations.

    Examples
    --------
    >>> import numpy as np
    >>> one, two = np.ones(2), np.full(2, 2.0)
    >>> model = TableModel(["a", "b"], np.eye(2)[:1], np.eye(2)[:1], one[:1], one, two, one)
    >>> model.transform(np.array([[5.0, 7.0]]))
    array([[2.]])
    """

    features: list[str]
    components: FloatArray
    atoms: FloatArray
    eigenvalues: FloatArray
    mean: FloatArray
    scale: FloatArray
    fill: FloatArray
    method: str = "cpca++"
    standardize: str = "none"
    missing: str = "error"
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.components)

    def transform(self, values: Any) -> FloatArray:
        """Return the components of rows, ``Fᵀ((x - mean) / scale)``.

        Parameters
        ----------
        values : ndarray or sparse matrix of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n, n_components)
        """
        return compute_scores(values, self.components, self.mean, self.scale)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file, which `load_model` reads.

        Parameters
        ----------
        path : path-like
        """
        require_package("safetensors", "tables")
        header = {
            "method": self.method,
            "standardize": self.standardize,
            "missing": self.missing,
            "features": self.features,
            "facts": self.info,
        }
        tensors = {
            "components": self.components,
            "atoms": self.atoms,
            "eigenvalues": self.eigenvalues,
            "mean": self.mean,
            "scale": self.scale,
            "fill": self.fill,
        }
        write_tensors(path, tensors, header, _FORMAT, _FORMAT_VERSION)


def compute_scores(
    values: Any, components: FloatArray, mean: FloatArray, scale: FloatArray
) -> FloatArray:
    """Return ``Fᵀ((x - mean) / scale)`` for rows, dense or sparse."""
    filters = (components / scale).T
    if sp.issparse(values):
        return np.asarray(values @ filters) - mean @ filters
    return np.asarray((values - mean) @ filters)


def load_model(path: str | os.PathLike[str]) -> TableModel:
    """Read and check a model file, as `write_results` and ``cpcapp reduce`` write it.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    TableModel

    Raises
    ------
    TableError
        If the file is damaged or of another kind.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> row, one = np.ones((1, 2)), np.ones(2)
    >>> TableModel(["a", "b"], row, row, one[:1], one, one, one).save(path)
    >>> load_model(path).features
    ['a', 'b']
    """
    require_package("safetensors", "tables")
    try:
        header, tensors = read_tensors(path, _FORMAT, _FORMAT_VERSION, max_bytes=_MAX_BYTES)
        model = TableModel(
            header["features"],
            **{name: tensors[name] for name in _SHAPES},
            method=str(header["method"]),
            standardize=str(header["standardize"]),
            missing=header["missing"],
            info=header["facts"],
        )
        _check(model)
        return model
    except FileNotFoundError as error:
        raise TableError(f"there is no model file {path}") from error
    except OSError as error:
        raise TableError(f"can't read the model {path}: {error.strerror or error}") from error
    except KeyError as error:
        raise TableError(f"{path} is not a model of cpcapp reduce: it has no {error}") from error
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise TableError(f"{path} is not a model of cpcapp reduce: {reason}") from error


_SHAPES = {
    "components": ("k", "p"),
    "atoms": ("k", "p"),
    "eigenvalues": ("k",),
    "mean": ("p",),
    "scale": ("p",),
    "fill": ("p",),
}


def _check(model: TableModel) -> None:
    names: Any = model.features
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its features are not a list of names")
    if len(set(names)) < len(names):
        raise ValueError("two of its features have the same name")
    if model.missing not in MISSING_RULES:
        raise ValueError(f"missing={model.missing!r} must be one of {', '.join(MISSING_RULES)}")
    if not isinstance(model.info, dict):
        raise ValueError("its facts are not a JSON object")
    sizes = {"k": len(model.eigenvalues), "p": len(names)}
    for name, letters in _SHAPES.items():
        tensor, shape = getattr(model, name), tuple(sizes[letter] for letter in letters)
        if tensor.dtype != np.float64 or tensor.shape != shape:
            raise ValueError(
                f"its {name} are {tensor.dtype} of shape {tensor.shape}, not float64 of {shape}"
            )
        if not np.isfinite(tensor).all():
            raise ValueError(f"its {name} must be finite")
        if name != "eigenvalues" and not (np.abs(tensor) <= _MAX_NUMBER).all():
            raise ValueError(f"its {name} must lie within ±{_MAX_NUMBER:g}")
    if not (model.scale >= 1.0 / _MAX_NUMBER).all():
        raise ValueError(f"its scale must be at least {1.0 / _MAX_NUMBER:g}")
    with np.errstate(over="ignore", invalid="ignore"):
        filters = np.abs(model.components) / model.scale
        sums = [filters @ np.abs(model.mean), filters @ np.abs(model.fill)]
    if not np.isfinite([filters.sum(), *(part.sum() for part in sums)]).all():
        raise ValueError("its numbers are so large that the scores of its own mean are not finite")
