"""``cpcapp evaluate``: score a model, and the controls it has to beat, on a data set."""

from __future__ import annotations

import argparse
import csv
import html
import io
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from cpcapp import __version__
from cpcapp._files import atomic_write
from cpcapp._parallel import shared_cores
from cpcapp._text import printable
from cpcapp.cli._errors import UserError, require
from cpcapp.cli._progress import ProgressLine
from cpcapp.cli.localize import open_model

if TYPE_CHECKING:
    from cpcapp.splicing.evaluation.evaluate import Case, Evaluation
    from cpcapp.splicing.evaluation.protocols import ImageScore
    from cpcapp.splicing.evaluation.verdict_scores import VerdictScores
    from cpcapp.splicing.localizer import SpliceLocalizer
    from cpcapp.splicing.photos.samples import Problem, Sample, SampleSet

METHOD: Final = "cPCA++"
_KINDS: Final = ("auto", "columbia", "casia", "nimble", "pairs")
_FILES: Final = ("scores.json", "scores.csv", "index.html", "best.png", "worst.png")
_CASE: Final = r"\d{4,}_\d\.\d{3}_.*\.png"
_UNSORTED: Final = "unsorted-cases-"
_ON_A_SHEET: Final = 5


def add_parser(commands: Any) -> None:
    """Add this command to ``cpcapp``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "evaluate",
        help="score a model on spliced photos with known masks",
        description="Score how well a model finds the seam in the spliced photos of a data set, "
        "beside simple controls. edge: the truth is a band of 4 pixels to either side of the "
        "seam, and for each photo the best threshold counts; edge-r2: the same with 2 pixels; "
        "edge-fixed: 4 pixels, and the model's own threshold for all photos. surface: the truth is "
        "the pasted part, best threshold, the better of map and negative; surface-fixed: threshold "
        "0.5 and no negative. Scores are means over photos. Verdicts are compared between spliced "
        "and authentic photos, over pairs of the same size too. Photos "
        "that can't be used are named at the end, and the exit status is 1.",
    )
    parser.add_argument("dataset", type=Path, metavar="DATASET", help="its folder, as published")
    parser.add_argument(
        "--model", type=Path, metavar="M", help="a trained model (default: the one shipped)"
    )
    parser.add_argument(
        "--kind", choices=_KINDS, default="auto", help="whose layout the folder has"
    )
    parser.add_argument(
        "--collection", metavar="NAME", help="of Nimble these probes only, such as Nimble-WEB"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, and nothing else"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="write scores.json, scores.csv, and a picture of each photo with the true seam, all "
        "edges and the model's map; index.html shows them, the best first",
    )
    parser.add_argument("--force", action="store_true", help="replace the results in DIR")
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="use N spliced and N authentic photos, spread over the data set",
    )
    parser.add_argument(
        "--jobs", type=int, default=2, metavar="J", help="photos at once (default: %(default)s)"
    )
    parser.add_argument("--no-controls", action="store_true", help="score the model alone")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    for module in ("cv2", "PIL", "safetensors"):
        require(module, "splicing")
    for name in ("limit", "jobs"):
        if getattr(arguments, name) is not None and getattr(arguments, name) < 1:
            raise UserError(f"--{name} {getattr(arguments, name)} must be at least 1")
    folder: Path | None = arguments.output
    if folder is not None:
        _check_folder(folder, arguments.force)
    elif arguments.force:
        raise UserError("--force replaces results in a folder; give it with -o DIR")
    model = open_model(arguments.model)
    samples = _samples(arguments)
    try:
        with _album(folder, arguments.force) as album:
            result, verdicts = _evaluate(samples, model, album, arguments)
            report = {
                "version": __version__,
                "model": {"name": model.name, "version": model.version},
                **result.to_dict(),
                "verdict": verdicts and verdicts.to_dict(),
            }
            if album is not None:
                album.finish(result, report)
    except OSError as error:
        raise UserError(f"can't write results: {' '.join(str(error).split())}") from error
    if arguments.json:
        print(json.dumps(report, indent=1, allow_nan=False))
    else:
        print("\n".join(_table(result, model.name)))
        if verdicts is not None:
            print("\n" + _of_verdicts(verdicts))
        if folder is not None:
            print(f"\n{printable(folder / 'index.html')} shows the photos, the best first")
    for problem in result.problems:
        print(f"cpcapp evaluate: left out {problem}", file=sys.stderr)
    return 1 if result.problems else 0


def _check_folder(folder: Path, force: bool) -> None:
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise UserError(
            f"{printable(folder)} is not empty; choose another folder, or --force to replace the "
            "results in it"
        )


def _samples(arguments: argparse.Namespace) -> SampleSet:
    """Open the data set; of its spliced and its authentic photos keep as many as are wanted."""
    from cpcapp.splicing.datasets import open_photos
    from cpcapp.splicing.photos.samples import SampleSet

    kind: str = arguments.kind
    options: dict[str, Any] = {}
    if arguments.collection is not None:
        if kind not in ("auto", "nimble"):
            raise UserError(f"--collection is for Nimble, not for --kind {kind}; leave it out")
        kind, options = "nimble", {"collection": arguments.collection}
    try:
        with ProgressLine("opening") as progress:
            samples = open_photos(arguments.dataset, kind, progress=progress, **options)
    except (OSError, ValueError) as error:
        raise UserError(" ".join(str(error).split())) from error
    spliced, authentic = samples.spliced.samples, samples.authentic.samples
    if not spliced:
        why = "".join(f"; {problem}" for problem in samples.problems[:3])
        raise UserError(
            f"{printable(arguments.dataset)} has {len(authentic)} authentic photos and no spliced "
            f"one with a mask; there is nothing to score{why}"
        )
    kept = _spread(spliced, arguments.limit) + _spread(authentic, arguments.limit)
    return SampleSet(samples.name, kept, samples.problems)


def _spread(samples: tuple[Sample, ...], limit: int | None) -> tuple[Sample, ...]:
    n = min(len(samples), limit or len(samples))
    return tuple(samples[i * len(samples) // n] for i in range(n))


def _evaluate(
    samples: SampleSet,
    model: SpliceLocalizer,
    album: _Album | None,
    arguments: argparse.Namespace,
) -> tuple[Evaluation, VerdictScores | None]:
    from cpcapp.splicing.evaluation.controls import CONTROLS
    from cpcapp.splicing.evaluation.evaluate import evaluate
    from cpcapp.splicing.evaluation.protocols import PROTOCOLS
    from cpcapp.splicing.evaluation.verdict_scores import PhotoVerdict, VerdictScores

    judged: list[PhotoVerdict] = []

    def note(name: str, authentic: bool, found: Any) -> None:
        height, width = found.boundary.shape
        score, p_value = (getattr(found, key, None) for key in ("score", "p_value"))
        judged.append(PhotoVerdict(name, authentic, height, width, score, p_value))

    def on_case(case: Case) -> None:
        note(case.sample.name, False, case.maps[METHOD])
        if album is not None:
            album(case)

    with shared_cores(arguments.jobs), ProgressLine("scoring") as progress:
        result = evaluate(
            samples,
            {METHOD: model.localize},
            controls={} if arguments.no_controls else CONTROLS,
            protocols=PROTOCOLS,
            thresholds={METHOD: float(model.threshold)},
            jobs=arguments.jobs,
            progress=progress,
            on_case=on_case,
        )
    if not any(photo.score is not None for photo in judged):
        return result, None
    with shared_cores(arguments.jobs), ProgressLine("judging authentic photos") as progress:
        unread = _judge_authentic(samples.authentic.samples, model, arguments.jobs, progress, note)
    ordered = tuple(sorted(judged, key=lambda photo: (photo.authentic, photo.name)))
    return replace(result, problems=(*result.problems, *unread)), VerdictScores(ordered)


def _judge_authentic(
    samples: Sequence[Sample],
    model: SpliceLocalizer,
    jobs: int,
    progress: ProgressLine,
    note: Callable[[str, bool, Any], None],
) -> list[Problem]:
    """Localize authentic photos; return those that could not be."""
    from cpcapp.splicing.photos.samples import Problem

    problems = []
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [(sample, pool.submit(_localized, model, sample)) for sample in samples]
        try:
            for done, (sample, job) in enumerate(waiting, start=1):
                try:
                    note(sample.name, True, job.result())
                except (OSError, ValueError) as error:
                    problems.append(Problem(sample.name, " ".join(str(error).split())))
                progress(done / len(samples))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return problems


def _localized(model: SpliceLocalizer, sample: Sample) -> Any:
    return model.localize(sample.image)


def _of_verdicts(verdicts: VerdictScores) -> str:
    """Return a line on how well spliced photos are told from authentic ones."""
    figures = verdicts.to_dict()
    found = f"{100 * figures['found_of_spliced']:.0f} % of {figures['n_spliced']} spliced photos"
    line = f"verdict: at p <= {figures['alarm_level']} signs in {found}"
    if not figures["n_authentic"]:
        return line + "; there are no authentic photos to compare with"
    line += (
        f" and in {100 * figures['alarms_on_authentic']:.0f} % of {figures['n_authentic']} "
        f"authentic ones; area under the curve {figures['auc']:.3f}"
    )
    if figures["auc_same_size"] is not None:
        line += f", {figures['auc_same_size']:.3f} over pairs of one size"
    return line


def _title(result: Evaluation) -> str:
    return (
        f"{result.dataset}: {result.n_scored} spliced photos scored; {result.n_authentic} "
        "authentic ones have no seam and count for verdicts only"
    )


def _rows(result: Evaluation, model: str) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the protocols, and for each method its label and F1 and MCC by each of them.

    A protocol that the model is not scored by says nothing about it, and gets no columns.
    """
    protocols = list(result.scores[METHOD])
    rows = []
    for method, scores in result.scores.items():
        label = f"{METHOD} ({model})" if method == METHOD else f"control: {method}"
        means = [scores[protocol].mean if protocol in scores else None for protocol in protocols]
        values = [v for m in means for v in ((None, None) if m is None else (m.f1, m.mcc))]
        rows.append((label, ["-" if v is None else f"{v:.3f}" for v in values]))
    return protocols, rows


