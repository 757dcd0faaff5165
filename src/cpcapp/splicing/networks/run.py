"""Training a network in a folder: what ``cpcapp train-network`` does."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from cpcapp._leftovers import remove_leftovers
from cpcapp.splicing.datasets.sources import open_sources
from cpcapp.splicing.making.stream import StreamOptions
from cpcapp.splicing.model_file import save_network
from cpcapp.splicing.networks.curve import draw_curve
from cpcapp.splicing.networks.export import export_network
from cpcapp.splicing.networks.loop import TrainingPlan, train_network
from cpcapp.splicing.networks.photos import read_training_photos
from cpcapp.splicing.networks.trace_network import NetworkOptions
from cpcapp.splicing.networks.training import TrainingRun
from cpcapp.splicing.photos.samples import Problem
from cpcapp.splicing.photos.sources import find_unread

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
    network: NetworkOptions | None = None,
    stream: StreamOptions | None = None,
    batch: int = 64,
    n_validation: int = 96,
    reading_progress: Callable[[float], None] | None = None,
    progress: Callable[[float], None] | None = None,
) -> NetworkTraining:
    """Train a network, or go on with a training, and keep everything in a folder.

    Parameters
    ----------
    photos : sequence of path
        Files and folders; BSDS500 with what people outlined.
    folder : path
        For ``network.safetensors``, which models are trained with, ``curve.png``, and all that a
        later piece needs. If it holds a training already, that one goes on.
    seconds : float, default=1500.0
        Of training in all.
    piece_seconds : float, optional
        Stop after so many seconds.
    seed, workers, batch, n_validation : int
        See `cpcapp.splicing.networks.training.TrainingPlan`.
    network : NetworkOptions, optional
        Sizes of a new network.
    stream : StreamOptions, optional
    reading_progress, progress : callable, optional
        Called with the share done, from 0 to 1.

    Returns
    -------
    NetworkTraining
    """
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
    folder = Path(folder)
    remove_leftovers(folder)
    if (folder / "run.json").is_file():
        run = TrainingRun.resume(folder, plan, device)
    else:
        run = TrainingRun.begin(network or NetworkOptions(), plan, device)

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
    save_network(export_network(run.average, facts), folder / "network.safetensors")
    draw_curve(run.curve, folder / "curve.png")
    unread = find_unread([os.fspath(path) for path in photos])
    return NetworkTraining(run.step, run.seconds, run.curve, (*problems, *unread))
