"""The shapes of answers, for the description at ``/api/openapi.json``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str = Field(description="For programs; does not change from version to version.")
    message: str = Field(description="For people: what is the matter.")
    help: str = Field(description="What to do about it; may be empty.")


class ErrorAnswer(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail


def _answers(texts: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorAnswer, "description": text} for status, text in texts.items()}


#: What a route may answer besides its result, by status.
ERRORS = _answers(
    {
        403: "Sent by a page of another site.",
        404: "There is no such thing, or not any more.",
        421: "Addressed to a name that is not this server's.",
        422: "Something in the request is missing or wrong.",
    }
)
UPLOAD_ERRORS = ERRORS | _answers(
    {
        400: "The form is damaged.",
        408: "The upload took too long.",
        413: "The file has too many bytes or pixels.",
        415: "The request is no form.",
        429: "Too many files of this client are waiting; see Retry-After.",
        500: "The job failed by a fault of the program.",
        503: "Too many files are waiting; see Retry-After.",
        504: "The job took too long.",
    }
)


class JobAnswer(BaseModel):
    """A job, as far as it is."""

    id: str = Field(description="Can't be guessed: who knows it may see the result.")
    kind: Literal["photo", "tables"]
    name: str = Field(description="The file's name, as the client gave it.")
    status: Literal["queued", "running", "done", "failed"]
    share: float = Field(description="How much is done, from 0 to 1.", ge=0, le=1)
    step: str = Field(description="What is being done, in a few words.")
    position: int = Field(description="Place in the queue; 0 if it waits no more.", ge=0)
    result: dict[str, Any] | None = Field(None, description="Once it is done.")
    error: ErrorDetail | None = Field(None, description="If it failed.")


class PhotoResult(BaseModel):
    """What was found in a photo: the entries of ``NAME.json`` of `cpcapp localize`, and more."""

    model_config = ConfigDict(extra="allow")

    sha256: str
    width: int
    height: int
    verdict: str
    verdict_code: Literal["signs", "weak", "none", "unknown"]
    p_value: float | None = Field(description="Share of genuine photos that scored as high.")
    genuine_photos: int | None = Field(description="How many it was compared with.")
    genuine_as_high: int | None = Field(description="How many of them scored as high.")
    p_text: str = Field(description="The same for people, never rounded over a level.")
    part_kind: Literal["graphic", "collage"] | None = Field(
        description="What the marked part looks like, if it is no usual object."
    )
    score: float | None
    threshold: float = Field(description="Of the model, on the boundary map.")
    boundary_white: float = Field(description="Value of the boundary map that is white.")
    sentence: str = Field(description="The verdict in one plain sentence.")
    meaning: str
    limits: list[str] = Field(description="What it can't see, a sentence each.")
    facts: dict[str, Any] = Field(description="What the file says of itself.")
    fact_rows: list[list[str]] = Field(description="The same as rows of a table.")
    thumbnail: str | None = Field(description="Of the file, if it does not show this photo.")
    views: list[dict[str, Any]] = Field(
        description="Single traces: name, title, text of what is seen, url or a note why not."
    )
    pictures: dict[str, str] = Field(description="Addresses, in full resolution.")
    previews: dict[str, str] = Field(description="The same, not larger than a screen.")
    display: dict[str, Any] = Field(description="How strongly the evidence is shown at first.")
    report: dict[str, str | None] = Field(description="Addresses of the report, html and pdf.")


class PhotoJob(JobAnswer):
    """A photo's job."""

    result: PhotoResult | None = Field(None, description="Once it is done.")  # type: ignore[assignment]


class Health(BaseModel):
    """Whether the server works, and how busy it is."""

    status: Literal["ok"]
    version: str
    workers: int
    waiting: int
    uploading: int
    running: int
    kept: int


class Example(BaseModel):
    """A photo that comes with the package."""

    name: str
    title: str
    spliced: bool
    url: str


class ComparisonRequest(BaseModel):
    """What is compared."""

    model_config = ConfigDict(extra="forbid")

    columns: list[str] | None = Field(
        None, description="The features; by default all numeric columns that both tables have."
    )
    label: str | None = Field(None, description="Column of the target that gives the colours.")
    standardize: Literal["none", "each", "background"] = "none"
    missing: Literal["drop", "mean", "zero", "error"] = "drop"


class TablesAnswer(BaseModel):
    """Two tables that wait for a comparison."""

    id: str = Field(description="Can't be guessed: who knows it may use the tables.")
    columns: list[dict[str, Any]] = Field(
        description="Of the target: name, kind (number or text), how many values are missing and "
        "distinct (up to 1,000), whether it is usable as a feature or the reason why not, and "
        "whether it is suggested (selected)."
    )
    label: str | None = Field(description="The column that suggests itself for colours.")
    only_in_background: list[str]
    target: dict[str, Any] = Field(
        description="Its name, n_rows, n_columns, n_bad_rows, and the first problems."
    )
    background: dict[str, Any]


def describe_form(files: tuple[str, ...], **fields: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a form with files and fields."""
    properties = {name: {"type": "string", "format": "binary"} for name in files} | fields
    schema = {"type": "object", "required": list(files), "properties": properties}
    return {
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    }
