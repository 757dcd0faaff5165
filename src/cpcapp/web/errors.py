"""Errors of the server: one shape for all of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

LOGGER = logging.getLogger("cpcapp.web")

# What a client can do about an error of the framework.
_HELP = {
    404: "Check the address. Results are removed after a while: then send the file again.",
    405: "The list of what can be asked is at /api/openapi.json.",
}


class ApiError(Exception):
    """An error to answer with: a status of HTTP, a code for programs, a sentence, and advice."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        help_text: str = "",
        *,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.help = status, code, message, help_text
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}

    def answer(self) -> JSONResponse:
        """Return it as a response."""
        content = {"error": describe_error(self.code, self.message, self.help)}
        return JSONResponse(content, self.status, headers=self.headers)


def describe_error(code: str, message: str, help_text: str = "") -> dict[str, str]:
    """Return an error in types that JSON knows.

    >>> describe_error("too_large", "The file is too large.")["code"]
    'too_large'
    """
    return {"code": code, "message": message, "help": help_text}


def add_error_handlers(app: FastAPI) -> None:
    """Let every error of an application have the same shape."""

    @app.exception_handler(ApiError)
    async def answer_api_error(_: Request, error: ApiError) -> JSONResponse:
        return error.answer()

    @app.exception_handler(HTTPException)
    async def answer_http_error(_: Request, error: HTTPException) -> JSONResponse:
        phrase = HTTPStatus(error.status_code).phrase
        code = phrase.lower().replace(" ", "_").replace("-", "_")
        content = describe_error(code, f"{phrase}.", _HELP.get(error.status_code, ""))
        return JSONResponse({"error": content}, error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def answer_validation_error(_: Request, error: RequestValidationError) -> JSONResponse:
        return invalid_request([{**e, "loc": e["loc"][1:]} for e in error.errors()]).answer()

    @app.exception_handler(Exception)
    async def answer_fault(request: Request, error: Exception) -> JSONResponse:
        path = request.url.path[:200].encode("unicode_escape")
        LOGGER.error("a request to %s failed", path, exc_info=error)
        text = "The server made a mistake; its terminal shows more."
        answer = ApiError(500, "internal", text).answer()
        # The server drops the connection after a fault: a client must not ask by it again.
        answer.headers["Connection"] = "close"
        return answer


def invalid_request(problems: Sequence[Any]) -> ApiError:
    """Say what is wrong with which parameter, without the value: it may be long or hostile."""
    texts = [
        f"{'.'.join(map(str, problem['loc'])) or 'request'}: {problem['msg']}"
        for problem in problems[:5]
    ]
    return ApiError(422, "invalid", "; ".join(texts)[:500], "See /api/openapi.json.")
