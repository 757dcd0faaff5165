"""The trace network: seconds a megapixel on one core, by ONNX Runtime and by OpenCV; large photos.

    python benchmarks/network.py [--side N] [--rounds N]

Writes benchmarks/results/network.json. Both run the same graphs on the same tile with one thread,
in turn; the result is the median of several rounds. If the package onnx is installed, so do copies
of the graphs in 8-bit integers, quantized by ONNX Runtime on an example photo, and it is said how
near their outputs are. Then the whole default model localizes photos of 12 and 50 megapixels in
processes of their own, with all cores; the first of them in each round.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import cv2
import numpy as np
import onnxruntime

from _machine import describe_machine, load_average
from cpcapp.splicing import load_model
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.measure.network import STAGES, TraceMeter

Results = dict[str, Any]
RESULT = Path(__file__).parent / "results" / "network.json"
_LARGE = """
import json, resource, sys, time
import numpy as np
from cpcapp.splicing import load_model
height, width = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
small = rng.integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
import cv2
photo = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
photo = np.clip(photo + rng.normal(0, 3, (height, width, 1)), 0, 255).astype(np.uint8)
model = load_model("default")
start = time.perf_counter()
model.localize(photo)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": time.perf_counter() - start, "peak_bytes": peak}))
"""


def _by_onnx(graph: bytes, inputs: list[Any]) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options)
    names = [entry.name for entry in session.get_inputs()]
    return lambda: session.run(None, dict(zip(names, inputs, strict=True)))


def _by_opencv(graph: bytes, inputs: list[Any]) -> Any:
    net = cv2.dnn.readNetFromONNX(np.frombuffer(graph, np.uint8))
    outputs = net.getUnconnectedOutLayersNames()

    def run() -> Any:
        for number, value in enumerate(inputs):
            net.setInput(value, f"in{number}")
        return net.forward(outputs)

    return run


def _quantize(graph: bytes, inputs: list[list[Any]]) -> bytes:
    """Return a graph in 8-bit integers: scales of each channel, fitted to inputs."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    names = [entry.name for entry in onnxruntime.InferenceSession(graph).get_inputs()]
    rows = iter([dict(zip(names, values, strict=True)) for values in inputs])

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return next(rows, None)

    with TemporaryDirectory() as folder:
        plain, quantized = Path(folder) / "plain.onnx", Path(folder) / "quantized.onnx"
        plain.write_bytes(graph)
        # Seven bits of weights: without VNNI, sums of eight could overflow.
        quantize_static(
            plain,
            quantized,
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=True,
        )
        return quantized.read_bytes()


def stage_inputs(network: TraceMeter, photo: Any, table: Any) -> dict[str, list[Any]]:
    """Return what each stage is given for a photo of one tile."""
    given: dict[str, list[Any]] = {}
    run = TraceMeter._run

    def note(self: TraceMeter, stage: str, inputs: list[Any], **options: Any) -> list[Any]:
        given.setdefault(stage, inputs)
        return run(self, stage, inputs, **options)

    with mock.patch.object(TraceMeter, "_run", note):
        network.measure(photo, table)
    return given


def try_int8(network: TraceMeter, rounds: int) -> Results:
    """Return seconds a megapixel and how near the outputs are, of each stage in 8-bit integers."""
    side, found = 320, {}
    table = np.full((8, 8), 4.0)
    photos = [np.asarray(photo.image)[:side, :side] for photo in example_photos()]
    given = [stage_inputs(network, np.ascontiguousarray(photo), table) for photo in photos]
    for stage in STAGES:
        graph = network.stages[stage]
        inputs = given[0][stage]
        ways = {"float32": _by_onnx(graph, inputs)}
        ways["int8"] = _by_onnx(_quantize(graph, [each[stage] for each in given]), inputs)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, run in ways.items():
                start = time.process_time()
                run()
                times[name].append((time.process_time() - start) * 1e6 / side**2)
        pairs = zip(ways["float32"](), ways["int8"](), strict=True)
        found[stage] = {
            **{name: round(statistics.median(t), 4) for name, t in times.items()},
            "correlation": [
                round(float(np.corrcoef(a.ravel(), b.ravel())[0, 1]), 4) for a, b in pairs
            ],
        }
    return found


def race(network: TraceMeter, side: int, rounds: int) -> Results:
    """Return seconds a megapixel of each stage by both."""
    cv2.setNumThreads(1)
    tile = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    found: Results = {}
    for stage, inputs in stage_inputs(network, tile, np.full((8, 8), 4.0)).items():
        ways: Results = {"onnxruntime": _by_onnx(network.stages[stage], inputs)}
        try:
            ways["opencv"] = _by_opencv(network.stages[stage], inputs)
            ways["opencv"]()
        except cv2.error as error:
            ways.pop("opencv", None)
            found[f"{stage}: opencv"] = str(error).splitlines()[0][:120]
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, run in ways.items():
                start = time.perf_counter()
                run()
                times[name].append((time.perf_counter() - start) * 1e6 / side**2)
        found[stage] = {name: round(statistics.median(t), 4) for name, t in times.items()}
    for name in ("onnxruntime", "opencv"):
        values = [found[stage].get(name) for stage in STAGES]
        found[f"seconds a megapixel, {name}"] = (
            None if None in values else round(float(sum(v for v in values if v)), 3)
        )
    return found


def large(height: int, width: int, rounds: int) -> Results:
    """Return median time and largest memory of a large photo, each in a process of its own."""
    command = [sys.executable, "-c", _LARGE, str(height), str(width)]
    found = []
    for _ in range(rounds):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
    seconds = [round(one["seconds"], 1) for one in found]
    return {
        "seconds": statistics.median(seconds),
        "seconds_of_rounds": seconds,
        "peak_mb": round(max(one["peak_bytes"] for one in found) / 1e6),
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    network = load_model("default").network
    assert network is not None
    results: Results = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "load_before": load_average(),
        "bytes": sum(len(graph) for graph in network.stages.values()),
        "one_core": race(network, arguments.side, arguments.rounds),
    }
    if importlib.util.find_spec("onnx"):
        results["int8, one core, processor seconds a megapixel"] = try_int8(
            network, arguments.rounds
        )
    for name, shape, rounds in (
        ("12 megapixels", (3000, 4000), arguments.rounds),
        ("50 megapixels", (6120, 8160), 1),
    ):
        results[name] = large(*shape, rounds)
        print(name, results[name], flush=True)
    print(json.dumps(results["one_core"], indent=1))
    RESULT.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
