from __future__ import annotations

import numpy as np
import pytest

from cpcapp.splicing.measure.edges import (
    EdgeDetector,
    ForestError,
    detect_edges,
    detector,
    thin_edges,
)


@pytest.fixture
def image():
    """A bright disk on a dark ground."""
    rows, cols = np.mgrid[:120, :160]
    disk = np.hypot(rows - 60, cols - 80) < 35
    return np.where(disk[..., None], [200, 150, 90], [40, 60, 80]).astype(np.uint8)


def test_finds_the_outline(image):
    edges = detect_edges(image)
    assert edges.shape == (120, 160)
    assert edges.dtype == np.float32
    assert 0.0 <= edges.min() <= edges.max() <= 1.0
    rows, cols = np.mgrid[:120, :160]
    distance = np.abs(np.hypot(rows - 60, cols - 80) - 35)
    assert edges[distance < 1].mean() > 0.3
    assert edges[distance > 10].max() < 0.1


def test_thinned_edges_are_lines(image):
    edges = detect_edges(image)
    thinned = thin_edges(edges)
    assert thinned.shape == edges.shape
    assert 150 < (thinned > 0.1).sum() < 450  # the outline is 220 pixels long
    kept = thinned > 0
    np.testing.assert_array_equal(thinned[kept], edges[kept])


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (2, 3), (17, 15), (31, 33), (121, 160)])
@pytest.mark.parametrize("scales", [(1.0,), (0.5, 1.0, 2.0)])
def test_any_size(rng, size, scales):
    edges = detect_edges(rng.integers(0, 256, size=(*size, 3), dtype=np.uint8), scales=scales)
    assert edges.shape == size
    assert np.isfinite(edges).all()
    assert thin_edges(edges).shape == size


def test_kinds_of_images(image):
    expected = detect_edges(image)
    for same in (
        np.dstack([image, np.full((120, 160), 7, np.uint8)]),
        image.astype(np.uint16) * 257,
        image / 255.0,
        (image / 255.0).astype(np.float32),
    ):
        np.testing.assert_allclose(detect_edges(same), expected, atol=1e-3)
    grey = detect_edges(image[..., 0])
    np.testing.assert_array_equal(detect_edges(image[..., :1]), grey)
    np.testing.assert_array_equal(detect_edges(np.repeat(image[..., :1], 3, axis=2)), grey)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((4, 4, 5)), "1 to 4 channels"),
        (np.zeros(4), "must be"),
        (np.zeros((0, 4)), "must be"),
        (np.full((4, 4), 2.0), r"lie in \[0, 1\]"),
        (np.full((4, 4), np.nan), r"lie in \[0, 1\]"),
        (np.zeros((4, 4), dtype=np.int32), "dtype int32"),
    ],
)
def test_bad_images(bad, message):
    with pytest.raises(ValueError, match=message):
        detect_edges(bad)


def test_bad_scales_and_edges(image):
    for scales in ((), (0.0,), (np.nan,), (99.0,)):
        with pytest.raises(ValueError, match="must be numbers above 0"):
            detect_edges(image, scales=scales)
    with pytest.raises(ValueError, match="edges have shape"):
        thin_edges(np.zeros((2, 3, 4), dtype=np.float32))


def test_a_forest_of_ones_own(tmp_path):
    with pytest.raises(FileNotFoundError):
        EdgeDetector(tmp_path / "none.yml.gz")
    (tmp_path / "bad.yml").write_text("%YAML:1.0\n---\nhello: 1\n")
    with pytest.raises(ForestError, match=r"bad\.yml is not a forest of edges"):
        EdgeDetector(tmp_path / "bad.yml")


def cluttered(shape):
    """Something everywhere, so that no tile is without edges."""
    rng = np.random.default_rng(shape[0])
    blocks = rng.integers(0, 200, (shape[0] // 9 + 1, shape[1] // 7 + 1, 3), dtype=np.uint8)
    pixels = blocks.repeat(9, axis=0).repeat(7, axis=1)[: shape[0], : shape[1]]
    return pixels + rng.integers(0, 40, pixels.shape, dtype=np.uint8)


@pytest.mark.parametrize("shape", [(400, 300), (301, 455), (33, 700), (700, 33), (161, 163)])
@pytest.mark.parametrize("tile", [(40, 67), (300, 128)])
def test_large_photos_go_in_tiles_and_nobody_can_tell(shape, tile, monkeypatch):
    image = cluttered(shape)
    expected = detect_edges(image)
    assert expected.max() > 0.2
    monkeypatch.setattr(detector, "_TILE", tile)
    monkeypatch.setattr(detector, "_WALKS_TOGETHER", 3000)
    np.testing.assert_array_equal(EdgeDetector().detect(image), expected)
