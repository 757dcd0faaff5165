"""Training MFCN and SFCN side by side on the same splices."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

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
from cpcapp.splicing.networks.losses import seam_band
from cpcapp.splicing.networks.mfcn import MFCN, MFCNOptions, MFCNOutput

#: Momentum and weight decay as published. The published rate belongs to weights that were
#: trained on ImageNet; from random ones with batch normalisation, one of this order is usual.
MFCN_PLAN = TrainingPlan(learning_rate=0.02, weight_decay=5e-4)
_MOMENTUM = 0.9
# Longer gradients are shortened to it. Set by hand: only the first steps have such.
_MAX_GRADIENT = 5.0


def class_weights(truth: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of the two classes: the median of their shares over the share of each.

    Of two shares, which add up to 1, the median is a half.

    >>> [float(weight) for weight in class_weights(torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0]))]
    [0.625, 2.5]
    """
    # A batch without a splice has no such class.
    share = truth.mean().clamp(1e-4, 1.0 - 1e-4)
    return 0.5 / (1.0 - share), 0.5 / share


def balanced_cross_entropy(logits: Tensor, truth: Tensor) -> Tensor:
    """Return the mean cross-entropy, in which each class counts by its weight."""
    other, sought = class_weights(truth)
    weights = torch.where(truth > 0, sought, other)
    return F.binary_cross_entropy_with_logits(logits.float(), truth, weight=weights)


def measure_tasks(output: MFCNOutput, mask: Tensor) -> dict[str, Tensor]:
    """Return the loss of each task, by name; they are added up.

    ``mask``: 1 where something was pasted. Its edge is the band that edges are scored with.
    """
    losses = {"surface": balanced_cross_entropy(output.surface, mask)}
    if output.edges is not None:
        losses["edge"] = balanced_cross_entropy(output.edges, seam_band(mask))
    return losses


@dataclass
class MFCNRun(Run):
    """A training of both networks, ``"mfcn"`` and ``"sfcn"``, or of one of them, under way."""

    networks: dict[str, Trained[MFCN]]

    @classmethod
    def begin(
        cls,
        options: MFCNOptions,
        plan: TrainingPlan,
        device: str,
        *,
        names: Sequence[str] = ("mfcn", "sfcn"),
    ) -> MFCNRun:
        """Start with random weights: both networks, or those that are named."""
        # Splices have few sizes: the fastest convolutions for each are found once. CUDA only.
        torch.backends.cudnn.benchmark = True
        networks = {}
        for name in names:
            torch.manual_seed(plan.seed)
            sizes = replace(options, edges=name == "mfcn")
            network, average = (
                MFCN(sizes).to(device, memory_format=torch.channels_last) for _ in range(2)
            )
            average.load_state_dict(network.state_dict())
            optimizer = torch.optim.SGD(
                network.parameters(),
                lr=plan.learning_rate,
                momentum=_MOMENTUM,
                weight_decay=plan.weight_decay,
                fused=device != "cpu",
            )
            networks[name] = Trained(network, average.requires_grad_(False).eval(), optimizer)
        return cls(networks)

    @property
    def device(self) -> torch.device:
        """Where they are trained."""
        return next(next(iter(self.networks.values())).network.parameters()).device

    def learn(self, batch: SpliceBatch, plan: TrainingPlan) -> dict[str, Tensor]:
        """Take one step with each network, and return the losses of all tasks by name."""
        rate = learning_rate(self, plan)
        image = batch.image.contiguous(memory_format=torch.channels_last)
        found: dict[str, Tensor] = {}

        def losses(output: MFCNOutput) -> tuple[Tensor, dict[str, Tensor]]:
            parts = measure_tasks(output, batch.mask)
            return torch.stack(list(parts.values())).sum(), parts

        for name, trained in self.networks.items():
            parts = trained.take_step(
                (image,), losses, rate=rate, step=self.step + 1, max_gradient=_MAX_GRADIENT
            )
            found |= {f"{name}_{task}": loss for task, loss in parts.items()}
        self.step += 1
        return found

    @torch.no_grad()
    def score(self, batches: Sequence[SpliceBatch]) -> dict[str, float]:
        """Return the mean best F1 of the spliced photos: surfaces (better sign) and edges."""
        found: dict[str, list[Tensor]] = {}
        for batch in batches:
            spliced = batch.mask.mean(dim=(1, 2, 3)) > 0
            image = batch.image.contiguous(memory_format=torch.channels_last)
            for name, trained in self.networks.items():
                with half_precision(image.device):
                    output = trained.average(image)
                truth = batch.mask > 0.5
                surface = torch.maximum(
                    best_f1(output.surface, truth), best_f1(-output.surface, truth)
                )
                found.setdefault(f"{name}_surface_f1", []).append(surface[spliced])
                if output.edges is not None:
                    edges = best_f1(output.edges, seam_band(batch.mask) > 0)
                    found.setdefault(f"{name}_edge_f1", []).append(edges[spliced])
        return {name: round(float(torch.cat(parts).mean()), 4) for name, parts in found.items()}

    def describe(self) -> dict[str, Any]:
        """Return which networks are trained, and their sizes."""
        options = next(iter(self.networks.values())).network.options.to_dict()
        return {"architecture": "mfcn", "options": options, "networks": list(self.networks)}

    def tensors(self) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """Yield the files of each network."""
        for name, trained in self.networks.items():
            states = trained.optimizer.state_dict()["state"]
            yield f"{name}-weights", trained.network.state_dict()
            yield f"{name}-average", trained.average.state_dict()
            momenta = {str(n): state["momentum_buffer"] for n, state in states.items()}
            yield f"{name}-momentum", momenta

    @classmethod
    def resume(cls, folder: Path, plan: TrainingPlan, device: str) -> MFCNRun:
        """Read what `save` wrote."""
        content = json.loads((folder / STATE).read_text())
        names = content.get("networks", ["mfcn", "sfcn"])
        run = cls.begin(MFCNOptions.from_dict(content["options"]), plan, device, names=names)
        run.go_on_from(content)
        for name, trained in run.networks.items():
            parts = {
                part: read_file(folder / f"{name}-{part}.safetensors", device)
                for part in ("weights", "average", "momentum")
            }
            trained.network.load_state_dict(parts["weights"])
            trained.average.load_state_dict(parts["average"])
            # Files know no order of channels; in that of the weights, steps are faster.
            state = {
                number: {"momentum_buffer": torch.empty_like(weight).copy_(momenta[str(number)])}
                for number, weight in enumerate(trained.network.parameters())
                if str(number) in (momenta := parts["momentum"])
            }
            groups = trained.optimizer.state_dict()["param_groups"]
            trained.optimizer.load_state_dict({"state": state, "param_groups": groups})
        return run
