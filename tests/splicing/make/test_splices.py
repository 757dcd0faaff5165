"""Splices against what an independent look at host, donor and recipe says they must be."""

from __future__ import annotations

import io
import json
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from operator import attrgetter

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage

from cpcapp.splicing.datasets.sources import bsds_sources
from cpcapp.splicing.make.cuts import SHAPES
from cpcapp.splicing.make.splices import SpliceMaker, SpliceOptions, make_splice, split_readable
from cpcapp.splicing.photo.jpeg import recompress
from cpcapp.splicing.photo.samples import SourcePhoto, photos_from
from helpers import examples


def options(**changes):
    """Plain cut and paste, but for the changes."""
    return replace(SpliceOptions.hard(), **changes)


def noise(height, width, seed, low=0, high=256):
    return np.random.default_rng(seed).integers(low, high, (height, width, 3), dtype=np.uint8)


def waves(height, width, phase=0.0):
    """A smooth picture, which resampling does not change much."""
    y, x = np.mgrid[:height, :width]
    channels = [
        128 + 100 * np.sin(phase + x / a + y / b) for a, b in ((19, 23), (31, 17), (41, 29))
    ]
    return np.stack(channels, axis=2).round().astype(np.uint8)


def discs(height=160, width=200):
    """Labels: a ground of 1 and three discs, each without its upper left, that touch nothing."""
    labels = np.ones((height, width), dtype=np.uint16)
    for number, (x, y, r) in enumerate(((50, 50, 28), (130, 60, 35), (80, 120, 25)), start=2):
        cv2.circle(labels, (x, y), r, number, -1)
        labels[y - r : y, x - r : x] = 1
    return labels


def donor_positions(splice):
    """Return the donor's row and column for each pixel of the splice, by its recipe."""
    y, x = np.indices(splice.mask.shape)
    column, row = np.einsum("ij,jyx->iyx", splice.recipe["donor_map"], [x, y, np.ones_like(x)])
    return row, column


def on_border(mask):
    return mask[0].any() or mask[-1].any() or mask[:, 0].any() or mask[:, -1].any()


@pytest.mark.parametrize("seed", range(12))
def test_untouched_pixels_are_copied_exactly_and_the_host_is_left_alone(seed):
    host, donor = noise(90, 130, 1), noise(110, 120, 2)
    before = host.copy(), donor.copy()
    splice = make_splice(host, donor, np.random.default_rng(seed), options(flip_share=0.5))
    row, column = (p[splice.mask].astype(int) for p in donor_positions(splice))
    np.testing.assert_array_equal(splice.image[splice.mask], donor[row, column])
    np.testing.assert_array_equal(splice.image[~splice.mask], host[~splice.mask])
    assert splice.recipe["donor_map"][0][0] == (-1 if splice.recipe["flip"] else 1)
    np.testing.assert_array_equal(host, before[0])
    np.testing.assert_array_equal(donor, before[1])


@pytest.mark.parametrize("seed", range(8))
def test_scaled_and_turned_pixels_come_from_where_the_recipe_says(seed):
    host, donor = waves(120, 160), waves(200, 220, phase=2.0)
    drawn = options(untouched_share=0.0, flip_share=0.5, scale=(0.6, 1.8), rotate=40.0)
    splice = make_splice(host, donor, np.random.default_rng(seed), drawn)
    assert splice.recipe["scale"] != 1.0
    assert splice.recipe["rotate"] != 0.0
    steps = np.array(splice.recipe["donor_map"])[:, :2]
    assert abs(np.linalg.det(steps)) ** -0.5 == pytest.approx(splice.recipe["scale"], rel=1e-3)
    # Where the donor's downward step points: turned clockwise, it goes to the left.
    left, down = -np.linalg.inv(steps)[0, 1], np.linalg.inv(steps)[1, 1]
    assert np.rad2deg(np.arctan2(left, down)) == pytest.approx(splice.recipe["rotate"], abs=0.01)
    row, column = donor_positions(splice)
    for channel in range(3):
        expected = ndimage.map_coordinates(
            donor[..., channel].astype(float), [row, column], order=3, mode="mirror"
        )
        error = np.abs(splice.image[..., channel] - expected)[splice.mask]
        # Shrinking smooths the waves a little; elsewhere only rounding is left.
        assert error.max() < (6 if splice.recipe["scale"] < 1 else 2.5)
    np.testing.assert_array_equal(splice.image[~splice.mask], host[~splice.mask])


