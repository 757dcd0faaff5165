"""Learned traces: tile by tile as the network would measure the whole photo."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.measure import network as learned_module
from cpcapp.splicing.measure.network import STAGES, LearnedTraces, TraceMeter, _pool, _tiles
from helpers import examples
from trace_networks import textured, tiny_meter, tiny_network

MAPS = ("seam", "region", "pasted", "vectors")


def assert_close(found, expected, tolerance):
    for name in MAPS:
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, atol=tolerance, rtol=tolerance, err_msg=name)


def tile_limits(pixels, blocks):
    return {"pixels": pixels, "near": blocks, "far": blocks, "seam": pixels}


def by_torch(network, image, table, offset=(0, 0)):
    """What the network itself measures in a photo that is filled up to whole blocks."""
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    height, width = image.shape[:2]
    top, left = (-offset[0] % 8, -offset[1] % 8)
    filled = np.pad(
        image,
        ((top, -(height + top) % 8), (left, -(width + left) % 8), (0, 0)),
        mode="edge",
    )
    steps = np.zeros(64) if table is None else table.ravel()
    with torch.no_grad():
        found = network(
            torch.from_numpy(filled.astype(np.float32).transpose(2, 0, 1).copy())[None],
            torch.from_numpy(steps.astype(np.float32))[None],
        )
    seam, region, pasted, traces = (part[0].numpy() for part in found)
    seam = seam[0, top : top + height, left : left + width]
    return LearnedTraces(seam, region[0], pasted[0], traces.transpose(1, 2, 0), offset)


@pytest.mark.parametrize("shape", [(64, 96), (61, 90), (83, 45), (9, 130)])
@pytest.mark.parametrize("known", [False, True])
def test_it_measures_what_the_network_does(shape, known):
    """Weights are kept in 16 bits, and so is what the seam is drawn with."""
    image = textured(*shape)
    table = 2.0 + np.arange(64).reshape(8, 8) if known else None
    expected = by_torch(tiny_network(), image, table)
    found = tiny_meter().measure(image, table)
    assert_close(found, expected, 1e-3)
    # There is something to be measured.
    assert min(expected.seam.std(), expected.vectors.std()) > 0.05
    assert found.region.shape == tuple(-(-side // 8) for side in shape)


def test_a_known_table_and_the_whole_photo_count():
    image, meter = textured(64, 96), tiny_meter()
    found, told = meter.measure(image), meter.measure(image, np.full((8, 8), 7.0))
    assert np.abs(told.vectors - found.vectors).max() > 0.01
    # Blocks are compared with parts of the photo that no tile would see.
    other = image.copy()
    other[:, 80:] = 0
    assert np.abs(meter.measure(other).vectors - found.vectors)[:, 0].max() > 1e-4


@given(
    height=st.integers(1, 90),
    width=st.integers(1, 90),
    pixel_tile=st.integers(1, 60),
    block_tile=st.integers(1, 60),
)
@examples(30)
def test_tiles_of_any_size_give_the_same(height, width, pixel_tile, block_tile):
    image, meter = textured(height, width), tiny_meter()
    whole = meter.measure(image)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned_module, "_TILES", tile_limits(pixel_tile, block_tile))
        assert_close(meter.measure(image), whole, 1e-5)


@given(
    rows=st.integers(1, 90),
    columns=st.integers(1, 90),
    limit=st.integers(1, 3000),
    margin=st.integers(0, 12),
    at_once=st.integers(1, 4),
)
def test_tiles_cover_all_blocks_once_and_see_what_they_may(rows, columns, limit, margin, at_once):
    tiles = _tiles((rows, columns), limit, margin, at_once)
    covered = np.zeros((rows, columns), int)
    places = np.arange(rows * columns).reshape(rows, columns)
    for tile in tiles:
        covered[tile.inner] += 1
        np.testing.assert_array_equal(places[tile.outer][tile.at], places[tile.inner])
        for inner, outer, length in zip(tile.inner, tile.outer, (rows, columns), strict=True):
            assert (outer.start, outer.stop) == (
                max(0, inner.start - margin),
                min(length, inner.stop + margin),
            )
    assert (covered == 1).all()
    # A tile of one block with its margin is the smallest.
    if (1 + 2 * margin) ** 2 <= limit:
        assert max(places[tile.outer].size for tile in tiles) <= limit


def test_photos_at_the_same_time_do_not_disturb_each_other(monkeypatch):
    monkeypatch.setattr(learned_module, "_TILES", tile_limits(30, 80_000))
    meter, photos = tiny_meter(), [textured(70, 90), textured(61, 50), textured(20, 130)]
    expected = [meter.measure(photo) for photo in photos]
    with ThreadPoolExecutor(3) as pool:
        for found, one in zip(pool.map(meter.measure, photos), expected, strict=True):
            assert_close(found, one, 0.0)


def test_the_margins_are_those_of_the_network():
    """A block less, and the tiles would show."""
    tiny = tiny_meter()
    assert tiny.facts["margins"] == {"pixels": 1, "near": 2, "far": 2, "seam": 1}
    image = textured(64, 64)
    whole = tiny.measure(image)
    for name in STAGES:
        margins = tiny.facts["margins"] | {name: tiny.facts["margins"][name] - 1}
        narrow = TraceMeter(tiny.stages, tiny.facts | {"margins": margins})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(learned_module, "_TILES", tile_limits(30, 30))
            found = narrow.measure(image)
        assert max(np.abs(getattr(found, n) - getattr(whole, n)).max() for n in MAPS) > 1e-4


@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    grid=st.integers(1, 13),
    seed=st.integers(0, 1000),
)
def test_parts_are_those_of_adaptive_pooling(rows, columns, grid, seed):
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    blocks = np.random.default_rng(seed).normal(size=(3, rows, columns)).astype(np.float32)
    expected = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(blocks)[None], grid)
    found = _pool(blocks, grid)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected[0].numpy(), atol=1e-5)


@pytest.mark.parametrize(("top", "left"), [(3, 5), (8, 1), (7, 0), (13, 10)])
def test_a_photo_that_was_cropped_has_the_blocks_of_the_whole(top, left):
    """If its first whole block is known; away from the border, where nothing is missing."""
    meter = tiny_meter(compares=False)
    image = textured(176, 184)
    whole = meter.measure(image)
    offset = (8 - top) % 8, (8 - left) % 8
    cropped = np.ascontiguousarray(image[top:, left:])
    found = meter.measure(cropped, offset=offset)
    assert found.offset == offset
    assert found.seam.shape == cropped.shape[:2]
    far = 8  # blocks: one of pixels, two near, two far, and one that the seam is drawn with
    for name in ("region", "pasted", "vectors"):
        mine = getattr(found, name)[far - top // 8 :, far - left // 8 :]
        np.testing.assert_allclose(mine, getattr(whole, name)[far:, far:], atol=1e-5)
    start = 8 * far
    np.testing.assert_allclose(
        found.seam[start - top :, start - left :], whole.seam[start:, start:], atol=1e-5
    )
    if offset != (0, 0):
        wrong = meter.measure(cropped).vectors[far:-far, far:-far]
        size = wrong.shape[:2]
        assert np.abs(wrong - whole.vectors[far:, far:][: size[0], : size[1]]).max() > 0.01


def test_progress_rises_to_1(monkeypatch):
    monkeypatch.setattr(learned_module, "_TILES", tile_limits(30, 40))
    shares = []
    tiny_meter().measure(textured(70, 90), progress=shares.append)
    assert len(shares) > 20
    assert 0.0 < shares[0] < 0.1
    assert all(later > before for before, later in itertools.pairwise(shares))
    assert shares[-1] == pytest.approx(1.0)
    assert max(shares) <= 1.0


def test_pixels_of_16_bits_give_the_same():
    image, meter = textured(50, 60), tiny_meter()
    assert_close(meter.measure(image.astype(np.uint16) * 257), meter.measure(image), 0.0)


def test_without_onnx_runtime_the_message_says_what_to_install(monkeypatch):
    facts = {"margins": dict.fromkeys(STAGES, 1), "grid": 3}
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    meter = TraceMeter(dict.fromkeys(STAGES, b""), facts)
    with pytest.raises(ImportError, match=r"pip install 'cpcapp\[splicing\]'") as caught:
        meter.measure(textured(20, 30))
    assert len(str(caught.value).splitlines()) == 1


def test_weights_are_kept_in_16_bits():
    onnx = pytest.importorskip("onnx", reason="needs the extra torch")
    kinds = set()
    for graph in tiny_meter().stages.values():
        for tensor in onnx.load_from_string(graph).graph.initializer:
            if np.prod(tensor.dims) >= 256:
                kinds.add(tensor.data_type)
    assert kinds == {onnx.TensorProto.FLOAT16}


def test_exporting_changes_no_network():
    network, known = tiny_network(), tiny_network()
    from cpcapp.splicing.networks.export import export_network

    tiny_meter()  # skips where something is missing
    network.train()
    meter = export_network(network, {"photos": 3})
    assert network.training
    assert meter.facts["training"] == {"photos": 3}
    for name, value in known.state_dict().items():
        assert (network.state_dict()[name] == value).all()


@pytest.mark.parametrize("offset", [(0, 0), (3, 6), (7, 1)])
def test_odds_of_blocks_become_probabilities_of_pixels(offset):
    """Linear from the middle of one block to the middle of the next, on the grid of the file."""
    height, width = 45, 70
    top, left = ((-start) % 8 for start in offset)
    rows, columns = -(-(height + top) // 8), -(-(width + left) // 8)
    slope = np.arange(columns) - 3.0
    odds = np.broadcast_to(slope, (rows, columns)).astype(np.float32)
    nothing = np.zeros_like(odds)
    traces = LearnedTraces(nothing, nothing, odds, nothing[..., None], offset)
    found = traces.pasted_map((height, width, 3))
    assert (found.shape, found.dtype) == ((height, width), np.float32)
    at = (np.arange(width) + left - 3.5) / 8 - 3.0
    expected = 1.0 / (1.0 + np.exp(-np.clip(at, slope[0], slope[-1])))
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=1e-5)


def test_odds_of_a_seam_become_probabilities():
    """Also odds that nobody would bet on."""
    odds = np.array([[-1e4, -100.0, -2.0, 0.0, 3.0, 100.0, 1e4]], np.float32)
    nothing = np.zeros((1, 1), np.float32)
    found = LearnedTraces(odds, nothing, nothing, nothing[..., None]).seam_map()
    assert found.dtype == np.float32
    expected = [[0.0, 0.0, 1 / (1 + np.exp(2.0)), 0.5, 1 / (1 + np.exp(-3.0)), 1.0, 1.0]]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)
    assert odds[0, 2] == -2.0  # is left alone


def test_onnx_runtime_reports_to_nobody(tmp_path):
    """ONNX Runtime tells its maker about each process, and keeps a file, unless told not to."""
    pytest.importorskip("onnxruntime")
    code = (
        "import numpy; from cpcapp.splicing import load_model\n"
        "load_model().localize(numpy.zeros((70, 80, 3), dtype='uint8'))\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert list(tmp_path.iterdir()) == []
