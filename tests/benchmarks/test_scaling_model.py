"""`benchmarks/scaling_model.py`: the documentation quotes what it computes, and the limits are those of the model."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture(scope="module")
def model():
    """The program as a module; it belongs to no package."""
    spec = importlib.util.spec_from_file_location("scaling_model", ROOT / "benchmarks" / "scaling_model.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def device(model):
    return model.Device(RESULTS / "speed-h200" / "scaling.json", RESULTS / "speed-h200" / "epoch.json")


def test_the_documentation_quotes_what_the_program_computes(model, device):
    assumed = model.Assumptions()
    rows = model.simulate(device, assumed)
    stored = json.loads((RESULTS / "scaling-model" / "scaling.json").read_text())["rows"]
    assert [row["seconds"] for row in stored] == pytest.approx([row["seconds"] for row in rows])
    table = model.table(device, assumed, rows)
    assert table == (RESULTS / "scaling-model" / "table.md").read_text(encoding="utf-8")
    assert table in (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


def test_without_overheads_equal_devices_scale_perfectly_up_to_one_for_each_member(model, device):
    ideal = model.Assumptions(start=0, asking=0, result_bytes=0, spread=0, losses=0)
    load = model.Workload("", generations=3, generation_size=64, saturated=True)
    alone = model.search_seconds(device, load, 1, ideal)
    for devices in (2, 8, 64):
        assert model.search_seconds(device, load, devices, ideal) == pytest.approx(alone / devices)
    assert model.search_seconds(device, load, 1000, ideal) == pytest.approx(alone / 64)


def test_lost_workers_and_unequal_devices_cost_time(model, device):
    load = model.Workload("", generations=3, generation_size=64, work=100.0)
    equal = model.search_seconds(device, load, 8, model.Assumptions(spread=0, losses=0))
    assert model.search_seconds(device, load, 8, model.Assumptions(spread=0, losses=50.0)) > equal
    assert model.search_seconds(device, load, 8, model.Assumptions(spread=0.3, losses=0)) > equal * 0.5
