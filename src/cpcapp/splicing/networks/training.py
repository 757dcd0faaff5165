"""Training a trace network on a stream of splices, in pieces that go on where the last stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from cpcapp.splicing.make.stream import SpliceBatch
from cpcapp.splicing.networks.loop import (
    STATE,
    Run,
    Trained,
    TrainingPlan,
    best_f1,
    half_precision,
    learning_rate,
    read_file,
)
from cpcapp.splicing.networks.losses import measure_losses, seam_band
from cpcapp.splicing.networks.trace_network import NetworkOptions, NetworkOutput, TraceNetwork

# Longer gradients are shortened to it. Set by hand.
_MAX_GRADIENT = 1.0
# What AdamW knows of each weight, and the files that it is kept in.
_MOMENTS = {"exp_avg": "first", "exp_avg_sq": "second"}


@dataclass
class TrainingRun(Run, Trained[TraceNetwork]):
    """A training of the trace network under way."""

    @classmethod
    def begin(
        cls,
        options: NetworkOptions,
        plan: TrainingPlan,
        device: str,
        weights: dict[str, Tensor] | None = None,
    ) -> Self:
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

        def losses(output: NetworkOutput) -> tuple[Tensor, dict[str, Tensor]]:
            parts = measure_losses(output, batch.mask)
            return parts.total, parts._asdict()

        found = self.take_step(
            (batch.image, batch.table),
            losses,
            rate=learning_rate(self, plan),
            step=self.step + 1,
            max_gradient=_MAX_GRADIENT,
        )
        self.step += 1
        return found

    def score(self, batches: Sequence[SpliceBatch]) -> dict[str, float]:
        """Return the scores of the mean weights on some splices; see `validate`."""
        return validate(self.average, batches)

    def describe(self) -> dict[str, Any]:
        """Return the sizes of the network."""
        return {"options": self.network.options.to_dict()}

    def tensors(self) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """Yield the content of files of at most 16 MiB."""
        yield "weights", self.network.state_dict()
        yield "average", self.average.state_dict()
        states = self.optimizer.state_dict()["state"]
        for moment, name in _MOMENTS.items():
            # 16 bits are enough for the first moment; the second spans too many orders of
            # magnitude.
            yield name, {str(n): state[moment].bfloat16() for n, state in states.items()}

    @classmethod
    def resume(cls, folder: Path, plan: TrainingPlan, device: str) -> Self:
        """Read what `save` wrote."""
        content = json.loads((folder / STATE).read_text())
        run = cls.begin(NetworkOptions.from_dict(content["options"]), plan, device)
        run.go_on_from(content)
        run.network.load_state_dict(read_file(folder / "weights.safetensors", device))
        run.average.load_state_dict(read_file(folder / "average.safetensors", device))
        moments = {
            moment: read_file(folder / f"{name}.safetensors", device)
            for moment, name in _MOMENTS.items()
        }
        state = {
            int(number): {
                "step": torch.tensor(float(run.step)),
                **{moment: values[number].float() for moment, values in moments.items()},
            }
            for number in moments["exp_avg"]
        }
        groups = run.optimizer.state_dict()["param_groups"]
        run.optimizer.load_state_dict({"state": state, "param_groups": groups})
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
        with half_precision(batch.image.device):
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
