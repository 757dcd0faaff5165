"""The report on a photo, as a page and as PDF."""

from __future__ import annotations

import base64
import hashlib
import io
import shlex
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from cpcapp import __version__
from cpcapp.splicing import Localization, load_model, read_image
from cpcapp.splicing.decide.verdict import Rank
from cpcapp.splicing.decide.words import explain_limits, explain_verdict, verdict_sentence
from cpcapp.splicing.examples import example_photos, read_example
from cpcapp.splicing.output.report import PhotoReport
from cpcapp.splicing.output.views import TraceView
from cpcapp.splicing.photo.file_facts import FileFacts
from cpcapp.splicing.photo.thumbnails import Thumbnail
from pages import Page, pdf_text

NAME = "cup-in-the-sky.png"
MODEL = {"name": "filters", "version": "0.1", "sha256": "ab" * 32}
EVIL = ["<script>x</script>.jpg", '"onmouseover="alert(1)".jpg', "'; rm -rf ~ #.jpg", "-o.jpg"]


FACTS = FileFacts(
    *("PNG", 640, 427, 1, hashlib.sha256(read_example(NAME)).hexdigest(), "cd" * 16),
    camera="A <camera> & more",
    warnings=("Saved by Adobe Photoshop 25.0.",),
    remarks=("Saved by Adobe Photoshop 25.0.", "It has a <remark>."),
)
VIEWS = (
    TraceView("noise", "Noise", "Bright where it is strong.", np.full((40, 60, 3), 90, np.uint8)),
    TraceView("error_level", "Error level", "At quality 90.", np.full((9, 9, 3), 90, np.uint8)),
    TraceView("jpeg_grid", "JPEG grid", "", None, "This photo is no JPEG."),
)


@pytest.fixture(scope="module")
def found():
    """Signs, whatever the model says."""
    found = load_model("filters").localize(example_photos()[1].photo)
    return replace(found, rank=Rank(0.01, 3, 620), calibrated=True)


def build(found, name=NAME, **changes):
    image = replace(example_photos()[1].photo, name=name)
    options = {"facts": FACTS, "views": VIEWS, "model_identity": MODEL, **changes}
    return PhotoReport(image, found, **options)


@pytest.fixture(scope="module")
def report(found):
    return build(found)


def pack(text):
    return "".join(text.split())


def decode(source):
    head, _, data = source.partition(",")
    assert head == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        return np.asarray(image).astype(int)


def said(report, found):
    """Everything that both forms of a report say."""
    return [
        NAME,
        verdict_sentence(found),
        explain_verdict(found),
        *explain_limits(found),
        *("Saved by Adobe Photoshop 25.0.", "It has a <remark>.", "A <camera> & more"),
        *("Bright where it is strong.", "At quality 90.", "This photo is no JPEG."),
        *("Salloum", "arXiv:1901.07172"),
        *(FACTS.sha256, FACTS.md5, "640 × 427 pixels"),
        *MODEL.values(),
        *(__version__, np.__version__, report.made, report.command),
        *("UTC", "signs of splicing", f"{found.p_value:.6g}"),
    ]


@pytest.mark.parametrize(
    "read",
    [lambda report: pack(Page(report.html()).text), lambda report: pdf_text(report.pdf())],
    ids=["page", "pdf"],
)
class TestBothForms:
    def test_they_say_everything(self, report, found, read):
        text = read(report)
        for sentence in said(report, found):
            assert pack(sentence) in text, sentence

    def test_warnings_about_the_file_stand_below_the_verdict(self, report, found, read):
        warning = "Saved by Adobe Photoshop 25.0."
        parts = (verdict_sentence(found), warning, explain_verdict(found))
        places = [read(report).index(pack(sentence)) for sentence in parts]
        assert places == sorted(places)

    @pytest.mark.parametrize("differs", [True, False])
    def test_a_preview_of_another_picture_is_shown(self, found, read, differs):
        small = np.full((12, 16, 3), (250, 0, 0), np.uint8)
        report = build(found, facts=replace(FACTS, thumbnail=Thumbnail(small, differs, 9.0)))
        assert ("Thepreviewinside" in read(report)) == differs
        assert report.html().count("data:image/png") == differs


