"""Photos over HTTP: the page, and what it asks for."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from cpcapp.splicing.output.overlays import LINE_COLOUR, PINK, build_ramp
from cpcapp.web.errors import ApiError
from cpcapp.web.job_routes import Wait, answer_job, client_of
from cpcapp.web.jobs import JobQueue
from cpcapp.web.models import ERRORS, UPLOAD_ERRORS, Example, PhotoJob, describe_form
from cpcapp.web.pages import render_page
from cpcapp.web.photo_job import MODELS, UPLOAD_NAME
from cpcapp.web.uploads import receive_form

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
_FORM = describe_form(
    (UPLOAD_NAME,), model={"type": "string", "enum": list(MODELS), "default": MODELS[0]}
)
_ANSWERS: dict[int | str, dict[str, Any]] = {
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
            "ramp": build_ramp(True).round().astype(int).tolist(),
            "part": list(PINK),
            "line": list(LINE_COLOUR),
            "max_bytes": settings.max_bytes,
            "max_pixels": settings.max_pixels,
            "at_once": max(2, min(4, settings.jobs)),
        }
        page = {"settings": shown, "examples": _LISTED, "models": MODELS}
        return render_page("photos.html", is_open=settings.is_open, **page)

    @router.post("/api/localize", response_model=PhotoJob, responses=_ANSWERS, openapi_extra=_FORM)
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

    @router.post("/api/examples/{name}", response_model=PhotoJob, responses=_ANSWERS)
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
            raise ApiError(422, "no_model", f"The model must be one of: {', '.join(MODELS)}.")
        return {"name": name, "model": model, "max_pixels": settings.max_pixels}

    return router


def _read_example(name: str) -> bytes:
    if name not in _EXAMPLES:
        raise ApiError(404, "no_example", "There is no such example.", "See /api/examples.")
    return files("cpcapp.splicing.examples").joinpath(name).read_bytes()
