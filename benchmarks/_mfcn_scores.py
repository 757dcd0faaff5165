"""Scoring the maps of MFCN and SFCN by the protocols that the package's models are scored by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from _mfcn_folders import SETS, spliced
from cpcapp.splicing import load_model
from cpcapp.splicing.make.stream import StreamOptions
from cpcapp.splicing.networks.loop import TrainingPlan, _worker_kind
from cpcapp.splicing.networks.mfcn_localizer import enlarge
from cpcapp.splicing.score.evaluate import evaluate
from cpcapp.splicing.score.protocols import ProtocolScores, score_map

Results = dict[str, Any]
OURS = ("paper", "filters", "default")
EDGES, SURFACES = ("edge", "edge-r2"), ("surface", "surface-fixed")
PROTOCOLS = (*EDGES, *SURFACES)
# The refined surface is MFCN's result; what it gains over the plain one is worth a row.
PLAIN = "mfcn, surface as it is"
# A step of the trace network: "batch" of trace_network.json.
OUR_SPLICES = (64 + 64 + 28) // 3
# A network that was trained again for longer keeps the figures of its shorter training.
SHORTER = "{}, fewer splices"


def find_maps(coarse: dict[str, Any], name: str, shape: tuple[int, int]) -> Results:
    """Return what each network says of a photo: by method, its seam and its pasted part."""
    found: Results = {}
    for network in ("mfcn", "sfcn"):
        if f"{network}/{name}" not in coarse:
            continue
        maps = enlarge(coarse[f"{network}/{name}"], *shape)
        found[network] = (maps.boundary, maps.region)
        if network == "mfcn":
            found[PLAIN] = (None, maps.surface)
    return found


def score_networks(maps: Path, data: Path) -> dict[str, dict[str, Results]]:
    """Return the figures of the networks by set and method, with those of each photo."""
    coarse = dict(np.load(maps))
    sets = {}
    for name in SETS:
        found: dict[str, list[dict[str, Any]]] = {}
        for sample in spliced(name, data):
            mask = sample.mask
            kept = find_maps(coarse, f"{name}/{sample.name}", mask.shape)
            for method, (seam, part) in kept.items():
                scores = {}
                if seam is not None:
                    scores |= score_map(seam, mask, EDGES, name=sample.name)
                scores |= score_map(part, mask, SURFACES, name=sample.name)
                found.setdefault(method, []).append(scores)
        sets[name] = {method: figures(_joined(scores)) for method, scores in found.items()}
        print(name, json.dumps({m: _short(f) for m, f in sets[name].items()}), flush=True)
    return sets


def store_examples(maps: Path, data: Path, file: Path) -> None:
    """Write what MFCN says of every twelfth photo of Columbia, which the package draws."""
    coarse = np.load(maps)
    names = [sample.name for sample in spliced("columbia", data)][::12]
    np.savez_compressed(file, **{name: coarse[f"mfcn/columbia/{name}"] for name in names})


def _joined(photos: Sequence[dict[str, Any]]) -> dict[str, ProtocolScores]:
    names = list(photos[0])
    return {p: ProtocolScores(p, tuple(one[p] for one in photos)) for p in names}


def figures(scores: dict[str, ProtocolScores]) -> Results:
    """Return the means of each protocol, and the F1 of each photo."""
    found: Results = {
        protocol: {"f1": round(one.mean.f1 or 0.0, 4), "mcc": round(one.mean.mcc or 0.0, 4)}
        for protocol, one in scores.items()
    }
    found["photos"] = {
        protocol: {image.name: round(image.f1, 3) for image in scores[protocol].images}
        for protocol in ("edge", "surface")
        if protocol in scores
    }
    return found


def score_ours(
    data: Path, models: Iterable[str], keep: Callable[[str, str, Results], None]
) -> None:
    """Score the package's models photo by photo, and hand on each set's figures."""
    for name in SETS:
        for model in models:
            done = evaluate(spliced(name, data), {model: load_model(model)}, protocols=PROTOCOLS)
            keep(name, model, figures(done.scores[model]))


def quote_ours(models: Path) -> dict[str, dict[str, Results]]:
    """Return the figures of the package's models that another benchmark measured."""
    content = json.loads(models.read_text())
    return {
        name: {
            model: {
                protocol: content["sets"][name][model][protocol] for protocol in (*EDGES, *SURFACES)
            }
            for model in OURS
        }
        for name in SETS
    }


