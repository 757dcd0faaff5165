"""Graphs of strangers: what an ONNX file holds is checked before ONNX Runtime sees it.

ONNX files are protocol buffers: fields, each with a number and a type. Only the few that matter
here are looked at, so that no other package is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from cpcapp._io.worker import Arrays, Worker, answer_requests, limit_memory

# No network of this package comes near.
_MAX_BYTES = 128 << 20
_MAX_NODES = 20_000
_MAX_DIMENSION = 1 << 24
# A trial takes a second or two, and some hundred megabytes.
_TRIAL_SECONDS = 120.0
_TRIAL_MEMORY = 3 << 30
_TRIAL_SHAPE = (64, 800, 3)

# What networks compute with. No control flow, no sequences, nothing random, no text.
_OPERATORS = frozenset(
    """
    Abs Add And ArgMax ArgMin AveragePool BatchNormalization Cast CastLike Ceil Clip Concat Constant
    ConstantOfShape Conv ConvInteger ConvTranspose Cos CumSum DepthToSpace DequantizeLinear Div
    Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand Flatten Floor Gather
    GatherElements Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual
    GroupNormalization HardSigmoid HardSwish Identity InstanceNormalization LayerNormalization
    LeakyRelu Less LessOrEqual Log LogSoftmax MatMul MatMulInteger Max MaxPool Mean Min Mish Mod Mul
    Neg Not Or PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear Range Reciprocal ReduceL1
    ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
    Relu Reshape Resize Round Selu Shape Sigmoid Sign Sin Size Slice Softmax Softplus Softsign
    SpaceToDepth Split Sqrt Squeeze Sub Sum Tanh Tile TopK Transpose Trilu Unsqueeze Where
    """.split()  # noqa: SIM905
)

# Numbers of fields, from onnx.proto.
_MODEL = {"graph": 7, "opset": 8, "training": 20, "functions": 25}
_GRAPH = {"node": 1, "initializer": 5, "sparse_initializer": 15}
_NODE = {"op_type": 4, "attribute": 5, "domain": 7}
_ATTRIBUTE = {"t": 5, "g": 6, "tensors": 10, "graphs": 11, "sparse": 22, "sparses": 23}
_TENSOR = {"dims": 1, "external_data": 13, "data_location": 14}


def check_graph(graph: bytes) -> None:
    """Raise ValueError unless an ONNX graph is one that a network of this package could be.

    It must be whole, keep its weights itself, and compute with ordinary operators only.

    >>> check_graph(b"no graph")
    Traceback (most recent call last):
    ValueError: it is no whole ONNX graph
    """
    if len(graph) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES >> 20} MB")
    try:
        _check_model(memoryview(graph))
    except _DamagedError as error:
        raise ValueError("it is no whole ONNX graph") from error


class _DamagedError(Exception):
    pass


def _check_model(model: memoryview) -> None:
    graphs = []
    for number, value in _fields(model):
        if number == _MODEL["graph"]:
            graphs.append(_message(value))
        elif number in (_MODEL["training"], _MODEL["functions"]):
            raise ValueError("it holds functions or a training, which are not read")
        elif number == _MODEL["opset"]:
            for inner, name in _fields(_message(value)):
                if inner == 1 and bytes(_message(name)):
                    raise ValueError(f"it needs operators of {_text(name)}, which are not read")
    if len(graphs) != 1:
        raise _DamagedError
    n_nodes = 0
    for number, value in _fields(graphs[0]):
        if number == _GRAPH["node"]:
            n_nodes += 1
            _check_node(_message(value))
        elif number == _GRAPH["initializer"]:
            _check_tensor(_message(value))
        elif number == _GRAPH["sparse_initializer"]:
            raise ValueError("it holds sparse weights, which are not read")
    if not 1 <= n_nodes <= _MAX_NODES:
        raise ValueError(f"it has {n_nodes} operators, not from 1 to {_MAX_NODES}")


def _check_node(node: memoryview) -> None:
    for number, value in _fields(node):
        if number == _NODE["op_type"] and _text(value) not in _OPERATORS:
            raise ValueError(f"it computes with {_text(value)!r}, which is not read")
        if number == _NODE["domain"] and bytes(_message(value)):
            raise ValueError(f"it needs operators of {_text(value)!r}, which are not read")
        if number == _NODE["attribute"]:
            for inner, part in _fields(_message(value)):
                if inner in (_ATTRIBUTE["t"], _ATTRIBUTE["tensors"]):
                    _check_tensor(_message(part))
                elif inner in _ATTRIBUTE.values():
                    raise ValueError("it holds graphs within its operators, which are not read")


def _check_tensor(tensor: memoryview) -> None:
    for number, value in _fields(tensor):
        if number == _TENSOR["dims"]:
            packed = not isinstance(value, int)
            for size in _varints(_message(value)) if packed else [value]:
                if not 0 <= size <= _MAX_DIMENSION:
                    raise ValueError(f"it holds weights with a side of {size}")
        elif number == _TENSOR["external_data"] or (number == _TENSOR["data_location"] and value):
            raise ValueError("its weights lie in another file")


def _message(value: Any) -> memoryview:
    if not isinstance(value, memoryview):
        raise _DamagedError
    return value


def _text(value: Any) -> str:
    return bytes(_message(value))[:40].decode(errors="replace")


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field; an integer, or bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise _DamagedError
        if size > len(message) - at:
            raise _DamagedError
        yield key >> 3, message[at : at + size]
        at += size


def _varints(message: memoryview) -> Iterator[int]:
    at = 0
    while at < len(message):
        value, at = _varint(message, at)
        yield value


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _DamagedError


def try_network(stages: Mapping[str, bytes], facts: Mapping[str, Any]) -> int:
    """Measure a small photo in a process of its own, with limits on its time and memory.

    ONNX Runtime may crash on a hostile graph. What passes here gives learned traces of the right
    shapes, in finite numbers.
    """
    worker = Worker("cpcapp.splicing.measure.graph_check")
    request = {"names": list(stages), "facts": dict(facts)}
    arrays = [np.frombuffer(graph, np.uint8) for graph in stages.values()]
    answer = worker.ask(request, _TRIAL_SECONDS, arrays)
    if answer is None:
        raise ValueError(
            f"its network crashed on a small photo, or took more than {_TRIAL_SECONDS:.0f} seconds"
        )
    message = answer[0]
    if "import" in message:
        raise ImportError(message["import"])
    if "error" in message:
        raise ValueError(f"its network can't measure a photo: {message['error']}")
    return int(message["n_traces"])


def main() -> None:
    """Answer requests of `try_network`."""
    answer_requests(_try, _import_runtime)


def _import_runtime() -> None:
    """Import what takes longest."""
    import cpcapp.splicing.measure.network  # noqa: F401

    with suppress(ImportError):  # said when it is needed
        import onnxruntime  # noqa: F401


def _try(request: dict[str, Any], graphs: Arrays) -> tuple[dict[str, Any], Arrays]:
    from cpcapp.splicing.measure.network import TraceMeter

    stages = dict(zip(request["names"], (graph.tobytes() for graph in graphs), strict=True))
    try:
        meter = TraceMeter(stages, request["facts"])
        meter.open()
        limit_memory(_TRIAL_MEMORY)
        return {"n_traces": _measure_once(meter)}, ()
    except ImportError as error:
        return {"import": str(error)}, ()


def _measure_once(meter: Any) -> int:
    height, width, _ = _TRIAL_SHAPE
    photo = np.random.default_rng(0).integers(0, 256, _TRIAL_SHAPE, dtype=np.uint8)
    found = meter.measure(photo, np.full((8, 8), 16.0))
    blocks = (height // 8, width // 8)
    for name, array, shape in (
        ("seam", found.seam, (height, width)),
        ("region", found.region, blocks),
        ("pasted", found.pasted, blocks),
        ("vectors", found.vectors, (*blocks, found.vectors.shape[-1])),
    ):
        if array.shape != shape or not np.isfinite(array).all():
            raise ValueError(f"its {name} is of shape {array.shape}, not finite numbers of {shape}")
    return int(found.vectors.shape[-1])
