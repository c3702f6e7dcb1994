"""The three steps on SQLite: load, run, check."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from fsmatrix.backends.system.libc import name_of_user
from fsmatrix.suite.oltp import clients, consistency, logs
from fsmatrix.suite.oltp.account import SQLITE, SQLITE_DATA, OltpError, Task
from fsmatrix.suite.oltp.answers import Answer, Checked, Loaded, Worked
from fsmatrix.suite.oltp.clients import Users
from fsmatrix.suite.oltp.rows import Rows
from fsmatrix.suite.oltp.server import of_directory
from fsmatrix.suite.oltp.sqlite import users as virtual
from fsmatrix.suite.oltp.sqlite.database import Database


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
        virtual.work(
            users, database, Rows(task.warehouses, int(task.seed)).constants, folder, began
        )
    except virtual.Died as error:
        raise _after_crash(error, database) from error
    window = (began + task.warm_up, began + seconds)
    counted = logs.count(
        clients.logs(folder), virtual.NAMES, task.users, window, lag=bool(task.rate)
    )
    account, sizes = name_of_user(os.geteuid()) or str(os.geteuid()), (before, database.size)
    return counted.answer(began, account, settings, sizes, engine=SQLITE)


def check(task: Task, database: Database, folder: Path) -> Checked:
    """Ask whether the consistency conditions hold."""
    del task, folder
    return Checked.of(consistency.violations(database))


def _after_crash(error: OltpError, database: Database) -> OltpError:
    """What a killed user left: does it recover, and is the data consistent?"""
    began = time.monotonic()
    try:
        database.in_use()
        seconds = time.monotonic() - began
        violations = consistency.violations(database)
    except OltpError as failure:
        return OltpError(f"{error}; the database does not recover: {failure}")
    state = consistency.sentence(violations) or "the consistency conditions hold"
    return OltpError(f"{error}; opened again it recovered in {seconds:.1f} s, and {state}")


STEPS: Mapping[str, Callable[[Task, Database, Path], Answer]] = {
    "load": load,
    "run": run,
    "check": check,
}