@examples(80)
@given(
    host=st.tuples(st.integers(32, 150), st.integers(32, 150)),
    donor=st.tuples(st.integers(32, 150), st.integers(32, 150)),
    seed=st.integers(0, 1000),
    low=st.floats(0.016, 0.5),
    span=st.floats(1.1, 4.0),
    border=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_whatever_the_sizes_the_area_is_within_the_limits(host, donor, seed, low, span, border):
    area = (low, min(0.9, low * span))
    drawn = SpliceOptions(area=area, border_share=border, jpeg_share=0.2)
    labels = np.arange(donor[0] * donor[1]).reshape(donor) // (donor[1] * 8)
    splice = make_splice(
        noise(*host, 1), noise(*donor, 2), np.random.default_rng(seed), drawn, segments=[labels]
    )
    assert splice.image.shape == (*host, 3)
    assert splice.image.dtype == np.uint8
    assert splice.mask.shape == splice.alpha.shape == host
    assert area[0] <= splice.mask.mean() <= area[1]
    np.testing.assert_array_equal(splice.mask, splice.alpha >= 0.5)
    assert 0.0 <= splice.alpha.min() <= splice.alpha.max() <= 1.0
    assert splice.recipe["area"] == pytest.approx(splice.mask.mean(), abs=1e-5)
    assert json.loads(json.dumps(splice.recipe)) == splice.recipe


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_border_is_reached_when_asked_for(share):
    host, donor = noise(150, 200, 1), noise(170, 190, 2)
    for seed in range(15):
        drawn = SpliceOptions(border_share=share, area=(0.03, 0.2))
        splice = make_splice(
            host, donor, np.random.default_rng(seed), drawn, segments=[discs(170, 190)]
        )
        assert on_border(splice.mask) == splice.recipe["reaches_border"] == bool(share)


def test_a_donor_too_small_for_the_area_is_enlarged():
    host, donor = waves(400, 500), waves(32, 40, phase=1.0)
    splice = make_splice(host, donor, np.random.default_rng(0), options(area=(0.2, 0.3)))
    assert 0.2 <= splice.mask.mean() <= 0.3
    assert splice.recipe["shape"] == "round"
    assert splice.recipe["scale"] > 3
    row, column = (p[splice.mask] for p in donor_positions(splice))
    assert row.min() >= -1e-3
    assert row.max() <= 31.001
    assert column.min() >= -1e-3
    assert column.max() <= 39.001


def test_a_thing_keeps_its_outline():
    labels = discs()
    host, donor = noise(160, 200, 1), noise(160, 200, 2)
    seen = set()
    for seed in range(12):
        splice = make_splice(
            host,
            donor,
            np.random.default_rng(seed),
            options(segments_share=1.0, border_share=0.0, flip_share=0.5),
            segments=[labels],
        )
        assert splice.recipe["shape"] == "segments"
        assert splice.recipe["segmentation"] == 0
        thing = np.isin(labels, splice.recipe["segments"])
        row, column = (p.astype(int) for p in donor_positions(splice))
        assert splice.mask.sum() == thing.sum()
        assert thing[row[splice.mask], column[splice.mask]].all()
        seen.update(splice.recipe["segments"])
    assert seen == {2, 3, 4}


def test_a_thing_keeps_its_outline_when_scaled_and_turned():
    labels = discs()
    for seed in range(8):
        splice = make_splice(
            noise(200, 240, 1),
            noise(160, 200, 2),
            np.random.default_rng(seed),
            options(
                segments_share=1.0,
                border_share=0.0,
                untouched_share=0.0,
                flip_share=0.5,
                hard_share=float(seed % 2),
                feather=(1.0, 1.0),
            ),
            segments=[labels],
        )
        assert splice.recipe["shape"] == "segments"
        thing = np.isin(labels, splice.recipe["segments"])
        row, column = np.rint(donor_positions(splice)).astype(int)
        inside = (row >= 0) & (row < 160) & (column >= 0) & (column < 200)
        expected = inside & thing[np.clip(row, 0, 159), np.clip(column, 0, 199)]
        overlap = (expected & splice.mask).sum() / (expected | splice.mask).sum()
        assert overlap > 0.95


@pytest.mark.parametrize("flip", [False, True])
def test_a_thing_that_the_photo_cut_off_comes_to_the_same_border(flip):
    labels = np.ones((160, 200), dtype=np.uint16)
    labels[60:110, :60] = 2  # reaches the left
    photos = noise(150, 220, 1), noise(160, 200, 2)
    for seed in range(6):
        drawn = options(
            segments_share=1.0, border_share=1.0, untouched_share=0.5, flip_share=float(flip)
        )
        splice = make_splice(*photos, np.random.default_rng(seed), drawn, segments=[labels])
        assert splice.recipe["segments"] == [2]
        assert splice.recipe["rotate"] == 0.0
        assert splice.mask[:, -1 if flip else 0].any()
        assert not splice.mask[:, 0 if flip else -1].any()
        assert not splice.mask[[0, -1]].any()
        inner = replace(drawn, border_share=0.0)
        splice = make_splice(*photos, np.random.default_rng(seed), inner, segments=[labels])
        assert splice.recipe["shape"] != "segments"
        assert not on_border(splice.mask)


def test_fine_detail_is_averaged_when_shrunk():
    donor = noise(300, 300, 2)
    drawn = options(untouched_share=0.0, scale=(0.5, 0.5))
    for seed in range(4):
        splice = make_splice(noise(100, 120, 1), donor, np.random.default_rng(seed), drawn)
        assert splice.image[splice.mask].std() < 0.45 * donor.std()


def test_a_soft_edge_does_not_fade_at_the_border_of_the_photo():
    host, donor = np.full((150, 200, 3), 40, np.uint8), np.full((150, 200, 3), 240, np.uint8)
    drawn = options(hard_share=0.0, feather=(3.0, 3.0), border_share=1.0, area=(0.2, 0.3))
    for seed in range(3):
        splice = make_splice(host, donor, np.random.default_rng(seed), drawn)
        depth = ndimage.distance_transform_edt(np.pad(splice.mask, 20, mode="edge"))[20:-20, 20:-20]
        depth[1:-1, 1:-1] = 0
        assert (depth > 15).any()
        assert (splice.image[depth > 15] == 240).all()


def test_feathering_blends_more_the_larger_it_is():
    host, donor = np.full((150, 200, 3), 40, np.uint8), np.full((150, 200, 3), 240, np.uint8)
    widths = []
    for sigma in (1.0, 4.0):
        splice = make_splice(
            host,
            donor,
            np.random.default_rng(3),
            options(hard_share=0.0, feather=(sigma, sigma), border_share=0.0, area=(0.1, 0.3)),
        )
        np.testing.assert_allclose(
            splice.image[..., 0], 40 + 200 * splice.alpha.astype(float), atol=0.51
        )
        distance = ndimage.distance_transform_edt(~splice.mask)
        assert (splice.image[distance > 3 * sigma + 3] == 40).all()
        depth = ndimage.distance_transform_edt(splice.mask)
        assert (splice.alpha[depth > 5 * sigma + 3] == 1).all()
        blended = (splice.alpha > 0) & (splice.alpha < 1)
        outline = splice.mask & ~ndimage.binary_erosion(splice.mask)
        widths.append(blended.sum() / outline.sum())
    assert widths[0] > 3
    assert widths[1] > 2.5 * widths[0]


def test_colours_are_drawn_towards_the_place():
    host = noise(150, 200, 1, 20, 80) + np.array([0, 60, 120], np.uint8)
    donor = noise(150, 200, 2, 130, 220)
    distances = []
    for strength in (0.0, 0.5, 1.0):
        splice = make_splice(
            host,
            donor,
            np.random.default_rng(5),
            options(colour_match_share=1.0, colour_match=(strength, strength)),
        )
        np.testing.assert_array_equal(splice.image[~splice.mask], host[~splice.mask])
        means = splice.image[splice.mask].mean(axis=0), host[splice.mask].mean(axis=0)
        distances.append(np.linalg.norm(means[0] - means[1]))
    assert distances[1] < 0.7 * distances[0]
    assert distances[2] < 0.1 * distances[0]


def test_the_jpeg_file_holds_the_image_at_that_quality():
    splice = make_splice(
        waves(90, 120), noise(90, 120, 1), np.random.default_rng(0),
        options(jpeg_share=1.0, jpeg=(70, 70)),
    )  # fmt: skip
    assert splice.recipe["jpeg"] == 70
    file = Image.open(io.BytesIO(splice.jpeg))
    assert file.format == "JPEG"
    np.testing.assert_array_equal(np.asarray(file), splice.image)
    reference = io.BytesIO()
    Image.fromarray(splice.image).save(reference, "JPEG", quality=70)
    assert file.quantization == Image.open(reference).quantization


def test_earlier_compression_of_host_and_donor():
    host, donor = noise(96, 128, 1), noise(96, 128, 2)
    splice = make_splice(
        host, donor, np.random.default_rng(0),
        options(host_jpeg_share=1.0, host_jpeg=(50, 50), donor_jpeg_share=1.0, donor_jpeg=(30, 30)),
    )  # fmt: skip
    assert (splice.recipe["host_jpeg"], splice.recipe["donor_jpeg"]) == (50, 30)
    assert splice.jpeg is None
    np.testing.assert_array_equal(splice.image[~splice.mask], recompress(host, 50)[~splice.mask])
    row, column = (p[splice.mask].astype(int) for p in donor_positions(splice))
    np.testing.assert_array_equal(splice.image[splice.mask], recompress(donor, 30)[row, column])


def test_large_photos_are_cropped_or_shrunk():
    host = noise(300, 400, 1)
    host[..., 0] = np.arange(400) // 2
    kinds = set()
    for seed in range(10):
        splice = make_splice(
            host, noise(500, 200, 2), np.random.default_rng(seed), options(size=120)
        )
        assert splice.image.shape == (90, 120, 3)
        (kind, numbers), = splice.recipe["host_fit"].items()  # fmt: skip
        kinds.add(kind)
        if kind == "crop":
            top, left, height, width = numbers
            expected = host[top : top + height, left : left + width]
            np.testing.assert_array_equal(splice.image[~splice.mask], expected[~splice.mask])
        else:
            columns = np.where(splice.mask, -1, splice.image[..., 0].astype(int)).max(axis=0)
            known = columns >= 0
            np.testing.assert_allclose(columns[known], (np.arange(120) * 200 / 120)[known], atol=2)
    assert kinds == {"crop", "shrink"}
    strip = make_splice(noise(40, 900, 1), host, np.random.default_rng(0), options(size=120))
    assert strip.image.shape == (32, 120, 3)


def test_sixteen_bits_give_the_same_splice():
    host, donor = noise(80, 90, 1), noise(80, 90, 2)
    eight = make_splice(host, donor, np.random.default_rng(0))
    sixteen = make_splice(
        host.astype(np.uint16) * 257, donor.astype(np.uint16) * 257, np.random.default_rng(0)
    )
    np.testing.assert_array_equal(eight.image, sixteen.image)


def test_the_defaults_are_varied():
    host, donor = noise(120, 160, 1), noise(150, 160, 2)
    recipes = [
        make_splice(host, donor, np.random.default_rng(seed), segments=[discs(150, 160)]).recipe
        for seed in range(120)
    ]
    assert {r["shape"] for r in recipes} >= {*SHAPES, "segments"}
    for name, nothing in (
        ("feather", 0.0),
        ("colour_match", 0.0),
        ("jpeg", None),
        ("host_jpeg", None),
        ("donor_jpeg", None),
        ("interpolation", None),
        ("flip", False),
        ("reaches_border", False),
    ):
        share = np.mean([r[name] != nothing for r in recipes])
        assert 0.1 < share < 0.9, name


@pytest.mark.parametrize("kind", SHAPES)
def test_shapes_have_the_area_and_are_all_different(kind, rng):
    shapes = [SHAPES[kind](3000, rng) for _ in range(10)]
    for shape in shapes:
        if kind != "noise":  # of which the largest piece is kept
            assert shape.sum() == pytest.approx(3000, rel=0.08)
        assert 300 < shape.sum() < 3300
        assert shape[0].any() and shape[-1].any() and shape[:, 0].any() and shape[:, -1].any()
        assert ndimage.label(shape, np.ones((3, 3)))[1] == 1
    assert len({shape.shape for shape in shapes}) > 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"area": (0.4, 0.1)}, r"area=\(0.4, 0.1\) must be two numbers from 0.0005 to 0.9"),
        ({"area": 0.4}, r"area=0.4 must be two numbers"),
        ({"area": (0.1, 0.1)}, "leaves no room to draw from"),
        ({"scale": (0, 1)}, r"scale=\(0, 1\) must be two numbers from 0.05"),
        ({"feather": (-1, 1)}, "feather="),
        ({"feather": (float("nan"), 1)}, "feather="),
        ({"jpeg": (0, 50)}, r"jpeg=\(0, 50\) must be two numbers from 1 to 100"),
        ({"colour_match": (0, 2)}, "colour_match="),
        ({"hard_share": 1.5}, "hard_share=1.5 must be from 0 to 1"),
        ({"rotate": 200}, "rotate=200 must be from 0 to 180"),
        ({"size": 8}, "size=8 must be at least 32 pixels, or None"),
        ({"shapes": ("star",)}, "must be one or more of outline, noise"),
        ({"shapes": ()}, "must be one or more of outline, noise"),
    ],
)
def test_options_out_of_range(changes, message):
    with pytest.raises(ValueError, match=message):
        SpliceOptions(**changes)


