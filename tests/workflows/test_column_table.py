"""What became of every column, as text."""

from __future__ import annotations

from s2e.data import ColumnUse
from s2e.workflows.column_table import MOST_SHOWN, columns_text


def test_every_column_has_a_line():
    text = columns_text([ColumnUse("y", "label", "2 classes", 0), ColumnUse("age", "number", "centred on 3", 2)])
    assert text.splitlines() == [
        "2 columns (1 label, 1 number) give 2 inputs",
        "  column  kind    inputs  encoding",
        "  y       label        0  2 classes",
        "  age     number       2  centred on 3",
    ]


def test_of_many_columns_only_those_left_out_are_named():
    many = [ColumnUse(f"x{index}", "number", "scaled", 1) for index in range(2 * MOST_SHOWN)]
    assert columns_text(many) == ""
    many.append(ColumnUse("y", "label", "2 classes", 0))
    assert columns_text(many) == "61 columns (60 number, 1 label) give 60 inputs"
    text = columns_text([*many, ColumnUse("n" * 99, "left out", "it is always 3", 0)])
    assert len(text.splitlines()) == 3
    assert "n" * 99 not in text
    left_out = [ColumnUse(f"x{index}", "left out", "it is always 3", 0) for index in range(MOST_SHOWN + 2)]
    assert columns_text(left_out).endswith("  … 2 more")
