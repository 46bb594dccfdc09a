"""`s2e reproduce WHAT`: a command for each part of what the paper shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from command_line import assert_refused, s2e
from s2e.cli import reproduce
from s2e.errors import InvalidInput
from s2e.experiments import convergence

pytestmark = pytest.mark.usefixtures("work")


def test_reproduce_writes_or_prints_the_numbers_of_the_convergence_claims() -> None:
    result = s2e("reproduce", "convergence", "--out", "convergence.json")
    assert (result.exit_code, result.stdout) == (0, "")
    numbers = json.loads(Path("convergence.json").read_text())
    assert numbers["seed"] == 0
    assert "rates" in numbers
    assert json.loads(s2e("reproduce", "convergence").stdout) == numbers


def test_the_seed_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convergence, "convergence", lambda seed: {"seed": seed})
    shown = json.loads(s2e("reproduce", "convergence", "--seed", "7").stdout)
    assert shown == {"seed": 7}


def test_without_a_name_help_is_shown() -> None:
    alone, asked = s2e("reproduce"), s2e("reproduce", "--help")
    assert (alone.exit_code, asked.exit_code) == (2, 0)
    assert (alone.stdout + alone.stderr).strip() == asked.stdout.strip()
    assert re.search(r"Usage: .*reproduce \[OPTIONS\] WHAT", asked.stdout)
    assert "│ convergence " in asked.stdout


def test_an_experiment_nobody_knows_is_refused_and_those_there_are_named() -> None:
    names = {command.name or getattr(command.callback, "__name__", "") for command in reproduce.app.registered_commands}
    assert {"convergence", "spaces", "searchers", "table"} <= names
    for arguments in (["everything"], ["everything", "--seed", "1"]):
        refused = s2e("reproduce", *arguments)
        assert_refused(refused, "`what` must be one of ", ", but got 'everything'")
        listed = re.search(r"one of (.*), but got", refused.stderr)
        assert listed is not None
        assert sorted(listed[1].split(", ")) == sorted(names)


def test_debug_shows_the_traceback_of_a_refusal() -> None:
    for arguments in (["everything"], ["convergence", "--out", "nowhere/numbers.json"]):
        result = s2e("reproduce", *arguments, "--debug")
        assert type(result.exception) is InvalidInput
        assert not result.stderr.startswith("s2e: ")


def test_an_out_that_cannot_be_written_is_refused() -> None:
    said = "`--out` must be a file to write to, but 'nowhere/numbers.json' is not: No such file"
    assert_refused(s2e("reproduce", "convergence", "--out", "nowhere/numbers.json"), said)


@pytest.mark.parametrize("arguments", ["convergence --nonsense", "convergence --seed -1", "convergence twice"])
def test_options_that_a_part_does_not_have_are_a_usage_error(arguments: str) -> None:
    result = s2e("reproduce", *arguments.split())
    assert result.exit_code == 2
    assert "Usage:" in result.stderr
    assert result.stdout == ""
