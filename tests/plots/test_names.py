"""Names and titles for readers."""

from __future__ import annotations

import pytest

from s2e.plots import display_name, noise_title


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("f-correction", "F-correction"),
        ("coteaching+", "Co-teaching+"),
        ("jocor", "JoCoR"),
        ("s2e", "S2E"),
        ("s2e:jocor", "S2E (JoCoR)"),
        ("unknown", "unknown"),
        ("s2e:unknown", "S2E (unknown)"),
    ],
)
def test_display_names(method: str, name: str) -> None:
    assert display_name(method) == name


@pytest.mark.parametrize(
    ("noise", "title"),
    [
        ("pair:0.45", "pair noise, 45%"),
        ("symmetric:0.125", "symmetric noise, 12.5%"),
        ("instance:0.07", "instance noise, 7%"),
        ("none", "labels as given"),
        ("human:worst", "human noise, worst"),
        ("asymmetric:some/folder/matrix.csv", "asymmetric noise, matrix.csv"),
    ],
)
def test_noise_titles(noise: str, title: str) -> None:
    assert noise_title(noise) == title
