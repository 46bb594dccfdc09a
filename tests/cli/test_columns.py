"""Columns of a table on the command line: what became of each is printed and stored, `--drop`, `--text`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command_line import assert_refused, s2e

SHORT = ["--epochs", "1", "--trials", "2", "--generation-size", "2", "--restarts", "1"]
SHORT += ["--no-baselines", "--no-relabel", "--no-models"]

pytestmark = pytest.mark.usefixtures("work")


def save() -> str:
    rows = np.arange(40)
    pd.DataFrame(
        {
            "born": pd.Series(pd.date_range("2020-01-01", periods=40, freq="9D")).dt.strftime("%d/%m/%Y"),
            "price": [f"${1000 + row:,}" for row in rows],
            "note": [f"fox {row}" for row in rows],
            "kind": np.where(rows % 2, "a", "b"),
        }
    ).to_csv("data.csv", index=False)
    return "data.csv"


def test_every_column_is_printed_and_stored() -> None:
    done = s2e("search", save(), "--label", "kind", *SHORT, "--out", "run")
    assert done.exit_code == 0, done.stderr
    assert "4 columns (1 label, 1 date, 1 number, 1 left out) give 6 inputs" in done.stderr
    assert "name it in --text if it is text to learn from, or in --id" in done.stderr
    stored = json.loads(Path("run/columns.json").read_text())["columns"]
    assert [(column["name"], column["inputs"]) for column in stored][1:] == [("born", 5), ("price", 1), ("note", 0)]


def test_columns_are_dropped_and_read_as_text() -> None:
    done = s2e("search", save(), "--label", "kind", "--drop", "born, price", "--text", "note", *SHORT, "--out", "run")
    assert done.exit_code == 0, done.stderr
    assert "it is named in --drop" in done.stderr
    options = json.loads(Path("run/config.json").read_text())["options"]
    assert (options["drop"], options["text"]) == (["born", "price"], ["note"])
    assert s2e("predict", "run", "data.csv", "-o", "out.csv").exit_code == 0
    assert s2e("search", "--resume", "--out", "run", "--trials", "4").exit_code == 0


def test_unknown_columns_are_refused() -> None:
    refused = s2e("search", save(), "--label", "kind", "--drop", "borne", "--text", "notes", *SHORT, "--out", "run")
    assert_refused(refused, "`drop` must be one of born, ", "`text` must be one of note, ")


def test_columns_are_of_tables_only() -> None:
    np.savez("data.npz", x=np.eye(6), y=np.arange(6) % 2)
    assert_refused(s2e("search", "data.npz", "--drop", "x0", *SHORT, "--out", "run"), "`drop` must be given for tables")
