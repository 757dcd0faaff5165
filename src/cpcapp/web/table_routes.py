"""Routes of tables: the page, and what it asks for."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cpcapp.web.errors import ApiError
from cpcapp.web.jobs import Job, JobQueue
from cpcapp.web.models import UPLOAD_ERRORS, JobAnswer
from cpcapp.web.pages import render_page
from cpcapp.web.settings import Settings
from cpcapp.web.table_work import ENDINGS, EXAMPLES, ROLES
from cpcapp.web.uploads import Upload, receive_chunks, receive_upload, reserve_for_upload
from cpcapp.web.waiting import answer_job

# Names of some thousand columns.
_MAX_JSON_BYTES = 4 << 20
_FIELDS = ("columns", "label", "standardize", "missing")


class ComparisonRequest(BaseModel):
    """What is compared."""

    model_config = ConfigDict(extra="forbid")

    columns: list[str] | None = Field(
        None, description="The features; by default all numeric columns that both tables have."
    )
    label: str | None = Field(None, description="Column of the target that gives the colours.")
    standardize: Literal["none", "each", "background"] = "none"
    missing: Literal["drop", "mean", "zero", "error"] = "drop"


class TableColumn(BaseModel):
    """A column of the target."""

    model_config = ConfigDict(extra="allow")

    name: str
    kind: Literal["number", "text"]
    missing: int = Field(description="Values that are missing.")
    distinct: int = Field(description="Different values, counted up to 1,000.")
    usable: bool = Field(description="Whether it can be a feature.")
    reason: str = Field(description="Why it can't; else empty.")
    selected: bool = Field(description="Whether it is suggested as a feature.")


class TableCounts(BaseModel):
    """How large a table is."""

    name: str
    n_rows: int
    n_columns: int
    n_bad_rows: int
    problems: list[str] = Field(description="The first bad rows.")


class TablesAnswer(BaseModel):
    """Two tables that wait for a comparison."""

    id: str = Field(description="Can't be guessed: who knows it may use the tables.")
    columns: list[TableColumn]
    label: str | None = Field(description="The column that suggests itself for colours.")
    only_in_background: list[str]
    target: TableCounts
    background: TableCounts


def _form(fields: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the description of a form with both tables."""
    properties: dict[str, Any] = {role: {"type": "string", "format": "binary"} for role in ROLES}
    properties |= {name: {"type": "string"} for name in fields}
    schema = {"type": "object", "required": list(ROLES), "properties": properties}
    content = {"multipart/form-data": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


_JSON_BODY = {
    "requestBody": {
        "content": {"application/json": {"schema": ComparisonRequest.model_json_schema()}}
    }
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    **UPLOAD_ERRORS,
    202: {"model": JobAnswer, "description": "With wait=false: the job, which waits."},
    409: {"description": "These tables are being worked on."},
}
Wait = Annotated[bool, Query(description="Answer when the job is done; else at once.")]


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

    @router.post(
        "/api/tables", response_model=TablesAnswer, responses=UPLOAD_ERRORS, openapi_extra=_form()
    )
    async def describe(request: Request) -> JSONResponse:
        """Send two tables, a form with `target` and `background`: learn which columns they have."""
        async with reserve_for_upload(request, jobs, _client(request)) as place:
            upload = await receive_upload(request, place.folder, settings, files=ROLES)
            asked = {"action": "describe", **_take_files(place.folder, upload)}
            job = place.submit("tables", asked["names"]["target"], asked, keeps_files=True)
        return await _answer_tables(request, jobs, job)

    @router.post(
        "/api/tables/examples/{name}", response_model=TablesAnswer, responses=UPLOAD_ERRORS
    )
    async def describe_example(request: Request, name: str) -> JSONResponse:
        """Take two tables that come with the package: `synthetic` or `mice`."""
        if name not in EXAMPLES:
            raise ApiError(404, "no_example", "There is no such example.")
        async with jobs.reserve(_client(request)) as place:
            files = {role: f"{role}.csv" for role in ROLES}
            names = {role: f"{name}-{role}.csv" for role in ROLES}
            asked = {"action": "describe", "files": files, "names": names, "example": name}
            job = place.submit("tables", f"{name}.csv", asked, keeps_files=True)
        return await _answer_tables(request, jobs, job)

    @router.post(
        "/api/tables/{job_id}/compare",
        response_model=JobAnswer,
        responses=_ANSWERS,
        openapi_extra=_JSON_BODY,
    )
    async def compare(request: Request, job_id: str, wait: Wait = True) -> JSONResponse:
        """Compare PCA, cPCA and cPCA++ on tables that were sent before; as often as you like."""
        choice = await _read_choice(request, settings)
        job = jobs.get(job_id)
        if job.kind != "tables":
            raise ApiError(404, "no_job", "There are no such tables.", "Send the tables again.")
        # Only for its check that there is room: the tables have a folder already.
        async with jobs.reserve(_client(request)):
            if not job.is_finished:
                text = "These tables are being worked on."
                raise ApiError(409, "busy", text, "Wait until that is done.", retry_after=2)
            run = job.request.get("run", 0) + 1
            asked = {"action": "compare", "run": run, **choice.model_dump()}
            job.request = {**job.request, **asked}
            jobs.add(job)
        return await answer_job(request, jobs, job, wait=wait)

    @router.post(
        "/api/compare", response_model=JobAnswer, responses=_ANSWERS, openapi_extra=_form(_FIELDS)
    )
    async def compare_at_once(request: Request, wait: Wait = True) -> JSONResponse:
        """Send two tables and compare at once. `columns` are names separated by commas."""
        async with reserve_for_upload(request, jobs, _client(request)) as place:
            upload = await receive_upload(
                request, place.folder, settings, files=ROLES, fields=_FIELDS
            )
            fields: dict[str, Any] = {name: text for name, text in upload.fields.items() if text}
            if "columns" in fields:
                fields["columns"] = _split_names(fields["columns"])
            choice = _check_choice(json.dumps(fields).encode())
            asked = {"action": "compare", "run": 1, **_take_files(place.folder, upload)}
            name = asked["names"]["target"]
            job = place.submit("tables", name, {**asked, **choice.model_dump()}, keeps_files=True)
        return await answer_job(request, jobs, job, wait=wait)

    return router


def _client(request: Request) -> str:
    return request.client.host if request.client is not None else ""


async def _answer_tables(request: Request, jobs: JobQueue, job: Job) -> JSONResponse:
    try:
        await answer_job(request, jobs, job, wait=True)
    except ApiError:
        # Nothing can be done with tables that can't be read.
        jobs.remove(job)
        raise
    return JSONResponse({"id": job.id, **(job.result or {})})


def _take_files(folder: Path, upload: Upload) -> dict[str, Any]:
    """Give the files the ending that says their format; return their names for the worker."""
    files = {}
    for role in ROLES:
        shown = upload.names[role]
        ending = next((end for end in ENDINGS if shown.lower().endswith(end)), None)
        if ending is None:
            raise ApiError(
                415,
                "unknown_format",
                f"{shown} is not a table that can be read here.",
                "Tables are CSV, TSV (also with .gz), Parquet, Excel (.xlsx, .xls, .ods) or NumPy "
                "files.",
            )
        files[role] = f"{role}{ending}"
        upload.files[role].rename(folder / files[role])
    return {"files": files, "names": {role: upload.names[role] for role in ROLES}}


async def _read_choice(request: Request, settings: Settings) -> ComparisonRequest:
    body = bytearray()
    async for part in receive_chunks(request, settings):
        body += part
        if len(body) > _MAX_JSON_BYTES:
            raise ApiError(413, "too_large", "The list of columns is too long.")
    return _check_choice(bytes(body) or b"{}")


def _check_choice(body: bytes) -> ComparisonRequest:
    try:
        return ComparisonRequest.model_validate_json(body)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'request'}: {problem['msg']}"
            for problem in error.errors(include_input=False, include_url=False)[:5]
        )
        raise ApiError(422, "invalid", problems[:500], "See /api/openapi.json.") from error


def _split_names(text: str) -> list[str]:
    try:
        records = list(csv.reader([text], skipinitialspace=True))
    except csv.Error as error:
        raise ApiError(422, "invalid", f"columns: {error}") from error
    return [name.strip() for record in records for name in record if name.strip()]
