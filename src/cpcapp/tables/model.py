"""The fitted model of two tables, and its file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from cpcapp._io.tensor_file import Tensors, read_tensors, write_tensors
from cpcapp.contrast.solution import Contrast
from cpcapp.inference.power import Calibration
from cpcapp.moments.rows import FloatArray
from cpcapp.tables.cleaning import MISSING_RULES
from cpcapp.tables.messages import TableError, check_choice, one_line

_FORMAT = "cpcapp-table-model"
_FORMAT_VERSION = 1
_MAX_BYTES = 2 << 30
# Powers of background rows that are read from a file; a model made here has at most 5000.
_MAX_CALIBRATION = 10_000


@dataclass(frozen=True)
class TableModel:
    r"""Filters with the names of their features, and the preparation of new rows.

    Attributes
    ----------
    features : list of str
        Names of the columns, in the order of everything below.
    contrast : Contrast
        Filters, atoms, eigenvalues and means, of features divided by their scale.
    scale : ndarray of shape (n_features,)
        Every feature of the target and of new rows is divided by it; 1 unless standardized.
    fill : ndarray of shape (n_features,)
        Replaces missing values with ``missing="mean"``.
    background_scale : ndarray of shape (n_features,), optional
        The same for the background, with which new rows are compared. None without one.
    calibration : Calibration, optional
        Powers of background rows that the filters were not made with: what p-values are ranks in.
    method : {"cpca++", "cpca", "pca"}
    standardize : {"none", "each", "background"}
    missing : {"error", "zero", "mean", "drop"}
    info : dict
        Number of rows and version it was made with; not used in computations.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from cpcapp.tables import reduce_tables
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "t.csv"
    >>> _ = path.write_text("a,b\n1,0\n3,0\n2,1\n2,-1\n0,0\n4,0\n")
    >>> model = reduce_tables(path, None, 1, method="pca").model
    >>> model.features, model.transform(np.array([[5.0, 7.0]]))
    (['a', 'b'], array([[3.]]))
    """

    features: list[str]
    contrast: Contrast
    scale: FloatArray
    fill: FloatArray
    background_scale: FloatArray | None = None
    calibration: Calibration | None = None
    method: str = "cpca++"
    standardize: str = "none"
    missing: str = "error"
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def components(self) -> FloatArray:
        """Filters in rows, in units of `scale`, of shape (n_components, n_features)."""
        return self.contrast.filters.T

    @property
    def atoms(self) -> FloatArray:
        """Atoms in rows, in units of `scale`, of shape (n_components, n_features)."""
        return self.contrast.atoms.T

    @property
    def eigenvalues(self) -> FloatArray:
        """Of each component, descending."""
        return self.contrast.eigenvalues

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.eigenvalues)

    @property
    def has_power(self) -> bool:
        """Whether the model has a background, which `power` compares with."""
        return self.background_scale is not None

    def transform(self, values: Any) -> FloatArray:
        """Return the components of rows, ``Fᵀ((x - mean) / scale)``.

        Parameters
        ----------
        values : ndarray or sparse matrix of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n, n_components)
        """
        return self.contrast.transform(divide_features(values, self.scale))

    def power(self, values: Any) -> FloatArray:
        """Return the output power of rows, ``‖Fᵀ((x - background mean) / background scale)‖²``.

        As :meth:`cpcapp.CPCAPlusPlus.power`.

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
        if self.background_scale is None:
            raise TableError(f"this model of {self.method} has no background to compare with")
        return self.contrast.power(divide_features(values, self.background_scale))

    def p_value(self, values: Any) -> FloatArray:
        """Return for each row how often background has a power as high.

        Parameters
        ----------
        values : ndarray or sparse matrix of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n,)

        Raises
        ------
        TableError
            If the model was made with fewer than 20 background rows.
        """
        if self.calibration is None:
            raise TableError("this model has too few background rows for p-values")
        return self.calibration.p_value(self.power(values))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file, which `load_model` reads.

        Parameters
        ----------
        path : path-like
        """
        header = {
            "method": self.method,
            "standardize": self.standardize,
            "missing": self.missing,
            "features": self.features,
            "facts": self.info,
        }
        found = self.contrast
        tensors = {
            "components": self.components,
            "atoms": self.atoms,
            "eigenvalues": found.eigenvalues,
            "contrast": found.contrast,
            "mean": found.mean * self.scale,
            "scale": self.scale,
            "fill": self.fill,
        }
        if self.background_scale is not None and found.background_mean is not None:
            tensors["background_mean"] = found.background_mean * self.background_scale
            tensors["background_scale"] = self.background_scale
        if self.calibration is not None:
            powers, weights = self.calibration.powers, self.calibration.weights
            tensors["powers"] = powers
            tensors["power_weights"] = np.ones(len(powers)) if weights is None else weights
        write_tensors(path, tensors, header, _FORMAT, _FORMAT_VERSION)


def bare_contrast(
    filters: FloatArray,
    atoms: FloatArray,
    eigenvalues: FloatArray,
    mean: FloatArray,
    background_mean: FloatArray | None = None,
    contrast: FloatArray | None = None,
) -> Contrast:
    """Return a contrast of which only what new rows need is known."""
    unknown = np.full(len(eigenvalues), np.nan)
    return Contrast(
        filters=filters,
        atoms=atoms,
        eigenvalues=eigenvalues,
        contrast=unknown if contrast is None else contrast,
        loading=None,
        bound=None,
        solver="",
        target_variance=np.full(len(filters), np.nan),
        explained_variance=unknown,
        mean=mean,
        background_mean=background_mean,
    )


def divide_features(values: Any, scale: FloatArray) -> Any:
    """Return rows, dense or sparse, with each feature divided by its scale."""
    if (scale == 1.0).all():
        return values
    return sp.csr_array(values.multiply(1.0 / scale)) if sp.issparse(values) else values / scale


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
    >>> from cpcapp.tables import reduce_tables
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> np.save(folder / "t.npy", np.random.default_rng(0).normal(size=(9, 2)))
    >>> reduce_tables(folder / "t.npy", None, 1, method="pca").model.save(folder / "model")
    >>> load_model(folder / "model").features
    ['x0', 'x1']
    """
    try:
        header, tensors = read_tensors(path, _FORMAT, _FORMAT_VERSION, max_bytes=_MAX_BYTES)
        return _parse(header, tensors)
    except FileNotFoundError as error:
        raise TableError(f"there is no model file {path}") from error
    except OSError as error:
        raise TableError(f"can't read the model {path}: {error.strerror or error}") from error
    except KeyError as error:
        raise TableError(f"{path} is not a model of cpcapp reduce: it has no {error}") from error
    except (ValueError, TypeError) as error:
        raise TableError(f"{path} is not a model of cpcapp reduce: {one_line(error)}") from error


