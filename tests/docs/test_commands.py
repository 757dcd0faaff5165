"""The page of all commands: the same as the parser says."""

from __future__ import annotations

import argparse
import importlib.util
import re
from pathlib import Path

import pytest

from cpcapp.cli import build_parser

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def make_commands():
    spec = importlib.util.spec_from_file_location("make_commands", DOCS / "make_commands.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(make_commands):
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    message = "docs/commands.md is not what the commands say; run: make commands"
    assert page == make_commands.commands_page(build_parser()), message


def test_every_option_of_the_help_is_on_the_page(make_commands, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    page = make_commands.commands_page(build_parser())
    commands = next(
        a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)
    ).choices
    sections = dict(re.findall(r"^## (cpcapp \S+)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    assert list(sections) == [command.prog for command in commands.values()]
    for command in commands.values():
        offered = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", command.format_help()))
        assert offered - {"-h", "--help"}
        for option in offered - {"-h", "--help"}:
            assert re.search(rf"`{option}[` ]", sections[command.prog]), (command.prog, option)


def test_usage_is_laid_out_as_help_does(make_commands):
    parser = argparse.ArgumentParser(prog="tool")
    parser.add_argument("file", nargs="+", metavar="FILE", help="a|b_c --flag <d>")
    parser.add_argument("-o", "--output", required=True, metavar="DIR")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--resume", action="store_true")
    either.add_argument("--force", action="store_true")
    parser.add_argument("--hidden", help=argparse.SUPPRESS)
    assert make_commands.usage(parser) == "tool -o DIR [--resume | --force] FILE [FILE ...]"
    text = "\n".join(make_commands.groups(parser))
    assert r"a\|b\_c `--flag` \<d\>" in text
    assert "hidden" not in text
