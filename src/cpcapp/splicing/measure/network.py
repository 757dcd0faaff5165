"""Learned traces: what a network measures in a photo, computed by ONNX Runtime tile by tile.

The network has four stages (`cpcapp.splicing.networks.trace_network`). Each is run on tiles with a
margin as wide as the stage can see, so that the result is the same as that of the whole photo, and
photos of any size fit into memory.

The stages of pixels see little beyond a tile: their tiles are small, and two are run at a time. The
stages of blocks see far: they have few large tiles, one at a time, with all cores for each.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.threads import map_threads
from cpcapp.splicing.photo.jpeg import BLOCK
from cpcapp.splicing.photo.pixels import FloatMap, as_bytes

STAGES = ("pixels", "near", "far", "seam")

# Blocks of a tile, with its margin, chosen for speed and memory. Of pixels two tiles of 4,600
# take 300 MB. Of blocks one of 110,000 takes 250 MB, and one of 55,000 that is compared with the
# rest of the photo 400 MB. Larger ones have less margin for their size.
_TILES = {"pixels": 4_600, "near": 110_000, "far": 55_000, "seam": 4_600}
# Tiles that are run at a time, by any number of photos together.
_AT_ONCE = {"pixels": 2, "near": 1, "far": 1, "seam": 2}
# What a stage gives: values of a block or of a row of pixels, and their type. The detail of pixels
# is kept in 16 bits: enough for what a sum is added to.
_OUTPUTS: dict[str, tuple[tuple[int, Any], ...]] = {
    "pixels": ((1, np.float32), (BLOCK, np.float16)),
    "near": ((1, np.float32),),
    "far": ((1, np.float32),) * 4,
    "seam": ((BLOCK, np.float32),),
}
# Rough shares of the time that stages take, for progress.
_SHARES = {"pixels": 0.66, "near": 0.15, "far": 0.16, "seam": 0.03}

# No network sees farther or compares with more; a hostile file can't fill the memory.
_MAX_BLOCKS = 256

_MAX_ODDS = np.float32(80.0)

_Box = tuple[slice, slice]


class _Tile(NamedTuple):
    """Boxes in blocks: what a tile gives, what it sees, and the first within the second."""

    inner: _Box
    outer: _Box
    at: _Box


@dataclass(frozen=True)
class LearnedTraces:
    """What the network measured in a photo; blocks that its border cuts off are counted too.

    Attributes
    ----------
    seam : ndarray of shape (height, width), float32
        Logarithm of the odds that a pixel lies at a seam.
    region : ndarray of shape (rows, columns), float32
        For each block the logarithm of the odds of lying on one of two sides, whichever it is.
    pasted : ndarray of shape (rows, columns), float32
        The same for the side that was pasted.
    vectors : ndarray of shape (rows, columns, n_traces), float32
        Blocks with one history have like vectors.
    offset : (int, int)
        Row and column, from 0 to 7, of the corner of the first whole block.
    """

    seam: FloatMap = field(repr=False)
    region: FloatMap = field(repr=False)
    pasted: FloatMap = field(repr=False)
    vectors: FloatMap = field(repr=False)
    offset: tuple[int, int] = (0, 0)

    def seam_map(self) -> FloatMap:
        """Return the probability of a seam for each pixel."""
        return _probability(self.seam.copy())

    def pasted_map(self, shape: tuple[int, ...]) -> FloatMap:
        """Return the probability of the pasted side for each pixel of a photo of a shape."""
        height, width = shape[:2]
        rows, columns = self.pasted.shape
        top, left = ((-start) % BLOCK for start in self.offset)
        odds = cv2.resize(
            self.pasted, (columns * BLOCK, rows * BLOCK), interpolation=cv2.INTER_LINEAR
        )[top : top + height, left : left + width]
        return _probability(odds)

    def block_of(self, rows: NDArray[Any], columns: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Return the row and column of the blocks that hold some pixels."""
        return tuple(
            (at + (-start) % BLOCK) // BLOCK
            for at, start in zip((rows, columns), self.offset, strict=True)
        )


def _probability(odds: FloatMap) -> FloatMap:
    """Return 1 / (1 + exp(-odds)), computed in place."""
    # Beyond, the exponential is more than float32 holds.
    np.clip(odds, -_MAX_ODDS, _MAX_ODDS, out=odds)
    np.negative(odds, out=odds)
    np.exp(odds, out=odds)
    odds += np.float32(1.0)
    return np.asarray(np.divide(np.float32(1.0), odds, out=odds))


