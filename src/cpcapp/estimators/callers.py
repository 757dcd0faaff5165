"""Two traps of composing estimators, seen from inside `fit`.

A background that is passed as a fit parameter is not the concern of the meta-estimators above:
`GridSearchCV` and its kin cut any array parameter to the rows of the fold if it happens to have
as many rows as X, and a `Pipeline` hands it to the last step without the transformations that X
went through. Both give a result, and a wrong one. Nothing in the data shows it, only the call
stack does, so that is what is looked at here.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _num_samples

from cpcapp.moments.moments import Moments

# A call holds its parameters in dictionaries of dictionaries, as far down as routing nests them.
_DEPTH = 4


def refuse_misrouted_background(estimator: Any, n_rows: int, background: Any) -> None:
    """Raise ``ValueError`` if ``background``, as given, was cut by fold or skipped some steps."""
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    for number, above in enumerate(frames):
        module = above.f_globals.get("__name__", "")
        if module.startswith("sklearn.model_selection"):
            # A fold makes new arrays; what a caller further up holds itself was not cut.
            held = any(_holds(caller, background) for caller in frames[number + 1 :])
            # Nor was what an estimator below holds as its parameter.
            held = held or any(_keeps(caller, background) for caller in frames[:number])
            if (
                not held
                and not isinstance(background, Moments)
                and _num_samples(background) == n_rows
            ):
                raise ValueError(
                    f"background has as many rows as X ({n_rows}) inside a cross-validation, which "
                    "cuts such arrays by fold; pass background=Moments.of(background), or stack "
                    "both in X and mark the background rows with is_background"
                )
            return
        if module == "sklearn.pipeline" and isinstance(above.f_locals.get("self"), Pipeline):
            _refuse_skipped_steps(estimator, above.f_locals["self"])


def _holds(frame: FrameType, value: Any) -> bool:
    levels = [v for v in frame.f_locals.values() if isinstance(v, dict)]
    for _ in range(_DEPTH):
        found = [v for level in levels for v in level.values()]
        if any(v is value for v in found):
            return True
        levels = [v for v in found if isinstance(v, dict)]
    return False


def _keeps(frame: FrameType, value: Any) -> bool:
    estimator = frame.f_locals.get("self")
    return isinstance(estimator, BaseEstimator) and any(
        v is value for v in vars(estimator).values()
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
