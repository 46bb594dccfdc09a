"""Every code block of the documentation: Python and commands are run with small data and short trainings.

A block that cannot be run here has a comment before it: `<!-- code: parsed, REASON -->`, and the options of its
commands are checked, or `<!-- code: not run, REASON -->`. The options of commands in sentences are checked as well.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
import typer
from typer.main import get_command

import code_blocks
import s2e as package
from code_blocks import ROOT, SHELL, Block, arguments, blocks, commands, inline_commands, program_of
from command_line import s2e
from image_files import save
from s2e.cli import app
from s2e.workflows import defaults, pipeline

SITE_PAGES = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*SITE_PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md"))]
PARSED = {"README.md": "its data are those of the reader", "examples/README.md": "tests/test_examples.py runs them"}
"""Pages whose blocks are all parsed only."""

TRAINING = ["--epochs", "2", "--batch-size", "32"]
SEARCH = [*TRAINING, "--trials", "2", "--generation-size", "2"]
BUDGETS = {"search": [*SEARCH, "--restarts", "1"], "train": TRAINING, "compare": [*SEARCH, "--seeds", "1"]}
"""Options that are added to a command; the last of an option given twice counts."""

SHORTER = {r"\bepochs=\d+": "epochs=2", r"\btrials=\d+": "trials=2", r"\bn_trials=\d+": "n_trials=2"}
"""Replacements in Python blocks."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A directory with the files that pages mention, and short trainings of `S2EClassifier`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(defaults, "epochs_for", lambda *_: 2)
    monkeypatch.setattr(pipeline, "DEFAULT_GENERATIONS", 1)
    random = np.random.default_rng(0)
    rows = 160
    table = pd.DataFrame(
        {
            "customer": [f"C{row}" for row in range(rows)],
            "months": random.integers(1, 60, rows),
            "plan": random.choice(["basic", "plus"], rows),
        }
    )
    table["churn"] = np.where((table["months"] < 30) ^ (random.random(rows) < 0.2), "yes", "no")
    table.to_csv("customers.csv", index=False)
    table.head(60).to_csv("trusted.csv", index=False)
    table.head(20).drop(columns="churn").to_csv("new.csv", index=False)
    for kind in ("cat", "dog"):
        for number in range(40):
            save(tmp_path / "photos" / kind / f"{number}.png", random.integers(0, 256, (20, 20, 3), dtype=np.uint8))
    verbosity, level = optuna.logging.get_verbosity(), logging.getLogger("s2e").level
    yield
    optuna.logging.set_verbosity(verbosity)
    logging.getLogger("s2e").setLevel(level)


def run_python(block: Block, names: dict[str, Any]) -> None:
    source = block.text
    for pattern, replacement in SHORTER.items():
        source = re.sub(pattern, replacement, source)
    padding = "\n" * block.line  # lines of a traceback are those of the page
    exec(compile(padding + source, block.page, "exec"), names)


def command_of(given: list[str]) -> tuple[Any, list[str]]:
    """Return the command of `s2e` that the first arguments name, and the other arguments."""
    command: Any = get_command(app)
    path = "s2e"
    while hasattr(command, "commands") and given and not given[0].startswith("-"):
        assert given[0] in command.commands, f"`{path}` has no command {given[0]}"
        path, command, given = f"{path} {given[0]}", command.commands[given[0]], given[1:]
    return command, given


def parse(given: list[str]) -> None:
    """Parse the arguments of `s2e` with its own parser, without running anything."""
    command, others = command_of(given)
    command.make_context(command.name, list(others))


def check_options(given: list[str]) -> None:
    """Check that a command has these options; arguments may be missing in a sentence."""
    command, others = command_of(given)
    known = {"-h", "--help", *(name for each in command.params for name in [*each.opts, *each.secondary_opts])}
    unknown = [word for word in others if word.startswith("-") and word.partition("=")[0] not in known]
    assert not unknown, f"{command.name} has no options {unknown}"


def check_command(command: str, *, run: bool) -> None:
    program = program_of(command)
    given = arguments(command)
    if given and all(word.startswith("-") for word in given):  # such as --install-completion, which acts when parsed
        check_options(given)
    elif given:
        parse(given)
        if run:
            result = s2e(*given, *BUDGETS.get(given[0], []))
            assert result.exit_code == 0, f"{command}\n{result.output}{result.stderr}"
    elif program == "make":
        assert f"\n{command.split()[1]}:" in (ROOT / "Makefile").read_text()
    elif program == "pip":
        extras = re.findall(r"s2e\[(\w+)\]", command)
        assert all(f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text() for extra in extras)
    elif program == "python":
        path = ROOT / command.split()[1]
        sources = "".join(each.read_text() for each in (path, *path.parent.glob("measuring.py")))
        unknown = [option for option in re.findall(r"--[\w-]+", command) if f'"{option}"' not in sources]
        assert not unknown, f"{command}: {unknown}"
    else:
        assert program in code_blocks.PROGRAMS, f"unknown program: {command}"


def check_block(block: Block, names: dict[str, Any]) -> None:
    run = not block.mark and block.page not in PARSED
    if block.language == "python":
        assert block.mark != "parsed", f"{block.page}:{block.line}: Python is run, or marked as not run"
        run_python(block, names) if run else compile(block.text, block.page, "exec")
    elif block.language in SHELL:
        for command in commands(block.text):
            check_command(command, run=run and block.mark != "not run")


@pytest.mark.usefixtures("_workplace")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if "tutorials" in page.parts else ()) for page in PAGES],
    ids=name_of,
)
@pytest.mark.filterwarnings("ignore:the ONNX model holds the networks alone")  # which models vote depends on the data
def test_code_blocks_of_a_page_run(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        check_block(block, names)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_sentences_are_accepted(page: Path) -> None:
    for command in inline_commands(page):
        given = arguments(command)
        if given and not given[0].isupper():
            check_options(given)


def test_every_public_name_is_in_the_reference() -> None:
    reference = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md")).splitlines()
    assert [name for name in package.__all__ if name != "__version__" and f"::: s2e.{name}" not in reference] == []


def test_blocks_are_found_however_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_blocks, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n    s2e search a.csv\n\n- item\n\n    no code\n\n<!-- code: parsed, a GPU -->\n```shell\n# comment\n"
        "s2e search \\\n  b.csv\n```\n\n    load → split\n\n```python\n1 + 1\n```\n"
    )
    found = blocks(page)
    assert [(block.language, block.mark, block.line) for block in found] == [
        ("shell", "", 3),
        ("shell", "parsed", 10),
        ("text", "", 16),
        ("python", "", 18),
    ]
    assert [arguments(command) for command in commands(found[1].text)] == [["search", "b.csv"]]
    assert arguments("srun bash -c 's2e search DATA --study \"$NAME\"'") == ["search", "DATA", "--study", "$NAME"]


def test_unknown_options_and_commands_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        parse(["search", "digits", "--no-such-option"])
    assert "there is no option --no-such-option" in capsys.readouterr().err
    with pytest.raises(AssertionError, match="search has no options"):
        check_options(["search", "--no-such-option"])
    with pytest.raises(AssertionError, match="`s2e` has no command serch"):
        parse(["serch"])
