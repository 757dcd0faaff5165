"""Maps of the localizer, pixel by pixel against the paper's steps written as plain loops."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import gaussian_filter

from cpcapp.splicing import (
    BankOptions,
    FilterBank,
    ImageError,
    Localization,
    Preset,
    SpliceLocalizer,
    load_model,
    read_image,
)
from cpcapp.splicing import localizer as localizer_module
from cpcapp.splicing import result as result_module
from cpcapp.splicing.decide import decide as decide_module
from cpcapp.splicing.decide import region as region_module
from cpcapp.splicing.decide import verdict as verdict_module
from cpcapp.splicing.decide.region import emphasise_border, find_region
from cpcapp.splicing.decide.verdict import cut_features, photo_features
from cpcapp.splicing.make.cameras import Camera
from cpcapp.splicing.measure import filters
from cpcapp.splicing.measure import measure as measure_module
from cpcapp.splicing.measure.edges import detect_edges
from cpcapp.splicing.measure.filters import image_planes
from cpcapp.splicing.measure.jpeg_traces import jpeg_block_traces
from cpcapp.splicing.measure.measure import filter_boundary, measure
from cpcapp.splicing.measure.mosaic import lattice_contrast
from helpers import examples
from trace_networks import network_localizer, textured, tiny_meter

PLAIN = BankOptions(size=6, stride=2, n_filters=5)
# Every way in which a bank can differ from the paper's.
VARIATIONS = {
    "as in the paper": PLAIN,
    "stride that does not divide": replace(PLAIN, stride=5),
    "every pixel": replace(PLAIN, size=4, stride=1),
    "patches side by side": replace(PLAIN, stride=6),
    "excess": replace(PLAIN, weights="excess"),
    "some variance": replace(PLAIN, variance_exponent=0.5),
    "all variance": replace(PLAIN, variance_exponent=1.0, stride=4),
    "gaussian": replace(PLAIN, window="gaussian"),
    "gaussian, odd": replace(PLAIN, size=7, window="gaussian", stride=3),
    "exponent": replace(PLAIN, exponent=0.3),
    "error level": replace(PLAIN, channels="error-level"),
    "everything": BankOptions(
        "error-level",
        8,
        3,
        7,
        weights="excess",
        variance_exponent=0.25,
        window="gaussian",
        exponent=0.6,
    ),
}


def bank_of(options, seed=0):
    """Filters that nobody trained; some of the eigenvalues are below 1."""
    rng = np.random.default_rng(seed)
    filters = rng.standard_normal((options.n_features, options.n_filters))
    eigenvalues = np.sort(rng.uniform(0.5, 6.0, options.n_filters))[::-1]
    return FilterBank(options, filters.astype(np.float32), eigenvalues)


def localizer_of(*options, **more):
    preset = Preset("mine", tuple(options), **more)
    return SpliceLocalizer(preset, [bank_of(o, i) for i, o in enumerate(options)], 0.5)


def scene(height, width, seed=0):
    """A noisy picture with things in it, so that there are edges."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 40, (height, width, 3)) + rng.integers(0, 120, 3)
    for _ in range(4):
        top, left = rng.integers(0, height), rng.integers(0, width)
        pixels[top : top + height // 2, left : left + width // 2] += rng.integers(0, 90, 3)
    return pixels.clip(0, 255).astype(np.uint8)


def unit(pixels):
    return pixels.astype(np.float32) / np.float32(255)


# -- the reference -------------------------------------------------------------------------


def corners(length, size, stride):
    found = list(range(0, length - size + 1, stride))
    return found if found[-1] == length - size else [*found, length - size]


def slow_map(bank, image):
    """Algorithm 2 of the paper and the average over overlaps, one patch at a time."""
    options, size = bank.options, bank.options.size
    planes = image_planes(image, options.channels).astype(np.float64)
    height, width = image.shape[:2]
    places = [
        (top, left)
        for top in corners(height, size, options.stride)
        for left in corners(width, size, options.stride)
    ]
    columns = []
    for top, left in places:
        z = [
            planes[channel, top + row, left + col]
            for channel in range(3)
            for row in range(size)
            for col in range(size)
        ]
        columns.append(np.array(z))
    mean = sum(columns) / len(columns)
    v = []
    for z in columns:
        y = [float(f @ (z - mean)) for f in bank.filters.T.astype(np.float64)]
        if options.weights == "none":
            power = sum(value**2 for value in y)
        else:
            power = sum(
                max(0.0, 1.0 - 1.0 / eigenvalue) * value**2
                for value, eigenvalue in zip(y, bank.eigenvalues, strict=True)
            )
        if options.variance_exponent:
            variance = sum((value - z.mean()) ** 2 for value in z) / len(z)
            power /= (variance + 1e-6) ** options.variance_exponent
        v.append(power)
    w = [value / max(v) for value in v]
    total, weight = np.zeros((height, width)), np.zeros((height, width))
    for (top, left), value in zip(places, w, strict=True):
        for row in range(size):
            for col in range(size):
                seen = 1.0
                if options.window == "gaussian":
                    off = (row - (size - 1) / 2) ** 2 + (col - (size - 1) / 2) ** 2
                    seen = math.exp(-off / (2 * (size / 5) ** 2))
                total[top + row, left + col] += seen * value
                weight[top + row, left + col] += seen
    return total / weight


def slow_boundary(localizer, image, edges):
    found = edges.astype(np.float64)
    for bank in localizer.banks:
        found = found * slow_map(bank, image) ** bank.options.exponent
    if localizer.preset.smoothing:
        found = gaussian_filter(found, localizer.preset.smoothing, mode="mirror", truncate=4.0)
        found = found / found.max()
    return found


@pytest.mark.parametrize("size", [(23, 31), (9, 40), (9, 8)])
@pytest.mark.parametrize("options", VARIATIONS.values(), ids=VARIATIONS)
def test_boundary_is_that_of_the_paper(options, size, rng):
    localizer = localizer_of(options)
    image, edges = unit(scene(*size)), rng.random(size, dtype=np.float32)
    expected = slow_boundary(localizer, image, edges)
    assert expected.max() > 0.3  # there is something to compare
    found = filter_boundary(image, edges, localizer).map
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.8, 2.0])
def test_boundary_of_two_banks_smoothed(smoothing, rng):
    options = replace(PLAIN, exponent=0.7), VARIATIONS["everything"]
    localizer = localizer_of(*options, smoothing=smoothing)
    image, edges = unit(scene(27, 21)), rng.random((27, 21), dtype=np.float32)
    found = filter_boundary(image, edges, localizer).map
    np.testing.assert_allclose(found, slow_boundary(localizer, image, edges), atol=5e-5)


