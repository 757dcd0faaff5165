"""Opening what a localizer is trained on, and training on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from cpcapp.splicing.datasets.collector import check_folder
from cpcapp.splicing.datasets.folders import open_photos
from cpcapp.splicing.datasets.sources import is_bsds, open_sources
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.make.calibration_photos import calibration_photos
from cpcapp.splicing.make.splices import training_splices
from cpcapp.splicing.photo.samples import SampleSet, find_unread
from cpcapp.splicing.presets import PRESETS, Preset
from cpcapp.splicing.train.train import train_localizer

# Photos to calibrate by, if splices are made: half of them spliced. Chosen by hand, not tuned.
_N_CALIBRATION = 1200
# For so many made photos one photo is added as it is. On photos kept out of the training, weak
# signs of genuine ones as they are fell from .18 to .08 by it (p from .05 to .15). Set by hand.
_PER_UNCHANGED = 4


class TrainingSet(NamedTuple):
    """What a localizer is trained on, and calibrated by; None to take some of the samples."""

    samples: SampleSet
    calibrate_on: SampleSet | None


class Training(NamedTuple):
    """A trained localizer, and the photos that were left out, with the reasons."""

    localizer: SpliceLocalizer
    problems: tuple[str, ...]


def open_training_set(
    folders: Sequence[str | os.PathLike[str]],
    *,
    n_splices: int = 2000,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> TrainingSet:
    """Open folders to train on: spliced photos with masks, or plain photos to make splices of.

    ``folders``: either data sets with masks, as `cpcapp.splicing.datasets.open_photos` opens them,
    or plain photos and BSDS500, from which splices are made while they are read.

    ``progress``: called with the share done, from 0 to 1, for each folder.
    """
    if n_splices < 1:
        raise ValueError(f"n_splices={n_splices} must be at least 1")
    plain: list[str | os.PathLike[str]] = []
    opened: list[SampleSet] = []
    for folder in folders:
        photos = None if is_bsds(check_folder(folder)) else open_photos(folder, progress=progress)
        if photos is not None and photos.spliced:
            opened.append(photos)
        else:
            plain.append(folder)
    if opened and plain:
        raise ValueError("give either spliced photos with masks or plain photos, not both")
    if len(opened) == 1:
        return TrainingSet(opened[0], None)
    if opened:
        # Each photo is named after its set.
        samples = [replace(s, name=f"{photos.name}/{s.name}") for photos in opened for s in photos]
        problems = [problem for photos in opened for problem in photos.problems]
        name = ", ".join(photos.name for photos in opened)
        return TrainingSet(SampleSet(name, tuple(samples), tuple(problems)), None)
    sources = open_sources(plain)
    splices = training_splices(sources, n_splices, seed=seed)
    n_calibration = min(_N_CALIBRATION, 2 * n_splices)
    unchanged = min(len(sources), n_calibration // _PER_UNCHANGED)
    return TrainingSet(
        replace(splices, problems=tuple(find_unread(plain))),
        calibration_photos(sources, n_calibration, seed=seed, as_they_are=unchanged),
    )


def train_from_folders(
    folders: Sequence[str | os.PathLike[str]],
    preset: str | Preset = "default",
    *,
    n_splices: int = 2000,
    seed: int = 0,
    client: Any = None,
    opening_progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Training:
    """Train a localizer on folders of photos.

    Parameters
    ----------
    folders, n_splices
        As for `open_training_set`.
    preset : {"default", "filters", "paper"} or Preset, default="default"
    seed : int, default=0
        Decides which splices are made and which patches are taken.
    client : distributed.Client, optional
        Of a Dask cluster, whose workers can open the same folders.
    opening_progress : callable, optional
        Called with the share done, from 0 to 1, of opening a folder.
    **options
        Passed on to `cpcapp.splicing.train_localizer`, such as ``save_to="model.safetensors"``.

    Returns
    -------
    Training

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from PIL import Image
    >>> from cpcapp.splicing.presets import BankOptions, PatchRules, Preset
    >>> folder = Path(tempfile.mkdtemp())
    >>> rng = np.random.default_rng(0)
    >>> for name in ("one", "two", "three"):
    ...     noise = rng.integers(0, 256, (96, 128, 3), dtype=np.uint8)
    ...     Image.fromarray(noise).save(folder / f"{name}.png")
    >>> banks = (BankOptions(size=4, n_filters=3),)
    >>> small = Preset("small", banks, rules=PatchRules(min_edges=0.0))
    >>> train_from_folders([folder], small, n_splices=6).localizer
    SpliceLocalizer(preset='small', banks=1)
    """
    if isinstance(preset, str) and preset in PRESETS:
        preset = PRESETS[preset]
    if client is not None:
        # Workers have another working folder.
        folders = [Path(folder).absolute() for folder in folders]
    samples, calibrate_on = open_training_set(
        folders, n_splices=n_splices, seed=seed, progress=opening_progress
    )
    localizer = train_localizer(
        samples,
        preset,
        seed=seed,
        facts={"data": [Path(folder).name for folder in folders], "kind": samples.name},
        calibrate_on=calibrate_on,
        client=client,
        **options,
    )
    opening = [str(problem) for problem in samples.problems]
    return Training(localizer, (*opening, *localizer.facts["problems"]))
