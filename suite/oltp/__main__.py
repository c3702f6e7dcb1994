"""One step of the workload `tpcc` on a client node: `python -m fsmatrix.suite.oltp FOLDER`.

FOLDER, the step's scratch folder, holds the task; the answer is written into it.  Each step starts
the server on the run's data directory and ends it: what is left of a step is files.  Status 1 and
a sentence on stderr if it fails.

The memory of the database may be limited while its users work.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal, limited
from fsmatrix.backends.system import cgroups
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.suite.oltp import account as accounts
from fsmatrix.suite.oltp import answers, clients, logs, sqlite_steps, tpcc_rows
from fsmatrix.suite.oltp.account import (
    DATA,
    RESULT,
    SQLITE,
    TASK,
    OltpError,
    Task,
    is_full,
    reason_of,
)
from fsmatrix.suite.oltp.answers import Answer, Checked, Loaded, Worked
from fsmatrix.suite.oltp.clients import Users
from fsmatrix.suite.oltp.server import Programs, Server, of_directory
from fsmatrix.suite.oltp.tpcc_rows import Rows

MIB = 1 << 20

# Folders in the scratch folder: the account's, for the socket; for a bound directory; and ours.
RUN, BOUND, FILES = "s", "data", "files"
CRASH_SECONDS = 5.0  # between lost connections and the end of the killed process


def within_memory(task: Task, do: Callable[[Path | None], Answer]) -> Answer:
    """The answer of `do`, which gets the cgroup of a task that limits memory, or None.

    With what the memory was used for.  OltpError if the kernel killed a process because the
    memory was too little, whatever `do` says; BackendError if memory cannot be limited.
    """
    if not task.memory:
        return do(None)
    journal = Journal(Path(task.journal) / f"{platform.node()}.jsonl")
    with limited(task.memory, journal) as folder:
        try:
            answer = do(folder)
        except OltpError as error:
            if killed := _killed_in(folder):
                raise OltpError(f"{killed}; {error}") from error
            raise
        if killed := _killed_in(folder):
            raise OltpError(killed)
        return replace(answer, memory=cgroups.memory_used(folder))


def _killed_in(folder: Path) -> str:
    """That the memory was too little, in a sentence (empty: it was not)."""
    use = cgroups.memory_used(folder)
    if not use.oom_kills:
        return ""
    killed = "1 process" if use.oom_kills == 1 else f"{use.oom_kills} processes"
    return (
        f"out of memory: the kernel killed {killed} of the database, which had memory: "
        f"{use.limit // MIB} MiB (page cache included)"
    )


def main(folder: Path) -> int:
    """Do the task of a folder."""
    signal.signal(signal.SIGTERM, _stopped)
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]  # PGOPTIONS, PGSERVICE...: of somebody's other server
    task = Task.read(folder / TASK)
    try:
        if task.engine == SQLITE:
            answer = within_memory(task, lambda within: sqlite_steps.do(task, folder, within))
        else:
            server = server_of(task, folder)
            answer = within_memory(task, lambda within: _on(server, task, within))
    except (OltpError, ResultError, BackendError) as error:
        print(f"tpcc: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"tpcc: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    (folder / RESULT).write_text(json.dumps(answer.document()), encoding="utf-8")
    return 0


def _on(server: Server, task: Task, within: Path | None) -> Answer:
    server.memory = within
    return ACTIONS[task.do](task, server)


def _stopped(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough
    raise SystemExit(128 + number)


def server_of(task: Task, folder: Path) -> Server:
    """The server on the run's data directory, not yet started."""
    account = accounts.choose()
    accounts.set_apart(Path(task.path), folder)
    folder.chmod(0o711)
    run, bound = folder / RUN, folder / BOUND
    for made, mode in ((run, 0o700), (bound, 0o700)):
        made.mkdir()
        accounts.own(made, account, mode)
    files = folder / FILES
    files.mkdir()
    files.chmod(0o711)
    bar = accounts.barrier(run, account)
    if bar is not None:
        raise OltpError(
            f"{bar} keeps the user {account.name}, who runs PostgreSQL, from its socket's folder: "
            "set TMPDIR to a folder that others may enter, such as /tmp"
        )
    data = Path(task.path) / DATA
    if task.do == "load":
        if data.exists():
            raise OltpError(f"{data} exists already: a database is made only in a new directory")
        data.mkdir(0o700)
        accounts.own(data, account, 0o700)
    if pids := of_directory(data):
        raise OltpError(f"{data} is in use by another server, pid {pids[0]}")
    reached = accounts.reachable(data, bound, account)
    return Server(Programs(Path(task.programs)), reached, run, files, account, task.settings)


