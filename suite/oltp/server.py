"""A PostgreSQL server of our own: made, started, ended by the process that started it.

It listens on a Unix socket in a folder of its user alone (0700), and nowhere else.  It gets
SIGQUIT, an immediate shutdown, when this process dies: then it ends all of its processes itself.
Dynamic shared memory lies in the data directory and ends with it; what a killed server leaves of
System V memory (56 bytes, by which servers see each other) the next start on the same directory
removes, or `forget` if nobody starts it again.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsmatrix.backends.system import tools
from fsmatrix.backends.system.cgroups import entering
from fsmatrix.results.files import safefile
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.suite.oltp import account as accounts
from fsmatrix.suite.oltp.account import Account, OltpError, reason_of

DATABASE = "tpcc"
LOG = "server.log"
START_SECONDS = 300.0  # recovery included
STOP_SECONDS = 600.0  # the checkpoint of a shutdown
LOOK = 0.02
NOTE_LONGEST = 1 << 16  # bytes of postmaster.pid
SOCKET_LONGEST = 107  # bytes of sockaddr_un.sun_path
SOCKET = ".s.PGSQL.5432"
# Never to be set by others: what keeps the server to itself, and what makes its numbers honest.
ALWAYS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "dynamic_shared_memory_type": "mmap",
    "max_parallel_workers_per_gather": "0",
    "fsync": "on",
    "wal_level": "minimal",  # no replica: COPY into a new table is not logged
    "max_wal_senders": "0",
    "logging_collector": "off",
    "log_checkpoints": "off",
    "ssl": "off",
}


@dataclass(frozen=True)
class Programs:
    """The programs of one PostgreSQL, side by side in a folder."""

    folder: Path

    def path(self, name: str) -> str:
        """Where one of them is."""
        return str(self.folder / name)


@dataclass
class Server:
    """One data directory, and the server on it while it runs."""

    programs: Programs
    data: Path  # as the account reaches it
    run: Path  # the account's own folder, of its socket and its clients' logs
    files: Path  # a folder of ours that the account may enter: nobody else puts links there
    account: Account
    settings: Mapping[str, str] = field(default_factory=dict)
    memory: Path | None = None  # the cgroup that it and its users share, if memory is limited
    _process: subprocess.Popen[bytes] | None = None

    snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ"

    # -- making ----------------------------------------------------------------------------
    def make(self) -> None:
        """initdb: locale C, UTF-8, checksums; OltpError with its own words if it fails."""
        argv = [
            *(self.programs.path("initdb"), "-D", str(self.data), "-U", DATABASE),
            *("--locale=C", "--encoding=UTF8", "--data-checksums", "--auth=trust", "--no-sync"),
        ]
        done = self._ran(argv)
        if done.returncode:
            raise OltpError(f"initdb failed: {reason_of(done.stderr)}")

    def _ran(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            accounts.started(argv, self.account, "KILL"),
            cwd=self.run,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )

    # -- life ------------------------------------------------------------------------------
    def start(self) -> float:
        """Start it and wait until it takes connections, after recovery; seconds that it took."""
        if len(os.fsencode(self.run / SOCKET)) > SOCKET_LONGEST:
            raise OltpError(
                f"{self.run}: a socket's path has at most {SOCKET_LONGEST} bytes: set TMPDIR to a "
                "shorter path, such as /tmp"
            )
        began = time.monotonic()
        options = {**self.settings, **ALWAYS, "unix_socket_directories": str(self.run)}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        argv = [self.programs.path("postgres"), "-D", str(self.data), *words]
        with (self.files / LOG).open("ab") as log:
            self._process = subprocess.Popen(
                self.limited(argv, "QUIT"),
                cwd=self.run,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # signals to our group are for us: we end it in order
            )
        while not self._is_ready():
            if self._process.poll() is not None:
                self._process = None
                raise OltpError(f"PostgreSQL does not start: {reason_of(self.log)}")
            if time.monotonic() - began > START_SECONDS:
                self.kill()
                raise OltpError(f"PostgreSQL did not start within {START_SECONDS:g} s")
            time.sleep(LOOK)
        return time.monotonic() - began

    def limited(self, argv: Sequence[str], number: str) -> list[str]:
        """`argv` as the account, within the memory of the server and its users."""
        words = accounts.started(argv, self.account, number)
        return words if self.memory is None else entering(self.memory, words)

    def _is_ready(self) -> bool:
        """By the last line of its own note, which names its pid."""
        assert self._process is not None
        with contextlib.suppress(OSError, ResultError, ValueError):
            lines = self._note()
            return len(lines) >= 8 and lines[7].strip() == "ready" and lines[0] == str(self.pid)
        return False

    def _note(self) -> list[str]:
        """Lines of postmaster.pid; the account owns its folder, so nothing there is believed."""
        path = self.data / "postmaster.pid"
        handle = safefile.descriptor(path)
        with os.fdopen(handle, "rb"):
            return safefile.contents(handle, path, NOTE_LONGEST).decode("ascii").splitlines()

    @property
    def pid(self) -> int:
        """Of the postmaster; 0 if none was started."""
        return self._process.pid if self._process is not None else 0

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, or does so within `seconds`.

        Its users lose their connections before a killed server is a process that has ended.
        """
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def log(self) -> str:
        """What it said since its folder was made."""
        path = self.files / LOG
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        """A fast shutdown, with its checkpoint; harmless if it does not run."""
        self._end(signal.SIGINT, STOP_SECONDS)

    def kill(self) -> None:
        """At once: it ends its processes without a checkpoint; the data needs recovery."""
        self._end(signal.SIGQUIT, 10.0)

    def _end(self, number: int, seconds: float) -> None:
        """To our own child, which is not waited for yet: no other process can have its pid."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._process = None

    def died(self) -> str:
        """How it ended although nobody told it to; OltpError if it still runs."""
        if self._process is None or self._process.poll() is None:
            raise OltpError("PostgreSQL still runs")
        code = self._process.returncode
        self._process = None
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
        return f"PostgreSQL ended {how} while it worked"

    def wait_for_its_processes(self, seconds: float = 30.0) -> list[int]:
        """Pids of a dead server's processes that are still there after `seconds`.

        They see by themselves that the postmaster has gone.  Known by their working directory.
        """
        deadline = time.monotonic() + seconds
        while (left := of_directory(self.data)) and time.monotonic() < deadline:
            time.sleep(LOOK)
        return left

    def forget(self) -> None:
        """Remove the System V memory that a killed server left, if it is proven to be its own.

        The note in our data directory names it, it was made by the pid that stands there, by
        our account, and nobody uses it.
        """
        with contextlib.suppress(OSError, ResultError, IndexError, ValueError):
            lines = self._note()
            if not of_directory(self.data) and lines[0] != str(self.pid):
                remove_memory(int(lines[6].split()[1]), int(lines[0]), self.account.uid)

    # -- talk ------------------------------------------------------------------------------
    def sql(self, text: str, database: str = DATABASE) -> list[list[str]]:
        """Run statements; the rows of their answers as texts.  OltpError with psql's words."""
        done = subprocess.run(
            accounts.started(self.psql(database), self.account, "KILL"),
            cwd=self.run,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise OltpError(reason_of(done.stderr))
        return [line.split("\t") for line in done.stdout.splitlines() if line]

    def psql(self, database: str = DATABASE) -> list[str]:
        """The command that reads statements from its input."""
        return [
            *(self.programs.path("psql"), "-X", "-q", "-A", "-t", "-F", "\t"),
            *("-v", "ON_ERROR_STOP=1", "-h", str(self.run), "-U", DATABASE, "-d", database),
        ]


def of_directory(data: Path) -> list[int]:
    """Pids of processes that work in a data directory."""
    pids = []
    with contextlib.suppress(OSError):
        place = data.stat()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                facts = (folder / "cwd").stat()
                if (facts.st_dev, facts.st_ino) == (place.st_dev, place.st_ino):
                    pids.append(int(folder.name))
    return pids


_SHM = re.compile(r"^\s*-?\d+\s+(\d+)\s+\d+\s+\d+\s+(\d+)\s+\d+\s+(\d+)\s+(\d+)", re.MULTILINE)


def remove_memory(identifier: int, creator: int, uid: int) -> bool:
    """Remove a System V segment made by pid `creator` of user `uid` that nobody uses."""
    table = Path("/proc/sysvipc/shm").read_text()  # key shmid perms size cpid lpid nattch uid
    for shmid, cpid, nattch, owner in _SHM.findall(table):
        if (int(shmid), int(cpid), int(nattch), int(owner)) == (identifier, creator, 0, uid):
            return not tools.run(["ipcrm", "-m", str(identifier)], check=False).returncode
    return False
