from __future__ import annotations

from dataclasses import fields, replace

import pytest

from cpcapp.splicing import PRESETS, load_model
from cpcapp.splicing.decide.region_options import RegionOptions

NAMES = [field.name for field in fields(RegionOptions)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-101, (1 << 30) + 1, float("nan")])
def test_settings_out_of_range(name, value):
    with pytest.raises(ValueError, match=rf"{name}={value} must be from .* to "):
        RegionOptions(**{name: value})


def test_some_settings_may_be_0():
    edge = replace(RegionOptions(), min_superpixel_percent=0, far_weight=0.0)
    assert (edge.min_superpixel_percent, edge.far_weight) == (0, 0.0)


def test_the_shipped_model_was_made_with_the_defaults():
    """A model made today would find the same regions: its stored settings are the defaults."""
    assert load_model("filters").preset.regions == RegionOptions() == PRESETS["filters"].regions
