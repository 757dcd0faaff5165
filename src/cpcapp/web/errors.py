"""Errors of the page: one shape for all of them, whether a request or a job went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.responses import JSONResponse

# The status of HTTP for a code. All other codes say that something was sent that is of no use: 422.
_STATUS = {
    "broken_form": 400,
    "hung_up": 400,
    "cross_site": 403,
    "no_example": 404,
    "no_job": 404,
    "too_slow": 408,
    "too_large": 413,
    "too_many_pixels": 413,
    "too_much_memory": 413,
    "not_a_form": 415,
    "unknown_format": 415,
    "wrong_host": 421,
    "too_many": 429,
    "internal": 500,
    "worker_died": 500,
    "busy": 503,
    "full": 503,
    "stopping": 503,
    "too_long": 504,
}


class PageError(Exception):
    """Why there is no result: a code for programs, a sentence for people, and advice.

    ``status``: of HTTP, by default that of the code. ``retry_after``: in seconds.

    >>> error = PageError("too_large", "The file is too large.")
    >>> error.status, error.detail
    (413, {'code': 'too_large', 'message': 'The file is too large.', 'help': ''})
    """

    def __init__(
        self,
        code: str,
        message: str,
        help_text: str = "",
        *,
        status: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.detail = {"code": code, "message": message, "help": help_text}
        self.status = _STATUS.get(code, 422) if status is None else status
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}

    def answer(self) -> JSONResponse:
        """Return it as a response."""
        # Here, as a worker process answers nobody.
        from starlette.responses import JSONResponse

        return JSONResponse({"error": self.detail}, self.status, headers=self.headers)


def invalid_request(problems: Sequence[Any]) -> PageError:
    """Say what is wrong with which parameter, without the value: it may be long or hostile."""
    texts = [
        f"{'.'.join(map(str, problem['loc'])) or 'request'}: {problem['msg']}"
        for problem in problems[:5]
    ]
    return PageError("invalid", "; ".join(texts)[:500], "See /api/openapi.json.")
