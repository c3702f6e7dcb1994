"""The steps load, run and check on SQLite: no server, a database in a folder, a process per user.

Tables and keys are PostgreSQL's (schema.sql, keys.sql), translated: money and shares are whole
numbers of their last decimal place, since SQLite's own decimals are binary fractions; keys are
unique indexes beside the rows, as PostgreSQL's are.  Each virtual user has a process, one
connection, and a log as pgbench writes it.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import re
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import connection as waiting
from multiprocessing.context import ForkProcess
from pathlib import Path

from fsmatrix.backends.system import cgroups, libc
from fsmatrix.backends.system.libc import name_of_user
from fsmatrix.suite.oltp import answers, clients, logs
from fsmatrix.suite.oltp.account import NO_SPACE, SQLITE, SQLITE_DATA, OltpError, Task
from fsmatrix.suite.oltp.answers import Answer, Checked, Loaded, Worked
from fsmatrix.suite.oltp.clients import LOG, SCRIPTS, Users
from fsmatrix.suite.oltp.server import of_directory
from fsmatrix.suite.oltp.sqlite_transactions import TRANSACTIONS, Draws, perform
from fsmatrix.suite.oltp.tpcc_rows import Constants, Rows, script

FILE = "tpcc.db"
BUSY_SECONDS = 2.0  # that a try waits for others' locks
BUSY_PATIENCE = 60.0  # seconds for what is no transaction of a user
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

NAMES = tuple(SCRIPTS)
WEIGHTS = [weight for weight, _ in SCRIPTS.values()]
MOST_SEED = (1 << 53) - 1
ERROR = "error"
BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")  # others hold their locks


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
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_PATIENCE)
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
        raise OltpError(error_sentence(error, folder)) from error


def error_sentence(error: sqlite3.Error, folder: Path) -> str:
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


class Died(OltpError):
    """A user's process was killed."""