class TestPage:
    def test_it_needs_nothing_else(self, report):
        page = Page(report.html())
        page.check_policy()
        assert page.scripts == page.links == []
        assert page.policy["img-src"] == "data:"
        assert len(page.sources) == 5
        assert all(source.startswith("data:image/jpeg;base64,") for source in page.sources)

    def test_pictures_are_the_photo_the_seam_and_the_part(self, report, found):
        photo, overlay, part, *_ = map(decode, Page(report.html()).sources)
        pixels = example_photos()[1].image.astype(int)
        assert np.abs(photo - pixels).mean() < 4
        assert overlay.shape == pixels.shape
        yellow = (overlay[..., 0] > 200) & (overlay[..., 2] < 180) & (overlay[..., 1] > 200)
        near = found.boundary[yellow].mean()
        assert near > 3 * found.boundary.mean()
        pink = (part[..., 0] - part[..., 1] > 70) & (part[..., 2] > part[..., 1] + 25)
        assert (pink & found.mask).sum() > 0.7 * (pink | found.mask).sum()

    @pytest.mark.parametrize("name", EVIL)
    def test_names_of_strangers(self, found, name):
        facts = replace(FACTS, remarks=(name,), camera=name)
        views = [replace(VIEWS[0], title=name, text=name), replace(VIEWS[2], note=name)]
        page = Page(build(found, name, facts=facts, views=views).html())
        page.check_policy()
        assert page.text.count(name) >= 7
        assert not page.scripts

    def test_without_signs_no_part_is_shown(self, found):
        page = Page(build(replace(found, rank=Rank(0.6, 372, 620))).html())
        assert "No signs of splicing were found: 372 of 620 genuine photos" in page.text
        assert "No part is marked, as there are no signs" in page.text
        assert len(page.sources) == 4

    def test_large_photos_are_made_smaller(self):
        pixels = np.random.default_rng(0).integers(0, 65535, (1500, 3000, 3), dtype=np.uint16)
        flat = np.zeros((1500, 3000), np.float32)
        image = replace(read_image(pixels), name="deep.png")
        report = PhotoReport(image, Localization(flat), FACTS, VIEWS, MODEL)
        assert decode(Page(report.html()).sources[0]).shape == (700, 1400, 3)
        labels = [label for label, _ in report.tables["The photo"]]
        assert labels == ["File", "Format", "Size", "SHA-256", "When it was read"]


class TestPdf:
    def test_it_is_of_this_photo(self, report, found):
        other = build(replace(found, rank=Rank(0.11, 70, 620)))
        assert "70of620" in pdf_text(other.pdf())
        assert "70of620" not in pdf_text(report.pdf())

    @pytest.mark.parametrize("name", [*EVIL, "Фото.jpg", "caf\udce9\n.jpg", "a" * 250])
    def test_any_name(self, found, name):
        text = pdf_text(build(found, name).pdf())
        shown = name.encode("unicode_escape").decode() if "\n" in name else name
        assert pack(shown) in text

    def test_pictures_are_inside(self, report):
        assert report.pdf().count(b"/Subtype /Image") == 5
        assert pdf_text(report.pdf()).count("Thelikelypart") == 1


class TestRepeating:
    @pytest.mark.parametrize("name", [NAME, *EVIL])
    def test_the_command_is_safe_to_paste(self, found, name):
        command = shlex.split(build(found, name).command)
        assert command[:2] == ["cpcapp", "localize"]
        assert command[2].removeprefix("./") == name
        assert not command[2].startswith("-")
        assert command[3:] == ["--model", "filters", "--report"]

    def test_a_model_of_the_user(self, found):
        report = build(found, model="my model.safetensors")
        assert "--model 'my model.safetensors'" in report.command
        assert ("Model", "my model.safetensors") in report.tables["The settings"]

    def test_the_same_bytes_at_a_given_time(self, found, monkeypatch):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        one, other = build(found), build(found)
        assert one.made == "2023-11-14 22:13:20 UTC"
        assert one.html() == other.html()
        assert one.pdf() == other.pdf()
