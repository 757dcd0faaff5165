from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing import PRESETS, BankOptions, PatchRules, Preset

shares = st.floats(0.01, 0.99)
banks = st.builds(
    BankOptions,
    channels=st.sampled_from(["rgb", "error-level"]),
    size=st.integers(8, 64),
    stride=st.integers(1, 8),
    n_filters=st.integers(1, 192),
    weights=st.sampled_from(["none", "excess"]),
    variance_exponent=st.floats(0, 2),
    window=st.sampled_from(["uniform", "gaussian"]),
    exponent=st.floats(0.01, 10),
)
rules = st.builds(
    PatchRules,
    min_spliced=st.floats(0.01, 0.4),
    max_spliced=st.floats(0.5, 0.99),
    min_edges=shares,
    edge_strength=shares,
    per_photo=st.integers(1, 10_000),
)


@given(
    st.builds(
        Preset,
        name=st.text(max_size=9),
        banks=st.lists(banks, min_size=1, max_size=3).map(tuple),
        smoothing=st.floats(0, 50),
        mosaic_contrast=st.booleans(),
        rules=rules,
    )
)
def test_a_preset_survives_json(preset):
    assert Preset.from_dict(json.loads(json.dumps(preset.to_dict()))) == preset


@pytest.mark.parametrize("name", PRESETS)
def test_presets_of_the_package(name):
    preset = PRESETS[name]
    assert preset.name == name
    assert Preset.from_dict(json.loads(json.dumps(preset.to_dict()))) == preset


def test_the_paper_s_preset_is_the_paper_s_method():
    """One set of filters on colours, plain output power, plain averages, nothing after."""
    preset = PRESETS["paper"]
    (bank,) = preset.banks
    assert (bank.channels, bank.weights, bank.variance_exponent) == ("rgb", "none", 0.0)
    assert (bank.window, bank.exponent, preset.smoothing) == ("uniform", 1.0, 0.0)
    assert (preset.rules.min_spliced, preset.rules.max_spliced) == (0.3, 0.7)
    assert bank.n_features == 3 * bank.size**2


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (BankOptions, {"channels": "hsv"}, "channels='hsv' must be one of error-level, rgb"),
        (BankOptions, {"weights": "all"}, "weights='all' must be one of none, excess"),
        (BankOptions, {"window": "hann"}, "window='hann' must be one of uniform, gaussian"),
        (BankOptions, {"size": 1}, "size=1 must be from 2 to 64"),
        (BankOptions, {"stride": 0}, "stride=0 must be from 1 to size=16"),
        (BankOptions, {"stride": 17}, "stride=17 must be from 1 to size=16"),
        (BankOptions, {"n_filters": 769}, "n_filters=769 must be from 1 to 768"),
        (BankOptions, {"variance_exponent": -0.1}, "variance_exponent=-0.1 must be from 0 to 2"),
        (BankOptions, {"variance_exponent": math.nan}, "variance_exponent=nan must be"),
        (BankOptions, {"exponent": 0.0}, "exponent=0.0 must be from 0.001 to 10"),
        (PatchRules, {"min_spliced": 0.0}, "min_spliced=0.0 and max_spliced=0.7 must rise"),
        (PatchRules, {"min_spliced": 0.7}, "must rise between 0 and 1"),
        (PatchRules, {"max_spliced": 1.0}, "must rise between 0 and 1"),
        (PatchRules, {"min_edges": 1.1}, "min_edges=1.1 must be from 0 to 1"),
        (PatchRules, {"edge_strength": -1.0}, "edge_strength=-1.0 must be from 0 to 1"),
        (PatchRules, {"per_photo": 0}, "per_photo=0 must be from 1"),
    ],
)
def test_options_out_of_range(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"banks": ()}, "banks must hold at least one set of filters, and none with a network"),
        ({"network": True}, "banks must hold at least one set of filters, and none with a network"),
        ({"smoothing": -1.0}, "smoothing=-1.0 must be from 0 to 50"),
        ({"smoothing": math.inf}, "smoothing=inf must be from"),
    ],
)
def test_presets_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        Preset(**{"name": "mine", "banks": (BankOptions(),), **options})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["banks"][0].update(size="16"), "size='16' must be of type int"),
        (lambda d: d["banks"][0].update(size=16.0), "size=16.0 must be of type int"),
        (lambda d: d["banks"][0].update(stride=True), "stride=True must be of type int"),
        (
            lambda d: d["banks"][0].update(variance_exponent="much"),
            "variance_exponent='much' must be of type float",
        ),
        (lambda d: d["rules"].update(per_photo=None), "per_photo=None must be of type int"),
        (lambda d: d["banks"][0].update(size=99), "size=99 must be from 2 to 64"),
    ],
)
def test_settings_from_a_file_are_checked(change, message):
    content = PRESETS["paper"].to_dict()
    change(content)
    with pytest.raises(ValueError, match=message):
        Preset.from_dict(content)


def test_settings_of_older_files():
    """What is no longer a choice is read where it is what is done, and refused elsewhere."""
    content = PRESETS["filters"].to_dict()
    for bank in content["banks"]:
        bank["scaling"] = "background"
    assert Preset.from_dict(content) == PRESETS["filters"]
    content["banks"][0]["scaling"] = "unit"
    with pytest.raises(ValueError, match="scaling='unit' is no longer computed; train the model"):
        Preset.from_dict(content)
    content["banks"][0] |= {"scaling": "background", "channels": "laplacian"}
    with pytest.raises(ValueError, match="channels='laplacian' must be one of error-level, rgb"):
        Preset.from_dict(content)


def test_a_whole_number_will_do_for_a_float():
    content = PRESETS["paper"].to_dict()
    content["smoothing"] = 2
    content["banks"][0]["variance_exponent"] = 1
    preset = Preset.from_dict(content)
    assert (preset.smoothing, preset.banks[0].variance_exponent) == (2.0, 1.0)
    assert isinstance(preset.banks[0].variance_exponent, float)
