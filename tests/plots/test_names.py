"""Names and titles for readers."""

from __future__ import annotations

from s2e.plots import display_name, noise_title


def test_display_names() -> None:
    names = {
        "f-correction": "F-correction",
        "coteaching+": "Co-teaching+",
        "s2e": "S2E",
        "s2e:jocor": "S2E (JoCoR)",
        "unknown": "unknown",
        "s2e:unknown": "S2E (unknown)",
    }
    assert {method: display_name(method) for method in names} == names


def test_noise_titles() -> None:
    titles = {
        "pair:0.45": "pair noise, 45%",
        "symmetric:0.125": "symmetric noise, 12.5%",
        "instance:0.07": "instance noise, 7%",
        "none": "labels as given",
        "human:worst": "human noise, worst",
        "asymmetric:some/folder/matrix.csv": "asymmetric noise, matrix.csv",
    }
    assert {noise: noise_title(noise) for noise in titles} == titles
