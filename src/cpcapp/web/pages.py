"""Pages of the server: templates in, HTML out."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from cpcapp import __version__


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("cpcapp.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render_page(template: str, **values: Any) -> HTMLResponse:
    """Return a page."""
    page = _environment().get_template(template).render(version=__version__, **values)
    return HTMLResponse(page)
