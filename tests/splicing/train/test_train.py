"""Training: which patches are taken, what is learned from them, and going on after a stop."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp import solve_contrast
from cpcapp.splicing import (
    BankOptions,
    PatchRules,
    Preset,
    load_model,
    save_model,
    train_localizer,
)
from cpcapp.splicing.make.splices import SpliceMaker, SpliceOptions, training_splices
from cpcapp.splicing.measure.edges import detect_edges
from cpcapp.splicing.measure.filters import image_planes
from cpcapp.splicing.photo.samples import Sample, photos_from
from cpcapp.splicing.score.controls import edge_strength_map
from cpcapp.splicing.score.evaluate import evaluate
from cpcapp.splicing.score.protocols import boundary_band
from cpcapp.splicing.train import calibrate, train
from cpcapp.splicing.train.checkpoint import Checkpoint
from cpcapp.splicing.train.train import select_patches
from helpers import subspace_angle
from trace_networks import network_localizer

SIZE = 6
BANK = BankOptions(size=SIZE, stride=3, n_filters=4)
EVERYTHING = PatchRules(min_edges=0.1, edge_strength=0.05, per_photo=10**6)
PRESET = Preset("small", (BANK,), rules=EVERYTHING)
TWO = Preset(
    "two",
    (BANK, BankOptions("error-level", 5, 5, 3, weights="excess")),
    smoothing=1.0,
    rules=replace(EVERYTHING, per_photo=60),
)


def picture(seed, shape=(44, 52)):
    """A picture of rough blocks, and the mask of a part that is smoother than the rest."""
    rng = np.random.default_rng(seed)
    height, width = shape
    pixels = rng.integers(0, 90, (height, width, 3)) + rng.integers(0, 60, 3)
    top, left = rng.integers(0, height // 2), rng.integers(0, width // 2)
    pixels[top : top + 20, left:] += rng.integers(0, 90, 3)
    mask = np.zeros(shape, dtype=bool)
    mask[8 : 8 + height // 2, 10 + seed % 9 : 10 + seed % 9 + width // 2] = True
    smooth = rng.integers(60, 200, 3) + rng.integers(0, 9, pixels.shape)
    return np.where(mask[..., None], smooth, pixels).clip(0, 255).astype(np.uint8), mask


def pixels_of(seed, shape):
    return picture(seed, shape)[0]


def mask_of(seed, shape):
    return picture(seed, shape)[1]


def sample(seed, shape=(44, 52), *, authentic=False):
    read_mask = None if authentic else partial(mask_of, seed, shape)
    return Sample(f"photo {seed}", authentic, partial(pixels_of, seed, shape), read_mask)


SAMPLES = tuple(sample(seed) for seed in range(12))
# Photos to calibrate by, large enough to be judged.
KNOWN = tuple(sample(seed, (72, 88), authentic=bool(seed % 2)) for seed in range(200, 244))


@pytest.fixture
def samples():
    return list(SAMPLES)


def use_small_groups(patch):
    """Add up the patches of four photos at a time, so that a dozen make some groups."""
    patch.setattr(train, "_PHOTOS_PER_UPDATE", 4)


def save_often(patch):
    """Keep the state after every group of photos."""
    patch.setattr(Checkpoint.__init__, "__defaults__", (0.0,))


def use_small_parts(patch):
    """Keep what was measured after every five photos."""
    patch.setattr(calibrate, "_PHOTOS_PER_SAVE", 5)


@pytest.fixture(autouse=True)
def groups_of_four(monkeypatch):
    use_small_groups(monkeypatch)


def broken():
    raise OSError("the disk is on fire")


def allowed(mask, edges, size, rules):
    """Target and background patches by the words of the paper, one patch at a time."""
    target, background = [], []
    height, width = mask.shape
    for top, left in product(range(height - size + 1), range(width - size + 1)):
        box = (slice(top, top + size), slice(left, left + size))
        spliced = int(mask[box].sum())
        edge = int((edges[box] >= np.float32(rules.edge_strength)).sum())
        share = spliced / size**2
        if rules.min_spliced <= share <= rules.max_spliced:
            target.append((top, left))
        if spliced in (0, size**2) and edge / size**2 >= rules.min_edges:
            background.append((top, left))
    return target, background


def patches_of(samples, preset=PRESET, number=0):
    """All patches of the rules, cut one by one."""
    bank, rows = preset.banks[number], ([], [])
    for one in samples:
        image = one.image.astype(np.float32) / np.float32(255)
        planes = image_planes(image, bank.channels).astype(np.float64)
        places = allowed(one.mask, detect_edges(image), bank.size, preset.rules)
        for side, corners in zip(rows, places, strict=True):
            for top, left in corners:
                side.append(planes[:, top : top + bank.size, left : left + bank.size].ravel())
    return tuple(np.array(side) for side in rows)


class Stop(Exception):
    pass


def stop_after(n, of):
    def progress(share):
        if share >= n / of:
            raise Stop

    return progress


@pytest.fixture
def often(monkeypatch):
    save_often(monkeypatch)


def stop_training(folder, progress=None, calibration_progress=None, known=None):
    """Train until a progress stops it; leave the checkpoint in the folder."""
    with pytest.MonkeyPatch.context() as patch:
        for change in (use_small_groups, save_often, use_small_parts):
            change(patch)
        with pytest.raises(Stop):
            train_localizer(
                list(SAMPLES),
                TWO,
                calibrate_on=known,
                checkpoint=folder,
                progress=progress,
                calibration_progress=calibration_progress,
            )


def content(localizer, path):
    save_model(localizer, path)
    return path.read_bytes()


# -- which patches -------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(2, 9),
    min_edges=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    shape=st.tuples(st.integers(4, 24), st.integers(4, 24)),
)
def test_patches_are_all_that_the_rules_allow(seed, size, min_edges, shape):
    rng = np.random.default_rng(seed)
    mask = np.zeros(shape, dtype=bool)
    top, left, bottom, right = rng.integers(0, 24, 4)
    mask[min(top, bottom) : max(top, bottom), min(left, right) : max(left, right)] = True
    mask ^= rng.random(shape) < 0.01
    edges = rng.random(shape, dtype=np.float32) ** 3
    rules = PatchRules(min_edges=min_edges, per_photo=10**6)
    found = select_patches(mask, edges, size, rules, rng)
    expected = allowed(mask, edges, size, rules) if min(shape) >= size else ([], [])
    for places, wanted in zip(found, expected, strict=True):
        assert places.shape == (len(wanted), 2)
        assert {tuple(place) for place in places.tolist()} == set(wanted)


@pytest.mark.parametrize(
    ("pasted", "target"), [(29, False), (30, True), (50, True), (70, True), (71, False)]
)
def test_exactly_30_to_70_percent_are_a_seam(pasted, target):
    mask = np.arange(100).reshape(10, 10) < pasted
    edges = np.ones((10, 10), dtype=np.float32)
    found, background = select_patches(mask, edges, 10, PatchRules(), np.random.default_rng(0))
    assert len(found) == target
    assert len(background) == 0  # a seam is a seam, even if too little of it is seen


def test_of_many_patches_some_are_drawn():
    mask = np.zeros((60, 80), dtype=bool)
    mask[:, 40:] = True
    edges = np.ones(mask.shape, dtype=np.float32)
    everything = select_patches(mask, edges, 8, EVERYTHING, np.random.default_rng(0))
    rules = replace(EVERYTHING, per_photo=50)
    first, same, other = (
        select_patches(mask, edges, 8, rules, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    for kind in (0, 1):
        drawn = {tuple(place) for place in first[kind].tolist()}
        assert len(drawn) == len(first[kind]) == 50
        assert drawn < {tuple(place) for place in everything[kind].tolist()}
        np.testing.assert_array_equal(first[kind], same[kind])
        assert drawn != {tuple(place) for place in other[kind].tolist()}
        # From everywhere, not from the first rows.
        assert first[kind][:, 0].max() > 45
        assert first[kind][:, 0].min() < 8


# -- what is learned -----------------------------------------------------------------------


@pytest.mark.parametrize("channels", ["rgb", "error-level"])
def test_filters_are_those_of_all_these_patches(samples, channels):
    preset = replace(PRESET, banks=(replace(BANK, channels=channels),))
    found = train_localizer(samples[:6], preset)
    target, background = patches_of(samples[:6], preset)
    counts = found.facts["banks"][0]
    assert (counts["target_patches"], counts["background_patches"]) == (
        len(target),
        len(background),
    )
    expected = solve_contrast(target, background, BANK.n_filters, loading="oas")
    np.testing.assert_allclose(found.banks[0].eigenvalues, expected.eigenvalues, rtol=1e-4)
    assert subspace_angle(found.banks[0].filters, expected.filters) < 1e-3
    # Background patches have unit power along each filter.
    output = (background - background.mean(axis=0)) @ found.banks[0].filters
    np.testing.assert_allclose(output.var(axis=0), 1.0, rtol=0.1)


def test_each_bank_has_its_own_patches(samples):
    both = train_localizer(samples[:6], TWO)
    for number, bank in enumerate(TWO.banks):
        alone = train_localizer(samples[:6], replace(TWO, banks=(bank,)))
        np.testing.assert_array_equal(both.banks[number].filters, alone.banks[0].filters)
        assert both.facts["banks"][number] == alone.facts["banks"][0]


def test_authentic_photos_add_to_the_background(samples):
    spliced = samples[:6]
    authentic = [sample(seed, authentic=True) for seed in range(100, 104)]
    before = train_localizer(spliced, PRESET).facts["banks"][0]
    found = train_localizer(spliced + authentic, PRESET)
    after = found.facts["banks"][0]
    assert after["target_patches"] == before["target_patches"]
    assert after["background_patches"] > before["background_patches"] + 500
    assert found.facts["photos"] == {"used": 10, "given": 10}
    assert found.facts["problems"] == []


def test_with_a_network_no_filters_are_learned(tmp_path):
    """The network is taken as it is; the photos are to calibrate by, and for the threshold."""
    given = network_localizer(calibrated=False)
    path = tmp_path / "model"
    found = train_localizer(KNOWN, given.preset, network=given.network, save_to=path)
    assert found.banks == ()
    assert found.network.stages == given.network.stages
    assert found.calibration.can_judge
    assert found.facts["photos"] == {"used": 44, "given": 44}
    assert found.facts["scores"]["on"] == "22 of the training photos"
    photo = KNOWN[0].image
    one, other = found.localize(photo), load_model(path).localize(photo)
    np.testing.assert_array_equal(one.boundary, given.localize(photo).boundary)
    assert one.score == pytest.approx(other.score, rel=1e-3)


def test_photos_smaller_than_a_patch_add_nothing(samples):
    small = Sample(
        "small", False, partial(np.zeros, (4, 9, 3), np.uint8), partial(np.ones, (4, 9), bool)
    )
    found = train_localizer([*samples[:8], small], PRESET)
    expected = train_localizer(samples[:8], PRESET)
    np.testing.assert_array_equal(found.banks[0].filters, expected.banks[0].filters)
    assert found.facts["photos"] == {"used": 8, "given": 9}


@pytest.mark.parametrize("preset", [PRESET, TWO], ids=["one bank", "two banks"])
def test_the_result_does_not_depend_on_the_jobs(samples, preset, tmp_path):
    files = [
        content(train_localizer(samples, preset, jobs=jobs), tmp_path / f"{jobs}")
        for jobs in (1, 2, 5)
    ]
    assert files[0] == files[1] == files[2]


def test_the_seed_decides_which_patches(samples):
    first, same, other = (train_localizer(samples[:8], TWO, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.banks[0].filters, same.banks[0].filters)
    assert (first.banks[0].filters != other.banks[0].filters).any()
    assert other.facts["seed"] == 1


def test_the_threshold_is_the_best_for_all_photos_together(samples):
    found = train_localizer(samples, TWO)
    levels = np.arange(1, 100) / 100
    f1 = []
    for one in samples:
        boundary, band = found.localize(one.image).boundary, boundary_band(one.mask)
        row = []
        for level in levels:
            marked = boundary >= level
            row.append(2 * (marked & band).sum() / (marked.sum() + band.sum()))
        f1.append(row)
    means = np.mean(f1, axis=0)
    assert found.threshold == levels[means.argmax()]
    assert means.max() > means.min() + 0.1
    assert found.facts["scores"]["on"] == "12 of the training photos"
    assert found.facts["scores"]["edge"]["f1"] >= round(means.max(), 4)


def test_progress_and_facts(samples):
    shares = []
    found = train_localizer(
        samples[:6], PRESET, progress=shares.append, facts={"data": ["mine"], "seed": "no"}
    )
    assert shares == [n / 6 for n in range(1, 7)]
    assert found.facts["data"] == ["mine"]
    assert found.facts["seed"] == 0
    assert 0.0 < found.facts["banks"][0]["subspace_overlap"] <= 1.0
    json.dumps(found.facts)


# -- photos that are no help ---------------------------------------------------------------


def test_photos_that_can_not_be_read_are_left_out(samples):
    bad = [
        Sample("fire", False, broken, partial(np.zeros, (44, 52), bool)),
        Sample("fire in the mask", False, partial(pixels_of, 0, (44, 52)), broken),
        Sample("askew", False, partial(pixels_of, 0, (44, 52)), partial(np.zeros, (52, 44), bool)),
    ]
    mixed = [bad[0], *samples[:3], bad[1], *samples[3:6], bad[2]]
    found = train_localizer(mixed, PRESET)
    assert found.facts["problems"] == [
        "fire: the disk is on fire",
        "fire in the mask: the disk is on fire",
        "askew: its mask has shape (52, 44), the photo (44, 52)",
    ]
    assert found.facts["photos"] == {"used": 6, "given": 9}
    counts = train_localizer(samples[:6], PRESET).facts["banks"][0]
    assert found.facts["banks"][0]["target_patches"] == counts["target_patches"]


def test_too_few_patches():
    with pytest.raises(ValueError, match="only 0 patches with a seam were found, but 4 filters"):
        train_localizer([], PRESET)
    authentic = [sample(seed, authentic=True) for seed in range(3)]
    with pytest.raises(ValueError, match=r"only 0 patches with a seam .* give more"):
        train_localizer(authentic, PRESET)
    wide = np.zeros((40, 60), dtype=bool)
    wide[:, 30:] = True
    flat = Sample("flat", False, partial(np.zeros, (40, 60, 3), np.uint8), partial(np.copy, wide))
    with pytest.raises(ValueError, match="only 0 patches with an authentic edge"):
        train_localizer([flat], PRESET)


def grey_pixels(seed, shape):
    return np.repeat(pixels_of(seed, shape)[..., :1], 3, axis=2)


def grey_sample(seed, shape=(44, 52)):
    return Sample(
        f"grey {seed}", False, partial(grey_pixels, seed, shape), partial(mask_of, seed, shape)
    )


def test_grey_photos_train_a_third_as_many_directions():
    """Red, green and blue are the same: of 48 numbers in a patch of 4 x 4, 16 are free."""
    grey = [grey_sample(seed) for seed in range(8)]
    small = replace(BANK, size=4)
    found = train_localizer(grey, replace(PRESET, banks=(replace(small, n_filters=16),)))
    counts = found.facts["banks"][0]
    assert counts["overlap_dimensions"] == 16
    assert counts["subspace_overlap"] == pytest.approx(1.0)
    boundary = found.localize(grey[0].image).boundary
    assert np.isfinite(boundary).all()
    assert boundary.any()
    for n in (17, 48):
        with pytest.raises(ValueError, match="vary in only 16 independent directions") as caught:
            train_localizer(grey, replace(PRESET, banks=(replace(small, n_filters=n),)))
        assert f"too few for {n} filters; give more varied photos, in colour" in str(caught.value)


def test_few_patches_are_no_trouble_for_the_overlap():
    """Less patches than the 50 dimensions in which the paper compares."""
    mask = np.zeros((12, 60), dtype=bool)
    mask[:, 30:] = True
    photo = picture(3, (12, 60))[0]
    one = Sample("one", False, partial(np.copy, photo), partial(np.copy, mask))
    rules = replace(EVERYTHING, per_photo=20)
    found = train_localizer([one], replace(PRESET, rules=rules))
    assert found.facts["banks"][0]["overlap_dimensions"] <= 19


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "best"}, "preset='best' must be one of"),
        ({"jobs": 0}, "jobs=0 must be at least 1"),
    ],
)
def test_bad_arguments(samples, options, message):
    with pytest.raises(ValueError, match=message):
        train_localizer(samples, **{"preset": PRESET, **options})


# -- going on after a stop -----------------------------------------------------------------


MIXED = (*SAMPLES[:2], Sample("fire", False, broken, broken), *SAMPLES[2:11])


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    """The file of a training that nothing has stopped."""
    with pytest.MonkeyPatch.context() as patch:
        use_small_groups(patch)
        found = train_localizer(list(MIXED), TWO, seed=3)
    return content(found, tmp_path_factory.mktemp("never") / "model")


@pytest.mark.parametrize("stops", [(3,), (5, 10)])
def test_a_training_that_was_stopped_goes_on(never_stopped, tmp_path, often, stops):
    mixed = list(MIXED)
    folder = tmp_path / "checkpoint"
    for n in stops:
        with pytest.raises(Stop):
            train_localizer(
                mixed, TWO, seed=3, checkpoint=folder, progress=stop_after(n, of=len(mixed))
            )
        assert folder.is_dir() == (n > 4)
    shares = []
    options = {"seed": 3, "checkpoint": folder, "save_to": tmp_path / "model"}
    found = train_localizer(mixed, TWO, **options, progress=shares.append, jobs=3)
    assert shares[0] == (n // 4 * 4 + 1) / len(mixed)  # what was done is not done again
    assert content(found, tmp_path / "found") == never_stopped
    assert not folder.exists()


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stopped") / "checkpoint"
    stop_training(folder, progress=stop_after(9, of=12))
    return folder


@pytest.fixture
def stopped(stopped_once, tmp_path, often):
    """The folder of a training that was stopped after 8 photos or one more: a copy of it."""
    return Path(shutil.copytree(stopped_once, tmp_path / "checkpoint"))


def test_another_training_does_not_go_on_from_there(samples, stopped):
    others = [sample(seed) for seed in range(40, 52)]
    renamed = [replace(o, name=s.name) for o, s in zip(others, samples, strict=True)]
    before = {file.name: file.read_bytes() for file in stopped.iterdir()}
    for arguments in (
        {"seed": 1},
        {"preset": PRESET},
        {"preset": replace(TWO, smoothing=2.0)},
        {"samples": samples[:10]},
        {"samples": samples[::-1]},
        {"samples": others},
        {"samples": renamed},
    ):
        options = {"samples": samples, "preset": TWO, **arguments}
        with pytest.raises(ValueError, match="belongs to another training") as caught:
            train_localizer(options.pop("samples"), **options, checkpoint=stopped)
        assert f"checkpoint {stopped} can't be used" in str(caught.value)
        assert "remove it to start anew" in str(caught.value)
    assert {file.name: file.read_bytes() for file in stopped.iterdir()} == before


def test_splices_of_other_photos_are_another_training(tmp_path, often):
    """All splices are named alike."""
    from cpcapp.splicing.photo.samples import SourcePhoto

    first, second = (
        training_splices(
            [SourcePhoto(f"{i}", partial(pixels_of, seed + i, (44, 52))) for i in range(4)], 8
        )
        for seed in (0, 50)
    )
    assert [s.name for s in first] == [s.name for s in second]
    with pytest.raises(Stop):
        train_localizer(first, PRESET, checkpoint=tmp_path, progress=stop_after(5, of=8))
    with pytest.raises(ValueError, match="belongs to another training"):
        train_localizer(second, PRESET, checkpoint=tmp_path)


def cut_off(file):
    file.write_bytes(file.read_bytes()[:-100])


def flipped(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def change_state(**changes):
    return lambda file: file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("moments-8-1-0.safetensors", d) for d in (cut_off, flipped, lambda f: f.unlink())),
        *(("state.json", lambda f, text=text: f.write_text(text)) for text in ("{", "[]", "{}")),
        ("state.json", change_state(next_photo=9)),
        ("state.json", change_state(kept=[[True, True]])),
        ("state.json", change_state(problems=[1])),
    ],
)
def test_a_damaged_checkpoint_is_not_used(samples, stopped, name, damage):
    damage(stopped / name)
    with pytest.raises(ValueError, match=r"can't be used: .*; remove it to start anew"):
        train_localizer(samples, TWO, checkpoint=stopped)


def test_only_the_last_state_is_kept(stopped):
    files = {f"moments-8-{bank}-{side}.safetensors" for bank in (0, 1) for side in (0, 1)}
    assert {file.name for file in stopped.iterdir()} == {"state.json", *files}


def test_a_checkpoint_leaves_other_files_alone(samples, stopped, tmp_path):
    (stopped / "notes.txt").write_text("mine")
    (stopped / "state.json.0123456789abcdef.part").touch()  # of a run that was killed
    train_localizer(samples, TWO, checkpoint=stopped, save_to=tmp_path / "model")
    assert [file.name for file in stopped.iterdir()] == ["notes.txt"]


# -- going on in calibration ---------------------------------------------------------------


@pytest.fixture
def known():
    return list(KNOWN)


@pytest.fixture
def small_parts(monkeypatch):
    use_small_parts(monkeypatch)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The file of a calibrated training that nothing has stopped."""
    with pytest.MonkeyPatch.context() as patch:
        use_small_groups(patch)
        found = train_localizer(list(SAMPLES), TWO, calibrate_on=list(KNOWN))
    return content(found, tmp_path_factory.mktemp("whole") / "model")


