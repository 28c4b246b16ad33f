"""A program that is missing skips the test, or fails it where all must be there."""

from typing import Any

import pytest

from outside import program


@pytest.mark.parametrize(("value", "end"), [("", pytest.skip), ("1", pytest.fail)])
def test_a_program_that_is_missing(value: str, end: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUGRAPH_ALL_TESTS", value)
    with pytest.raises(end.Exception, match="no nowhere: apt-get install nowhere, or have neverwhere on PATH"):
        program("nowhere", "neverwhere")
    assert program("nowhere", "env").endswith("/env")
