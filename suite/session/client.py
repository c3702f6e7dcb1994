"""A session as the conductor sees it: start, ask, and end whatever happens.

The conductor sleeps on the session's channel, on the launcher's end and on its own wake-up
pipe (signals).  A session that died or passed a deadline is ended: SIGTERM to the launcher
first, then SIGKILL to the launcher and to those ranks of this kernel that are still the
processes that reported themselves (pid and start time).

Listeners of MPI launchers and ranks without a network of their own are kept to this machine.
PRRTE and Open MPI's TCP transport bind to every address whatever their parameters say (they
only choose what is told to others; PRRTE 3 does not start with `prte_if_include lo`).  So the
sockets themselves are told, by SO_BINDTODEVICE, to take what comes over `lo`: also what is
sent to this machine's own addresses comes that way.  A process may do that to its descendants
(pidfd_getfd, Linux 5.6; without root SO_BINDTODEVICE from 5.7); elsewhere they stay as they were.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import json
import math
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psutil

from fsmatrix.backends.system import workfolder
from fsmatrix.backends.system.workfolder import remove_tree
from fsmatrix.results.evidence.evidence import Rank
from fsmatrix.results.evidence.stored import Json, Stored, StoredError
from fsmatrix.results.process import Process, boot_id
from fsmatrix.results.record import Geometry
from fsmatrix.suite.launchers.launcher import Launcher
from fsmatrix.suite.session import wire
from fsmatrix.suite.session.messages import Answer, Answers, Call, Command, Hello, Quit, in_rows
from fsmatrix.suite.session.orphaned_sessions import Scratch, end_session, session_folder
from fsmatrix.suite.session.programs import Interrupted, StopFlag, clean_environment
from fsmatrix.suite.session.wire import ERROR_MARK, Arrays, ChannelClosed, Progress

_PIDFD_GETFD = 438  # the same number on every architecture
_LISTENS = "0A"  # /proc/net/tcp: state TCP_LISTEN
STARTING = 2.0  # seconds without a new socket after which an MPI program has opened them all

# Why a session could not go on: its errors, and what its end tells.


ROOM = 8 << 20  # bytes that the folders and shared memory of a session may want in TMPDIR


def keep_local(pid: int, done: set[str] | None = None) -> list[str]:
    """Bind what a process and all below it listen on to `lo`; what could not be, in words.

    `done`: inodes of sockets that are bound already; those of new ones are added.
    """
    failed = []
    checked = set() if done is None else done
    for process in _family(pid):
        try:
            wide = {inode: address for inode, address in _wide(process) if inode not in checked}
            for descriptor, inode in _sockets(process, wide):
                checked.add(inode)
                try:
                    _bind(process, descriptor)
                except OSError as error:
                    failed.append(f"pid {process} listens on {wide[inode]}: {error.strerror}")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended, or belongs to somebody else
    return failed


class WhileStarting:
    """Asked again and again while a program runs: keeps it local, and says whether to end it.

    It stops looking STARTING seconds after the last new socket, and never before the first one:
    on a busy machine a launcher takes its time.
    """

    def __init__(self, ends: Callable[[], bool], pids: Callable[[], Iterable[int]]) -> None:
        self._ends, self._pids = ends, pids
        self._bound: set[str] = set()
        self._until = math.inf

    def __call__(self) -> bool:
        if time.monotonic() < self._until:
            before = len(self._bound)
            for pid in self._pids():
                keep_local(pid, self._bound)
            if len(self._bound) > before:
                self._until = time.monotonic() + STARTING
        return self._ends()


def _family(pid: int) -> list[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    return []


def _wide(pid: int) -> Iterator[tuple[str, str]]:
    """(inode, address) of listeners on more than loopback, in that process's network."""
    for name in ("tcp", "tcp6"):
        path = Path(f"/proc/{pid}/net/{name}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            words = line.split()
            address = address_of(words[1].partition(":")[0])
            if words[3] == _LISTENS and not address.is_loopback:
                yield words[9], str(address)


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address as /proc/net/tcp writes it: 32-bit words in the machine's byte order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))


def _sockets(pid: int, inodes: Iterable[str]) -> Iterator[tuple[int, str]]:
    """(descriptor, inode) of those sockets that the process has open."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for link in Path(f"/proc/{pid}/fd").iterdir() if wanted else ():
        with contextlib.suppress(FileNotFoundError):
            if (inode := wanted.get(str(link.readlink()))) is not None:
                yield int(link.name), inode


def _bind(pid: int, descriptor: int) -> None:
    handle = os.pidfd_open(pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        copy = libc.syscall(_PIDFD_GETFD, handle, descriptor, 0)
        if copy < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(handle)
    with socket.socket(fileno=copy) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")


class SessionError(Exception):
    """The session cannot go on; `facts` tell what is known (rank, host, signal...)."""

    def __init__(self, message: str, **facts: Json) -> None:
        super().__init__(message)
        self.facts = facts


class NodeError(SessionError):
    """A leader answered that its part failed; the session itself goes on."""


class SessionDied(SessionError):
    """The session's processes ended before they were told to; the text says how."""


class DeadlinePassed(SessionError):
    """It did not answer in time."""


class StorageStalled(SessionError):
    """No operation completes any more, and the storage does not answer or says what is wrong.

    `known`: what it had said before, when operations completed.
    """

    def __init__(self, message: str, known: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.known = tuple(known)


def explain_death(
    printed: str,
    returncode: int | None,
    ranks: Sequence[Rank],
) -> SessionDied:
    """Why a session ended: from a rank's own words, the launcher's, or its exit status."""
    for line in printed.splitlines():
        if line.startswith(ERROR_MARK):
            facts = json.loads(line[len(ERROR_MARK) :])
            which = f"rank {facts['rank']}" if "rank" in facts else "a rank that MPI did not start"
            return SessionDied(f"{which} on {facts['host']} raised {facts['error']}", **facts)
    launcher = _launcher_said(printed, ranks)
    if launcher is not None:
        return launcher
    last = " | ".join(printed.strip().splitlines()[-5:]) or "it printed nothing"
    if returncode is not None and returncode < 0:
        name = _signal_name(-returncode)
        return SessionDied(
            f"the session was ended by signal {-returncode} ({name}): {last}", signal=-returncode
        )
    return SessionDied(f"the session ended with status {returncode}: {last}")


def full_disk(folder: str) -> str:
    """That a folder's disk has no room for an MPI library's files, which it may not say itself."""
    free = shutil.disk_usage(folder).free
    if free >= ROOM:
        return ""
    return f"; {folder} has {free} bytes free (TMPDIR): No space left for MPI's own files"


def _launcher_said(printed: str, ranks: Sequence[Rank]) -> SessionDied | None:
    """The rank that a launcher names, with its end; None if it names none.

    A rank whose neighbour has gone may complain first, with a PID of its own ("Local PID").
    """
    by_pid = {rank.pid: rank for rank in ranks}
    named = [
        match
        for match in re.finditer(r"(?<!Local )\bPID[:= ]+(\d+)", printed)
        if int(match.group(1)) in by_pid
    ]
    if not named:
        return None
    ends = [*(match.start() for match in named[1:]), len(printed)]
    deaths = []
    for match, end in zip(named, ends, strict=True):
        rank = by_pid[int(match.group(1))]
        number = re.search(r"signal (\d+)|EXIT CODE: (\d+)", printed[match.end() : end])
        code = int(next(filter(None, number.groups()))) if number else 0
        how = f"was ended by signal {code} ({_signal_name(code)})" if code else "ended"
        text = f"rank {rank.rank} on {rank.host} (pid {rank.pid}) {how}"
        deaths.append(SessionDied(text, rank=rank.rank, host=rank.host, signal=code))
    return next((death for death in deaths if death.facts["signal"]), deaths[0] if deaths else None)


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return "unknown"


# The processes of a session on this machine: started, what they printed, ended by pid.


TERM_SECONDS = 5.0
KEPT = 65536  # bytes of the end of an output
OUTPUTS = ("stdout", "stderr")


class Launched:
    """The launcher, and those ranks of this kernel that reported themselves."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        network: AbstractContextManager[None],
    ) -> None:
        """Start it in a network.  What it prints is kept in memory: a full disk may be told of."""
        self._printed = {name: os.memfd_create(name, os.MFD_CLOEXEC) for name in OUTPUTS}
        self._ranks: list[Process] = []  # of this kernel
        with network:
            self._process = subprocess.Popen(
                command,
                env=clean_environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=self._printed["stdout"],
                stderr=self._printed["stderr"],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id of the launcher."""
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """Processes of this kernel: the launcher and the ranks."""
        return [self.pid, *(rank.pid for rank in self._ranks)]

    def meet(self, ranks: Iterable[Rank]) -> None:
        """Remember those of a session's ranks that are on this kernel."""
        here = boot_id()
        pids = [rank.pid for rank in ranks if rank.boot_id == here]
        self._ranks = [rank for pid in pids if (rank := Process.of(pid)) is not None]

    def poll(self) -> int | None:
        """The launcher's exit status; None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> bool:
        """Whether the launcher ends within so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def kill(self) -> None:
        """End the launcher, kindly first, and the ranks that are still the same processes."""
        if self.poll() is None:
            self._process.terminate()
            self.wait(TERM_SECONDS)
        for rank in self._ranks:
            with rank.held() as handle, contextlib.suppress(ProcessLookupError):
                if handle is not None:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
        if self.poll() is None:
            self._process.kill()
            self.wait(TERM_SECONDS)  # a call into a file system that hangs ends with that

    def output(self, name: str) -> str:
        """The last 64 KiB of what was printed on "stdout" or "stderr"."""
        descriptor = self._printed[name]
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, KEPT, max(size - KEPT, 0)).decode(errors="replace")

    def close(self) -> None:
        """Forget what was printed."""
        while self._printed:
            os.close(self._printed.popitem()[1])


START_SECONDS = 120.0
END_SECONDS = 10.0
S = TypeVar("S", bound=Stored)


class Session:
    """One MPI world that stays up; use as a context manager."""

    def __init__(
        self,
        launcher: Launcher,
        geometry: Geometry,
        stop: StopFlag,
        start_seconds: float = START_SECONDS,
        scratch: Scratch | None = None,
        in_job: bool = False,
        network: bool = False,
    ) -> None:
        """`in_job`: a batch system tells all processes of its job, this one too, to end.

        `network`: what the ranks do needs this machine's network.
        """
        self._scratch = scratch
        self._folder = session_folder(scratch)
        self.launcher = replace(launcher, scratch=self._folder)
        if scratch is not None:
            memory = str(scratch.folders[1]) if len(scratch.folders) > 1 else ""
            self.launcher = replace(self.launcher, memory=memory, store=scratch.own.store)
        self.geometry = geometry
        self.stop = stop
        self._start_seconds = start_seconds
        self._in_job = in_job
        self._needs_network = network
        self.exposure = ""  # why others can reach the launcher, once it is started
        self.hello = Hello()
        self.words: tuple[str, ...] = ()  # the launcher's own, before the program's
        in_memory = self.launcher.memory or self._folder
        self.progress = Progress(Path(in_memory) / "progress", geometry.processes)
        self._launched: Launched | None = None
        self._channel: socket.socket | None = None
        self.alive = False

    # -- life ------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the world and wait for its hello; SessionError if it does not come up."""
        self.launcher.prepare()
        self.exposure = self.launcher.exposure(self.geometry)
        address = Path(self._folder) / "channel"
        with wire.listener(address) as listener, _this_network() as here:
            argv = [sys.executable, "-P", "-m", "fsmatrix.suite.session", "--channel", str(address)]
            if not self.launcher.needs_mpi:
                argv.append("--solo")
            if self._needs_network and self.is_apart:
                argv += ["--network", here]
            env = self.launcher.environment() | self.launcher.proof
            command = self.launcher.command(argv, self.geometry, env)
            self.words = tuple(map(self._constant, command[: len(command) - len(argv)]))
            try:
                self._launched = Launched(command, env, self.network())
                self.alive = True
                self._accept(listener)
            except BaseException:
                self.kill()
                raise

    def _constant(self, word: str) -> str:
        """A word of the launcher, without what is drawn for each session or store."""
        names = {self.launcher.memory: "$MEMORY", self._folder: "$SCRATCH"}
        names |= {self.launcher.store: "$STORE", Path(self._folder).name: "$SESSION"}
        for drawn, name in names.items():
            word = word.replace(drawn, name) if drawn else word
        return word

    def _accept(self, listener: socket.socket) -> None:
        assert self._launched is not None
        deadline = time.monotonic() + self._start_seconds
        late = f"the session did not start within {self._start_seconds:g} s"
        self._wait(listener, deadline, late)
        self._channel = wire.accepted(listener)
        self.hello, _ = self._receive(Hello, deadline, late)
        asked, got = self.geometry.processes, len(self.hello.ranks)
        if asked != got:
            raise SessionError(
                f"asked for a world of {asked} ranks, MPI made one of {got}: the launcher "
                f"{self.launcher.name!r} ({self.launcher.probe_result.program}) does not belong to "
                f"the MPI library of mpi4py ({self.hello.mpi}){self._cure()}"
            )
        self._launched.meet(self.hello.ranks)
        if self.only_here and not self.is_apart:
            keep_local(self._launched.pid)

    @property
    def is_apart(self) -> bool:
        """Whether what the launcher starts is in a network of its own."""
        return self.launcher.needs_mpi and not self.exposure

    def network(self) -> AbstractContextManager[None]:
        """Where a launcher is started: nobody else is in it, if that is possible."""
        return self.launcher.network() if self.is_apart else contextlib.nullcontext()

    @property
    def only_here(self) -> bool:
        """Whether nobody on another machine must reach the launcher or a rank."""
        here = boot_id()
        alone = all(rank.boot_id == here for rank in self.hello.ranks)
        return alone and self.launcher.stays_here(self.geometry)

    def close(self) -> None:
        """End in good order, or by force, with all that is left; removes the session's folder."""
        if self.alive:
            with contextlib.suppress(SessionError):
                everybody = in_rows([rank.rank for rank in self.hello.ranks])
                self.request(Quit(to=everybody), Answers, END_SECONDS, urgent=True)
                assert self._launched is not None
                self.alive = not self._launched.wait(END_SECONDS)
        if self.alive:
            self.kill()
        self._hang_up()
        if self._scratch is not None:
            end_session(self._scratch)
        workfolder.sweep()  # of ranks that were killed
        if self._launched is not None:
            self._launched.close()
        if self._scratch is not None:
            self._scratch.remove()
        else:
            with contextlib.suppress(OSError):
                remove_tree(Path(self._folder))

    def kill(self) -> None:
        """End the launcher and the ranks, by pid; what they started goes with `close`."""
        self.alive = False
        self._hang_up()
        if self._launched is not None:
            self._launched.kill()

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    # -- talk ------------------------------------------------------------------------------
    @property
    def pids(self) -> list[int]:
        """Processes of this kernel: the launcher and the ranks."""
        return [] if self._launched is None else self._launched.pids

    def request(
        self,
        command: Command,
        kind: type[S],
        seconds: float,
        urgent: bool = False,
        late: str = "",
        look: Callable[[], None] | None = None,
    ) -> tuple[S, Arrays]:
        """Send a command and wait for its answer, which is of that kind; its arrays by name.

        `look` is called again and again meanwhile, and may raise a SessionError.
        DeadlinePassed (`late`: which limit, of what) after `seconds`, SessionDied with the reason
        if the session ended, Interrupted when the user wants to stop at once (not if `urgent`).
        After each of them the session is ended: its late answer would be taken for that of the
        next command.
        """
        if self._channel is None:
            raise SessionDied("the session has ended")
        try:
            wire.send(self._channel, command)
        except ChannelClosed as error:
            raise self._death(urgent) from error
        deadline = time.monotonic() + seconds
        try:
            late = late or f"{type(command).__name__.lower()}: no answer within {seconds:g} s"
            return self._receive(kind, deadline, late, urgent, look)
        except (SessionError, Interrupted):
            self.kill()
            raise

    def call(
        self, command: Call, seconds: float, limit: str = "", urgent: bool = False
    ) -> tuple[Answer, ...]:
        """A backend's node-side method on some kernels; NodeError with what failed.

        `limit` names what `seconds` are the rest of.
        """
        late = f"{command.function}: no answer within {limit or f'{seconds:g} s'}"
        reply, _ = self.request(command, Answers, seconds, urgent, late)
        for answer in reply.answers:
            if answer.error is not None:
                text = f"{command.function} on {answer.host}: {answer.error}"
                raise NodeError(text, host=answer.host)
        return reply.answers

    def _receive(
        self,
        kind: type[S],
        deadline: float,
        late: str,
        urgent: bool = False,
        look: Callable[[], None] | None = None,
    ) -> tuple[S, Arrays]:
        assert self._channel is not None
        self._wait(self._channel, deadline, late, urgent, look)
        self._channel.settimeout(max(deadline - time.monotonic(), 1.0))
        try:
            return wire.unpack(wire.receive(self._channel), kind)
        except TimeoutError as error:
            raise DeadlinePassed(late) from error
        except StoredError as error:
            raise SessionError(f"an answer of the session cannot be used: {error}") from error
        except ChannelClosed as error:
            raise self._death(urgent) from error

    def _wait(
        self,
        sock: socket.socket,
        deadline: float,
        late: str,
        urgent: bool = False,
        look: Callable[[], None] | None = None,
    ) -> None:
        """Until `sock` can be read; sleeps, except for a look at the launcher now and then."""
        assert self._launched is not None
        watched: Sequence[Any] = [sock] if urgent else [sock, self.stop]
        while True:
            if self.stop.at_once and not urgent:
                raise Interrupted
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlinePassed(late)
            ready = select.select(watched, [], [], min(left, 0.5))[0]
            if sock in ready:
                return
            if ready:
                watched = [sock]  # a signal that lets the run end
            if look is not None:
                look()
            if self._launched.poll() is not None and not select.select([sock], [], [], 0.2)[0]:
                raise self._death(urgent)

    # -- what its end tells ------------------------------------------------------------------
    def _death(self, urgent: bool) -> SessionDied | Interrupted:
        """Why the session is gone; Interrupted if everything here is being stopped."""
        assert self._launched is not None
        self._launched.wait(END_SECONDS)
        if not urgent and self.stop.is_coming(self._in_job):
            return Interrupted()
        printed = "".join(map(self._launched.output, OUTPUTS))  # hydra speaks on stdout
        died = explain_death(printed, self._launched.poll(), self.hello.ranks)
        if self.hello.ranks or "rank" in died.facts:
            return died
        why = full_disk(tempfile.gettempdir()) or self._cure("if MPI did not start: ")
        if self.is_apart and not why:
            why = "; if MPI needs the network here: launcher.own_network: false"
        return SessionDied(f"{died}{why}", **died.facts)

    def _cure(self, when: str = "") -> str:
        return f"; {when}{self.launcher.cure}" if self.launcher.cure else ""


@contextlib.contextmanager
def _this_network() -> Iterator[str]:
    """A file that is this thread's network, for other processes of ours."""
    handle = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield f"/proc/{os.getpid()}/fd/{handle}"
    finally:
        os.close(handle)
