"""What a notebook shows of a result."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from cpcapp.splicing import Localization, load_model
from cpcapp.splicing.decide.verdict import Rank
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.output.draw import draw_localization
from pages import Page


@pytest.fixture(scope="module")
def photo():
    return example_photos()[1].image


@pytest.fixture(scope="module")
def found(photo):
    """Signs, whatever the model says."""
    found = load_model("filters").localize(photo)
    return replace(found, rank=Rank(0.01, 3, 620), calibrated=True)


def test_the_pixels_are_kept_and_not_copied(found, photo):
    assert np.shares_memory(found.pixels, photo)
    assert found.threshold == load_model("filters").threshold
    assert "pixels" not in repr(found)


class TestPlot:
    def test_photo_seam_and_part(self, found, photo):
        figure = found.plot()
        assert [axes.get_title() for axes in figure.axes] == [
            *("The photo", "The likely seam", "The likely part")
        ]
        shown = [axes.images[0].get_array() for axes in figure.axes]
        np.testing.assert_allclose(shown[0], photo / 255, atol=1e-6)
        np.testing.assert_array_equal(
            shown[1], draw_localization(photo, found, load_model("filters").threshold)
        )
        assert figure.get_suptitle() == "signs of splicing, p = 0.01"
        figure.savefig(io.BytesIO(), dpi=40)

    def test_without_signs_there_is_no_part(self, found):
        assert len(replace(found, rank=Rank(0.5, 310, 620)).plot().axes) == 2

    def test_without_matplotlib(self, found, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        with pytest.raises(ImportError, match=r"needs matplotlib; .*'cpcapp\[plot\]'"):
            found.plot()


class TestSave:
    def test_pictures_of_the_command(self, found, tmp_path):
        written = found.save(tmp_path / "new", name="cup")
        assert [path.name for path in written] == [
            *("cup.overlay.png", "cup.boundary.png", "cup.region.png")
        ]
        with Image.open(written[2]) as region:
            np.testing.assert_array_equal(np.asarray(region) > 0, found.mask)
        assert found.save(tmp_path / "new", name="cup") == written

    @pytest.mark.parametrize("name", ["", "../cup", "a/b"])
    def test_names_with_a_folder(self, found, tmp_path, name):
        with pytest.raises(ValueError, match=r"name=.* must be a name of a file, without a folder"):
            found.save(tmp_path, name=name)
        assert list(tmp_path.iterdir()) == []


class TestRepresentation:
    def test_html_has_picture_and_verdict(self, found):
        page = Page(found._repr_html_())
        assert page.sources[0].startswith("data:image/png;base64,")
        assert "There are signs of splicing: 3 of 620 genuine photos" in page.text

    def test_png_is_the_overlay(self, found):
        with Image.open(io.BytesIO(found._repr_png_())) as picture:
            np.testing.assert_array_equal(
                np.asarray(picture), draw_localization(found.pixels, found, found.threshold)
            )

    def test_large_photos_are_made_smaller(self):
        flat = np.zeros((1000, 2000), np.float32)
        found = Localization(flat, pixels=np.zeros((1000, 2000, 3), np.uint16))
        with Image.open(io.BytesIO(found._repr_png_())) as picture:
            assert picture.size == (800, 400)


def test_without_pixels():
    flat = np.zeros((80, 90), np.float32)
    found = Localization(flat)
    assert found._repr_html_() is None
    assert found._repr_png_() is None
    with pytest.raises(ValueError, match="there is no photo to draw on"):
        found.plot()
    with pytest.raises(ValueError, match="there is no photo to draw on"):
        found.save("nowhere")
