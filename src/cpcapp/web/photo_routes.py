"""Routes of photos: the page, and what it asks for."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import PurePath
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from cpcapp.splicing.output.overlays import LINE_COLOUR, PINK, build_ramp
from cpcapp.web.errors import ApiError
from cpcapp.web.jobs import JobQueue
from cpcapp.web.models import ERRORS, UPLOAD_ERRORS, Example, PhotoJob
from cpcapp.web.pages import render_page
from cpcapp.web.photo_work import MODELS, UPLOAD_NAME
from cpcapp.web.uploads import receive_upload, reserve_for_upload
from cpcapp.web.waiting import answer_job

# In the order in which they are offered: the clearest first. Titles say what was done.
_EXAMPLES = {
    "cup-in-the-sky.png": ("Cup in the sky", True, "image/png"),
    "cat-with-helmet.png": ("Cat with helmet", True, "image/png"),
    "shuttle-on-table.jpg": ("Shuttle on a table", True, "image/jpeg"),
    "astronaut.jpg": ("Astronaut, genuine", False, "image/jpeg"),
}
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [UPLOAD_NAME],
                    "properties": {
                        UPLOAD_NAME: {"type": "string", "format": "binary"},
                        "model": {"type": "string", "enum": list(MODELS), "default": MODELS[0]},
                    },
                }
            }
        },
    }
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    **UPLOAD_ERRORS,
    202: {"model": PhotoJob, "description": "With wait=false: the job, which waits."},
}
Wait = Annotated[bool, Query(description="Answer when the job is done; else at once.")]


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
        return render_page(
            "photos.html",
            settings=shown,
            examples=_list_examples(),
            models=MODELS,
            is_open=settings.is_open,
        )

    @router.post("/api/localize", response_model=PhotoJob, responses=_ANSWERS, openapi_extra=_FORM)
    async def localize(request: Request, wait: Wait = True) -> JSONResponse:
        """Look for splices in a photo: a form with a `file`, and a `model` if you like."""
        async with reserve_for_upload(request, jobs, _client(request)) as place:
            upload = await receive_upload(
                request, place.folder, settings, files=(UPLOAD_NAME,), fields=("model",)
            )
            model = upload.fields.get("model", MODELS[0])
            name = upload.names[UPLOAD_NAME]
            job = place.submit("photo", name, _ask(name, model, settings.max_pixels))
        return await answer_job(request, jobs, job, wait=wait)

    @router.get("/api/examples", response_model=list[Example])
    async def list_examples() -> list[dict[str, Any]]:
        """List the photos that come with the package."""
        return _list_examples()

    @router.get(
        "/api/examples/{name}",
        response_class=Response,
        responses={**ERRORS, 200: {"content": {"image/png": {}, "image/jpeg": {}}}},
    )
    async def get_example(name: str) -> Response:
        """Return one of these photos."""
        _check_example(name)
        content = files("cpcapp.splicing.examples").joinpath(name).read_bytes()
        headers = {"Cache-Control": "private, max-age=3600"}
        return Response(content, media_type=_EXAMPLES[name][2], headers=headers)

    @router.post("/api/examples/{name}", response_model=PhotoJob, responses=_ANSWERS)
    async def localize_example(
        request: Request, name: str, wait: Wait = True, model: str = MODELS[0]
    ) -> JSONResponse:
        """Look for splices in one of these photos."""
        _check_example(name)
        asked = _ask(name, model, settings.max_pixels)
        async with jobs.reserve(_client(request)) as place:
            source = files("cpcapp.splicing.examples").joinpath(name)
            with source.open("rb") as photo, (place.folder / UPLOAD_NAME).open("xb") as target:
                shutil.copyfileobj(photo, target)
            job = place.submit("photo", PurePath(name).name, asked)
        return await answer_job(request, jobs, job, wait=wait)

    return router


def _client(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _ask(name: str, model: str, max_pixels: int) -> dict[str, Any]:
    if model not in MODELS:
        raise ApiError(422, "no_model", f"The model must be one of: {', '.join(MODELS)}.")
    return {"name": name, "model": model, "max_pixels": max_pixels}


def _check_example(name: str) -> None:
    if name not in _EXAMPLES:
        raise ApiError(404, "no_example", "There is no such example.", "See /api/examples.")


def _list_examples() -> list[dict[str, Any]]:
    return [
        {"name": name, "title": title, "spliced": spliced, "url": f"/api/examples/{name}"}
        for name, (title, spliced, _) in _EXAMPLES.items()
    ]
