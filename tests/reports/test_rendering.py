"""Templates: everything is escaped, and a browser may load nothing else."""

from __future__ import annotations

from importlib.resources import files

import pytest
from jinja2 import UndefinedError

from cpcapp.reports import data_uri, render
from cpcapp.reports.rendering import _environment
from pages import Page

EVIL = ["<script>x</script>", '"onmouseover="alert(1)', "a & b", "{{ 7 * 7 }}", "</style><b>"]


def test_text_stays_text():
    page = Page(render("page.html", title=EVIL[0], generator=EVIL[1], text=EVIL))
    for text in EVIL:
        assert text in page.text
    assert page.metas["generator"]["content"] == EVIL[1]
    assert [tag for tag, _ in page.tags if tag in ("script", "b")] == []


def test_a_value_that_is_missing_is_an_error():
    with pytest.raises(UndefinedError, match="'text' is undefined"):
        render("page.html", title="", generator="")


def test_the_policy_names_the_style_that_is_inside():
    page = Page(render("page.html", title="", generator="", text=[]))
    page.check_policy()
    assert page.policy["img-src"] == "data:"
    assert "script-src" not in page.policy


def test_all_templates_are_in_the_package_and_can_be_read():
    names = {file.name for file in files("cpcapp.reports").joinpath("templates").iterdir()}
    assert {"base.html", "photo.html", "index.html", "style.css", "results.js"} <= names
    for name in names:
        if name.endswith(".html"):
            _environment().get_template(name)


def test_one_style_for_every_width_and_both_schemes_and_paper():
    style = files("cpcapp.reports").joinpath("templates", "style.css").read_text("utf-8")
    for query in ("prefers-color-scheme: dark", "max-width: 45rem", "@media print"):
        assert query in style
    assert style.count("{") == style.count("}")


@pytest.mark.parametrize(("start", "kind"), [("89504e47", "png"), ("ffd8ffe0", "jpeg")])
def test_addresses_that_contain_a_picture(start, kind):
    assert data_uri(bytes.fromhex(start)).startswith(f"data:image/{kind};base64,")
