"""`--device` with several devices, `--executor` and `--ray-address`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from command_line import TINY_SEARCH, assert_refused, s2e, save
from s2e.runs.directory import Run

pytestmark = pytest.mark.usefixtures("work")


@pytest.mark.parametrize(
    ("arguments", "mentions"),
    [
        ("--executor rey", "`executor` must be local or ray, but got 'rey'."),
        ("--ray-address here:1", "`ray_address` must be used with `executor` ray, but got 'here:1'."),
        ("--executor ray --device cpu,cpu", "`device` must be auto, cpu or cuda with `executor` ray"),
        ("--device cpu,abacus", "`device` must be one this machine has, but got 'abacus'"),
    ],
)
@pytest.mark.parametrize("command", ["search", "compare", "train", "reproduce table --data"])
def test_refused_in_one_line(command: str, arguments: str, mentions: str) -> None:
    schedule = ["--schedule", "constant:0.8"] if command == "train" else []
    assert_refused(s2e(*command.split(), save(), *schedule, *shlex.split(arguments), "--out", "run"), mentions)


def test_a_search_on_several_devices_equals_one_on_a_single_device() -> None:
    data = save()
    for name, device in [("one", "cpu"), ("two", "cpu,cpu")]:
        assert s2e("search", data, *TINY_SEARCH, "--device", device, "--out", name).exit_code == 0
    for name in ("model.safetensors", "curves.npz", "dynamics.npz", "schedule.json"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes(), name
    assert json.loads(Path("two/config.json").read_text())["device"] == "cpu,cpu"


def test_a_run_is_resumed_on_other_devices_or_those_it_had() -> None:
    data = save()
    assert s2e("search", data, *TINY_SEARCH, "--device", "cpu,cpu", "--out", "run").exit_code == 0
    assert s2e("search", "--resume", "--out", "run", "--trials", "6").exit_code == 0
    assert Run.open(Path("run")).read_json("config.json")["device"] == "cpu,cpu"
    assert s2e("search", "--resume", "--out", "run", "--trials", "8", "--device", "cpu").exit_code == 0
    assert s2e("search", data, *TINY_SEARCH, "--trials", "8", "--out", "whole", "--device", "cpu").exit_code == 0
    with np.load("run/curves.npz") as resumed, np.load("whole/curves.npz") as whole:
        for name in whole.files:
            np.testing.assert_array_equal(resumed[name], whole[name], err_msg=name)


def test_a_run_of_ray_is_resumed_without_it_and_older_runs_without_an_executor() -> None:
    data = save()
    assert s2e("search", data, *TINY_SEARCH, "--out", "run").exit_code == 0
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps({**config, "executor": "ray", "ray_address": "gone:1"}))
    resumed = s2e("search", "--resume", "--out", "run", "--trials", "6", "--executor", "local")
    assert resumed.exit_code == 0, resumed.stderr
    older = {name: value for name, value in config.items() if name not in ("executor", "ray_address")}
    Path("run/config.json").write_text(json.dumps(older))
    assert s2e("search", "--resume", "--out", "run", "--trials", "8").exit_code == 0
