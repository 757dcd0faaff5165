"""A Sphinx extension that writes formulas as MathML, which browsers draw by themselves.

Docutils converts them when the pages are built. No script and no font is loaded, so the pages are
whole without a network. A formula that can't be converted is a warning that names its place, and
``make docs`` makes an error of it.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html import escape
from itertools import pairwise
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
BRACES = ("\N{BOTTOM CURLY BRACKET}", "\N{TOP CURLY BRACKET}")
APPLIED = "\N{FUNCTION APPLICATION}"

_logger = logging.getLogger(__name__)


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(rendered(node, as_block=False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{rendered(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def rendered(node: nodes.Element, *, as_block: bool) -> str:
    """Return the formula of a node as MathML; if that fails, warn and return its source."""
    try:
        return to_mathml(node.astext(), as_block=as_block)
    except MathError as error:
        _logger.warning("formula %r: %s", node.astext(), error, location=node)
        return f"<code>{escape(node.astext())}</code>"


def to_mathml(formula: str, *, as_block: bool = False) -> str:
    """Convert a formula of LaTeX; raise MathError if it can't be done."""
    groups = re.sub(r"\\[{}]", "", formula)
    if groups.count("{") != groups.count("}"):
        raise MathError("its braces do not match")
    text = tex2mathml(formula, as_block=as_block)
    # The only name among the entities, which XML does not know.
    root = ET.fromstring(text.replace("&ApplyFunction;", APPLIED))
    for element in list(root.iter()):
        _move_label(element)
        _move_index(element)
        _space_functions(element)
        _set_operator(element)
    ET.register_namespace("", NAMESPACE)
    return ET.tostring(root, encoding="unicode")


def _move_label(element: ET.Element) -> None:
    """Set the label of a brace below (or above) it: docutils sets it beside, as an index."""
    for script, placed in (("msub", "munder"), ("msup", "mover")):
        if element.tag == f"{{{NAMESPACE}}}{script}" and len(element):
            base = element[0]
            if base.tag == f"{{{NAMESPACE}}}{placed}" and base[-1].text in BRACES:
                element.tag = base.tag


def _move_index(element: ET.Element) -> None:
    """Set the index of a letter with an accent beside it: docutils sets it below the letter."""
    if element.tag == f"{{{NAMESPACE}}}munderover" and element[2].get("stretchy") == "false":
        letter, index, accent = element
        element.tag = f"{{{NAMESPACE}}}msub"
        whole = ET.Element(f"{{{NAMESPACE}}}mover", {"accent": "true"})
        whole.extend([letter, accent])
        element[:] = [whole, index]


def _space_functions(element: ET.Element) -> None:
    """Set a thin space after the name of a function, as in TeX, unless a bracket follows."""
    for sign, argument in pairwise(element):
        if sign.text == APPLIED and (argument.text or "").strip() not in ("(", "[", "{"):
            sign.set("rspace", "0.1667em")


def _set_operator(element: ET.Element) -> None:
    """Keep the two bars of a norm alike, and set no space about a slash, as TeX does."""
    if element.text == "\N{DOUBLE VERTICAL LINE}" and "minsize" not in element.attrib:
        element.set("stretchy", "false")
    elif element.text == "/":
        element.set("lspace", "0")
        element.set("rspace", "0")
