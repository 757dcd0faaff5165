"""The summary of a reduction: as JSON, as lines of text, and the notes on its features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cpcapp import __version__
from cpcapp._io.text import number
from cpcapp.inference.held_out import HeldOutContrasts
from cpcapp.inference.permutation import PermutationTest
from cpcapp.tables.cleaning import describe_skipped
from cpcapp.tables.columns import Selection
from cpcapp.tables.messages import Message, count_of, quote_names
from cpcapp.tables.reduce import Reduction
from cpcapp.tables.sample_sets import SampleSet

_TOP_LISTED = 5


@dataclass(frozen=True)
class Summary:
    """What was found, for people and programs; ``str()`` gives the lines of text."""

    reduction: Reduction

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of ``summary.json``."""
        found, model = self.reduction, self.reduction.model
        test = found.significance
        return {
            "cpcapp": __version__,
            "numpy": np.__version__,
            "method": model.method,
            "standardize": model.standardize,
            "missing": model.missing,
            "alpha": number(model.info.get("alpha")),
            "n_features": len(model.features),
            "n_components": model.n_components,
            "eigenvalues": model.eigenvalues.tolist(),
            "contrasts": [number(value) for value in model.contrast.contrast],
            "held_out_contrasts": describe_held_out(found.held_out),
            "components_that_stand_out": test.n_components,
            "components_that_stand_out_by": test.test
            if test.reason is None
            else test.reason.text(),
            "permutation_test": _describe_permutations(test.permutations),
            "constant_in_background": found.constant_in_background,
            "constant": found.constant_features,
            "target": _describe_set(found.target),
            "background": None if found.background is None else _describe_set(found.background),
            "top_features": [
                [{"feature": name, "weight": number(weight)} for name, weight in top]
                for top in found.top_features(_TOP_LISTED)
            ],
            "notes": [
                *(note.text for note in found.doubts),
                *(note.problem for note in self._label_notes()),
            ],
        }

    def lines(self) -> list[str]:
        """Return the result in lines of text."""
        found, model = self.reduction, self.reduction.model
        sets = [one for one in (found.target, found.background) if one is not None]
        lines = [_set_line(one) for one in sets]
        tables = dict.fromkeys(one.selection.table for one in sets)
        lines += [
            f"{'recognised':11} {note}" for table in tables if (note := table.describe_reading())
        ]
        alpha = f", alpha {model.info['alpha']:.3g}" if "alpha" in model.info else ""
        mask = found.target.selection.table.mask_column
        genes = "" if mask is None or found.columns.explicit else f" (genes in var[{mask!r}])"
        lines.append(f"{'features':11} {len(model.features)}{genes}, method {model.method}{alpha}")
        for i, top in enumerate(found.top_features(_TOP_LISTED)):
            names = ", ".join(f"{name} {weight:+.3g}" for name, weight in top)
            lines.append(f"component {i + 1} {_size(found, i)}; top features: {names}")
        if found.n_significant is not None:
            verb = "is" if found.n_significant == 1 else "are"
            number = count_of(found.n_significant, "component")
            lines.append(f"{number} {verb} significant ({found.significance.describe()})")
        return lines

    def notes(self) -> list[Message]:
        """Return what a user should look at: rows left out, and doubtful features."""
        doubts = [Message(note.text) for note in self.reduction.doubts]
        return [*self._row_notes(), *doubts, *self._constant_notes(), *self._label_notes()]

    def _row_notes(self) -> Iterator[Message]:
        found = self.reduction
        for one in (found.target, found.background):
            skipped = "" if one is None else describe_skipped(one.counts, one.selection.table)
            if skipped:
                yield Message(skipped)
        reason = found.significance.reason
        if reason is not None and found.model.method == "cpca++":
            problem = f"the number of significant components was not tested: {reason.problem}"
            yield Message(problem, reason.advice, reason.values)

    def _constant_notes(self) -> Iterator[Message]:
        found = self.reduction
        for names, where in (
            (found.constant_in_background, "in the background"),
            (found.constant_features, "in both sets" if found.background else "in the target"),
        ):
            if names:
                verb = "is" if len(names) == 1 else "are"
                yield Message(f"{quote_names(names)} {verb} constant {where}")

    def _label_notes(self) -> Iterator[Message]:
        if self.reduction.columns.explicit:
            return
        finder = self.reduction.target.label_columns
        for name, count in finder.labels.items():
            yield Message(
                f"{name!r} is used as a feature, but has only {count} values, all whole numbers",
                "if it is a label, use {labels} or {drop}",
                {"labels": [name]},
            )
        for name in finder.row_numbers:
            yield Message(
                f"{name!r} is used as a feature, but counts the rows",
                "if it is a row number, use {ids} or {drop}",
                {"ids": [name]},
            )

    def __str__(self) -> str:
        notes = [f"note: {note.text()}" for note in self.notes()]
        return "\n".join([*self.lines(), *notes])


