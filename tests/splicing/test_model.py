"""Model files: what is written comes back, and what others wrote is refused in one line."""

from __future__ import annotations

import json
import pickle
import struct

import numpy as np
import pytest
from safetensors.numpy import save

from cpcapp import __version__
from cpcapp.splicing import (
    PRESETS,
    BankOptions,
    FilterBank,
    ModelError,
    PatchRules,
    Preset,
    SpliceLocalizer,
    load_model,
    save_model,
)
from cpcapp.splicing.model import (
    DEFAULT_MODEL,
    load_network,
    save_network,
    shipped_models,
)
from trace_networks import network_localizer, textured, tiny_meter

OPTIONS = (
    BankOptions(size=4, stride=2, n_filters=3),
    BankOptions("error-level", 5, 3, 4, "excess", 0.25, "gaussian", 0.6),
)


@pytest.fixture
def localizer(rng):
    banks = [
        FilterBank(
            options,
            rng.standard_normal((options.n_features, options.n_filters)).astype(np.float32),
            np.sort(rng.random(options.n_filters))[::-1] / 3,
        )
        for options in OPTIONS
    ]
    preset = Preset("mine", OPTIONS, smoothing=1.5, rules=PatchRules(min_edges=0.1, per_photo=7))
    facts = {"cpcapp": __version__, "data": ["Fotos für später"], "problems": []}
    return SpliceLocalizer(preset, banks, 0.37, facts=facts)


