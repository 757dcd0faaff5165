"""What became of a photo."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cpcapp._io.messages import Message
from cpcapp.splicing.decide.words import format_verdict
from cpcapp.splicing.output.entries import MASK_NAMES, REPORT_NAMES
from cpcapp.splicing.output.files import ResultFiles


@dataclass(frozen=True)
class PhotoResult:
    """What became of a photo: the content of its JSON file, or an error.

    Attributes
    ----------
    photo : Path
    files : ResultFiles or None
        Where the result is. None for an image of a kind that is not read.
    entry : dict or None
        What the JSON file says. None if there is an error.
    remark : str
        What became of an earlier result; empty if there was none.
    error : str
        Why there is no result, in one line that begins with the path; empty if there is one.
    message : Message or None
        The error in parts, if it names parameters.
    """

    photo: Path
    files: ResultFiles | None = None
    entry: dict[str, Any] | None = field(default=None, repr=False)
    remark: str = ""
    error: str = ""
    message: Message | None = field(default=None, repr=False)

    @property
    def verdict(self) -> str:
        """The verdict and its p-value in words; empty if there is an error."""
        entry = self.entry or {}
        return format_verdict(entry.get("verdict") or "", entry.get("p_value"))

    def to_dict(self) -> dict[str, Any]:
        """Return the entry, with paths of the files that can be opened from here."""
        if self.entry is None or self.files is None:
            return {"file": str(self.photo), "error": self.error}
        optional = (*MASK_NAMES, "thumbnail", *REPORT_NAMES)
        names = ["overlay", "boundary", *(name for name in optional if self.entry.get(name))]
        return {**self.entry, **{name: str(getattr(self.files, name)) for name in names}}
