"""Numbers and sentences that all forms of the report share."""

from __future__ import annotations

from collections.abc import Sequence

from cpcapp.experiments._results import Cell, Missing, Result, Settings

HEADING = "cPCA++: the paper's experiments, made again"
MISSING = "Not made: the data are not here."
SUMMARY_COLUMNS = ("experiment", "figure of the paper", "found")
SUMMARY_NOTE = (
    "ARI: agreement of clusters with the classes, 1 is perfect and 0 is chance. * chosen with what "
    "is to be found at hand. –: the paper gives no figure."
)


def cell_text(value: Cell) -> str:
    """Return a cell as text: three digits, no more than a reader needs.

    Examples
    --------
    >>> cell_text(0.78935), cell_text(26.0), cell_text(428654.0), cell_text(1.8e-3), cell_text(None)
    ('0.789', '26', '428,654', '0.0018', '–')
    """
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    if abs(value) >= 1000.0:
        return f"{value:,.0f}"
    if 0.0 < abs(value) < 1e-6:
        return "0.000" if value > 0 else "-0.000"
    return f"{value:.3g}".replace("e-0", "e-") if abs(value) < 1e-3 else _plain(value)


def _plain(value: float) -> str:
    digits = 3 if abs(value) < 10.0 else 1 if abs(value) < 100.0 else 0
    if abs(value) < 0.01:
        return f"{value:.3g}"
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits == 1 else text


def preamble(
    outcomes: Sequence[Result | Missing], settings: Settings, version: str, made: str
) -> list[str]:
    """Say what the report is, in a few sentences."""
    done = sum(isinstance(outcome, Result) for outcome in outcomes)
    lines = [
        "PCA looks for what varies most in a data set. cPCA and cPCA++ look for what varies more "
        "in a target than in a background. cPCA needs a setting, α, that somebody has to choose; "
        "cPCA++ needs none. The paper shows this on the examples below. Here each of them was "
        "made again, with default settings, and measured.",
        f"Made with cpcapp {version} on {made}, seed {settings.seed}"
        + (", as a quick run: fewer rows, fewer α, a short t-SNE." if settings.quick else "."),
    ]
    if done < len(outcomes):
        lines.append(
            f"{len(outcomes) - done} of {len(outcomes)} experiments could not be made; their "
            "sections say what is missing."
        )
    return lines


def summary_rows(outcomes: Sequence[Result | Missing]) -> list[tuple[str, str, str]]:
    """Return a row for each experiment: its title, a figure of the paper, and what was found."""
    return [
        (outcome.title, "–", "not made")
        if isinstance(outcome, Missing)
        else (outcome.title, outcome.paper_figure or "–", outcome.found_figure or "–")
        for outcome in outcomes
    ]
