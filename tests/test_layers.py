"""The architecture as a test: imports point down, nothing heavy is imported early, nothing below the CLI prints."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import s2e

ROOT = Path(s2e.__file__).parent

LAYERS = [  # a module imports from its own layer and from those above it in this list
    ["errors", "_version", "seeds", "interrupts", "written"],
    ["data", "schedules", "devices", "gaussian_process", "audit"],
    ["spaces", "noise", "sizing"],
    ["relaxation", "surrogate", "formats", "table_columns", "table_files", "images"],
    ["tabular", "hub", "image_folders"],
    ["encodings", "features"],
    ["catalogue"],
    ["datasets", "networks"],
    ["methods"],
    ["population", "feed", "optimizer", "memory", "records", "products"],
    ["kernel_times"],
    ["fusing"],
    ["replay"],
    ["lockstep", "tasks", "turns", "evaluation"],
    ["crew"],
    ["training"],
    ["stages"],
    ["finals"],
    ["samplers"],
    ["studies"],
    ["pruning"],
    ["searching"],
    ["runs", "preparation", "outcomes", "schedule_table"],
    ["drawing"],
    ["figures", "workplace", "contestants", "bench", "pacing", "classifiers"],
    ["predicting", "auditing", "mending"],
    ["ledger"],
    ["commands"],
    ["api", "comparison", "experiments", "report"],
    ["progress", "tables"],
    ["estimator_files", "estimator_checks"],
    ["estimator"],
    ["cli"],
    ["__init__", "__main__"],
]
LEVEL = {unit: level for level, units in enumerate(LAYERS) for unit in units}
HEAVY = ["torch", "optuna", "sklearn", "scipy", "pandas", "matplotlib"]
FILES = sorted(ROOT.rglob("*.py"))
EVERY_FILE = pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())


def unit_of(path):
    """A module of the package, or the package inside it that the file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_units(tree):
    """Units of s2e a file imports anywhere in it, in functions and for type checking too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "s2e":
            names = [f"s2e.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        parts = [name.split(".") for name in names]
        found |= {(part[1] if len(part) > 1 else "__init__") for part in parts if part[0] == "s2e"}
    return found


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def calls(tree):
    """Dotted names of everything that is called, such as print or torch.manual_seed."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def test_every_module_has_its_place_in_one_layer():
    placed = [unit for units in LAYERS for unit in units]
    assert len(set(placed)) == len(placed)
    assert {unit_of(path) for path in FILES} == set(placed), "a new module needs a layer, an old one leaves the list"


@EVERY_FILE
def test_imports_point_down(path):
    unit = unit_of(path)
    upwards = {other for other in imported_units(parsed(path)) if LEVEL.get(other, len(LAYERS)) > LEVEL[unit]}
    assert not upwards, f"{unit} must not import from {', '.join(sorted(upwards))}"


@EVERY_FILE
def test_imports_are_absolute(path):
    assert not [node for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom) and node.level > 0]


def test_no_modules_import_each_other_in_a_circle():
    graph = {}
    for path in FILES:
        graph.setdefault(unit_of(path), set()).update(imported_units(parsed(path)) - {unit_of(path)})
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)


@pytest.mark.parametrize(
    ("source", "units"),
    [
        ("from s2e.runs import Run", {"runs"}),
        ("import s2e.methods.interface", {"methods"}),
        ("from s2e import commands, noise", {"commands", "noise"}),
        ("def f():\n    from s2e.cli import main", {"cli"}),
        ("if TYPE_CHECKING:\n    from s2e.training import Task", {"training"}),
        ("import s2e", {"__init__"}),
        ("import numpy\nfrom s2engine import x\nfrom pathlib import Path", set()),
    ],
)
def test_the_reader_of_imports_sees_them_wherever_they_hide(source, units):
    assert imported_units(ast.parse(source)) == units


@EVERY_FILE
def test_nothing_below_the_command_line_prints(path):
    if unit_of(path) not in ("cli", "__main__"):
        assert not {"print", "sys.stdout.write", "sys.stderr.write"} & calls(parsed(path))


@EVERY_FILE
def test_no_module_seeds_the_whole_process_but_the_one_that_restores_it(path):
    seeding = {"torch.manual_seed", "torch.seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all"}
    seeding |= {"np.random.seed", "numpy.random.seed", "random.seed"}
    allowed = {"torch.manual_seed"} if unit_of(path) == "training" else set()
    assert seeding & calls(parsed(path)) <= allowed


@EVERY_FILE
def test_nothing_is_drawn_from_the_process_wide_generator_of_numpy(path):
    drawn = {name for name in calls(parsed(path)) if re.fullmatch(r"(np|numpy)\.random\.\w+", name)}
    assert drawn <= {"np.random.default_rng", "np.random.SeedSequence", "np.random.Generator"}


@EVERY_FILE
def test_every_torch_load_is_weights_only_and_nothing_is_unpickled(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert called not in ("pickle.load", "pickle.loads", "joblib.load")
            assert called != "torch.load" or given.get("weights_only") == "True"
            assert given.get("allow_pickle", "False") == "False"


@pytest.mark.parametrize("module", ["s2e", "s2e.cli", "s2e.errors"])
def test_nothing_heavy_is_imported_until_it_is_needed(module):
    program = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_importing_the_package_says_nothing_and_sets_up_no_logging():
    program = "import s2e, s2e.cli, logging; print(logging.root.handlers)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")


def test_every_public_name_is_there():
    assert all(hasattr(s2e, name) for name in s2e.__all__)
    assert not hasattr(s2e, "nothing_of_the_kind")