# The letters are sizes: of components, features and powers.
_SHAPES = {
    **{"components": "kp", "atoms": "kp", "eigenvalues": "k"},
    **{"mean": "p", "scale": "p", "fill": "p"},
}
# Models of earlier versions have no contrast, and the last two in place of powers.
_OPTIONAL_SHAPES = {
    **{"background_mean": "p", "background_scale": "p", "contrast": "k"},
    **{"powers": "n", "power_weights": "n", "calibration": "n", "output_covariance": "kk"},
}


def _parse(header: dict[str, Any], tensors: Tensors) -> TableModel:
    names, info, missing = header["features"], header["facts"], header["missing"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its features are not a list of names")
    if len(set(names)) < len(names):
        raise ValueError("two of its features have the same name")
    check_choice("missing", missing, MISSING_RULES)
    if not isinstance(info, dict):
        raise ValueError("its facts are not a JSON object")
    _check_tensors(tensors, len(names))
    filters, atoms, scale = tensors["components"].T, tensors["atoms"].T, tensors["scale"]
    background_scale = tensors.get("background_scale")
    if (background_scale is None) != ("background_mean" not in tensors):
        raise ValueError("of background_mean and background_scale it has only one")
    with np.errstate(all="ignore"):
        points = [tensors["mean"] / scale, tensors["fill"] / scale, 1.0 / scale]
        if background_scale is not None:
            points.append(tensors["background_mean"] / background_scale)
        outputs = np.abs(points) @ np.abs(filters)
    if not np.isfinite(outputs).all():
        raise ValueError("its numbers are so large that the scores of its own mean are not finite")
    mean, background_mean = points[0], points[3] if points[3:] else None
    found = bare_contrast(
        filters, atoms, tensors["eigenvalues"], mean, background_mean, tensors.get("contrast")
    )
    return TableModel(
        names,
        found,
        scale,
        tensors["fill"],
        background_scale,
        _parse_calibration(tensors),
        method=str(header["method"]),
        standardize=str(header["standardize"]),
        missing=missing,
        info=info,
    )


def _check_tensors(tensors: Tensors, n_features: int) -> None:
    powers = tensors.get("powers", tensors.get("calibration", np.empty(0)))
    n_powers = min(powers.size, _MAX_CALIBRATION)
    sizes = {"k": len(tensors["eigenvalues"]), "p": n_features, "n": n_powers}
    given = {name: letters for name, letters in _OPTIONAL_SHAPES.items() if name in tensors}
    for name, letters in {**_SHAPES, **given}.items():
        tensor, shape = tensors[name], tuple(sizes[letter] for letter in letters)
        if tensor.dtype != np.float64 or tensor.shape != shape:
            raise ValueError(
                f"its {name} are {tensor.dtype} of shape {tensor.shape}, not float64 of {shape}"
            )
        if name != "contrast" and not np.isfinite(tensor).all():
            raise ValueError(f"its {name} must be finite")
        if name.endswith("scale") and not (tensor > 0.0).all():
            raise ValueError(f"its {name} must be above 0")


def _parse_calibration(tensors: Tensors) -> Calibration | None:
    powers, weights = tensors.get("powers"), tensors.get("power_weights")
    if "calibration" in tensors and "output_covariance" in tensors:
        # Earlier versions: as shares of the power to expect.
        powers = tensors["calibration"] * tensors["output_covariance"].trace()
    if powers is None:
        return None
    if (np.diff(powers) < 0.0).any() or (weights is not None and (weights <= 0.0).any()):
        raise ValueError("its powers must be ascending, and their weights above 0")
    return Calibration(powers, weights)
