from __future__ import annotations

import pytest

from cpcapp.splicing.datasets.sources import open_sources


def test_photos_of_one_name_in_two_folders(tmp_path, save):
    save(tmp_path / "a/one.png")
    save(tmp_path / "b/one.png")
    save(tmp_path / "b/two.png")
    sources = open_sources([tmp_path / "a", tmp_path / "b", tmp_path / "a"])
    folders = [(tmp_path / name / "one.png").as_posix() for name in "ab"]
    assert [source.name for source in sources] == [*folders, "two.png"]
    assert sources[0].read().shape == (8, 12, 3)


def test_photos_must_lie_outside_the_folder_of_the_splices(tmp_path, save):
    save(tmp_path / "out/images/one.png")
    with pytest.raises(ValueError, match=r"one\.png lies in .*out; choose another folder"):
        open_sources([tmp_path / "out/images"], outside=tmp_path / "out")
    assert len(open_sources([tmp_path / "out/images"], outside=tmp_path / "elsewhere")) == 1
