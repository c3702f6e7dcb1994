"""Programs that a step starts: full CPU set, an environment without MPI, a deadline, their end.

subprocess starts children by vfork and exec here (no preexec_fn), which is safe in an MPI
process.  A program ends with everything that it has started, however it ends, and when the process
that started it is killed (setpriv, where the system has it).

Processes that outlive the program that started them are adopted, found again, and ended.  Who
starts a program is its subreaper as long as it runs (prctl(2), PR_SET_CHILD_SUBREAPER): what
the program leaves becomes a child of ours, whatever session or group it is in, instead of init's.
A mark in the environment, drawn for each program, tells it from our other children.  What such a
process has started is of the program too, also where it shows no environment (PostgreSQL's
processes overwrite theirs with their titles).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.libc import libc
from fsmatrix.backends.system.workfolder import work_folder
from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.process import environment

if TYPE_CHECKING:
    import psutil

PROGRAM = "FSMATRIX_PROGRAM"  # in the environment of a program: the mark
PATIENCE = 5.0  # seconds in which killed processes disappear
ORPHANS_GRACE = (
    2.0  # seconds for what a program left to end by itself, as the daemons of a launcher do
)
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_PR_GET_CHILD_SUBREAPER = 37

# How a session is asked to stop: signals of the user and of the batch system.


AT_ONCE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_SECONDS = 2.0  # between the first and the last process of a job that hears of its end


def new_mark() -> str:
    """For the environment of one program."""
    return secrets.token_hex(8)


class _Adopting:
    """How many threads adopt: the first one turns it on, and the last one puts it back."""

    def __init__(self) -> None:
        self._lock, self._threads, self._before = threading.Lock(), 0, ctypes.c_int()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Orphans below this process become its children meanwhile, not init's."""
        with self._lock:
            if not self._threads:
                libc().prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(self._before), 0, 0, 0)
                libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            self._threads += 1
        try:
            yield
        finally:
            with self._lock:
                self._threads -= 1
                if not self._threads:
                    libc().prctl(_PR_SET_CHILD_SUBREAPER, self._before.value, 0, 0, 0)


adopting = _Adopting()


def end(mark: str, grace: float = 0.0) -> list[int]:
    """Kill what a program that has ended left to this process; the pids that cannot be killed.

    `grace`: seconds in which they may end by themselves: a launcher's daemon that is killed while
    it cleans up leaves what the next one of that node stumbles over.  What a killed one leaves is
    adopted in its turn, so it is looked until there is nothing.
    """
    left: list[psutil.Process] = []
    if grace and (left := _adopted(mark)):
        _gone(left, time.monotonic() + grace)
    deadline = time.monotonic() + PATIENCE
    while left := [*dict.fromkeys((*_adopted(mark), *filter(_runs, left)))]:
        for process in left:
            _kill(process)
        _gone(left, deadline)
        if time.monotonic() >= deadline:
            return [process.pid for process in left]
    return []


def _adopted(mark: str) -> list[psutil.Process]:
    """Our children that carry the mark and have not ended, then all below them."""
    if not _has_children():
        return []
    import psutil  # not in every rank: only here

    wanted = f"{PROGRAM}={mark}".encode()
    found = [child for child in psutil.Process().children() if wanted in environment(child.pid)]
    for child in [*found]:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += child.children(recursive=True)
    return found


