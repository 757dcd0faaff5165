"""Training a trace network on a stream of splices, in pieces that go on where the last stopped."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from cpcapp._files import atomic_write
from cpcapp._staging import stage_results
from cpcapp.splicing.making.stream import SpliceBatch, SpliceStream, StreamOptions
from cpcapp.splicing.networks.losses import Losses, measure_losses, seam_band
from cpcapp.splicing.networks.trace_network import NetworkOptions, TraceNetwork

# Of the learning rate, and what is kept of the mean of the weights in a step: usual values, not
# tuned.
_WARM_UP_STEPS = 300
_AVERAGING = 0.999
# Batches that a process makes ahead.
_AHEAD = 4
# The last of the files of a run that is written.
_STATE = "run.json"


@dataclass(frozen=True)
class TrainingPlan:
    """How a network is trained.

    Attributes
    ----------
    seconds : float
        Of training in all; the learning rate falls to 0 by then.
    batch : int
        Splices in a step, a multiple of the stream's group.
    large_size : int or None
        Side of the larger splices that every third process makes, fewer in a step; None for none.
        Photos that people have are larger than what fits into most steps.
    learning_rate : float
    weight_decay : float
    workers : int
        Processes that make splices; 0 makes them in this one.
    validate_every : float
        Seconds between two scores on splices of held-out photos.
    n_validation : int
        These splices.
    seed : int
    """

    seconds: float = 1500.0
    batch: int = 64
    large_size: int | None = 384
    learning_rate: float = 1.5e-3
    weight_decay: float = 1e-4
    workers: int = 4
    validate_every: float = 60.0
    n_validation: int = 96
    seed: int = 0


@dataclass(frozen=True)
class Photos:
    """Photos to make splices of, with what people outlined in them, and their names if known."""

    images: list[Tensor]
    segments: list[Tensor | None]
    names: tuple[str, ...] = ()

    def to(self, device: str | torch.device) -> Photos:
        """Return them on a device."""
        return Photos(
            [image.to(device) for image in self.images],
            [None if s is None else s.to(device) for s in self.segments],
            self.names,
        )

    def split(self, every: int = 8) -> tuple[Photos, Photos]:
        """Return the photos to train on, and every eighth, which is held out."""
        held = range(0, len(self.images), every)
        kept = [i for i in range(len(self.images)) if i not in set(held)]
        return self._pick(kept), self._pick(held)

    def _pick(self, numbers: Sequence[int]) -> Photos:
        return Photos(
            [self.images[i] for i in numbers],
            [self.segments[i] for i in numbers],
            tuple(self.names[i] for i in numbers) if self.names else (),
        )


@dataclass
class TrainingRun:
    """A training under way.

    Attributes
    ----------
    network, average : TraceNetwork
        The network, and the running mean of its weights, which is what counts in the end.
    optimizer : torch.optim.AdamW
    step : int
    seconds : float
        Spent so far.
    piece : int
        How often it was begun or resumed.
    curve : list of dict
        Losses and scores over time.
    """

    network: TraceNetwork
    average: TraceNetwork
    optimizer: torch.optim.AdamW
    step: int = 0
    seconds: float = 0.0
    piece: int = 0
    curve: list[dict[str, float]] | None = None

    @classmethod
    def begin(cls, options: NetworkOptions, plan: TrainingPlan, device: str) -> TrainingRun:
        """Start with random weights."""
        torch.manual_seed(plan.seed)
        network, average = TraceNetwork(options).to(device), TraceNetwork(options).to(device)
        average.load_state_dict(network.state_dict())
        if device != "cpu":
            network = network.to(memory_format=torch.channels_last)
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=plan.learning_rate, weight_decay=plan.weight_decay
        )
        return cls(network, average.requires_grad_(False).eval(), optimizer, curve=[])

    def save(self, folder: Path) -> None:
        """Write everything that a later piece needs, in files of at most 16 MiB.

        All of them take the place of the last ones together, or none.
        """
        states = self.optimizer.state_dict()["state"]
        moments: dict[str, dict[str, Tensor]] = {"exp_avg": {}, "exp_avg_sq": {}}
        for number, state in states.items():
            for name in moments:
                moments[name][str(number)] = state[name].contiguous()
        # 16 bits are enough for the first moment; the second spans too many orders of magnitude.
        parts = {
            "weights": _plain(self.network.state_dict()),
            "average": _plain(self.average.state_dict()),
            "first": {k: v.bfloat16() for k, v in moments["exp_avg"].items()},
            "second": {k: v.bfloat16() for k, v in moments["exp_avg_sq"].items()},
        }
        content = {
            "options": self.network.options.to_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "piece": self.piece,
            "curve": self.curve,
        }
        files = {f"{name}.safetensors": save(tensors) for name, tensors in parts.items()}
        files[_STATE] = json.dumps(content, indent=1).encode()
        with stage_results(folder) as staged:
            for name, data in files.items():
                with atomic_write(staged.new / name) as file:
                    file.write(data)
            staged.commit(marker=_STATE)

    @classmethod
    def resume(cls, folder: Path, plan: TrainingPlan, device: str) -> TrainingRun:
        """Read what `save` wrote."""
        content = json.loads((folder / _STATE).read_text())
        run = cls.begin(NetworkOptions.from_dict(content["options"]), plan, device)
        run.network.load_state_dict(_read(folder / "weights.safetensors", device))
        run.average.load_state_dict(_read(folder / "average.safetensors", device))
        moments = [_read(folder / f"{name}.safetensors", device) for name in ("first", "second")]
        steps = torch.tensor(float(content["step"]))
        state = {
            int(number): {
                "step": steps.clone(),
                "exp_avg": moments[0][number].float(),
                "exp_avg_sq": moments[1][number].float(),
            }
            for number in moments[0]
        }
        groups = run.optimizer.state_dict()["param_groups"]
        run.optimizer.load_state_dict({"state": state, "param_groups": groups})
        run.step, run.seconds = int(content["step"]), float(content["seconds"])
        run.piece, run.curve = int(content["piece"]), list(content["curve"])
        return run


def train_network(
    run: TrainingRun,
    photos: Photos,
    plan: TrainingPlan,
    *,
    piece_seconds: float,
    stream: StreamOptions | None = None,
    report: Callable[[dict[str, float]], None] | None = None,
) -> TrainingRun:
    """Train for one piece, or to the end of the plan if that comes first.

    Parameters
    ----------
    run : TrainingRun
    photos : Photos
        Those that are held out are chosen here; see `Photos.split`.
    plan : TrainingPlan
    piece_seconds : float
    stream : StreamOptions, optional
    report : callable, optional
        Called with the entries of the curve.

    Returns
    -------
    TrainingRun
        The same, further on.
    """
    device = next(run.network.parameters()).device
    train, held = photos.split()
    options = stream or StreamOptions()
    validation = SpliceStream(held.to(device).images, held.to(device).segments, options, seed=12345)
    fixed = [validation.draw(options.group) for _ in range(-(-plan.n_validation // options.group))]
    run.piece += 1
    start, before = time.monotonic(), run.seconds
    due = run.seconds + plan.validate_every
    batches = _batches(train, options, plan, run.piece, str(device))
    sums: list[Tensor] = []
    try:
        for batch in batches:
            run.seconds = before + time.monotonic() - start
            is_over = run.seconds >= plan.seconds or run.seconds - before >= piece_seconds
            # On a slow computer the first batch may take longer than that.
            if is_over and run.step:
                break
            losses = _step(run, batch, plan)
            sums.append(torch.stack([part.detach() for part in losses]))
            if run.seconds >= due:
                due += plan.validate_every
                entry = _entry(run, sums, fixed)
                sums = []
                if report is not None:
                    report(entry)
    finally:
        batches.close()
    if sums:
        entry = _entry(run, sums, fixed)
        if report is not None:
            report(entry)
    return run


def _step(run: TrainingRun, batch: SpliceBatch, plan: TrainingPlan) -> Losses:
    done = min(1.0, run.seconds / plan.seconds)
    rate = plan.learning_rate * min(1.0, (run.step + 1) / _WARM_UP_STEPS)
    for group in run.optimizer.param_groups:
        group["lr"] = rate * 0.5 * (1.0 + math.cos(math.pi * done))
    run.network.train()
    kind = batch.image.device.type
    with torch.autocast(kind, torch.bfloat16, enabled=kind != "cpu"):
        output = run.network(batch.image, batch.table)
    losses = measure_losses(output, batch.mask)
    run.optimizer.zero_grad(set_to_none=True)
    losses.total.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(run.network.parameters(), 1.0)
    run.optimizer.step()
    run.step += 1
    _average(run)
    return losses


@torch.no_grad()
def _average(run: TrainingRun) -> None:
    # Of few steps the mean is that of all of them.
    keep = min(_AVERAGING, run.step / (run.step + 9.0))
    mine, theirs = run.average.state_dict(), run.network.state_dict()
    floats = [name for name, value in mine.items() if value.is_floating_point()]
    torch._foreach_mul_([mine[name] for name in floats], keep)
    torch._foreach_add_(
        [mine[name] for name in floats], [theirs[name] for name in floats], alpha=1.0 - keep
    )


def _entry(run: TrainingRun, sums: list[Tensor], fixed: list[SpliceBatch]) -> dict[str, float]:
    means = torch.stack(sums).mean(dim=0).tolist()
    entry = {
        "seconds": round(run.seconds, 1),
        "step": run.step,
        **{f"loss_{name}": round(x, 4) for name, x in zip(Losses._fields, means, strict=True)},
        **validate(run.average, fixed),
    }
    assert run.curve is not None
    run.curve.append(entry)
    return entry


@torch.no_grad()
def validate(network: TraceNetwork, batches: Sequence[SpliceBatch]) -> dict[str, float]:
    """Score a network on some splices.

    Returns
    -------
    dict
        Of spliced photos the mean best F1 of seams, of regions (better sign) and of the pasted side
        at one half; and how well the highest seams tell spliced from authentic photos (AUC).
    """
    network.eval()
    seams, regions, sides, peaks, truths = [], [], [], [], []
    for batch in batches:
        kind = batch.image.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=kind != "cpu"):
            output = network(batch.image, batch.table)
        spliced = batch.mask.mean(dim=(1, 2, 3)) > 0
        band, mask = seam_band(batch.mask), nn.functional.avg_pool2d(batch.mask, 8) > 0.5
        seams.append(_best_f1(output.seam.float(), band > 0)[spliced])
        region = output.region.float()
        found = torch.maximum(_best_f1(region, mask), _best_f1(-region, mask))
        regions.append(found[spliced])
        marked = output.pasted > 0
        hits = (marked & mask).sum(dim=(1, 2, 3))
        both = (marked.sum(dim=(1, 2, 3)) + mask.sum(dim=(1, 2, 3))).clamp(min=1)
        sides.append((2.0 * hits / both)[spliced])
        peaks.append(nn.functional.avg_pool2d(output.seam.float(), 8).amax(dim=(1, 2, 3)))
        truths.append(spliced)
    peak, truth = torch.cat(peaks), torch.cat(truths)
    higher = (peak[truth][:, None] > peak[~truth][None]).float()
    return {
        "seam_f1": round(float(torch.cat(seams).mean()), 4),
        "region_f1": round(float(torch.cat(regions).mean()), 4),
        "pasted_f1": round(float(torch.cat(sides).mean()), 4),
        "verdict_auc": round(float(higher.mean()), 4) if higher.numel() else float("nan"),
    }


def _best_f1(logits: Tensor, truth: Tensor) -> Tensor:
    levels = torch.sigmoid(logits).flatten(1)
    wanted = truth.flatten(1).float()
    best = torch.zeros(len(levels), device=levels.device)
    for threshold in torch.linspace(0.02, 0.98, 49):
        marked = (levels >= threshold).float()
        hits = (marked * wanted).sum(dim=1)
        f1 = 2.0 * hits / (marked.sum(dim=1) + wanted.sum(dim=1)).clamp(min=1.0)
        best = torch.maximum(best, f1)
    return best


# -- making splices beside the training ----------------------------------------------------


def _batches(
    photos: Photos, options: StreamOptions, plan: TrainingPlan, piece: int, device: str
) -> Generator[SpliceBatch, None, None]:
    """Yield batches without end, made by other processes where there are any."""
    if plan.workers == 0:
        here = photos.to(device)
        seed = plan.seed * 1000 + piece
        stream = SpliceStream(here.images, here.segments, options, seed=seed)
        while True:
            yield stream.draw(plan.batch)
    context = torch.multiprocessing.get_context("spawn")
    queues = [context.Queue(_AHEAD) for _ in range(plan.workers)]
    seeds = [(plan.seed * 1000 + piece) * 100 + number for number in range(plan.workers)]
    kinds = [_worker_kind(options, plan, number) for number in range(plan.workers)]
    processes = [
        context.Process(target=_make_batches, args=(photos, *kind, seed, device, q), daemon=True)
        for kind, seed, q in zip(kinds, seeds, queues, strict=True)
    ]
    for process in processes:
        process.start()
    try:
        turn = 0
        while True:
            image, mask, table = queues[turn % plan.workers].get()
            turn += 1
            yield SpliceBatch(
                image.to(device, non_blocking=True).float(),
                mask.to(device, non_blocking=True).float(),
                table.to(device, non_blocking=True),
            )
    finally:
        for process in processes:
            process.terminate()


def _worker_kind(
    options: StreamOptions, plan: TrainingPlan, number: int
) -> tuple[StreamOptions, int]:
    """Return what splices a process makes, and how many for a step: about as many pixels."""
    if plan.large_size is None or number % 3 != 2:
        return options, plan.batch
    fewer = plan.batch * options.size**2 // plan.large_size**2
    group = min(options.group, max(1, fewer))
    return replace(options, size=plan.large_size, group=group), max(1, fewer // group) * group


def _make_batches(
    photos: Photos, options: StreamOptions, size: int, seed: int, device: str, queue: Any
) -> None:
    torch.set_num_threads(1)
    here = photos.to(device)
    stream = SpliceStream(here.images, here.segments, options, seed=seed)
    while True:
        batch = stream.draw(size)
        queue.put((batch.image.byte().cpu(), batch.mask.byte().cpu(), batch.table.cpu()))


def _plain(state: dict[str, Any]) -> dict[str, Tensor]:
    return {name: value.detach().contiguous() for name, value in state.items()}


def _read(path: Path, device: str) -> dict[str, Tensor]:
    with safe_open(str(path), framework="pt", device=device) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
