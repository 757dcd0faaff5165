from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from cpcapp.splicing.datasets import folder_pair, open_photos, photo_files, read_samples
from cpcapp.splicing.photo.samples import Problem, Sample


@pytest.fixture
def pairs(tmp_path, save, half):
    save(tmp_path / "images/one.jpg")
    save(tmp_path / "masks/One.png", half.astype(np.uint8) * 255)
    save(tmp_path / "images/bare.jpg")
    save(tmp_path / "authentic/one.jpg")
    return tmp_path


class TestFolderPair:
    def test_white_is_pasted(self, pairs, half):
        photos = folder_pair(pairs)
        assert photos.name == pairs.name
        assert [(s.name, s.authentic) for s in photos] == [("one", False), ("authentic/one", True)]
        np.testing.assert_array_equal(photos[0].mask, half)

    def test_grey_levels_and_colours(self, pairs, save):
        levels = np.array([[0, 127, 128, 255]], dtype=np.uint8)
        save(pairs / "images/levels.png", size=(4, 1))
        save(pairs / "masks/levels.png", levels)
        save(pairs / "images/red.png", size=(4, 1))
        save(pairs / "masks/red.png", (255, 0, 0), size=(4, 1))
        photos = {s.name: s for s in folder_pair(pairs)}
        assert photos["levels"].mask.tolist() == [[False, False, True, True]]
        assert photos["red"].mask.all()

    def test_a_photo_without_mask(self, pairs):
        problem = folder_pair(pairs).problems[0]
        assert problem.name == "bare"
        assert "masks/bare is missing" in problem.reason
        photos = folder_pair(pairs, unmasked="authentic")
        assert photos.problems == ()
        assert [s.name for s in photos.authentic] == ["bare", "authentic/one"]

    def test_other_problems(self, pairs, save):
        save(pairs / "images/big.jpg", size=(50, 40))
        save(pairs / "masks/big.png", 255)
        save(pairs / "masks/orphan.png", 255)
        save(pairs / "images/one.tif")
        found = {p.name: p.reason for p in folder_pair(pairs, unmasked="authentic").problems}
        assert found["big"] == "its mask has 12 × 8 pixels, the photo 50 × 40"
        assert found["orphan"] == "masks/orphan.png has no photo in images/"
        assert "same name as another photo" in found["one"]

    def test_photos_may_lie_in_a_folder_of_that_name(self, pairs, half):
        (pairs / "images").rename(pairs / "photos")
        Image.fromarray(half).save(pairs / "masks/One.png", bits=1)  # 1 bit a pixel
        photos = open_photos(pairs)
        assert [(s.name, s.authentic) for s in photos] == [("one", False), ("authentic/one", True)]
        np.testing.assert_array_equal(photos[0].mask, half)
        assert [p.name for p in photos.problems] == ["bare"]
        (pairs / "photos/one.jpg").unlink()
        assert "One.png has no photo in photos/" in folder_pair(pairs).problems[1].reason

    def test_images_are_taken_where_there_are_photos_too(self, pairs, save):
        save(pairs / "photos/original.jpg")
        assert [s.name for s in open_photos(pairs)] == ["one", "authentic/one"]

    def test_bad_input(self, pairs, tmp_path):
        with pytest.raises(ValueError, match="unmasked='no' must be 'problem' or 'authentic'"):
            folder_pair(pairs, unmasked="no")
        (pairs / "masks/One.png").unlink()
        (pairs / "masks").rmdir()
        with pytest.raises(FileNotFoundError, match="has no folder masks"):
            folder_pair(pairs)
        (pairs / "images").rename(pairs / "pictures")
        with pytest.raises(FileNotFoundError, match=r"has no folder images; .* \(or photos/\)"):
            folder_pair(pairs)