def count_reads(samples):
    """Return the same samples, and the list of names that reading them adds to."""
    names = []

    def read(one):
        names.append(one.name)
        return one.read_image()

    return [replace(one, read_image=partial(read, one)) for one in samples], names


def parts(folder):
    return sorted(
        int(file.stem.partition("-")[2]) for file in folder.glob("calibration-*.safetensors")
    )


@pytest.mark.parametrize("n", [0, 12, 44])
def test_a_calibration_that_was_stopped_goes_on(
    samples, known, whole, tmp_path, often, small_parts, monkeypatch, n
):
    """After the last photo of the training as well, and whatever is done is not done again."""
    folder = tmp_path / "checkpoint"
    monkeypatch.setattr(train, "_PHOTOS_TO_HASH", 2)

    def stop(share):
        if share >= n / len(known):
            raise Stop

    with pytest.raises(Stop):
        train_localizer(
            samples, TWO, calibrate_on=known, checkpoint=folder, calibration_progress=stop
        )
    done = parts(folder)[-1] if parts(folder) else 0
    assert done == {0: 0, 12: 10, 44: 40}[n]  # of the last part it was not kept yet
    assert json.loads((folder / "state.json").read_text())["next_photo"] == len(samples)

    again = Path(shutil.copytree(folder, tmp_path / "again"))
    monkeypatch.setattr(train, "_PHOTOS_FOR_THRESHOLD", 3)
    (counted, reads), (counted_known, reads_known) = map(count_reads, (samples, known))
    shares = []
    train_localizer(
        counted,
        TWO,
        calibrate_on=counted_known,
        checkpoint=again,
        progress=shares.append,
        jobs=3,
    )
    assert shares == []
    assert len(reads) == 2 + 3  # for the fingerprint, and to choose the threshold
    assert len(reads_known) == 2 + len(known) - done

    monkeypatch.undo()
    monkeypatch.setattr(train, "_PHOTOS_PER_UPDATE", 4)
    monkeypatch.setattr(train, "_PHOTOS_TO_HASH", 2)
    options = {"checkpoint": folder, "save_to": tmp_path / "model"}
    found = train_localizer(samples, TWO, calibrate_on=known, **options)
    assert content(found, tmp_path / "found") == whole
    assert not folder.exists()


