"""The command line: what it prints and writes, as tables and as JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import Result

from command_line import ENVIRONMENT, TINY, TINY_SEARCH, process, s2e, save
from s2e import __version__
from s2e.cli import options
from s2e.methods import METHODS, SEARCHABLE

pytestmark = pytest.mark.usefixtures("work")

SAMPLERS = ("curve", "newton", "natural", "gradient", "random", "tpe")


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """`s2e train digits`, from a directory of its own."""
    path = tmp_path_factory.mktemp("cli") / "digits"
    options = ["--noise", "symmetric:0.2", "--method", "standard", "--epochs", "3"]
    return path, s2e("train", "digits", *options, "--out", str(path))


def test_train_prints_a_table_and_where_the_run_is(digits_run: tuple[Path, Result]) -> None:
    path, result = digits_run
    assert result.exit_code == 0
    assert re.search(r"│ standard +│ +\d\d\.\d\d% │ +\d\d\.\d\d% │ +\d\d\.\d\d% │", result.stdout)
    assert "test accuracy" in result.stdout
    assert "of the training labels are wrong" in result.stdout
    assert "".join(result.stdout.split()).endswith(f"run:{path}")
    assert result.stderr == "training: 3 epochs\n"


def test_train_learns_digits(digits_run: tuple[Path, Result]) -> None:
    (row,) = json.loads((digits_run[0] / "result.json").read_text())["methods"]
    assert row["test"]["best_epoch"] > 0.6


def test_the_schedule_of_a_run_can_be_trained_with(digits_run: tuple[Path, Result]) -> None:
    schedule = str(digits_run[0] / "schedule.json")
    result = s2e("train", "digits", "--method", "mentornet", "--schedule", schedule, "--epochs", "3", "--out", "again")
    assert result.exit_code == 0
    assert json.loads(Path("again/schedule.json").read_text())["keep_rates"] == [1, 1, 1]


def test_a_search_of_ones_own_file_without_a_test_part_says_that_figures_are_of_validation() -> None:
    result = s2e("search", save(), *TINY_SEARCH, "--out", "run")
    assert result.exit_code == 0
    shown = " ".join(re.sub("[│┃]", " ", result.stdout).split())
    assert "validation data" in shown
    assert "test" not in shown
    assert "share of wrong labels unknown, 4 schedules searched" in shown
    assert "run: run" in shown
    lines = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "relabelling validation",
        "search",
        "generation 1/2, trial 2/4",
        "generation 2/2, trial 4/4",
        "final training",
    ]


@pytest.mark.parametrize("command", [["search", *TINY_SEARCH], ["train", *TINY, "--schedule", "constant:0.8"]])
def test_json_prints_the_result_with_the_run_and_nothing_else(command: list[str]) -> None:
    result = s2e(command[0], save(), *command[1:], "--json")
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    run = Path(printed.pop("run"))
    assert re.fullmatch(rf"runs/{command[0]}-own-\d{{8}}-\d{{6}}", str(run))
    assert printed == json.loads((run / "result.json").read_text())


def test_the_same_seed_prints_the_same_figures_and_another_seed_others() -> None:
    figures = []
    for where, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        printed = s2e("search", save(), *TINY_SEARCH, "--seed", seed, "--out", where, "--json").stdout
        figures.append(json.loads(printed)["methods"])
    assert figures[0] == figures[1] != figures[2]


@pytest.mark.parametrize("noise", ["pair:0.3", "instance:0.3", "uniform:0.3", "asymmetric:matrix.csv", "none"])
def test_every_kind_of_noise_can_be_asked_for(noise: str) -> None:
    Path("matrix.csv").write_text("0.7,0.3,0,0\n0,1,0,0\n0,0,1,0\n0,0,0,1\n")
    result = s2e("train", save(), *TINY, "--method", "standard", "--noise", noise, "--out", "run", "--json")
    assert result.exit_code == 0
    rate = json.loads(result.stdout)["noise_rate"]
    assert rate is None if noise == "none" else 0 < rate < 0.5


@pytest.mark.parametrize("searched", ["curve s2e", "newton s2e", *(f"{name} coteaching" for name in SAMPLERS)])
def test_every_sampler_and_every_space_can_be_searched_with(searched: str) -> None:
    sampler, space = searched.split()
    options = [*TINY_SEARCH, "--epochs", "1", "--no-baselines", "--sampler", sampler, "--space", space]
    result = s2e("search", save(), *options, "--out", "run")
    assert result.exit_code == 0, result.stderr


def test_datasets_lists_what_can_be_loaded() -> None:
    listed = s2e("datasets").stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["digits", "mnist", "fashion-mnist", "cifar10", "cifar100"]
    as_json = json.loads(s2e("datasets", "--json").stdout)
    assert as_json[0] == {"name": "digits", "classes": 10}
    assert [entry["name"] for entry in as_json] == [line.split()[0] for line in listed]


def test_version_prints_the_version_alone() -> None:
    result = s2e("--version")
    assert (result.exit_code, result.stdout) == (0, f"{__version__}\n")


def test_help_lists_the_commands() -> None:
    result = s2e("--help")
    assert result.exit_code == 0
    for command in ("search", "train", "datasets", "reproduce"):
        assert re.search(rf"│ {command} ", result.stdout)


def test_help_names_every_method_there_is() -> None:
    assert tuple(METHODS) == options.METHODS
    assert set(options.SEARCHABLE_METHODS) == set(SEARCHABLE)


def test_help_of_a_command_names_its_options_and_imports_nothing_heavy() -> None:
    script = "import sys; from s2e.cli import app; app(['search', '--help'], standalone_mode=False); "
    script += "sys.exit(sorted({'torch', 'optuna', 'sklearn'} & set(sys.modules)) or None)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for option in (
        "--noise",
        "--validation",
        "--method",
        "--sampler",
        "--trials",
        "--generation",
        "--resume",
        "--json",
    ):
        assert option in done.stdout


def test_python_m_s2e_is_the_same_program(work: Path) -> None:
    assert process("--version", where=work).stdout == f"{__version__}\n"


def test_a_real_process_writes_no_escape_codes_and_no_warnings_into_pipes(work: Path) -> None:
    done = process("search", save(), *TINY_SEARCH, "--sampler", "tpe", "--out", "run", where=work)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    stages = ["relabelling validation: 3 epochs", "search: 6 epochs", "generation 1/2, trial 2/4: .*"]
    stages += ["generation 2/2, trial 4/4: .*", "final training: 3 epochs"]
    assert re.fullmatch("".join(f"{stage}\n" for stage in stages), done.stderr)
