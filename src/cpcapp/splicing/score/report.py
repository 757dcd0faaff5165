"""Scoring a localizer, its verdicts and the controls: as text, a table, JSON and pictures."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from dataclasses import replace as replace_fields
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from PIL import Image

from cpcapp import __version__
from cpcapp._io.files import (
    FolderInUseError,
    StagedResults,
    atomic_write,
    check_replaceable,
    remove_leftovers,
    stage_results,
)
from cpcapp._io.text import spreadsheet_text
from cpcapp.reports import render
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.output.draw import Picture, encode_png
from cpcapp.splicing.output.panels import case_picture, contact_sheet
from cpcapp.splicing.photo.samples import Problem, SampleSet
from cpcapp.splicing.score.controls import CONTROLS
from cpcapp.splicing.score.evaluate import (
    Case,
    Evaluation,
    PhotoVerdict,
    VerdictScores,
    evaluate,
    judge_photos,
)
from cpcapp.splicing.score.protocols import PROTOCOLS, ImageScore

#: The name that the localizer has among the methods and controls.
METHOD: Final = "cPCA++"
#: The page that shows all pictures of a folder.
INDEX: Final = "index.html"
# Moved first and put in place last: if it exists, the other files are complete and belong to it.
_SCORES: Final = "scores.json"
_FILES: Final = (_SCORES, "scores.csv", INDEX, "best.png", "worst.png")
_CASE: Final = r"\d{4,}_\d\.\d{3}_.*\.png"
# Chosen by eye: as many fit on a screen.
_PER_SHEET: Final = 5


@dataclass(frozen=True)
class LocalizerReport:
    """How well a localizer does on a data set.

    Made by `cpcapp.splicing.evaluate_localizer`.

    Attributes
    ----------
    model, model_version : str
    evaluation : Evaluation
        Scores of the maps, under the name ``"cPCA++"``, and of the controls.
    verdicts : VerdictScores or None
        None if the localizer judges no photos.
    """

    model: str
    model_version: str
    evaluation: Evaluation
    verdicts: VerdictScores | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Photos that could not be used."""
        return self.evaluation.problems

    @property
    def title(self) -> str:
        """What was scored, in a line."""
        return (
            f"{self.evaluation.dataset}: {self.evaluation.n_scored} spliced photos scored; "
            f"{self.evaluation.n_authentic} authentic ones have no seam and count for verdicts only"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "version": __version__,
            "model": {"name": self.model, "version": self.model_version},
            **self.evaluation.to_dict(),
            "verdict": None if self.verdicts is None else self.verdicts.to_dict(),
        }

    def mean_scores(self) -> tuple[list[str], list[tuple[str, list[str]]]]:
        """Return the cells of a table of mean scores: protocols, and rows of F1 and MCC by each.

        The protocols are those that the localizer is scored by; others say nothing about it.
        """
        protocols = list(self.evaluation.scores[METHOD])
        rows = []
        for method, scores in self.evaluation.scores.items():
            label = f"{METHOD} ({self.model})" if method == METHOD else f"control: {method}"
            means = [scores[name].mean if name in scores else None for name in protocols]
            values = [v for m in means for v in ((None, None) if m is None else (m.f1, m.mcc))]
            rows.append((label, ["-" if v is None else f"{v:.3f}" for v in values]))
        return protocols, rows

    def to_lines(self) -> Iterator[str]:
        """Yield the lines of a table for a terminal."""
        yield self.title
        if self.evaluation.n_scored:
            protocols, rows = self.mean_scores()
            width = max(len(label) for label, _ in rows) + 2
            yield ""
            yield (" " * width + "".join(f"{protocol:16}" for protocol in protocols)).rstrip()
            yield (" " * width + "F1      MCC     " * len(protocols)).rstrip()
            for label, cells in rows:
                yield (f"{label:{width}}" + "".join(f"{cell:8}" for cell in cells)).rstrip()
        if self.verdicts is not None:
            yield ""
            yield self.verdicts.describe()

    def to_csv(self) -> str:
        """Return all scores, a line for each photo, method and protocol."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        header = None
        for method, scores in self.evaluation.scores.items():
            for protocol, by_photo in scores.items():
                for image in by_photo.images:
                    row = {"method": method, "protocol": protocol, **asdict(image)}
                    if header is None:
                        header = list(row)
                        table.writerow(header)
                    table.writerow(spreadsheet_text(cell) for cell in row.values())
        return text.getvalue()


def evaluate_localizer(
    samples: SampleSet,
    model: SpliceLocalizer,
    *,
    controls: bool = True,
    jobs: int = 1,
    folder: str | os.PathLike[str] | None = None,
    replace: bool = False,
    progress: Callable[[float], None] | None = None,
    judging_progress: Callable[[float], None] | None = None,
) -> LocalizerReport:
    """Score a localizer on a data set, by all protocols, and count its right and false alarms.

    Parameters
    ----------
    samples : SampleSet
        With spliced photos. Authentic ones are judged, if the localizer judges at all.
    model : SpliceLocalizer
    controls : bool, default=True
        Whether the simple maps of `cpcapp.splicing.score.controls` are scored too.
    jobs : int, default=1
        Photos at the same time. The result does not depend on it.
    folder : path, optional
        Write the scores, and a picture of each photo, to this folder::

            scores.json, scores.csv
            cases/0001_0.912_NAME.png     the photo with the best MCC by the protocol ``edge``, ...
            best.png, worst.png           the first and the last of them
            index.html                    all of them

        Until they are complete, and if something fails, nothing in it changes.
    replace : bool, default=False
        Whether earlier results in the folder are replaced. Other files are kept.
    progress, judging_progress : callable, optional
        Called with the share done, from 0 to 1, of the spliced photos and of the authentic ones.

    Returns
    -------
    LocalizerReport

    Raises
    ------
    ValueError
        If no photo is spliced, or (`FolderInUseError`) if the folder is not empty.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from cpcapp.splicing import load_model
    >>> from cpcapp.splicing.make.splices import SpliceMaker
    >>> from cpcapp.splicing.photo.samples import SourcePhoto
    >>> dark = SourcePhoto("dark", partial(np.full, (80, 96, 3), 30, np.uint8))
    >>> light = SourcePhoto("light", partial(np.full, (80, 96, 3), 220, np.uint8))
    >>> splices = SpliceMaker([dark, light]).samples(2)
    >>> report = evaluate_localizer(splices, load_model("filters"), controls=False)
    >>> report.title.partition(";")[0]
    'splices: 2 spliced photos scored'
    >>> list(report.evaluation.scores["cPCA++"])
    ['edge', 'edge-r2', 'edge-fixed', 'surface', 'surface-fixed']
    """
    if not samples.spliced:
        why = "".join(f"; {problem}" for problem in samples.problems[:3])
        raise ValueError(
            f"{samples.name} has {len(samples)} authentic photos and no spliced one with a mask; "
            f"there is nothing to score{why}"
        )
    with nullcontext() if folder is None else open_album(folder, replace=replace) as album:
        verdicts: list[PhotoVerdict] = []

        def on_case(case: Case) -> None:
            verdicts.append(PhotoVerdict.from_maps(case.sample.name, False, case.maps[METHOD]))
            if album is not None:
                album.draw(case)

        result = evaluate(
            samples,
            {METHOD: model},
            controls=CONTROLS if controls else {},
            protocols=PROTOCOLS,
            thresholds={METHOD: model.threshold},
            jobs=jobs,
            progress=progress,
            on_case=on_case,
        )
        scores = None
        if any(verdict.score is not None for verdict in verdicts):
            authentic, problems = judge_photos(
                samples.authentic.samples, model, jobs=jobs, progress=judging_progress
            )
            # Threads finish in any order.
            photos = sorted([*verdicts, *authentic], key=lambda one: (one.authentic, one.name))
            scores = VerdictScores(tuple(photos))
            result = replace_fields(result, problems=(*result.problems, *problems))
        report = LocalizerReport(model.name, model.version, result, scores)
        if album is not None:
            album.finish(report)
    return report


# -- the folder with pictures ------------------------------------------------------------------


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
    """Make a folder of results; until they are complete nothing in it changes."""
    check_album_folder(folder, replace=replace)
    with stage_results(folder) as staged:
        yield Album(staged)


class Album:
    """Draws photos while they are scored, and sorts them when the ranks are known."""

    def __init__(self, staged: StagedResults) -> None:
        self.staged = staged
        self.unsorted = staged.place / "unsorted"
        self.unsorted.mkdir()
        self.drawn: dict[str, Path] = {}
        self.numbers = count()

    def draw(self, case: Case) -> None:
        """Draw a photo; several threads may do so at a time."""
        caption = f"{case.sample.name}   {_describe(case.scores[METHOD]['edge'])}"
        boundary = case.maps[METHOD].boundary
        path = self.drawn[case.sample.name] = self.unsorted / f"{next(self.numbers)}.png"
        _write_png(path, case_picture(case.image, case.mask, case.edges, boundary, caption=caption))

    def finish(self, report: LocalizerReport) -> None:
        """Sort the pictures, write everything else, and put it in the place of earlier results."""
        new = self.staged.new
        (new / "cases").mkdir()
        images = report.evaluation.scores[METHOD]["edge"].images
        ranked = {}
        for rank, image in enumerate(sorted(images, key=lambda image: -image.mcc), start=1):
            name = re.sub(r"[^A-Za-z0-9.-]+", "_", image.name)[-80:]
            file = new / "cases" / f"{rank:04d}_{image.mcc:.3f}_{name}.png"
            ranked[self.drawn[image.name].replace(file)] = image
        files = list(ranked)
        for name, chosen in (("best.png", files[:_PER_SHEET]), ("worst.png", files[::-1])):
            if chosen:
                pictures = [np.asarray(Image.open(file)) for file in chosen[:_PER_SHEET]]
                _write_png(new / name, contact_sheet(pictures))
        texts = {
            INDEX: _page(report, ranked),
            "scores.csv": report.to_csv(),
            _SCORES: json.dumps(report.to_dict(), indent=1, allow_nan=False),
        }
        for name, text in texts.items():
            with atomic_write(new / name) as out:
                out.write(text.encode(errors="backslashreplace"))
        cases = (file.name for file in self.staged.folder.glob("cases/*.png"))
        earlier = [f"cases/{name}" for name in cases if re.fullmatch(_CASE, name)]
        self.staged.commit(marker=_SCORES, remove=[*_FILES, *earlier])


def _describe(score: ImageScore) -> str:
    return f"MCC {score.mcc:.3f}   F1 {score.f1:.3f}"


def _page(report: LocalizerReport, ranked: dict[Path, ImageScore]) -> str:
    """Return a page that shows the scores and the pictures."""
    protocols, rows = report.mean_scores() if report.evaluation.n_scored else ((), ())
    return render(
        "album.html",
        title=f"{report.evaluation.dataset}: scores",
        generator="cpcapp evaluate",
        heading=report.title,
        protocols=protocols,
        rows=rows,
        verdicts="" if report.verdicts is None else report.verdicts.describe(),
        problems=report.problems,
        pictures=[
            {
                "address": f"cases/{quote(file.name)}",
                "caption": f"{image.name}, {_describe(image)}",
            }
            for file, image in ranked.items()
        ],
    )


def _write_png(path: Path, picture: Picture) -> None:
    with atomic_write(path) as out:
        out.write(encode_png(picture))