@pytest.fixture(scope="module")
def calibrating_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrating") / "checkpoint"
    stop_training(folder, calibration_progress=stop_after(18, of=44), known=list(KNOWN))
    assert parts(folder) == [5, 10, 15]
    return folder


@pytest.fixture
def calibrating(calibrating_once, tmp_path, often, small_parts):
    """The folder of a training that was stopped in the middle of calibration: a copy of it."""
    return Path(shutil.copytree(calibrating_once, tmp_path / "calibrating"))


def test_parts_of_another_calibration_are_never_mixed_in(samples, known, calibrating, tmp_path):
    """As they are left if the state is gone, but not they."""
    (calibrating / "state.json").unlink()
    options = {"seed": 5, "calibrate_on": known}
    expected = content(train_localizer(samples, TWO, **options), tmp_path / "expected")
    options |= {"checkpoint": calibrating, "save_to": tmp_path / "model"}
    found = train_localizer(samples, TWO, **options)
    assert content(found, tmp_path / "found") == expected
    assert not calibrating.exists()


def test_other_photos_to_calibrate_by_are_another_training(samples, known, calibrating):
    for other in (None, known[:-1], known[::-1]):
        with pytest.raises(ValueError, match="belongs to another training"):
            train_localizer(samples, TWO, calibrate_on=other, checkpoint=calibrating)
    assert parts(calibrating) == [5, 10, 15]


