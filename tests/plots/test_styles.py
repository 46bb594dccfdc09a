"""Line styles distinguish the methods, also for colour-blind readers and without colour."""

from __future__ import annotations

import itertools

import numpy as np

from figure_outcomes import METHODS, legend_of, lines_of, make_band
from s2e.plots import STYLES, draw_bands, style_of

# Machado, Oliveira, Fernandes (2009), severity 1, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def lab(color: str, vision: str) -> np.ndarray:
    """CIE L*a*b* (D65) of a colour as it is perceived."""
    encoded = np.array([int(color[first : first + 2], 16) for first in (1, 3, 5)]) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratio = to_xyz @ np.clip(VISION[vision] @ linear, 0, 1) / to_xyz.sum(axis=1)
    x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_colours_differ_for_all_readers() -> None:
    for vision, (one, other) in itertools.product(VISION, itertools.combinations(STYLES, 2)):
        distance = np.linalg.norm(lab(STYLES[one].color, vision) - lab(STYLES[other].color, vision))
        assert distance >= 18, (one, other, vision)


def test_colours_are_dark_enough_for_white_paper() -> None:
    assert all(lab(style.color, "normal")[0] < 80 for style in STYLES.values())


def test_every_method_has_its_own_dashes() -> None:
    assert set(STYLES) == set(METHODS)
    assert len({style.dashes for style in STYLES.values()}) == len(STYLES)
    assert STYLES["s2e"].dashes == ()


def test_s2e_is_widest_and_on_top() -> None:
    others = [style_of(method) for method in (*METHODS[:-1], "s2e:jocor", "unknown")]
    assert style_of("s2e").width > max(style.width for style in others)
    assert style_of("s2e").layer > max(style.layer for style in others)


def test_searched_variant_has_the_style_of_its_method_but_wider() -> None:
    plain, searched = style_of("jocor"), style_of("s2e:jocor")
    assert (searched.color, searched.dashes) == (plain.color, plain.dashes)
    assert (searched.width, searched.layer) > (plain.width, plain.layer)


def test_unknown_methods_have_a_style_by_name() -> None:
    assert style_of("unknown") == style_of("unknown")
    assert len({style_of(f"unknown{number}").dashes for number in range(40)}) > 1
    assert style_of("unknown").color not in {style.color for style in STYLES.values()}


def test_lines_and_legend_have_the_style_of_their_method() -> None:
    methods = METHODS[::-1]
    figure = draw_bands([make_band(method=method) for method in methods], y_label="test accuracy")
    for method, line, handle in zip(methods, lines_of(figure.axes[0]), legend_of(figure).get_lines(), strict=True):
        style = style_of(method)
        assert line.get_color() == handle.get_color() == style.color
        assert line.get_zorder() == style.layer
        assert line.get_linewidth() == handle.get_linewidth() == style.width
        pattern = (0, [length * style.width for length in style.dashes] or None)  # dashes grow with the width
        assert line._dash_pattern == handle._dash_pattern == pattern
