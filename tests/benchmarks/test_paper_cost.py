"""`benchmarks/paper_cost.py`: it counts the trainings of the declarations, and the documentation quotes it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from s2e.specs import CompareOptions, DataSpec, SearchSpec

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture(scope="module")
def program():
    """The program as a module; it belongs to no package."""
    spec = importlib.util.spec_from_file_location("paper_cost", ROOT / "benchmarks" / "paper_cost.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_documentation_quotes_what_the_program_computes(program):
    table = program.markdown(program.costs(program.step_times(RESULTS / "speed-h200")))
    assert table == (RESULTS / "cost" / "table.md").read_text(encoding="utf-8")
    assert table in (RESULTS / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("methods", "networks"),
    [
        (("standard",), 2 * 5),
        (("coteaching", "oracle:clean"), 2 * 5 * (2 + 1)),
        (("f-correction",), 2 * 5 * 2),
        (("s2e",), 2 * (5 + 3 * 10) * 2),
        (("s2e:mentornet",), 2 * (5 + 3 * 10) * 1),
        (("s2e-noisy-validation",), 2 * (5 + 3 * 10) * 2),
    ],
)
def test_networks_are_those_of_all_seeds_and_searches(program, methods, networks):
    search = SearchSpec(trials=10, generation_size=5)
    noises = ("pair:0.45", "symmetric:0.2")
    options = CompareOptions(DataSpec("mnist"), noises, methods, 5, search=search, searches=3)
    assert program.networks_of(options) == networks
