"""Results as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from cpcapp import __version__
from cpcapp.experiments._results import Missing, Picture, Result, Settings, Table
from cpcapp.experiments._text import HEADING, MISSING, cell_text, preamble
from cpcapp.experiments.paper import CITATION

_LARGE = 1000  # pixels: on a phone such a picture is scrolled, and not shrunk
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --soft: #5a5a60; --paper: #fdfdfc;
  --line: #d8d8d4; --card: #f2f2ef; --accent: #0060a0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e6; --soft: #a9a9ae; --paper: #17181a;
  --line: #3a3b3f; --card: #222327; --accent: #7cc0f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.3rem; line-height: 1.3;
  margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.8rem 0 .4rem; }
a { color: var(--accent); }
figure { margin: 1.5rem 0; }
figure img { display: block; max-width: 100%; height: auto; background: #fff;
  border: 1px solid var(--line); border-radius: 6px; }
@media (max-width: 45rem) { figure img.large { max-width: none; width: 52rem; } }
figcaption, .note, .data { color: var(--soft); font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tr.labelled td { font-style: italic; color: var(--soft); }
.paper, .missing { background: var(--card); border-radius: 6px; padding: .6rem 1rem; }
.missing { border-left: 4px solid #d55e00; }
summary { cursor: pointer; color: var(--accent); margin-top: 1.5rem; }
nav ol { padding-left: 1.4rem; }
"""


def html_page(outcomes: Sequence[Result | Missing], settings: Settings, made: str) -> str:
    """Return the report as one page: pictures and style are inside."""
    said = "\n".join(
        f"<p>{escape(line)}</p>" for line in preamble(outcomes, settings, __version__, made)
    )
    links = "\n".join(
        f'<li><a href="#{o.name}">{escape(o.title)}</a>'
        + (" (not made)" if isinstance(o, Missing) else "")
        + "</li>"
        for o in outcomes
    )
    sections = "\n".join(_section(outcome) for outcome in outcomes)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(HEADING)}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<h1>{escape(HEADING)}</h1>
{said}
</header>
<nav aria-label="Experiments"><ol>
{links}
</ol></nav>
<main>
{sections}
</main>
<footer><p class="note">The paper: {escape(CITATION)}.</p></footer>
</body>
</html>
"""


def _section(outcome: Result | Missing) -> str:
    head = f'<section id="{outcome.name}">\n<h2>{escape(outcome.title)}</h2>\n'
    if isinstance(outcome, Missing):
        reason = f'<p class="missing"><strong>{MISSING}</strong> {escape(outcome.reason)}</p>'
        return f"{head}{reason}\n</section>"
    parts = [
        f"<p>{escape(outcome.shows)}</p>",
        f"<p><strong>What to look at.</strong> {escape(outcome.look_at)}</p>",
        *(_figure(picture) for picture in outcome.pictures),
        f"<ul>{''.join(f'<li>{escape(found)}</li>' for found in outcome.findings)}</ul>",
        _paper(outcome),
        *(_table(table) for table in outcome.tables),
        f'<p class="data">Data: {escape(outcome.data)}</p>',
    ]
    return head + "\n".join(parts) + "\n</section>"


def _paper(result: Result) -> str:
    said = "".join(
        f"<p>{escape(s.text)} <span class='note'>{escape(s.source)}</span></p>"
        for s in result.paper
    )
    return f'<div class="paper"><strong>The paper says</strong>{said}</div>'


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    # The header of a PNG has its width in these bytes.
    kind = ' class="large"' if int.from_bytes(picture.png[16:20]) >= _LARGE else ""
    return (
        f'<figure><div class="wide"><img{kind} src="data:image/png;base64,{data}" '
        f'alt="{escape(picture.alt)}"></div>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    rows = "\n".join(
        ('<tr class="labelled">' if str(row[0]).endswith("*") else "<tr>")
        + "".join(f"<td>{escape(cell_text(cell))}</td>" for cell in row)
        + "</tr>"
        for row in table.rows
    )
    body = (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table>'
        "</div>"
    )
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    title = escape(table.title)
    if table.folded:
        return f"<details><summary>{title}</summary>{body}{note}</details>"
    return f"<h3>{title}</h3>{body}{note}"
