"""The JSON file of a photo."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cpcapp.splicing import Localization, read_image
from cpcapp.splicing.output.entries import (
    has_whole_pictures,
    is_result_picture,
    read_entry,
    write_result,
)
from cpcapp.splicing.output.files import ResultFiles

ORIGIN = {"sha256": "0", "model": {"name": "any"}}


@pytest.fixture
def files(tmp_path):
    return ResultFiles(Path("cat.jpg"), tmp_path, "cat")


def localization(**changes):
    flat = np.zeros((80, 100), dtype=np.float32)
    return replace(Localization(flat, flat, jpeg_quality=90, calibrated=True), **changes)


def write(files, **changes):
    image = read_image(np.full((80, 100, 3), 128, dtype=np.uint8))
    return write_result(files, image, localization(**changes), threshold=0.5, origin=ORIGIN)


def strict(content):
    def refuse(name):
        raise ValueError(f"{name} is no JSON")

    return json.loads(content, parse_constant=refuse)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"score": math.nan, "p_value": math.nan, "seconds": math.inf},
        {"score": -math.inf, "p_value": 0.0, "jpeg_quality": None},
        {"calibrated": False},
        {"region": np.ones((80, 100), np.float32), "patch_p_values": np.ones((10, 13))},
    ],
)
def test_it_is_valid_json_whatever_is_unknown(files, changes):
    entry = write(files, **changes)
    assert strict(files.entry.read_bytes()) == entry == read_entry(files.entry)
    assert has_whole_pictures(files, entry)
    assert is_result_picture(files.overlay)
    assert files.region.exists() == ("region" in changes)


def test_what_the_verdict_rests_on(files):
    entry = write(files)
    assert (entry["jpeg_quality"], entry["calibrated"], entry["p_value"]) == (90, True, None)
    assert entry["verdict"] == "can't tell (unlike anything it was calibrated on)"
    assert entry["verdict_code"] == "unknown"
    entry = write(files, p_value=0.1)
    assert (entry["verdict"], entry["verdict_code"]) == ("weak signs of splicing", "weak")
    entry = write(files, calibrated=False, jpeg_quality=None)
    assert (entry["jpeg_quality"], entry["calibrated"]) == (None, False)
    assert entry["verdict"] == "can't tell (the model has not learned to judge)"


def test_the_region_is_shown_with_signs_only_and_the_boundary_map_always(files):
    boundary = np.random.default_rng(0).random((80, 100), dtype=np.float32)
    whole = {"region": np.ones((80, 100), np.float32), "boundary": boundary}
    maps = set()
    for p_value, share in ((0.01, 1), (0.1, 1), (0.2, 0), (None, 0)):
        entry = write(files, p_value=p_value, **whole)
        assert entry["region_share"] == share
        assert read_image(files.region).pixels.mean() == 255 * share
        maps.add(files.boundary.read_bytes())
    assert len(maps) == 1


def test_masks_of_an_earlier_model_do_not_stay(files):
    write(files, region=np.ones((80, 100), np.float32))
    assert files.region.exists()
    write(files)
    assert not files.region.exists()


def test_other_files(files):
    assert read_entry(files.entry) is None
    for content in ("{", "[]", '{"file": "cat.jpg"}'):
        files.entry.write_text(content)
        assert read_entry(files.entry) is None
    assert not is_result_picture(files.overlay)
    assert not is_result_picture(files.folder / "cat.png")
