"""Jobs of every kind over HTTP: how far they are, their files, and their end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import PurePath
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse

from cpcapp import __version__
from cpcapp.web.errors import ApiError
from cpcapp.web.jobs import Job, JobQueue
from cpcapp.web.models import ERRORS, Health, JobAnswer
from cpcapp.web.security import FILE_POLICY

Wait = Annotated[bool, Query(description="Answer when the job is done; else at once.")]
# The status of HTTP for a job that failed; all other codes are the file's fault.
_STATUS = {
    "too_many_pixels": 413,
    "too_much_memory": 413,
    "internal": 500,
    "worker_died": 500,
    "stopping": 503,
    "too_long": 504,
}
# What a browser may show; all else is downloaded.
_SHOWN_TYPES = frozenset({"image/png", "image/jpeg", "image/webp"})


def make_job_routes(jobs: JobQueue) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/api", tags=["jobs"])

    @router.get("/health", response_model=Health)
    async def health() -> dict[str, Any]:
        """Tell whether the server works, and how busy it is."""
        state = {"status": "ok", "version": __version__, "workers": jobs.settings.jobs}
        return {**state, **jobs.describe()}

    @router.get("/jobs/{job_id}", response_model=JobAnswer, responses=ERRORS)
    async def get_job(job_id: str) -> JSONResponse:
        """Return a job: how far it is, and its result once it is done."""
        return JSONResponse(_describe(jobs.get(job_id), jobs))

    @router.get(
        "/jobs/{job_id}/events",
        response_class=StreamingResponse,
        responses={**ERRORS, 200: {"content": {"text/event-stream": {}}}},
    )
    async def get_events(job_id: str) -> StreamingResponse:
        """Follow a job by server-sent events: `progress`, and at the end `done` or `failed`.

        The data of each is the job as JSON.
        """
        stream = _follow(jobs.get(job_id), jobs)
        return StreamingResponse(stream, media_type="text/event-stream")

    @router.get(
        "/jobs/{job_id}/files/{name}",
        response_class=FileResponse,
        responses={**ERRORS, 200: {"content": {"image/png": {}, "application/octet-stream": {}}}},
    )
    async def get_file(job_id: str, name: str) -> FileResponse:
        """Return a file of a job: one that its result names, and no other."""
        job = jobs.get(job_id)
        if name not in job.files:
            raise ApiError(404, "no_file", "The job has no such file.")
        media_type = job.files[name]
        headers = {
            "Content-Security-Policy": FILE_POLICY,
            "Cache-Control": "private, max-age=3600, immutable",
        }
        if media_type not in _SHOWN_TYPES:
            shown = quote(f"{PurePath(job.name).stem}.{name}", safe="")
            headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{shown}"
        return FileResponse(job.folder / name, media_type=media_type, headers=headers)

    @router.delete("/jobs/{job_id}", status_code=204, responses=ERRORS)
    async def delete_job(job_id: str) -> Response:
        """Remove a job and all of its files; if it is being worked on, that ends."""
        jobs.remove(jobs.get(job_id))
        return Response(status_code=204)

    return router


def client_of(request: Request) -> str:
    """Return the address that a request comes from."""
    return request.client.host if request.client is not None else ""


async def answer_job(request: Request, jobs: JobQueue, job: Job, *, wait: bool) -> JSONResponse:
    """Answer with a job: at once with 202, or with 200 when it is done.

    If the client hangs up while it waits, the job is forgotten.
    """
    if not wait:
        address = {"Location": f"/api/jobs/{job.id}"}
        return JSONResponse(_describe(job, jobs), 202, headers=address)
    waiting = [asyncio.create_task(job.wait()), asyncio.create_task(_wait_for_disconnect(request))]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        if not job.is_finished:
            jobs.abandon(job)
    if not job.is_finished:
        raise ApiError(400, "hung_up", "Nobody waits for the answer.")
    if job.error is not None:
        error = job.error
        if not job.keeps_files:
            jobs.remove(job)
        status = _STATUS.get(error["code"], 422)
        raise ApiError(status, error["code"], error["message"], error["help"])
    return JSONResponse(_describe(job, jobs))


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _describe(job: Job, jobs: JobQueue) -> dict[str, Any]:
    names = ("id", "kind", "name", "status", "share", "step", "result", "error")
    return {**{name: getattr(job, name) for name in names}, "position": jobs.position(job)}


async def _follow(job: Job, jobs: JobQueue) -> AsyncIterator[str]:
    async for changed in job.changes():
        if changed:
            event = job.status if job.is_finished else "progress"
            yield f"event: {event}\ndata: {json.dumps(_describe(job, jobs))}\n\n"
        else:
            yield ": still here\n\n"
