"""The comparison with MFCN: stored figures, and pictures where the photos are at hand."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from cpcapp.experiments import Settings, run_experiment
from cpcapp.experiments import mfcn as experiment
from cpcapp.experiments._benchmarked import MFCN_SCORES

QUICK = Settings(quick=True)


def test_without_photos_there_are_figures_and_no_picture(data_home):
    result = run_experiment("mfcn", QUICK)
    assert result.pictures == ()
    scores, costs = result.tables
    assert len(scores.rows) == 5 * 5 + 2
    assert ("Columbia", "MFCN", *MFCN_SCORES["columbia"]["mfcn"]) in scores.rows
    assert [row[0] for row in costs.rows][-2:] == ["MFCN", "SFCN"]
    assert f"{MFCN_SCORES['columbia']['mfcn'][0]:.3f}" in result.findings[0]


def test_without_the_variable_there_is_no_folder(monkeypatch):
    monkeypatch.delenv("CPCAPP_DATA", raising=False)
    assert experiment.find_columbia() is None


def test_a_photo_in_the_layout_of_columbia_is_drawn(data_home):
    """A made photo under the name of one whose logits are stored."""
    name, logits = next(iter(experiment.read_logits().items()))
    folder = data_home / "columbia"
    (folder / "4cam_splc" / "edgemask").mkdir(parents=True)
    (folder / "4cam_auth").mkdir()
    height, width = (8 * side - 5 for side in logits.shape[1:])
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "4cam_splc" / f"{name}.tif")
    mask = np.zeros((height, width, 3), np.uint8)
    mask[..., 0] = 200  # the host is red, the pasted part green
    mask[100:300, 100:300] = (0, 200, 0)
    Image.fromarray(mask).save(folder / "4cam_splc" / "edgemask" / f"{name}_edgemask.jpg")
    assert experiment.find_columbia() == folder
    shares = []
    (picture,) = experiment.draw_photos(folder, 4, shares.append)
    assert not picture.shareable
    assert shares == [0.5]
    with Image.open(io.BytesIO(picture.png)) as drawn:
        assert drawn.width > 6 * 150
        assert np.asarray(drawn.convert("RGB")).std() > 20
    assert experiment.draw_photos(data_home / "columbia", 0, shares.append) == ()


def test_stored_answers_are_those_of_both_tasks():
    for logits in experiment.read_logits().values():
        assert logits.shape[0] == 2
        assert logits.dtype == np.float16
        assert np.isfinite(logits).all()
