"""Masks for CASIA: made from the host, judged, and kept in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cpcapp import __version__
from cpcapp._io.files import atomic_write, remove_leftovers
from cpcapp._io.threads import map_threads
from cpcapp.splicing.datasets.casia_names import Forgery
from cpcapp.splicing.datasets.collector import read_photo
from cpcapp.splicing.datasets.difference_masks import DifferenceMask, difference_mask
from cpcapp.splicing.photo.pixels import BoolArray

_RECORD = "masks.json"
# Good enough not to look at the second source at all. Chosen by hand.
_NO_DOUBT = 0.9


@dataclass(frozen=True)
class MadeMask:
    """What is known of the mask of a tampered photo.

    Attributes
    ----------
    confidence : float
    reason : str
        What keeps the confidence below 1.
    host : Path, optional
        The photo that the tampered one was compared with.
    file : Path, optional
        Where the mask is kept.
    """

    confidence: float
    reason: str
    host: Path | None = None
    file: Path | None = None

    def why_not(self) -> str:
        """Return why the mask is not used."""
        if self.host is None and self.file is None:
            return self.reason
        return f"its mask is not trusted (confidence {self.confidence:.2f}): {self.reason}"


def make_mask(forgery: Forgery) -> tuple[MadeMask, BoolArray | None]:
    """Compare a tampered photo with its sources and return the mask that explains it best."""
    best: tuple[MadeMask, BoolArray | None] | None = None
    try:
        photo = read_photo(forgery.path)
    except ValueError as error:
        return MadeMask(0.0, str(error)), None
    for host in forgery.hosts:
        try:
            found: DifferenceMask = difference_mask(photo, read_photo(host))
        except ValueError as error:
            made: tuple[MadeMask, BoolArray | None] = (MadeMask(0.0, str(error)), None)
        else:
            made = (MadeMask(found.confidence, found.reason, host), found.mask)
        if best is None or made[0].confidence > best[0].confidence:
            best = made
        if best[0].confidence >= _NO_DOUBT:
            break
    if best is None:
        return MadeMask(0.0, f"its sources are not in Au: {', '.join(forgery.sources)}"), None
    return best


def rate_mask(forgery: Forgery) -> MadeMask:
    """Return how far the mask of a tampered photo can be trusted."""
    return make_mask(forgery)[0]


def write_masks(
    forgeries: Sequence[Forgery],
    output: Path,
    *,
    jobs: int,
    progress: Callable[[float], None] | None,
) -> None:
    """Write the masks that a folder does not have yet, and a record of all of them."""
    output.mkdir(parents=True, exist_ok=True)
    remove_leftovers(output)
    record = _read_record(output)
    entries = record["masks"] if record and record.get("made_by") == __version__ else {}
    missing = [
        f for f in forgeries if f.name not in entries or not _is_done(output, f, entries[f.name])
    ]
    try:
        made = map_threads(
            lambda forgery: _write_mask(forgery, output), missing, jobs=jobs, progress=progress
        )
        for i, (forgery, entry) in enumerate(zip(missing, made, strict=True), start=1):
            entries[forgery.name] = entry
            if i % 50 == 0:
                _write_record(output, entries)
    finally:
        # An interrupted run goes on from here.
        _write_record(output, entries)


def read_masks(folder: Path) -> dict[str, MadeMask]:
    """Return the masks in a folder by the names of their photos, in small letters."""
    record = _read_record(folder)
    if record is None:
        return {
            file.stem.casefold().removesuffix("_gt"): MadeMask(1.0, "", file=file)
            for file in sorted(folder.rglob("*.png"))
        }
    masks = {}
    for name, entry in record["masks"].items():
        file = _mask_file(folder, name)
        confidence, reason = float(entry["confidence"]), str(entry["reason"])
        if entry["host"] is None:
            masks[name.casefold()] = MadeMask(0.0, reason)
        elif not file.is_file():
            masks[name.casefold()] = MadeMask(0.0, f"{file} is missing; make the masks again")
        else:
            masks[name.casefold()] = MadeMask(confidence, reason, file=file)
    return masks


def _write_mask(forgery: Forgery, output: Path) -> dict[str, Any]:
    made, mask = make_mask(forgery)
    if mask is not None:
        with atomic_write(_mask_file(output, forgery.name)) as file:
            Image.fromarray(mask.astype(np.uint8) * 255).save(file, format="PNG")
    return {
        "confidence": round(made.confidence, 4),
        "host": made.host.name if made.host else None,
        "reason": made.reason,
    }


def _is_done(folder: Path, forgery: Forgery, entry: dict[str, Any]) -> bool:
    # What had no host may have one now.
    return entry["host"] is not None and _mask_file(folder, forgery.name).is_file()


def _mask_file(folder: Path, name: str) -> Path:
    return folder / f"{name}_gt.png"


def _write_record(folder: Path, entries: dict[str, Any]) -> None:
    record = {"made_by": __version__, "masks": dict(sorted(entries.items()))}
    with atomic_write(folder / _RECORD) as file:
        file.write(json.dumps(record, indent=1).encode())


def _read_record(folder: Path) -> dict[str, Any] | None:
    """Return the record of a folder of masks, or None if it has none."""
    path = folder / _RECORD
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_bytes())
        for entry in record["masks"].values():
            float(entry["confidence"]), entry["host"], entry["reason"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a record of masks; remove it and make the masks again"
        ) from error
    assert isinstance(record, dict)
    return record