def test_a_part_that_is_missing_is_measured_again(samples, known, calibrating, whole, tmp_path):
    (calibrating / "calibration-00000010.safetensors").unlink()
    found = train_localizer(samples, TWO, calibrate_on=known, checkpoint=calibrating)
    assert content(found, tmp_path / "found") == whole


def test_a_damaged_part_is_not_used(samples, known, calibrating):
    cut_off(calibrating / "calibration-00000010.safetensors")
    with pytest.raises(ValueError, match=r"calibration-00000010.\w+ is damaged; remove it to"):
        train_localizer(samples, TWO, calibrate_on=known, checkpoint=calibrating)


def test_the_model_is_written_before_the_checkpoint_is_removed(
    samples, calibrating, known, tmp_path
):
    options = {"calibrate_on": known, "checkpoint": calibrating}
    with pytest.raises(OSError, match="No such file"):
        train_localizer(samples, TWO, **options, save_to=tmp_path / "none" / "model")
    assert parts(calibrating)[-1] == len(known)
    model = train_localizer(samples, TWO, **options, save_to=tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == content(model, tmp_path / "same")
    assert not calibrating.exists()


def test_without_a_model_on_disk_the_checkpoint_stays(samples, stopped, tmp_path):
    """A caller who can't save the model would lose the training otherwise."""
    model = train_localizer(samples, TWO, checkpoint=stopped)
    assert json.loads((stopped / "state.json").read_text())["next_photo"] == len(samples)
    shares = []
    again = train_localizer(samples, TWO, checkpoint=stopped, progress=shares.append)
    assert shares == []
    assert content(again, tmp_path / "again") == content(model, tmp_path / "model")


def test_starting_anew(samples, stopped, tmp_path):
    shares = []
    options = {"checkpoint": stopped, "save_to": tmp_path / "model", "progress": shares.append}
    train_localizer(samples, TWO, **options, restart=True)
    assert len(shares) == len(samples)
    assert not stopped.exists()


# -- the whole thing on real photos --------------------------------------------------------


def test_a_small_model_beats_the_edges_on_photos_it_has_not_seen(data_folder):
    photos = photos_from([data_folder / "ucid"])
    options = replace(SpliceOptions.hard(), size=192)
    seen = SpliceMaker(photos[::2], options, seed=1).samples(30)
    unseen = SpliceMaker(photos[1::2], options, seed=2).samples(10)
    bank = BankOptions(size=8, n_filters=30)
    model = train_localizer(seen, Preset("small", (bank,), rules=PatchRules(per_photo=400)))
    found = evaluate(
        unseen, {"ours": model.localize}, controls={"edges": edge_strength_map}, protocols=["edge"]
    )
    assert found.problems == ()
    ours, edges = (found.scores[name]["edge"].mean for name in ("ours", "edges"))
    assert ours.mcc > edges.mcc + 0.1
    assert ours.f1 > edges.f1 + 0.1
