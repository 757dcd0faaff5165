"""Two traps of composing estimators, seen from inside `fit`.

A background that is passed as a fit parameter is not the concern of the meta-estimators above:
`GridSearchCV` and its kin cut any array parameter to the rows of the fold if it happens to have
as many rows as X, and a `Pipeline` hands it to the last step without the transformations that X
went through. Both give a result, and a wrong one. Nothing in the data shows it, only the call
stack does, so that is what is looked at here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from sklearn.pipeline import Pipeline

from cpcapp.moments.moments import Moments


def refuse_misrouted_background(estimator: Any, n_rows: int, background: Any) -> None:
    """Raise ``ValueError`` if ``background`` was cut by fold or skipped a pipeline's steps."""
    for frame in _frames_above():
        module = frame.f_globals.get("__name__", "")
        if module.startswith("sklearn.model_selection"):
            _refuse_cut_by_fold(n_rows, background)
        elif module == "sklearn.pipeline":
            pipeline = frame.f_locals.get("self")
            if isinstance(pipeline, Pipeline):
                _refuse_skipped_steps(estimator, pipeline)


def _frames_above() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _refuse_cut_by_fold(n_rows: int, background: Any) -> None:
    if not isinstance(background, Moments) and background.shape[0] == n_rows:
        raise ValueError(
            f"background has as many rows as X ({n_rows}) inside a cross-validation, which cuts "
            "such arrays by fold; pass background=Moments.of(background), or stack both in X and "
            "mark the background rows with is_background"
        )


def _refuse_skipped_steps(estimator: Any, pipeline: Pipeline) -> None:
    if "background" in (getattr(pipeline, "transform_input", None) or ()):
        return
    before = []
    for name, step in pipeline.steps:
        if step is estimator or type(step) is type(estimator):
            break
        if step is not None and step != "passthrough":
            before.append(name)
    else:
        return
    if before:
        raise ValueError(
            f"background reaches this step of the pipeline without {', '.join(before)}, which X "
            "went through; use Pipeline(..., transform_input=['background']) with "
            "sklearn.set_config(enable_metadata_routing=True), or stack both in X and mark the "
            "background rows with is_background"
        )
