"""``cpcapp train-edges`` as a user runs it, on a small data set laid out like BSDS500."""

from __future__ import annotations

from functools import partial

import cv2
import numpy as np
import pytest
from scipy.io import savemat

from cpcapp.splicing.measure.edges import EdgeDetector


@pytest.fixture
def run(run_command):
    return partial(run_command, "train-edges")


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for split, numbers in (("train", (1, 2)), ("val", (3,))):
        for kind in ("images", "groundTruth"):
            (tmp_path / "bsds" / kind / split).mkdir(parents=True)
        for number in numbers:
            segments = np.ones((80, 100), dtype=np.uint16)
            cv2.circle(segments, (30 + 10 * number, 40), 20, 2, -1)
            photo = (
                rng.integers(0, 60, size=(80, 100, 3)) + np.where(segments == 2, 150, 30)[..., None]
            )
            cv2.imwrite(str(tmp_path / "bsds" / "images" / split / f"{number}.jpg"), photo)
            edge = np.zeros(segments.shape, dtype=np.uint8)
            edge[:, :-1] |= np.diff(segments, axis=1) != 0
            edge[:-1] |= np.diff(segments, axis=0) != 0
            truth = np.empty((1, 1), dtype=object)
            truth[0, 0] = {"Segmentation": segments, "Boundaries": edge}
            savemat(
                tmp_path / "bsds" / "groundTruth" / split / f"{number}.mat", {"groundTruth": truth}
            )
    return tmp_path / "bsds"


def test_trains_a_forest_that_runs(run, folder, tmp_path):
    forest = tmp_path / "forest.yml.gz"
    result = run(folder, "-o", forest, "--trees", 2, "--samples", 2000)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # no progress bar in a pipe
    assert "2 trees" in result.stdout
    assert "3 photos" in result.stdout
    image = np.full((80, 100, 3), 40, dtype=np.uint8)
    cv2.circle(image, (50, 40), 20, (200, 200, 200), -1)
    edges = EdgeDetector(forest).detect(image)
    assert edges[40, 69:72].max() > 3 * edges[40, 50]
    again = tmp_path / "again.yml.gz"
    assert run(folder, "-o", again, "--trees", 2, "--samples", 2000, "--jobs", 1).returncode == 0
    assert again.read_bytes() == forest.read_bytes()


def test_a_photo_that_can_not_be_read(run, folder, tmp_path):
    (folder / "images" / "val" / "3.jpg").write_bytes(b"broken")
    result = run(folder, "-o", tmp_path / "f.yml", "--samples", 2000)
    assert result.returncode == 2
    assert "3.jpg: is not a JPEG" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "f.yml").exists()
