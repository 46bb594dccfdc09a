"""Programs of the folder `benchmarks` as modules; they belong to no package and import each other from their folder."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "benchmarks"


@contextmanager
def loaded_program(name: str) -> Iterator[ModuleType]:
    """Load a program by its name; at the end, forget it and the modules it has loaded from its folder."""
    spec = importlib.util.spec_from_file_location(f"{name}_benchmark", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    sys.path.insert(0, str(FOLDER))
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))
        for loaded, each in list(sys.modules.items()):
            if Path(getattr(each, "__file__", None) or "/").parent == FOLDER:
                del sys.modules[loaded]
