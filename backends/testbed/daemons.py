"""Daemons of a bed: started, found again by pid, start and command line, and ended.

They outlive the process that started them, and each is journalled before it is started.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.journal.proof import carries
from fsmatrix.backends.system import tools
from fsmatrix.backends.testbed.home import Home, Steps
from fsmatrix.results.evidence.stored import (
    JsonObject,
    Stored,
    StoredError,
    inside,
    read,
    text,
    texts,
)
from fsmatrix.results.process import stat

GONE_WITHIN = 20.0  # seconds that a killed process gets to disappear
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_WITHIN = 60.0  # seconds; a bound for a machine under load, not a measure
POLL = 0.01  # seconds
_TAIL = 1500  # bytes of a daemon's last words in an error


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

    `more` joins that environment: what tells whose it is (proof.py), and what it needs.
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


def end_process(processes: Iterable[Recorded]) -> tuple[list[str], list[str]]:
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


@dataclass(frozen=True)
class Launch:
    """How a daemon is started, so that it can be started again."""

    role: str  # "osd.0"
    argv: tuple[str, ...]
    cgroup: str = ""
    namespace: str = ""  # of the network, by its name
    host: str = ""  # its own name of this machine, which no one else sees
    private: str = ""  # what a shell does first, in mount and IPC namespaces of its own
    environment: Mapping[str, str] = field(default_factory=dict)  # beside the bare one

    @classmethod
    def of(cls, recorded: JsonObject) -> Launch:
        """As `start` has journalled it."""
        names = ("cgroup", "namespace", "host", "private")
        environment = inside(recorded, "environment")
        return cls(
            text(recorded, "role"),
            texts(recorded, "argv"),
            **{name: text(recorded, name) for name in names if name in recorded},
            environment={name: text(environment, name) for name in environment},
        )

    @property
    def command(self) -> list[str]:
        """The command line that first enters cgroup and namespaces; the pid stays the same."""
        argv = list(self.argv)
        if self.host:
            # what others unmount later is unmounted here too
            of_mounts = ["--mount", "--propagation", "slave", "--ipc"]
            apart = ["--uts", *(of_mounts if self.private else [])]
            first = f"{self.private} && " if self.private else ""
            script = f'{first}hostname "$0" && exec "$@"'
            argv = ["unshare", *apart, "sh", "-c", script, self.host, *argv]
        if self.namespace:
            argv = ["nsenter", f"--net=/run/netns/{self.namespace}", "--", *argv]
        if self.cgroup:
            script = 'echo $$ > "$0" && exec "$@"'
            argv = ["sh", "-c", script, f"{self.cgroup}/cgroup.procs", *argv]
        return argv


@dataclass(frozen=True, kw_only=True)
class Daemon(Stored):
    """A daemon as a status tells of it."""

    role: str
    pid: int | None
    state: str  # running, stopped (SIGSTOP), gone


def start(home: Home, launch: Launch) -> Entry:
    """Start it; the journal's entry has its pid, start time and command line."""
    argv = launch.command
    entry = home.journal.begin(
        "process",
        role=launch.role,
        argv=argv,
        after=clock_ticks(),
        launch=vars(launch) | {"argv": list(launch.argv)},
    )
    environment = {**launch.environment, **home.journal.identity.environment}
    seen = spawn(argv, home.log(launch.role), environment)
    return home.journal.confirm(entry, pid=seen.pid, start=seen.start)


def finish(home: Home, running: list[Entry], steps: Steps, each: Callable[[Entry], None]) -> None:
    """Wait for programs that end by themselves; `each` is called as they do.

    BackendError with its last words if one does not end within START_WITHIN.
    """
    deadline = time.monotonic() + START_WITHIN
    waiting = list(running)
    while waiting:
        still = [entry for entry in waiting if ours(proven(entry)) is not None]
        for entry in waiting:
            if entry not in still:
                home.journal.end(entry)
                each(entry)
        waiting = still
        if waiting and time.monotonic() >= deadline:
            words = last_words(home, waiting[0])
            raise BackendError(f"{waiting[0].facts['role']} did not end: {words}")
        if waiting:
            with steps.waiting():
                time.sleep(POLL)


def last_words(home: Home, entry: Entry) -> str:
    """The end of what a daemon printed and logged."""
    role = str(entry.facts["role"])
    words = []
    for path in (home.log(role), home.folder / "log" / f"{role.removesuffix('-mkfs')}.log"):
        if path.exists():
            words.append(path.read_bytes()[-_TAIL:].decode(errors="replace").strip())
    return " | ".join(word for word in words if word) or "it said nothing"


def check(home: Home, entries: list[Entry]) -> None:
    """BackendError with its last words if a daemon is gone."""
    for entry in entries:
        if ours(proven(entry)) is None:
            raise BackendError(f"{entry.facts['role']} ended: {last_words(home, entry)}")


def wait_for_port(home: Home, entry: Entry, address: str, port: int, steps: Steps) -> None:
    """Until the daemon accepts connections; BackendError if it ends or START_WITHIN passes."""
    deadline = time.monotonic() + START_WITHIN
    while True:
        with socket.socket() as attempt:
            attempt.settimeout(1.0)
            if attempt.connect_ex((address, port)) == 0:
                return
        check(home, [entry])
        if time.monotonic() >= deadline:
            raise BackendError(f"{entry.facts['role']} does not listen on {address}:{port}")
        with steps.waiting():
            time.sleep(POLL)


def entry_of(home: Home, role: str) -> Entry:
    """The journal's entry of a daemon; BackendError if the bed has none of that name."""
    for entry in home.journal.pending("process"):
        if entry.facts["role"] == role:
            return entry
    raise BackendError(f"{home.folder}: this test bed has no {role}")


def signal_daemon(home: Home, role: str, number: signal.Signals) -> None:
    """Send a signal to a daemon; BackendError if it does not run."""
    if not send(proven(entry_of(home, role)), number):
        raise BackendError(f"{home.folder}: {role} does not run")


def stop(home: Home, role: str) -> None:
    """SIGSTOP, and wait until it stands still."""
    signal_daemon(home, role, signal.SIGSTOP)
    deadline = time.monotonic() + START_WITHIN
    while (seen := ours(proven(entry_of(home, role)))) is not None and seen.state not in "Tt":
        if time.monotonic() >= deadline:
            raise BackendError(f"{home.folder}: {role} does not stop")
        time.sleep(POLL)


def kill(home: Home, role: str) -> None:
    """SIGKILL, and wait until it is gone.  Its entry stays: it can be started again."""
    _, stuck = end_process([proven(entry_of(home, role))])
    if stuck:
        raise BackendError(f"{role} cannot be killed")


def restart(home: Home, role: str) -> Entry:
    """Start a daemon again as it was started; one that still runs is killed first."""
    kill(home, role)
    old = entry_of(home, role)
    entry = start(home, Launch.of(inside(old.facts, "launch")))
    home.journal.end(old)
    return entry


def states(home: Home) -> list[Daemon]:
    """Each daemon, by role."""
    daemons = []
    for entry in home.journal.pending("process"):
        recorded = proven(entry)
        seen = ours(recorded)
        state = "gone" if seen is None else "stopped" if seen.state in "Tt" else "running"
        daemons.append(Daemon(role=recorded.role, pid=recorded.pid, state=state))
    return sorted(daemons, key=lambda daemon: daemon.role)
