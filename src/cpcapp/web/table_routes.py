"""Tables over HTTP: the page, and what it asks for."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import ValidationError

from cpcapp.web.errors import ApiError, invalid_request
from cpcapp.web.job_routes import Wait, answer_job, client_of
from cpcapp.web.jobs import Job, JobQueue
from cpcapp.web.models import (
    UPLOAD_ERRORS,
    ComparisonRequest,
    JobAnswer,
    TablesAnswer,
    describe_form,
)
from cpcapp.web.pages import render_page
from cpcapp.web.table_comparison import ROLES
from cpcapp.web.table_job import ENDINGS, EXAMPLES
from cpcapp.web.uploads import receive_chunks, receive_form

# Names of some thousand columns.
_MAX_JSON_BYTES = 4 << 20
_FIELDS = ("columns", "label", "standardize", "missing")
_JSON_BODY = {
    "requestBody": {
        "content": {"application/json": {"schema": ComparisonRequest.model_json_schema()}}
    }
}
_FORM = describe_form(ROLES, **{name: {"type": "string"} for name in _FIELDS})
_ANSWERS: dict[int | str, dict[str, Any]] = {
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
            raise ApiError(404, "no_example", "There is no such example.")
        async with jobs.reserve("tables", client_of(request)) as job:
            files = {role: f"{role}.csv" for role in ROLES}
            names = {role: f"{name}-{role}.csv" for role in ROLES}
            asked = {"action": "describe", "files": files, "names": names, "example": name}
            jobs.add(job, f"{name}.csv", asked)
        return await answer_tables(request, job)

    @router.post(
        "/api/tables/{job_id}/compare",
        response_model=JobAnswer,
        responses=_ANSWERS,
        openapi_extra=_JSON_BODY,
    )
    async def compare(request: Request, job_id: str, wait: Wait = True) -> JSONResponse:
        """Compare PCA, cPCA and cPCA++ on tables that were sent before; as often as you like."""
        job = jobs.get(job_id)
        if job.kind != "tables":
            raise ApiError(404, "no_job", "There are no such tables.", "Send the tables again.")
        # Counts what is read. The tables have a folder already.
        async with jobs.reserve("tables", client_of(request)):
            body = [part async for part in receive_chunks(request, settings, _MAX_JSON_BYTES)]
            choice = _check_choice(b"".join(body) or b"{}")
            if not job.is_finished:
                text = "These tables are being worked on."
                raise ApiError(409, "busy", text, "Wait until that is done.", retry_after=2)
            run = job.request.get("run", 0) + 1
            jobs.add(job, job.name, {**job.request, "action": "compare", "run": run, **choice})
        return await answer_job(request, jobs, job, wait=wait)

    @router.post("/api/compare", response_model=JobAnswer, responses=_ANSWERS, openapi_extra=_FORM)
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
        except ApiError:
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
            raise ApiError(
                415,
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
        raise ApiError(422, "invalid", f"columns: {error}") from error
    return [name.strip() for record in records for name in record if name.strip()]
