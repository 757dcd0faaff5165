"""Training MFCN and SFCN, and making their maps, where nothing but torch and Pillow is installed.

What both need lies in a folder that `_mfcn_folders.py` prepares.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from cpcapp.splicing.make.stream import StreamOptions
from cpcapp.splicing.networks.loop import STATE, Photos, TrainingPlan, read_file, train_network
from cpcapp.splicing.networks.mfcn import MFCN, MFCNOptions, measure_coarse
from cpcapp.splicing.networks.mfcn_training import MFCN_PLAN, MFCNRun
from cpcapp.splicing.networks.trace_network import NetworkOptions
from cpcapp.splicing.networks.training import TrainingRun

Results = dict[str, Any]
# The network of `default`, trained beside the others on as many splices.
TRACES = "traces"
OURS = TrainingPlan()
# For a first try on a computer without a GPU.
TINY = MFCNOptions(widths=(4, 4, 8, 8, 8), top=16, window=3)


def read_folder(folder: Path) -> Photos:
    """Return the photos of a prepared folder, with what people outlined in them."""
    listed = json.loads((folder / "photos.json").read_text())
    images: list[torch.Tensor] = []
    segments: list[torch.Tensor | None] = []
    for entry in listed:
        with Image.open(folder / entry["file"]) as image:
            pixels = np.array(image.convert("RGB"))
        images.append(torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))))
        if entry["segments"] is None:
            segments.append(None)
            continue
        with Image.open(folder / entry["segments"]) as image:
            segments.append(torch.from_numpy(np.array(image).astype(np.int32)))
    return Photos(images, segments, tuple(entry["name"] for entry in listed))


def train(
    photos: Path,
    folder: Path,
    *,
    seconds: float,
    piece: float,
    workers: int,
    rate: float,
    tiny: bool,
    steps: int | None = None,
    names: tuple[str, ...] = ("mfcn", "sfcn"),
) -> None:
    """Train the networks for a piece, or go on, and leave everything in a folder."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plan = TrainingPlan(
        seconds=seconds,
        workers=workers,
        learning_rate=rate,
        weight_decay=MFCN_PLAN.weight_decay,
        steps=steps,
    )
    stream = StreamOptions(group=16)
    sizes = MFCNOptions()
    if tiny:
        plan = TrainingPlan(seconds, 4, None, rate, 5e-4, workers, seconds / 4, 4, steps=steps)
        stream, sizes = StreamOptions(size=64, group=4), TINY
    read = read_folder(photos)
    print(f"{len(read.images)} photos, on {device}", flush=True)
    run: MFCNRun | TrainingRun
    if TRACES in names:
        # Its own learning rate and decay; all else is the same.
        plan = replace(plan, learning_rate=OURS.learning_rate, weight_decay=OURS.weight_decay)
        if (folder / STATE).is_file():
            run = TrainingRun.resume(folder, plan, device)
        else:
            run = TrainingRun.begin(NetworkOptions(), plan, device)
    elif (folder / STATE).is_file():
        run = MFCNRun.resume(folder, plan, device)
    else:
        run = MFCNRun.begin(sizes, plan, device, names=names)
    train_network(
        run,
        read,
        plan,
        piece_seconds=piece,
        stream=stream,
        report=lambda entry: print(json.dumps(entry), flush=True),
    )
    started = time.monotonic()
    run.save(folder)
    print(f"saved in {time.monotonic() - started:.0f} s", flush=True)
    facts = {
        "photos": len(read.images),
        "card": torch.cuda.get_device_name() if device == "cuda" else "none",
        "torch": torch.__version__,
        "workers": workers,
        "batch": plan.batch,
        "learning_rate": rate,
        "seconds_planned": seconds,
        "steps_planned": steps,
    }
    (folder / "facts.json").write_text(json.dumps(facts, indent=1))


def read_trained(folder: Path, device: str) -> dict[str, MFCN]:
    """Return the networks of a training, with the mean of their weights."""
    content = json.loads((folder / STATE).read_text())
    networks = {}
    for name in content.get("networks", ("mfcn", "sfcn")):
        sizes = content["options"] | {"edges": name == "mfcn"}
        network = MFCN(MFCNOptions.from_dict(sizes)).to(device)
        network.load_state_dict(read_file(folder / f"{name}-average.safetensors", device))
        networks[name] = network.eval()
    return networks


def make_maps(photos: Path, folder: Path, out: Path) -> None:
    """Write the logits of both networks for all photos of a prepared folder."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    networks = read_trained(folder, device)
    found: dict[str, Any] = {}
    start = time.monotonic()
    listed = json.loads((photos / "photos.json").read_text())
    for entry in listed:
        with Image.open(photos / entry["file"]) as image:
            pixels = np.array(image.convert("RGB"))
        for name, network in networks.items():
            coarse = measure_coarse(network, pixels)
            found[f"{name}/{entry['name']}"] = coarse.astype(np.float16)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, **found)
    took = time.monotonic() - start
    print(f"{len(listed)} photos in {took:.0f} s, {out.stat().st_size / 1e6:.1f} MB", flush=True)
