"""The state of a training on disk, so that a stopped run can go on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from cpcapp._io.files import atomic_write, remove_leftovers
from cpcapp._io.tensor_file import Tensors, read_tensors, write_tensors
from cpcapp.moments.moments import Moments
from cpcapp.splicing.photo.samples import Problem
from cpcapp.splicing.presets import Preset

_KIND, _VERSION = "cpcapp-calibration-part", 2

#: Target and background patches of a photo for each bank.
Rows = list[tuple[Any, Any]]


@dataclass
class TrainingState:
    """What a training has learned so far: moments of target and background of each bank."""

    next_photo: int
    moments: list[tuple[Any, Any]]
    problems: list[Problem] = field(default_factory=list)
    n_used: int = 0

    @classmethod
    def empty(cls, preset: Preset) -> TrainingState:
        """Return the state before the first photo."""
        return cls(0, [(Moments(form="scatter"), Moments(form="scatter")) for _ in preset.banks])

    def add(self, photos: Sequence[Rows | Problem]) -> None:
        """Add the patches of the next photos."""
        read = [photo for photo in photos if not isinstance(photo, Problem)]
        for number, pair in enumerate(self.moments):
            for side, moments in enumerate(pair):
                blocks = [rows[number][side] for rows in read if len(rows[number][side])]
                if blocks:
                    moments.update(_rows_for(moments, np.concatenate(blocks)))
        self.problems += [photo for photo in photos if isinstance(photo, Problem)]
        # A photo without patches is of no use, unless none are looked for.
        self.n_used += sum(not rows or any(map(len, chain(*rows))) for rows in read)
        self.next_photo += len(photos)

    def __add__(self, other: TrainingState) -> TrainingState:
        """Return the state after the photos of both; those of ``other`` come later."""
        pairs = zip(self.moments, other.moments, strict=True)
        return TrainingState(
            self.next_photo + other.next_photo,
            [(ours[0] + theirs[0], ours[1] + theirs[1]) for ours, theirs in pairs],
            self.problems + other.problems,
            self.n_used + other.n_used,
        )


def _rows_for(moments: Any, rows: Any) -> Any:
    """Return rows as moments take them: those on a device want a tensor."""
    if isinstance(moments, Moments):
        return rows
    import torch

    return torch.from_numpy(rows)


class Checkpoint:
    """The state of a training in a folder, whole at any moment.

    The moments of a state are files of their own, named by its photo; ``state.json`` is
    replaced last and says which files count. What calibration measures is added in files of its
    own, named by how many photos are done. Each holds the fingerprint of its training: a checkpoint
    of another one is an error.
    """

    def __init__(self, folder: Path, fingerprint: str, every: float = 15.0) -> None:
        # Seconds between two states. Chosen by hand: so much is done again after a stop.
        self.folder = folder
        self.fingerprint = fingerprint
        self.every = every
        self.last = time.monotonic()

    @property
    def _state(self) -> Path:
        return self.folder / "state.json"

    def _moments(self, photo: int, bank: int, side: int) -> Path:
        return self.folder / f"moments-{photo}-{bank}-{side}.safetensors"

    def _unusable(self, error: Exception | str) -> ValueError:
        return ValueError(
            f"checkpoint {self.folder} can't be used: {error}; remove it to start anew"
        )

    def load(self, preset: Preset) -> TrainingState | None:
        """Return the state, or None if there is none yet; remove what killed runs left."""
        remove_leftovers(self.folder)
        if not self._state.exists():
            return None
        try:
            content = json.loads(self._state.read_text())
            if content["fingerprint"] != self.fingerprint:
                raise ValueError(
                    "it belongs to another training (other photos, preset, seed or version)"
                )
            state = TrainingState.empty(preset)
            state.next_photo, state.n_used = content["next_photo"], content["n_used"]
            state.problems = [Problem(*problem) for problem in content["problems"]]
            banks = enumerate(zip(content["kept"], list(state.moments), strict=True))
            for bank, (kept, empty) in banks:
                target, background = (
                    Moments.load(self._moments(state.next_photo, bank, side))
                    if full
                    else empty[side]
                    for side, full in enumerate(kept)
                )
                state.moments[bank] = target, background
            return state
        except (ValueError, KeyError, TypeError, IndexError, OSError) as error:
            raise self._unusable(error) from error

    def save_if_due(self, state: TrainingState) -> None:
        """Write the state if the last one is old enough."""
        if time.monotonic() - self.last >= self.every:
            self.save(state)

    def save(self, state: TrainingState) -> None:
        """Write the state."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = [[side.n_samples > 0 for side in pair] for pair in state.moments]
        for bank, pair in enumerate(state.moments):
            for side, moments in enumerate(pair):
                if moments.n_samples:
                    moments.save(self._moments(state.next_photo, bank, side))
        content = {
            "fingerprint": self.fingerprint,
            "next_photo": state.next_photo,
            "kept": kept,
            "problems": [[problem.name, problem.reason] for problem in state.problems],
            "n_used": state.n_used,
        }
        with atomic_write(self._state) as file:
            file.write(json.dumps(content).encode())
        self._clean(keep=state.next_photo)
        self.last = time.monotonic()

    def save_part(self, start: int, stop: int, arrays: Tensors) -> None:
        """Add what was measured in the photos from ``start`` to ``stop``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        header = {"fingerprint": self.fingerprint, "photos": [start, stop]}
        path = self.folder / f"calibration-{stop:08d}.safetensors"
        write_tensors(path, arrays, header, _KIND, _VERSION)

    def load_parts(self) -> Iterator[tuple[int, Tensors]]:
        """Yield what `save_part` kept, in its order, with the ``stop`` of each part.

        Parts of another training are passed over, and what comes after a gap is not used.
        """
        done = 0
        for path in sorted(self.folder.glob("calibration-*.safetensors")):
            try:
                size = path.stat().st_size
                header, arrays = read_tensors(path, _KIND, _VERSION, max_bytes=size)
                start, stop = header["photos"]
            except (ValueError, KeyError, OSError) as error:
                raise self._unusable(f"{path.name} is damaged") from error
            if header["fingerprint"] == self.fingerprint and start == done:
                yield stop, arrays
                done = stop

    def remove(self) -> None:
        """Remove the checkpoint and, if nothing else is in it, its folder.

        In an order that leaves a checkpoint that can be used, or none, if it is interrupted.
        """
        remove_leftovers(self.folder)
        for file in self.folder.glob("calibration-*.safetensors"):
            file.unlink(missing_ok=True)
        self._state.unlink(missing_ok=True)
        self._clean(keep=None)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _clean(self, keep: int | None) -> None:
        for file in self.folder.glob("moments-*.safetensors"):
            if keep is None or not file.name.startswith(f"moments-{keep}-"):
                file.unlink(missing_ok=True)
