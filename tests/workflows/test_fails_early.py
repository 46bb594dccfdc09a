"""Bad input is refused before data are loaded, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comparisons import options as compare_options
from s2e.data import loading
from s2e.errors import S2EError
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.workflows.compare import compare
from s2e.workflows.search import search
from s2e.workflows.train import train
from small_runs import search_options, train_options

COMMANDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "search": (search, search_options),
    "train": (train, train_options),
    "compare": (compare, compare_options),
}

EVERY_COMMAND: list[tuple[dict[str, Any], str]] = [
    ({"data": ""}, "`data` must be given"),
    ({"network": "resnetto"}, "`network` must be"),
    ({"optimizer": "sdg"}, "`optimizer` must be one of sgd"),
    ({"optimizer": "sgd:momentum=-1"}, "`momentum` must lie in"),
    ({"plan": "cosin"}, "`plan` must be one of cosine"),
    ({"plan": "cosine:warmup=999"}, "`warmup` must be less than"),
    ({"validation": "cleanish"}, "`validation` must be"),
    ({"validation": "absent.npz"}, "`validation` must be"),
    ({"validation_share": 1.5}, "`validation_share` must"),
    ({"epochs": 0, "batch_size": 0, "learning_rate": -1.0}, "`epochs` must .*`batch_size` must .*`learning_rate` must"),
]
A_SEARCH: list[tuple[dict[str, Any], str]] = [
    ({"space": "nowhere"}, "`space` must be"),
    ({"sampler": "moon"}, "`sampler` must be"),
    ({"trials": 0, "generation_size": 0}, "`trials` must .*`generation_size` must"),
    ({"generation_size": "many"}, "`generation_size` must"),
    ({"sampler": "newton", "generation_size": 1}, "`generation_size` must"),
]
ONE_NOISE: list[tuple[dict[str, Any], str]] = [
    ({"noise": "pear:0.4"}, "`noise` must be"),
    ({"noise": "pair:1.4"}, "`rate` must lie in"),
    ({"noise": "asymmetric:absent.npy"}, "absent.npy"),
    ({"method": "jocar"}, "`method` must be"),
]
CASES: dict[str, list[tuple[dict[str, Any], str]]] = {
    "search": [
        *EVERY_COMMAND,
        *A_SEARCH,
        *ONE_NOISE,
        ({"method": "reweight"}, "`method` must have a keep rate"),
        ({"restarts": 0}, "`restarts` must"),
    ],
    "train": [
        *EVERY_COMMAND,
        *ONE_NOISE,
        ({"schedule": ""}, "`schedule` must be given for coteaching"),
        ({"schedule": "constant:2"}, "in \\[0, 1\\]"),
        ({"schedule": "absent.json"}, "absent.json"),
        (
            {"transition": "matrix.csv"},
            "`transition` must be used with a method that needs one, but coteaching does not",
        ),
        ({"transition": "absent.csv", "method": "f-correction"}, "absent.csv"),
    ],
    "compare": [
        *EVERY_COMMAND,
        *A_SEARCH,
        ({"methods": ("standard", "nothing")}, "`methods` must be"),
        ({"methods": ("s2e:standard",)}, "`methods` must be"),
        ({"noises": ("pair:0.4", "pear:0.4")}, "`noise` must be"),
        ({"noises": ("pair:0.4", "pair:0.40")}, "each noise setting once"),
        ({"noises": (), "seeds": 0, "noise_rate": 1.0}, "`seeds` must .*`noise_rate` must .*`noises` must"),
    ],
}


@pytest.fixture(autouse=True)
def _no_data(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "load", lambda *_, **__: pytest.fail("data were loaded"))


def refuse(command: str, message: str, location: RunLocation | None = None, **changes: Any) -> None:
    run, options = COMMANDS[command]
    with pytest.raises(S2EError, match=message):
        run(options(**{"data": "digits", **changes}), location or RunLocation(Path("run")))


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_options_are_refused(command: str) -> None:
    for changes, message in CASES[command]:
        refuse(command, message, **changes)
    assert not Path("run").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_location_is_refused(command: str) -> None:
    refuse(command, "`device` must be", RunLocation(Path("run"), device="abacus"))
    refuse(command, "the storage .* could not be opened", RunLocation(Path("run"), storage="nonsense://"))
    assert not Path("run").exists()
    Run.create("run", {"command": command})
    refuse(command, "already holds a run")


def test_run_of_another_command_is_not_resumed() -> None:
    Run.create("run", {"command": "train", "options": {}})
    for command in ("search", "compare"):
        run, options = COMMANDS[command]
        with pytest.raises(S2EError, match="it was made by s2e train"):
            run(options("digits"), RunLocation(Path("run")), resume=True)
