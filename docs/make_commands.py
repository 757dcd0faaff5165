"""Write docs/commands.md: what ``--help`` says of each command, from the parser itself.

    python docs/make_commands.py [-o FILE]

The text of ``--help`` is laid out anew, because Python lays it out differently from version to
version.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cpcapp.cli import build_parser

WIDTH = 88
INTRODUCTION = """\
This page is made from the commands themselves by `make commands`: `cpcapp COMMAND --help` says the
same.

The exit status is 0 if all was done, 1 if a part could not be done (it is named at the end), 2
after a mistake, which one line explains, and 130 after Ctrl-C. With `--json`, where there is such
an option, standard output has JSON and nothing else.
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the page of all commands.")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "commands.md")
    arguments = parser.parse_args(argv)
    arguments.output.write_text(commands_page(build_parser()), encoding="utf-8")
    return 0


def commands_page(parser: argparse.ArgumentParser) -> str:
    """Return the page as MyST Markdown."""
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    summaries = [
        (f"[`{command.dest}`](#{slug(commands.choices[command.dest].prog)})", command.help or "")
        for command in commands._choices_actions
    ]
    blocks = ["# Commands", INTRODUCTION.strip(), table("command", summaries)]
    for command in commands.choices.values():
        blocks += [f"## {command.prog}", f"```\n{usage(command)}\n```"]
        blocks.append(escaped(command.description or ""))
        blocks += groups(command)
    return "\n\n".join(blocks) + "\n"


def usage(parser: argparse.ArgumentParser) -> str:
    """Return the usage in lines of at most WIDTH, none of which ends within an option."""
    lines = [parser.prog]
    for part in usage_parts(parser):
        if len(lines[-1]) + 1 + len(part) > WIDTH:
            lines.append("   ")
        lines[-1] += f" {part}"
    return "\n".join(lines)


def usage_parts(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield options as `--help` has them: optional in brackets, alternatives joined."""
    together = {
        action: group
        for group in parser._mutually_exclusive_groups
        for action in group._group_actions
    }
    done: set[argparse.Action] = set()
    for action in sorted(shown(parser._actions), key=lambda a: not a.option_strings):
        group = together.get(action)
        members = [action] if group is None else shown(group._group_actions)
        required = action.required if group is None else group.required
        if action in done:
            continue
        done.update(members)
        text = " | ".join(
            f"{flag} {values(a)}".strip() for a in members for flag in a.option_strings[:1] or [""]
        )
        bare = required or not action.option_strings
        yield text if bare and len(members) == 1 else f"({text})" if bare else f"[{text}]"


def groups(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a table of each group of options, with its title if the program gave it one."""
    for group in parser._action_groups:
        actions = shown(group._group_actions)
        if not actions:
            continue
        if group.title not in ("positional arguments", "options"):
            about = f": {escaped(group.description)}" if group.description else ""
            yield f"**{escaped((group.title or '').capitalize())}**{about}"
        rows = [
            (names(a), parser._get_formatter()._expand_help(a) if a.help else "") for a in actions
        ]
        yield table("option" if actions[0].option_strings else "argument", rows)


def shown(actions: Sequence[argparse.Action]) -> list[argparse.Action]:
    """Leave out the help itself and what the program hides."""
    return [a for a in actions if a.help != argparse.SUPPRESS and a.dest != "help"]


def names(action: argparse.Action) -> str:
    value = values(action)
    if not action.option_strings:
        return f"`{value}`"
    *others, last = action.option_strings
    return ", ".join([*(f"`{other}`" for other in others), f"`{f'{last} {value}'.strip()}`"])


def values(action: argparse.Action) -> str:
    """Return what is to be given after an option: `DIR`, `PHOTO [PHOTO ...]`, `{csv,parquet}`."""
    if action.nargs == 0:
        return ""
    default = action.dest.upper() if action.option_strings else action.dest
    return argparse.HelpFormatter("")._format_args(action, default)


def table(what: str, rows: Sequence[tuple[str, str]]) -> str:
    lines = [f"| {what} | |", "| --- | --- |"]
    lines += [f"| {name.replace('|', chr(92) + '|')} | {escaped(text)} |" for name, text in rows]
    return "\n".join(lines)


def slug(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def escaped(text: str) -> str:
    """Put options in code, keep Markdown from reading other signs, and the text on one line."""
    pieces = re.split(r"((?<!\S)--[a-z][\w-]*)", " ".join(text.split()))
    for i, piece in enumerate(pieces):
        pieces[i] = f"`{piece}`" if i % 2 else re.sub(r"([\\`*_<>\[\]$|])", r"\\\1", piece)
    return "".join(pieces)


if __name__ == "__main__":
    sys.exit(main())
