"""How Sphinx builds this documentation: ``make docs``. Nothing is read from the network."""

import re
import sys
from pathlib import Path
from typing import Any

import cpcapp

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "cpcapp"
author = "The cpcapp developers"
copyright = "The cpcapp developers"
version = release = cpcapp.__version__

extensions = [
    "mathml",  # of the folder _extensions
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
]
html_math_renderer = "mathml"
exclude_patterns = ["_build"]
templates_path = ["_templates"]

myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings give the types, in words
numpydoc_show_class_members = False  # the template does
default_role = "py:obj"
highlight_language = "text"  # folder trees and commands; Python says that it is Python

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_title = f"cpcapp {release}"

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"


def keep_only_own_methods(
    app: Any, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn adds, and attributes: the class docstring lists those."""
    own = getattr(obj, "__module__", None) or ""
    return None if callable(obj) and own.startswith("cpcapp") and not skip else True


def escape_fitted_names(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Keep ``n_components_`` in the type of a parameter from being read as a link."""
    for i, line in enumerate(lines):
        if re.match(r"[\w, ]+ : ", line):
            head, _, kind = line.partition(" : ")
            lines[i] = head + " : " + re.sub(r"(?<=\w)_(?!\w)", r"\_", kind)


def explain_missing_results(app: Any, docname: str, source: list[str]) -> None:
    """Put a line in the place of benchmark results that have not been measured yet."""
    pages = {
        "benchmarks": "estimators.md",
        "edges": "edges.md",
        "splicing-method": "splicing.md",
    }
    name = pages.get(docname)
    if name is not None and not (RESULTS / name).exists():
        head, _, rest = source[0].partition("```{include}")
        source[0] = head + "*Not measured in this copy yet.*" + rest.partition("```")[2]


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.connect("autodoc-skip-member", keep_only_own_methods)
    app.connect("autodoc-process-docstring", escape_fitted_names, priority=1)  # before numpydoc
    app.connect("source-read", explain_missing_results)
