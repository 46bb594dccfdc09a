"""`--log`: progress written to trackers, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import TINY_SEARCH, assert_refused, s2e, save


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_log_writes_events_into_the_run_directory_with_the_results() -> None:
    result = s2e("search", save(), *TINY_SEARCH, "--no-baselines", "--out", "run", "--log", "tensorboard")
    assert result.exit_code == 0, result.stderr
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator("run/tensorboard")
    read.Reload()
    names = read.Tags()["scalars"]
    assert {"search/best_validation_accuracy", "final_training/loss/member_0"} <= set(names)
    assert "result/methods/S2E/valid/last_10_epochs" in names
    assert "trials" in str(read.Tensors("search/text_summary")[0].tensor_proto.string_val[0])


def test_unknown_names_are_refused_before_data_are_loaded() -> None:
    assert_refused(s2e("search", "missing.npz", "--log", "tensorbord"), "`log` must be one of tensorboard")


def test_a_refused_command_leaves_no_events() -> None:
    assert_refused(s2e("search", "missing.npz", "--out", "run", "--log", "tensorboard"), "missing.npz")


def test_a_resumed_run_is_logged_again() -> None:
    command = ["search", save(), *TINY_SEARCH, "--no-baselines", "--out", "run", "--log", "tensorboard:events"]
    assert s2e(*command).exit_code == 0
    assert s2e("search", "--resume", "--out", "run", "--trials", "6", "--log", "tensorboard:events").exit_code == 0
    assert len(list(Path("events").iterdir())) == 2
