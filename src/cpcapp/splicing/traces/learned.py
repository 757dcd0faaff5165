"""Learned traces: what a network measures in a photo, computed by ONNX Runtime tile by tile.

The network has four stages (`cpcapp.splicing.networks.trace_network`). Each is run on tiles with a
margin as wide as the stage can see, so that the result is the same as that of the whole photo, and
photos of any size fit into memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photos.jpeg import BLOCK
from cpcapp.splicing.photos.pixels import FloatMap, as_bytes

STAGES = ("pixels", "near", "far", "seam")

# Sides of tiles in blocks: wider ones need more memory, narrower ones more margins.
_PIXEL_TILE, _BLOCK_TILE = 96, 256
# Shares of the time that stages take, for progress.
_SHARES = {"pixels": 0.63, "near": 0.16, "far": 0.18, "seam": 0.03}

# No network sees farther or compares with more; a hostile file can't fill the memory.
_MAX_BLOCKS = 256

_Box = tuple[slice, slice]


@dataclass(frozen=True)
class LearnedTraces:
    """What the network measured in a photo.

    Attributes
    ----------
    seam : ndarray of shape (height, width), float32
        Logarithm of the odds that a pixel lies at a seam.
    region : ndarray of shape (rows, columns), float32
        For each block the logarithm of the odds of lying on one of two sides; which of the two it
        is, is arbitrary.
    pasted : ndarray of shape (rows, columns), float32
        The same for the side that was pasted.
    vectors : ndarray of shape (rows, columns, n_traces), float32
        Blocks with one history have like vectors.
    offset : (int, int)
        Row and column, from 0 to 7, of the corner of the first whole block. Blocks that are cut off
        by the border of the photo are counted too.
    """

    seam: FloatMap = field(repr=False)
    region: FloatMap = field(repr=False)
    pasted: FloatMap = field(repr=False)
    vectors: FloatMap = field(repr=False)
    offset: tuple[int, int] = (0, 0)

    def pasted_map(self, shape: tuple[int, ...]) -> FloatMap:
        """Return the probability of the pasted side for each pixel of a photo of a shape."""
        height, width = shape[:2]
        rows, columns = self.pasted.shape
        top, left = ((-start) % BLOCK for start in self.offset)
        odds = cv2.resize(
            self.pasted, (columns * BLOCK, rows * BLOCK), interpolation=cv2.INTER_LINEAR
        )[top : top + height, left : left + width]
        return np.asarray(1.0 / (1.0 + np.exp(-odds)), np.float32)

    def block_of(self, rows: NDArray[Any], columns: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Return the row and column of the blocks that hold some pixels."""
        return tuple(
            (at + (-start) % BLOCK) // BLOCK
            for at, start in zip((rows, columns), self.offset, strict=True)
        )