def _kill(process: psutil.Process) -> None:
    """psutil compares the start time: never another process of that pid."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def _runs(process: psutil.Process) -> bool:
    """Whether it has not ended; what was below a killed one may be known by nothing else."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _has_children() -> bool:
    """One call, where looking at all processes costs a busy node milliseconds."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _gone(processes: list[psutil.Process], deadline: float) -> None:
    """Wait for killed children, and take their exit status."""
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(max(deadline - time.monotonic(), 0.0))


class Interrupted(Exception):
    """The user or the batch system asked to stop."""


class StopFlag:
    """Signals become a number and a byte in a pipe; nothing is raised inside a handler."""

    def __init__(self) -> None:
        self.signal = 0
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopFlag:
        for number in (*AT_ONCE, signal.SIGUSR1):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: object) -> None:
        self.signal = number
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"!")

    def fileno(self) -> int:
        """For select."""
        return self._read

    @property
    def at_once(self) -> bool:
        """SIGINT, SIGTERM and SIGHUP abandon the current run; SIGUSR1 lets it end."""
        return self.signal in AT_ONCE

    def is_coming(self, in_job: bool) -> bool:
        """Whether this is being stopped, or is about to hear so.

        `in_job`: a batch system tells all processes of its job to end, this one perhaps last.
        """
        if in_job and not self.at_once:
            select.select([self], [], [], STOP_SECONDS)
        return self.at_once


GRACE = 3.0
LOOK = 0.2  # seconds between two questions to `stop`
DRAIN = 1.0  # seconds to wait for output that a program's children hold open after its end
KEPT = 16 << 20  # bytes kept of the beginning, and as many of the end, of one output
_RUNNING: dict[subprocess.Popen[bytes], str] = {}  # started and not waited for: their marks
# What MPI libraries and process managers put into the environment of their ranks.
MPI_PREFIXES = (
    "OMPI_",
    "PMIX_",
    "PMI_",
    "PMI2_",
    "PRTE_",
    "OPAL_",
    "ORTE_",
    "HYDRA_",
    "HYDI_",
    "MPIR_",
    "MPI_LOCAL",
    "I_MPI_HYDRA",
    "MPIEXEC_",
    "PALS_",
    "MPI4PY_",
)


@dataclass(frozen=True)
class Finished(Stored):
    """How a program ended, and what it told."""

    returncode: int  # negative: ended by that signal
    stdout: str
    stderr: str
    began: float  # Unix time
    ended: float
    timed_out: bool = False
    dropped: int = 0  # bytes of output that were too many to keep
    files: Mapping[str, str] = field(default_factory=dict)  # collected ones
    argv: tuple[str, ...] = ()  # as started


class Pipe:
    """One output of a program as it comes: its beginning and its end, bounded."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self.dropped = 0

    def fileno(self) -> int:
        """For select."""
        return self._stream.fileno()

    def read(self) -> bool:
        """Take what is there; False at its end."""
        data = os.read(self.fileno(), 1 << 16)
        room = KEPT - len(self._head)
        self._head += data[:room]
        if len(data) > room:
            self._tail.append(data[room:])
            self._in_tail += len(self._tail[-1])
            while self._in_tail - len(self._tail[0]) >= KEPT:
                gone = len(self._tail.popleft())
                self._in_tail -= gone
                self.dropped += gone
        return bool(data)

    @property
    def text(self) -> str:
        """All of it; a line says so where a part is missing."""
        gap = f"\n[{self.dropped} bytes left out here]\n".encode() if self.dropped else b""
        return (bytes(self._head) + gap + b"".join(self._tail)).decode(errors="replace")


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what MPI put there, plus `extra`; PATH as tools has it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(MPI_PREFIXES)}
    return kept | {"PATH": tools.path()} | dict(extra or {})


