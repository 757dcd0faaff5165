from __future__ import annotations

import pickle

import cv2
import numpy as np
import pytest
from scipy.ndimage import label

from cpcapp.splicing.datasets import columbia, read_samples
from cpcapp.splicing.datasets.columbia import columbia_mask
from cpcapp.splicing.score.protocols import boundary_band


def coloured(mask, band=None):
    out = np.where(mask[..., None], [0, 200, 0], [200, 0, 0]).astype(np.uint8)
    if band is not None:
        out[band] = [0, 0, 200]
    return out


def reasons(photos):
    return {problem.name: problem.reason for problem in photos.problems}


@pytest.fixture
def folder(tmp_path, save, half):
    save(tmp_path / "4cam_auth/canong3_02_sub_03.tif")
    save(tmp_path / "4cam_splc/canong3_canonxt_sub_02.tif")
    save(tmp_path / "4cam_splc/edgemask/canong3_canonxt_sub_02_edgemask.png", coloured(half))
    return tmp_path


def test_green_is_pasted(folder, half):
    photos = columbia(folder)
    assert photos.name == "columbia"
    assert [(s.name, s.authentic) for s in photos] == [
        ("canong3_canonxt_sub_02", False),
        ("canong3_02_sub_03", True),
    ]
    np.testing.assert_array_equal(photos[0].mask, half)
    assert photos[0].image.shape == (8, 12, 3)
    assert photos.problems == ()


@pytest.mark.parametrize(
    "name", ["b_edgemask.tif", "b.bmp", "b.png", "B_EDGEMASK.PNG", "b_edgemask.jpg"]
)
def test_names_that_masks_may_have(folder, save, half, name):
    wide = np.repeat(np.repeat(half, 16, axis=0), 16, axis=1)
    save(folder / "4cam_splc/b.tif", size=wide.shape[::-1])
    save(folder / "4cam_splc/edgemask" / name, coloured(wide))
    photos = columbia(folder)
    np.testing.assert_array_equal({s.name: s for s in photos}["b"].mask, wide)


def test_a_mask_of_16_bits(folder, half):
    path = folder / "4cam_splc/edgemask/canonxt_nikond70_sub_01_edgemask.png"
    deep = coloured(half).astype(np.uint16)[..., ::-1] * 257
    cv2.imwrite(str(path), deep)
    cv2.imwrite(str(folder / "4cam_splc/canonxt_nikond70_sub_01.png"), np.zeros_like(deep))
    photos = {sample.name: sample for sample in columbia(folder)}
    np.testing.assert_array_equal(photos["canonxt_nikond70_sub_01"].mask, half)


def test_what_is_missing_or_does_not_fit_is_a_problem(folder, save, half):
    save(folder / "4cam_splc/lone.tif")
    save(folder / "4cam_splc/blue.tif")
    band = np.zeros((8, 12), dtype=bool)
    band[:, 4:8] = True
    save(folder / "4cam_splc/edgemask/blue_edgemask_3.png", coloured(half, band))
    save(folder / "4cam_splc/other.tif", size=(8, 12))
    save(folder / "4cam_splc/edgemask/other_edgemask.png", coloured(half))
    save(folder / "4cam_splc/edgemask/orphan_edgemask.png", coloured(half))
    save(folder / "4cam_splc/torn.tif")
    (folder / "4cam_splc/edgemask/torn_edgemask.png").write_bytes(b"\x89PNG\r\n")
    photos = columbia(folder)
    assert len(photos.spliced) == 1
    found = reasons(photos)
    assert found.keys() == {"lone", "blue", "other", "orphan_edgemask", "torn"}
    assert found["lone"] == "edgemask/lone_edgemask is missing"
    assert "_edgemask_3 beside it has no seam" in found["blue"]
    assert found["other"] == "its mask has 12 × 8 pixels, the photo 8 × 12"
    assert "no photo" in found["orphan_edgemask"]
    assert "torn_edgemask.png is damaged or not an image" in found["torn"]


def test_damage_that_shows_when_reading_stops_nothing(folder, save, half):
    save(folder / "4cam_splc/grey.tif")
    save(folder / "4cam_splc/edgemask/grey_edgemask.png", 128)
    torn = save(
        folder / "4cam_auth/torn.png", np.arange(8 * 12 * 3, dtype=np.uint8).reshape(8, 12, 3)
    )
    torn.write_bytes(torn.read_bytes()[:-20])
    photos = columbia(folder)
    assert photos.problems == ()
    problems = []
    read = [(s.name, mask.any()) for s, _, mask in read_samples(photos, problems)]
    assert read == [("canong3_canonxt_sub_02", True), ("canong3_02_sub_03", False)]
    assert [p.name for p in problems] == ["grey", "torn"]
    assert "grey_edgemask.png" in problems[0].reason
    assert "neither red nor green" in problems[0].reason


def test_a_photo_that_lies_on_its_side_is_compared_upright(folder, save, half):
    from PIL import Image

    exif = Image.Exif()
    exif[274] = 6
    save(folder / "4cam_splc/turned.jpg", size=(8, 12), exif=exif)
    save(folder / "4cam_splc/edgemask/turned_edgemask.png", coloured(half))
    photos = {s.name: s for s in columbia(folder)}
    assert photos["turned"].image.shape == (8, 12, 3)


def test_half_of_the_data_set(tmp_path, save):
    save(tmp_path / "4cam_auth/one.tif")
    photos = columbia(tmp_path)
    assert len(photos.authentic) == 1
    assert reasons(photos) == {"4cam_splc": "the folder is missing or holds no photos"}


def test_samples_can_be_sent_to_other_processes(folder, half):
    sample = pickle.loads(pickle.dumps(columbia(folder)[0]))
    np.testing.assert_array_equal(sample.mask, half)


def test_another_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither 4cam_splc nor 4cam_auth"):
        columbia(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"none is not a folder; check the path"):
        columbia(tmp_path / "none")


def test_the_real_data(data_folder):
    photos = columbia(data_folder / "columbia_dev")
    assert (len(photos.spliced), len(photos.authentic), photos.problems) == (48, 37, ())
    problems = []
    for _, image, mask in read_samples(photos[::8], problems):
        assert image.dtype == np.uint8
        assert mask.shape == image.shape[:2]
    assert problems == []


def disk(shape=(120, 160), centre=(60, 80), radius=30):
    rows, cols = np.mgrid[: shape[0], : shape[1]]
    return np.hypot(rows - centre[0], cols - centre[1]) <= radius


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