def test_localize_multiplies_with_the_edges_of_the_photo():
    localizer, photo = localizer_of(PLAIN), scene(45, 37)
    found = localizer.localize(photo)
    np.testing.assert_array_equal(found.edges, detect_edges(photo))
    assert found.edges.max() > 0.2
    expected = slow_boundary(localizer, unit(photo), found.edges)
    np.testing.assert_allclose(found.boundary, expected, atol=2e-5)
    assert not found.boundary[found.edges == 0.0].any()


@pytest.mark.parametrize("together", [1, 10, 10**6])
def test_how_many_patches_are_cut_together_does_not_matter(together, monkeypatch):
    localizer, photo = localizer_of(PLAIN, VARIATIONS["everything"]), scene(45, 37)
    expected = localizer.localize(photo).boundary
    monkeypatch.setattr(filters, "_PATCHES_PER_BAND", together)
    np.testing.assert_allclose(localizer.localize(photo).boundary, expected, atol=1e-5)


# -- photos of all kinds -------------------------------------------------------------------


def check(found, shape):
    assert isinstance(found, Localization)
    for values in (found.boundary, found.edges):
        assert values.shape == shape
        assert values.dtype == np.float32
        assert np.isfinite(values).all()
        assert 0.0 <= values.min() <= values.max() <= 1.0
    assert found.seconds > 0.0


LOCALIZERS = {
    "plain": localizer_of(PLAIN),
    "smooth": localizer_of(PLAIN, VARIATIONS["everything"], smoothing=2.0),
    "mosaic contrast": localizer_of(PLAIN, mosaic_contrast=True),
}


@pytest.fixture(params=LOCALIZERS)
def localizer(request):
    return LOCALIZERS[request.param]


