"""Which SQLite is used, and what is refused."""

from __future__ import annotations

import sqlite3
import sys

import pytest

from fsmatrix.suite.engines.engine import EngineError
from fsmatrix.suite.engines.sqlite import KIND, read


def test_it_is_this_python_s() -> None:
    engine = KIND.probe()
    assert (engine.version, engine.path) == (sqlite3.sqlite_version, sys.executable)


def test_no_other_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert KIND.find(sys.executable) == sys.executable
    monkeypatch.setenv("FSMATRIX_SQLITE", "/bin/true")
    with pytest.raises(EngineError, match="/bin/true: the engine sqlite is the library of"):
        KIND.find()


def test_an_old_one_and_none_are_refused() -> None:
    with pytest.raises(EngineError, match=r"SQLite 3\.34\.1 of .* is too old"):
        read(["sqlite 3.34.1\n"])
    with pytest.raises(EngineError, match="built without the module sqlite3"):
        read(["ModuleNotFoundError: No module named '_sqlite3'\n"])
