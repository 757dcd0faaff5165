"""The scores of a localizer beside the controls: as text, a table and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from cpcapp import __version__
from cpcapp._io.text import spreadsheet_text
from cpcapp.splicing.photo.samples import Problem
from cpcapp.splicing.score.evaluate import Evaluation
from cpcapp.splicing.score.verdict_scores import VerdictScores

#: The name that the localizer has among the methods and controls.
METHOD: Final = "cPCA++"


@dataclass(frozen=True)
class LocalizerReport:
    """How well a localizer does on a data set.

    Made by `cpcapp.splicing.score.run.evaluate_localizer`.

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
        """Return the cells of a table of mean scores.

        Returns
        -------
        protocols : list of str
            Those that the localizer is scored by; the others say nothing about it.
        rows : list of (str, list of str)
            For each method and control its label, and F1 and MCC by each of the protocols.
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
            for protocol, found in scores.items():
                for image in found.images:
                    row = {"method": method, "protocol": protocol, **asdict(image)}
                    if header is None:
                        header = list(row)
                        table.writerow(header)
                    table.writerow(spreadsheet_text(cell) for cell in row.values())
        return text.getvalue()
