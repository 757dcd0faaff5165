"""Proteins in the brains of mice that learn, with and without trisomy."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from cpcapp.datasets._contrast_data import ContrastData, standardize_columns
from cpcapp.datasets._fetch import MICE, PathLike, fetch, find
from cpcapp.moments.rows import FloatArray

Missing = Literal["zero", "mean", "drop-rows", "drop-features", "keep"]

_FACTS = ("MouseID", "Genotype", "Treatment", "Behavior")


def mice_protein(
    *,
    missing: Missing = "zero",
    standardize: bool = True,
    data_home: PathLike | None = None,
) -> ContrastData:
    """Load the mice protein expression data: what trisomy changes after a shock.

    77 proteins were measured in the cortex of 72 mice, 15 times each. As in the paper and in
    that of cPCA the target are mice under ``S/C`` (shock, then context) and saline: 135
    measurements of mice with trisomy (Ts65Dn, a model of Down syndrome) and 135 without. The
    background are 135 measurements of mice without trisomy, under ``C/S`` (context, then shock)
    and saline. The paper calls the target "with shock therapy" and the background "without".

    Parameters
    ----------
    missing : {"zero", "mean", "drop-rows", "drop-features", "keep"}, default="zero"
        What becomes of the 1.7 % of all values that are missing.

        - ``"zero"`` makes them 0 *before* standardizing, as the authors of cPCA do. All measured
          values are above 0, so these stand out; in five proteins a fifth or more of a set
          is missing.
        - ``"mean"`` takes the protein's mean in the same set, which says nothing of the class.
        - ``"drop-rows"`` leaves out measurements with a missing value, ``"drop-features"``
          proteins with one in either set.
        - ``"keep"`` leaves NaN in place. Standardizing then ignores them.
    standardize : bool, default=True
        Centre each protein and divide it by its standard deviation, in each set by its own.
    data_home : path, optional
        The folder with ``mice_protein/Data_Cortex_Nuclear.csv``, the table of UCI saved as CSV,
        or ``mice_protein/MiceProtein.arff`` of OpenML, which is fetched if need be; see
        :doc:`/datasets`.

    Returns
    -------
    ContrastData
        ``labels`` are genotypes, and ``groups`` mice: the 15 measurements of a mouse are not
        independent.

    Raises
    ------
    DataNotFoundError
        If the table is not here and can't be fetched.

    Examples
    --------
    A table in the published layout, with two proteins and one mouse of each kind:

    >>> import pathlib, tempfile
    >>> home = pathlib.Path(tempfile.mkdtemp())
    >>> (home / "mice_protein").mkdir()
    >>> table = home / "mice_protein" / "Data_Cortex_Nuclear.csv"
    >>> _ = table.write_text('''MouseID,DYRK1A_N,ITSN1_N,Genotype,Treatment,Behavior,class
    ... 309_1,0.50,0.75,Control,Saline,S/C,c-SC-s
    ... 309_2,0.51,,Control,Saline,S/C,c-SC-s
    ... 3415_1,0.60,0.70,Ts65Dn,Saline,S/C,t-SC-s
    ... 320_1,0.40,0.65,Control,Saline,C/S,c-CS-s
    ... ''')
    >>> data = mice_protein(missing="mean", standardize=False, data_home=home)
    >>> data.target
    array([[0.5  , 0.75 ],
           [0.51 , 0.725],
           [0.6  , 0.7  ]])
    >>> data.feature_names, data.groups.tolist()
    (['DYRK1A_N', 'ITSN1_N'], [0, 0, 1])
    """
    if missing not in get_args(Missing):
        raise ValueError(f"missing={missing!r} must be one of {', '.join(get_args(Missing))}")
    table = find(data_home, "mice_protein/Data_Cortex_Nuclear.csv")
    path = table[0] if table else fetch(MICE, data_home)
    names, values, facts = _read_table(path)
    saline = facts["Treatment"] == "Saline"
    control = facts["Genotype"] == "Control"
    target = saline & (facts["Behavior"] == "S/C")
    background = saline & (facts["Behavior"] == "C/S") & control
    if not (target.any() and background.any()):
        raise ValueError(
            f"{path} has {target.sum()} rows of the target (S/C, Saline) and {background.sum()} "
            "of the background (C/S, Saline, Control); both are needed"
        )
    if missing == "drop-rows":
        whole = ~np.isnan(values).any(axis=1)
        target, background = target & whole, background & whole
    elif missing == "drop-features":
        whole = ~np.isnan(values[target | background]).any(axis=0)
        names, values = names[whole], values[:, whole]
    elif missing == "zero":
        values = np.nan_to_num(values)
    sets = [values[target], values[background]]
    if missing == "mean":
        from sklearn.impute import SimpleImputer

        # A protein that was never measured in a set has no mean there: it becomes 0.
        sets = [SimpleImputer(keep_empty_features=True).fit_transform(rows) for rows in sets]
    # 309_1 and 309_2 are measurements of one mouse, named 309.
    mice = [name.rpartition("_")[0] or name for name in facts["MouseID"][target]]
    shown, behind = map(standardize_columns, sets) if standardize else sets
    return ContrastData(
        shown,
        behind,
        labels=(~control[target]).astype(np.intp),
        feature_names=names.tolist(),
        label_names=["Control", "Ts65Dn"],
        groups=np.unique(mice, return_inverse=True)[1],
        source="Higuera, Gardiner, Cios 2015: mice protein expression",
    )


def _rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the header and the rows of a table in CSV, or in ARFF as OpenML has it."""
    lines = (line for line in lines if line.strip() and not line.startswith("%"))
    first = next(lines, "")
    if not first.lower().startswith("@relation"):
        yield from csv.reader(chain([first], lines))
        return
    header = takewhile(lambda line: not line.lower().startswith("@data"), lines)
    yield [line.split(maxsplit=2)[1] for line in header if line.lower().startswith("@attribute")]
    yield from csv.reader(lines, quotechar="'")


def _read_table(path: Path) -> tuple[Any, FloatArray, dict[str, Any]]:
    """Return the names of the proteins, their values and what is known of each row."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = [[cell.strip(" '\"") for cell in row] for row in _rows(file)] or [[]]
    absent = [name for name in _FACTS if name not in header]
    proteins = [column for column, name in enumerate(header) if name.endswith("_N")]
    if absent or not proteins:
        lacks = ", ".join(absent) or "that ends in _N (a protein)"
        raise ValueError(f"{path} has no column {lacks}; it is not the mice protein table")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise ValueError(
                f"row {number} of {path} has {len(row)} values, its header {len(header)}; the "
                "file may be cut off"
            )
    cells = np.array(rows, dtype=str).reshape(len(rows), len(header))
    text = cells[:, proteins]
    try:
        values = np.where(np.isin(text, ("", "?", "NA")), "nan", text).astype(np.float64)
    except ValueError as error:
        raise ValueError(f"{path} has a value that is no number: {error}") from error
    facts = {name: cells[:, header.index(name)] for name in _FACTS}
    return np.array(header)[proteins], values, facts
