"""Natural order."""

from __future__ import annotations

from s2e.data.natural_order import natural_key


def test_numbers_sort_by_value_and_letters_without_case():
    names = ["b", "a10", "A3", "a2", "a02", "a", "10", "9", "x-1", "x.1", "a2b"]
    ordered = ["9", "10", "a", "a02", "a2", "a2b", "A3", "a10", "b", "x-1", "x.1"]
    assert sorted(names, key=natural_key) == ordered