@examples(40)
@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    dtype=st.sampled_from([np.uint8, np.uint16]),
    depth=st.sampled_from([None, 1, 2, 3, 4]),
    kind=st.sampled_from(["noise", "flat", "two levels"]),
    name=st.sampled_from(sorted(LOCALIZERS)),
)
def test_any_photo_gives_a_map_of_its_size(height, width, dtype, depth, kind, name):
    rng = np.random.default_rng(height + 100 * width)
    most = {"noise": np.iinfo(dtype).max, "flat": 0, "two levels": 1}[kind]
    shape = (height, width) if depth is None else (height, width, depth)
    photo = rng.integers(0, most, shape, dtype=dtype, endpoint=True)
    check(LOCALIZERS[name].localize(photo), (height, width))


@pytest.mark.parametrize("colour", [(0, 0, 0), (255, 255, 255), (137, 137, 137), (200, 30, 77)])
def test_a_flat_photo_has_no_seam(localizer, colour):
    photo = np.full((50, 40, 3), colour, dtype=np.uint8)
    found = localizer.localize(photo)
    check(found, (50, 40))
    assert not found.boundary.any()


@pytest.mark.parametrize("repeats", [1, 4])
@pytest.mark.parametrize("variance_exponent", [0.0, 1.0])
def test_where_all_patches_are_the_same_none_stands_out(repeats, variance_exponent):
    tile = scene(8, 8)
    localizer = localizer_of(replace(PLAIN, size=8, stride=8, variance_exponent=variance_exponent))
    photo = np.tile(tile, (repeats, repeats, 1))
    everywhere = np.ones(photo.shape[:2], dtype=np.float32)
    assert not filter_boundary(unit(photo), everywhere, localizer).map.any()
    photo[:8, :8] = np.minimum(photo[:8, :8], 254) + np.uint8(1)
    found = filter_boundary(unit(photo), everywhere, localizer).map
    if repeats > 1:
        np.testing.assert_allclose(found[:8, :8], 1.0, rtol=1e-6)
        assert found[8:].max() < 0.1


@pytest.mark.parametrize("shape", [(1, 1), (1, 90), (90, 1), (5, 5), (5, 90), (7, 90)])
def test_smaller_than_a_patch(shape):
    localizer = LOCALIZERS["smooth"]  # of patches of 6 and of 8 pixels
    found = localizer.localize(scene(*shape))
    check(found, shape)
    assert not found.boundary.any()
    assert found.notes[-1] == "smaller than a patch of 8 pixels: no seam is seen"
    assert localizer.localize(scene(8, 90)).notes == ()


@pytest.mark.parametrize("shape", [(8, 4000), (4000, 8)])
def test_long_and_thin(localizer, shape):
    found = localizer.localize(scene(*shape))
    check(found, shape)
    assert found.boundary.any()


def test_longer_than_jpeg_can_hold():
    photo = scene(8, 65_600)
    check(LOCALIZERS["smooth"].localize(photo), (8, 65_600))


def test_sixteen_bits_are_eight_bits_with_more_digits(localizer):
    photo = scene(45, 37)
    expected = localizer.localize(photo).boundary
    finer = localizer.localize(photo.astype(np.uint16) * 257).boundary
    np.testing.assert_array_equal(finer, expected)


def test_a_grey_photo_is_one_of_three_equal_channels(localizer):
    grey = scene(45, 37)[..., 0]
    found = localizer.localize(grey)
    check(found, (45, 37))
    assert found.notes == ("grey",)
    same = localizer.localize(np.repeat(grey[..., None], 3, axis=2))
    np.testing.assert_array_equal(found.boundary, same.boundary)


def test_files_pil_images_and_arrays_are_the_same(localizer, tmp_path):
    photo = scene(45, 37)
    rgba = np.dstack([photo, np.full((45, 37), 90, dtype=np.uint8)])
    Image.fromarray(rgba).save(tmp_path / "photo.png")
    expected = localizer.localize(photo)
    for source in (
        tmp_path / "photo.png",
        str(tmp_path / "photo.png"),
        (tmp_path / "photo.png").read_bytes(),
        Image.fromarray(photo),
        rgba,
        read_image(photo),
    ):
        found = localizer.localize(source)
        np.testing.assert_array_equal(found.boundary, expected.boundary)
        np.testing.assert_array_equal(found.edges, expected.edges)
    assert any("transparency" in note for note in localizer.localize(rgba).notes)