def run(
    argv: Sequence[str],
    cwd: str,
    timeout: float,
    env: Mapping[str, str] | None = None,
    stop: Callable[[], bool] | None = None,
    files: Mapping[str, str] | None = None,
    collect: Sequence[str] = (),
    network: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> Finished:
    """Run a program to its end or its deadline (SIGTERM, then SIGKILL, to its group).

    `stop` is asked now and then; when it says so the program is ended in the same way.
    Its messages are in English, its numbers with a decimal point.  `{scratch}` in `argv` and
    `files` is a folder of its own: `files` are in it when the program starts, and the text of
    what matches `collect` afterwards comes with the answer, bounded as the output is.
    `network` is the one in which it is started.
    """
    if not any("{scratch}" in word for word in argv):
        return replace(_run(argv, cwd, timeout, env, stop, network), argv=tuple(argv))
    with work_folder() as folder:
        words = [word.replace("{scratch}", str(folder)) for word in argv]
        for name, text in (files or {}).items():
            (folder / name).write_text(text.replace("{scratch}", str(folder)), encoding="utf-8")
        done = _run(words, cwd, timeout, env, stop, network)
        return replace(_collected(done, folder, collect), argv=tuple(words))


def _collected(done: Finished, folder: Path, patterns: Sequence[str]) -> Finished:
    texts: dict[str, str] = {}
    dropped = done.dropped
    for path in sorted({path for pattern in patterns for path in folder.glob(pattern)}):
        with path.open("rb") as stream:
            texts[path.name] = stream.read(2 * KEPT).decode(errors="replace")
        dropped += max(path.stat().st_size - 2 * KEPT, 0)
    return replace(done, files=texts, dropped=dropped)


@adopting()
def _run(
    argv: Sequence[str],
    cwd: str,
    timeout: float,
    env: Mapping[str, str] | None,
    stop: Callable[[], bool] | None,
    network: Callable[[], AbstractContextManager[None]],
) -> Finished:
    began = time.time()
    mark = new_mark()
    own = {"LC_ALL": "C", **(env or {}), PROGRAM: mark}
    try:
        process = _started(dying_with_us(argv), cwd, clean_environment(own), network())
    except ToolError as error:
        return Finished(127, "", str(error), began, time.time())
    except OSError as error:
        reason = _why_not_started(argv[0], error)
        return Finished(127, "", f"{argv[0]}: {reason}", began, time.time())
    _RUNNING[process] = mark
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr, _watched(process) as ended:
        pipes = [Pipe(process.stdout), Pipe(process.stderr)]
        limit = time.monotonic() + timeout
        in_time = _follow(ended, pipes, limit, stop or (lambda: False))
        timed_out = not in_time and time.monotonic() >= limit
        if not in_time:
            end_group(process, ended, pipes)
        moment = time.time()
        returncode = process.wait()
        end(mark, ORPHANS_GRACE if in_time else 0.0)
        del _RUNNING[process]
        _drain(pipes)
    out, err = (pipe.text for pipe in pipes)
    dropped = sum(pipe.dropped for pipe in pipes)
    return Finished(returncode, out, err, began, moment, timed_out, dropped)


def _started(
    words: Sequence[str],
    cwd: str,
    environment: Mapping[str, str],
    network: AbstractContextManager[None],
) -> subprocess.Popen[bytes]:
    with network:
        return subprocess.Popen(
            words,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )


def _why_not_started(program: str, error: OSError) -> str:
    """The kernel's reason.

    A folder of PATH that may not be entered makes a missing program a forbidden one.
    """
    folders = [] if os.sep in program else os.get_exec_path()
    seen = any(os.path.lexists(Path(folder, program)) for folder in folders)
    return os.strerror(errno.ENOENT) if folders and not seen else str(error.strerror)


def end_group(process: subprocess.Popen[bytes], ended: int, pipes: Sequence[Pipe]) -> None:
    """End a program that we started as a group leader, kindly first, with its group.

    A stopped one does not hear the first signal.  Workers in sessions of their own (fio) are
    ended by who waits for the program (`adopting`).
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        if _follow(ended, pipes, time.monotonic() + GRACE, lambda: False):
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # children that outlived their leader


def running() -> list[int]:
    """Pids of the programs that this process has started and that have not ended."""
    return [process.pid for process in _RUNNING]


def moved() -> int:
    """Bytes and calls of reading and writing so far, of the programs that this process runs.

    As the kernel counts them (proc(5), /proc/PID/io), of processes that have started no others:
    a launcher, or fio's first process, moves bytes of its own.  What a library does without the
    kernel's files (DFS, libcephfs, RADOS), and metadata operations, are not in it.
    """
    return sum(_moved_by(pid) for program in running() for pid in _last_of(program))


def _last_of(pid: int) -> Iterator[int]:
    """A process and all below it, without those that have children."""
    children: list[str] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += path.read_text(encoding="ascii").split()
    if not children:
        yield pid
    for child in children:
        yield from _last_of(int(child))


def _moved_by(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:  # it has ended, or is another user's
        return 0
    return sum(int(line.partition(":")[2]) for line in lines)


def end_running() -> None:
    """End the program that runs now with all below it, at once: this process is ending."""
    for process, mark in list(_RUNNING.items()):
        with contextlib.suppress(ProcessLookupError):
            process.kill()  # it starts nothing more
        with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the kernel
            process.wait(GRACE)
        end(mark)


def given(environment: Mapping[str, str], argv: Sequence[str]) -> list[str]:
    """The words of a program that alone gets `environment`: nothing that starts it does.

    A library that is preloaded may fail in another program: setpriv's own libraries open files
    before it is ready to take that over.
    """
    words = [f"{name}={value}" for name, value in environment.items()]
    return [*(("env", *words) if words else ()), *argv]


def dying_with_us(argv: Sequence[str]) -> list[str]:
    """The words of a program, with those before them that end it when its starter is gone.

    ToolError if root does not run it.
    """
    if found := tools.find(argv[0]):
        return [*_until_we_die(), found, *argv[1:]]
    if reason := tools.refusal(argv[0]):
        raise ToolError(reason)
    return [*argv]  # Popen says why there is none


@cache
def _until_we_die() -> tuple[str, ...]:
    """Words before an argv that end the program when its starter is gone."""
    setpriv = tools.find("setpriv")
    if setpriv is None:
        return ()
    words = (setpriv, "--pdeathsig", "TERM")
    try:
        tools.run([*words, "true"])
    except ToolError:
        return ()
    return words


@contextlib.contextmanager
def _watched(process: subprocess.Popen[bytes]) -> Iterator[int]:
    """A descriptor that can be read once the program has ended."""
    ended = os.pidfd_open(process.pid)
    try:
        yield ended
    finally:
        os.close(ended)


def _follow(ended: int, pipes: Sequence[Pipe], limit: float, stop: Callable[[], bool]) -> bool:
    """Read the pipes until the program ends; False if the limit or `stop` came first."""
    reading = list(pipes)
    while (left := limit - time.monotonic()) > 0 and not stop():
        watched: list[int | Pipe] = [ended, *reading]
        ready = select.select(watched, [], [], min(left, LOOK))[0]
        for pipe in ready:
            if isinstance(pipe, Pipe) and not pipe.read():
                reading.remove(pipe)
        if ended in ready:
            return True
    return False


def _drain(pipes: Sequence[Pipe]) -> None:
    """What is left in the pipes; not waiting long for children that hold them open."""
    limit = time.monotonic() + DRAIN
    reading = list(pipes)
    while reading and (left := limit - time.monotonic()) > 0:
        for pipe in select.select(reading, [], [], left)[0]:
            if not pipe.read():
                reading.remove(pipe)
