"""SQLite: the library that the Python which runs fsmatrix was built with (module sqlite3)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from fsmatrix.suite.engines.engine import EngineError, EngineKind

OLDEST = (3, 39)  # whose joins are also full ones, in which the consistency conditions are asked
VERSION = re.compile(r"^sqlite (\d+)\.(\d+)(\S*)$", re.MULTILINE)


def read(answers: Sequence[str]) -> tuple[str, frozenset[str]]:
    """Version as the library has it; no features.  EngineError if there is none or it is old."""
    match = VERSION.search(answers[0])
    if match is None:
        raise EngineError(
            f"{sys.executable} was built without the module sqlite3: use another Python"
        )
    version = f"{match[1]}.{match[2]}{match[3]}"
    if (int(match[1]), int(match[2])) < OLDEST:
        raise EngineError(
            f"SQLite {version} of {sys.executable} is too old: it has no full joins; "
            f"{OLDEST[0]}.{OLDEST[1]} or later is needed"
        )
    return version, frozenset()


@dataclass(frozen=True)
class Sqlite(EngineKind):
    """No program of its own: the engine's path is the Python that runs fsmatrix."""

    def find(self, given: str = "") -> str:
        """This Python; EngineError if another is named."""
        asked = given or os.environ.get(self.variable, "")
        if asked and os.path.realpath(super().find(asked)) != os.path.realpath(sys.executable):
            raise EngineError(
                f"{asked}: the engine sqlite is the library of the Python that runs fsmatrix "
                f"({sys.executable}), no other can be named: run fsmatrix with that Python"
            )
        return sys.executable


KIND = Sqlite(
    name="sqlite",
    program="python3",
    cure="use a Python that was built with the module sqlite3",
    questions=(("-I", "-c", "import sqlite3; print('sqlite', sqlite3.sqlite_version)"),),
    read=read,
)
