"""Optuna logs errors only."""

import pytest

from searches import quiet

_quiet = pytest.fixture(quiet, autouse=True)
