"""Routes of jobs of every kind: how far they are, their files, and their end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse

from cpcapp import __version__
from cpcapp.web.errors import ApiError
from cpcapp.web.jobs import Job, JobQueue
from cpcapp.web.models import ERRORS, Health, JobAnswer, describe_job
from cpcapp.web.security import FILE_POLICY

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
        return JSONResponse(describe_job(jobs.get(job_id), jobs))

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


async def _follow(job: Job, jobs: JobQueue) -> AsyncIterator[str]:
    async for changed in job.changes():
        if not changed:
            yield ": still here\n\n"
            continue
        finished = job.is_finished
        event = job.status if finished else "progress"
        yield f"event: {event}\ndata: {json.dumps(describe_job(job, jobs))}\n\n"
        if finished:
            return
