"""The parts of pages that scripts write: between two comments, with everything else as it is."""

from __future__ import annotations


def replace_part(page: str, name: str, text: str) -> str:
    """Return a page with the text between its comments ``<!-- NAME:begin -->`` and ``:end``."""
    begin, end = (f"<!-- {name}:{edge} -->" for edge in ("begin", "end"))
    before, has_begin, rest = page.partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise ValueError(f"the page must have {begin} and, after it, {end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"
