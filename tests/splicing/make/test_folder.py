"""A folder of splices, as a Python user makes it; the command's tests have the rest."""

from __future__ import annotations

import json

import cv2
import numpy as np
import pytest

from cpcapp._io.files import FolderInUseError
from cpcapp.splicing.datasets import open_photos
from cpcapp.splicing.make.cuts import SpliceOptions
from cpcapp.splicing.make.folder import make_splices


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(3):
        noise = np.random.default_rng(seed).integers(0, 256, (12, 15, 3), dtype=np.uint8)
        picture = cv2.resize(noise, (90 + seed, 70), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(folder / f"{seed}.png"), picture)
    return folder


def test_what_was_made_can_be_opened(photos, tmp_path):
    shares = []
    options = SpliceOptions(jpeg_share=1.0)
    found = make_splices([photos], tmp_path / "out", 5, options=options, progress=shares.append)
    assert (found.n_made, found.n_kept, found.n_photos, found.problems) == (5, 0, 3, ())
    assert shares[-1] == 1.0
    opened = open_photos(found.folder)
    assert [sample.name for sample in opened] == [f"splice{i:05d}" for i in range(5)]
    assert all(path.suffix == ".jpg" for path in (found.folder / "images").iterdir())
    entries = json.loads((found.folder / "manifest.json").read_bytes())["splices"]
    for sample, entry in zip(opened, entries, strict=True):
        assert sample.mask.mean() == pytest.approx(entry["area"], abs=1e-5)


def test_errors_name_parameters(photos, tmp_path):
    make_splices([photos], tmp_path / "out", 1)
    with pytest.raises(FolderInUseError, match=r"is not empty; .* existing='resume'"):
        make_splices([photos], tmp_path / "out", 1)
    with pytest.raises(FolderInUseError, match=r"other seed; .* existing='replace'"):
        make_splices([photos], tmp_path / "out", 1, seed=1, existing="resume")
    with pytest.raises(ValueError, match="existing='maybe' must be 'error', 'resume' or"):
        make_splices([photos], tmp_path / "new", existing="maybe")
    with pytest.raises(ValueError, match="n=0 must be at least 1"):
        make_splices([photos], tmp_path / "new", 0)
    assert not (tmp_path / "new").exists()
