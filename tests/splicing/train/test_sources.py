"""Opening folders to train on, and the one call that trains on them."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from cpcapp.splicing import BankOptions, PatchRules, Preset, load_model
from cpcapp.splicing.train.sources import open_training_set, train_from_folders

SMALL = Preset("small", (BankOptions(size=4, n_filters=3),), rules=PatchRules(min_edges=0.0))


def save(path, seed, *, mask=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (72, 88, 3), dtype=np.uint8)
    if mask:
        pixels = np.zeros((72, 88), np.uint8)
        pixels[20:60, 30:70] = 255
    Image.fromarray(pixels).save(path)


@pytest.fixture
def plain(tmp_path):
    """Two folders of photos, with one name in both."""
    for name, seeds in (("a", (0, 1)), ("b", (1, 2))):
        for seed in seeds:
            save(tmp_path / name / f"{seed}.png", seed + 10 * ord(name))
    return [tmp_path / "a", tmp_path / "b"]


@pytest.fixture
def pairs(tmp_path):
    """Two data sets with masks, and a photo whose mask is missing."""
    for name in ("first", "second"):
        for seed in range(4):
            save(tmp_path / name / "images" / f"{seed}.png", seed)
            save(tmp_path / name / "masks" / f"{seed}.png", 0, mask=True)
    save(tmp_path / "first" / "images" / "bare.png", 7)
    return [tmp_path / "first", tmp_path / "second"]


def test_splices_are_made_of_all_plain_photos(plain):
    samples, known = open_training_set(plain, n_splices=12, seed=3)
    assert (len(samples), len(known)) == (12, 28)
    unchanged = list(known)[24:]  # each of the four photos as it is
    assert all(sample.authentic for sample in unchanged)
    assert len({sample.name for sample in unchanged}) == 4
    assert not any(sample.authentic for sample in samples)
    assert sum(sample.authentic for sample in known) == 12 + 4
    other, _ = open_training_set(plain, n_splices=12, seed=4)
    assert not np.array_equal(samples[0].image, other[0].image)


def test_data_sets_are_joined(pairs):
    samples, known = open_training_set(pairs)
    assert known is None
    assert samples.name == "first, second"
    names = [f"{name}/{seed}" for name in ("first", "second") for seed in range(4)]
    assert [sample.name for sample in samples] == names
    assert [problem.name for problem in samples.problems] == ["bare"]
    alone, _ = open_training_set(pairs[:1])
    assert [sample.name for sample in alone] == ["0", "1", "2", "3"]


def test_all_that_is_left_out_is_named(pairs, tmp_path):
    broken = pairs[1] / "images" / "2.png"
    broken.write_bytes(broken.read_bytes()[:-40])
    shares = [], []
    found = train_from_folders(
        pairs,
        SMALL,
        save_to=tmp_path / "model",
        checkpoint=tmp_path / "checkpoint",
        progress=shares[0].append,
        calibration_progress=shares[1].append,
    )
    assert [problem.partition(":")[0] for problem in found.problems] == ["bare", "second/2"]
    facts = load_model(tmp_path / "model").facts
    assert (facts["data"], facts["kind"]) == (["first", "second"], "first, second")
    assert facts["photos"] == {"used": 7, "given": 8}
    assert (shares[0][-1], shares[1][-1]) == (1.0, 1.0)
    assert not (tmp_path / "checkpoint").exists()


def test_mistakes(pairs, plain, tmp_path):
    with pytest.raises(ValueError, match="either spliced photos with masks or plain photos"):
        open_training_set([*pairs, *plain])
    with pytest.raises(ValueError, match="n_splices=0 must be at least 1"):
        open_training_set(plain, n_splices=0)
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        open_training_set([tmp_path / "nowhere"])
