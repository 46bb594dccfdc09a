"""What a command is asked to do: small immutable specifications, defined once.

`DataSpec`, `TrainingSpec` and `SearchSpec` are nested in the options of every command, of `s2e.search` and
`s2e.train`, and of `S2EClassifier`. The command line makes its options from their fields, and `config.json` holds
them. Nothing heavy is imported here, so that `s2e --help` is quick.
"""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

if TYPE_CHECKING:
    pass

Spec = TypeVar("Spec")

AUTO: Final = "auto"
GenerationSize = int | Literal["auto"]
"""K, or `AUTO` to choose it from a short measurement."""


def option(default: Any = MISSING, text: str = "", **cli: Any) -> Any:
    """Return a field of a specification.

    Args:
        default: its value where none is given.
        text: what it is; also the help of the command line.
        cli: how the command line takes it, where that does not follow from the default: `flag` (its name there),
            `metavar`, `type`, `argument` (positional) and `minimum`.
    """
    metadata = {"help": text, **cli}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)
