"""Errors of the parser of the command line, in one line like those of the commands."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from s2e.cli.terminal import err, printable

UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""Base of all errors of the parser, which versions of Typer take from different packages."""

KINDS = {"integer": "an integer", "number": "a number", "float": "a number"}
"""Types of values, by the word for them in messages of the parser."""


@contextmanager
def one_line_usage_errors(command: str, arguments: Sequence[str]) -> Iterator[None]:
    """Turn errors of the parser in the body into one line and exit code 2.

    Args:
        command: name of the command, as in "s2e search".
        arguments: its arguments.
    """
    try:
        yield
    except UsageError as problem:
        if type(problem).__name__ == "NoArgsIsHelpError":
            raise
        err.print(f"s2e: {printable(_message(problem, arguments))} See {command} --help.", markup=False)
        raise typer.Exit(2) from problem


def _message(problem: Any, arguments: Sequence[str]) -> str:
    kind, parameter = type(problem).__name__, getattr(problem, "param", None)
    text = problem.format_message().strip().split("\n")[0].rstrip(".")
    if kind == "NoSuchOption":
        known = [name for each in problem.ctx.command.params for name in (*each.opts, *each.secondary_opts)]
        near = difflib.get_close_matches(problem.option_name, [name for name in known if name[:2] == "--"], n=2)
        return f"there is no option {problem.option_name}" + (f"; did you mean {' or '.join(near)}?" if near else ".")
    if parameter is None:
        return f"{text[:1].lower()}{text[1:]}."
    name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar or parameter.name.upper()
    if kind == "MissingParameter":
        return f"`{name}` must be given."
    expected = next((words for word, words in KINDS.items() if word in text), None)
    if smallest := re.search(r"(?:greater than or equal to |range x>=)(\d+)", text):
        expected = f"at least {smallest[1]}"
    if expected is not None:
        return f"`{name}` must be {expected}, but got {_value(parameter.opts, arguments)!r}."
    reason = text.partition(": ")[2] or text
    return f"`{name}`: {reason[:1].lower()}{reason[1:]}, but got {_value(parameter.opts, arguments)!r}."


def _value(names: Sequence[str], arguments: Sequence[str]) -> str:
    """Return the last value of an option among the arguments; "" if it is not found, as of a positional argument."""
    found = ""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names:
            found = value if equals else next(iter(arguments[index + 1 : index + 2]), "")
    return found
