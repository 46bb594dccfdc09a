"""Help texts of the commands: options in groups, the few that matter first in each; plain text for 80 columns."""

from __future__ import annotations

from typing import Any

DATA, TRAINING, SEARCH, CLASSIFIER, OUTPUT = "Data", "Training", "Search", "Classifier", "Output"
DEVICES = "Devices and storage"
GROUPS = (DATA, TRAINING, SEARCH, CLASSIFIER, OUTPUT, DEVICES)
"""Groups of options in the order of the help; options without one come last."""

OTHER = "Other options"

FIRST = (
    *("--label", "--id", "--validation", "--noise"),
    *("--epochs", "--method", "--network", "--batch-size", "--learning-rate", "--seed"),
    *("--trials", "--time-budget"),
    *("--out", "--resume", "--output", "--json", "--quiet"),
    "--device",
)
"""Options that come first in their group; the others follow in the order of the specifications."""

WIDEST_NAME = 26
"""Columns for the names of options; the description of a longer one begins on the next line."""


def format_options(parameters: list[Any], context: Any, formatter: Any) -> None:
    """Write arguments and options as definition lists, one for each group."""
    sections: dict[str, list[tuple[Any, tuple[str, str]]]] = {"Arguments": []}
    sections |= {group: [] for group in (*GROUPS, OTHER)}
    for parameter in parameters:
        record = parameter.get_help_record(context)
        if record is None:
            continue
        if parameter.param_type_name == "argument":
            name, description = record
            sections["Arguments"].append((parameter, (name.split()[0], description)))  # without its type
        else:
            sections.setdefault(getattr(parameter, "rich_help_panel", None) or OTHER, []).append((parameter, record))
    only_others = not any(sections[group] for group in GROUPS)
    if not only_others and [parameter.name for parameter, _ in sections[OTHER]] == ["help"]:
        sections[OUTPUT] += sections.pop(OTHER)
    for title, entries in sections.items():
        if entries:
            ordered = [record for _, record in sorted(entries, key=lambda entry: _rank(entry[0]))]
            with formatter.section("Options" if only_others and title == OTHER else title):
                formatter.write_dl(ordered, col_max=WIDEST_NAME)


def format_commands(commands: list[tuple[str, Any]], formatter: Any) -> None:
    """Write the names of commands with the first sentences of their help."""
    rows = [(name, (command.help or "").partition("\n\n")[0].replace("\n", " ")) for name, command in commands]
    with formatter.section("Commands"):
        formatter.write_dl(rows, col_max=WIDEST_NAME)


def _rank(parameter: Any) -> int:
    return min((FIRST.index(name) for name in parameter.opts if name in FIRST), default=len(FIRST))
