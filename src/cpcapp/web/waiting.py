"""Waiting for a job within a request, as long as the client does."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from cpcapp.web.errors import ApiError
from cpcapp.web.jobs import Job, JobQueue
from cpcapp.web.models import describe_job

# The status of HTTP for a job that failed; all other codes are the file's fault.
_STATUS = {
    "too_many_pixels": 413,
    "too_much_memory": 413,
    "internal": 500,
    "worker_died": 500,
    "stopping": 503,
    "too_long": 504,
}


async def answer_job(request: Request, jobs: JobQueue, job: Job, *, wait: bool) -> JSONResponse:
    """Answer with a job: at once with 202, or with 200 when it is done.

    If the client hangs up while it waits, the job is forgotten.
    """
    if not wait:
        address = {"Location": f"/api/jobs/{job.id}"}
        return JSONResponse(describe_job(job, jobs), 202, headers=address)
    await _wait_or_abandon(request, jobs, job)
    if job.error is not None:
        error: dict[str, Any] = job.error
        if not job.keeps_files:
            jobs.remove(job)
        status = _STATUS.get(error["code"], 422)
        raise ApiError(status, error["code"], error["message"], error["help"])
    return JSONResponse(describe_job(job, jobs))


async def _wait_or_abandon(request: Request, jobs: JobQueue, job: Job) -> None:
    done = asyncio.ensure_future(job.wait())
    gone = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({done, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        done.cancel()
        gone.cancel()
        if not job.is_finished:
            jobs.abandon(job)
    if not job.is_finished:
        raise ApiError(400, "hung_up", "Nobody waits for the answer.")


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
