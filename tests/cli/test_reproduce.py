"""`s2e reproduce WHAT`: its commands, their options, and what they print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from command_line import assert_refused, s2e
from s2e.cli import reproduce
from s2e.errors import InvalidInput
from s2e.experiments import basis, comparison, convergence_page, human, memorization, samplers, spaces, steps
from s2e.experiments.schedule_table import build
from s2e.runs.directory import CONFIG, Run
from s2e.specs import (
    BasisOptions,
    ComparisonOptions,
    ConvergenceOptions,
    HumanOptions,
    MemorizationOptions,
    SamplersOptions,
    SpacesOptions,
    StepsOptions,
    TableOptions,
    TrainingSpec,
    assemble,
    flatten,
    leaves,
)
from sampler_runs import NOISES, write_table
from space_runs import save_clean_clusters

pytestmark = pytest.mark.usefixtures("work")

TINY = ["--epochs", "3", "--batch-size", "64", "--noise", "pair:0.4", "--device", "cpu"]
SPACES = ["reproduce", "spaces", "--draws", "1", "--seeds", "1", *TINY]
SEARCHERS = ["reproduce", "searchers", "--space", "coteaching", "--repeats", "1", "--trials", "2", *TINY]
TABLE = ["reproduce", "table", "--draws", "4", "--again", "1", "--rounds", "0", *TINY]


# ------------------------------------------------------------------------------------------------------------ the group


def test_without_a_name_help_is_shown() -> None:
    bare, with_help = s2e("reproduce"), s2e("reproduce", "--help")
    assert (bare.exit_code, with_help.exit_code) == (2, 0)
    assert (bare.stdout + bare.stderr).strip() == with_help.stdout.strip()
    assert re.search(r"Usage: .*reproduce \[OPTIONS\] WHAT", with_help.stdout)
    assert "\n  convergence  " in with_help.stdout


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    names = {command.name or getattr(command.callback, "__name__", "") for command in reproduce.app.registered_commands}
    assert names == {
        *("memorization", "comparison", "spaces", "searchers", "steps", "convergence", "human", "basis"),
        *("table", "index"),
    }
    refused = s2e("reproduce", "everything", "--seed", "1")
    assert_refused(refused, "`what` must be one of ", ", but got 'everything'")
    listed = re.search(r"one of (.*), but got", refused.stderr)
    assert listed is not None
    assert set(listed[1].split(", ")) == names
    assert type(s2e("reproduce", "everything", "--debug").exception) is InvalidInput


# ---------------------------------------------------------------------------------------------------------- convergence


def test_convergence_prints_claims_and_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convergence_page, "write_figure", lambda *_: None)
    shown = s2e("reproduce", "convergence", "--repeats", "2", "--seed", "7", "--out", "run")
    assert shown.exit_code == 0, shown.stderr
    assert "Proposition 1" in shown.stdout
    assert shown.stdout.endswith("run: run\npage: run/README.md\n")
    assert "    s2e reproduce convergence --repeats 2 --seed 7\n" in Path("run", "README.md").read_text()
    assert json.loads(Path("run", "result.json").read_text())["seed"] == 7


# --------------------------------------------------------------------------------------------------------------- scales


def test_the_small_scale_changes_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[MemorizationOptions] = []
    monkeypatch.setattr(memorization, "reproduce_memorization", lambda options, *_, **__: received.append(options))
    s2e("reproduce", "memorization", "--scale", "laptop", "--epochs", "7")
    (options,) = received
    small = MemorizationOptions.AT_LAPTOP
    assert (options.scale, options.epochs) == ("laptop", 7)
    assert (options.data, options.seeds, options.samples) == (small["data"], small["seeds"], small["samples"])


@pytest.mark.parametrize("options", [MemorizationOptions, ComparisonOptions, HumanOptions, SpacesOptions, StepsOptions])
def test_the_small_scale_names_options_of_its_command(options: Any) -> None:
    assert options.AT_LAPTOP.keys() <= {leaf.name for leaf, _ in leaves(options)}
    assert assemble(options, {**options.AT_LAPTOP, "scale": "laptop"}).scale == "laptop"


# ---------------------------------------------------------------------------------------------------------------- index


def test_index_lists_what_was_found_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convergence_page, "write_figure", lambda *_: None)
    s2e("reproduce", "convergence", "--repeats", "2", "--out", "results/convergence")
    shown = s2e("reproduce", "index", "results")
    assert (shown.exit_code, shown.stdout) == (0, "index: results/INDEX.md\n")
    lines = Path("results", "INDEX.md").read_text().splitlines()
    (found,) = [line for line in lines if line.startswith("| Proposition 1 |")]
    assert "| **reproduced** |" in found
    assert "[convergence](convergence/README.md)" in found
    assert any(line.startswith("| Figure 3 | — | not made | `s2e reproduce comparison`") for line in lines)


def test_index_of_a_folder_without_runs_is_refused() -> None:
    assert_refused(s2e("reproduce", "index", "nowhere"), "`folder` must be a folder with the runs of s2e reproduce")
    Path("empty").mkdir()
    assert_refused(
        s2e("reproduce", "index", "empty"), "`folder` must hold runs of s2e reproduce, but 'empty' holds none"
    )


def test_unknown_options_are_usage_errors() -> None:
    result = s2e("reproduce", "convergence", "--nonsense")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("s2e: there is no option --nonsense")


# ---------------------------------------------------------------------------------------------------------- experiments


@pytest.mark.parametrize(
    ("name", "module", "workflow", "defaults"),
    [
        ("memorization", memorization, "reproduce_memorization", MemorizationOptions()),
        ("comparison", comparison, "reproduce_comparison", ComparisonOptions()),
        ("human", human, "reproduce_human", HumanOptions()),
        ("basis", basis, "reproduce_basis", BasisOptions()),
        ("convergence", convergence_page, "reproduce_convergence", ConvergenceOptions()),
        ("spaces", spaces, "reproduce_spaces", SpacesOptions()),
        ("searchers", samplers, "compare_samplers", SamplersOptions()),
        ("steps", steps, "compare_steps", StepsOptions()),
        ("table", build, "build_table", TableOptions()),
    ],
)
def test_defaults_of_a_command_are_those_of_its_options(
    monkeypatch: pytest.MonkeyPatch, name: str, module: Any, workflow: str, defaults: Any
) -> None:
    received: list[Any] = []
    monkeypatch.setattr(module, workflow, lambda options, *_, **__: received.append(options))
    s2e("reproduce", name)
    assert received == [defaults]


def test_spaces_prints_tables_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spaces, "write_figure", lambda *_: None)
    data = save_clean_clusters()
    shown = s2e(*SPACES, "--data", data, "--learning-rate", "0.002", "--seed", "3", "--together", "99", "--out", "run")
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.count("│ Co-teaching ") == 6
    assert shown.stdout.endswith("run: run\npage: run/README.md\n")
    training = flatten(TrainingSpec(epochs=3, batch_size=64, learning_rate=0.002))
    budget = {"draws": 1, "sets": 1, "seeds": 1, "together": 99}
    stored = Run("run").read_json(CONFIG)["options"]
    scale = {"samples": None, "scale": "paper", "seed": 3}
    assert stored == {"data": [data], "noises": ["pair:0.4"], **budget, **training, **scale}
    numbers = json.loads(s2e("reproduce", "spaces", "--resume", "--out", "run", "--json").stdout)
    assert numbers.pop("run") == "run"
    assert numbers == Run("run").read_json("result.json")


def test_searchers_prints_a_table_and_is_resumed_with_more_samplers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "write_figure", lambda *_: None)
    small = ["--on", save_clean_clusters(), "--random-trials", "3", "--generation-size", "2", "--out", "run"]
    shown = s2e(*SEARCHERS, *small, "--samplers", "random, curve")
    assert shown.exit_code == 0, shown.stderr
    assert "random with 3" in shown.stdout
    assert shown.stdout.endswith("run: run\npage: run/README.md\n")
    more = s2e("reproduce", "searchers", "--resume", "--out", "run", "--samplers", "random,curve,tpe", "--json")
    result = json.loads(more.stdout)
    rows = [(row["sampler"], row["trainings"]) for row in result["summary"]]
    assert rows == [("random", 3), ("curve", 2), ("tpe", 2)]
    assert {(row["sampler"], row["than"]) for row in result["needed"]} == {
        ("curve", "random"),
        ("tpe", "random"),
        ("random", "tpe"),
        ("curve", "tpe"),
    }
    assert result["run"] == "run"


def test_steps_prints_a_table_for_each_noise_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "write_figure", lambda *_: None)
    write_table(Path("table.npz"))
    small = ["--sizes", "2,4", "--trials", "8", "--repeats", "2", "--steps", "natural", "--noise", NOISES[0]]
    shown = s2e("reproduce", "steps", "--on", "table:table.npz", *small, "--out", "run")
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.count("│ natural ") == 2
    assert "│ random " in shown.stdout


def test_table_prints_its_directory() -> None:
    data = save_clean_clusters()
    assert s2e(*TABLE, "--data", data, "--out", "run").stdout == "run: run\n"
    resumed = json.loads(s2e("reproduce", "table", "--resume", "--out", "run", "--json").stdout)
    assert (resumed["run"], resumed["table"]) == ("run", "table.npz")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*SPACES, "--draws", "0"], "`draws` must be an integer of at least 1, but got 0."),
        ([*SPACES, "--noise", "pair:0.40"], "`noise` must name each noise setting once, but got pair:0.4"),
        ([*SEARCHERS, "--on", "table:nowhere.npz"], "'nowhere.npz' is not a table of schedules"),
        ([*SEARCHERS, "--on", "digits", "--only-draws"], "`only_draws` must be used with a table of schedules"),
        (["reproduce", "steps", "--sizes", "7"], "`trials` must be a multiple of every size, but got 960 and [7]."),
        ([*SEARCHERS, "--samplers", "random,random"], "`samplers` must name each sampler once"),
        ([*TABLE, "--again", "5"], "`0 <= again <= draws` must hold, but got again=5, draws=4."),
    ],
    ids=lambda value: " ".join(value[1:2] + value[-2:]) if isinstance(value, list) else "",
)
def test_bad_options_are_refused_in_one_line(arguments: list[str], message: str) -> None:
    assert_refused(s2e(*arguments, "--out", "run"), message)
