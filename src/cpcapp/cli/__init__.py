"""The command ``cpcapp``: one module for each of its commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from cpcapp import __version__
from cpcapp._io.text import printable
from cpcapp.cli import (
    apply,
    demo,
    evaluate,
    localize,
    make_splices,
    reduce,
    reproduce,
    serve,
    train,
    train_edges,
    train_network,
)
from cpcapp.cli._errors import UserError

_COMMANDS = (
    *(apply, demo, evaluate, localize, make_splices, reduce, reproduce, serve),
    *(train, train_edges, train_network),
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="cpcapp",
        description="Find where a photo was spliced, and what is special about one data set "
        "against another (cPCA++).",
    )
    parser.add_argument("--version", action="version", version=f"cpcapp {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        name = command.__name__.rpartition(".")[2].replace("_", "-")
        one = commands.add_parser(name, help=command.HELP, description=command.DESCRIPTION)
        command.add_options(one)
        one.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    arguments = build_parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except UserError as error:
        print(f"cpcapp {arguments.command}: {printable(error)}", file=sys.stderr)
        return 2
    except MemoryError:
        print(f"cpcapp {arguments.command}: needs more memory than there is", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"cpcapp {arguments.command}: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has heard enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status
