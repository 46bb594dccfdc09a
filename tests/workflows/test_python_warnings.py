"""Log messages as warnings: in Python only, with the names of arguments, whatever is nested."""

from __future__ import annotations

import logging
import warnings

import pytest

from s2e.errors import S2EWarning
from s2e.workflows.python_warnings import as_python, warnings_in_python, warns_in_python

log = logging.getLogger("s2e.somewhere")


def test_messages_name_arguments_of_python() -> None:
    assert as_python("pass --id, or a larger --batch-size") == "pass `id_column`, or a larger `batch_size`"
    assert as_python("a--b, x --- y and -n stay") == "a--b, x --- y and -n stay"


def test_messages_are_warnings_inside_only(caplog: pytest.LogCaptureFixture) -> None:
    @warns_in_python
    def inner() -> int:
        with warnings_in_python():
            pass
        log.warning("%d rows --label", 3)
        log.info("nothing")
        return 5

    with pytest.warns(S2EWarning, match="3 rows `label`") as caught:
        assert inner() == 5
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log.warning("outside")
    assert [record.getMessage() for record in caplog.records] == ["3 rows --label", "outside"]


def test_handler_is_removed_after_an_error() -> None:
    with pytest.raises(KeyError), warnings_in_python():
        raise KeyError
    assert not logging.getLogger("s2e").handlers
