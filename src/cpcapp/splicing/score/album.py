"""A folder that shows how photos were scored: pictures, a page, and tables of all scores."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Final
from urllib.parse import quote

import numpy as np
from PIL import Image

from cpcapp._io.files import (
    FolderInUseError,
    StagedResults,
    atomic_write,
    check_replaceable,
    remove_leftovers,
    stage_results,
)
from cpcapp.reports import render
from cpcapp.splicing.output.panels import Picture, case_picture, contact_sheet
from cpcapp.splicing.score.evaluate import Case
from cpcapp.splicing.score.protocols import ImageScore
from cpcapp.splicing.score.report import METHOD, LocalizerReport

#: The page that shows all of an album.
INDEX: Final = "index.html"
# Moved first and put in place last: if it exists, the rest is complete and belongs to it.
_SCORES: Final = "scores.json"
_FILES: Final = (_SCORES, "scores.csv", INDEX, "best.png", "worst.png")
_CASE: Final = r"\d{4,}_\d\.\d{3}_.*\.png"
# Chosen by eye: as many fit on a screen.
_PER_SHEET: Final = 5


def check_album_folder(folder: str | os.PathLike[str], *, replace: bool = False) -> None:
    """Raise `FolderInUseError` if a folder has something in it that is not to be replaced.

    What killed runs left in it is removed first.
    """
    folder = Path(folder)
    remove_leftovers(folder)
    if folder.is_dir() and any(folder.iterdir()) and not replace:
        raise FolderInUseError(
            f"{folder} is not empty", "choose another folder, or replace=True for new results in it"
        )
    for name in _FILES:
        check_replaceable(folder / name)


@contextmanager
def open_album(folder: str | os.PathLike[str], *, replace: bool = False) -> Iterator[Album]:
    """Make a folder of results; until they are complete, and if something fails, nothing changes.

    ::

        scores.json, scores.csv
        cases/0001_0.912_NAME.png     the photo with the best MCC by the protocol ``edge``, ...
        best.png, worst.png           the first and the last of them
        index.html                    all of them

    ``replace``: whether earlier results in the folder are replaced, once the new ones are complete.
    Other files are kept.
    """
    check_album_folder(folder, replace=replace)
    with stage_results(folder) as staged:
        # The rank of a picture is known when all photos are scored.
        (staged.place / "unsorted").mkdir()
        album = Album(staged)
        try:
            yield album
        finally:
            album.close()


def _earlier_cases(folder: Path) -> list[str]:
    found = (file.name for file in folder.glob("cases/*.png"))
    return [f"cases/{name}" for name in found if re.fullmatch(_CASE, name)]


class Album:
    """Draws photos while they are scored, and sorts them afterwards; see `open_album`."""

    def __init__(self, staged: StagedResults) -> None:
        self.staged = staged
        self.unsorted = staged.place / "unsorted"
        self.drawn: dict[str, Path] = {}
        self.numbers = count()
        self.closed = False
        self.writing = Lock()

    def close(self) -> None:
        """Draw no more photos: a run that is stopped may have some under way."""
        with self.writing:
            self.closed = True

    def draw(self, case: Case) -> None:
        """Draw a photo; several threads may do so at a time."""
        score = case.scores[METHOD]["edge"]
        picture = case_picture(
            case.image,
            case.mask,
            case.edges,
            case.maps[METHOD].boundary,
            caption=f"{case.sample.name}   {_describe(score)}",
        )
        encoded = _encode_png(picture)
        with self.writing:
            if self.closed:
                return
            path = self.unsorted / f"{next(self.numbers)}.png"
            _write(path, encoded)
            self.drawn[case.sample.name] = path

    def finish(self, report: LocalizerReport) -> None:
        """Sort the pictures, write everything else, and put it in the place of earlier results."""
        new = self.staged.new
        (new / "cases").mkdir()
        images = report.evaluation.scores[METHOD]["edge"].images
        ranked = sorted(images, key=lambda image: -image.mcc)
        files = []
        for rank, image in enumerate(ranked, start=1):
            name = f"{rank:04d}_{image.mcc:.3f}_{_as_file_name(image.name)}.png"
            files.append(self.drawn[image.name].replace(new / "cases" / name))
        if files:
            best, worst = files[:_PER_SHEET], files[::-1][:_PER_SHEET]
            for name, chosen in (("best.png", best), ("worst.png", worst)):
                sheet = contact_sheet([_read_png(file) for file in chosen])
                _write(new / name, _encode_png(sheet))
        texts = {
            INDEX: _page(report, ranked, files),
            "scores.csv": report.to_csv(),
            _SCORES: json.dumps(report.to_dict(), indent=1, allow_nan=False),
        }
        for name, text in texts.items():
            _write(new / name, text.encode(errors="backslashreplace"))
        earlier = [*_FILES, *_earlier_cases(self.staged.folder)]
        self.staged.commit(marker=_SCORES, remove=earlier)


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path) as out:
        out.write(content)


def _describe(score: ImageScore) -> str:
    return f"MCC {score.mcc:.3f}   F1 {score.f1:.3f}"


def _as_file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", name)[-80:]


def _encode_png(picture: Picture) -> bytes:
    encoded = io.BytesIO()
    Image.fromarray(picture).save(encoded, "PNG")
    return encoded.getvalue()


def _read_png(path: Path) -> Picture:
    with Image.open(path) as image:
        return np.asarray(image)


def _page(report: LocalizerReport, ranked: Sequence[ImageScore], files: Sequence[Path]) -> str:
    """Return a page that shows the scores and the pictures."""
    protocols, rows = report.mean_scores() if report.evaluation.n_scored else ((), ())
    pictures = [
        {
            "address": f"cases/{quote(file.name)}",
            "caption": f"{image.name}, {_describe(image)}",
        }
        for image, file in zip(ranked, files, strict=True)
    ]
    return render(
        "album.html",
        title=f"{report.evaluation.dataset}: scores",
        generator="cpcapp evaluate",
        heading=report.title,
        protocols=protocols,
        rows=rows,
        verdicts="" if report.verdicts is None else report.verdicts.describe(),
        problems=report.problems,
        pictures=pictures,
    )
