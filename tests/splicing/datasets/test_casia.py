from __future__ import annotations

import cv2
import numpy as np
import pytest

from cpcapp.splicing.datasets import casia, make_casia_masks, read_samples

TAMPERED = "Tp_D_CRN_M_N_ani00001_ani00002_10035"


def texture(seed, shape=(120, 160)):
    noise = np.random.default_rng(seed).uniform(0, 255, shape).astype(np.float32)
    grey = np.clip(128 + 5 * (cv2.GaussianBlur(noise, (0, 0), 2) - 128), 0, 255)
    return (grey[..., None] / 2 + np.array([9, 5, 2]) * seed).astype(np.uint8)


def pasted(host, donor, rows=slice(30, 80), cols=slice(40, 110)):
    mask = np.zeros(host.shape[:2], dtype=bool)
    mask[rows, cols] = True
    return np.where(mask[..., None], donor, host), mask


def reasons(photos):
    return {problem.name: problem.reason for problem in photos.problems}


def names(photos):
    return [sample.name for sample in photos]


def iou(a, b):
    return (a & b).sum() / (a | b).sum()


@pytest.fixture
def folder(tmp_path, save):
    """Version 2.0 with one splice."""
    host, donor = texture(1), texture(2)
    save(tmp_path / "Au/Au_ani_00001.jpg", host, quality=92)
    save(tmp_path / "Au/Au_ani_00002.jpg", donor, quality=92)
    save(tmp_path / f"Tp/{TAMPERED}.tif", pasted(host, donor)[0])
    return tmp_path


@pytest.fixture
def mask():
    return pasted(texture(1), texture(2))[1]


class TestVersion2:
    def test_the_mask_comes_from_the_host(self, folder, mask):
        photos = casia(folder)
        assert photos.name == "casia2"
        assert names(photos) == [TAMPERED, "Au_ani_00001", "Au_ani_00002"]
        assert [s.authentic for s in photos] == [False, True, True]
        assert iou(photos[0].mask, mask) > 0.95
        assert photos.problems == ()

    def test_the_second_source_may_be_the_host(self, folder, save, mask):
        swapped = "Tp_D_CRN_M_N_ani00002_ani00001_10036"
        save(folder / f"Tp/{swapped}.jpg", pasted(texture(1), texture(2))[0], quality=90)
        photos = {s.name: s for s in casia(folder)}
        assert iou(photos[swapped].mask, mask) > 0.95

    def test_copies_within_a_photo_are_asked_for(self, folder, save):
        host = texture(1)
        copy, mask = pasted(host, np.roll(host, 37, axis=1))
        save(folder / "Tp/Tp_S_NNN_M_N_ani00001_ani00001_20001.png", copy)
        save(folder / "Tp/Tp_D_NNN_M_N_ani00001_ani00001_20002.png", copy)  # misnamed
        assert names(casia(folder).spliced) == [TAMPERED]
        both = casia(folder, kinds=("D", "S")).spliced
        assert len(both) == 3
        assert (
            iou({s.name: s for s in both}["Tp_D_NNN_M_N_ani00001_ani00001_20002"].mask, mask) > 0.9
        )
        assert len(casia(folder, kinds=["S"]).spliced) == 2

    def test_what_cannot_be_trusted_is_a_problem(self, folder, save):
        save(folder / "Tp/Tp_D_CRN_M_N_ani00001_ani00002_1.jpg", texture(1), quality=80)
        save(folder / "Tp/Tp_D_CRN_M_N_ani00001_ani00002_2.jpg", texture(9), quality=80)
        save(folder / "Tp/Tp_D_CRN_M_N_ani00008_ani00009_3.jpg", texture(3))
        (folder / "Tp/Tp_D_CRN_M_N_ani00001_ani00002_4.jpg").write_bytes(b"not a photo")
        save(folder / "Tp/Tp_D_CRN_M_N_ani00001_5.jpg", texture(3))
        photos = casia(folder)
        assert names(photos.spliced) == [TAMPERED]
        found = reasons(photos)
        start = "Tp_D_CRN_M_N_ani00001_"
        assert "confidence 0.00): nothing differs" in found[start + "ani00002_1"]
        assert "the host differs everywhere" in found[start + "ani00002_2"]
        assert found["Tp_D_CRN_M_N_ani00008_ani00009_3"] == (
            "its sources are not in Au: ani00008, ani00009"
        )
        assert "ani00002_4.jpg" in found[start + "ani00002_4"]
        assert "does not name two sources" in found[start + "5"]

    def test_a_broken_host_gives_way_to_the_other_source(self, folder, save):
        (folder / "Au/Au_ani_00001.jpg").write_bytes(b"\xff\xd8\xff")
        photos = casia(folder)
        assert TAMPERED in reasons(photos)
        problems = []
        assert [s.name for s, _, _ in read_samples(photos, problems)] == ["Au_ani_00002"]
        assert [p.name for p in problems] == ["Au_ani_00001"]

    def test_the_real_data(self, data_folder):
        photos = casia(data_folder / "casia2_pairs")
        assert (len(photos.spliced), len(photos.authentic), photos.problems) == (34, 41, ())
        problems = []
        for _, image, mask in read_samples(photos.spliced[::5], problems):
            assert mask.shape == image.shape[:2]
            assert 0.01 < mask.mean() < 0.4
        assert problems == []


