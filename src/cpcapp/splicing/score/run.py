"""Scoring a localizer, its verdicts and the controls on a data set, with pictures if wanted."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace as replace_fields

from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.photo.samples import SampleSet
from cpcapp.splicing.score.album import Album, open_album
from cpcapp.splicing.score.controls import CONTROLS
from cpcapp.splicing.score.evaluate import Case, evaluate
from cpcapp.splicing.score.protocols import PROTOCOLS
from cpcapp.splicing.score.report import METHOD, LocalizerReport
from cpcapp.splicing.score.verdict_scores import PhotoVerdict, VerdictScores, judge_photos


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
        Write the scores, and a picture of each photo, to this folder; see
        `cpcapp.splicing.score.album.open_album`.
    replace : bool, default=False
        Whether earlier results in the folder are replaced.
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
    >>> from cpcapp.splicing.photo.sources import SourcePhoto
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
    with ExitStack() as stack:
        album = None
        if folder is not None:
            album = stack.enter_context(open_album(folder, replace=replace))
        report = _evaluate(samples, model, controls, jobs, album, progress, judging_progress)
        if album is not None:
            album.finish(report)
    return report


def _evaluate(
    samples: SampleSet,
    model: SpliceLocalizer,
    controls: bool,
    jobs: int,
    album: Album | None,
    progress: Callable[[float], None] | None,
    judging_progress: Callable[[float], None] | None,
) -> LocalizerReport:
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
    if all(verdict.score is None for verdict in verdicts):
        return LocalizerReport(model.name, model.version, result)
    authentic, problems = judge_photos(
        samples.authentic.samples, model, jobs=jobs, progress=judging_progress
    )
    # Threads finish in any order.
    ordered = sorted([*verdicts, *authentic], key=lambda photo: (photo.authentic, photo.name))
    return LocalizerReport(
        model.name,
        model.version,
        replace_fields(result, problems=(*result.problems, *problems)),
        VerdictScores(tuple(ordered)),
    )
