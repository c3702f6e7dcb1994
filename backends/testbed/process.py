"""Processes that outlive the one that started them, found again by pid, start and command line."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.identity import carries
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.system import tools
from fsmatrix.results.evidence.stored import Stored, StoredError, read
from fsmatrix.results.process import stat

GONE_WITHIN = 20.0  # seconds that a killed process gets to disappear
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Seen:
    """A process as /proc shows it."""

    pid: int
    start: int  # clock ticks after boot
    state: str  # R, S, D, T (stopped), Z...
    argv: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Recorded(Stored):
    """A process as it was journalled."""

    role: str
    argv: tuple[str, ...]  # how it was started; what it executed then is the end of that
    after: int | None = None  # clock ticks after boot: it started no earlier
    pid: int | None = None
    start: int | None = None  # clock ticks after boot
    store: str | None = None  # that it must carry in its environment


def look(pid: int) -> Seen | None:
    """The process; None if there is none.  State Z: only its exit status is left."""
    seen = stat(pid)
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if seen is None:
        return None
    state, start = seen
    words = tuple(os.fsdecode(word) for word in argv.removesuffix(b"\0").split(b"\0"))
    return Seen(pid, start, state, words)


def spawn(argv: Sequence[str], log: Path, more: Mapping[str, str] | None = None) -> Seen:
    """Start a program in a session of its own, with a bare environment; output goes to `log`.

    `more` joins that environment: what tells whose it is (identity.py), and what it needs.
    ToolError if it is missing.  CEPH_ARGS and CEPH_CONF of the caller do not reach it.
    """
    program = tools.find(argv[0])
    if program is None:
        raise ToolError(tools.lacking(argv[0]))
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    environment = {"PATH": _PATH, "LC_ALL": "C", **(more or {})}
    pid = os.posix_spawn(
        program,
        list(argv),
        environment,
        file_actions=actions,
        setsid=True,
        setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ],
    )
    seen = look(pid)
    return seen or Seen(pid, 0, "Z", tuple(argv))


def proven(entry: Entry) -> Recorded:
    """Of a journal's entry; BackendError if that tells of no process."""
    try:
        recorded = read(Recorded, entry.facts, f"{entry.journal}: entry {entry.id}: facts")
    except StoredError as error:
        raise BackendError(str(error)) from error
    return replace(recorded, store=entry.store)


def pid_of(entry: Entry) -> int:
    """That of a daemon which was started; BackendError if a crash came before it was known."""
    if (pid := proven(entry).pid) is None:
        raise BackendError(f"{entry.journal}: entry {entry.id}: facts.pid is missing")
    return pid


def ours(recorded: Recorded) -> Seen | None:
    """The process, if it still runs and carries the `store`."""
    seen = _running(recorded)
    if seen is None or recorded.store is None or seen.argv == ("",):  # its memory is gone already
        return seen
    return seen if carries(seen.pid, recorded.store) else None


def _running(recorded: Recorded) -> Seen | None:
    """The process of that pid, start and command line, if it still runs.

    One without a pid comes from a crash just after the start: then it is looked for by its whole
    command line, which holds the bed's own directory.
    """
    argv = recorded.argv
    if recorded.pid is not None:
        seen = look(recorded.pid)
        if seen is None or seen.start != recorded.start:
            return None
        if seen.state in "ZX":
            with contextlib.suppress(ChildProcessError):  # if it is our own child, reap it
                os.waitpid(seen.pid, os.WNOHANG)
            return None
        exiting = seen.argv == ("",)  # its memory is gone already, it is not
        return seen if exiting or _tail(seen.argv, argv) else None
    after = float("inf") if recorded.after is None else recorded.after
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(PermissionError):
            seen = look(int(folder.name))
            if seen and seen.start >= after and _tail(seen.argv, argv):
                return seen
    return None


def _tail(argv: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    """Whether `argv` is the end of `whole`, at least from the program itself on."""
    return len(argv) > 1 and whole[-len(argv) :] == argv


def send(recorded: Recorded, number: signal.Signals) -> bool:
    """Signal a recorded process; False if it is gone."""
    handle = _signalled(recorded, number)
    if handle is None:
        return False
    os.close(handle)
    return True


def _signalled(recorded: Recorded, number: signal.Signals) -> int | None:
    """Signal it and return a handle of it (pidfd); None if it is gone.

    The handle is opened, then the process looked at again: safe against a pid used again.
    """
    seen = ours(recorded)
    if seen is None:
        return None
    handle = None
    try:
        handle = os.pidfd_open(seen.pid)
        if ours(replace(recorded, pid=seen.pid, start=seen.start)) is not None:
            signal.pidfd_send_signal(handle, number)
            return handle
    except ProcessLookupError:
        pass  # it ended in between
    if handle is not None:
        os.close(handle)
    return None


def end(processes: Iterable[Recorded]) -> tuple[list[str], list[str]]:
    """Kill recorded processes and wait until they are gone, with all of their threads.

    Returns their roles: (killed, still there after GONE_WITHIN seconds).
    """
    waiting: dict[int, Recorded] = {}
    for recorded in processes:
        handle = _signalled(recorded, signal.SIGKILL)
        if handle is not None:
            waiting[handle] = recorded
    killed, deadline = [], time.monotonic() + GONE_WITHIN
    try:
        while waiting and (left := deadline - time.monotonic()) > 0:
            for handle in select.select(list(waiting), [], [], left)[0]:
                gone = waiting.pop(handle)
                os.close(handle)
                killed.append(gone.role)
                ours(gone)  # reaps it if it is our own child
    finally:
        for handle in waiting:
            os.close(handle)
    return killed, [recorded.role for recorded in waiting.values()]


def clock_ticks() -> int:
    """Clock ticks since boot: what a process that starts now has as its start."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return int(uptime * os.sysconf("SC_CLK_TCK"))
