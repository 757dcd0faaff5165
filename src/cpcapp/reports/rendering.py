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
    """Return a page.

    Text is escaped. A value that a template asks for and does not get is an error.

    Parameters
    ----------
    name : str
        Of a template in ``reports/templates``.
    **values
        What the template shows.

    Returns
    -------
    str

    Raises
    ------
    ModuleNotFoundError
        Without Jinja, which comes with the extra ``splicing``.

    Examples
    --------
    >>> page = render("page.html", title="<b>", generator="cpcapp", text=["1 < 2"])
    >>> "<title>&lt;b&gt;</title>" in page, "<p>1 &lt; 2</p>" in page
    (True, True)
    """
    page: str = _environment().get_template(name).render(values)
    return page


def data_uri(content: bytes) -> str:
    """Return a picture as an address that contains it.

    Parameters
    ----------
    content : bytes
        Of a PNG or JPEG file.

    Examples
    --------
    >>> data_uri(bytes.fromhex("89504e470d0a1a0a"))
    'data:image/png;base64,iVBORw0KGgo='
    """
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
    environment.globals.update(
        inline=lambda name: Markup(_read_inline(name)),
        policy=_policy,
    )
    return environment


@cache
def _read_inline(name: str) -> str:
    """Return a style sheet or a script that a page contains."""
    text = files("cpcapp.reports").joinpath("templates", name).read_text("utf-8")
    # It could end the element that it stands in.
    assert "</" not in text
    return text


def _policy(images: str, *scripts: str) -> str:
    """Return a content security policy.

    Parameters
    ----------
    images : str
        From where pictures may come.
    *scripts : str
        Files that the page contains.
    """
    allowed = " ".join(_hash_of(name) for name in scripts)
    parts = [
        "default-src 'none'",
        f"img-src {images}",
        f"style-src {_hash_of('style.css')}",
        *([f"script-src {allowed}"] if allowed else []),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(parts)


def _hash_of(name: str) -> str:
    digest = hashlib.sha256(_read_inline(name).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
