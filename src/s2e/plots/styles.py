"""The line style of each method, the same in every figure."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Style:
    """The style of a line.

    Attributes:
        color: as #RRGGBB.
        dashes: alternating lengths of dashes and gaps, in line widths; empty for a solid line.
        width: in points.
        layer: lines with a higher layer are drawn on top.
    """

    color: str
    dashes: tuple[float, ...] = ()
    width: float = 1.3
    layer: int = 3

    @property
    def linestyle(self) -> Literal["solid"] | tuple[float, tuple[float, ...]]:
        """The dashes in matplotlib's format."""
        return (0, self.dashes) if self.dashes else "solid"


# The nine colours differ by a CIE76 distance of at least 18 under all three types of colour blindness.
STYLES = {
    "standard": Style("#222222", (1, 1.3)),
    "decoupling": Style("#CCBB44", (10, 2)),
    "f-correction": Style("#EE99AA", (2.5, 1, 2.5, 3)),
    "mentornet": Style("#56B4E9", (5, 1.3, 1, 1.3)),
    "coteaching": Style("#0077BB", (3.5, 1.5)),
    "coteaching+": Style("#332288", (9, 1.5, 1, 1.5)),
    "reweight": Style("#AA3377", (1, 2.5)),
    "jocor": Style("#005F33", (5, 1.3, 1, 1.3, 1, 1.3)),
    "s2e": Style("#CC3311", width=2.4, layer=5),
}

_VARIANTS = {
    "s2e-noisy-validation": Style("#EE7733", (4, 1.5), width=1.8, layer=6),
    "oracle:selected": Style("#777777", (1.2, 1.2), width=1.0, layer=2),
    "oracle:clean": Style("#777777", width=1.0, layer=2),
}
"""Styles of entrants of a comparison that are no methods of their own: oracles are thin and grey. Without clean samples
the line of S2E may coincide with that of S2E, over which its dashes are drawn."""

OTHER_COLOR = "#8B5A2B"
"""Colour of methods that are not in `STYLES`."""

ORDERED_STYLES = (
    Style("#CC3311"),
    Style("#0077BB", (3.5, 1.5)),
    Style("#222222", (1, 1.3)),
    Style("#AA3377", (5, 1.3, 1, 1.3)),
    Style("#CCBB44", (10, 2)),
    Style("#005F33", (5, 1.3, 1, 1.3, 1, 1.3)),
)
"""Styles of lines that are no methods, in the order in which they are used."""

_OTHER_DASHES = [(2, 1), (7, 3), (10, 1), (4, 1, 2, 1), (2, 3)]


def style_of(method: str) -> Style:
    """Return the style of a method.

    `s2e:jocor` has JoCoR's colour and dashes, in a wider line on a higher layer. Methods that are not in `STYLES` get a
    brown line with dashes that depend only on the name.
    """
    if method in STYLES:
        return STYLES[method]
    if method in _VARIANTS:
        return _VARIANTS[method]
    name, _, searched = method.partition(":")
    if name == "s2e" and searched:
        style = style_of(searched)
        return Style(style.color, style.dashes, width=2.0, layer=4)
    return Style(OTHER_COLOR, _OTHER_DASHES[zlib.crc32(method.encode()) % len(_OTHER_DASHES)])
