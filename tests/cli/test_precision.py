"""`--precision`: refused before anything is loaded, and part of what a run keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import assert_refused, s2e

pytestmark = pytest.mark.usefixtures("work")


def test_unknown_precision_is_refused_before_data_are_loaded() -> None:
    assert_refused(s2e("search", "nowhere.npz", "--precision", "float16"), "`precision` must be one of bfloat16, ")
    assert not Path("runs").exists()


def test_training_in_bfloat16_is_written_to_the_run() -> None:
    options = ["--method", "standard", "--epochs", "2", "--noise", "none", "--precision", "bfloat16", "--out", "run"]
    assert s2e("train", "digits", *options).exit_code == 0
    assert json.loads(Path("run/config.json").read_text())["options"]["precision"] == "bfloat16"
    assert s2e("audit", "run").exit_code == 0