def _size(found: Reduction, component: int) -> str:
    """Return how much of a component there is, in words."""
    model = found.model
    if model.method != "cpca++":
        unit = "variance" if model.method == "pca" else "eigenvalue"
        return f"{model.eigenvalues[component]:.4g} {unit}"
    text = f"{model.contrast.contrast[component]:.4g} times the background's variance"
    if found.held_out is None:
        return text
    low, high = found.held_out.intervals[component]
    share = f"{100 * found.held_out.level:.0f} %"
    return (
        f"{text} ({found.held_out.contrasts[component]:.3g} in rows that were held out, {share} "
        f"interval {low:.3g} to {high:.3g})"
    )


def describe_held_out(found: HeldOutContrasts | None) -> list[dict[str, Any]] | None:
    """Return contrasts with their intervals, in types that JSON knows."""
    if found is None:
        return None
    return [
        {"contrast": number(value), "interval": [number(low), number(high)], "level": found.level}
        for value, (low, high) in zip(found.contrasts, found.intervals, strict=True)
    ]


def _describe_permutations(test: PermutationTest | None) -> dict[str, Any] | None:
    if test is None:
        return None
    return {
        "p": number(test.p_value),
        # Both in the units of the test, which has a loading of its own: not those of eigenvalues.
        "test_statistic": number(test.largest),
        "test_statistic_of_chance": number(test.threshold),
        "permutations": test.n_permutations,
        "target_rows": test.n_rows[0],
        "background_rows": test.n_rows[1],
    }


def _describe_set(sample_set: SampleSet) -> dict[str, Any]:
    selection = sample_set.selection
    values = None if selection.values is None else sorted(selection.values)
    return {
        "table": selection.table.name,
        "split": selection.column,
        "values": values,
        "all_values_but": sorted(selection.excluded) or None if values is None else None,
        "recognised": selection.table.reading_notes(),
        **sample_set.counts.to_dict(),
    }


def _set_line(sample_set: SampleSet) -> str:
    selection, counts = sample_set.selection, sample_set.counts
    dropped = 0 if counts.n_filled else counts.n_incomplete
    facts = [
        f"{count_of(number, noun)} {verb}"
        for number, noun, verb in (
            (counts.n_bad, "bad row", "left out"),
            (dropped, "row", "with missing values left out"),
            (counts.n_filled, "missing value", "filled in"),
        )
        if number
    ]
    remark = f" ({', '.join(facts)})" if facts else ""
    rows = f"{count_of(counts.n_used, 'row')} of {selection.table.name}{_condition(selection)}"
    return f"{selection.role:11} {rows}{remark}"


def _condition(selection: Selection) -> str:
    if selection.column is None:
        return ""
    values = selection.excluded if selection.values is None else selection.values
    verb = "is not" if selection.values is None else "is"
    return f" where {selection.column} {verb} {' or '.join(sorted(values))}"
