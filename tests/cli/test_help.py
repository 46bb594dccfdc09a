"""Help texts: groups, width, flags without a type; shell completion."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from command_line import s2e
from s2e.cli.help_text import FIRST, GROUPS

COMMANDS = ["search", "train", "compare", "audit", "report", "predict", "datasets", "reproduce", "reproduce spaces"]


def sections(text: str) -> dict[str, list[str]]:
    """Return the options in each section of a help text."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if re.fullmatch(r"\S.*:", line):
            found[line[:-1]] = []
        elif found and (option := re.match(r"  (?:-\w, )?(--[\w-]+)", line)):
            found[list(found)[-1]].append(option[1])
    return found


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns_and_shows_no_types_of_flags(command: str) -> None:
    shown = s2e(*command.split(), "-h")
    assert shown.exit_code == 0
    assert shown.stdout == s2e(*command.split(), "--help").stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "<" not in shown.stdout
    assert "  -h, --help " in shown.stdout


@pytest.mark.parametrize("command", ["search", "train", "compare"])
def test_options_are_in_groups_with_the_few_that_matter_first(command: str) -> None:
    found = sections(s2e(command, "--help").stdout)
    assert [title for title in found if title != "Arguments"] == [title for title in GROUPS if title in found]
    for title in GROUPS:
        first = [option for option in found.get(title, []) if option in FIRST]
        assert found.get(title, [])[: len(first)] == sorted(first, key=FIRST.index)
    assert found["Data"][0] == "--label"
    assert found["Training"][0] == "--epochs"
    assert found["Output"][0] == "--out"


def test_search_begins_with_its_budget() -> None:
    assert sections(s2e("search", "--help").stdout)["Search"][:2] == ["--trials", "--time-budget"]


def test_completion_knows_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        environment = {**os.environ, "_S2E_COMPLETE": "complete_bash", "COMP_WORDS": words}
        environment["COMP_CWORD"] = str(len(words.split(" ")) - 1)
        script = "from s2e.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout.split()

    assert completed("s2e re") == ["report", "reproduce"]
    assert completed("s2e search --time") == ["--time-budget"]


def test_completion_can_be_installed() -> None:
    assert {"--install-completion", "--show-completion"} <= set(sections(s2e("--help").stdout)["Options"])