@pytest.fixture
def path(localizer, tmp_path):
    save_model(localizer, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def assert_same(found, expected):
    assert (found.preset, found.threshold) == (expected.preset, expected.threshold)
    assert found.facts == expected.facts
    for mine, other in zip(found.banks, expected.banks, strict=True):
        np.testing.assert_array_equal(mine.filters, other.filters)
        np.testing.assert_array_equal(mine.eigenvalues, other.eigenvalues)
        assert mine.filters.dtype == np.float32
        assert mine.eigenvalues.dtype == np.float64


def assert_refused(path, message="is no model"):
    """A model error of one line that names the file."""
    with pytest.raises(ModelError, match=message) as caught:
        load_model(path)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert text.startswith(f"{path} is no model that can be used: ")
    assert len(text) > len(f"{path} is no model that can be used: ") + 5


def parts(path):
    """Take a file apart with what comes with Python only: safetensors is that simple."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def header_of(path):
    return json.loads(parts(path)[0]["__metadata__"]["cpcapp"])


def with_header(path, text):
    """Change the header of a file, and nothing else."""
    outer, rest = parts(path)
    outer["__metadata__"]["cpcapp"] = text
    whole = json.dumps(outer).encode()
    path.write_bytes(struct.pack("<Q", len(whole)) + whole + rest)


def test_what_is_saved_comes_back(localizer, path):
    assert_same(load_model(path), localizer)
    assert_same(load_model(str(path)), localizer)


def test_it_finds_the_same_after_a_round_trip(localizer, path, rng):
    photo = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
    expected = localizer.localize(photo).boundary
    np.testing.assert_array_equal(load_model(path).localize(photo).boundary, expected)


def test_the_same_model_is_the_same_file(localizer, path):
    first = path.read_bytes()
    save_model(load_model(path), path)
    assert path.read_bytes() == first


def test_the_header_can_be_read_without_this_package(localizer, path):
    outer, rest = parts(path)
    header = json.loads(outer["__metadata__"]["cpcapp"])
    assert header["format"] == "cpcapp-splice-localizer"
    assert header["format_version"] == 8
    assert header["preset"]["banks"][1]["channels"] == "error-level"
    assert header["training"]["data"] == ["Fotos für später"]
    assert header["threshold"] == 0.37
    first, last = outer["filters.0"]["data_offsets"]
    filters = np.frombuffer(rest[first:last], "<f4").reshape(outer["filters.0"]["shape"])
    np.testing.assert_array_equal(filters, localizer.banks[0].filters)
    assert header["eigenvalues"][0] == localizer.banks[0].eigenvalues.tolist()


def test_a_file_is_written_whole_or_not_at_all(localizer, path, monkeypatch):
    before = path.read_bytes()
    localizer.facts["never"] = object()  # JSON does not know it
    with pytest.raises(TypeError):
        save_model(localizer, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


# -- files that are no model ---------------------------------------------------------------


@pytest.mark.parametrize("twentieth", range(20))
def test_cut_off(path, twentieth):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * twentieth // 20])
    assert_refused(path)


@pytest.mark.parametrize(
    "content",
    [
        *(bytes(7), bytes(1000), b"%YAML:1.0\n---\nhello: 1\n", pickle.dumps({"filters.0": 3})),
        save({"weight": np.zeros(3)}, metadata={"format": "pt"}),
        *(save({"weight": np.zeros(3)}, metadata={"cpcapp": text}) for text in ("[]", "{", "3")),
        struct.pack("<Q", 2**63) + b"{}",
        (lambda text: struct.pack("<Q", len(text)) + text)(
            b'{"__metadata__": {"cpcapp": ' + b"[" * 100_000 + b"}}"
        ),
    ],
)
def test_files_of_another_kind(tmp_path, content):
    (tmp_path / "model").write_bytes(content)
    assert_refused(tmp_path / "model")


def test_damaged_bytes_never_do_worse_than_an_error(path, rng):
    """A flipped byte may hit a filter, where nobody can tell; it never breaks the reader."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    places = [*range(0, 8 + length, 3), *rng.integers(8 + length, len(data), 50)]
    outcomes = {"refused": 0, "read": 0}
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            found = load_model(path)
        except ModelError as error:
            outcomes["refused"] += 1
            assert len(str(error).splitlines()) == 1
        else:
            outcomes["read"] += 1
            assert all(np.isfinite(bank.filters).all() for bank in found.banks)
    assert min(outcomes.values()) > 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.update(format="other"), "no header of this package"),
        (
            lambda h: h.update(format="cpcapp-mfcn"),
            "another kind of file of this package",
        ),
        (lambda h: h.update(format_version=7), "its format is version 7, this is cpcapp"),
        (lambda h: h.pop("preset"), "it has no 'preset'"),
        (lambda h: h.update(threshold=1.5), "threshold=1.5 must be in"),
        (lambda h: h.update(threshold=float("nan")), "threshold=nan must be in"),
        (lambda h: h.update(threshold=10**400), "too large"),
        (lambda h: h.update(training=[]), "is not a JSON object"),
        (lambda h: h.update(preset=3), "not subscriptable"),
        (lambda h: h["preset"].update(banks=[]), "at least one set of filters"),
        (lambda h: h["preset"].update(banks=[None]), "not subscriptable"),
        (lambda h: h["preset"]["banks"][0].update(size=10**9), "must be from 2 to 64"),
        (lambda h: h["preset"]["banks"][0].update(size=8), r"which want \(192, 3\)"),
        (lambda h: h["preset"]["banks"][0].pop("exponent"), "it has no 'exponent'"),
        (lambda h: h["eigenvalues"][0].pop(), r"with \(2,\) eigenvalues"),
        (lambda h: h.update(eigenvalues=[[1, 2, 10**400], [1, 2, 3, 4]]), "too large"),
        (lambda h: h["eigenvalues"][0].__setitem__(0, float("inf")), "must be finite"),
    ],
)
def test_headers_that_can_not_be(path, change, message):
    header = header_of(path)
    change(header)
    with_header(path, json.dumps(header))
    assert_refused(path, message)


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        ("calibration", "weights", [1e308] * 6, r"weights must be finite, within ±1e\+09"),
        ("calibration", "genuine", {"web": [1e308]}, r"web must be finite, within ±1e\+09"),
        ("calibration", "genuine", [1.0], "is no model"),
        ("calibration", "table", {"value": [0, 1], "ratio": [0, 1e4]}, "ratio must lie within"),
        ("preset", "regions", {"prior": -1e308}, r"prior=-1e\+308 must be from -100"),
        ("calibration", "photos", {"authentic": -3, "spliced": 1}, "n_authentic=-3 must be from 0"),
        ("preset", "mosaic", {"prior_count": 0.0}, "prior_count=0.0 must be from"),
        ("preset", "mosaic", {"half_weight_share": 1e-300}, "half_weight_share=1e-300 must be"),
    ],
)
def test_numbers_without_which_a_search_would_not_end(tmp_path, part, name, value, message):
    path = tmp_path / "model.safetensors"
    save_model(load_model("filters"), path)
    header = header_of(path)
    whole = header[part][name]
    header[part][name] = whole | value if isinstance(value, dict) else value
    with_header(path, json.dumps(header))
    assert_refused(path, message)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "it has no 'filters.0'"),
        ({"filters.0": np.zeros((3, 48), np.float32)}, r"shape \(3, 48\)"),
        ({"filters.0": np.zeros(144, np.float32)}, r"shape \(144,\)"),
        ({"filters.0": np.full((48, 3), np.nan, np.float32)}, "must be finite"),
        ({"filters.0": np.full((48, 3), 1e30, np.float32)}, "must be finite, within"),
        ({"filters.0": np.full((48, 3), 1e300)}, "its filters are float64, not float32"),
        ({"filters.0": np.zeros((48, 3), np.int8)}, "its filters are int8, not float32"),
    ],
)
def test_filters_that_can_not_be(localizer, path, tensors, message):
    header = json.dumps(header_of(path))
    good = {f"filters.{i}": bank.filters for i, bank in enumerate(localizer.banks)}
    if tensors:
        tensors = good | tensors
    path.write_bytes(save(tensors, metadata={"cpcapp": header}))
    assert_refused(path, message)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "model"
    with path.open("wb") as file:
        file.truncate(1 << 30)  # takes no room on the disk
    assert_refused(path, "larger than 256 MB")


