"""The application: routes, errors and safety put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from cpcapp import __version__
from cpcapp.web.errors import add_error_handlers
from cpcapp.web.jobs import JobQueue
from cpcapp.web.routes import make_job_routes, make_photo_routes, make_table_routes
from cpcapp.web.security import (
    AllowedHosts,
    AnswerHeaders,
    Check,
    CloseUnread,
    LoadLimit,
    check_origin,
)

_DESCRIPTION = """Find where a photo was spliced, and what is special about one table against
another. Everything runs on the computer of the server. Every answer that is not a success has the
form `{"error": {"code", "message", "help"}}`."""


def make_app(jobs: JobQueue) -> ASGIApp:
    """Return the application of a server."""

    @asynccontextmanager
    async def run_workers(_: FastAPI) -> AsyncIterator[None]:
        await jobs.start()
        try:
            yield
        finally:
            await jobs.stop()

    # The pages of documentation that come with FastAPI load scripts from elsewhere.
    app = FastAPI(
        title="cpcapp",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=run_workers,
    )
    add_error_handlers(app)
    app.include_router(make_photo_routes(jobs))
    app.include_router(make_job_routes(jobs))
    app.include_router(make_table_routes(jobs))
    app.mount("/static", _Static(directory=Path(str(files("cpcapp.web"))) / "static"))
    # The last one added is asked first.
    app.add_middleware(LoadLimit)
    app.add_middleware(Check, check=check_origin)
    hosts = AllowedHosts(jobs.settings.host, jobs.settings.names)
    app.add_middleware(Check, check=hosts.check)
    # Around the application, as its answers to faults pass no middleware.
    return AnswerHeaders(CloseUnread(app))


class _Static(StaticFiles):
    """Scripts and styles: a browser asks each time whether they have changed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response
