"""The loop that trains networks on a stream of splices, in pieces.

What is trained is a `Run`: the trace network, or the networks of the paper's opponent. All of them
see splices that are made, held back and scored in the same way.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from cpcapp._io.files import atomic_write, stage_results
from cpcapp.splicing.make.stream import SpliceBatch, SpliceStream, StreamOptions

#: The last of the files of a run that is written.
STATE = "run.json"
# Of the learning rate, and what is kept of the mean of the weights in a step: usual values, not
# tuned.
_WARM_UP_STEPS = 300
_AVERAGING = 0.999
# Batches that a process makes ahead.
_AHEAD = 4


@dataclass(frozen=True)
class TrainingPlan:
    """How a network is trained."""

    # Of training in all; the learning rate falls to 0 by then.
    seconds: float = 1500.0
    # Splices in a step, a multiple of the stream's group.
    batch: int = 64
    # Side of the larger splices that every third process makes, fewer in a step; None for none.
    # Photos that people have are larger than what fits into most steps.
    large_size: int | None = 384
    learning_rate: float = 1.5e-3
    weight_decay: float = 1e-4
    # Processes that make splices; 0 makes them in this one.
    workers: int = 4
    # Seconds between two scores on splices of held-out photos, and how many splices these are.
    validate_every: float = 60.0
    n_validation: int = 96
    seed: int = 0
    # Of training in all, if that comes before the seconds: so networks of different speed learn
    # from as many splices.
    steps: int | None = None


@dataclass(frozen=True)
class Photos:
    """Photos to make splices of, with what people outlined in them, and their names if known.

    ``weights`` say how often each is drawn; without them all are as often.
    """

    images: list[Tensor]
    segments: list[Tensor | None]
    names: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    def to(self, device: str | torch.device) -> Photos:
        """Return them on a device."""
        return Photos(
            [image.to(device) for image in self.images],
            [None if s is None else s.to(device) for s in self.segments],
            self.names,
            self.weights,
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
            tuple(self.weights[i] for i in numbers) if self.weights else (),
        )


Network = TypeVar("Network", bound=nn.Module)


@dataclass
class Trained(Generic[Network]):
    """A network, the running mean of its weights, which counts in the end, and its optimizer."""

    network: Network
    average: Network
    optimizer: torch.optim.Optimizer

    def take_step(
        self,
        inputs: Sequence[Tensor],
        losses: Callable[[Any], tuple[Tensor, dict[str, Tensor]]],
        *,
        rate: float,
        step: int,
        max_gradient: float,
    ) -> dict[str, Tensor]:
        """Learn from a batch. ``losses`` gives their sum, and each by name, of an output."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.network.train()
        with half_precision(inputs[0].device):
            output = self.network(*inputs)
        total, parts = losses(output)
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), max_gradient)
        self.optimizer.step()
        average_weights(self.average, self.network, step)
        return parts


@dataclass(kw_only=True)
class Run(ABC):
    """A training under way: what it has spent, and its losses and scores over time.

    ``piece``: how often it was begun or resumed.
    """

    step: int = 0
    seconds: float = 0.0
    piece: int = 0
    curve: list[dict[str, float]] = field(default_factory=list)

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where it is trained."""

    @abstractmethod
    def learn(self, batch: SpliceBatch, plan: TrainingPlan) -> dict[str, Tensor]:
        """Take one step, count it, and return the parts of the loss by name."""

    @abstractmethod
    def score(self, batches: Sequence[SpliceBatch]) -> dict[str, float]:
        """Return scores on some splices by name."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what the networks are, in types that JSON knows."""

    @abstractmethod
    def tensors(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield names and contents of the files that a later piece needs."""

    def save(self, folder: Path) -> None:
        """Write everything that a later piece needs.

        The files take the place of the last ones when all are complete. If the process is killed
        just then, there is no ``run.json``.
        """
        content = {
            **self.describe(),
            "step": self.step,
            "seconds": self.seconds,
            "piece": self.piece,
            "curve": self.curve,
        }
        with stage_results(folder) as staged:
            for name, tensors in self.tensors():
                with atomic_write(staged.new / f"{name}.safetensors") as file:
                    file.write(save(plain_tensors(tensors)))
            with atomic_write(staged.new / STATE) as file:
                file.write(json.dumps(content, indent=1).encode())
            staged.commit(marker=STATE)

    def go_on_from(self, content: dict[str, Any]) -> None:
        """Take over what another piece has spent, by its ``run.json``."""
        self.step, self.seconds = int(content["step"]), float(content["seconds"])
        self.piece, self.curve = int(content["piece"]), list(content["curve"])


AnyRun = TypeVar("AnyRun", bound=Run)


def half_precision(device: torch.device) -> torch.autocast:
    """Compute in 16 bits where there is a GPU."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu")


def share_done(run: Run, plan: TrainingPlan) -> float:
    """Return how much of a plan is done, from 0 to 1."""
    by_steps = 0.0 if plan.steps is None else run.step / plan.steps
    return min(1.0, max(by_steps, run.seconds / plan.seconds))


def learning_rate(run: Run, plan: TrainingPlan) -> float:
    """Return the rate of the next step: it rises in the first ones, then falls like a cosine."""
    done = share_done(run, plan)
    rate = plan.learning_rate * min(1.0, (run.step + 1) / _WARM_UP_STEPS)
    return rate * 0.5 * (1.0 + math.cos(math.pi * done))


