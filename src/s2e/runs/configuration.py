"""The configuration of a run, as read from `config.json`: every entry that is there has its type."""

from __future__ import annotations

from typing import Any

from s2e.errors import InvalidInput, UnreadableData
from s2e.files.fields import Fields, shown
from s2e.runs.directory import CONFIG, Run
from s2e.specs import (
    CompareOptions,
    SamplersOptions,
    SearchOptions,
    SpacesOptions,
    StepsOptions,
    TableOptions,
    TrainOptions,
    assemble,
    flatten,
    stored_problems,
)

OPTIONS_OF_COMMANDS: dict[str, type] = {
    "search": SearchOptions,
    "train": TrainOptions,
    "compare": CompareOptions,
    "reproduce spaces": SpacesOptions,
    "reproduce searchers": SamplersOptions,
    "reproduce steps": StepsOptions,
    "reproduce table": TableOptions,
}


LONGEST_NAME = 40


def read_configuration(run: Run) -> dict[str, Any]:
    """Read the configuration of a run."""
    written, path = run.read_json(CONFIG), run.path / CONFIG
    if not isinstance(written, dict) or not {"command", "options"} <= written.keys():
        raise UnreadableData(f"{str(path)!r} is not the configuration of a run: `command` or `options` is missing.")
    fields = Fields(written, path)
    command, options = fields.text("command"), fields.fields("options")
    if not command.isprintable() or len(command) > LONGEST_NAME:
        raise fields.error("command", "the name of a command", command)
    for name in ("data_root", "device", "study", "network", "data_fingerprint"):
        fields.text(name, None)
    if fields.values.get("storage") is not None:
        fields.text("storage")
    fields.share("noise_rate", None)
    for group in ("versions", "noise_rates"):
        inner = fields.fields(group, {})
        for name in inner.values:
            inner.text(name) if group == "versions" else inner.share(name)
    if command in OPTIONS_OF_COMMANDS:
        _assembled(command, options)
    return dict(fields.values)


def all_options(run: Run, config: dict[str, Any]) -> dict[str, Any]:
    """Return all options of the command that made a run; those that its version did not have are the defaults."""
    if config["command"] not in OPTIONS_OF_COMMANDS:
        raise UnreadableData(
            f"{str(run.path / CONFIG)!r} is damaged or of another version of s2e: `command` must be one of "
            f"{', '.join(OPTIONS_OF_COMMANDS)}, but got {shown(config['command'])}."
        )
    return flatten(_assembled(config["command"], Fields(config, run.path / CONFIG).fields("options")))


def _assembled(command: str, options: Fields) -> Any:
    kind = OPTIONS_OF_COMMANDS[command]
    problems = stored_problems(kind, options.values)
    try:
        if not problems:
            return assemble(kind, options.values)
    except InvalidInput as problem:
        problems.append(str(problem))
    raise UnreadableData(f"{options.origin!r} is damaged: {' '.join(problems)}")
