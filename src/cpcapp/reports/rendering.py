"""HTML pages from templates.

Every page carries its style in itself and a policy that lets a browser load nothing else: no
script but the one whose hash is named, and no picture from a network.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any


def render(name: str, **values: Any) -> str:
    """Return a page from a template of ``reports/templates``, with text escaped.

    A value that the template asks for and does not get is an error.
    """
    page: str = _environment().get_template(name).render(values)
    return page


def data_uri(content: bytes) -> str:
    """Return a PNG or JPEG file as an address that contains it."""
    kind = "png" if content.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


@cache
def _environment() -> Any:
    # Here, as a photo can be looked at without it.
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("cpcapp.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(inline=lambda name: Markup(_read_inline(name)), policy=_policy)
    return environment


@cache
def _read_inline(name: str) -> str:
    """Return a style sheet or a script that a page contains."""
    text = files("cpcapp.reports").joinpath("templates", name).read_text("utf-8")
    # It could end the element that it stands in.
    assert "</" not in text
    return text


def _policy(images: str, *scripts: str) -> str:
    """Return a content security policy: whence pictures may come, and scripts that are inside."""
    allowed = "".join(f" {_hash_of(name)}" for name in scripts)
    return (
        f"default-src 'none'; img-src {images}; style-src {_hash_of('style.css')}; "
        + (f"script-src{allowed}; " if allowed else "")
        + "base-uri 'none'; form-action 'none'"
    )


def _hash_of(name: str) -> str:
    digest = hashlib.sha256(_read_inline(name).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
