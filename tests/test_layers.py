"""The architecture as tests: the order of packages, what may be imported early, and what no module may do."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import s2e

ROOT = Path(s2e.__file__).parent

ORDER = [
    "errors",
    "seeds",
    "interrupts",
    "atomic_write",
    "_version",
    "files",
    "specs",
    "plots",
    "data",
    "models",
    "schedules",
    "methods",
    "networks",
    "engine",
    "samplers",
    "studies",
    "runs",
    "audit",
    "ensembles",
    "callbacks",
    "workflows",
    "experiments",
    "report",
    "api",
    "estimator",
    "cli",
    "__init__",
    "__main__",
]
"""A package or top module imports only from itself and from those before it."""

HEAVY = ["torch", "optuna", "sklearn", "scipy", "pandas", "matplotlib"]


@cache
def parsed() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}


@cache
def nodes(tree: ast.Module) -> list[ast.AST]:
    return list(ast.walk(tree))


def package_of(path: Path) -> str:
    """Return the package of a module, or the module itself if it is at the top."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_packages(tree: ast.Module) -> set[str]:
    """Return the packages of s2e that a module imports, in functions and for type checking too."""
    modules = []
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            inner = node.module == "s2e"
            modules += [f"s2e.{alias.name}" for alias in node.names] if inner else [node.module or ""]
    parts = [module.split(".") for module in modules]
    return {part[1] if len(part) > 1 else "__init__" for part in parts if part[0] == "s2e"}


def calls(tree: ast.Module) -> list[ast.Call]:
    return [node for node in nodes(tree) if isinstance(node, ast.Call)]


@cache
def called_names(tree: ast.Module) -> set[str]:
    return {ast.unparse(call.func) for call in calls(tree)}


def test_packages_import_only_from_those_before_them() -> None:
    assert {package_of(path) for path in parsed()} == set(ORDER), "a new package needs a position in ORDER"
    upwards = {
        f"{path.relative_to(ROOT)} imports {other}"
        for path, tree in parsed().items()
        for other in imported_packages(tree)
        if ORDER.index(other) > ORDER.index(package_of(path))
    }
    assert not upwards


def test_every_package_has_a_docstring_and_exports_existing_names() -> None:
    for path, tree in parsed().items():
        if path.name == "__init__.py":
            assert len(ast.get_docstring(tree) or "") > 20, path
    assert all(hasattr(s2e, name) for name in s2e.__all__)
    assert not hasattr(s2e, "no_such_name")


def test_few_modules_are_at_the_top() -> None:
    assert len(list(ROOT.glob("*.py"))) <= 10


def test_imports_are_absolute() -> None:
    imports = [node for tree in parsed().values() for node in nodes(tree) if isinstance(node, ast.ImportFrom)]
    assert all(node.level == 0 for node in imports)


def test_only_the_command_line_prints() -> None:
    printing = {"print", "sys.stdout.write", "sys.stderr.write"}
    assert not [path for path, tree in parsed().items() if package_of(path) != "cli" and printing & called_names(tree)]


def test_only_the_engine_seeds_torch_and_nothing_draws_from_numpys_global_generator() -> None:
    seeding = {"torch.manual_seed", "torch.seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all", "random.seed"}
    generators = {"np.random.default_rng", "np.random.SeedSequence", "np.random.Generator"}
    for path, tree in parsed().items():
        names = called_names(tree)
        assert package_of(path) == "engine" or not seeding & names, path
        assert {name for name in names if re.fullmatch(r"(np|numpy)\.random\.\w+", name)} <= generators, path


def test_nothing_is_unpickled() -> None:
    for path, tree in parsed().items():
        assert "pickle" not in {alias.name for n in nodes(tree) if isinstance(n, ast.Import) for alias in n.names}, path
        for call in calls(tree):
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            assert ast.unparse(call.func) != "torch.load" or given.get("weights_only") == "True", path
            assert given.get("allow_pickle", "False") == "False", path


PARSERS = {"json.load", "json.loads", "np.load", "np.lib.format.read_array", "zipfile.ZipFile", "safe_open"}
"""Functions that turn the bytes of files into values, without bounds on memory and depth."""


def test_only_one_package_parses_files() -> None:
    own_text = {"studies/optuna_internals.py", "runs/session.py"}  # parse what they have just written
    for path, tree in parsed().items():
        if package_of(path) != "files" and path.relative_to(ROOT).as_posix() not in own_text:
            assert not PARSERS & called_names(tree), path


def test_only_the_files_package_opens_data_and_run_files() -> None:
    reading = re.compile(r"\.(read_text|read_bytes)$")
    # The kernel's, and templates of this package.
    own_files = {"files/memory.py", "studies/owners.py", "report/page.py"}
    hashed = {"experiments/samplers.py"}  # a file that was read before
    for path, tree in parsed().items():
        if path.relative_to(ROOT).as_posix() not in own_files | hashed:
            assert not [name for name in called_names(tree) if reading.search(name)], path


@pytest.mark.parametrize("module", ["s2e", "s2e.cli", "s2e.errors"])
def test_nothing_heavy_is_imported_until_it_is_needed(module: str) -> None:
    program = f"import sys, logging, {module}; print(*(n for n in {HEAVY} if n in sys.modules), logging.root.handlers)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")
