"""The state of a training on disk, so that a stopped run can go on."""

from __future__ import annotations

import json
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.files import atomic_write, remove_leftovers
from cpcapp.moments.moments import Moments
from cpcapp.splicing.photo.samples import Problem
from cpcapp.splicing.presets import Preset


@dataclass
class TrainingState:
    """What a training has learned so far.

    Attributes
    ----------
    next_photo : int
    moments : list of pairs of Moments or DeviceMoments
        Target and background of each bank.
    problems : list of Problem
        Photos that could not be read.
    n_used : int
        Photos that gave patches.
    """

    next_photo: int
    moments: list[tuple[Any, Any]]
    problems: list[Problem] = field(default_factory=list)
    n_used: int = 0

    @classmethod
    def empty(cls, preset: Preset) -> TrainingState:
        """Return the state before the first photo."""
        return cls(0, [(Moments(form="scatter"), Moments(form="scatter")) for _ in preset.banks])

    def __add__(self, other: TrainingState) -> TrainingState:
        """Return the state after the photos of both; those of ``other`` come later."""
        pairs = zip(self.moments, other.moments, strict=True)
        return TrainingState(
            self.next_photo + other.next_photo,
            [(ours[0] + theirs[0], ours[1] + theirs[1]) for ours, theirs in pairs],
            self.problems + other.problems,
            self.n_used + other.n_used,
        )


class Checkpoint:
    """The state of a training in a folder, whole at any moment.

    The moments of a state are files of their own, named by its photo; ``state.json`` is
    replaced last and says which files count. What calibration measures is added in files of its
    own, named by how many photos are done; each holds the fingerprint of its training.

    Parameters
    ----------
    folder : Path
    fingerprint : str
        Of the training; a checkpoint of another one is an error.
    every : float
        Seconds between two states. Chosen by hand: so much is done again after a stop.
    """

    def __init__(self, folder: Path, fingerprint: str, every: float = 15.0) -> None:
        self.folder = folder
        self.fingerprint = fingerprint
        self.every = every
        self.last = time.monotonic()

    @property
    def _state(self) -> Path:
        return self.folder / "state.json"

    def _file(self, photo: int, bank: int, side: int) -> Path:
        return self.folder / f"moments-{photo}-{bank}-{side}.npz"

    def load(self, preset: Preset) -> TrainingState | None:
        """Return the state, or None if there is none yet; remove what killed runs left."""
        remove_leftovers(self.folder)
        if not self._state.exists():
            return None
        try:
            # Reading a pipe would never end.
            if not self._state.is_file():
                raise ValueError("its state.json is not a file")
            content = json.loads(self._state.read_text())
            if content["fingerprint"] != self.fingerprint:
                raise ValueError(
                    "it belongs to another training (other photos, preset, seed or version)"
                )
            photo = int(content["next_photo"])
            moments = []
            for bank, kept in enumerate(content["kept"]):
                pair = [
                    Moments.load(self._file(photo, bank, side)) if k else Moments(form="scatter")
                    for side, k in enumerate(kept)
                ]
                moments.append((pair[0], pair[1]))
            if len(moments) != len(preset.banks):
                raise ValueError("it has another number of banks")
            problems = [Problem(str(name), str(why)) for name, why in content["problems"]]
            return TrainingState(photo, moments, problems, int(content["n_used"]))
        except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
            raise ValueError(
                f"checkpoint {self.folder} can't be used: {error}; remove it to start anew"
            ) from error

    def save_if_due(self, state: TrainingState) -> None:
        """Write the state if the last one is old enough."""
        if time.monotonic() - self.last >= self.every:
            self.save(state)

    def save(self, state: TrainingState) -> None:
        """Write the state."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = []
        for bank, pair in enumerate(state.moments):
            kept.append([moments.n_samples > 0 for moments in pair])
            for side, moments in enumerate(pair):
                if moments.n_samples:
                    moments.save(self._file(state.next_photo, bank, side))
        content = {
            "fingerprint": self.fingerprint,
            "next_photo": state.next_photo,
            "kept": kept,
            "problems": [[p.name, p.reason] for p in state.problems],
            "n_used": state.n_used,
        }
        with atomic_write(self._state) as file:
            file.write(json.dumps(content).encode())
        self._clean(keep=state.next_photo)
        self.last = time.monotonic()

    def save_arrays(self, start: int, stop: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Add what was measured in the photos from ``start`` to ``stop``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        about = {"fingerprint": np.array(self.fingerprint), "photos": np.array([start, stop])}
        with atomic_write(self.folder / f"calibration-{stop:08d}.npz") as file:
            np.savez(file, **about, **arrays)  # type: ignore[arg-type]

    def load_arrays(self) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
        """Yield what `save_arrays` kept, in its order, with the ``stop`` of each part.

        Parts of another training are passed over, and what comes after a gap is not used.
        """
        done = 0
        for path in sorted(self.folder.glob("calibration-*.npz")):
            try:
                if not path.is_file():
                    raise ValueError("not a file")
                # Opened here: of a damaged file NumPy would forget to close it.
                with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                    arrays = dict(kept)
                fingerprint = str(arrays.pop("fingerprint"))
                start, stop = (int(number) for number in arrays.pop("photos"))
            # NumPy and zipfile answer damaged bytes with all of these.
            except (
                ValueError,
                KeyError,
                TypeError,
                OSError,
                EOFError,
                RuntimeError,
                zipfile.BadZipFile,
                zlib.error,
            ) as error:
                raise ValueError(
                    f"checkpoint {self.folder} can't be used: {path.name} is damaged; remove it "
                    "to start anew"
                ) from error
            if fingerprint == self.fingerprint and start == done:
                yield stop, arrays
                done = stop

    def remove(self) -> None:
        """Remove the checkpoint and, if nothing else is in it, its folder.

        In an order that leaves a checkpoint that can be used, or none, if it is interrupted.
        """
        remove_leftovers(self.folder)
        for file in self.folder.glob("calibration-*.npz*"):
            file.unlink(missing_ok=True)
        self._state.unlink(missing_ok=True)
        self._clean(keep=None)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _clean(self, keep: int | None) -> None:
        for file in self.folder.glob("moments-*.npz*"):
            if keep is None or not file.name.startswith(f"moments-{keep}-"):
                file.unlink(missing_ok=True)
