"""Errors of the server: one shape for all of them."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

LOGGER = logging.getLogger("cpcapp.web")

# What a client can do about an error of the framework.
_HELP = {
    404: "Check the address. Results are removed after a while: then send the file again.",
    405: "The list of what can be asked is at /api/openapi.json.",
}


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str = Field(description="For programs; does not change from version to version.")
    message: str = Field(description="For people: what is the matter.")
    help: str = Field(description="What to do about it; may be empty.")


class ErrorAnswer(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail


class ApiError(Exception):
    """An error to answer with.

    Parameters
    ----------
    status : int
        Of HTTP.
    code : str
        For programs.
    message : str
    help_text : str, optional
        What to do.
    retry_after : int, optional
        Seconds after which it is worth to try again.
    """

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
        content = describe_error(self.code, self.message, self.help)
        return JSONResponse({"error": content}, self.status, headers=self.headers)


def describe_error(code: str, message: str, help_text: str = "") -> dict[str, str]:
    """Return an error in types that JSON knows.

    >>> describe_error("too_large", "The file is too large.")["code"]
    'too_large'
    """
    return {"code": code, "message": message, "help": help_text}


def add_error_handlers(app: FastAPI) -> None:
    """Let every error of an application have the same shape."""
    app.add_exception_handler(ApiError, _answer_api_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(RequestValidationError, _answer_validation_error)


async def _answer_api_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error.answer()


async def _answer_http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    code = phrase.lower().replace(" ", "_").replace("-", "_")
    content = describe_error(code, f"{phrase}.", _HELP.get(error.status_code, ""))
    return JSONResponse({"error": content}, error.status_code, headers=error.headers)


async def _answer_validation_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    content = describe_error("invalid", _spell_problems(error.errors()), "See /api/openapi.json.")
    return JSONResponse({"error": content}, 422)


def _spell_problems(problems: Any) -> str:
    """Return what is wrong with which parameter, without the value: it may be long or hostile."""
    texts = [
        f"{'.'.join(str(part) for part in problem['loc'][1:]) or 'request'}: {problem['msg']}"
        for problem in list(problems)[:5]
    ]
    return "; ".join(texts)[:500]


def internal_error() -> JSONResponse:
    """Return the answer to a request that failed by a fault of ours."""
    text = "The server made a mistake; its terminal shows more."
    return JSONResponse({"error": describe_error("internal", text)}, 500)
