"""All addresses of the server: pages, jobs of every kind, photos and tables."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, StreamingResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import ValidationError

from cpcapp import __version__
from cpcapp.splicing.output.draw import LINE_COLOUR, PINK, build_ramp
from cpcapp.web.errors import PageError, invalid_request
from cpcapp.web.jobs import Job, JobQueue
from cpcapp.web.models import (
    ERRORS,
    UPLOAD_ERRORS,
    ComparisonRequest,
    Example,
    Health,
    JobAnswer,
    PhotoJob,
    TablesAnswer,
    describe_form,
)
from cpcapp.web.photo_job import MODELS, UPLOAD_NAME
from cpcapp.web.security import FILE_POLICY
from cpcapp.web.settings import MAX_JSON_BYTES
from cpcapp.web.table_comparison import ROLES
from cpcapp.web.table_job import ENDINGS, EXAMPLES
from cpcapp.web.uploads import receive_chunks, receive_form

_PAGES = Environment(
    loader=PackageLoader("cpcapp.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
Wait = Annotated[bool, Query(description="Answer when the job is done; else at once.")]
# What a browser may show; all else is downloaded.
_SHOWN_TYPES = frozenset({"image/png", "image/jpeg", "image/webp"})


def render_page(template: str, **values: Any) -> HTMLResponse:
    """Return a page."""
    return HTMLResponse(_PAGES.get_template(template).render(version=__version__, **values))


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
            raise PageError("no_file", "The job has no such file.", status=404)
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
        raise PageError("hung_up", "Nobody waits for the answer.")
    if job.error is not None:
        if not job.keeps_files:
            jobs.remove(job)
        raise PageError(job.error["code"], job.error["message"], job.error["help"])
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


# In the order in which they are offered: the clearest first. Titles say what was done.
_EXAMPLES = {
    "cup-in-the-sky.png": ("Cup in the sky", True, "image/png"),
    "cat-with-helmet.png": ("Cat with helmet", True, "image/png"),
    "shuttle-on-table.jpg": ("Shuttle on a table", True, "image/jpeg"),
    "astronaut.jpg": ("Astronaut, genuine", False, "image/jpeg"),
}
_LISTED = [
    {"name": name, "title": title, "spliced": spliced, "url": f"/api/examples/{name}"}
    for name, (title, spliced, _) in _EXAMPLES.items()
]
_PHOTO_FORM = describe_form(
    (UPLOAD_NAME,), model={"type": "string", "enum": list(MODELS), "default": MODELS[0]}
)
_PHOTO_ANSWERS: dict[int | str, dict[str, Any]] = {
    **UPLOAD_ERRORS,
    202: {"model": PhotoJob, "description": "With wait=false: the job, which waits."},
}


def make_photo_routes(jobs: JobQueue) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["photos"])
    settings = jobs.settings

    @router.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def photos_page() -> HTMLResponse:
        shown = {
            "ramp": build_ramp().round().astype(int).tolist(),
            "part": list(PINK),
            "line": list(LINE_COLOUR),
            "max_bytes": settings.max_bytes,
            "max_pixels": settings.max_pixels,
            "at_once": max(2, min(4, settings.jobs)),
        }
        page = {"settings": shown, "examples": _LISTED, "models": MODELS}
        return render_page("photos.html", is_open=settings.is_open, **page)

    @router.post(
        "/api/localize",
        response_model=PhotoJob,
        responses=_PHOTO_ANSWERS,
        openapi_extra=_PHOTO_FORM,
    )
    async def localize(request: Request, wait: Wait = True) -> JSONResponse:
        """Look for splices in a photo: a form with a `file`, and a `model` if you like."""
        async with jobs.reserve("photo", client_of(request)) as job:
            names, fields = await receive_form(
                request, job.folder, settings, files=(UPLOAD_NAME,), fields=("model",)
            )
            name = names[UPLOAD_NAME]
            jobs.add(job, name, ask(name, fields.get("model", MODELS[0])))
        return await answer_job(request, jobs, job, wait=wait)

    @router.get("/api/examples", response_model=list[Example])
    async def list_examples() -> list[dict[str, Any]]:
        """List the photos that come with the package."""
        return _LISTED

    @router.get(
        "/api/examples/{name}",
        response_class=Response,
        responses={**ERRORS, 200: {"content": {"image/png": {}, "image/jpeg": {}}}},
    )
    async def get_example(name: str) -> Response:
        """Return one of these photos."""
        headers = {"Cache-Control": "private, max-age=3600"}
        return Response(_read_example(name), media_type=_EXAMPLES[name][2], headers=headers)

    @router.post("/api/examples/{name}", response_model=PhotoJob, responses=_PHOTO_ANSWERS)
    async def localize_example(
        request: Request, name: str, wait: Wait = True, model: str = MODELS[0]
    ) -> JSONResponse:
        """Look for splices in one of these photos."""
        content, asked = _read_example(name), ask(name, model)
        async with jobs.reserve("photo", client_of(request)) as job:
            (job.folder / UPLOAD_NAME).write_bytes(content)
            jobs.add(job, name, asked)
        return await answer_job(request, jobs, job, wait=wait)

    def ask(name: str, model: str) -> dict[str, Any]:
        if model not in MODELS:
            raise PageError("no_model", f"The model must be one of: {', '.join(MODELS)}.")
        return {"name": name, "model": model, "max_pixels": settings.max_pixels}

    return router


def _read_example(name: str) -> bytes:
    if name not in _EXAMPLES:
        raise PageError("no_example", "There is no such example.", "See /api/examples.")
    return files("cpcapp.splicing.examples").joinpath(name).read_bytes()


_FIELDS = ("columns", "label", "standardize", "missing")
_JSON_BODY = {
    "requestBody": {
        "content": {"application/json": {"schema": ComparisonRequest.model_json_schema()}}
    }
}
_COMPARISON_FORM = describe_form(ROLES, **{name: {"type": "string"} for name in _FIELDS})
_COMPARISON_ANSWERS: dict[int | str, dict[str, Any]] = {
    **UPLOAD_ERRORS,
    202: {"model": JobAnswer, "description": "With wait=false: the job, which waits."},
    409: {"description": "These tables are being worked on."},
}
# Of the two that only say which columns there are.
_DESCRIBING: Any = {"response_model": TablesAnswer, "responses": UPLOAD_ERRORS}


def make_table_routes(jobs: JobQueue) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["tables"])
    settings = jobs.settings

    @router.get("/tables", response_class=HTMLResponse, include_in_schema=False)
    async def tables_page() -> HTMLResponse:
        examples = [
            {"name": name, "title": title, "text": text} for name, (title, text) in EXAMPLES.items()
        ]
        return render_page(
            "tables.html",
            examples=examples,
            accepted=",".join(ENDINGS),
            max_bytes=settings.max_bytes,
            is_open=settings.is_open,
        )

    @router.post("/api/tables", openapi_extra=describe_form(ROLES), **_DESCRIBING)
    async def describe(request: Request) -> JSONResponse:
        """Send two tables, a form with `target` and `background`: learn which columns they have."""
        async with jobs.reserve("tables", client_of(request)) as job:
            names, _ = await receive_form(request, job.folder, settings, files=ROLES)
            asked = {"action": "describe", **_take_files(job.folder, names)}
            jobs.add(job, names["target"], asked)
        return await answer_tables(request, job)

    @router.post("/api/tables/examples/{name}", **_DESCRIBING)
    async def describe_example(request: Request, name: str) -> JSONResponse:
        """Take two tables that come with the package: `synthetic` or `mice`."""
        if name not in EXAMPLES:
            raise PageError("no_example", "There is no such example.")
        async with jobs.reserve("tables", client_of(request)) as job:
            files = {role: f"{role}.csv" for role in ROLES}
            names = {role: f"{name}-{role}.csv" for role in ROLES}
            asked = {"action": "describe", "files": files, "names": names, "example": name}
            jobs.add(job, f"{name}.csv", asked)
        return await answer_tables(request, job)

    @router.post(
        "/api/tables/{job_id}/compare",
        response_model=JobAnswer,
        responses=_COMPARISON_ANSWERS,
        openapi_extra=_JSON_BODY,
    )
    async def compare(request: Request, job_id: str, wait: Wait = True) -> JSONResponse:
        """Compare PCA, cPCA and cPCA++ on tables that were sent before; as often as you like."""
        job = jobs.get(job_id)
        if job.kind != "tables":
            raise PageError("no_job", "There are no such tables.", "Send the tables again.")
        # Counts what is read. The tables have a folder already.
        async with jobs.reserve("tables", client_of(request)):
            body = [part async for part in receive_chunks(request, settings, MAX_JSON_BYTES)]
            choice = _check_choice(b"".join(body) or b"{}")
            if not job.is_finished:
                text = "These tables are being worked on."
                raise PageError("busy", text, "Wait until that is done.", status=409, retry_after=2)
            run = job.request.get("run", 0) + 1
            jobs.add(job, job.name, {**job.request, "action": "compare", "run": run, **choice})
        return await answer_job(request, jobs, job, wait=wait)

    @router.post(
        "/api/compare",
        response_model=JobAnswer,
        responses=_COMPARISON_ANSWERS,
        openapi_extra=_COMPARISON_FORM,
    )
    async def compare_at_once(request: Request, wait: Wait = True) -> JSONResponse:
        """Send two tables and compare at once. `columns` are names separated by commas."""
        async with jobs.reserve("tables", client_of(request)) as job:
            names, fields = await receive_form(
                request, job.folder, settings, files=ROLES, fields=_FIELDS
            )
            given: dict[str, Any] = {name: text for name, text in fields.items() if text}
            if "columns" in given:
                given["columns"] = _split_names(given["columns"])
            choice = _check_choice(json.dumps(given).encode())
            asked = {"action": "compare", "run": 1, **_take_files(job.folder, names), **choice}
            jobs.add(job, names["target"], asked)
        return await answer_job(request, jobs, job, wait=wait)

    async def answer_tables(request: Request, job: Job) -> JSONResponse:
        try:
            await answer_job(request, jobs, job, wait=True)
        except PageError:
            # Nothing can be done with tables that can't be read.
            jobs.remove(job)
            raise
        return JSONResponse({"id": job.id, **(job.result or {})})

    return router


def _take_files(folder: Path, names: dict[str, str]) -> dict[str, Any]:
    """Give the files the ending that says their format; return their names for the worker."""
    files = {}
    for role in ROLES:
        ending = next((end for end in ENDINGS if names[role].lower().endswith(end)), None)
        if ending is None:
            raise PageError(
                "unknown_format",
                f"{names[role]} is not a table that can be read here.",
                "Tables are CSV, TSV (also with .gz), Parquet, Excel (.xlsx, .xls, .ods) or NumPy "
                "files.",
            )
        files[role] = f"{role}{ending}"
        (folder / role).rename(folder / files[role])
    return {"files": files, "names": names}


def _check_choice(body: bytes) -> dict[str, Any]:
    try:
        return ComparisonRequest.model_validate_json(body).model_dump()
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)
        raise invalid_request(problems) from error


def _split_names(text: str) -> list[str]:
    try:
        records = list(csv.reader([text], skipinitialspace=True))
    except csv.Error as error:
        raise PageError("invalid", f"columns: {error}") from error
    return [name.strip() for record in records for name in record if name.strip()]