def load(task: Task, server: Server) -> Loaded:
    """Make the database."""
    began = time.monotonic()
    server.make()
    made = time.monotonic()
    try:
        server.start()
        seconds = tpcc_rows.load(server, Rows(task.warehouses, int(task.seed)))
        size = server.sql("SELECT pg_database_size(current_database());")[0][0]
        server.stop()
    except OltpError as error:
        raise _with_full_disk(error, server) from error
    finally:
        server.kill()
    return Loaded(
        account=server.account.name,
        database_bytes=int(size),
        seconds={"initdb": made - began, **seconds, "all": time.monotonic() - began},
    )


def check(task: Task, server: Server) -> Checked:
    """Ask whether the consistency conditions hold."""
    del task
    try:
        started = server.start()
        violations = answers.violations(server)
        server.stop()
    finally:
        server.kill()
    return Checked.of(violations, started)


def run(task: Task, server: Server) -> Worked:
    """Let the users work; what they did after the warm-up."""
    users = Users(
        task.users,
        task.warehouses,
        task.warm_up + task.seconds,
        int(task.seed) % (1 << 31),
        task.max_tries,
        task.rate,
    )
    try:
        server.start()
        users.write_scripts(server)
        before = _facts(server)
        began = time.time()
        code, output = _work(users, server)
        print(output)
        if server.ended(CRASH_SECONDS if code else 0.0):
            raise _after_crash(server)
        if code:
            raise _with_full_disk(clients.problem(code, output), server)
        after = _facts(server)
        server.stop()
    finally:
        server.kill()
    window = (began + task.warm_up, began + task.warm_up + task.seconds)
    names = tuple(clients.SCRIPTS)
    counted = logs.count(clients.logs(server.run), names, task.users, window, bool(task.rate))
    wal, size = ((int(before[name]), int(after[name])) for name in ("wal", "size"))
    return counted.answer(began, server.account.name, _settings(after), size, wal[1] - wal[0])


def _work(users: Users, server: Server) -> tuple[int, str]:
    """pgbench to its end: its status and what it said."""
    process = users.start(server)
    try:
        output, _ = process.communicate()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return process.returncode, output


_FACTS = """
    SELECT 'wal', pg_current_wal_lsn() - '0/0';
    SELECT 'size', pg_database_size(current_database());
    SELECT 'setting ' || name, current_setting(name) FROM pg_settings
    WHERE source NOT IN ('default', 'client') OR name IN ('block_size', 'wal_block_size',
        'server_version', 'shared_buffers', 'fsync', 'full_page_writes', 'synchronous_commit',
        'wal_sync_method', 'data_checksums', 'max_wal_size', 'checkpoint_timeout',
        'default_transaction_isolation');
"""
_PLACES = ("directory", "directories", "file")  # settings that name paths of this run


def _facts(server: Server) -> dict[str, str]:
    return {row[0]: row[1] if len(row) > 1 else "" for row in server.sql(_FACTS)}


def _settings(facts: dict[str, str]) -> dict[str, str]:
    named = {
        name.removeprefix("setting "): value
        for name, value in facts.items()
        if name.startswith("setting ")
    }
    return {name: value for name, value in named.items() if not name.endswith(_PLACES)}


def _after_crash(server: Server) -> OltpError:
    """What a server left that somebody killed: does it recover, and is the data consistent?"""
    how = server.died()
    full = f" ({reason_of(server.log)})" if is_full(server.log) else ""
    if left := server.wait_for_its_processes():
        return OltpError(f"{how}{full}; its processes {left} did not end: they hang")
    try:
        seconds = server.start()
        violations = answers.violations(server)
        server.stop()
    except OltpError as error:
        server.forget()
        return OltpError(f"{how}{full}; it does not recover: {error}")
    state = answers.sentence(violations) or "the consistency conditions hold"
    return OltpError(f"{how}{full}; started again it recovered in {seconds:.1f} s, and {state}")


def _with_full_disk(error: OltpError, server: Server) -> OltpError:
    """The same error, with the server's reason if that is a full disk: clients may not see it."""
    if is_full(str(error)) or not is_full(server.log):
        return error
    return OltpError(f"{error}; {reason_of(server.log)}")


ACTIONS: dict[str, Callable[[Task, Server], Answer]] = {
    "load": load,
    "run": run,
    "check": check,
}


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except subprocess.SubprocessError as error:
        sys.exit(f"tpcc: {error}")
