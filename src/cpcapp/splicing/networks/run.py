"""Training a network in a folder: what ``cpcapp train-network`` does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from cpcapp._io.files import atomic_write, remove_leftovers
from cpcapp._io.threads import map_threads
from cpcapp.splicing.datasets.sources import open_sources
from cpcapp.splicing.make.splices import read_source
from cpcapp.splicing.make.stream import StreamOptions
from cpcapp.splicing.model import save_network
from cpcapp.splicing.networks.export import export_network
from cpcapp.splicing.networks.loop import STATE, Photos, TrainingPlan, train_network
from cpcapp.splicing.networks.mfcn import MFCNOptions
from cpcapp.splicing.networks.mfcn_localizer import MFCNLocalizer
from cpcapp.splicing.networks.mfcn_training import MFCN_PLAN, MFCNRun
from cpcapp.splicing.networks.trace_network import NetworkOptions
from cpcapp.splicing.networks.training import TrainingRun
from cpcapp.splicing.photo.samples import Problem, SourcePhoto, find_unread

#: What can be trained.
ARCHITECTURES = ("trace", "mfcn")
# One of each eight photos is held out: with fewer there is no splice to validate on.
_MIN_PHOTOS = 24


class NetworkTraining(NamedTuple):
    """A training, or a piece of it: steps and seconds of all pieces, and photos left out.

    ``curve``: losses, and scores on splices of held-out photos.
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
    sources = open_sources(photos)
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
    unread = find_unread(photos)
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
    if goes_on:
        return (MFCNRun if architecture == "mfcn" else TrainingRun).resume(folder, plan, device)
    if architecture == "mfcn":
        return MFCNRun.begin(network or MFCNOptions(), plan, device)  # type: ignore[arg-type]
    return TrainingRun.begin(network or NetworkOptions(), plan, device)  # type: ignore[arg-type]


def _export(run: TrainingRun | MFCNRun, facts: dict[str, Any], folder: Path) -> None:
    """Write the networks as they are used."""
    if isinstance(run, TrainingRun):
        save_network(export_network(run.average, facts), folder / "network.safetensors")
        return
    for name, trained in run.networks.items():
        MFCNLocalizer(trained.average, facts).save(folder / f"{name}.safetensors")


def read_training_photos(
    sources: Sequence[SourcePhoto], *, progress: Callable[[float], None] | None = None
) -> tuple[Photos, list[Problem]]:
    """Read photos into memory, with the segmentation of medium detail of each.

    >>> from functools import partial
    >>> grey = SourcePhoto("grey", partial(np.full, (40, 60, 3), 128, np.uint8))
    >>> photos, problems = read_training_photos([grey])
    >>> photos.images[0].shape, photos.segments, problems
    (torch.Size([3, 40, 60]), [None], [])
    """
    images: list[torch.Tensor] = []
    segments: list[torch.Tensor | None] = []
    names, problems = [], []
    for source, found in zip(
        sources, map_threads(read_source, sources, jobs=2, progress=progress), strict=True
    ):
        if isinstance(found, Problem):
            problems.append(found)
            continue
        pixels, maps = found
        maps = sorted(maps, key=lambda labels: int(labels.max()))
        images.append(torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))))
        medium = torch.from_numpy(maps[len(maps) // 2].astype(np.int32)) if maps else None
        segments.append(medium)
        names.append(source.name)
    return Photos(images, segments, tuple(names)), problems


def draw_curve(curve: Sequence[dict[str, float]], path: str | os.PathLike[str]) -> None:
    """Draw losses, and scores on splices of held-out photos, over the seconds of a training."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    panels = figure.subplots(1, 2)
    seconds = [entry["seconds"] for entry in curve]
    losses = [name for name in curve[0] if name.startswith("loss_")]
    scores = [name for name in curve[0] if name not in ("seconds", "step", *losses)]
    for panel, names, title in zip(
        panels,
        (losses, scores),
        ("loss on made splices", "score on held-out photos"),
        strict=True,
    ):
        for name in names:
            label = name.removeprefix("loss_").replace("_", " ")
            panel.plot(seconds, [entry[name] for entry in curve], label=label)
        panel.set_xlabel("seconds of training")
        panel.set_title(title)
        panel.legend()
        panel.grid(alpha=0.3)
    panels[0].set_yscale("log")
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=110)