def test_photos_that_can_not_be_used(rng):
    photo = noise(40, 50, 0)
    with pytest.raises(ValueError, match=r"host of shape \(40, 50\) and type uint8 must be an RGB"):
        make_splice(photo[..., 0], photo, rng)
    with pytest.raises(ValueError, match=r"donor of shape .* and type float64 must be an RGB"):
        make_splice(photo, photo / 255, rng)
    with pytest.raises(ValueError, match="donor of 20x40 pixels is too small: at least 32x32"):
        make_splice(photo, photo[:, :20], rng)
    with pytest.raises(ValueError, match=r"must hold numbers from 0 on in the donor's shape"):
        make_splice(photo, photo, rng, segments=[np.zeros((3, 3), int)])
    with pytest.raises(ValueError, match="of a host of 50x40 pixels is less than 16 pixels"):
        make_splice(photo, photo, rng, SpliceOptions(area=(0.001, 0.1)))
    with pytest.raises(ValueError, match="quality=0 must be from 1 to 100"):
        recompress(photo, 0)


def sources(n=5):
    return [
        SourcePhoto(f"photo{i}", partial(noise, 60 + i, 80, i), partial(list, [discs(60 + i, 80)]))
        for i in range(n)
    ]


def digest(sample):
    return sample.name, sample.image.tobytes(), sample.mask.tobytes()


