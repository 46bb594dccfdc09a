"""Imports of commands leave the collection of garbage as it was, and freeze objects only in a process of their own."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from s2e.cli import imports
from s2e.cli.imports import importing


@pytest.fixture(autouse=True)
def _unchanged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(imports, "_has_process", False)
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_afterwards_as_before(enabled: bool) -> None:
    if not enabled:
        gc.disable()
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled() == enabled


def test_objects_are_frozen_only_in_a_process_of_the_command_line() -> None:
    with importing():
        pass
    assert gc.get_freeze_count() == 0
    imports.has_process()
    with importing():
        pass
    assert gc.get_freeze_count() > 0
