from __future__ import annotations

from dataclasses import fields, replace

import pytest

from cpcapp.splicing import PRESETS, load_model
from cpcapp.splicing.decide.options import RegionOptions, VerdictOptions


@pytest.mark.parametrize("options", [RegionOptions, VerdictOptions])
@pytest.mark.parametrize("value", [-101, (1 << 30) + 1, float("nan")])
def test_settings_out_of_range(options, value):
    for name in (field.name for field in fields(options)):
        with pytest.raises(ValueError, match=rf"{name}={value} must be from .* to "):
            options(**{name: value})


def test_some_settings_may_be_0():
    names = ("min_superpixel_percent", "far_weight", "prior", "trim_per_pixel", "mosaic_weight")
    none = replace(RegionOptions(), **dict.fromkeys((*names, "trace_weight"), 0))
    assert (none.trace_weight, none.far_weight) == (0, 0)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_quantile_may_be_an_end(value):
    assert VerdictOptions(peak_quantile=value).peak_quantile == value


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_shipped_models_have_the_settings_of_their_presets(name):
    """A model made today would find the same regions, and judge alike."""
    model = load_model(name)
    assert model.preset == PRESETS[name]
    assert model.calibration.options == model.preset.verdict


def test_the_level_of_a_photo_leaves_out_what_its_edges_cross():
    """Edges as long as 12 sides of a photo of 80 x 80 squares cross 960 of 6,400."""
    options = VerdictOptions()
    assert options.background_quantile(6400) == pytest.approx(1.0 - 12 * 80 / 6400)
    assert options.background_quantile(187_500) == pytest.approx(0.9723, abs=1e-4)
    assert options.background_quantile(90) == 0.5  # a small photo consists of edges
    assert VerdictOptions(outline_length=0.0).background_quantile(1) == 1.0
