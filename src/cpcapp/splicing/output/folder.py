"""Checks of the folder for results, before anything is written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cpcapp._io.messages import MessageError
from cpcapp._io.text import printable
from cpcapp.splicing.output.files import INDEX_NAME, SUMMARY_NAME, ResultFiles
from cpcapp.splicing.output.index_page import is_index
from cpcapp.splicing.output.summary import is_summary


class ResultsError(MessageError):
    """Photos can't be localized as asked, or their results can't be written; see the message."""


def check_folder(
    folder: Path, results: Sequence[ResultFiles], *, resume: bool = False, force: bool = False
) -> None:
    """Raise `ResultsError` if a file would be lost that nobody allowed to replace."""
    photos = {files.photo.resolve() for files in results}
    present = [path for files in results for path in files.all if os.path.lexists(path)]
    for path in present:
        if path.resolve() in photos:
            raise ResultsError(
                f"{printable(path)} is a photo and would be replaced", "choose another {folder}"
            )
    for path in [*present, folder / SUMMARY_NAME, folder / INDEX_NAME]:
        if os.path.lexists(path) and not (path.is_file() or path.is_symlink()):
            raise ResultsError(
                f"{printable(path)} is in the way: it is not a file",
                "move it away, or choose another {folder}",
            )
    if not force:
        check_overviews(folder, "choose another {folder}, or {force} to replace it")
    if present and not (resume or force):
        more = f", with {len(present) - 1} more" if len(present) > 1 else ""
        raise ResultsError(
            f"{printable(present[0])} is there already{more}",
            "{resume} to go on, {force} to replace, or choose another {folder}",
            resume=True,
            force=True,
        )


def check_overviews(folder: Path, advice: str) -> None:
    """Raise `ResultsError` if the table or the page of a folder is not one of ours."""
    for name, is_ours, kind in (
        (SUMMARY_NAME, is_summary, "table"),
        (INDEX_NAME, is_index, "page"),
    ):
        path = folder / name
        if path.is_file() and not is_ours(path):
            problem = f"{printable(path)} is not a {kind} of results"
            raise ResultsError(problem, advice, force=True)


def make_folder(folder: Path) -> None:
    """Make a folder that can be written to, or raise `ResultsError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(
            f"can't make the folder {printable(folder)}: {error.strerror}"
        ) from error
    if not os.access(folder, os.W_OK):
        raise ResultsError(
            f"can't write to the folder {printable(folder)}", "choose another {folder}"
        )
