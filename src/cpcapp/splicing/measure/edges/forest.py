"""A forest of structured trees, and its two file formats.

Our own format is safetensors, compressed with gzip, which is read in a tenth of a second. OpenCV's
YAML takes seconds. It is for those who want to run a forest with OpenCV itself.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.files import atomic_write
from cpcapp.splicing.measure.edges.features import EdgeOptions

# More than any real forest needs. It limits the memory that a hostile file can use.
_MAX_BYTES = 1 << 30
_LISTS = {
    "childs": np.int32,
    "featureIds": np.int32,
    "thresholds": np.float32,
    "edgeBoundaries": np.int32,
    "edgeBins": np.int32,
}
_INTEGERS = [name for name, dtype in _LISTS.items() if dtype is np.int32]
_FORMAT = "cpcapp-edge-forest"
_FORMAT_VERSION = 1


class ForestError(ValueError):
    """A file is not a forest that can be run."""


@dataclass(frozen=True)
class Forest:
    """Trees of equal size, one after the other.

    Attributes
    ----------
    options : EdgeOptions
    childs : ndarray of shape (n_trees, n_nodes), int32
        0 for a leaf, else the number of the left child within its tree plus 1; the right child
        follows the left one.
    featureIds : ndarray of shape (n_trees, n_nodes), int32
    thresholds : ndarray of shape (n_trees, n_nodes), float32
        A patch goes left if the feature is below.
    edgeBoundaries : ndarray of shape (n_trees * n_nodes + 1,), int32
        Where in ``edgeBins`` the edge pixels of each node begin.
    edgeBins : ndarray, int32
        Edge pixels of the leaves: ``column * side + row``.
    """

    options: EdgeOptions
    childs: NDArray[np.int32]
    featureIds: NDArray[np.int32]  # noqa: N815
    thresholds: NDArray[np.float32]
    edgeBoundaries: NDArray[np.int32]  # noqa: N815
    edgeBins: NDArray[np.int32]  # noqa: N815

    def __post_init__(self) -> None:
        _check(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file, in OpenCV's YAML if its name ends in ``.yml`` or ``.yml.gz``.

        With ``.gz`` it is compressed.
        """
        path = Path(path)
        yaml = path.name.lower().removesuffix(".gz").endswith((".yml", ".yaml"))
        data = _to_yaml(self).encode() if yaml else _to_tensors(self)
        if path.suffix.lower() == ".gz":
            data = gzip.compress(data, compresslevel=9, mtime=0)
        with atomic_write(path) as file:
            file.write(data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Forest:
        """Read a forest and check that it is safe to run."""
        raw = Path(path).read_bytes()
        try:
            if raw[:2] == b"\x1f\x8b":
                raw = _unzip(raw)
            if raw.startswith(b"%YAML"):
                return _from_yaml(raw.decode("utf-8"))
            return _from_tensors(raw)
        except (ForestError, UnicodeDecodeError, zlib.error, EOFError, OSError) as error:
            raise ForestError(f"{path} is not a forest of edges: {error}") from error


def _unzip(raw: bytes) -> bytes:
    engine = zlib.decompressobj(wbits=31)
    text = engine.decompress(raw, _MAX_BYTES)
    if engine.unconsumed_tail:
        raise ForestError("it unpacks to more than 1 GiB")
    if not engine.eof:
        raise ForestError("it ends too early")
    return text


def _to_tensors(forest: Forest) -> bytes:
    from safetensors.numpy import save

    header = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "options": asdict(forest.options),
    }
    arrays = {name: getattr(forest, name) for name in _LISTS}
    # The number of edge pixels of a node is small; the position of the first is not.
    arrays["edgeBoundaries"] = np.diff(forest.edgeBoundaries)
    arrays["edgeBins"] = forest.edgeBins[: forest.edgeBoundaries[-1]]
    # Feature and threshold of a leaf are never used.
    questions = forest.childs != 0
    arrays["featureIds"] = np.where(questions, forest.featureIds, 0)
    arrays["thresholds"] = np.where(questions, forest.thresholds, np.float32(0))
    tensors = {name: np.ascontiguousarray(_small(values)) for name, values in arrays.items()}
    return bytes(save(tensors, metadata={"cpcapp": json.dumps(header)}))


