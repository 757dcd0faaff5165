"""The folder of results while it is being made, and as other programs use it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cpcapp._io.files import FolderInUseError
from cpcapp.splicing.score.album import open_album
from cpcapp.splicing.score.report import METHOD

SHAPE = (48, 64)


@pytest.fixture
def case():
    mask = np.zeros(SHAPE, dtype=bool)
    mask[:, 32:] = True
    flat = np.ones(SHAPE, np.float32)
    return SimpleNamespace(
        sample=SimpleNamespace(name="late"),
        image=np.full((*SHAPE, 3), 90, np.uint8),
        mask=mask,
        edges=flat,
        maps={METHOD: SimpleNamespace(boundary=flat)},
        scores={METHOD: {"edge": SimpleNamespace(mcc=0.5, f1=0.6)}},
    )


def test_photos_under_way_when_a_run_stops_are_not_drawn(tmp_path, case):
    with open_album(tmp_path) as album:
        album.draw(case)
        assert len(list(tmp_path.rglob("*.png"))) == 1
    album.draw(case)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_kept(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(FolderInUseError, match=r"is not empty; .* replace=True") as caught:
        open_album(tmp_path).__enter__()
    assert caught.value.reason == f"{tmp_path} is not empty"
    with open_album(tmp_path, replace=True):
        assert (tmp_path / "mine.txt").exists()


def test_a_folder_that_can_not_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"can't make the folder .*file"):
        open_album(tmp_path / "file" / "below").__enter__()
