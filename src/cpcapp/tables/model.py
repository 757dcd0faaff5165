"""The fitted model of two tables, and its file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp._io.tensor_file import read_tensors, write_tensors
from cpcapp.tables.cleaning import MISSING_RULES
from cpcapp.tables.messages import TableError, require_package

_FORMAT = "cpcapp-table-model"
_FORMAT_VERSION = 1
_MAX_BYTES = 2 << 30
# Held-out background rows whose powers are stored: p-values down to 1e-4, in 80 kB.
MAX_CALIBRATION = 10_000
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
    background_mean, background_scale : ndarray of shape (n_features,), optional
        With which background rows are prepared. None in models of the other methods, and of
        earlier versions.
    output_covariance : ndarray of shape (n_components, n_components), optional
        Covariance of the components over new background rows.
    calibration : ndarray of shape (n,), optional
        Output powers of background rows that the filters were not made with, over the power to
        expect (the trace of `output_covariance`), ascending, at most 10,000. Where it is given,
        `p_value` is a share of it; otherwise the background is taken for Gaussian.

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
    background_mean: FloatArray | None = None
    background_scale: FloatArray | None = None
    output_covariance: FloatArray | None = None
    calibration: FloatArray | None = None

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

    @property
    def has_power(self) -> bool:
        """Whether the model has what `power` and `p_value` need."""
        return self.output_covariance is not None

    def power(self, values: Any) -> FloatArray:
        """Return the output power of rows, ``‖Fᵀ((x - background mean) / background scale)‖²``.

        Background rows have a power of about `n_components`, as with
        :meth:`cpcapp.CPCAPlusPlus.power`.

        Parameters
        ----------
        values : ndarray or sparse matrix of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n,)

        Raises
        ------
        TableError
            If the model has no background: see `has_power`.
        """
        if self.background_mean is None or self.background_scale is None:
            raise TableError(f"this model of {self.method} has no background to compare with")
        outputs = compute_scores(
            values, self.components, self.background_mean, self.background_scale
        )
        return np.asarray(np.einsum("ij,ij->i", outputs, outputs))

    def p_value(self, values: Any) -> FloatArray:
        """Return for each row how likely background is to have a power as high.

        Parameters
        ----------
        values : ndarray or sparse matrix of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n,)
        """
        return self.power_p_value(self.power(values))

    def power_p_value(self, power: FloatArray) -> FloatArray:
        """Return the p-values of powers, as `p_value` does for rows.

        Parameters
        ----------
        power : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (n,)
        """
        assert self.output_covariance is not None
        if self.calibration is not None:
            relative = power / self.output_covariance.trace()
            n_below = np.searchsorted(self.calibration, relative, side="left")
            # The row itself is counted as one more of the background: never 0, and exact for
            # rows that are exchangeable with the held-out ones.
            n = len(self.calibration)
            return np.asarray((n - n_below + 1.0) / (n + 1.0))
        # Here, because it takes scipy.stats, which is slow to import.
        from cpcapp.inference.glrt import power_p_value

        return power_p_value(power, self.output_covariance)

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
        optional = {name: getattr(self, name) for name in _OPTIONAL_SHAPES}
        tensors |= {name: tensor for name, tensor in optional.items() if tensor is not None}
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
        arrays: dict[str, Any] = {name: tensors[name] for name in _SHAPES}
        arrays |= {name: tensors.get(name) for name in _OPTIONAL_SHAPES}
        model = TableModel(
            header["features"],
            **arrays,
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


# Squares of what is in the other tensors.
_SQUARES = ("eigenvalues", "output_covariance", "calibration")
_SHAPES = {
    "components": ("k", "p"),
    "atoms": ("k", "p"),
    "eigenvalues": ("k",),
    "mean": ("p",),
    "scale": ("p",),
    "fill": ("p",),
}
# Models of earlier versions have none of these, and older versions do not look at them: the
# format is the same.
_OPTIONAL_SHAPES = {
    "background_mean": ("p",),
    "background_scale": ("p",),
    "output_covariance": ("k", "k"),
    "calibration": ("n",),
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
    sizes["n"] = 0 if model.calibration is None else min(model.calibration.size, MAX_CALIBRATION)
    given = {name: letters for name, letters in _OPTIONAL_SHAPES.items() if name in _given(model)}
    for name, letters in {**_SHAPES, **given}.items():
        tensor, shape = getattr(model, name), tuple(sizes[letter] for letter in letters)
        if tensor.dtype != np.float64 or tensor.shape != shape:
            raise ValueError(
                f"its {name} are {tensor.dtype} of shape {tensor.shape}, not float64 of {shape}"
            )
        if not np.isfinite(tensor).all():
            raise ValueError(f"its {name} must be finite")
        if name not in _SQUARES and not (np.abs(tensor) <= _MAX_NUMBER).all():
            raise ValueError(f"its {name} must lie within ±{_MAX_NUMBER:g}")
    for name in ("scale", "background_scale"):
        scale = getattr(model, name)
        if scale is not None and not (scale >= 1.0 / _MAX_NUMBER).all():
            raise ValueError(f"its {name} must be at least {1.0 / _MAX_NUMBER:g}")
    _check_background(model)
    with np.errstate(over="ignore", invalid="ignore"):
        filters = np.abs(model.components) / model.scale
        sums = [filters @ np.abs(model.mean), filters @ np.abs(model.fill)]
    if not np.isfinite([filters.sum(), *(part.sum() for part in sums)]).all():
        raise ValueError("its numbers are so large that the scores of its own mean are not finite")


def _given(model: TableModel) -> set[str]:
    """Return which of the optional tensors a model has."""
    return {name for name in _OPTIONAL_SHAPES if getattr(model, name) is not None}


def _check_background(model: TableModel) -> None:
    given = _given(model)
    needed = {"background_mean", "background_scale", "output_covariance"}
    if given and not needed <= given:
        raise ValueError(f"it has {', '.join(sorted(given))}, but no {min(needed - given)}")
    if model.output_covariance is not None and not model.output_covariance.trace() > 0.0:
        raise ValueError("its output_covariance must have a positive trace")
    if model.calibration is not None and (np.diff(model.calibration) < 0.0).any():
        raise ValueError("its calibration must be ascending")
