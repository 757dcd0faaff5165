from __future__ import annotations

import numpy as np
import pytest

from cpcapp.splicing import train_localizer
from cpcapp.splicing.make.splices import SpliceMaker
from cpcapp.splicing.photo.samples import SourcePhoto
from cpcapp.splicing.presets import BankOptions, PatchRules, Preset
from cpcapp.splicing.train import train
from devices import on_each_device
from trace_networks import textured

SMALL = Preset(
    "small",
    (BankOptions(size=6, n_filters=5), BankOptions(channels="error-level", size=4, n_filters=3)),
    rules=PatchRules(min_edges=0.0),
)


@pytest.fixture
def splices():
    photos = [SourcePhoto(f"photo {i}", lambda i=i: textured(96, 128, i)) for i in range(4)]
    return SpliceMaker(photos, seed=1).samples(12)


@on_each_device
class TestTraining:
    def test_eigenvalues_are_those_of_the_cpu(self, splices, device):
        expected, found = (train_localizer(splices, SMALL, device=d) for d in (None, device))
        for one, other in zip(found.banks, expected.banks, strict=True):
            np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-5)
            np.testing.assert_allclose(one.filters, other.filters, rtol=1e-3, atol=1e-4)
        assert found.facts["photos"] == expected.facts["photos"]
        assert found.threshold == expected.threshold
        assert found.device is None  # what is kept runs anywhere

    def test_a_stopped_training_goes_on(self, splices, device, tmp_path, monkeypatch):
        whole = train_localizer(splices, SMALL, device=device)
        monkeypatch.setattr(train, "_PHOTOS_PER_UPDATE", 4)
        stop = 0

        def progress(share):
            nonlocal stop
            stop += 1
            if stop == 9:
                raise KeyboardInterrupt

        monkeypatch.setattr(train.Checkpoint.__init__, "__defaults__", (0.0,))
        folder = tmp_path / "checkpoint"
        with pytest.raises(KeyboardInterrupt):
            train_localizer(splices, SMALL, device=device, checkpoint=folder, progress=progress)
        assert (folder / "state.json").exists()
        seen = []
        again = train_localizer(
            splices, SMALL, device=device, checkpoint=folder, progress=seen.append
        )
        assert len(seen) == 4
        for one, other in zip(again.banks, whole.banks, strict=True):
            np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-9)


def test_a_device_that_is_not_there(splices):
    with pytest.raises(ValueError, match="device='cuda:99' can't be used here; use 'cpu'"):
        train_localizer(splices, SMALL, device="cuda:99")