def _table(result: Evaluation, model: str) -> Iterator[str]:
    """Yield the lines that people read."""
    yield printable(_title(result))
    if not result.n_scored:
        return
    protocols, rows = _rows(result, model)
    width = max(len(label) for label, _ in rows) + 2
    yield ""
    yield (" " * width + "".join(f"{protocol:16}" for protocol in protocols)).rstrip()
    yield (" " * width + "F1      MCC     " * len(protocols)).rstrip()
    for label, cells in rows:
        yield (f"{label:{width}}" + "".join(f"{cell:8}" for cell in cells)).rstrip()


@contextmanager
def _album(folder: Path | None, force: bool) -> Iterator[_Album | None]:
    """Make the folder of results, if there is to be one."""
    if folder is None:
        yield None
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"can't make the folder {printable(folder)}: {error.strerror}") from error
    if force:
        _clear(folder)
    # Which place a picture takes is known when all photos are scored.
    with tempfile.TemporaryDirectory(prefix=_UNSORTED, dir=folder) as unsorted:
        album = _Album(folder, Path(unsorted))
        try:
            yield album
        finally:
            album.close()


def _clear(folder: Path) -> None:
    """Remove earlier results, and nothing else."""
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)
    for file in folder.glob("cases/*.png"):
        if re.fullmatch(_CASE, file.name):
            file.unlink()
    # Of a run that was killed.
    for unsorted in folder.glob(f"{_UNSORTED}*/"):
        shutil.rmtree(unsorted)


