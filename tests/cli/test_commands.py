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

pytestmark = pytest.mark.usefixtures("work")


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """`s2e train digits`, from a directory of its own."""
    path = tmp_path_factory.mktemp("cli") / "digits"
    options = ["--noise", "symmetric:0.2", "--method", "standard", "--epochs", "3"]
    return path, s2e("train", "digits", *options, "--out", str(path))


def test_train_prints_a_table_and_the_run_directory(digits_run: tuple[Path, Result]) -> None:
    path, result = digits_run
    assert result.exit_code == 0
    assert re.search(r"│ standard +│ +\d\d\.\d\d% │ +\d\d\.\d\d% │ +\d\d\.\d\d% │", result.stdout)
    assert "test accuracy" in result.stdout
    assert "of the training labels are wrong" in result.stdout
    assert f"run:{path}next:" in "".join(result.stdout.split())
    assert result.stderr == "training: 3 epochs\n"


def test_train_learns_digits(digits_run: tuple[Path, Result]) -> None:
    (row,) = json.loads((digits_run[0] / "result.json").read_text())["methods"]
    assert row["test"]["best_epoch"] > 0.6


def test_train_takes_the_schedule_of_a_run(digits_run: tuple[Path, Result]) -> None:
    schedule = str(digits_run[0] / "schedule.json")
    result = s2e("train", "digits", "--method", "mentornet", "--schedule", schedule, "--epochs", "3", "--out", "again")
    assert result.exit_code == 0
    assert json.loads(Path("again/schedule.json").read_text())["keep_rates"] == [1, 1, 1]


def test_without_a_test_part_figures_are_of_validation() -> None:
    result = s2e("search", save(), *TINY_SEARCH, "--out", "run")
    assert result.exit_code == 0
    shown = " ".join(re.sub("[│┃]", " ", result.stdout).split())
    assert "relabelled validation" in shown
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
def test_json_prints_the_result_and_the_run(command: list[str]) -> None:
    result = s2e(command[0], save(), *command[1:], "--json")
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    run = Path(printed.pop("run"))
    assert re.fullmatch(rf"runs/{command[0]}-own-\d{{8}}-\d{{6}}", str(run))
    assert printed == json.loads((run / "result.json").read_text())


def test_results_depend_on_the_seed() -> None:
    figures = []
    for where, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        command = ["train", save(), *TINY, "--method", "standard", "--seed", seed, "--out", where, "--json"]
        printed = s2e(*command).stdout
        figures.append(json.loads(printed)["methods"])
    assert figures[0] == figures[1] != figures[2]


def test_a_long_path_is_printed_on_one_line(work: Path) -> None:
    out = work / ("a" * 60) / ("b" * 60)
    result = s2e("train", save(), *TINY, "--method", "standard", "--out", str(out))
    assert f"run: {out}\n" in result.stdout


def test_runs_of_the_same_second_get_different_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda *_: "20250101-000000")
    for _ in range(2):
        assert s2e("train", save(), *TINY, "--method", "standard").exit_code == 0
    assert len(list(Path("runs").iterdir())) == 2


def test_datasets_lists_the_data_sets() -> None:
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
        assert re.search(rf"^  {command} ", result.stdout, re.MULTILINE)


def test_help_lists_the_options_without_heavy_imports() -> None:
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
        "--generation-size",
        "--resume",
        "--json",
    ):
        assert option in done.stdout


@pytest.mark.slow  # the stages are also read without a process, and processes are started in `test_interrupts.py`
def test_a_pipe_receives_no_escape_codes_and_no_warnings(work: Path) -> None:
    done = process("search", save(), *TINY_SEARCH, "--sampler", "tpe", "--out", "run", where=work)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    stages = ["relabelling validation: 3 epochs", "search: 6 epochs", "generation 1/2, trial 2/4: .*"]
    stages += ["generation 2/2, trial 4/4: .*", "final training: 3 epochs"]
    assert re.fullmatch("".join(f"{stage}\n" for stage in stages), done.stderr)
