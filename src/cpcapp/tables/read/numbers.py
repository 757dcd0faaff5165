"""Numbers as people write them: missing values, decimal commas, thousands separators."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# What people, R, pandas and spreadsheets write for a missing value.
MISSING = frozenset(
    "NA N/A n/a #N/A #NA <NA> NaN nan NAN -nan NULL null None".split()  # noqa: SIM905
) | {""}

# Blank, no-break, thin and narrow no-break space, and the apostrophes of Switzerland. No country
# writes one of them before decimals.
_BLANKS = " \u00a0\u2009\u202f'\u2019"
_EXPONENT = r"(?:[eE][-+]?[0-9]+)?"
_BLANK_GROUPS = re.compile(
    rf"[-+]?[1-9][0-9]{{0,2}}([{_BLANKS}])[0-9]{{3}}(?:\1[0-9]{{3}})*(?:[.,][0-9]*)?{_EXPONENT}"
)
_OTHER = {".": ",", ",": "."}
# For each decimal mark: numbers whose other mark separates thousands. Groups have three digits,
# and the first does not begin with 0.
_GROUPS = {
    decimal: re.compile(
        rf"[-+]?[1-9][0-9]{{0,2}}((?:{re.escape(other)}[0-9]{{3}})+)"
        rf"({re.escape(decimal)}[0-9]*)?{_EXPONENT}"
    )
    for decimal, other in _OTHER.items()
}
_DECIMALS = {
    decimal: re.compile(rf"[-+]?[0-9]*{re.escape(decimal)}[0-9]+{_EXPONENT}") for decimal in _OTHER
}


@dataclass(frozen=True)
class NumberMarks:
    """How a file writes its numbers.

    ``thousands``: the other mark is known to separate thousands. Then 1,234 is 1234; otherwise it
    may be 1.234 too, and is no number.
    """

    decimal: str = "."
    thousands: bool = False

    def parse_plain(self, text: str) -> float | None:
        """Return a number without thousands separators, NaN if missing, None for other text."""
        text = text.strip()
        if text in MISSING:
            return float("nan")
        # Python would read digits of other scripts too.
        if text.isascii() and (self.decimal == "." or "." not in text):
            return guess_number(text, self.decimal)
        return None

    def parse_grouped(self, text: str) -> float | None:
        """Return a number that has thousands separators; None if it is none, or is ambiguous."""
        text = text.strip()
        blank = _BLANK_GROUPS.fullmatch(text)
        if blank is not None and _OTHER[self.decimal] not in text:
            return guess_number(text.replace(blank.group(1), ""), self.decimal)
        found = _GROUPS[self.decimal].fullmatch(text)
        if found is None or not (self.thousands or _is_proof(found)):
            return None
        return guess_number(text.replace(_OTHER[self.decimal], ""), self.decimal)

    def looks_numeric(self, text: str) -> bool:
        """Return whether a number may be meant, even if it is refused for how it is written."""
        if guess_number(text, self.decimal) is not None or _BLANK_GROUPS.fullmatch(text):
            return True
        return any(pattern.fullmatch(text) for pattern in _GROUPS.values())

    def describe_problem(self, text: str) -> str:
        """Return what is wrong with a text that is no number, in brackets; or nothing."""
        plain = text.strip()
        if not plain.isascii() and guess_number(plain, self.decimal) is not None:
            return " (digits of another script? write 0 to 9)"
        if self.decimal == "," and guess_number(plain.replace(".", ""), ",") is not None:
            return " (a point, where other numbers have decimal commas? write 1234 or 1,234)"
        found = _GROUPS[self.decimal].fullmatch(plain)
        if found is not None and not self.thousands and not _is_proof(found):
            digits = plain.replace(",", "")
            return f" (its comma may separate thousands or decimals; write {digits} or " + (
                f"{plain.replace(',', '.')})"
            )
        if _DECIMALS[","].fullmatch(plain):
            return " (a decimal comma? write 1.5)"
        return ""


def find_marks(values: Iterable[str], delimiter: str) -> NumberMarks:
    """Return how numbers are written, by a sample of the values of a file.

    Only values that can be read in one way count: 1,234.5 and 1,234,567 have thousands
    separators, 0,5 and 12,34 have decimals, and 1,234 says nothing. A comma that separates columns
    is not taken for a decimal mark.
    """
    # Numbers without a comma are English, unless they have two points.
    marked = [v for value in values if "," in (v := value.strip()) or v.count(".") != 0]
    if not any("," in value or value.count(".") > 1 for value in marked):
        return NumberMarks()
    marked = [_remove_blanks(value) for value in marked]
    if delimiter == ",":
        return NumberMarks(".", _has_proof(marked, "."))
    proofs = {decimal: _has_proof(marked, decimal) for decimal in _OTHER}
    # Among German thousands 1.234 is one more of them; otherwise it is English.
    points = _count_decimals(marked, ".", sure=proofs[","]) + proofs["."]
    commas = _count_decimals(marked, ",", sure=True) + proofs[","]
    decimal = "," if commas > points else "."
    return NumberMarks(decimal, proofs[decimal])


def _remove_blanks(text: str) -> str:
    found = _BLANK_GROUPS.fullmatch(text)
    return text if found is None else text.replace(found.group(1), "")


def _is_proof(found: re.Match[str]) -> bool:
    """Return whether a number has decimals besides its groups, or two groups."""
    return found.group(2) is not None or len(found.group(1)) > 4


def _has_proof(values: list[str], decimal: str) -> bool:
    found = (_GROUPS[decimal].fullmatch(value) for value in values)
    return any(match is not None and _is_proof(match) for match in found)


def _count_decimals(values: list[str], decimal: str, *, sure: bool) -> int:
    """Count values with this decimal mark; ``sure`` leaves out those that may be thousands."""
    pattern, groups = _DECIMALS[decimal], _GROUPS[_OTHER[decimal]]
    return sum(
        pattern.fullmatch(value) is not None and not (sure and groups.fullmatch(value))
        for value in values
    )


def describe_non_number(column: str, text: str) -> str:
    """Return which column holds a text in place of a number."""
    shown = text if len(text) <= 30 else text[:27] + "..."
    return f"column {column!r} is {shown!r}, not a number"


def guess_number(text: str, decimal: str) -> float | None:
    """Return what may be meant by a text that looks like a number; None for other text."""
    try:
        return None if "_" in text else float(text.replace(decimal, "."))
    except ValueError:
        return None
