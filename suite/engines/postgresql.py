"""PostgreSQL: a server and its clients, which distributions keep in a folder off PATH.

Debian has them in /usr/lib/postgresql/VERSION/bin, the PostgreSQL project's own packages for
others in /usr/pgsql-VERSION/bin; the newest is taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.system import libc, tools
from fsmatrix.suite.engines.engine import EngineError, EngineKind

OLDEST = 15  # whose pgbench has --max-tries and logs retries
FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
BESIDE = ("initdb", "pgbench", "psql")  # what must stand beside the server
VERSION = re.compile(r"^postgres \(PostgreSQL\) (\d+)(\S*)", re.MULTILINE)
_NUMBER = re.compile(r"\d+")


def read(answers: Sequence[str]) -> tuple[str, frozenset[str]]:
    """Version as printed; no features.  EngineError if this is no PostgreSQL that can be used."""
    match = VERSION.search(answers[0])
    if match is None:
        raise EngineError("does not print its version as PostgreSQL does: name its postgres")
    if int(match[1]) < OLDEST:
        raise EngineError(
            f"PostgreSQL {match[1]} is too old: its pgbench does not count retries; "
            f"version {OLDEST} or later is needed"
        )
    return match[1] + match[2], frozenset()


@dataclass(frozen=True)
class Postgresql(EngineKind):
    """Found in the distributions' folders before PATH."""

    def find(self, given: str = "") -> str:
        """Path of `postgres`, links followed, with its programs beside it; EngineError if not."""
        if not libc.name_of_user(os.geteuid()):
            raise EngineError(
                f"PostgreSQL runs for users with a name only, and user {os.geteuid()} has no "
                "entry in /etc/passwd"
            )
        asked = given or os.environ.get(self.variable, "")
        newest = "" if asked else str(next(iter(installed()), ""))
        path = Path(super().find(asked or newest)).resolve()
        lacking = [name for name in BESIDE if not tools.find(str(path.with_name(name)))]
        if lacking:
            raise EngineError(
                f"{path.parent} has no {', '.join(lacking)} beside postgres: {self.cure}, or give "
                f"the path of a whole installation's postgres by {self.variable}"
            )
        return str(path)


def installed() -> list[Path]:
    """The servers in the distributions' folders, newest first."""
    installed = [
        path / "postgres"
        for pattern in FOLDERS
        for path in Path("/").glob(pattern.removeprefix("/"))
        if os.access(path / "postgres", os.X_OK)
    ]
    return sorted(installed, key=_version, reverse=True)


def _version(path: Path) -> int:
    numbers = _NUMBER.findall(str(path))
    return int(numbers[0]) if numbers else 0


KIND = Postgresql(
    name="postgresql",
    program="postgres",
    cure=tools.install("postgres") or "install PostgreSQL's server and pgbench",
    questions=(("--version",),),
    read=read,
)