class TestPhotoFiles:
    def test_all_are_authentic(self, tmp_path, save):
        save(tmp_path / "b/10.png")
        save(tmp_path / "2.png")
        (tmp_path / "notes.txt").write_text("no photo")
        photos = photo_files(tmp_path)
        assert [(s.name, s.authentic) for s in photos] == [("2.png", True)]
        assert not photos[0].mask.any()
        assert [s.name for s in photo_files(tmp_path, recursive=True)] == ["2.png", "b/10.png"]

    def test_no_photos(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="holds no photos"):
            photo_files(tmp_path)


class TestOpenPhotos:
    @pytest.mark.parametrize(
        ("files", "name"),
        [
            (["4cam_auth/a.tif"], "columbia"),
            (["Au/Au_ani_00001.jpg", "Tp/Tp_D_CRN_M_N_ani00001_ani00002_1.jpg"], "casia2"),
            (["au/Au_ani_0001.jpg", "Sp/Sp_D_CND_A_ani0001_ani0002_1.jpg"], "casia1"),
            (["Au/Au_ani_0001.jpg", "Modified Tp/Sp/Sp_S_CND_A_ani0001_ani0001_1.jpg"], "casia1"),
        ],
    )
    def test_published_layouts(self, tmp_path, save, files, name):
        for file in files:
            save(tmp_path / file)
        assert open_photos(tmp_path).name == name

    def test_folders_of_ones_own(self, pairs, tmp_path_factory, save):
        assert len(open_photos(pairs, unmasked="authentic")) == 3
        plain = tmp_path_factory.mktemp("plain")
        save(plain / "one.jpg")
        assert [s.name for s in open_photos(plain)] == ["one.jpg"]
        with pytest.raises(FileNotFoundError, match="holds no photos"):
            open_photos(pairs, "photos")

    def test_real_data(self, data_folder):
        assert open_photos(data_folder / "columbia_dev").name == "columbia"
        assert open_photos(data_folder / "nimble_sample", task="splice").name == "nimble"
        assert len(open_photos(data_folder / "ucid").authentic) == 90

    @pytest.mark.parametrize(("name", "n"), [("imd2020", 15), ("casia1", 12), ("dst", 5)])
    def test_real_photos_beside_masks(self, data_folder, name, n):
        photos = open_photos(data_folder / "real_dev" / name)
        assert (photos.name, len(photos.spliced), len(photos.problems)) == (name, n, 0)

    def test_nothing_fits(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="none of the known layouts") as caught:
            open_photos(tmp_path)
        for part in ("4cam_splc", "Au/", "-ref.csv", "images/", "photos"):
            assert part in str(caught.value)

    def test_bad_kind(self, tmp_path):
        with pytest.raises(ValueError, match="kind='coco' must be 'auto', 'columbia'"):
            open_photos(tmp_path, "coco")


class TestReadable:
    def test_masks_that_are_no_use(self):
        def sample(name, mask):
            return Sample(name, False, lambda: np.zeros((4, 6, 3), np.uint8), lambda: mask)

        good = np.zeros((4, 6), dtype=bool)
        good[1:3, 1:3] = True
        samples = [
            sample("none", np.zeros((4, 6), dtype=bool)),
            sample("all", np.ones((4, 6), dtype=bool)),
            sample("turned", good.T),
            sample("good", good),
        ]
        problems = []
        assert [s.name for s, _, _ in read_samples(samples, problems)] == ["good"]
        assert [p.name for p in problems] == ["none", "all", "turned"]
        assert "nothing" in problems[0].reason
        assert "everything" in problems[1].reason
        assert problems[2] == Problem("turned", "its mask has 4 × 6 pixels, the photo 6 × 4")

    def test_mistakes_in_programs_are_not_hidden(self):
        def wrong():
            raise TypeError("a bug")

        with pytest.raises(TypeError, match="a bug"):
            list(read_samples([Sample("one", True, wrong)], []))


def test_images_of_kinds_that_are_not_read_are_problems(pairs):
    (pairs / "images" / "phone.cr2").write_bytes(b"not read")
    known = {problem.name for problem in folder_pair(pairs).problems}
    assert "phone.cr2" in known
    assert not photo_files(pairs / "authentic").problems
