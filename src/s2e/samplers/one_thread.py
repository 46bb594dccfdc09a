"""Linear algebra of NumPy and SciPy with one thread.

How a product or a factorisation is rounded depends on the number of threads that share it, and so would the next points
of a search. The matrices of samplers are small, too: with several threads they take longer, not shorter.
"""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any

from scipy import linalg  # noqa: F401  # loads its library, which must be known to the controller
from threadpoolctl import ThreadpoolController

from s2e.engine.process_setting import ProcessSetting


def _limit_to_one() -> Any:
    return _controller().limit(limits=1, user_api="blas")


def _restore(limit: Any) -> None:
    limit.restore_original_limits()


@cache
def _controller() -> ThreadpoolController:
    """Return the libraries, which takes some milliseconds to find out."""
    return ThreadpoolController()


one_thread_for_products = ProcessSetting(_limit_to_one, _restore, Lock()).kept
"""A context in which linear algebra uses one thread, in all threads of the process."""
