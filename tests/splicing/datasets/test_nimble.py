from __future__ import annotations

import cv2
import numpy as np
import pytest

from cpcapp.splicing.datasets import nimble, read_samples


@pytest.fixture
def sample(data_folder):
    return data_folder / "nimble_sample"


def by_name(photos):
    return {s.name: s for s in photos}


def reasons(photos):
    return {problem.name: problem.reason for problem in photos.problems}


class TestRealFiles:
    def test_black_is_manipulated(self, sample):
        """By the photos themselves: the filled boat differs from its base where True."""
        mask = by_name(nimble(sample, year=2017, task="splice"))["NC2017-splice/boatfill"].mask
        filled, base = (
            cv2.imread(str(sample / "probe" / name)).astype(int)
            for name in ("boatfill.jpg", "boat-base.jpg")
        )
        change = np.abs(filled - base).max(axis=2)
        assert np.median(change[mask]) > 50
        assert np.median(change[~mask]) < 10
        assert mask.mean() == pytest.approx(0.0071, abs=1e-4)

    def test_the_papers_collection(self, sample):
        photos = nimble(sample, collection="Nimble-WEB")
        assert {s.name: s.authentic for s in photos} == {
            "NC2016-manipulation/morelight": False,
            "NC2016-manipulation/foo": True,
            "NC2017-manipulation/43e1d6f0a9306a629a51062729549d76-3": False,
            "NC2016-splice/gullflower": False,
        }
        found = reasons(photos)
        lost = "NC2017-manipulation/07e65ca7be451f9fc756e9cc7a458eb6"
        assert found[lost] == "probe/07e65ca7be451f9fc756e9cc7a458eb6.jpg is missing"
        assert found["NC2017-splice"] == "NC2017-splice-ref.csv has no column Collection"
        assert "not in the reference" in found["NC2016-removal/boatfill"]

    def test_everything_that_is_there_can_be_read(self, sample):
        problems = []
        photos = nimble(sample)
        assert len(list(read_samples(photos, problems))) == len(photos) == 12
        assert problems == []
        assert len({s.name for s in photos}) == 12

    def test_year_and_task(self, sample):
        assert [s.name for s in nimble(sample, year=2016, task="Splice")] == [
            "NC2016-splice/gullflower",
            "NC2016-splice/gullflower2",
        ]
        with pytest.raises(FileNotFoundError, match="task='removal'; it has NC2016-man"):
            nimble(sample, year=2016, task="removal")


HEADER = "ProbeFileID|ProbeFileName|IsTarget|ProbeMaskFileName"
MASKS = "reference/splice/mask"


@pytest.fixture
def write(tmp_path, save):
    """Write a reference with these rows, and return its folder."""

    def made(*rows, header=HEADER, name="splice/NC2016-splice-ref.csv", encoding="utf-8"):
        path = tmp_path / "reference" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([header, *rows]), encoding=encoding)
        save(tmp_path / "probe/one.png")
        return tmp_path

    return made


def test_rows_of_several_donors_are_put_together(write, save, half):
    left = np.where(half, 255, 0).astype(np.uint8)
    top = np.full((8, 12), 255, dtype=np.uint8)
    top[:2] = 0
    header = HEADER + "|DonorFileID"
    folder = write(
        f"one|probe/one.png|Y|{MASKS}/left.png|a",
        "one|probe/one.png|N||b",
        f"one|probe/one.png|Y|{MASKS}/top.png|c",
        header=header,
    )
    save(folder / MASKS / "left.png", left)
    save(folder / MASKS / "top.png", top)
    (photo,) = nimble(folder)
    assert not photo.authentic
    np.testing.assert_array_equal(photo.mask, ~half | (np.arange(8) < 2)[:, None])


def test_only_white_is_untouched(write, save):
    pixels = np.full((8, 12, 3), 255, dtype=np.uint8)
    pixels[0, :4] = [[0, 0, 0], [255, 255, 127], [255, 0, 0], [254, 254, 254]]
    folder = write(f"one|probe/one.png|Y|{MASKS}/m.png")
    save(folder / MASKS / "m.png", pixels)
    assert np.flatnonzero(nimble(folder)[0].mask).tolist() == [0, 1, 2, 3]


def test_a_binary_mask_goes_before_a_coloured_one(write, save, half):
    header = HEADER + "|BinaryProbeMaskFileName"
    folder = write(f"one|probe/one.png|Y|{MASKS}/c.png|{MASKS}/b.png", header=header)
    save(folder / MASKS / "c.png", (255, 0, 0))
    save(folder / MASKS / "b.png", np.where(half, 0, 255).astype(np.uint8))
    np.testing.assert_array_equal(nimble(folder)[0].mask, half)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("one|probe/none.png|N|", "probe/none.png is missing"),
        (f"one|probe/one.png|Y|{MASKS}/none.png", f"{MASKS}/none.png is missing"),
        ("one|probe/one.png|Y|", "the reference names no mask file"),
        ("one||N|", "the reference names no probe file"),
        ("one|../one.png|N|", "../one.png lies outside the folder of the data set"),
        ("one|/etc/one.png|N|", "/etc/one.png lies outside the folder of the data set"),
        (f"one|probe/one.png|Y|{MASKS}/m.jp2", "bit planes in JPEG 2000, which are not read"),
        (f"one|probe/one.png|Y|{MASKS}/small.png", "its mask has 6 × 4 pixels, the photo 12 × 8"),
    ],
)
def test_rows_that_cannot_be_used(write, save, row, reason):
    folder = write(row)
    save(folder / MASKS / "small.png", 0, size=(6, 4))
    photos = nimble(folder)
    assert len(photos) == 0
    assert reason in reasons(photos)["NC2016-splice/one"]


def test_tables_that_cannot_be_used(write):
    folder = write("one|probe/one.png", header="ProbeFileID|ProbeFileName")
    write("one|probe/one.png|N|")  # good, in another place
    write("x", header="\x00", name="splice/NC2017-splice-ref.csv")
    (folder / "reference/splice/NC2018-splice-ref.csv").write_bytes(b"\xff\xfe\x00")
    photos = nimble(folder)
    assert [s.name for s in photos] == ["NC2016-splice/one"]
    found = reasons(photos)
    assert "has no column" in found["NC2017-splice"] or "can't be read" in found["NC2017-splice"]
    assert "NC2018-splice-ref.csv can't be read as a table" in found["NC2018-splice"]


def test_names_of_later_years_and_a_byte_order_mark(write):
    folder = write(
        "one|probe/one.png|N|",
        name="manipulation/MFC18_Dev1-manipulation-ref.csv",
        encoding="utf-8-sig",
    )
    assert [s.name for s in nimble(folder, year=2018)] == ["MFC18_Dev1-manipulation/one"]


def test_a_folder_without_references(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"it needs reference/TASK/\*-ref.csv"):
        nimble(tmp_path)
