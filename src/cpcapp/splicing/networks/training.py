"""Training a trace network on a stream of splices, in pieces that go on where the last stopped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from cpcapp._io.files import atomic_write, stage_results
from cpcapp.splicing.make.stream import SpliceBatch
from cpcapp.splicing.networks.loop import (
    STATE,
    TrainingPlan,
    average_weights,
    best_f1,
    learning_rate,
    plain_tensors,
    read_file,
)
from cpcapp.splicing.networks.losses import measure_losses, seam_band
from cpcapp.splicing.networks.trace_network import NetworkOptions, TraceNetwork


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
    curve: list[dict[str, float]] = field(default_factory=list)

    @classmethod
    def begin(
        cls,
        options: NetworkOptions,
        plan: TrainingPlan,
        device: str,
        weights: dict[str, Tensor] | None = None,
    ) -> TrainingRun:
        """Start with random weights, or with those of a network."""
        torch.manual_seed(plan.seed)
        network, average = TraceNetwork(options).to(device), TraceNetwork(options).to(device)
        if weights is not None:
            network.load_state_dict(weights)
        average.load_state_dict(network.state_dict())
        if device != "cpu":
            network = network.to(memory_format=torch.channels_last)
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=plan.learning_rate, weight_decay=plan.weight_decay
        )
        return cls(network, average.requires_grad_(False).eval(), optimizer)

    @property
    def device(self) -> torch.device:
        """Where it is trained."""
        return next(self.network.parameters()).device

    def learn(self, batch: SpliceBatch, plan: TrainingPlan) -> dict[str, Tensor]:
        """Take one step, and return the parts of the loss by name."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self, plan)
        self.network.train()
        kind = batch.image.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=kind != "cpu"):
            output = self.network(batch.image, batch.table)
        losses = measure_losses(output, batch.mask)
        self.optimizer.zero_grad(set_to_none=True)
        losses.total.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        average_weights(self.average, self.network, self.step)
        return losses._asdict()

    def score(self, batches: Sequence[SpliceBatch]) -> dict[str, float]:
        """Return the scores of the mean weights on some splices; see `validate`."""
        return validate(self.average, batches)

    def save(self, folder: Path) -> None:
        """Write everything that a later piece needs, in files of at most 16 MiB.

        They take the place of the last ones when all are complete. If the process is killed just
        then, there is no ``run.json``.
        """
        states = self.optimizer.state_dict()["state"]
        moments: dict[str, dict[str, Tensor]] = {"exp_avg": {}, "exp_avg_sq": {}}
        for number, state in states.items():
            for name in moments:
                moments[name][str(number)] = state[name].contiguous()
        # 16 bits are enough for the first moment; the second spans too many orders of magnitude.
        parts = {
            "weights": plain_tensors(self.network.state_dict()),
            "average": plain_tensors(self.average.state_dict()),
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
        files[STATE] = json.dumps(content, indent=1).encode()
        with stage_results(folder) as staged:
            for name, data in files.items():
                with atomic_write(staged.new / name) as file:
                    file.write(data)
            staged.commit(marker=STATE)

    @classmethod
    def resume(cls, folder: Path, plan: TrainingPlan, device: str) -> TrainingRun:
        """Read what `save` wrote."""
        content = json.loads((folder / STATE).read_text())
        run = cls.begin(NetworkOptions.from_dict(content["options"]), plan, device)
        run.network.load_state_dict(read_file(folder / "weights.safetensors", device))
        run.average.load_state_dict(read_file(folder / "average.safetensors", device))
        moments = [
            read_file(folder / f"{name}.safetensors", device) for name in ("first", "second")
        ]
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


@torch.no_grad()
def validate(network: TraceNetwork, batches: Sequence[SpliceBatch]) -> dict[str, float]:
    """Score a network on some splices.

    Of spliced photos the mean best F1 of seams, of regions (better sign) and of the pasted side at
    one half; and how well the highest seams tell spliced from authentic photos (AUC).
    """
    network.eval()
    seams, regions, sides, peaks, truths = [], [], [], [], []
    for batch in batches:
        kind = batch.image.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=kind != "cpu"):
            output = network(batch.image, batch.table)
        spliced = batch.mask.mean(dim=(1, 2, 3)) > 0
        band, mask = seam_band(batch.mask), nn.functional.avg_pool2d(batch.mask, 8) > 0.5
        seams.append(best_f1(output.seam.float(), band > 0)[spliced])
        region = output.region.float()
        found = torch.maximum(best_f1(region, mask), best_f1(-region, mask))
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
