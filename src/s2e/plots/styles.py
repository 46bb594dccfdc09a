"""."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Style:
    """How the line of a method is drawn.

    Attributes:
        color: as #RRGGBB.
        dashes: lengths on and off, in line widths; none for a solid line.
        width: in points.
        layer: higher ones are drawn over lower ones.
    """

    color: str
    dashes: tuple[float, ...] = ()
    width: float = 1.3
    layer: int = 3

    @property
    def linestyle(self) -> Literal["solid"] | tuple[float, tuple[float, ...]]:
        """As matplotlib takes it."""
        return (0, self.dashes) if self.dashes else "solid"


# Nine colours that stay apart (a CIE76 difference of 18 and more) under all three kinds of colour blindness.
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

_SPARE_DASHES = [(2, 1), (7, 3), (10, 1), (4, 1, 2, 1), (2, 3)]


def style_of(method: str) -> Style:
    """Return the one style a method has in every figure.

    `s2e:jocor` has JoCoR's colour and dashes, wider and above. Methods without a style of their own get a brown line,
    with dashes that depend on the name only.
    """
    if method in STYLES:
        return STYLES[method]
    name, _, searched = method.partition(":")
    if name == "s2e" and searched:
        own = style_of(searched)
        return Style(own.color, own.dashes, width=2.0, layer=4)
    return Style("#8B5A2B", _SPARE_DASHES[zlib.crc32(method.encode()) % len(_SPARE_DASHES)])