@dataclass(frozen=True)
class User:
    """One of them."""

    number: int
    users: Users
    database: Database
    constants: Constants
    logs: Path
    clock: float  # Unix time less the monotonic clock's, when the run began

    def _now(self) -> float:
        """Unix time that no step of the machine's clock shifts."""
        return time.monotonic() + self.clock

    def work(self, began: float) -> None:
        """Transactions until the time is over; the log is complete only then."""
        end = began + self.users.seconds
        rng = random.Random(f"{self.users.seed} {self.number}")
        home = self.number % self.users.warehouses + 1
        with closing(self.database.connect()) as db, self._log().open("w") as log:
            self.database.prepare(db)
            for count, due in enumerate(self._dues(rng, began, end)):
                (name,) = rng.choices(NAMES, WEIGHTS)
                seed = rng.randint(1, MOST_SEED)
                draws = Draws.of(seed, TRANSACTIONS[name][1], self.constants, self.users.warehouses)
                start = self._now()
                tries = self._tried(db, name, draws, home, end)
                done = self._now()
                origin = due or start
                took = round((done - origin) * 1e6) if tries else "locked"
                seconds, rest = divmod(int(done * 1e6), 1_000_000)
                lag = f" {max(0, round((start - origin) * 1e6))}" if self.users.rate else ""
                script, retries = NAMES.index(name), max(tries - 1, 0)
                log.write(
                    f"{self.number} {count} {took} {script} {seconds} {rest}{lag} {retries}\n"
                )

    def _log(self) -> Path:
        return self.logs / f"{LOG}.{self.number}"

    def _dues(self, rng: random.Random, began: float, end: float) -> Iterator[float]:
        """When each transaction is due, as Unix time; 0: when the one before is done."""
        if not self.users.rate:
            while self._now() < end:
                yield 0.0
            return
        mean = self.users.users / self.users.rate  # seconds between two of this user
        due = began
        while (due := due - mean * math.log(1.0 - rng.random())) < end:
            time.sleep(max(0.0, due - self._now()))
            if self._now() >= end:
                return
            yield due

    def _tried(self, db: sqlite3.Connection, name: str, draws: Draws, home: int, end: float) -> int:
        """How many tries it took; 0: others held their locks in all of them."""
        for number in range(1, self.users.max_tries + 1):
            try:
                perform(db, name, draws, home)
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith(BUSY):
                    raise
                if self._now() >= end:
                    break
            else:
                return number
        return 0

    def process(self, began: float, parent: int) -> None:
        """The whole life of its process."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        libc.die_with(parent)
        if self.database.memory is not None:
            cgroups.enter(self.database.memory)
        try:
            self.work(began)
        except (sqlite3.Error, LookupError) as error:
            folder = self.database.folder
            problem = (
                error_sentence(error, folder) if isinstance(error, sqlite3.Error) else str(error)
            )
            (self.logs / f"{ERROR}.{self.number}").write_text(problem)
            raise SystemExit(1) from None


def work(users: Users, database: Database, constants: Constants, logs: Path, began: float) -> None:
    """All users, to their ends.  OltpError if one fails; Died if one is killed."""
    fork = multiprocessing.get_context("fork")
    processes: list[ForkProcess] = []
    clock = time.time() - time.monotonic()
    try:
        for number in range(users.users):
            user = User(number, users, database, constants, logs, clock)
            process = fork.Process(target=user.process, args=(began, os.getpid()))
            with _undisturbed():
                process.start()
                processes.append(process)
        _wait(processes, logs)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
        for process in processes:
            process.join()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No SIGTERM while it forks: what its handler raises there is lost in hooks of the fork."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(processes: Sequence[ForkProcess], logs: Path) -> None:
    running = {process.sentinel: number for number, process in enumerate(processes)}
    while running:
        for sentinel in waiting.wait(list(running)):
            assert isinstance(sentinel, int)
            number = running.pop(sentinel)
            processes[number].join()
            code = processes[number].exitcode or 0
            if code < 0:
                raise Died(f"user {number} ended by {signal.Signals(-code).name} while it worked")
            if code:
                file = logs / f"{ERROR}.{number}"
                reason = file.read_text() if file.exists() else f"it ended with status {code}"
                raise OltpError(f"user {number}: {reason}")


def do(task: Task, folder: Path, memory: Path | None = None) -> Answer:
    """The step of a task; `folder`: of ours, for logs and for what SQLite sorts in files.

    `memory`: the cgroup of the users, if their memory is limited.
    """
    os.environ["SQLITE_TMPDIR"] = str(folder)
    data = Path(task.path) / SQLITE_DATA
    if task.do == "load":
        if data.exists():
            raise OltpError(f"{data} exists already: a database is made only in a new directory")
        data.mkdir(0o700)
    if pids := of_directory(data):
        raise OltpError(f"{data} is in use by another process, pid {pids[0]}")
    os.chdir(data)  # by this its processes are known
    try:
        return STEPS[task.do](task, Database(data, task.settings, memory), folder)
    finally:
        os.chdir("/")


def load(task: Task, database: Database, folder: Path) -> Loaded:
    """Make the database."""
    del folder
    began = time.monotonic()
    seconds = database.load(Rows(task.warehouses, int(task.seed)))
    seconds["all"] = time.monotonic() - began
    return Loaded(database_bytes=database.size, seconds=seconds)


def run(task: Task, database: Database, folder: Path) -> Worked:
    """Let the users work; what they did after the warm-up."""
    seconds = task.warm_up + task.seconds
    seed = int(task.seed) % (1 << 31)
    users = Users(task.users, task.warehouses, seconds, seed, task.max_tries, task.rate)
    settings = database.in_use()
    before = database.size
    began = time.time()
    try:
        work(users, database, Rows(task.warehouses, int(task.seed)).constants, folder, began)
    except Died as error:
        raise _after_crash(error, database) from error
    window = (began + task.warm_up, began + seconds)
    counted = logs.count(clients.logs(folder), NAMES, task.users, window, lag=bool(task.rate))
    account, sizes = name_of_user(os.geteuid()) or str(os.geteuid()), (before, database.size)
    return counted.answer(began, account, settings, sizes, engine=SQLITE)


def check(task: Task, database: Database, folder: Path) -> Checked:
    """Ask whether the consistency conditions hold."""
    del task, folder
    return Checked.of(answers.violations(database))


def _after_crash(error: OltpError, database: Database) -> OltpError:
    """What a killed user left: does it recover, and is the data consistent?"""
    began = time.monotonic()
    try:
        database.in_use()
        seconds = time.monotonic() - began
        violations = answers.violations(database)
    except OltpError as failure:
        return OltpError(f"{error}; the database does not recover: {failure}")
    state = answers.sentence(violations) or "the consistency conditions hold"
    return OltpError(f"{error}; opened again it recovered in {seconds:.1f} s, and {state}")


STEPS: Mapping[str, Callable[[Task, Database, Path], Answer]] = {
    "load": load,
    "run": run,
    "check": check,
}
