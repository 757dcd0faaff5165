"""The files of a result: their names, and checks before anything is written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cpcapp._io.files import FolderInUseError, check_replaceable, remove_leftovers
from cpcapp.tables.messages import TableError, check_choice, require_package
from cpcapp.tables.read.arrays import PARQUET_ENDINGS

_PLOT_ENDINGS = (".png", ".svg", ".pdf")


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Return whether the ending of a name says Parquet, in upper or lower case."""
    return os.fspath(path).lower().endswith(PARQUET_ENDINGS)


class ResultFiles:
    """The files that `write_results` writes. Where ``summary`` is, the others are complete."""

    def __init__(self, folder: Path, scores_format: str, plot: Path | None) -> None:
        self.folder, self.plot = folder, plot
        self.scores = folder / f"scores.{scores_format}"
        # Of an earlier run in the other format, which would not fit the rest.
        other_format = "parquet" if scores_format == "csv" else "csv"
        self.outdated_scores = folder / f"scores.{other_format}"
        self.loadings = folder / "loadings.csv"
        self.top_features = folder / "top_features.csv"
        self.model = folder / "model.safetensors"
        self.summary = folder / "summary.json"
        self.all = [self.scores, self.loadings, self.top_features, self.model, self.summary]
        self.all += [] if plot is None else [plot]

    def check(self, inputs: Sequence[str] = (), *, overwrite: bool = False) -> None:
        """Raise `TableError` if the files can't be written, would replace others, or are inputs.

        What killed runs left in the folder is removed first.
        """
        remove_leftovers(self.folder)
        if self.plot is not None:
            _check_plot(self.plot, self.folder)
            remove_leftovers(self.plot.parent, self.plot.name)
        if self.folder.resolve() in {Path(path).resolve() for path in inputs}:
            raise TableError(f"{self.folder} is read by this run", "choose another {folder}")
        existing = [path for path in [*self.all, self.outdated_scores] if path.exists()]
        check_not_input(existing, inputs)
        if existing and not overwrite:
            more = f", with {len(existing) - 1} more" if len(existing) > 1 else ""
            raise TableError(
                f"{existing[0]} exists already{more}",
                "replace with {overwrite}, or choose another {folder}",
                overwrite=True,
            )
        _check_folder(self.folder)
        for path in existing:
            try:
                check_replaceable(path)
            except FolderInUseError as error:
                raise TableError(error.reason, "move it away, or choose another {folder}") from None


def plan_files(
    folder: str | os.PathLike[str],
    target: str,
    *,
    scores_format: str | None = None,
    plot: str | os.PathLike[str] | None = None,
) -> ResultFiles:
    """Return the files that a result of a target table will have."""
    if scores_format is None:
        # A folder is one of Parquet files.
        scores_format = "parquet" if is_parquet(target) or Path(target).is_dir() else "csv"
    check_choice("scores_format", scores_format, ("csv", "parquet"))
    return ResultFiles(Path(folder), scores_format, None if plot is None else Path(plot))


def check_not_input(outputs: Sequence[Path], inputs: Sequence[str]) -> None:
    """Raise `TableError` if a file that is to be written is also read."""
    read = {Path(path.partition("::")[0]).resolve() for path in inputs}
    for path in outputs:
        if path.resolve() in read:
            raise TableError(f"{path} is read by this run; write to another file")


def _check_plot(plot: Path, folder: Path) -> None:
    if plot.suffix.lower() not in _PLOT_ENDINGS:
        raise TableError(
            f"a plot can't be written as {plot.name!r}",
            "{plot} must end in " + ", ".join(_PLOT_ENDINGS),
        )
    require_package("matplotlib", "plot")
    parent = plot.parent
    if parent.resolve() != folder.resolve() and not parent.is_dir():
        raise TableError(f"there is no folder {parent}", "make it, or choose another {plot}")


def _check_folder(folder: Path) -> None:
    """See that a folder can be made, without making it."""
    nearest = next(path for path in [folder, *folder.absolute().parents] if path.exists())
    if not nearest.is_dir():
        raise TableError(f"{nearest} is not a folder", "choose another {folder}")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise TableError(f"the folder {nearest} can't be written to", "choose another {folder}")