class _Album:
    """Draws photos while they are scored, and sorts them afterwards."""

    def __init__(self, folder: Path, unsorted: Path) -> None:
        self.folder = folder
        self.unsorted = unsorted
        self.drawn: dict[str, Path] = {}
        self.numbers = count()
        self.closed = False
        self.writing = Lock()

    def close(self) -> None:
        """Draw no more photos: a run that is stopped may have some under way."""
        with self.writing:
            self.closed = True

    def __call__(self, case: Case) -> None:
        """Draw a photo."""
        from cpcapp.splicing.pictures.panels import case_picture

        score = case.scores[METHOD]["edge"]
        picture = case_picture(
            case.image,
            case.mask,
            case.edges,
            case.maps[METHOD].boundary,
            caption=f"{case.sample.name}   {_figures(score)}",
        )
        encoded = _png(picture)
        with self.writing:
            if self.closed:
                return
            path = self.unsorted / f"{next(self.numbers)}.png"
            path.write_bytes(encoded)
            self.drawn[case.sample.name] = path

    def finish(self, result: Evaluation, report: dict[str, Any]) -> None:
        """Give the pictures their places, and write everything else."""
        from cpcapp.splicing.pictures.panels import contact_sheet

        (self.folder / "cases").mkdir(exist_ok=True)
        ranked = sorted(result.scores[METHOD]["edge"].images, key=lambda image: -image.mcc)
        files = []
        for rank, image in enumerate(ranked, start=1):
            file = self.folder / "cases" / f"{rank:04d}_{image.mcc:.3f}_{_slug(image.name)}.png"
            self.drawn[image.name].replace(file)
            files.append(file)
        if files:
            best, worst = files[:_ON_A_SHEET], files[::-1][:_ON_A_SHEET]
            for name, chosen in (("best.png", best), ("worst.png", worst)):
                sheet = contact_sheet([_read_png(file) for file in chosen])
                with atomic_write(self.folder / name) as out:
                    out.write(_png(sheet))
        page = "\n".join(_page(result, report["model"]["name"], ranked, files))
        for name, text in (
            ("index.html", page),
            ("scores.csv", _csv(result)),
            ("scores.json", json.dumps(report, indent=1, allow_nan=False)),
        ):
            with atomic_write(self.folder / name) as out:
                out.write(text.encode(errors="backslashreplace"))


