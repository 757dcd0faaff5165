"""What localizing costs on a CPU, with MFCN of the published sizes and with the package's models.

Each is measured in a process of its own, on one thread: processor seconds, and the most memory.
The weights of MFCN are random: they change what it says, and not what it costs.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from cpcapp.splicing import load_model
from cpcapp.splicing.model import find_model_file

# Of a photo in the middle of those that are scored: 1 megapixel.
SHAPE = (832, 1216)
OURS = ("paper", "filters", "default")
METHODS = ("mfcn", "sfcn", *OURS)


def measure(method: str) -> dict[str, Any]:
    """Return the costs of a method, measured in a new process."""
    if method in OURS:
        with find_model_file(method) as path:
            return {"bytes": path.stat().st_size, **_in_new_process("localize", method)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{method}.safetensors"
        made = _in_new_process("make", method, str(path))
        found = _in_new_process("localize", str(path))
        return {**found, **made, "bytes": path.stat().st_size}


def _in_new_process(*arguments: str) -> dict[str, Any]:
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **threads},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _make(method: str, path: str) -> dict[str, Any]:
    from cpcapp.splicing.networks.mfcn import MFCN, MFCNOptions
    from cpcapp.splicing.networks.mfcn_localizer import MFCNLocalizer

    network = MFCN(MFCNOptions(edges=method == "mfcn"))
    MFCNLocalizer(network).save(path)
    return {"parameters": sum(weight.numel() for weight in network.parameters())}


def _localize(model: str) -> dict[str, Any]:
    photo = np.random.default_rng(0).integers(0, 256, (*SHAPE, 3), dtype=np.uint8)
    cv2.setNumThreads(1)
    localizer = load_model(model)
    start = time.process_time()
    localizer.localize(photo)
    found = {
        "processor_seconds_a_photo": round(time.process_time() - start, 2),
        "megapixels": round(SHAPE[0] * SHAPE[1] / 1e6, 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
    }
    if localizer.banks:
        found["parameters"] = sum(bank.filters.size for bank in localizer.banks)
    if localizer.network is not None:
        found["parameters"] += _count(localizer.network.stages)
    return found


def _count(stages: dict[str, bytes]) -> int:
    """Return how many weights the graphs of a network have."""
    import onnx
    from onnx import numpy_helper

    graphs = [onnx.load_from_string(graph).graph for graph in stages.values()]
    return sum(numpy_helper.to_array(t).size for graph in graphs for t in graph.initializer)


if __name__ == "__main__":
    step, *given = sys.argv[1:]
    print(json.dumps(_make(*given) if step == "make" else _localize(*given)))
