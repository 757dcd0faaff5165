"""ONNX graphs of strangers: refused before ONNX Runtime sees them, or in a process of its own."""

from __future__ import annotations

import numpy as np
import pytest

from cpcapp.splicing import load_model
from cpcapp.splicing.measure import graph_check
from cpcapp.splicing.measure.graph_check import check_graph, try_network
from cpcapp.splicing.measure.network import STAGES
from trace_networks import tiny_meter

onnx = pytest.importorskip("onnx", reason="needs the extra torch")
TensorProto, helper = onnx.TensorProto, onnx.helper


def graph_of(*nodes, initializers=(), domains=("",), functions=()):
    """A graph of one map in and one out."""
    shape = [1, 3, "rows", "columns"]
    graph = helper.make_graph(
        list(nodes) or [helper.make_node("Relu", ["in0"], ["out"])],
        "graph",
        [helper.make_tensor_value_info("in0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        list(initializers),
    )
    opsets = [helper.make_opsetid(domain, 17) for domain in domains]
    model = helper.make_model(graph, opset_imports=opsets, functions=list(functions))
    model.ir_version = 8
    return model


def test_the_shipped_network_and_a_new_one_pass():
    for network in (load_model("default").network, tiny_meter()):
        for graph in network.stages.values():
            check_graph(graph)


def external():
    tensor = onnx.numpy_helper.from_array(np.ones(2, np.float32), "w")
    onnx.external_data_helper.set_external_data(tensor, "other.bin")
    return graph_of(initializers=[tensor])


def wide():
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    tensor.dims[0] = 1 << 40
    return graph_of(initializers=[tensor])


def branching():
    inner = graph_of().graph
    return graph_of(helper.make_node("If", ["c"], ["out"], then_branch=inner, else_branch=inner))


def hidden():
    """The operator is allowed, and has a graph for an attribute."""
    return graph_of(helper.make_node("Relu", ["in0"], ["out"], body=graph_of().graph))


def with_function():
    node = helper.make_node("Relu", ["a"], ["b"])
    opset = [helper.make_opsetid("", 17)]
    function = helper.make_function("", "Twice", ["a"], ["b"], [node], opset)
    return graph_of(functions=[function])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (external, "its weights lie in another file"),
        (wide, "a side of 1099511627776"),
        (branching, "computes with 'If'"),
        (hidden, "graphs within its operators"),
        (with_function, "functions"),
        (lambda: graph_of(domains=("", "com.microsoft")), "operators of 'com.microsoft'"),
        (
            lambda: graph_of(helper.make_node("Relu", ["in0"], ["out"], domain="my.own")),
            "operators of 'my.own'",
        ),
        (lambda: graph_of(helper.make_node("Loop", [], ["out"])), "computes with 'Loop'"),
        (lambda: onnx.ModelProto(), "no whole ONNX graph"),
    ],
)
def test_graphs_that_no_network_has(make, message):
    with pytest.raises(ValueError, match=message):
        check_graph(make().SerializeToString())


def test_any_bytes_are_taken_or_refused(rng):
    whole = graph_of().SerializeToString()
    for _ in range(3000):
        damaged = bytearray(whole)
        for place in rng.integers(len(whole), size=rng.integers(1, 4)):
            damaged[place] = rng.integers(256)
        try:
            check_graph(bytes(damaged[: rng.integers(1, len(whole) + 1)]))
        except ValueError as error:
            assert "\n" not in str(error)
    for end in range(len(whole)):
        try:
            check_graph(whole[:end])
        except ValueError:
            continue


def test_a_good_network_passes_the_trial():
    meter = tiny_meter()
    try_network(meter.stages, meter.facts)


def constant(shape):
    """A graph that takes memory for any shape, whatever it gets."""
    size = helper.make_tensor("s", TensorProto.INT64, [len(shape)], shape)
    return graph_of(
        helper.make_node("ConstantOfShape", ["s"], ["out"]), initializers=[size]
    ).SerializeToString()


def broken_weights():
    meter = tiny_meter()
    model = onnx.load_from_string(meter.stages["near"])
    tensor = model.graph.initializer[0]
    values = onnx.numpy_helper.to_array(tensor) * np.nan
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("stage", "make", "message"),
    [
        ("near", lambda: tiny_meter().stages["near"][:-50], "can't measure a photo"),
        ("near", graph_of().SerializeToString, "can't measure a photo: stage 'near' .* failed"),
        ("far", lambda: constant([1 << 20, 1 << 20]), "can't measure a photo|crashed"),
        ("near", lambda: constant([1, 1, 1, 1]), "can't measure a photo"),
        ("near", broken_weights, "not finite numbers"),
    ],
)
def test_networks_that_fail_do_so_in_another_process(stage, make, message):
    meter = tiny_meter()
    stages = {**meter.stages, stage: make()}
    with pytest.raises(ValueError, match=message) as caught:
        try_network(stages, meter.facts)
    assert "\n" not in str(caught.value)


def test_a_trial_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(graph_check, "_TRIAL_SECONDS", 1e-4)
    meter = tiny_meter()
    with pytest.raises(ValueError, match="its network crashed on a small photo, or took more"):
        try_network(meter.stages, meter.facts)
    assert set(meter.stages) == set(STAGES)