class TraceMeter:
    """Measures learned traces, with the ONNX graphs of the stages.

    ``facts``: the network's sizes and what is known of its training, in types that JSON knows.
    ``margins`` holds for each stage how far it sees, in blocks, and ``grid`` the number of parts
    that blocks are compared with.
    """

    def __init__(self, stages: Mapping[str, bytes], facts: Mapping[str, Any]) -> None:
        missing = [name for name in STAGES if name not in stages]
        if missing:
            raise ValueError(f"stages have no {', '.join(missing)}; they must be {STAGES}")
        self.stages = {name: bytes(stages[name]) for name in STAGES}
        self.facts = dict(facts)
        margins = self.facts["margins"]
        self._margins = {name: int(margins[name]) for name in STAGES}
        self._grid = int(self.facts["grid"])
        limits = {f"margin of {name}": (self._margins[name], 0) for name in STAGES}
        for name, (value, low) in {**limits, "grid": (self._grid, 1)}.items():
            if not low <= value <= _MAX_BLOCKS:
                raise ValueError(f"{name}={value} must be from {low} to {_MAX_BLOCKS}")
        self._sessions: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._slots = {name: threading.Semaphore(count) for name, count in _AT_ONCE.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        # To another process go the graphs; sessions and locks are made there.
        return TraceMeter, (self.stages, self.facts)

    def measure(
        self,
        image: NDArray[Any],
        table: NDArray[Any] | None = None,
        offset: tuple[int, int] = (0, 0),
        *,
        progress: Callable[[float], None] | None = None,
    ) -> LearnedTraces:
        """Measure a photo.

        ``offset``: row and column of the corner of the first whole block of JPEG.
        """
        height, width = image.shape[:2]
        top, left = ((-start) % BLOCK for start in offset)
        shape = -(-(height + top) // BLOCK), -(-(width + left) // BLOCK)
        steps = np.zeros((1, BLOCK * BLOCK), np.float32)  # 0 if there is no table
        if table is not None:
            steps[0] = np.ravel(table)
        shares = [0.0]

        def run(stage: str, cut: Callable[[_Box], list[FloatMap]]) -> list[Any]:
            def report(tile: _Box) -> None:
                size = [side.stop - side.start for side in tile]
                shares.append(_SHARES[stage] * size[0] * size[1] / (shape[0] * shape[1]))
                if progress is not None:
                    progress(min(1.0, sum(shares)))

            return self._run_tiles(stage, shape, cut, report)

        # Each may be large, and is kept no longer than it is needed.
        maps: dict[str, FloatMap] = {}
        maps["blocks"], maps["detail"] = run(
            "pixels", lambda box: [_cut_pixels(image, (top, left), box), steps]
        )
        (maps["blocks"],) = run("near", lambda box: [_cut(maps["blocks"], box)])
        parts = _pool(maps["blocks"], self._grid)[None]
        region, pasted, vectors, coarse = run("far", lambda box: [_cut(maps["blocks"], box), parts])
        del maps["blocks"]
        ((seam,),) = run(
            "seam", lambda box: [_cut(maps["detail"], _scale(box, BLOCK)), _cut(coarse, box)]
        )
        maps.clear()
        box = slice(top, top + height), slice(left, left + width)
        return LearnedTraces(
            np.ascontiguousarray(seam[box]),
            region[0],
            pasted[0],
            np.ascontiguousarray(vectors.transpose(1, 2, 0)),
            (offset[0] % BLOCK, offset[1] % BLOCK),
        )

    def _run_tiles(
        self,
        stage: str,
        shape: tuple[int, int],
        cut: Callable[[_Box], list[FloatMap]],
        report: Callable[[_Box], None],
    ) -> list[Any]:
        """Return the outputs of a stage for a photo of so many blocks, (channels, rows, columns).

        ``cut`` returns the inputs of a tile; ``report`` is called with each that is done.
        """
        at_once = min(_AT_ONCE[stage], _n_cores())
        tiles = _tiles(shape, _TILES[stage], self._margins[stage], at_once)
        lock, out = threading.Lock(), list[Any]()

        def run(tile: _Tile) -> _Box:
            with self._slots[stage]:
                found = self._run(stage, cut(tile.outer))
            with lock:
                if not out:
                    for part, (scale, dtype) in zip(found, _OUTPUTS[stage], strict=True):
                        size = part.shape[1], shape[0] * scale, shape[1] * scale
                        out.append(np.empty(size, dtype))
            for plane, part, (scale, _) in zip(out, found, _OUTPUTS[stage], strict=True):
                inner, at = (_scale(box, scale) for box in (tile.inner, tile.at))
                plane[(slice(None), *inner)] = part[(0, slice(None), *at)]
            return tile.inner

        jobs = min(at_once, len(tiles))
        # Only ONNX Runtime works here, with threads of its own: no cores are to be divided.
        for inner in map_threads(run, tiles, jobs=jobs, divide_cores=False):
            report(inner)
        one = slice(0, 1), slice(0, 1)
        self._run(stage, cut(one), release=True)
        return out

    def open(self) -> None:
        """Prepare all stages; otherwise each is prepared when it is first needed."""
        for stage in STAGES:
            self._session(stage)

    def _run(self, stage: str, inputs: list[NDArray[Any]], *, release: bool = False) -> list[Any]:
        session = self._session(stage)
        try:
            names = [entry.name for entry in session.get_inputs()]
            found: list[Any] = session.run(
                None, dict(zip(names, inputs, strict=True)), _release_memory() if release else None
            )
        except Exception as error:  # ONNX Runtime has errors of its own, beside Python's
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"stage {stage!r} of the network failed: {reason}") from error
        if any(not isinstance(part, np.ndarray) or part.ndim != 4 for part in found):
            raise ValueError(f"stage {stage!r} of the network gives something else than maps")
        return found

    def _session(self, stage: str) -> Any:
        with self._lock:
            if stage not in self._sessions:
                self._sessions[stage] = _open(self.stages[stage], _AT_ONCE[stage])
            return self._sessions[stage]


def _cut_pixels(image: NDArray[Any], before: tuple[int, int], box: _Box) -> FloatMap:
    """Return the levels of some blocks, from 0 to 255, (1, 3, height, width).

    The photo is filled up to whole blocks with the pixels of its border, as JPEG does it;
    ``before`` are the rows and columns that are missing at the top and the left.
    """
    cuts, sides = [], []
    for part, missing, length in zip(_scale(box, BLOCK), before, image.shape, strict=False):
        low, high = part.start - missing, part.stop - missing
        cuts.append(slice(max(low, 0), min(high, length)))
        sides.append((max(-low, 0), max(high - length, 0)))
    levels = np.pad(as_bytes(image[tuple(cuts)]), (*sides, (0, 0)), mode="edge")
    return np.ascontiguousarray(levels.transpose(2, 0, 1)[None], np.float32)


def _cut(planes: NDArray[Any], box: _Box) -> FloatMap:
    return np.ascontiguousarray(planes[(slice(None), *box)][None], np.float32)


def _tiles(shape: tuple[int, int], limit: int, margin: int, at_once: int = 1) -> list[_Tile]:
    """Return tiles that cover a grid of blocks, so that the work on all of them is least.

    Those at the border of the photo have a margin on fewer sides. Their inner part is larger, so
    that all see about as much: ``(length + 2 margin (n - 1)) / n`` blocks if there are ``n``.

    ``at_once``: tiles that are run at a time: the last ones shall not have to wait for one.
    """
    counts = [np.arange(1, max(1, length - 2 * margin) + 1) for length in shape]
    seen = [
        -(-(n - 2 * margin) // count) + 2 * margin for n, count in zip(shape, counts, strict=True)
    ]
    size, count = np.multiply.outer(*seen), np.multiply.outer(*counts)
    cost = np.where(size <= limit, size * -(-count // at_once), np.iinfo(np.int64).max)
    if (size > limit).all():
        cost = size  # no tile is as small as the limit: the smallest ones are taken
    least = np.flatnonzero(cost == cost.min())
    chosen = np.unravel_index(least[count.flat[least].argmin()], count.shape)
    sides = [_side(n, int(index) + 1, margin) for n, index in zip(shape, chosen, strict=True)]
    return [_Tile(*zip(row, column, strict=True)) for row in sides[0] for column in sides[1]]


def _side(length: int, count: int, margin: int) -> list[tuple[slice, slice, slice]]:
    """Return the tiles along a side: what each gives, what it sees, the first in the second."""
    cuts = [margin + (length - 2 * margin) * i // count for i in range(1, count)]
    found = []
    for low, high in itertools.pairwise([0, *cuts, length]):
        start, stop = max(0, low - margin), min(length, high + margin)
        found.append((slice(low, high), slice(start, stop), slice(low - start, high - start)))
    return found


def _scale(box: _Box, by: int) -> _Box:
    rows, columns = (slice(part.start * by, part.stop * by) for part in box)
    return rows, columns


def _pool(blocks: FloatMap, grid: int) -> FloatMap:
    """Return means over a grid of parts, (channels, grid, grid).

    Part ``i`` of ``n`` blocks goes from ``⌊i n / grid⌋`` to ``⌈(i + 1) n / grid⌉``.
    """
    out: NDArray[Any] = blocks
    for axis in (1, 2):
        n = out.shape[axis]
        bounds = [(i * n // grid, -(-(i + 1) * n // grid)) for i in range(grid)]
        along = np.moveaxis(out, axis, 0)
        out = np.stack([along[low:high].mean(axis=0, dtype=np.float64) for low, high in bounds], 1)
        out = np.moveaxis(out, 1, axis)
    return np.ascontiguousarray(out, np.float32)


def _n_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _import_onnxruntime() -> Any:
    # From version 1.29 on it reports to its maker, unless this is set before the import.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(
            "this model measures learned traces with ONNX Runtime, which is not installed: "
            "pip install 'cpcapp[splicing]', or use the model 'filters'"
        ) from error
    return onnxruntime


def _release_memory() -> Any:
    options = _import_onnxruntime().RunOptions()
    options.log_severity_level = 3
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def _open(graph: bytes, at_once: int) -> Any:
    onnxruntime = _import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Each tile is run by a thread of its own, which the session's threads help.
    options.intra_op_num_threads = max(1, _n_cores() + 1 - at_once)
    # Threads that wait must not take the time of other photos' work.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Tiles reuse the memory of those before; at the end of a stage it is given back. A plan of
    # the memory for each size of tile would take twice as much.
    options.enable_mem_pattern = False
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
