"""Training a network in a folder: what ``cpcapp train-network`` does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cpcapp._io.files import remove_leftovers
from cpcapp.splicing.datasets.sources import open_sources
from cpcapp.splicing.make.stream import StreamOptions
from cpcapp.splicing.model import save_network
from cpcapp.splicing.networks.curve import draw_curve
from cpcapp.splicing.networks.export import export_network
from cpcapp.splicing.networks.loop import STATE, TrainingPlan, train_network
from cpcapp.splicing.networks.mfcn import MFCNOptions
from cpcapp.splicing.networks.mfcn_localizer import MFCNLocalizer
from cpcapp.splicing.networks.mfcn_training import MFCN_PLAN, MFCNRun
from cpcapp.splicing.networks.photos import read_training_photos
from cpcapp.splicing.networks.trace_network import NetworkOptions
from cpcapp.splicing.networks.training import TrainingRun
from cpcapp.splicing.photo.samples import Problem, find_unread

#: What can be trained.
ARCHITECTURES = ("trace", "mfcn")
# One of each eight photos is held out: with fewer there is no splice to validate on.
_MIN_PHOTOS = 24


class NetworkTraining(NamedTuple):
    """A training, or a piece of it.

    Attributes
    ----------
    step : int
    seconds : float
        Spent so far, in all pieces.
    curve : list of dict
        Losses, and scores on splices of held-out photos.
    problems : tuple of Problem
        Photos that could not be used.
    """

    step: int
    seconds: float
    curve: list[dict[str, float]]
    problems: tuple[Problem, ...]


def train_in_folder(
    photos: Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    *,
    seconds: float = 1500.0,
    piece_seconds: float | None = None,
    seed: int = 0,
    workers: int = 4,
    architecture: str = "trace",
    network: NetworkOptions | MFCNOptions | None = None,
    stream: StreamOptions | None = None,
    batch: int = 64,
    n_validation: int = 96,
    reading_progress: Callable[[float], None] | None = None,
    progress: Callable[[float], None] | None = None,
) -> NetworkTraining:
    """Train a network, or go on with a training, and keep everything in a folder.

    ``folder``: for the networks, ``curve.png``, and all that a later piece needs. If it holds a
    training already, that one goes on.

    ``architecture``: ``"trace"``: the network that measures traces, ``network.safetensors``, which
    models are trained with. ``"mfcn"``: MFCN and SFCN on the same splices, ``mfcn.safetensors`` and
    ``sfcn.safetensors``, which are models themselves.
    """
    if architecture not in ARCHITECTURES:
        raise ValueError(f"architecture={architecture!r} must be one of {', '.join(ARCHITECTURES)}")
    sources = open_sources([os.fspath(path) for path in photos])
    read, problems = read_training_photos(sources, progress=reading_progress)
    if len(read.images) < _MIN_PHOTOS:
        raise ValueError(
            f"{len(read.images)} photos can be read; a network needs at least {_MIN_PHOTOS}"
        )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plan = TrainingPlan(
        seconds=seconds, seed=seed, workers=workers, batch=batch, n_validation=n_validation
    )
    if architecture == "mfcn":
        plan = replace(
            plan, learning_rate=MFCN_PLAN.learning_rate, weight_decay=MFCN_PLAN.weight_decay
        )
    folder = Path(folder)
    remove_leftovers(folder)
    run = _open_run(architecture, folder, network, plan, device)

    def report(entry: dict[str, float]) -> None:
        if progress is not None:
            progress(min(1.0, entry["seconds"] / seconds))

    options = stream or StreamOptions(group=16)
    train_network(
        run, read, plan, piece_seconds=piece_seconds or seconds, stream=options, report=report
    )
    run.save(folder)
    facts = {
        "photos": len(read.images),
        "seconds": round(run.seconds, 1),
        "steps": run.step,
        "pieces": run.piece,
        "scores": run.curve[-1],
        # What is calibrated on photos that the network has learned would promise too much.
        "held_out_photos": [Path(name).stem for name in read.split()[1].names],
    }
    _export(run, facts, folder)
    draw_curve(run.curve, folder / "curve.png")
    unread = find_unread([os.fspath(path) for path in photos])
    return NetworkTraining(run.step, run.seconds, run.curve, (*problems, *unread))


def _open_run(
    architecture: str,
    folder: Path,
    network: NetworkOptions | MFCNOptions | None,
    plan: TrainingPlan,
    device: str,
) -> TrainingRun | MFCNRun:
    """Go on with the training that a folder holds, or begin one."""
    goes_on = (folder / STATE).is_file()
    if goes_on:
        known = json.loads((folder / STATE).read_text()).get("architecture", "trace")
        if known != architecture:
            raise ValueError(
                f"architecture={architecture!r} must be {known!r}, of which {folder} holds a "
                "training; choose another folder to begin one"
            )
    if architecture == "mfcn":
        if goes_on:
            return MFCNRun.resume(folder, plan, device)
        return MFCNRun.begin(network or MFCNOptions(), plan, device)  # type: ignore[arg-type]
    if goes_on:
        return TrainingRun.resume(folder, plan, device)
    return TrainingRun.begin(network or NetworkOptions(), plan, device)  # type: ignore[arg-type]


def _export(run: TrainingRun | MFCNRun, facts: dict[str, Any], folder: Path) -> None:
    """Write the networks as they are used."""
    if isinstance(run, TrainingRun):
        save_network(export_network(run.average, facts), folder / "network.safetensors")
        return
    for name, trained in run.networks.items():
        MFCNLocalizer(trained.average, facts).save(folder / f"{name}.safetensors")
