"""Train the trace network on a pool of many collections, and score it on others.

    python benchmarks/pool_network.py start POOL... -o FILE
    python benchmarks/pool_network.py splices POOL... --unseen POOL -o SPLICES
    python benchmarks/pool_network.py train POOL... --start FILE --splices SPLICES -o RUN
    python benchmarks/pool_network.py score --network NAME=FILE... --splices SPLICES -o FILE
    python benchmarks/pool_network.py export RUN

POOL are folders that `training_photos.py` filled, and one of `_mfcn_folders.py` with the photos
that the first network was trained on. ``start`` writes the weights of a network, by default that of
the package's default model, as ones to go on from. Training needs torch, NumPy, Pillow and
safetensors only: the recipe and sizes are those of ``cpcapp train-network``. It goes on with a
training that RUN holds, and saves after each entry of the curve. Scores are of fixed splices of
five kinds of photos: held out of the older collections and of the newer ones, and of three
collections that no training saw: straight from cameras, from the web with polygons, and without
losses; each with splices of the usual kinds and of more kinds. FILE of a network is
``average.safetensors`` of a RUN, or what ``start`` wrote.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from cpcapp.splicing.make.stream import SpliceBatch, SpliceStream, StreamOptions
from cpcapp.splicing.networks.loop import (
    STATE,
    Photos,
    TrainingPlan,
    best_f1,
    plain_tensors,
    read_file,
    train_network,
)
from cpcapp.splicing.networks.losses import seam_band
from cpcapp.splicing.networks.trace_network import NetworkOptions, TraceNetwork
from cpcapp.splicing.networks.training import TrainingRun, validate

# All photos of the older collections are in one order, of which each eighth is held out.
OLD_EVERY = 8
UNSEEN = {
    "unseen cameras": ("merbanan/rtl_433_tests",),
    "unseen web": ("Obmutescence/COCO-MINI", "zzowenzz/COCO_Tiny"),
    "unseen lossless": ("majedelhelou/denoising_datasets",),
}
SETS = ("old held out", "new held out", *UNSEEN)
GROUP = 16
# Splices of a group share the kinds of their steps: for scores more kinds are better.
SCORED_GROUP = 4
# Steps.
SIGN_EVERY = 50
SAVE_EVERY = 1000


# How often photos of each kind are drawn; and of a kind, by the square root of their number,
# photos of each repository, some of which show one kind of scene again and again.
SHARES = {"old": 0.3, "objects": 0.3, "lossless": 0.15, "cameras": 0.25}
OBJECTS = (
    "bio-punk/AutoPortraitMatting",
    "ml4py/dataset-iiit-pet",
    "bearpaw/clothing-co-parsing",
    "VikramShenoy97/Human-Segmentation-Dataset",
    "MathLee/EOR-VOS",
)
LOSSLESS = ("imazen/codec-corpus", "Zelex/images", "JingyunLiang/SwinIR")
KINDS = ("usual", "more")
# What is trained on: of more kinds half as many, but small photos saved twice.
MIXED = "mixed"
TWICE_SAVED = 0.15


@dataclass(frozen=True)
class PoolPhoto:
    """A photo of a pool: its pixels, numbers of things in it, -1 for none, and what it is for.

    ``repository`` is "" for the older collections.
    """

    pixels: np.ndarray
    segments: np.ndarray | None
    name: str
    role: str
    repository: str


def kind_of(repository: str) -> str:
    """Return the kind of photos that a repository has, one of `SHARES`."""
    named = {"": "old"} | dict.fromkeys(OBJECTS, "objects") | dict.fromkeys(LOSSLESS, "lossless")
    return named.get(repository, "cameras")


def photo_weights(photos: Sequence[PoolPhoto]) -> list[float]:
    """Return how often each photo is drawn, so that kinds have their shares."""
    counts = Counter(photo.repository for photo in photos)
    roots = {name: count**0.5 for name, count in counts.items()}
    sums = dict.fromkeys(SHARES, 0.0)
    for name, root in roots.items():
        sums[kind_of(name)] += root
    return [
        SHARES[kind_of(name)] * roots[name] / sums[kind_of(name)] / counts[name]
        for name in (photo.repository for photo in photos)
    ]


@dataclass(frozen=True)
class StoredPhotos(Photos):
    """Photos that other processes read from a file: so many can't be sent to them.

    Attributes
    ----------
    held : Photos or None
        Those that are held out.
    store : Path or None
    """

    held: Photos | None = None
    store: Path | None = None

    def split(self, every: int = 8) -> tuple[Photos, Photos]:
        """Return the photos to train on, and those that are held out."""
        assert self.held is not None
        return self, self.held

    def __reduce__(self) -> tuple[Any, ...]:
        return load_photos, (self.store,)


def store_photos(
    photos: Sequence[PoolPhoto], held: Photos, store: Path, weights: Sequence[float] = ()
) -> StoredPhotos:
    """Write photos into a folder, one after the other in two files, and return them."""
    store.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[np.ndarray]] = {"pixels": [], "segments": []}
    for photo in photos:
        parts["pixels"].append(photo.pixels.ravel())
        if photo.segments is not None:
            parts["segments"].append(photo.segments.ravel())
    for name, arrays in parts.items():
        np.save(store / f"{name}.npy", np.concatenate([np.zeros(0, arrays[0].dtype), *arrays]))
    shapes = [(*photo.pixels.shape, photo.segments is not None) for photo in photos]
    (store / "shapes.json").write_text(json.dumps(shapes))
    (store / "weights.json").write_text(json.dumps(list(weights)))
    return replace(load_photos(store), held=held)


def load_photos(store: Path) -> StoredPhotos:
    """Return the photos of a folder; nothing is read before it is used."""
    files = {name: np.load(store / f"{name}.npy", mmap_mode="c") for name in ("pixels", "segments")}
    at = dict.fromkeys(files, 0)

    def take(name: str, shape: Sequence[int]) -> Tensor:
        begin, at[name] = at[name], at[name] + int(np.prod(shape))
        return torch.from_numpy(files[name][begin : at[name]]).view(*shape)

    images: list[Tensor] = []
    segments: list[Tensor | None] = []
    for *shape, has_segments in json.loads((store / "shapes.json").read_text()):
        images.append(take("pixels", shape))
        segments.append(take("segments", shape[1:]) if has_segments else None)
    weights = tuple(json.loads((store / "weights.json").read_text()))
    return StoredPhotos(images, segments, weights=weights, store=store)


def _as_photos(photos: Sequence[PoolPhoto]) -> Photos:
    return Photos(
        [torch.from_numpy(photo.pixels) for photo in photos],
        [None if p.segments is None else torch.from_numpy(p.segments) for p in photos],
        tuple(photo.name for photo in photos),
    )


def read_pool(folders: Sequence[Path]) -> list[PoolPhoto]:
    """Read all photos of some folders, each with its role: "train" or one of `SETS`."""
    jobs = []
    for folder in folders:
        for number, entry in enumerate(json.loads((folder / "photos.json").read_text())):
            if "use" not in entry:
                role = "train" if number % OLD_EVERY else "old held out"
            elif entry["use"] == "unseen":
                role = next(s for s, names in UNSEEN.items() if entry["repository"] in names)
            else:
                role = "new held out" if entry["use"] == "held out" else "train"
            jobs.append((folder, entry, role))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(lambda job: _read(*job), jobs))


def _read(folder: Path, entry: dict[str, Any], role: str) -> PoolPhoto:
    with Image.open(folder / entry["file"]) as image:
        pixels = np.ascontiguousarray(np.array(image.convert("RGB")).transpose(2, 0, 1))
    segments = None
    if entry["segments"] is not None:
        with Image.open(folder / entry["segments"]) as image:
            segments = np.array(image).astype(np.int16)
        if "use" in entry:
            segments -= 1  # 0 is what lies around the objects; in the older ones all is outlined.
    name = entry.get("name", entry["file"])
    return PoolPhoto(pixels, segments, name, role, entry.get("repository", ""))


def write_splices(arguments: argparse.Namespace) -> None:
    """Draw splices of the photos of each of `SETS`, of both kinds, and keep them in files."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    photos = read_pool([*arguments.pool, arguments.unseen])
    arguments.output.mkdir(parents=True, exist_ok=True)
    for role in SETS:
        chosen = _as_photos([photo for photo in photos if photo.role == role]).to(device)
        for kind, size, n in (
            *((kind, arguments.size, arguments.n) for kind in KINDS),
            ("more", arguments.size * 3 // 2, arguments.n // 4),
        ):
            stream = SpliceStream(
                chosen.images, chosen.segments, stream_options(kind, size, SCORED_GROUP), seed=777
            )
            batch = stream.draw(n)
            parts = {
                "image": batch.image.byte().cpu().contiguous(),
                "mask": batch.mask.byte().cpu().contiguous(),
                "table": batch.table.cpu().contiguous(),
            }
            save_file(parts, arguments.output / f"{role}, {kind}, {size}.safetensors")
        print(role, len(chosen.images), flush=True)


def read_splices(file: Path, device: str, n: int | None = None) -> list[SpliceBatch]:
    """Return splices of a file in batches of 32, the first ``n`` of them or all."""
    parts = read_file(file, "cpu")
    batches = zip(*(parts[name][:n].split(32) for name in ("image", "mask", "table")), strict=True)
    return [
        SpliceBatch(image.to(device).float(), mask.to(device).float(), table.to(device))
        for image, mask, table in batches
    ]


def stream_options(kind: str, size: int, group: int) -> StreamOptions:
    """Return the options of splices of one of `KINDS`, or of `MIXED` ones."""
    usual = StreamOptions(size=size, group=group)
    more = usual.of_more_kinds()
    if kind != MIXED:
        return more if kind == "more" else usual
    halved = {
        name: getattr(more, name) / 2.0
        for name in more.__dataclass_fields__
        if name.endswith("_share") and getattr(more, name) != getattr(usual, name)
    }
    return replace(more, **halved | {"twice_saved_share": TWICE_SAVED})


# -- training --------------------------------------------------------------------------------


@dataclass
class PoolRun(TrainingRun):
    """A training that is scored on further splices.

    Attributes
    ----------
    further : dict
        Splices by what they are of.
    folder : Path
        To save to.
    """

    further: dict[str, list[SpliceBatch]] | None = None
    folder: Path = Path()

    def learn(self, batch: SpliceBatch, plan: TrainingPlan) -> dict[str, Tensor]:
        """Take one step; save now and then, and leave a sign that the training goes on."""
        losses = super().learn(batch, plan)
        if self.step % SIGN_EVERY == 0:
            with (self.folder / "alive").open("a") as file:
                file.write(f"{self.step} {time.monotonic():.1f}\n")
        if self.step % SAVE_EVERY == 0:
            self.save(self.folder)
        return losses

    def score(self, batches: Sequence[SpliceBatch]) -> dict[str, float]:
        """Return scores of the mean weights on all splices."""
        scores = validate(self.average, batches)
        for name, splices in (self.further or {}).items():
            scores |= {f"{name}: {k}": v for k, v in validate(self.average, splices).items()}
        return scores


def train(arguments: argparse.Namespace) -> None:
    """Train a piece, and leave everything in a folder."""
    start = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plan = TrainingPlan(
        seconds=arguments.seconds,
        workers=arguments.workers,
        learning_rate=arguments.learning_rate,
        validate_every=arguments.validate_every,
    )
    stream = stream_options(arguments.kinds, StreamOptions.size, GROUP)
    if arguments.tiny:
        plan = replace(plan, batch=16, large_size=None, n_validation=16)
        stream = replace(stream, size=64)
    photos = read_pool(arguments.pool)
    learned = [photo for photo in photos if photo.role == "train"]
    held = _as_photos([photo for photo in photos if photo.role == "old held out"])
    counts = {role: sum(p.role == role for p in photos) for role in ("train", *SETS)}
    print(f"{counts} on {device}, read in {time.monotonic() - start:.0f} s", flush=True)
    store = Path(tempfile.mkdtemp(prefix="pool-", dir=arguments.store))
    stored = store_photos(learned, held, store, photo_weights(learned))
    folder: Path = arguments.output
    if (folder / STATE).is_file():
        run = PoolRun.resume(folder, plan, device)
    else:
        weights = read_file(arguments.start, device) if arguments.start else None
        run = PoolRun.begin(NetworkOptions(), plan, device, weights)
    if arguments.compile:
        run.network.compile(dynamic=False)
    folder.mkdir(parents=True, exist_ok=True)
    run.folder = folder
    files = sorted(arguments.splices.glob(f"*, {stream.size}.safetensors"))
    run.further = {file.stem: read_splices(file, device, plan.n_validation) for file in files}
    print(f"ready after {time.monotonic() - start:.0f} s", flush=True)

    def report(entry: dict[str, float]) -> None:
        run.save(folder)
        print(json.dumps(entry), flush=True)

    train_network(
        run,
        stored,
        plan,
        piece_seconds=arguments.piece or arguments.seconds,
        stream=stream,
        report=report,
    )
    run.save(folder)
    facts = {
        "photos": counts,
        "card": torch.cuda.get_device_name() if device == "cuda" else "none",
        "torch": torch.__version__,
        "workers": plan.workers,
        "kinds": arguments.kinds,
        "learning_rate": plan.learning_rate,
        "started_from": arguments.start.stem if arguments.start else None,
        "seconds_planned": plan.seconds,
        "steps": run.step,
        "seconds": round(run.seconds, 1),
        # What is calibrated on photos that the network has learned would promise too much.
        "held_out_photos": [Path(p.name).stem for p in photos if p.role in SETS[:2]],
    }
    (folder / "facts.json").write_text(json.dumps(facts, indent=1))
    print("finished", flush=True)


def write_start(arguments: argparse.Namespace) -> None:
    """Write the weights of a network as ones that can be trained."""
    from cpcapp.splicing import load_model
    from cpcapp.splicing.model import load_network
    from cpcapp.splicing.networks.go_on import trainable_network

    meter = load_model().network if arguments.network is None else load_network(arguments.network)
    assert meter is not None
    learned = _as_photos([photo for photo in read_pool(arguments.pool) if photo.role == "train"])
    stream = SpliceStream(learned.images, learned.segments, StreamOptions(), seed=99)
    network = trainable_network(meter, [stream.draw(8) for _ in range(16)])
    save_file(plain_tensors(network.state_dict()), arguments.output)


def export(arguments: argparse.Namespace) -> None:
    """Write the network of a training as it is used."""
    from cpcapp.splicing.model import save_network
    from cpcapp.splicing.networks.export import export_network

    run = TrainingRun.resume(arguments.run_folder, TrainingPlan(), "cpu")
    facts = json.loads((arguments.run_folder / "facts.json").read_text())
    scores = {name: value for name, value in run.curve[-1].items() if ": " not in name}
    facts |= {"scores": scores, "pieces": run.piece}
    file = arguments.run_folder / "network.safetensors"
    save_network(export_network(run.average, facts), file)
    print(f"{file}: {file.stat().st_size / 1e6:.1f} MB")


# -- scoring ---------------------------------------------------------------------------------


def measure(network: Any, batches: Sequence[SpliceBatch]) -> dict[str, Tensor]:
    """Return what `validate` takes the mean of, for each splice."""
    parts: dict[str, list[Tensor]] = {name: [] for name in ("seam", "region", "pasted", "peak")}
    for batch in batches:
        with torch.no_grad():
            output = network(batch.image, batch.table)
        mask = torch.nn.functional.avg_pool2d(batch.mask, 8) > 0.5
        parts["seam"].append(best_f1(output.seam, seam_band(batch.mask) > 0))
        parts["region"].append(
            torch.maximum(best_f1(output.region, mask), best_f1(-output.region, mask))
        )
        marked = output.pasted > 0
        both = (marked.sum(dim=(1, 2, 3)) + mask.sum(dim=(1, 2, 3))).clamp(min=1)
        parts["pasted"].append(2.0 * (marked & mask).sum(dim=(1, 2, 3)) / both)
        parts["peak"].append(torch.nn.functional.avg_pool2d(output.seam, 8).amax(dim=(1, 2, 3)))
    return {name: torch.cat(values) for name, values in parts.items()}


def summarize(found: dict[str, Tensor], spliced: Tensor) -> dict[str, float]:
    """Return mean scores of spliced photos, and the AUC of the highest seams."""
    peak = found["peak"]
    higher = peak[spliced][:, None] > peak[~spliced][None]
    means = {f"{k}_f1": found[k][spliced].mean() for k in ("region", "pasted", "seam")}
    return {
        k: round(float(v), 4) for k, v in {**means, "verdict_auc": higher.float().mean()}.items()
    }


def compare(first: dict[str, Tensor], second: dict[str, Tensor], spliced: Tensor) -> Any:
    """Return how much better the second is, and the standard error of that over splices."""
    result = {}
    for name in ("region", "pasted", "seam"):
        more = (second[name] - first[name])[spliced]
        error = more.std() / len(more) ** 0.5
        result[f"{name}_f1"] = [round(float(more.mean()), 4), round(float(error), 4)]
    return result


def score(arguments: argparse.Namespace) -> None:
    """Score networks on the same splices, the others against the first."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.allow_tf32 = False
    networks = {}
    for name, file in (given.split("=", 1) for given in arguments.network):
        networks[name] = TraceNetwork(NetworkOptions()).to(device).eval()
        networks[name].load_state_dict(read_file(Path(file), device))
    results: dict[str, Any] = {}
    for file in sorted(arguments.splices.glob("*.safetensors")):
        batches = read_splices(file, device, arguments.n)
        spliced = torch.cat([batch.mask.mean(dim=(1, 2, 3)) > 0 for batch in batches])
        found = {name: measure(network, batches) for name, network in networks.items()}
        entry: dict[str, Any] = {"splices": len(spliced), "spliced": int(spliced.sum())}
        entry |= {name: summarize(values, spliced) for name, values in found.items()}
        first, *others = found
        entry["difference, standard error"] = {
            name: compare(found[first], found[name], spliced) for name in others
        }
        results[file.stem] = entry
        for name in networks:
            print(f"{file.stem:30} {name:12}", *entry[name].values(), flush=True)
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    starts = commands.add_parser("start")
    starts.add_argument("--network", type=Path, help="a file of export; by default the shipped one")
    starts.set_defaults(run=write_start)
    splices = commands.add_parser("splices")
    splices.add_argument("--unseen", type=Path, required=True)
    splices.add_argument("--size", type=int, default=256)
    splices.add_argument("-n", type=int, default=384)
    splices.set_defaults(run=write_splices)
    trains = commands.add_parser("train")
    trains.add_argument("--start", type=Path, help="weights; without, random ones")
    trains.add_argument("--kinds", choices=(*KINDS, MIXED), default=MIXED)
    trains.add_argument("--learning-rate", type=float, default=TrainingPlan.learning_rate)
    trains.add_argument("--seconds", type=float, default=1440.0)
    trains.add_argument("--piece", type=float)
    trains.add_argument("--workers", type=int, default=12)
    trains.add_argument("--validate-every", type=float, default=60.0)
    trains.add_argument("--store", type=Path, help="a folder for 4 GB, best in memory")
    trains.add_argument("--compile", action="store_true", help="faster steps after a minute")
    trains.add_argument("--tiny", action="store_true", help="for a first try")
    trains.set_defaults(run=train)
    exports = commands.add_parser("export")
    exports.add_argument("run_folder", type=Path)
    exports.set_defaults(run=export)
    scores = commands.add_parser("score")
    scores.add_argument("--network", action="append", required=True, metavar="NAME=FILE")
    scores.add_argument("-n", type=int, help="splices of each kind, at most")
    scores.set_defaults(run=score)
    for command in (starts, splices, trains):
        command.add_argument("pool", nargs="+", type=Path)
    for command in (trains, scores):
        command.add_argument("--splices", type=Path, required=True)
    for command in (starts, splices, trains, scores):
        command.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