def test_a_splice_depends_on_the_seed_and_its_number_only():
    maker = SpliceMaker(sources(), seed=7)
    samples = maker.samples(6)
    there = [digest(sample) for sample in samples]
    assert [name for name, _, _ in there] == [f"splice{i:05d}" for i in range(6)]
    assert len(set(there)) == 6
    assert [digest(maker.sample(i)) for i in (5, 0)] == [there[5], there[0]]
    assert digest(SpliceMaker(sources(), seed=8).sample(0)) != there[0]
    splice = maker.make(2)
    assert (splice.image.tobytes(), splice.mask.tobytes()) == there[2][1:]


def test_another_process_makes_the_same(tmp_path):
    for i in range(3):
        cv2.imwrite(str(tmp_path / f"{i}.png"), noise(60, 80, i))
    samples = SpliceMaker(photos_from([tmp_path]), seed=3).samples(4)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        images = list(pool.map(attrgetter("image"), samples))
        masks = list(pool.map(attrgetter("mask"), samples))
    for sample, image, mask in zip(samples, images, masks, strict=True):
        np.testing.assert_array_equal(sample.image, image)
        np.testing.assert_array_equal(sample.mask, mask)


def test_samples_are_spliced_and_small_to_send():
    many = [
        SourcePhoto(f"a photo with quite a long name {i}", partial(noise, 60, 80, i))
        for i in range(500)
    ]
    maker = SpliceMaker(many)
    assert not any(sample.authentic for sample in maker.samples(3))
    assert len(pickle.dumps(maker.sample(0))) < 3000