def test_no_file(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no model file"):
            load_model(path)
    names = "give the path of one, or the name of a model of the package: default, filters, paper"
    with pytest.raises(FileNotFoundError, match=f"there is no model file filtres; {names}"):
        load_model("filtres")


@pytest.mark.parametrize("name", ["filters", "paper"])
def test_models_of_the_package_have_names(name, tmp_path, monkeypatch):
    found = load_model(name)
    assert found.name == found.preset.name == name
    assert found.preset == PRESETS[name]
    assert found.calibration.can_judge
    # A file of that name in the folder is another thing, and has a path.
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("no model")
    assert load_model(name).name == name
    for path in (f"./{name}", tmp_path / name):
        with pytest.raises(ModelError, match="is no model that can be used"):
            load_model(path)


def test_the_default_model_has_a_name_too(tmp_path):
    assert shipped_models() == ["default", "filters", "paper"]
    default, named, unnamed = load_model(DEFAULT_MODEL), load_model("default"), load_model()
    assert_same(named, default)
    assert_same(unnamed, default)


# -- models with a network --------------------------------------------------------------------


@pytest.fixture
def network_path(tmp_path):
    save_model(network_localizer(), tmp_path / "network.safetensors")
    return tmp_path / "network.safetensors"


def test_a_model_with_a_network_finds_the_same_after_a_round_trip(network_path):
    before, after = network_localizer(), load_model(network_path)
    assert after.network.stages == before.network.stages
    assert after.network.facts == before.network.facts
    assert after.preset == before.preset
    photo = textured(90, 124)
    one, other = before.localize(photo), after.localize(photo)
    for name in ("boundary", "region"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.region.max() > 0.5
    assert (one.score, one.rank, one.side_rule) == (other.score, other.rank, other.side_rule)
    assert one.rank is not None
    save_model(after, network_path.with_name("again"))
    assert network_path.with_name("again").read_bytes() == network_path.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.pop("network"), "it has no 'network'"),
        (lambda h: h.update(network=[]), "its network is not a JSON object"),
        (lambda h: h["network"].pop("margins"), "it has no 'margins'"),
        (lambda h: h["network"].update(grid=10**9), "grid=1000000000 must be from 1 to 256"),
        (
            lambda h: h["network"]["margins"].update(near=-1),
            "near=-1 must be from 0 to 256",
        ),
        (lambda h: h["calibration"]["table"]["value"].pop(), "must be of one length"),
        (lambda h: h["calibration"]["traces"]["within"].pop(), "within of shape .* must be square"),
        (lambda h: h["calibration"]["traces"].pop("across"), "it has no 'across'"),
        (lambda h: h["calibration"]["weights"].pop(), r"weights of shape \(4,\)"),
        (lambda h: h["calibration"]["weights"].append(1.0), "has 6 weights; it must have 5"),
        (lambda h: h["calibration"].pop("traces"), "it has no 'traces'"),
        (lambda h: h["preset"].update(network=False), "banks must hold at least one set"),
        (lambda h: h["preset"].pop("network"), "it has no 'network'"),
        (
            lambda h: h["preset"]["regions"].update(n_trace_filters=0),
            "n_trace_filters=0 must be from 1 to 64",
        ),
    ],
)
def test_headers_of_networks_that_can_not_be(network_path, change, message):
    header = header_of(network_path)
    change(header)
    with_header(network_path, json.dumps(header))
    assert_refused(network_path, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda graph: b"", "the graph 'near' of its network can't be used: it has 0|no whole"),
        (lambda graph: b"no graph at all", "the graph 'near' of its network can't be used"),
        (lambda graph: graph[: len(graph) // 2], "the graph 'near' of its network can't be used"),
        # It is whole, and computes something else.
        (lambda graph: graph.replace(b"Conv", b"Relu"), "its network can't measure a photo"),
    ],
)
def test_a_damaged_graph_is_refused_when_the_model_is_read(network_path, change, message):
    """Not at the first photo, and not with a traceback."""
    network = network_localizer()
    graphs = network.network.stages | {"near": change(network.network.stages["near"])}
    tensors = {f"network.{name}": np.frombuffer(g, np.uint8) for name, g in graphs.items()}
    header = json.dumps(header_of(network_path))
    network_path.write_bytes(save(tensors, metadata={"cpcapp": header}))
    assert_refused(network_path, message)


