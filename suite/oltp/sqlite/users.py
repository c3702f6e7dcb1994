"""The virtual users: a process each, with one connection, and a log as pgbench writes it."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import connection as waiting
from multiprocessing.context import ForkProcess
from pathlib import Path

from fsmatrix.backends.system import cgroups, libc
from fsmatrix.suite.oltp.account import OltpError
from fsmatrix.suite.oltp.clients import LOG, SCRIPTS, Users
from fsmatrix.suite.oltp.rows import Constants
from fsmatrix.suite.oltp.sqlite.database import Database, sentence
from fsmatrix.suite.oltp.sqlite.transactions import TRANSACTIONS, Draws, perform

NAMES = tuple(SCRIPTS)
WEIGHTS = [weight for weight, _ in SCRIPTS.values()]
MOST_SEED = (1 << 53) - 1
ERROR = "error"
BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")  # others hold their locks


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
            problem = sentence(error, folder) if isinstance(error, sqlite3.Error) else str(error)
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
