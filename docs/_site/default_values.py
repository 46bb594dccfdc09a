"""Shows the values of named constants in signatures of the reference: network="auto" instead of network=AUTO."""

from __future__ import annotations

from typing import Any

import griffe

from s2e import specs

VALUES = {name: repr(getattr(specs, name)) for name in ("AUTO", "LOCAL", "NO_AUGMENTATION")}


class DefaultValues(griffe.Extension):
    """Replaces the names of constants among default values."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Replace those of one function."""
        for parameter in func.parameters:
            parameter.default = VALUES.get(str(parameter.default), parameter.default)
