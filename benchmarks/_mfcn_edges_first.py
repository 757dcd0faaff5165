"""Whether MFCN gains by learning to see the edges that people drew, before it sees a splice.

The published network began with weights of ImageNet. Here it begins with random ones, so that any
task with plenty of truth may help. Two networks of half the width begin with the same weights. One
learns the outlines of BSDS500 first; then both learn from the same splices.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from _mfcn_gpu import TINY, read_folder
from cpcapp.splicing.make.stream import StreamOptions
from cpcapp.splicing.networks.loop import Photos, TrainingPlan, train_network
from cpcapp.splicing.networks.mfcn import MFCNOptions
from cpcapp.splicing.networks.mfcn_training import (
    MFCN_PLAN,
    MFCNRun,
    balanced_cross_entropy,
)

HALF = MFCNOptions(widths=(32, 64, 128, 256, 256), top=1024)
SCRATCH, FIRST = "from_scratch", "edges_first"


def outlines(labels: Tensor) -> Tensor:
    """Return where segments meet, as wide as the bands that seams are scored with."""
    least, most = (-F.max_pool2d(-labels, 9, 1, 4), F.max_pool2d(labels, 9, 1, 4))
    return (least != most).float()


def draw_outlined(photos: Photos, n: int, size: int, numbers: random.Random) -> tuple[Tensor, ...]:
    """Return squares of photos in which people outlined things, and the outlines."""
    known = [i for i, segments in enumerate(photos.segments) if segments is not None]
    images, truths = [], []
    for _ in range(n):
        index = numbers.choice(known)
        image, segments = photos.images[index], photos.segments[index]
        assert segments is not None
        top, left = (numbers.randrange(length - size + 1) for length in segments.shape)
        box = (slice(top, top + size), slice(left, left + size))
        images.append(image[:, box[0], box[1]].float())
        truths.append(segments[box].float())
    return torch.stack(images), outlines(torch.stack(truths)[:, None])


def learn_outlines(run: MFCNRun, photos: Photos, steps: int, rate: float, size: int) -> list[float]:
    """Train the edges of a network on outlines; its surface stays as it is. Returns the losses."""
    trained = run.networks["mfcn"]
    kind, numbers, losses = run.device.type, random.Random(0), []
    trained.network.train()
    for step in range(steps):
        for group in trained.optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 100) * (1.0 - step / steps)
        image, truth = draw_outlined(photos, 64 if kind != "cpu" else 4, size, numbers)
        image = image.contiguous(memory_format=torch.channels_last)
        with torch.autocast(kind, torch.bfloat16, enabled=kind != "cpu"):
            found = trained.network(image).edges
        assert found is not None
        loss = balanced_cross_entropy(found, truth)
        trained.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(trained.network.parameters(), 5.0)
        trained.optimizer.step()
        if step % max(1, steps // 10) == 0 or step == steps - 1:
            losses.append(round(float(loss.detach()), 4))
    trained.optimizer.state.clear()
    trained.average.load_state_dict(trained.network.state_dict())
    return losses


def try_edges_first(
    folder: Path,
    out: Path,
    *,
    steps: int,
    outline_steps: int,
    workers: int,
    rate: float,
    tiny: bool,
) -> None:
    """Train both, and write their curves."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plan = TrainingPlan(
        1e6,
        learning_rate=rate,
        weight_decay=MFCN_PLAN.weight_decay,
        workers=workers,
        validate_every=20.0,
        n_validation=192,
        steps=steps,
    )
    stream, sizes = StreamOptions(group=16), HALF
    if tiny:
        plan = TrainingPlan(1e6, 4, None, rate, 5e-4, workers, 10.0, 4, steps=steps)
        stream, sizes = StreamOptions(size=64, group=4), TINY
    photos = read_folder(folder)
    runs = [MFCNRun.begin(sizes, plan, device, names=("mfcn",)) for _ in range(2)]
    start = time.monotonic()
    train, _ = photos.split()
    outline_losses = learn_outlines(runs[1], train.to(device), outline_steps, rate, stream.size)
    outline_seconds = time.monotonic() - start
    both = MFCNRun({SCRATCH: runs[0].networks["mfcn"], FIRST: runs[1].networks["mfcn"]})
    train_network(
        both,
        photos,
        plan,
        piece_seconds=1e6,
        stream=stream,
        report=lambda entry: print(json.dumps(entry), flush=True),
    )
    found: dict[str, Any] = {
        "options": sizes.to_dict(),
        "steps": both.step,
        "outline_steps": outline_steps,
        "outline_seconds": round(outline_seconds, 1),
        "outline_losses": outline_losses,
        "seconds": round(both.seconds, 1),
        "card": torch.cuda.get_device_name() if device == "cuda" else "none",
        "curve": both.curve,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1))
