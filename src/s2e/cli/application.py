"""Commands and groups of commands, with help and usage errors in the form of this package."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from s2e.cli.help_text import format_commands, format_options
from s2e.cli.terminal import reporting
from s2e.cli.usage_errors import one_line_usage_errors
from s2e.errors import unknown_name

CONTEXT = {"help_option_names": ["-h", "--help"]}


class Command(TyperCommand):
    """A command."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments."""
        with one_line_usage_errors(_path(info_name, parent), list(args)):
            return super().make_context(info_name, args, parent, **extra)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options in groups."""
        format_options(self.get_params(ctx), ctx, formatter)


class Group(TyperGroup):
    """Commands under one name; any other name is refused in one line."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments before the name of a command."""
        with one_line_usage_errors(_path(info_name, parent), list(args)):
            return super().make_context(info_name, args, parent, **extra)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # versions of Typer do not agree on the types
        """Return the command named by the first argument."""
        with reporting("--debug" in args):
            if args[0] not in self.commands:
                raise unknown_name(self.subcommand_metavar.lower(), args[0], self.commands)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options and the commands."""
        format_options(self.get_params(ctx), ctx, formatter)
        format_commands([(name, self.commands[name]) for name in self.list_commands(ctx)], formatter)


def application(name: str, about: str, metavar: str, **settings: Any) -> typer.Typer:
    """Return an application whose commands are of these classes.

    Args:
        name: its name.
        about: help text.
        metavar: word for the name of a command.
        settings: further arguments of `typer.Typer`.
    """
    return typer.Typer(
        name=name,
        help=about,
        cls=Group,
        subcommand_metavar=metavar,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings=CONTEXT,
        pretty_exceptions_enable=False,
        **settings,
    )


def _path(name: str | None, parent: Any) -> str:
    return f"{parent.command_path} {name}" if parent is not None else str(name)
