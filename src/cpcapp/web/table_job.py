"""What a worker does with two tables: say what they hold, and compare three methods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cpcapp._io.messages import MessageError
from cpcapp.datasets import mice_like, synthetic
from cpcapp.tables import TableError, open_table
from cpcapp.tables.read import TEXT_ENDINGS, Table
from cpcapp.tables.read.arrays import PARQUET_ENDINGS
from cpcapp.tables.read.excel import EXCEL_ENDINGS
from cpcapp.tables.read.table import Progress, ProgressReport
from cpcapp.tables.scores import write_rows
from cpcapp.web.errors import PageError
from cpcapp.web.table_comparison import ROLES, compare_methods
from cpcapp.web.table_description import describe_tables
from cpcapp.web.worker_main import JobFiles, Report

#: Endings of names that are read, longest first. Others are refused before anything is opened.
ENDINGS = (*TEXT_ENDINGS, *PARQUET_ENDINGS, *EXCEL_ENDINGS, ".npy", ".npz")
#: Data that come with the package: title, and what is seen in them.
EXAMPLES = {
    "synthetic": (
        "Four groups under noise",
        "The paper's synthetic example: 400 rows, 30 features. The last ten features are loud in "
        "both tables and hide four groups from PCA.",
    ),
    "mice": (
        "Proteins of mice",
        "Random numbers in the shape of an experiment: 270 mice, 77 proteins, and a faint pattern "
        "that tells two groups apart.",
    ),
}

# When each step of the work begins and ends, as a share of all. By eye: reading takes longest.
_STEPS = {
    "averaging target": (0.0, 0.1),
    "averaging background": (0.2, 0.25),
    "reading target": (0.05, 0.2),
    "reading background": (0.25, 0.4),
    "finding components": (0.4, 0.6),
    "drawing target": (0.6, 0.9),
    "drawing background": (0.9, 1.0),
}
_STEPS_OF_DESCRIBING = {"reading target": (0.0, 0.6), "reading background": (0.6, 1.0)}
# What the page calls a parameter.
_WORDS = {
    "drop": "the list of columns",
    "labels": "the label",
    "ids": "the label",
    "missing": "“Missing values”",
    "standardize": "“Scale”",
}


def run_tables(folder: Path, request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Describe or compare the tables of a folder.

    ``files`` (in the folder) and ``names`` (to show) are by role. ``run`` counts the comparisons.
    """
    if request.get("example") is not None and not (folder / request["files"]["target"]).exists():
        _write_example(folder, request["example"])
    with _explaining(folder, request):
        target, background = (_open(folder, request, role) for role in ROLES)
        if request["action"] == "describe":
            described = describe_tables(target, background, _steps(report, _STEPS_OF_DESCRIBING))
            return {**described, "files": {}}
        comparison = compare_methods(
            target,
            background,
            columns=request["columns"],
            label=request["label"],
            standardize=request["standardize"],
            missing=request["missing"],
            folder=folder,
            report=_steps(report, _STEPS),
        )
    return _with_addresses(folder, comparison, request["run"])


def _open(folder: Path, request: dict[str, Any], role: str) -> Table:
    table = open_table(folder / request["files"][role])
    table.name = _name(table.name, folder, request)
    return table


def _name(text: str, folder: Path, request: dict[str, Any]) -> str:
    """Return a text in which files are called as the client calls them."""
    for role in ROLES:
        path, name = str(folder / request["files"][role]), request["names"][role]
        # A sheet of a workbook, or an array of an archive, stands behind the path.
        text = text.replace(f"{path}::", f"{name}, ").replace(path, name)
    return text


@contextmanager
def _explaining(folder: Path, request: dict[str, Any]) -> Iterator[None]:
    """Turn errors about tables into those of a job, in the words of the page."""
    try:
        yield
    except TableError as error:
        problem, advice = _spell(error)
        problem = _name(problem, folder, request)
        if not problem.startswith(tuple(request["names"].values())):
            problem = _capitalize(problem)
        raise PageError("bad_table", _end(problem), _end(_capitalize(advice))) from error
    except ValueError as error:
        # Of the estimators: names a parameter or a column, and no path.
        raise PageError("bad_table", _end(" ".join(str(error).split()))) from error


def _spell(error: MessageError) -> tuple[str, str]:
    """Return problem and advice, in the words of the page."""
    message = error.message
    if not message.advice:  # some problems end with it
        problem, _, advice = message.problem.rpartition("; ")
        return (problem, advice) if problem else (advice, "")
    whole = message.text(lambda name, value: _WORDS.get(name, name.replace("_", " ")))
    return message.problem, whole.removeprefix(f"{message.problem}; ")


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def _end(text: str) -> str:
    return text if not text or text.endswith((".", "?")) else f"{text}."


def _steps(report: Report, steps: dict[str, tuple[float, float]]) -> ProgressReport:
    @contextmanager
    def begin(title: str) -> Iterator[Progress]:
        start, end = steps.get(title, (0.0, 1.0))
        step = _capitalize(title)
        report(start, step)
        yield lambda share: report(start + share * (end - start), step)

    return begin


def _with_addresses(folder: Path, comparison: dict[str, Any], run: int) -> dict[str, Any]:
    """Return a comparison with addresses in place of names of files, and its list of files."""
    files = JobFiles(folder)

    def addresses(names: dict[str, str]) -> dict[str, str]:
        # Browsers keep files of a job; those of another comparison are others.
        return {kind: f"{files.offer(name)}?run={run}" for kind, name in names.items()}

    points = {role: addresses(names) for role, names in comparison["points"].items()}
    places = {"points": points, "rows": addresses(comparison["rows"])}
    return {
        **comparison,
        **places,
        "downloads": addresses(comparison["files"]),
        "files": files.types,
    }


def _write_example(folder: Path, name: str) -> None:
    """Write the tables of an example, the same each time."""
    # The noise is so strong that PCA sees nothing else, as in the paper's figure.
    data = (
        synthetic(noise_variance=100.0, random_state=0)
        if name == "synthetic"
        else mice_like(random_state=0)
    )
    groups = data.label_names or [f"group {chr(65 + i)}" for i in range(max(data.labels) + 1)]
    rows = [
        [f"r{number}", groups[label], *(f"{value:.6g}" for value in row)]
        for number, (label, row) in enumerate(zip(data.labels, data.target, strict=True), 1)
    ]
    write_rows(folder / "target.csv", ["name", "group", *data.feature_names], rows)
    others = [[f"{value:.6g}" for value in row] for row in data.background]
    write_rows(folder / "background.csv", data.feature_names, others)
