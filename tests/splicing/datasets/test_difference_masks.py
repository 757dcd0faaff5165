from __future__ import annotations

from itertools import pairwise

import cv2
import numpy as np
import pytest

from cpcapp.splicing.datasets.difference_masks import MIN_CONFIDENCE, difference_mask
from cpcapp.splicing.datasets.sources import bsds_photos


def jpeg(pixels, quality):
    data = cv2.imencode(".jpg", pixels[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return np.ascontiguousarray(cv2.imdecode(data, cv2.IMREAD_COLOR)[..., ::-1])


def scaled(pixels, factor):
    return cv2.resize(pixels, None, fx=factor, fy=factor, interpolation=cv2.INTER_LANCZOS4)


def moved(pixels, across, down):
    matrix = np.array([[1, 0, across], [0, 1, down]], dtype=np.float32)
    size = pixels.shape[1::-1]
    return cv2.warpAffine(
        pixels, matrix, size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )


def iou(a, b):
    return (a & b).sum() / (a | b).sum()


@pytest.fixture(scope="module")
def splices(data_folder):
    """Seven photos with a part of the next one pasted in, and the exact masks."""
    photos = [p.image() for p in bsds_photos(data_folder / "bsds500", ["train"])[::9]]
    photos = [np.rint(p * 255).astype(np.uint8) for p in photos if p.shape == (321, 481, 3)][:8]
    rng = np.random.default_rng(0)
    out = []
    for host, donor in pairwise(photos):
        rows, cols = np.mgrid[:321, :481]
        angle = np.arctan2(rows - 160, cols - 240)
        lobes = 1 + 0.3 * np.sin(rng.integers(2, 6) * angle + rng.uniform(0, 6))
        centre = rng.uniform([70, 90], [250, 390])
        mask = np.hypot(rows - centre[0], cols - centre[1]) < rng.uniform(25, 80) * lobes
        out.append((np.where(mask[..., None], donor, host), host, mask))
    return out


def spoiled(way, tampered, host, mask):
    """Return the pair and its mask after what happens to photos on their way."""
    if way == "lossless":
        return tampered, host, mask
    if way == "other quality":
        return jpeg(tampered, 75), jpeg(host, 92), mask
    if way == "shifted":
        return jpeg(moved(tampered, 3, -2), 85), jpeg(host, 90), moved(mask * 255, 3, -2) > 127
    if way == "shifted by half a pixel":
        return jpeg(moved(tampered, 0.5, 1.5), 85), host, moved(mask * 255, 0.5, 1.5) > 127
    if way == "smaller":
        return jpeg(scaled(tampered, 0.7), 85), host, scaled(mask * 255, 0.7) > 127
    if way == "larger":
        return jpeg(scaled(tampered, 1.25), 85), host, scaled(mask * 255, 1.25) > 127
    if way == "cropped":
        return jpeg(tampered[9:-20, 13:-4], 85), jpeg(host, 90), mask[9:-20, 13:-4]
    if way == "turned":
        return jpeg(np.rot90(tampered), 85), host, np.rot90(mask)
    raise AssertionError(way)


WAYS = [
    ("lossless", 0.97),
    ("other quality", 0.95),
    ("shifted", 0.95),
    ("shifted by half a pixel", 0.94),
    ("smaller", 0.94),
    ("larger", 0.94),
    ("cropped", 0.95),
    ("turned", 0.95),
]


@pytest.mark.parametrize(("way", "least"), WAYS)
def test_known_pastes_are_found_and_trusted(splices, way, least):
    scores = []
    for splice in splices:
        tampered, host, mask = spoiled(way, *(a.astype(np.uint8) for a in splice))
        found = difference_mask(tampered, host)
        assert found.mask.shape == mask.shape
        assert found.trusted, found.reason
        scores.append(iou(found.mask, mask > 0))
    assert np.median(scores) >= least
    assert min(scores) >= 0.85


@pytest.mark.parametrize("way", ["lossless", "other quality", "shifted by half a pixel", "smaller"])
def test_authentic_pairs_give_no_mask_to_trust(splices, way):
    for _, host, _ in splices:
        tampered, other, _ = spoiled(way, host, host, np.ones(host.shape[:2], dtype=np.uint8))
        found = difference_mask(tampered, other)
        assert not found.trusted
        assert found.reason


def test_another_photo_is_not_taken_for_the_host(splices):
    for (tampered, _, _), (_, other, _) in zip(splices, splices[2:], strict=False):
        found = difference_mask(tampered, other)
        assert not found.trusted
        assert "differ" in found.reason


@pytest.fixture
def host(rng):
    smooth = cv2.GaussianBlur(rng.uniform(0, 255, (200, 300, 3)).astype(np.float32), (0, 0), 2)
    return np.clip(128 + 6 * (smooth - 128), 0, 255).astype(np.uint8)


class TestConfidence:
    def test_a_speck_is_not_trusted(self, host):
        tampered = host.copy()
        tampered[100:107, 100:107] = 255 - host[100:107, 100:107]
        found = difference_mask(tampered, host)
        assert found.confidence < MIN_CONFIDENCE
        assert "of the photo differs" in found.reason

    def test_most_of_the_photo_is_not_trusted(self, host):
        tampered = host.copy()
        tampered[:, :204] = 255 - np.median(host)
        found = difference_mask(tampered, host)
        assert found.confidence < MIN_CONFIDENCE
        assert "% of the photo" in found.reason or "differs everywhere" in found.reason

    def test_scattered_changes_are_not_trusted(self, host):
        tampered = host.copy()
        for row in range(5, 195, 20):
            for col in range(5, 295, 20):
                tampered[row : row + 9, col : col + 9] = 255
        found = difference_mask(tampered, host)
        assert found.confidence < MIN_CONFIDENCE
        assert "pieces" in found.reason

    def test_a_host_that_covers_half_is_not_trusted(self, host):
        tampered = host.copy()
        tampered[20:60, 20:80] = 255
        found = difference_mask(tampered, host[:, :150])
        assert found.confidence < MIN_CONFIDENCE
        assert "covers only" in found.reason
        assert not found.mask[:, 155:].any()


def test_the_whole_of_a_flat_part_may_be_replaced(host):
    """Noise is estimated by how lively the host is: here all that is flat was pasted over."""
    host = np.repeat(80 + host[..., :1] // 3, 3, axis=2)
    host[:100] = 120
    host = jpeg(host, 90)
    tampered = host.copy()
    tampered[:98] = [150, 90, 110]
    found = difference_mask(jpeg(tampered, 85), host)
    assert found.trusted
    expected = np.zeros((200, 300), dtype=bool)
    expected[:98] = True
    assert iou(found.mask, expected) > 0.95


def test_small_holes_are_filled_and_large_ones_kept(host):
    tampered = host.copy()
    tampered[20:180, 20:280] = 255 - host[20:180, 20:280] // 2
    tampered[30:40, 30:40] = host[30:40, 30:40]
    tampered[80:160, 100:240] = host[80:160, 100:240]
    found = difference_mask(tampered, host).mask
    assert found[30:40, 30:40].all()
    assert not found[90:150, 110:230].any()


def test_sixteen_bits_and_views(host):
    tampered = host.copy()
    tampered[50:120, 60:160] = [250, 250, 20]
    expected = difference_mask(tampered, host).mask
    wide = difference_mask(tampered.astype(np.uint16) * 257, host.astype(np.uint16) * 257)
    np.testing.assert_array_equal(wide.mask, expected)
    mirrored = difference_mask(tampered[:, ::-1], host[:, ::-1])
    assert iou(mirrored.mask[:, ::-1], expected) > 0.98


@pytest.mark.parametrize("shape", [(3, 3), (5, 90), (64, 64)])
def test_flat_and_small_photos(shape):
    flat = np.zeros((*shape, 3), dtype=np.uint8)
    assert difference_mask(flat, flat).reason == "nothing differs"


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((20, 20), np.uint8),
        np.zeros((20, 20, 4), np.uint8),
        np.zeros((20, 20, 3)),
        np.zeros((2, 20, 3), np.uint8),
    ],
)
def test_bad_pixels(bad, host):
    with pytest.raises(ValueError, match="tampered has shape"):
        difference_mask(bad, host)
    with pytest.raises(ValueError, match="host has shape"):
        difference_mask(host, bad)
