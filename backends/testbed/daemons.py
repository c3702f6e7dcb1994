"""Start, find and end the daemons of a bed; each is journalled before it is started."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.testbed import process
from fsmatrix.backends.testbed.home import Home, Steps
from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.evidence.values import JsonObject, inside, text, texts

START_WITHIN = 60.0  # seconds; a bound for a machine under load, not a measure
POLL = 0.01  # seconds
_TAIL = 1500  # bytes of a daemon's last words in an error


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
        after=process.clock_ticks(),
        launch=vars(launch) | {"argv": list(launch.argv)},
    )
    environment = {**launch.environment, **home.journal.identity.environment}
    seen = process.spawn(argv, home.log(launch.role), environment)
    return home.journal.confirm(entry, pid=seen.pid, start=seen.start)


def finish(home: Home, running: list[Entry], steps: Steps, each: Callable[[Entry], None]) -> None:
    """Wait for programs that end by themselves; `each` is called as they do.

    BackendError with its last words if one does not end within START_WITHIN.
    """
    deadline = time.monotonic() + START_WITHIN
    waiting = list(running)
    while waiting:
        still = [entry for entry in waiting if process.ours(process.proven(entry)) is not None]
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
        if process.ours(process.proven(entry)) is None:
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
    if not process.send(process.proven(entry_of(home, role)), number):
        raise BackendError(f"{home.folder}: {role} does not run")


def stop(home: Home, role: str) -> None:
    """SIGSTOP, and wait until it stands still."""
    signal_daemon(home, role, signal.SIGSTOP)
    deadline = time.monotonic() + START_WITHIN
    while (
        seen := process.ours(process.proven(entry_of(home, role)))
    ) is not None and seen.state not in "Tt":
        if time.monotonic() >= deadline:
            raise BackendError(f"{home.folder}: {role} does not stop")
        time.sleep(POLL)


def kill(home: Home, role: str) -> None:
    """SIGKILL, and wait until it is gone.  Its entry stays: it can be started again."""
    _, stuck = process.end([process.proven(entry_of(home, role))])
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
        recorded = process.proven(entry)
        seen = process.ours(recorded)
        state = "gone" if seen is None else "stopped" if seen.state in "Tt" else "running"
        daemons.append(Daemon(role=recorded.role, pid=recorded.pid, state=state))
    return sorted(daemons, key=lambda daemon: daemon.role)