def train_network(
    run: AnyRun,
    photos: Photos,
    plan: TrainingPlan,
    *,
    piece_seconds: float,
    stream: StreamOptions | None = None,
    report: Callable[[dict[str, float]], None] = lambda entry: None,
) -> AnyRun:
    """Train for one piece, or to the end of the plan if that comes first."""
    device = run.device
    train, held = photos.split()
    options = stream or StreamOptions()
    held = held.to(device)
    validation = SpliceStream(held.images, held.segments, options, seed=12345)
    fixed = [validation.draw(options.group) for _ in range(-(-plan.n_validation // options.group))]
    run.piece += 1
    start, before = time.monotonic(), run.seconds
    due = run.seconds + plan.validate_every
    batches = _batches(train, options, plan, run.piece, str(device))
    sums: list[dict[str, Tensor]] = []
    try:
        for batch in batches:
            run.seconds = before + time.monotonic() - start
            is_over = share_done(run, plan) >= 1.0 or run.seconds - before >= piece_seconds
            # On a slow computer the first batch may take longer than that.
            if is_over and run.step:
                break
            losses = run.learn(batch, plan)
            sums.append({name: part.detach() for name, part in losses.items()})
            if run.seconds >= due:
                due += plan.validate_every
                report(_entry(run, sums, fixed))
                sums = []
    finally:
        batches.close()
    if sums:
        report(_entry(run, sums, fixed))
    return run


def _entry(run: Run, sums: list[dict[str, Tensor]], fixed: list[SpliceBatch]) -> dict[str, float]:
    means = {name: torch.stack([losses[name] for losses in sums]).mean() for name in sums[0]}
    entry = {
        "seconds": round(run.seconds, 1),
        "step": run.step,
        **{f"loss_{name}": round(float(mean), 4) for name, mean in means.items()},
        **run.score(fixed),
    }
    run.curve.append(entry)
    return entry


@torch.no_grad()
def average_weights(average: nn.Module, network: nn.Module, step: int) -> None:
    """Add a network's weights to their running mean.

    ``step``: steps that were taken. Of few the mean is that of all of them.
    """
    keep = min(_AVERAGING, step / (step + 9.0))
    mine, theirs = average.state_dict(), network.state_dict()
    floats = [name for name, value in mine.items() if value.is_floating_point()]
    torch._foreach_mul_([mine[name] for name in floats], keep)
    torch._foreach_add_(
        [mine[name] for name in floats], [theirs[name] for name in floats], alpha=1.0 - keep
    )


def best_f1(logits: Tensor, truth: Tensor) -> Tensor:
    """Return the F1 of each map of a batch at its best threshold."""
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
        stream = _stream(photos, options, plan.seed * 1000 + piece, device)
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
        yield from _copied(itertools.cycle(queues), device)
    finally:
        for process in processes:
            process.terminate()


def _copied(queues: Iterable[Any], device: str) -> Generator[SpliceBatch, None, None]:
    """Yield batches of queues on a device. The next one is copied there during a step."""
    if torch.device(device).type != "cuda":
        for queue in queues:
            image, mask, table = queue.get()
            yield SpliceBatch(image.to(device).float(), mask.to(device).float(), table.to(device))
    beside = torch.cuda.Stream()
    ahead: list[tuple[list[Tensor], torch.cuda.Event]] = []
    for queue in queues:
        # A copy from memory that may be moved would wait for all that the device still has to do.
        pinned = [part.pin_memory() for part in queue.get()]
        with torch.cuda.stream(beside):
            there = [part.to(device, non_blocking=True) for part in pinned]
            ahead.append((there, beside.record_event()))
        if len(ahead) > 1:
            (image, mask, table), done = ahead.pop(0)
            now = torch.cuda.current_stream()
            now.wait_event(done)
            for part in (image, mask, table):
                part.record_stream(now)
            yield SpliceBatch(image.float(), mask.float(), table)


def _worker_kind(
    options: StreamOptions, plan: TrainingPlan, number: int
) -> tuple[StreamOptions, int]:
    """Return what splices a process makes, and how many for a step: about as many pixels."""
    if plan.large_size is None or number % 3 != 2:
        return options, plan.batch
    fewer = max(1, plan.batch * options.size**2 // plan.large_size**2)
    groups = -(-fewer // options.group)
    group = fewer // groups
    return replace(options, size=plan.large_size, group=group), groups * group


def _make_batches(
    photos: Photos, options: StreamOptions, size: int, seed: int, device: str, queue: Any
) -> None:
    torch.set_num_threads(1)
    stream = _stream(photos, options, seed, device)
    while True:
        batch = stream.draw(size)
        queue.put((batch.image.byte().cpu(), batch.mask.byte().cpu(), batch.table.cpu()))


def _stream(photos: Photos, options: StreamOptions, seed: int, device: str) -> SpliceStream:
    here = photos.to(device)
    return SpliceStream(here.images, here.segments, options, seed=seed, weights=here.weights)


def plain_tensors(state: dict[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a state as they are written to a file."""
    return {name: value.detach().contiguous() for name, value in state.items()}


def read_file(path: Path, device: str) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file."""
    with safe_open(str(path), framework="pt", device=device) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
