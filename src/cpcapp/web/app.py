"""The application: routes, errors and safety put together."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from cpcapp import __version__
from cpcapp.web.errors import PageError, invalid_request
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
# What a client can do about an error of the framework.
_HELP = {
    404: "Check the address. Results are removed after a while: then send the file again.",
    405: "The list of what can be asked is at /api/openapi.json.",
}


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
    _add_error_handlers(app)
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


def _add_error_handlers(app: FastAPI) -> None:
    """Let every error of the application have the same shape."""

    @app.exception_handler(PageError)
    async def answer_page_error(_: Request, error: PageError) -> JSONResponse:
        return error.answer()

    @app.exception_handler(HTTPException)
    async def answer_http_error(_: Request, error: HTTPException) -> JSONResponse:
        status, phrase = error.status_code, HTTPStatus(error.status_code).phrase
        code = phrase.lower().replace(" ", "_").replace("-", "_")
        answer = PageError(code, f"{phrase}.", _HELP.get(status, ""), status=status).answer()
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(RequestValidationError)
    async def answer_validation_error(_: Request, error: RequestValidationError) -> JSONResponse:
        return invalid_request([{**e, "loc": e["loc"][1:]} for e in error.errors()]).answer()

    @app.exception_handler(Exception)
    async def answer_fault(request: Request, error: Exception) -> JSONResponse:
        path = request.url.path[:200].encode("unicode_escape")
        logging.getLogger(__name__).error("a request to %s failed", path, exc_info=error)
        text = "The server made a mistake; its terminal shows more."
        answer = PageError("internal", text).answer()
        # The server drops the connection after a fault: a client must not ask by it again.
        answer.headers["Connection"] = "close"
        return answer


class _Static(StaticFiles):
    """Scripts and styles: a browser asks each time whether they have changed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response