def test_sides_that_do_not_fit_the_network(network_path):
    header = header_of(network_path)
    header["calibration"]["traces"] = dict.fromkeys(("across", "within"), np.eye(3).tolist())
    with_header(network_path, json.dumps(header))
    assert_refused(network_path, "it tells sides apart by [0-9]+ traces, and a photo has")


# -- networks alone ---------------------------------------------------------------------------


@pytest.fixture
def meter_path(tmp_path):
    save_network(tiny_meter(), tmp_path / "meter.safetensors")
    return tmp_path / "meter.safetensors"


def test_a_network_measures_the_same_after_a_round_trip(meter_path):
    before, after = tiny_meter(), load_network(str(meter_path))
    assert (after.stages, after.facts) == (before.stages, before.facts)
    one, other = (meter.measure(textured(60, 84)) for meter in (before, after))
    for name in ("seam", "region", "pasted", "vectors"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    save_network(after, meter_path.with_name("again"))
    assert meter_path.with_name("again").read_bytes() == meter_path.read_bytes()


def assert_no_network(path, message):
    with pytest.raises(
        ModelError, match=rf"{path.name} is no network that can be used: .*{message}"
    ):
        load_network(path)


def test_files_that_are_no_networks(meter_path, tmp_path):
    whole = meter_path.read_bytes()
    for content, message in (
        (b"", "it is cut off"),
        (whole[: len(whole) // 2], ""),
        (b"not a model at all", "it is cut off"),
    ):
        meter_path.write_bytes(content)
        assert_no_network(meter_path, message)
    save_model(load_model("filters"), tmp_path / "model.safetensors")
    assert_no_network(tmp_path / "model.safetensors", "another kind of file of this package")
    with pytest.raises(FileNotFoundError, match=r"there is no model file .*nowhere"):
        load_network(tmp_path / "nowhere")
    save_network(tiny_meter(), meter_path)
    assert_refused(meter_path, "another kind of file of this package")