def test_host_and_donor_differ_and_all_photos_take_part():
    maker = SpliceMaker(sources(3), seed=1)
    pairs = {(r["host"], r["donor"]) for r in (maker.make(i).recipe for i in range(40))}
    assert len(pairs) == 6
    assert all(host != donor for host, donor in pairs)
    assert len({maker.make(i).recipe["area"] for i in range(10)}) == 10


class Counted:
    def __init__(self, seed):
        self.seed, self.count = seed, 0

    def __call__(self):
        self.count += 1
        return noise(60, 80, self.seed)


def test_image_and_mask_are_made_in_one_go_and_can_be_written_to():
    readers = [Counted(0), Counted(1)]
    sample = SpliceMaker([SourcePhoto(str(i), r) for i, r in enumerate(readers)]).sample(0)
    assert [r.count for r in readers] == [0, 0]
    image, mask = sample.image, sample.mask
    assert [r.count for r in readers] == [1, 1]
    image[:], mask[:] = 0, True
    assert sample.image.any()
    assert not sample.mask.all()


def test_makers_that_can_not_work():
    with pytest.raises(ValueError, match="sources has 1 photos; at least two are needed"):
        SpliceMaker(sources(1))
    with pytest.raises(ValueError, match="sources has 2 photos named 'photo0'"):
        SpliceMaker(sources(1) * 2)