def test_the_photo_is_left_alone(localizer):
    photo = scene(45, 37)
    before = photo.copy()
    localizer.localize(photo)
    np.testing.assert_array_equal(photo, before)


def test_files_that_are_no_photo(localizer, tmp_path):
    (tmp_path / "text.jpg").write_text("hello")
    for source in (tmp_path / "text.jpg", tmp_path / "none.jpg", b"", np.zeros((3, 4, 7))):
        with pytest.raises(ImageError):
            localizer.localize(source)


# -- putting one together ------------------------------------------------------------------


def test_what_a_localizer_says_of_itself():
    localizer = localizer_of(PLAIN, PLAIN)
    assert repr(localizer) == "SpliceLocalizer(preset='mine', banks=2)"
    assert (localizer.name, localizer.version, localizer.threshold) == ("mine", "unknown", 0.5)
    known = SpliceLocalizer(localizer.preset, localizer.banks, facts={"cpcapp": "1.2"})
    assert known.version == "1.2"


def test_parts_that_do_not_fit():
    bank = bank_of(PLAIN)
    with pytest.raises(ValueError, match=r"filters of shape \(108, 4\) with \(5,\) eigenvalues"):
        FilterBank(PLAIN, bank.filters[:, :4], bank.eigenvalues)
    with pytest.raises(ValueError, match=r"which want \(108, 5\)"):
        FilterBank(PLAIN, bank.filters, bank.eigenvalues[:4])
    for bad in (np.nan, np.inf):
        filters = bank.filters.copy()
        filters[3, 2] = bad
        with pytest.raises(ValueError, match="must be finite"):
            FilterBank(PLAIN, filters, bank.eigenvalues)
    preset = Preset("mine", (PLAIN,))
    with pytest.raises(ValueError, match="banks do not belong to the preset"):
        SpliceLocalizer(preset, [bank, bank], 0.5)
    with pytest.raises(ValueError, match="banks do not belong to the preset"):
        SpliceLocalizer(preset, [bank_of(replace(PLAIN, variance_exponent=1.0))], 0.5)
    for threshold in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"threshold=.* must be in"):
            SpliceLocalizer(preset, [bank], threshold)


# -- the mosaic's contrast, and what is measured once --------------------------------------


