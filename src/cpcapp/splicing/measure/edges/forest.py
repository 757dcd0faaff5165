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
_MAX_INTEGER = np.iinfo(np.int32).max
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
        """Raise unless every index that the detector uses lies inside its array."""
        o, shape, bounds, bins = self.options, self.childs.shape, self.edgeBoundaries, self.edgeBins
        if len(shape) != 2 or shape[0] != o.numberOfTrees or shape[1] < 1:
            raise ForestError(f"it has {shape[0]} trees, but its options say {o.numberOfTrees}")
        if self.featureIds.shape != shape or self.thresholds.shape != shape:
            raise ForestError("its childs, featureIds and thresholds differ in shape")
        if not np.isfinite(self.thresholds).all():
            raise ForestError("its thresholds are not all finite")
        inner = self.childs != 0
        left, ids = self.childs[inner] - 1, self.featureIds[inner]
        node = np.broadcast_to(np.arange(shape[1]), shape)[inner]
        # A child comes after its parent, so every walk from the root ends.
        if not ((left > node) & (left + 1 < shape[1])).all():
            raise ForestError("a node's child lies outside its tree or before it")
        if not ((ids >= 0) & (ids < o.n_features)).all():
            raise ForestError(f"a feature's number is not between 0 and {o.n_features - 1}")
        if bounds.ndim != 1 or len(bounds) != shape[0] * shape[1] + 1:
            raise ForestError("its edgeBoundaries do not fit its nodes")
        if bounds[0] != 0 or bounds[-1] > len(bins) or (bounds[1:] < bounds[:-1]).any():
            raise ForestError("its edgeBoundaries do not ascend within edgeBins")
        n_pixels = o.patchInnerSize**2 * o.n_channels
        if (bounds[1:] - bounds[:-1]).max() > n_pixels:
            raise ForestError("a node has more edge pixels than a patch has pixels")
        if len(bins) and not 0 <= bins.min() <= bins.max() < n_pixels:
            raise ForestError("an edge pixel lies outside its patch")

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
            return _from_yaml(raw.decode()) if raw.startswith(b"%YAML") else _from_tensors(raw)
        except (ValueError, zlib.error) as error:
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
        made = header["format"], header["format_version"]
        tensors, options = load(raw), dict(header["options"])
        arrays = {name: tensors[name] for name in _LISTS}
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ForestError("it is neither OpenCV's YAML nor a file of this package") from error
    if made != (_FORMAT, _FORMAT_VERSION):
        raise ForestError(f"its format is {made[0]!r} of version {made[1]!r}")
    counts = arrays["edgeBoundaries"].ravel()
    if counts.dtype.kind != "u" or counts.sum(dtype=np.float64) > _MAX_INTEGER:
        raise ForestError("its edgeBoundaries hold a number out of range")
    arrays["edgeBoundaries"] = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return _forest(options, arrays)


def _forest(options: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Forest:
    """Return a forest from what a file holds, all of it checked."""
    names = {entry.name for entry in fields(EdgeOptions)}
    if names != set(options):
        raise ForestError(f"its options have no {min(names - set(options), default='such name')}")
    if any(type(value) is not int for value in options.values()):
        raise ForestError("its options are not whole numbers")
    converted: dict[str, Any] = {}
    for name, dtype in _LISTS.items():
        values = arrays[name]
        limit = np.finfo(np.float32).max if dtype is np.float32 else _MAX_INTEGER
        if values.dtype.kind not in "uif" or not (np.abs(values.astype(float)) <= limit).all():
            raise ForestError(f"its {name} hold a number out of range")
        converted[name] = values.astype(dtype)
        if dtype is np.int32 and (converted[name] != values).any():
            raise ForestError(f"its {name} are not whole numbers")
    return Forest(EdgeOptions(**options), **converted)


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


def _from_yaml(text: str) -> Forest:
    """Read what OpenCV and `_to_yaml` write, without a parser of all that YAML can be."""
    parts = re.split(r"^(\w+):[ ]*$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    for name in ("options", *_LISTS):
        if name not in sections:
            raise ForestError(f"it has no {name}")
    names = {entry.name for entry in fields(EdgeOptions)}
    given = re.findall(r"^ +(\w+): *(-?\d{1,9}) *$", sections["options"], flags=re.MULTILINE)
    options = {name: int(value) for name, value in given if name in names}
    arrays: dict[str, NDArray[Any]] = {}
    for name in _LISTS:
        rows = re.findall(r"-\s*\[([\s\d,.eE+-]*)\]", sections[name])
        rest = re.sub(r"-\s*\[[\s\d,.eE+-]*\]", "", sections[name]).strip()
        try:
            numbers = [np.array(row.replace(",", " ").split(), np.float64) for row in rows]
            flat = name.startswith("edge")
            arrays[name] = np.concatenate(numbers) if flat else np.array(numbers, np.float64)
        except ValueError as error:
            raise ForestError(f"its {name} are not lists of numbers of one length") from error
        if rest:
            raise ForestError(f"its {name} are not lists of numbers")
    return _forest(options, arrays)
