"""The documentation as it is built: whole without a network."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SPACE = "{http://www.w3.org/1998/Math/MathML}"

pytest.importorskip("sphinx")


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def mathml():
    return load(DOCS / "_extensions" / "mathml.py")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The settings and the extension of the documentation, with one page that has all it needs."""
    source, output = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("html")
    formula = r"$$\underbrace{\lVert F^\top x\rVert^2}_{\text{power}} = \tilde Z_f$$"
    (source / "index.md").write_text(f"# Page\n\n{formula}\n\nOf $R_b^{{-1}}$.\n", encoding="utf-8")
    for name in ("conf.py", "_extensions", "_static", "_templates"):
        (source / name).symlink_to(DOCS / name)
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(source), str(output)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return output


def test_a_page_loads_nothing_from_another_host(built):
    page = (built / "index.html").read_text(encoding="utf-8")
    loaded = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", page)
    assert any("pages.css" in tag for tag in loaded)
    assert not [tag for tag in loaded if re.search(r"""(?:src|href)=["'](?:https?:)?//""", tag)]
    for style in built.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text("utf-8"))


def test_formulas_need_no_script(built):
    page = (built / "index.html").read_text(encoding="utf-8")
    assert page.count("<math ") == 2
    assert r"\underbrace" not in page


@pytest.mark.parametrize(
    "page", sorted([*DOCS.glob("*.md"), *DOCS.glob("gallery/*.md")]), ids=lambda path: path.name
)
def test_pictures_of_a_page_are_in_the_repository(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"!\[.*?\]\(([^)\s]+)\)", text):
        assert (page.parent / target).is_file()


def test_the_pictures_of_the_guide_can_be_drawn_again(tmp_path):
    load(DOCS / "make_guide_pictures.py").main(["-o", str(tmp_path)])
    drawn = {path.name for path in tmp_path.iterdir()}
    guide = (DOCS / "guide.md").read_text(encoding="utf-8")
    assert drawn == set(re.findall(r"\(images/(guide-.+?)\)", guide))
    assert all((DOCS / "images" / name).is_file() for name in drawn)


def tags(element):
    """The tree of an element as nested tuples, names only."""
    return (element.tag.removeprefix(SPACE), *map(tags, element))


def parse(mathml, formula):
    return ET.fromstring(mathml.to_mathml(formula))


def test_the_label_of_a_brace_is_below_it(mathml):
    tree = tags(parse(mathml, r"\underbrace{x}_{\text{a}}"))
    assert tree == ("math", ("munder", ("munder", ("mi",), ("mo",)), ("mtext",)))


def test_the_index_of_a_letter_with_an_accent_is_beside_it(mathml):
    tree = tags(parse(mathml, r"\tilde Z_f"))
    assert tree == ("math", ("msub", ("mover", ("mi",), ("mo",)), ("mi",)))
    assert tags(parse(mathml, r"\sum_k^n x"))[1][0] == "munderover"  # limits stay


def test_space_after_a_function_and_none_about_a_slash(mathml):
    spaces = [mark.get("rspace") for mark in parse(mathml, r"\log b + \log(b) / 2").iter()]
    assert spaces.count("0.1667em") == 1
    assert spaces.count("0") == 1


@pytest.mark.parametrize("formula", [r"\nosuch{x}", r"\frac{a"])
def test_a_formula_that_cannot_be_converted_is_an_error(mathml, formula):
    from docutils.utils.math import MathError

    with pytest.raises(MathError):
        mathml.to_mathml(formula)