def two_cameras(rng, height=96, width=128):
    """A noisy scene whose right half was taken by a camera of another phase."""
    plain = np.full((height, width, 3), 120, dtype=np.uint8)
    ours, theirs = (Camera(p, shot_noise=1e-3).shoot(plain, rng) for p in ((0, 0), (1, 0)))
    return unit(np.where(np.arange(width)[:, None] < width // 2, ours, theirs))


@pytest.mark.parametrize("offset", [0.15, 2.0])
def test_the_boundary_holds_the_contrast_of_the_mosaic(offset, rng):
    """The product of filters times ``sqrt(contrast + offset)``, over its maximum."""
    image, edges = two_cameras(rng), rng.random((96, 128), dtype=np.float32)
    plain, with_mosaic = (
        filter_boundary(
            image, edges, localizer_of(PLAIN, mosaic_contrast=mosaic, mosaic_offset=offset)
        )
        for mosaic in (False, True)
    )
    contrast = lattice_contrast(image)
    assert contrast.max() > 10 * np.median(contrast[:, :20])
    product = plain.map * np.sqrt(contrast + offset)
    np.testing.assert_allclose(with_mosaic.map, product / product.max(), atol=1e-5)
    assert with_mosaic.scale == pytest.approx(plain.scale * product.max(), rel=1e-4)


def test_without_a_mosaic_the_filters_decide_alone(rng):
    """White and black show no mosaic: the offset keeps the map from being 0."""
    image = np.ones((64, 80, 3), dtype=np.float32)
    image[20:40, 30:60] = 0.0
    edges = rng.random((64, 80), dtype=np.float32)
    localizer = localizer_of(PLAIN, mosaic_contrast=True)
    assert lattice_contrast(image).max() < 1e-6
    plain = filter_boundary(image, edges, localizer_of(PLAIN))
    found = filter_boundary(image, edges, localizer)
    np.testing.assert_allclose(found.map, plain.map / plain.map.max(), atol=1e-5)
    assert found.map.max() == pytest.approx(1.0)


def test_the_mosaic_takes_part_in_the_boundary(rng):
    image, edges = two_cameras(rng), rng.random((96, 128), dtype=np.float32)
    localizer = localizer_of(PLAIN, mosaic_contrast=True)
    measured = measure(read_image(image), localizer)
    np.testing.assert_array_equal(
        filter_boundary(measured.image, edges, localizer, measured.mosaic).map,
        filter_boundary(measured.image, edges, localizer).map,
    )
    assert measured.learned is None  # of a model without a network
    for part, shows in ((image[:1], False), (image[:, :1], False), (image[:2, :2], True)):
        assert (measure(read_image(part), localizer).mosaic is not None) == shows


def count_calls(monkeypatch, owner, name):
    """Have every call of a function counted; it does what it did."""
    calls, before = [], getattr(owner, name)

    def counted(*args, **kwargs):
        calls.append(name)
        return before(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)
    return calls


def filters_localizer():
    """The shipped filters; what they have learned of scores is made up."""
    shipped, rng = load_model("filters"), np.random.default_rng(0)
    known = {"phones": rng.normal(size=30), "web": rng.normal(size=20)}
    weights = np.array([0.5, 1.0, -0.2, 0.1, 0.3, 0.2])
    calibration = replace(shipped.calibration, weights=weights, genuine=known)
    return SpliceLocalizer(shipped.preset, shipped.banks, calibration=calibration)


def photo_of_two_cameras(rng):
    return (255 * two_cameras(rng, 160, 200)).round().astype(np.uint8)


def test_a_photo_is_measured_once(monkeypatch, rng):
    """Each of these takes time that a user waits for."""
    measured = {
        "mosaic_trace": measure_module,
        "lattice_contrast": measure_module,
        "detect_edges": measure_module,
        "find_region": decide_module,
        "photo_features": decide_module,
        "estimate_quality": localizer_module,
        "mosaic_levels": verdict_module,
        "patch_strengths": verdict_module,
        "superpixels": region_module,
        "best_cut": region_module,
        "side_statistics": region_module,
    }
    calls = {name: count_calls(monkeypatch, owner, name) for name, owner in measured.items()}
    again = count_calls(monkeypatch, result_module, "detect_edges")
    found = filters_localizer().localize(photo_of_two_cameras(rng))
    assert {name: len(made) for name, made in calls.items()} == dict.fromkeys(calls, 1)
    assert found.mask.shape == found.edges.shape == (160, 200)
    assert again == []


def assert_put_together(found, measured, model):
    """Region, score and rank are those of the parts that `localize` is made of."""
    learned, preset = model.calibration, model.preset
    region = find_region(measured, learned.table, learned.traces, preset.regions)
    np.testing.assert_array_equal(found.region, region.map)
    assert found.region.max() > 0.5
    assert found.side_rule == region.side_rule is not None
    features = photo_features(measured, preset.verdict, preset.mosaic)
    features += cut_features(region.cut, region.n_pixels)
    assert found.score == pytest.approx(float(learned.weights @ features))
    assert found.rank == learned.rank(found.score)
    assert found.p_value == found.rank.p_value
    assert found.calibrated
    return region


def test_judging_adds_region_and_verdict_to_the_boundary(rng):
    model, photo = filters_localizer(), photo_of_two_cameras(rng)
    found, measured = model.localize(photo), measure(read_image(photo), model)
    region = assert_put_together(found, measured, model)
    boundary = measured.boundary.map
    expected = emphasise_border(boundary, region.inside, model.preset.regions)
    np.testing.assert_array_equal(found.boundary, expected)
    for p_value, mask in ((0.05, region.map > 0.5), (0.5, np.zeros((160, 200), bool))):
        shown = replace(found, rank=found.rank._replace(p_value=p_value))
        np.testing.assert_array_equal(shown.mask, mask)
    bare = SpliceLocalizer(model.preset, model.banks).localize(photo)
    np.testing.assert_array_equal(bare.boundary, boundary)
    assert (bare.region, bare.mask, bare.score, bare.rank, bare.p_value) == (None,) * 5
    assert bare.verdict == "can't tell (the model has not learned to judge)"


@pytest.mark.parametrize("part", ["weights", "genuine"])
def test_what_has_learned_too_little_finds_regions_and_judges_nothing(part, rng):
    whole = filters_localizer()
    missing = {"weights": None} if part == "weights" else {"genuine": {}}
    calibration = replace(whole.calibration, **missing)
    model = SpliceLocalizer(whole.preset, whole.banks, calibration=calibration)
    found = model.localize(photo_of_two_cameras(rng))
    assert found.region.max() > 0.5
    assert (found.score is None) == (part == "weights")
    assert (found.rank, found.calibrated) == (None, False)
    assert found.verdict == "can't tell (the model has not learned to judge)"


# -- with a network ---------------------------------------------------------------------------


def turned_jpeg(orientation, height=93, width=130):
    tags = Image.Exif()
    tags[274] = orientation
    file = io.BytesIO()
    Image.fromarray(textured(height, width)).save(file, "JPEG", quality=70, exif=tags)
    return file.getvalue()


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_the_network_is_told_what_the_file_says(orientation):
    model, read = network_localizer(), read_image(turned_jpeg(orientation))
    assert (read.jpeg_offset == (0, 0)) == (orientation == 1)
    found = measure(read, model).learned
    expected = tiny_meter().measure(read.pixels, read.jpeg_table, read.jpeg_offset)
    untold = tiny_meter().measure(read.pixels)
    blocks = jpeg_block_traces(read.pixels, read.jpeg_table, read.jpeg_offset)
    assert blocks[..., 1].any()
    np.testing.assert_array_equal(found.vectors, np.dstack([expected.vectors, blocks]))
    np.testing.assert_array_equal(found.seam, expected.seam)
    assert found.offset == read.jpeg_offset
    assert np.abs(found.seam - untold.seam).max() > 1e-3


@pytest.mark.parametrize("shape", [(93, 130), (90, 124)])
def test_judging_with_a_network_puts_all_parts_together(shape):
    model, photo = network_localizer(), textured(*shape)
    found, measured = model.localize(photo), measure(read_image(photo), model)
    assert_put_together(found, measured, model)
    # The seam is what the network saw, as it is; edges are looked for if somebody asks.
    expected = 1.0 / (1.0 + np.exp(-measured.learned.seam))
    np.testing.assert_allclose(found.boundary, expected, rtol=1e-5)
    assert (measured.edges, found.measured_edges) == (None, None)
    np.testing.assert_array_equal(found.edges, detect_edges(photo))
    # Sides that no contrast tells apart are cut otherwise: it takes part.
    blind = replace(model.calibration, traces=None)
    other = SpliceLocalizer(model.preset, (), calibration=blind, network=model.network)
    assert not np.array_equal(other.localize(photo).region, found.region)


def test_a_network_without_a_calibration_leaves_its_map():
    photo = textured(93, 130)
    found = network_localizer(calibrated=False).localize(photo)
    np.testing.assert_array_equal(found.boundary, network_localizer().localize(photo).boundary)
    assert (found.region, found.side_rule, found.score) == (None, None, None)


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (63, 200)])
def test_a_photo_that_is_too_small_for_a_region_is_measured_all_the_same(shape):
    found = network_localizer().localize(textured(*shape))
    assert found.boundary.shape == found.region.shape == shape
    assert not found.region.any()
    assert (found.side_rule, found.score, found.rank) == (None, None, None)
    assert found.verdict == "can't tell (too small)"


def test_edges_without_pixels_are_an_error():
    with pytest.raises(ValueError, match="edges are found in pixels, and there are none"):
        Localization(np.zeros((9, 9), np.float32)).edges  # noqa: B018


def test_progress_of_the_network_is_told():
    shares = []
    network_localizer().localize(textured(93, 130), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_network_preset_and_calibration_belong_together():
    model, filters = network_localizer(), filters_localizer()
    with pytest.raises(ValueError, match=r"network=None does not fit preset.network=True"):
        SpliceLocalizer(model.preset, ())
    with pytest.raises(ValueError, match=r"network=.* does not fit preset.network=False"):
        SpliceLocalizer(filters.preset, filters.banks, network=model.network)
    with pytest.raises(ValueError, match=r"calibration has 6 weights; it must have 5"):
        SpliceLocalizer(model.preset, (), calibration=filters.calibration, network=model.network)
    with pytest.raises(ValueError, match=r"calibration has 5 weights; it must have 6"):
        SpliceLocalizer(filters.preset, filters.banks, calibration=model.calibration)