def _figures(score: ImageScore) -> str:
    return f"MCC {score.mcc:.3f}   F1 {score.f1:.3f}"


def _slug(name: str) -> str:
    """Return a photo's name as a file can have it."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", name)[-80:]


def _png(picture: Any) -> bytes:
    from PIL import Image

    encoded = io.BytesIO()
    Image.fromarray(picture).save(encoded, "PNG")
    return encoded.getvalue()


def _read_png(path: Path) -> Any:
    import numpy as np
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image)


def _csv(result: Evaluation) -> str:
    """Return all scores, a line for each photo, method and protocol."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    header = None
    for method, scores in result.scores.items():
        for protocol, found in scores.items():
            for image in found.images:
                row = {"method": method, "protocol": protocol, **asdict(image)}
                if header is None:
                    header = list(row)
                    table.writerow(header)
                table.writerow(row.values())
    return text.getvalue()


def _page(
    result: Evaluation, model: str, ranked: Sequence[ImageScore], files: Sequence[Path]
) -> Iterator[str]:
    """Yield the lines of a page that shows the scores and the pictures."""
    title = html.escape(_title(result))
    yield '<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">'
    yield f"<title>{html.escape(result.dataset)}: scores</title>"
    yield (
        "<style>body{font:15px sans-serif;margin:2em;max-width:1500px}img{max-width:100%}"
        "td,th{padding:.2em .8em;text-align:right}td:first-child{text-align:left}</style>"
    )
    yield f"<h1>{title}</h1>"
    protocols, rows = _rows(result, model)
    if result.n_scored:
        yield "<table>\n<tr><th></th>"
        yield "".join(f'<th colspan="2">{protocol}</th>' for protocol in protocols) + "</tr>"
        yield "<tr><th></th>" + "<th>F1</th><th>MCC</th>" * len(protocols) + "</tr>"
        for label, cells in rows:
            figures = "".join(f"<td>{cell}</td>" for cell in cells)
            yield f"<tr><td>{html.escape(label)}</td>{figures}</tr>"
        yield "</table>"
    for problem in result.problems:
        yield f"<p>Left out: {html.escape(str(problem))}</p>"
    yield (
        "<p>Left: the photo with the true seam in pink. Middle: all edges. Right: the model's "
        "map. In order of MCC by the protocol edge, the best first.</p>"
    )
    for image, file in zip(ranked, files, strict=True):
        caption = html.escape(f"{image.name}, {_figures(image)}", quote=True)
        yield f'<p><img src="cases/{quote(file.name)}" alt="{caption}" loading="lazy"></p>'
    yield "</html>"
