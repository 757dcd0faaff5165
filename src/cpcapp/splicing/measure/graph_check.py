"""Graphs of strangers: what an ONNX file holds is checked before ONNX Runtime sees it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from cpcapp._io.worker import Arrays, Worker, WorkerError, answer_requests, limit_memory

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

# Messages and fields of onnx.proto that matter here, with their numbers: each a message, an
# integer, or bytes. All may come more than once in a hostile file.
_SCHEMA: dict[str, dict[str, tuple[int, str]]] = {
    "Model": {
        **{"graph": (7, "Graph"), "opset": (8, "Opset")},
        **{"training": (20, "bytes"), "functions": (25, "bytes")},
    },
    "Opset": {"domain": (1, "bytes")},
    "Graph": {"node": (1, "Node"), "initializer": (5, "Tensor"), "sparse": (15, "bytes")},
    "Node": {"op_type": (4, "bytes"), "attribute": (5, "Attribute"), "domain": (7, "bytes")},
    "Attribute": {
        **{"t": (5, "Tensor"), "tensors": (10, "Tensor"), "g": (6, "bytes")},
        **{"graphs": (11, "bytes"), "sparse": (22, "bytes"), "sparses": (23, "bytes")},
    },
    "Tensor": {"dims": (1, "int64"), "external": (13, "bytes"), "location": (14, "int64")},
}


@cache
def _model_class() -> Any:
    """Return what protobuf reads an ONNX file with, which ONNX Runtime brings along."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="cpcapp/graph.proto", package="cpcapp")
    kind = descriptor_pb2.FieldDescriptorProto
    types = {"bytes": kind.TYPE_BYTES, "int64": kind.TYPE_INT64}
    for message, entries in _SCHEMA.items():
        described = file.message_type.add(name=message)
        for name, (number, type_) in entries.items():
            field = described.field.add(name=name, number=number, label=kind.LABEL_REPEATED)
            field.type = types.get(type_, kind.TYPE_MESSAGE)
            if type_ not in types:
                field.type_name = f".cpcapp.{type_}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("cpcapp.Model"))


def check_graph(graph: bytes) -> None:
    """Raise ValueError unless an ONNX graph is one that a network of this package could be.

    It must be whole, keep its weights itself, and compute with ordinary operators only.
    """
    if len(graph) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES >> 20} MB")
    from google.protobuf.message import DecodeError

    try:
        model = _model_class().FromString(graph)
    except DecodeError as error:
        raise ValueError("it is no whole ONNX graph") from error
    if len(model.graph) != 1:
        raise ValueError("it is no whole ONNX graph")
    if model.training or model.functions:
        raise ValueError("it holds functions or a training, which are not read")
    whole = model.graph[0]
    if whole.sparse:
        raise ValueError("it holds sparse weights, which are not read")
    if not 1 <= len(whole.node) <= _MAX_NODES:
        raise ValueError(f"it has {len(whole.node)} operators, not from 1 to {_MAX_NODES}")
    tensors = list(whole.initializer)
    for node in whole.node:
        for name in node.op_type:
            if name.decode(errors="replace") not in _OPERATORS:
                raise ValueError(f"it computes with {_text(name)}, which is not read")
        for attribute in node.attribute:
            if attribute.g or attribute.graphs or attribute.sparse or attribute.sparses:
                raise ValueError("it holds graphs within its operators, which are not read")
            tensors += [*attribute.t, *attribute.tensors]
    for part in (*model.opset, *whole.node):
        for domain in part.domain:
            if domain:
                raise ValueError(f"it needs operators of {_text(domain)}, which are not read")
    for tensor in tensors:
        if tensor.external or any(tensor.location):
            raise ValueError("its weights lie in another file")
        for size in tensor.dims:
            if not 0 <= size <= _MAX_DIMENSION:
                raise ValueError(f"it holds weights with a side of {size}")


def _text(name: bytes) -> str:
    return repr(name[:40].decode(errors="replace"))


def try_network(stages: Mapping[str, bytes], facts: Mapping[str, Any]) -> int:
    """Measure a small photo in a process of its own, with limits on its time and memory.

    ONNX Runtime may crash on a hostile graph. What passes here gives learned traces of the right
    shapes, in finite numbers.
    """
    worker = Worker("cpcapp.splicing.measure.graph_check")
    request = {"names": list(stages), "facts": dict(facts)}
    arrays = [np.frombuffer(graph, np.uint8) for graph in stages.values()]
    try:
        message, _ = worker.ask(request, _TRIAL_SECONDS, arrays)
    except WorkerError as error:
        reason = f"its network can't measure a photo: {error}"
        if error.kind == "stopped":
            reason = "its network crashed on a small photo, or took more than "
            reason += f"{_TRIAL_SECONDS:.0f} seconds"
        raise ValueError(reason) from error
    if "import" in message:
        raise ImportError(message["import"])
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
