"""A SQLite database in a directory of its own: made, filled, opened, checked.

Tables and keys are PostgreSQL's (schema.sql, keys.sql), translated: money and shares are whole
numbers of their last decimal place, since SQLite's own decimals are binary fractions; keys are
unique indexes beside the rows, as PostgreSQL's are.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.suite.oltp.account import NO_SPACE, OltpError
from fsmatrix.suite.oltp.rows import Rows, script

FILE = "tpcc.db"
BUSY_SECONDS = 2.0  # that a try waits for others' locks
PATIENCE = 60.0  # seconds for what is no transaction of a user
SHOWN = (
    *("page_size", "journal_mode", "synchronous", "cache_size"),
    *("busy_timeout", "wal_autocheckpoint", "mmap_size"),
)
SYNCHRONOUS = ("off", "normal", "full", "extra")  # SQLite tells their numbers
NULL = r"\N"
ROOM = 1 << 16  # bytes: with less, what cannot be written met a full disk
_DECIMAL = re.compile(r"numeric\(\d+, \d+\)")
_KEY = re.compile(r"ALTER TABLE (\w+) ADD PRIMARY KEY")
_TABLE = re.compile(r"CREATE TABLE (\w+) \((.*?)\n?\);", re.DOTALL)
_BRACKETS = re.compile(r"\([^)]*\)")


@dataclass(frozen=True)
class Database:
    """One database and the settings of its connections."""

    folder: Path
    settings: Mapping[str, str]  # page_size, journal_mode, synchronous, cache_size
    memory: Path | None = None  # the cgroup of its users, if their memory is limited

    snapshot = "BEGIN"

    def connect(self) -> sqlite3.Connection:
        """A connection with the settings, which no transaction is open in."""
        uri = f"{(self.folder / FILE).as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=PATIENCE)
        for name in ("synchronous", "cache_size"):
            connection.execute(f"PRAGMA {name} = {self.settings[name]}")
        return connection

    def load(self, rows: Rows) -> dict[str, float]:
        """A new file; tables, rows and keys in one transaction; seconds of its parts.

        With a rollback journal, into which new pages are not written; then the journal asked for.
        """
        began = time.monotonic()
        os.close(os.open(self.folder / FILE, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with as_oltp_error(self.folder), closing(self.connect()) as connection:
            connection.execute(f"PRAGMA page_size = {self.settings['page_size']}")
            connection.execute("PRAGMA journal_mode = delete")
            connection.execute("BEGIN IMMEDIATE")
            for name, statement, columns in tables():
                connection.execute(statement)
                holes = ", ".join("?" * columns)
                pieces = rows.tables()[name]()
                each = (row for piece in pieces for row in values(piece))
                connection.executemany(f"INSERT INTO {name} VALUES ({holes})", each)
            copied = time.monotonic()
            for statement in keys():
                connection.execute(statement)
            connection.execute("COMMIT")
            keyed = time.monotonic()
            connection.execute("ANALYZE")
            self._set_journal(connection)
        ended = time.monotonic()
        return {"copy": copied - began, "keys": keyed - copied, "analyze": ended - keyed}

    def _set_journal(self, connection: sqlite3.Connection) -> None:
        wanted = self.settings["journal_mode"]
        (got,) = connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()
        if got != wanted:
            raise OltpError(
                f"SQLite cannot use journal_mode {wanted} on this file system (it says {got})"
            )

    def prepare(self, connection: sqlite3.Connection) -> None:
        """A user's: of rollback journals each connection has its own mode."""
        if self.settings["journal_mode"] != "wal":
            self._set_journal(connection)
        connection.execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1000)}")

    def sql(self, text: str) -> list[list[str]]:
        """Run statements; the rows of their answers as texts."""
        answers: list[list[str]] = []
        with as_oltp_error(self.folder), closing(self.connect()) as connection:
            for statement in filter(str.strip, text.split(";")):
                answers += [list(map(str, row)) for row in connection.execute(statement)]
        return answers

    def in_use(self) -> dict[str, str]:
        """Settings as a connection has them."""
        with as_oltp_error(self.folder), closing(self.connect()) as connection:
            self.prepare(connection)
            settings = {n: str(connection.execute(f"PRAGMA {n}").fetchone()[0]) for n in SHOWN}
        settings["synchronous"] = SYNCHRONOUS[int(settings["synchronous"])]
        return settings | {
            "block_size": settings["page_size"],
            "server_version": sqlite3.sqlite_version,
        }

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self.folder.iterdir())


@contextmanager
def as_oltp_error(folder: Path) -> Iterator[None]:
    """SQLite's errors as OltpError, with a full disk named."""
    try:
        yield
    except sqlite3.Error as error:
        raise OltpError(sentence(error, folder)) from error


def sentence(error: sqlite3.Error, folder: Path) -> str:
    """What SQLite says, and whether the disk is full."""
    name = str(getattr(error, "sqlite_errorname", ""))
    room = os.statvfs(folder)
    full = name == "SQLITE_FULL" or (
        name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN"))
        and room.f_bavail * room.f_frsize < ROOM
    )
    return f"SQLite: {error}{f' [{name}]' * bool(name)}{f' ({NO_SPACE})' * full}"


def tables() -> list[tuple[str, str, int]]:
    """Name of each table, the statement that makes it, and how many columns it has.

    In the order of `Rows.tables`.
    """
    statements = {}
    for match in _TABLE.finditer(script("schema.sql")):
        columns = _BRACKETS.sub("", match[2]).count(",") + 1
        statements[match[1]] = (_DECIMAL.sub("integer", match[0]).rstrip(";"), columns)
    return [(name, *statements[name]) for name in Rows(1, 0).tables()]


def keys() -> list[str]:
    """The statements that make keys and indexes."""
    text = _KEY.sub(r"CREATE UNIQUE INDEX \1_key ON \1", script("keys.sql"))
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return [each for each in "\n".join(lines).split(";") if each.strip()]


def values(piece: bytes) -> Iterator[list[str | None]]:
    """Rows of COPY's text; a point stands in decimals only, which become whole numbers."""
    for line in piece.replace(b".", b"").decode("ascii").splitlines():
        yield [None if value == NULL else value for value in line.split("\t")]
