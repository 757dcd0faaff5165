from __future__ import annotations

from itertools import pairwise

import cv2
import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt, label

from cpcapp.splicing.datasets.columbia import columbia_mask
from cpcapp.splicing.datasets.difference_masks import MIN_CONFIDENCE, difference_mask
from cpcapp.splicing.datasets.sources import bsds_photos
from cpcapp.splicing.score.protocols import boundary_band


def disk(shape=(120, 160), centre=(60, 80), radius=30):
    rows, cols = np.mgrid[: shape[0], : shape[1]]
    return np.hypot(rows - centre[0], cols - centre[1]) <= radius


class TestBoundaryBand:
    @pytest.mark.parametrize("radius", [1, 2, 4, 7])
    def test_lies_within_reach_on_both_sides_of_the_seam(self, radius):
        mask = disk()
        band = boundary_band(mask, radius)
        inward, outward = distance_transform_edt(mask), distance_transform_edt(~mask)
        # OpenCV's ellipse has rounder corners than a circle, by less than a fifth.
        assert band[(inward + outward) <= 0.9 * radius].all()
        assert not band[(inward + outward) > 1.2 * radius + 1].any()
        assert (band & mask).sum() == pytest.approx((band & ~mask).sum(), rel=0.3)

    def test_default_radius_is_four(self):
        np.testing.assert_array_equal(boundary_band(disk()), boundary_band(disk(), 4))

    @pytest.mark.parametrize("turns", range(4))
    def test_there_is_no_seam_along_the_photos_border(self, turns):
        mask = np.zeros((60, 80), dtype=bool)
        mask[:, 40:] = True
        expected = np.zeros_like(mask)
        expected[:, 37:43] = True
        mask, expected = np.rot90(mask, turns), np.rot90(expected, turns)
        np.testing.assert_array_equal(boundary_band(mask, 3), expected)

    def test_a_photo_pasted_as_a_whole_or_not_at_all_has_no_seam(self):
        assert not boundary_band(np.ones((20, 30), dtype=bool)).any()
        assert not boundary_band(np.zeros((20, 30), dtype=bool)).any()
        assert boundary_band(np.zeros((0, 4), dtype=bool)).shape == (0, 4)

    @pytest.mark.parametrize(
        "mask", [np.zeros((4, 4)), np.zeros(4, bool), np.zeros((4, 4, 3), bool)]
    )
    def test_bad_mask(self, mask):
        with pytest.raises(ValueError, match="mask has shape"):
            boundary_band(mask)


def edge_mask(mask, band=6):
    """Colour a mask as Columbia does."""
    out = np.zeros((*mask.shape, 3), dtype=np.uint8)
    shade = np.where(boundary_band(mask, band), 255, 200)
    out[..., 0], out[..., 1] = np.where(mask, 0, shade), np.where(mask, shade, 0)
    return out


class TestColumbiaMask:
    def test_all_shades_of_green_are_the_pasted_part(self):
        np.testing.assert_array_equal(columbia_mask(edge_mask(disk())), disk())

    def test_jpeg_moves_the_seam_by_less_than_a_pixel_and_leaves_no_specks(self):
        pixels = edge_mask(disk())
        jpeg = cv2.imencode(".jpg", pixels[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 60])[1]
        found = columbia_mask(cv2.imdecode(jpeg, cv2.IMREAD_COLOR)[..., ::-1])
        wrong = found ^ disk()
        assert wrong.sum() < 60  # the outline is 190 pixels long
        assert not (wrong & ~boundary_band(disk(), 2)).any()

    def test_a_few_off_colours_go_with_their_neighbours(self):
        pixels = edge_mask(disk())
        pixels[60, 80], pixels[5, 5:9], pixels[60, 85] = [0, 0, 255], [10, 10, 10], [255, 255, 255]
        np.testing.assert_array_equal(columbia_mask(pixels), disk())

    def test_the_file_with_a_blue_band_is_refused_and_the_right_one_named(self):
        pixels = edge_mask(disk())
        pixels[boundary_band(disk(), 6)] = [0, 0, 200]
        with pytest.raises(ValueError, match=r"neither red nor green.* use NAME_edgemask instead"):
            columbia_mask(pixels)

    @pytest.mark.parametrize(
        ("pixels", "message"),
        [
            (np.full((9, 9, 3), 128, np.uint8), "100.0% of the pixels are neither red nor green"),
            (np.full((9, 9, 3), [200, 0, 0], np.uint8), r"nothing of it is green"),
            (np.full((9, 9, 3), [0, 200, 0], np.uint8), r"nothing of it is red"),
        ],
    )
    def test_other_images_are_refused(self, pixels, message):
        with pytest.raises(ValueError, match=message):
            columbia_mask(pixels)

    def test_real_masks_are_one_piece_each(self, data_folder):
        files = sorted((data_folder / "columbia_dev/4cam_splc/edgemask").glob("*_edgemask.jpg"))
        assert len(files) == 48
        for file in files[::4]:
            mask = columbia_mask(cv2.imread(str(file))[..., ::-1])
            assert label(mask)[1] == 1, file.name
            assert 0.1 < mask.mean() < 0.45, file.name


# --- difference masks -----------------------------------------------------------------------


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