def _small(values: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers in the smallest type that holds them."""
    if values.dtype.kind == "f":
        return values
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def _from_tensors(raw: bytes) -> Forest:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    length = int.from_bytes(raw[:8], "little")
    try:
        header = json.loads(json.loads(raw[8 : 8 + length])["__metadata__"]["cpcapp"])
        found, version = header["format"], header["format_version"]
        tensors = load(raw)
        options = EdgeOptions(**header["options"])
        arrays = {name: tensors[name] for name in _LISTS}
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ForestError("it is neither OpenCV's YAML nor a file of this package") from error
    if (found, version) != (_FORMAT, _FORMAT_VERSION):
        raise ForestError(f"its format is {found!r} of version {version!r}")
    if any(type(value) is not int for value in asdict(options).values()):
        raise ForestError("its options are not whole numbers")
    for name, dtype in _LISTS.items():
        kind = arrays[name].dtype.kind
        if kind != ("f" if dtype is np.float32 else "u"):
            raise ForestError(f"its {name} are of the type {arrays[name].dtype}")
    counts = arrays["edgeBoundaries"].ravel()
    # Each fits in 32 bits if all of them together do.
    total = counts.sum(dtype=np.float64)
    if max(total, *(arrays[name].max(initial=0) for name in _INTEGERS)) > np.iinfo(np.int32).max:
        raise ForestError("it holds a number out of range")
    arrays["edgeBoundaries"] = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    converted: dict[str, Any] = {name: arrays[name].astype(_LISTS[name]) for name in _LISTS}
    return Forest(options, **converted)


def _to_yaml(forest: Forest) -> str:
    lines = ["%YAML:1.0", "---", "options:"]
    lines += [f"   {f.name}: {getattr(forest.options, f.name)}" for f in fields(EdgeOptions)]
    for name in _LISTS:
        values = getattr(forest, name)
        lines.append(f"{name}:")
        for row in np.atleast_2d(values):
            lines.append("   - [ " + _wrap(row) + " ]")
    return "\n".join(lines) + "\n"


def _wrap(row: NDArray[Any], per_line: int = 20) -> str:
    if row.dtype.kind == "f":
        words = row.astype(str).tolist()  # the fewest digits that give the float32 back
    else:
        words = [str(value) for value in row.tolist()]
    chunks = [words[i : i + per_line] for i in range(0, len(words), per_line)]
    return ",\n       ".join(", ".join(chunk) for chunk in chunks)


_OPTION = re.compile(r"^ +(\w+): *(-?\d+) *$")
_NUMBERS = re.compile(r"^[\s\d,.eE+-]*$")


def _from_yaml(text: str) -> Forest:
    if not text.startswith("%YAML"):
        raise ForestError("it does not begin with %YAML")
    parts = re.split(r"^(\w+):[ ]*$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    missing = [name for name in ("options", *_LISTS) if name not in sections]
    if missing:
        raise ForestError(f"it has no {missing[0]}")
    known = {f.name for f in fields(EdgeOptions)}
    found: dict[str, int] = {}
    for line in sections["options"].splitlines():
        match = _OPTION.match(line)
        if match and match[1] in known:
            found[match[1]] = int(match[2])
    if known - set(found):
        raise ForestError(f"its options have no {min(known - set(found))}")
    options = EdgeOptions(**found)
    arrays = {name: _rows(sections[name], name, dtype) for name, dtype in _LISTS.items()}
    for name in ("childs", "featureIds", "thresholds"):
        if len({len(row) for row in arrays[name]}) != 1:
            raise ForestError(f"its trees differ in length ({name})")
    return Forest(
        options,
        np.array(arrays["childs"]),
        np.array(arrays["featureIds"]),
        np.array(arrays["thresholds"]),
        np.concatenate(arrays["edgeBoundaries"]),
        np.concatenate(arrays["edgeBins"]),
    )


def _rows(section: str, name: str, dtype: Any) -> list[NDArray[Any]]:
    rows = re.findall(r"-\s*\[([^\]]*)\]", section)
    rest = re.sub(r"-\s*\[[^\]]*\]", "", section).strip()
    if not rows or rest or not all(_NUMBERS.match(row) for row in rows):
        raise ForestError(f"its {name} are not lists of numbers")
    try:
        values = [np.array(row.replace(",", " ").split(), dtype=np.float64) for row in rows]
    except ValueError as error:
        raise ForestError(f"its {name} are not lists of numbers") from error
    limit = np.finfo(np.float32).max if dtype is np.float32 else np.iinfo(np.int32).max
    for row in values:
        whole = dtype is np.float32 or (row == np.rint(row)).all()
        if not whole or not (np.abs(row) <= limit).all():
            raise ForestError(f"its {name} hold a number out of range")
    return [row.astype(dtype) for row in values]


def _check(forest: Forest) -> None:
    """Raise unless every index that the detector uses lies inside its array."""
    o = forest.options
    for option, lowest, highest in (
        ("stride", 1, 64),
        ("shrinkNumber", 1, 8),
        ("patchSize", 2, 256),
        ("patchInnerSize", 1, 256),
        ("numberOfGradientOrientations", 1, 64),
        ("gradientSmoothingRadius", 0, 64),
        ("regFeatureSmoothingRadius", 0, 64),
        ("ssFeatureSmoothingRadius", 0, 64),
        ("gradientNormalizationRadius", 0, 64),
        ("selfsimilarityGridSize", 1, 16),
        ("numberOfTrees", 1, 1024),
        ("numberOfTreesToEvaluate", 1, 1024),
    ):
        value = getattr(o, option)
        if not lowest <= value <= highest:
            raise ForestError(f"{option}={value} must be between {lowest} and {highest}")
    if o.patchSize % o.shrinkNumber or o.stride % o.shrinkNumber or o.patchInnerSize > o.patchSize:
        raise ForestError("its patch sizes, stride and shrinkNumber do not fit together")
    if o.numberOfTreesToEvaluate > o.numberOfTrees:
        raise ForestError("numberOfTreesToEvaluate must be at most numberOfTrees")
    shape = forest.childs.shape
    if len(shape) != 2 or shape[0] != o.numberOfTrees or shape[1] < 1:
        raise ForestError(f"it has {shape[0]} trees, but its options say {o.numberOfTrees}")
    if forest.featureIds.shape != shape or forest.thresholds.shape != shape:
        raise ForestError("its childs, featureIds and thresholds differ in shape")
    if not np.isfinite(forest.thresholds).all():
        raise ForestError("its thresholds are not all finite")
    inner = forest.childs != 0
    left = forest.childs[inner] - 1
    node = np.broadcast_to(np.arange(shape[1]), shape)[inner]
    # A child comes after its parent, so every walk from the root ends.
    if not ((left > node) & (left + 1 < shape[1])).all():
        raise ForestError("a node's child lies outside its tree or before it")
    ids = forest.featureIds[inner]
    if not ((ids >= 0) & (ids < o.n_features)).all():
        raise ForestError(f"a feature's number is not between 0 and {o.n_features - 1}")
    bounds, bins = forest.edgeBoundaries, forest.edgeBins
    if bounds.ndim != 1 or len(bounds) != shape[0] * shape[1] + 1:
        raise ForestError("its edgeBoundaries do not fit its nodes")
    if bounds[0] != 0 or bounds[-1] > len(bins) or (bounds[1:] < bounds[:-1]).any():
        raise ForestError("its edgeBoundaries do not ascend within edgeBins")
    n_pixels = o.patchInnerSize**2 * o.n_channels
    if (bounds[1:] - bounds[:-1]).max() > n_pixels:
        raise ForestError("a node has more edge pixels than a patch has pixels")
    if len(bins) and not 0 <= bins.min() <= bins.max() < n_pixels:
        raise ForestError("an edge pixel lies outside its patch")
