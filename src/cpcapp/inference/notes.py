"""What a reader of components should know: found by looking at the rows that gave them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cpcapp.contrast.solution import Contrast
from cpcapp.inference.permutation import PermutationTest
from cpcapp.moments.rows import FloatArray
from cpcapp.moments.sample import Sample

# Shares of a sum of squares above which one row, or one cell of it, is most of it.
MOST = 0.5
# Components, or features of a hidden direction, that a note names.
_NAMED = 3


@dataclass(frozen=True)
class Note:
    """One thing to know about components, as a sentence for readers."""

    code: Literal["no-contrast", "one-row", "hidden-direction"]
    text: str


def notes_on(
    contrast: Contrast,
    target: Sample,
    background: Sample | None,
    test: PermutationTest | None,
    feature_names: Sequence[Any] | None = None,
) -> list[Note]:
    """Return notes on components that one row carries, and on directions that they do not show."""

    def name(i: int) -> str:
        return f"feature {i if feature_names is None else repr(str(feature_names[i]))}"

    notes = list(_carried_by_one_row(contrast.filters, target, name))
    if test is not None and test.n_components and contrast.filters.shape[1]:
        notes += _hidden_directions(contrast.filters, target, test.filters, name)
    return notes


def shared_components(contrast: Contrast, n_target: int, n_background: int) -> list[Note]:
    """Return a note on components that vary no more in the target than in the background.

    A loading that is large against the background puts what both sets share before faint contrasts.
    """
    if contrast.background_mean is None:
        return []
    # Two standard errors of the logarithm of a ratio of variances
    limit = 1.0 + 2.0 * (2.0 / n_target + 2.0 / n_background) ** 0.5
    shared = np.flatnonzero(contrast.contrast <= limit)
    if not len(shared):
        return []
    which = ", ".join(str(k + 1) for k in shared[:_NAMED]) + (", …" if len(shared) > _NAMED else "")
    subject = f"Component {which} varies" if len(shared) == 1 else f"Components {which} vary"
    return [
        Note(
            "no-contrast",
            f"{subject} no more in the target than in the background (contrast "
            f"{contrast.contrast[shared[0]]:.2g}). Ask for fewer components "
            "(or, in Python, for less loading: loading='oas').",
        )
    ]


def _carried_by_one_row(
    filters: FloatArray, target: Sample, name: Callable[[int], str]
) -> Iterator[Note]:
    outputs = target.rows @ filters
    squares = outputs**2 * target.weights[:, None]
    for k, column in enumerate(squares.T):
        row = int(column.argmax())
        if column[row] <= MOST * column.sum():
            continue
        parts = target.rows[row] * filters[:, k]
        cell = int(np.abs(parts).argmax())
        # What the cell alone adds to the output, of all that is added with its sign
        alone = parts[cell] / parts[parts * parts[cell] > 0.0].sum()
        by = f"{name(cell)} = {target.raw[row, cell]:.4g}" + ("" if alone > MOST else " and others")
        share = 100.0 * column[row] / column.sum()
        yield Note(
            "one-row",
            f"Component {k + 1} is carried by one row of the target: row {target.index[row]} "
            f"({by}) has {share:.0f} % of its variance. Check that row, or fit without it.",
        )


def _hidden_directions(
    filters: FloatArray, target: Sample, counted: FloatArray, name: Callable[[int], str]
) -> Iterator[Note]:
    root = np.sqrt(target.weights)[:, None]
    basis = np.linalg.qr(target.rows @ filters * root).Q
    outputs = target.rows @ counted * root
    shown = ((basis.T @ outputs) ** 2).sum(axis=0) / (outputs**2).sum(axis=0)
    weights = np.abs(counted) * np.sqrt(target.variance())[:, None]
    for k in np.flatnonzero(shown < 1.0 - MOST):
        order = np.argsort(-weights[:, k], kind="stable")[:_NAMED]
        largest = [i for i in order if weights[i, k] >= 0.3 * weights[order[0], k]]
        yield Note(
            "hidden-direction",
            f"Direction {k + 1} of those counted is hardly seen in the components: they show "
            f"{100.0 * shown[k]:.0f} % of its variance. It lies mostly in "
            f"{', '.join(name(int(i)) for i in largest)}.",
        )