class TraceMeter:
    """Measures learned traces.

    Parameters
    ----------
    stages : mapping of str to bytes
        The ONNX graphs of the stages, named as in `STAGES`.
    facts : mapping
        The network's sizes and what is known of its training, in types that JSON knows. ``margins``
        holds for each stage how far it sees, in blocks, and ``grid`` the number of parts that
        blocks are compared with.
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

    def measure(
        self,
        image: NDArray[Any],
        table: NDArray[Any] | None = None,
        offset: tuple[int, int] = (0, 0),
        *,
        progress: Callable[[float], None] | None = None,
    ) -> LearnedTraces:
        """Measure a photo.

        Parameters
        ----------
        image : ndarray of shape (height, width, 3), uint8, uint16 or float32 in [0, 1]
        table : ndarray of shape (8, 8), optional
            Luminance table of the JPEG file, row by row.
        offset : (int, int), default=(0, 0)
            Row and column of the corner of the first whole block of JPEG.
        progress : callable, optional
            Called with the share done, from 0 to 1.

        Returns
        -------
        LearnedTraces
        """
        levels = _levels(image)
        height, width = levels.shape[:2]
        top, left = ((-start) % BLOCK for start in offset)
        bottom, right = (-(height + top)) % BLOCK, (-(width + left)) % BLOCK
        # The network sees whole blocks; JPEG fills them up in the same way.
        levels = np.pad(levels, ((top, bottom), (left, right), (0, 0)), mode="edge")
        steps = np.zeros((1, 64), np.float32)
        if table is not None:
            steps[0] = np.asarray(table, np.float32).reshape(64)
        done = _Progress(progress)
        blocks, detail = self._read_pixels(levels, steps, done)
        blocks = self._run_blocks("near", (blocks,), done)[0]
        parts = _pool(blocks, self._grid)
        region, pasted, vectors, coarse = self._run_blocks("far", (blocks,), done, (parts,))
        del blocks
        seam = self._draw_seam(detail, coarse, done)
        box = slice(top, top + height), slice(left, left + width)
        return LearnedTraces(
            np.ascontiguousarray(seam[box]),
            region[0],
            pasted[0],
            np.ascontiguousarray(vectors.transpose(1, 2, 0)),
            (offset[0] % BLOCK, offset[1] % BLOCK),
        )

    # -- stages ----------------------------------------------------------------------------

    def _read_pixels(
        self, levels: NDArray[np.uint8], steps: FloatMap, done: _Progress
    ) -> tuple[FloatMap, NDArray[np.float16]]:
        rows, columns = (side // BLOCK for side in levels.shape[:2])
        blocks: Any = None
        detail: Any = None
        for inner, outer, at in _tiles((rows, columns), _PIXEL_TILE, self._margins["pixels"]):
            tile = levels[_in_pixels(outer)].astype(np.float32).transpose(2, 0, 1)[None]
            found, fine = self._run("pixels", tile, steps)
            if blocks is None:
                blocks = np.empty((found.shape[1], rows, columns), np.float32)
                # 16 bits are enough for what a sum is added to.
                detail = np.empty((fine.shape[1], *levels.shape[:2]), np.float16)
            blocks[(slice(None), *inner)] = found[(0, slice(None), *at)]
            detail[(slice(None), *_in_pixels(inner))] = fine[(0, slice(None), *_in_pixels(at))]
            done.add("pixels", inner, (rows, columns))
        return blocks, detail

    def _run_blocks(
        self,
        stage: str,
        planes: tuple[FloatMap, ...],
        done: _Progress,
        whole: tuple[FloatMap, ...] = (),
    ) -> list[FloatMap]:
        rows, columns = planes[0].shape[1:]
        out: list[FloatMap] = []
        for inner, outer, at in _tiles((rows, columns), _BLOCK_TILE, self._margins[stage]):
            tiles = [np.ascontiguousarray(plane[(slice(None), *outer)])[None] for plane in planes]
            found = self._run(stage, *tiles, *(part[None] for part in whole))
            if not out:
                out = [np.empty((part.shape[1], rows, columns), np.float32) for part in found]
            for plane, part in zip(out, found, strict=True):
                plane[(slice(None), *inner)] = part[(0, slice(None), *at)]
            done.add(stage, inner, (rows, columns))
        return out

    def _draw_seam(
        self, detail: NDArray[np.float16], coarse: FloatMap, done: _Progress
    ) -> FloatMap:
        rows, columns = coarse.shape[1:]
        seam = np.empty(detail.shape[1:], np.float32)
        for inner, outer, at in _tiles((rows, columns), _PIXEL_TILE, self._margins["seam"]):
            fine = detail[(slice(None), *_in_pixels(outer))].astype(np.float32)[None]
            view = np.ascontiguousarray(coarse[(slice(None), *outer)])[None]
            (found,) = self._run("seam", fine, view)
            seam[_in_pixels(inner)] = found[(0, 0, *_in_pixels(at))]
            done.add("seam", inner, (rows, columns))
        return seam

    def open(self) -> None:
        """Prepare all stages; otherwise each is prepared when it is first needed."""
        for stage in STAGES:
            self._session(stage)

    def _run(self, stage: str, *inputs: NDArray[Any]) -> list[Any]:
        session = self._session(stage)
        try:
            names = [entry.name for entry in session.get_inputs()]
            found: list[Any] = session.run(None, dict(zip(names, inputs, strict=True)))
        except Exception as error:  # ONNX Runtime has errors of its own, beside Python's
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"stage {stage!r} of the network failed: {reason}") from error
        if any(not isinstance(part, np.ndarray) or part.ndim != 4 for part in found):
            raise ValueError(f"stage {stage!r} of the network gives something else than maps")
        return found

    def _session(self, stage: str) -> Any:
        with self._lock:
            if stage not in self._sessions:
                self._sessions[stage] = _open(self.stages[stage])
            return self._sessions[stage]


class _Progress:
    def __init__(self, report: Callable[[float], None] | None) -> None:
        self.report, self.share = report, 0.0

    def add(self, stage: str, inner: _Box, shape: tuple[int, int]) -> None:
        part = (inner[0].stop - inner[0].start) * (inner[1].stop - inner[1].start)
        self.share += _SHARES[stage] * part / (shape[0] * shape[1])
        if self.report is not None:
            self.report(min(1.0, self.share))


def _levels(image: NDArray[Any]) -> NDArray[np.uint8]:
    if image.dtype.kind == "f":
        image = np.rint(np.clip(image, 0.0, 1.0) * np.float32(255.0)).astype(np.uint8)
    return as_bytes(image)


def _tiles(shape: tuple[int, int], side: int, margin: int) -> Iterator[tuple[_Box, _Box, _Box]]:
    """Yield boxes that cover a grid of blocks: inner, with the margin, and inner within that."""
    cuts = []
    for length in shape:
        count = -(-length // side)
        cuts.append([length * i // count for i in range(count + 1)])
    for top, bottom in zip(cuts[0], cuts[0][1:], strict=False):
        for left, right in zip(cuts[1], cuts[1][1:], strict=False):
            outer = tuple(
                (max(0, low - margin), min(length, high + margin))
                for low, high, length in zip((top, left), (bottom, right), shape, strict=True)
            )
            yield (
                (slice(top, bottom), slice(left, right)),
                (slice(*outer[0]), slice(*outer[1])),
                (
                    slice(top - outer[0][0], bottom - outer[0][0]),
                    slice(left - outer[1][0], right - outer[1][0]),
                ),
            )


def _in_pixels(box: _Box) -> _Box:
    rows, columns = (slice(part.start * BLOCK, part.stop * BLOCK) for part in box)
    return rows, columns


def _pool(blocks: FloatMap, grid: int) -> FloatMap:
    """Return means over a grid of parts, (channels, grid, grid).

    Part ``i`` of ``n`` blocks goes from ``⌊i n / grid⌋`` to ``⌈(i + 1) n / grid⌉``.
    """
    out = blocks
    for axis in (1, 2):
        n = out.shape[axis]
        sums = np.concatenate(
            [np.zeros_like(out.take([0], axis), np.float64), out.cumsum(axis, dtype=np.float64)],
            axis,
        )
        low = np.arange(grid) * n // grid
        high = -(-(np.arange(grid) + 1) * n // grid)
        width = (high - low).reshape((-1, 1) if axis == 1 else (1, -1))
        out = (sums.take(high, axis) - sums.take(low, axis)) / width
    return np.ascontiguousarray(out, np.float32)


def _open(graph: bytes) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(
            "this model measures learned traces with ONNX Runtime, which is not installed: "
            "pip install 'cpcapp[splicing]', or use the model 'filters'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    affinity = getattr(os, "sched_getaffinity", None)
    options.intra_op_num_threads = len(affinity(0)) if affinity else os.cpu_count() or 1
    # Threads that wait must not take the time of other photos' work.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Freed blocks go back: a large tile must not hold its memory while filters run.
    options.enable_cpu_mem_arena = False
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