def test_photos_of_files_and_folders(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        cv2.imwrite(str(tmp_path / folder / "same.png"), noise(40, 50, len(folder)))
    cv2.imwrite(str(tmp_path / "b" / "other.png"), noise(40, 50, 3)[..., ::-1])
    (tmp_path / "b" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no photo")
    cv2.imwrite(str(tmp_path / "b" / "small.png"), noise(20, 50, 1))
    photos = {photo.name: photo for photo in photos_from([tmp_path / "a", tmp_path / "b"])}
    both = [(tmp_path / folder / "same.png").as_posix() for folder in ("a", "b")]
    assert set(photos) == {*both, "other.png", "broken.jpg", "small.png"}
    np.testing.assert_array_equal(photos["other.png"].read(), noise(40, 50, 3))
    shares = []
    good, problems = split_readable(list(photos.values()), jobs=2, progress=shares.append)
    assert {photo.name for photo in good} == {*both, "other.png"}
    assert [problem.name for problem in problems] == ["broken.jpg", "small.png"]
    assert str(tmp_path) not in str(problems[0])
    assert problems[1].reason == "of 50x20 pixels is too small: at least 32x32 are needed"
    assert shares == [0.2, 0.4, 0.6, 0.8, 1.0]


def test_real_things_of_bsds(data_folder):
    photos = bsds_sources(data_folder / "bsds500")
    assert len(photos) == 300
    assert {photo.name.split("/")[0] for photo in photos} == {"train", "val"}
    maker = SpliceMaker(photos, options(segments_share=1.0, border_share=0.0), seed=4)
    things = 0
    for i in range(12):
        splice = maker.make(i)
        donor, = (p for p in photos if p.name == splice.recipe["donor"])  # fmt: skip
        row, column = (p[splice.mask].astype(int) for p in donor_positions(splice))
        np.testing.assert_array_equal(splice.image[splice.mask], donor.read()[row, column])
        if splice.recipe["shape"] == "segments":
            things += 1
            labels = donor.segments()[splice.recipe["segmentation"]]
            own = np.isin(labels[row, column], splice.recipe["segments"])
            assert own.mean() > 0.6  # the rest are filled holes
    assert things >= 6