class TestVersion1:
    @pytest.mark.parametrize("place", ["Sp", "Tp/Sp", "Modified Tp/Tp/Sp"])
    def test_layouts(self, tmp_path, save, place, mask):
        host, donor = texture(1), texture(2)
        save(tmp_path / "Au/Au_pla_0005.jpg", host, quality=95)
        save(tmp_path / place / "Sp_D_CND_A_pla0005_pla0023_0281.jpg", pasted(host, donor)[0])
        save(tmp_path / place / "../CM/Sp_S_CND_A_pla0005_pla0005_0282.jpg", pasted(host, donor)[0])
        for version in (1, "auto"):
            photos = casia(tmp_path, version=version)
            assert photos.name == "casia1"
            assert names(photos) == ["Sp_D_CND_A_pla0005_pla0023_0281", "Au_pla_0005"]
            assert iou(photos[0].mask, mask) > 0.9

    def test_the_corrected_names_are_taken(self, tmp_path, save):
        host, donor = texture(1), texture(2)
        save(tmp_path / "Au/Au_pla_0005.jpg", host, quality=95)
        for place, name in [
            ("Original Tp/Sp", "Sp_D_CND_A_pla0006_pla0023_0281.jpg"),
            ("Modified Tp/Sp", "Sp_D_CND_A_pla0005_pla0023_0281.jpg"),
        ]:
            save(tmp_path / place / name, pasted(host, donor)[0])
        photos = casia(tmp_path)
        assert names(photos.spliced) == ["Sp_D_CND_A_pla0005_pla0023_0281"]
        assert photos.problems == ()

    def test_both_versions_in_one_folder(self, folder, save):
        save(folder / "one/Au/Au_pla_0005.jpg", texture(1), quality=95)
        name = "Sp_D_CND_A_pla0005_pla0023_0281"
        save(folder / f"one/Sp/{name}.jpg", pasted(texture(1), texture(2))[0])
        with pytest.raises(ValueError, match="holds both versions"):
            casia(folder)
        assert names(casia(folder, version=1)) == [name, "Au_pla_0005"]
        assert names(casia(folder, version=2)) == [TAMPERED, "Au_ani_00001", "Au_ani_00002"]


class TestMaskFolder:
    def test_kept_masks_are_those_that_would_be_made(self, folder, tmp_path_factory):
        output = tmp_path_factory.mktemp("out") / "masks"
        photos = make_casia_masks(folder, output)
        assert {p.name for p in output.iterdir()} == {f"{TAMPERED}_gt.png"}
        fresh = casia(folder)
        assert names(photos) == names(fresh) == names(casia(folder, masks=output))
        np.testing.assert_array_equal(photos[0].mask, fresh[0].mask)

    def test_masks_are_read_not_made_again(self, folder, save, half):
        output = folder / "masks"
        make_casia_masks(folder, output)
        drawn = np.zeros((120, 160), dtype=bool)
        drawn[:9] = True
        save(output / f"{TAMPERED}_gt.png", drawn.astype(np.uint8) * 255)
        shares = []
        photos = make_casia_masks(folder, output, progress=shares.append)
        assert shares == []
        np.testing.assert_array_equal(photos[0].mask, drawn)
        # Masks in the same folder are not taken for photos.
        assert names(casia(folder)) == names(photos)

    def test_an_interrupted_run_goes_on(self, folder, save):
        output = folder / "masks"
        for i in range(4):
            tampered = pasted(texture(1), texture(3 + i))[0]
            save(folder / f"Tp/Tp_D_CRN_M_N_ani00001_ani00002_2000{i}.png", tampered)

        def interrupt(share):
            if share > 0.5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            make_casia_masks(folder, output, jobs=1, progress=interrupt)
        done = list(output.glob("*_gt.png"))
        assert 0 < len(done) < 5
        shares = []
        assert len(make_casia_masks(folder, output, progress=shares.append).spliced) == 5
        assert len(shares) == 5 - len(done)
        assert not list(output.glob("*.part"))

    def test_what_is_not_trusted_is_named(self, folder, save):
        name = "Tp_D_CRN_M_N_ani00001_ani00002_7"
        tampered, _ = pasted(texture(1), texture(2), slice(50, 56), slice(50, 56))
        save(folder / f"Tp/{name}.png", tampered)
        photos = make_casia_masks(folder, folder / "masks")
        assert "of the photo differs" in reasons(photos)[name]
        assert reasons(photos) == reasons(casia(folder))
        assert "has none for it" in reasons(casia(folder, masks=folder / "masks"))[name]

    @pytest.mark.parametrize("ending", ["_gt", ""])
    def test_masks_of_other_people(self, folder, save, ending, tmp_path_factory):
        output = tmp_path_factory.mktemp("theirs")
        drawn = np.zeros((120, 160), dtype=np.uint8)
        drawn[:9] = 255
        save(output / f"Sp/{TAMPERED}{ending}.png", drawn)
        np.testing.assert_array_equal(casia(folder, masks=output)[0].mask, drawn > 0)

    def test_a_mask_that_lies_on_its_side(self, folder, save):
        """Several of the masks that people share do."""
        save(folder / f"masks/{TAMPERED}_gt.png", 255, size=(120, 160))
        photos = casia(folder, masks=folder / "masks")
        assert reasons(photos)[TAMPERED] == "its mask has 120 × 160 pixels, the photo 160 × 120"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 3}, "version=3 must be 1, 2 or 'auto'"),
        ({"kinds": "D"}, "kinds='D' must be a sequence"),
        ({"kinds": ()}, r"kinds=\(\) must be a sequence"),
        ({"kinds": ("X",)}, "must be a sequence of 'D' and 'S'"),
        ({"jobs": 0}, "jobs=0 must be at least 1"),
    ],
)
def test_bad_options(folder, options, message):
    with pytest.raises(ValueError, match=message):
        casia(folder, **options)


def test_no_casia(tmp_path, save):
    save(tmp_path / "holiday.jpg")
    with pytest.raises(FileNotFoundError, match=r"holds no photos of CASIA 2\.0"):
        casia(tmp_path)
