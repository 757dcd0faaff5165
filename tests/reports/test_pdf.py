"""PDF documents: every text is there, whatever it is."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from reportlab import rl_config

from cpcapp.reports import fonts
from cpcapp.reports.pdf import PdfDocument, has_reportlab, require_reportlab
from cpcapp.reports.pictures import encode_jpeg
from pages import pdf_text


def pack(text):
    return "".join(text.split())


def written(*texts, add="add_text"):
    document = PdfDocument("title", "footer")
    for text in texts:
        getattr(document, add)(text)
    return pdf_text(document.to_bytes())


@pytest.fixture
def few_fonts(monkeypatch):
    """Only those that come with reportlab."""

    def clear():
        for function in (fonts.main_font, fonts._system_fonts):
            function.cache_clear()

    whole = fonts.find_spec
    monkeypatch.setattr(
        fonts, "find_spec", lambda name: whole(name) if name == "reportlab" else None
    )
    monkeypatch.setattr(fonts, "_SYSTEM_FOLDERS", ())
    clear()
    yield
    clear()


def test_bytes_are_written_as_they_are(rng):
    """As ASCII they take a quarter more room, and most of the time."""
    picture = encode_jpeg(rng.integers(0, 256, (90, 120, 3), dtype=np.uint8), 120)
    document = PdfDocument("title", "footer")
    document.add_pictures([(picture, "noise", "")])
    found = document.to_bytes()
    assert picture.content in found
    assert b"ASCII85" not in found
    # The setting is reportlab's, and others may count on it.
    assert rl_config.useA85 == 1


@pytest.mark.parametrize(
    "text",
    [
        "plain words",
        "<b>bold</b> & <para> <img src='http://example.org/x.png'/> &amp; &#65;",
        "</para><script>x</script>",
        "Müller, Łódź, Фото, Ελληνικά, 1 − p, “quoted”, …",
        r"back\slash and (brackets)",
    ],
)
def test_texts_are_shown_as_they_are(text):
    assert pack(text) in written(text)
    assert pack(text) in written(text, add="add_code")
    assert pack(text) in written(text, add="add_heading")


def test_characters_that_no_font_has_are_shown_as_codes(few_fonts):
    assert fonts.main_font() == "cpcapp-Vera"
    assert r"M\u0444ller" in written("Mфller")
    assert "Müller" in written("Müller")
    assert r"\U0001f600.jpg" in written("\U0001f600.jpg")


def test_names_that_are_no_text_or_have_control_characters():
    assert r"caf\udce9\n\x00\u202etxt.jpg" in written("caf\udce9\n\x00\u202etxt.jpg")


def test_a_document_without_any_font(few_fonts, monkeypatch):
    monkeypatch.setattr(fonts, "find_spec", lambda name: None)
    fonts.main_font.cache_clear()
    assert fonts.main_font(bold=True) == "Helvetica-Bold"
    assert r"caf\xe9" in written("café")


def test_damaged_fonts_of_the_system_are_passed_over(few_fonts, monkeypatch, tmp_path):
    (tmp_path / "DejaVuSans.ttf").write_bytes(b"no font")
    monkeypatch.setattr(fonts, "_SYSTEM_FOLDERS", (str(tmp_path),))
    fonts._system_fonts.cache_clear()
    assert r"\u0444" in written("ф")


def test_texts_longer_than_a_page():
    text = " ".join(f"word{i}" for i in range(1200))
    document = PdfDocument("title", "footer")
    document.add_rows([("label", text), ("unbroken", "x" * 6_000)])
    document.add_callout(text, "#000000")
    document.add_list([text])
    found = pdf_text(document.to_bytes())
    assert found.count("word1199") == 3
    assert found.count("x") > 6_000 - 1
    assert "footerpage4" in found


@pytest.mark.parametrize("shape", [(30, 40), (2000, 3), (3, 2000)])
def test_pictures_of_any_shape_beside_each_other(shape):
    picture = encode_jpeg(np.full((*shape, 3), 99, np.uint8), 1400)
    document = PdfDocument("title", "footer")
    document.add_pictures([(picture, f"title {i}", "<text>") for i in range(5)])
    content = document.to_bytes()
    found = pdf_text(content)
    assert [f"title{i}" in found for i in range(5)] == [True] * 5
    assert found.count("<text>") == 5
    assert len(re.findall(rb"/Subtype /Image", content)) >= 1


def test_nothing_at_all():
    document = PdfDocument("title", "footer")
    document.add_rows([])
    document.add_list([])
    document.add_pictures([])
    document.add_text("")
    assert document.to_bytes().startswith(b"%PDF-")


def test_threads_do_not_mix_their_texts():
    def make(number):
        return written(*(f"Фото {number}-{i}" for i in range(20)))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(make, range(8)))
    for number, text in enumerate(found):
        assert re.findall(r"Фото(\d)-", text) == [str(number)] * 20


def test_without_reportlab(monkeypatch):
    assert has_reportlab()
    monkeypatch.setitem(sys.modules, "reportlab", None)
    assert not has_reportlab()
    with pytest.raises(ImportError, match=r"needs reportlab; .*pip install 'cpcapp\[report\]'"):
        require_reportlab()
