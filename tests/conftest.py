"""Fixtures of all tests. Heavy libraries are imported inside functions: xdist's controller loads this file too."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from postgresql import Server
    from s2e.data import LabelledData


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Use one worker if there is a GPU: some tests time it, some fill its memory."""
    import torch

    return 1 if torch.cuda.is_available() else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave soak tests out unless `-m` mentions them, whatever else it selects."""
    if "soak" not in (config.option.markexpr or ""):
        left_out = [item for item in items if item.get_closest_marker("soak")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests counted with `record_property`."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")


@pytest.fixture(autouse=True, scope="session")
def _fast_session() -> Iterator[None]:
    """Spend no time on threads, durable databases, repeated migrations and garbage collection of imported modules."""
    import torch
    from alembic.util import pyfiles
    from sqlalchemy import event
    from sqlalchemy.engine import Engine
    from threadpoolctl import threadpool_limits

    from small_studies import skip_disk_sync

    # Operations on tiny tensors do not gain from threads, slow down on a busy machine, and round by their number.
    torch.set_num_threads(1)
    threadpool_limits(1, "blas")
    gc.collect()
    gc.freeze()
    event.listen(Engine, "connect", skip_disk_sync)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pyfiles, "load_module_py", load_migrations_once(pyfiles.load_module_py))
        yield
    event.remove(Engine, "connect", skip_disk_sync)


def load_migrations_once(load: Callable[[str, Path], ModuleType]) -> Callable[[str, Path], ModuleType]:
    """Cache Optuna's migration scripts: every opened study loads all of them to find the newest."""
    read = functools.cache(load)
    return lambda name, path: (read if Path(path).parent.name == "versions" else load)(name, path)


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    """Let pools have extra trees with 20 trees instead of 200: half the time of a fit."""
    from sklearn import ensemble

    def fewer(count: int, **options: object) -> object:
        return real(min(count, 20), **options)

    real = ensemble.ExtraTreesClassifier
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ensemble, "ExtraTreesClassifier", fewer)
        yield


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change into an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def train_data() -> LabelledData:
    from small_tasks import blobs

    return blobs()


@pytest.fixture
def valid_data() -> LabelledData:
    from small_tasks import blobs

    return blobs(96, wrong=0.0, seed=1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A PostgreSQL that the tests of a module share; they are skipped where none is installed."""
    from postgresql import reason_to_skip, running_server

    if (reason := reason_to_skip()) is not None:
        pytest.skip(reason)
    with running_server() as started:
        yield started