def _short(found: Results) -> Results:
    return {name: value for name, value in found.items() if name != "photos"}


def describe_training(folder: Path, results: Path) -> Results:
    """Return what the training was like, and those of the package's models beside it."""
    state = json.loads((folder / "run.json").read_text())
    facts = json.loads((folder / "facts.json").read_text())
    networks = state.get("networks", ["mfcn", "sfcn"])
    runs = [
        {
            "networks": " and ".join(network.upper() for network in networks),
            "seconds": round(state["seconds"], 1),
            "on": f"GPU: {facts['card']}",
            "steps": state["step"],
            "splices": state["step"] * _splices_a_step(facts["workers"]),
        },
        *_trainings_of_ours(results),
    ]
    steps = facts.get("steps_planned")
    pieces = state["piece"]
    return {
        "trained": networks,
        "runs": runs,
        "photos": facts["photos"],
        "pieces": pieces,
        "torch": facts["torch"],
        "commands": [
            f"benchmarks/mfcn.py train device-data/training -o RUN --workers {facts['workers']} "
            f"--seconds {facts['seconds_planned']:g}"
            + (f" --steps {steps}" if steps else "")
            + (f" --networks {' '.join(networks)}" if len(networks) == 1 else "")
            + (
                f" --piece {facts['seconds_planned'] / pieces:g}  # {pieces} times"
                if pieces > 1
                else ""
            ),
            "benchmarks/mfcn.py maps device-data/test RUN -o RUN/maps.npz",
            "benchmarks/mfcn.py score RUN --ours default paper",
            "benchmarks/mfcn.py costs",
        ],
        "options": state["options"],
        "curve": state["curve"],
    }


def _trainings_of_ours(results: Path) -> list[Results]:
    ours = json.loads((results / "trace_network.json").read_text())
    runs = [
        {
            "networks": "the network of `default`",
            "seconds": round(ours["seconds"], 1),
            "on": f"GPU: {ours['machine']}",
            "steps": ours["steps"],
            "splices": ours["steps"] * OUR_SPLICES,
        }
    ]
    trained = json.loads((results / "splicing.json").read_text())
    for model, entry in (("paper", "from_splices"), ("filters", "filters")):
        found = trained["training"][entry]
        cores = trained["machine"]["cores"]
        runs.append(
            {
                "networks": f"the filters of `{model}`",
                "seconds": round(found["seconds"], 1),
                "on": f"CPU: {cores} cores of {trained['machine']['processor']}",
                "steps": None,
                "splices": found["photos"],
            }
        )
    return runs


def keep_shorter(before: Results, now: Results) -> None:
    """Add what an earlier training gave: networks that only it had, and those it had for shorter.

    Parameters
    ----------
    before, now : dict
        The content of mfcn.json, with ``training`` and ``sets``. `now` is added to.
    """
    if not before:
        return
    steps = [content["training"]["runs"][0]["steps"] for content in (before, now)]
    shorter = steps[0] < steps[1]
    if shorter:
        now["shorter_training"] = before["training"]
    elif "shorter_training" in before:
        now["shorter_training"] = before["shorter_training"]
    for name, methods in before["sets"].items():
        kept = now["sets"][name]
        for method, found in methods.items():
            if method not in kept:
                kept[method] = found
            elif shorter and method not in (*OURS, PLAIN):
                kept[SHORTER.format(method)] = _short(found)


def _splices_a_step(workers: int) -> int:
    plan, stream = TrainingPlan(workers=workers), StreamOptions(group=16)
    return sum(_worker_kind(stream, plan, number)[1] for number in range(workers)) // workers
