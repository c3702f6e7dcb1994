"""The folder of one run of all tests, and what of it may be left when it was killed.

Everything that the tests make lies below it: it is their TMPDIR and the base of their `tmp_path`s.
Their processes carry its name in their environment, or write to a log in it (PostgreSQL's overwrite
their environment with their titles).  It is locked (flock) as long as its run
lives: one that can be locked is of a run that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.journal import undo_pending
from fsmatrix.backends.system import workfolder
from fsmatrix.backends.system.mounts import mounts
from fsmatrix.backends.testbed import ceph_testbed as ceph
from fsmatrix.backends.testbed import daos_testbed as daos
from fsmatrix.results.process import Process
from fsmatrix.slurm import testbed as slurm
from fsmatrix.suite.session import orphaned_sessions
from tests.whole.leftovers import loop_devices

TOKEN = "FSMATRIX_TESTS"  # environment variable: the folder of the run that a process is of
PREFIX = "fsmatrix-t-"  # short: paths of sockets are below it, and these have 107 bytes
TESTS, TEMPORARY = "t", "tmp"  # folders below: of pytest, and TMPDIR
MEMORY = Path("/dev/shm")
GRACE = 20.0  # seconds that processes which end get until they are gone
BEDS: Mapping[str | None, Callable[[Path], list[str]]] = {
    bed.kind.tag: bed.down for bed in (ceph.CephTestbed, daos.DaosTestbed, slurm.SlurmTestbed)
}
MODE = 0o711


class Place:
    """A run's folder."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder, self._lock = folder, lock

    @classmethod
    def make(cls) -> Place:
        """A new one.  Others may pass through it (some tests become another user)."""
        folder, lock = workfolder.locked(PREFIX)
        for name in (TESTS, TEMPORARY):
            (folder / name).mkdir(mode=MODE)
        folder.chmod(MODE)
        return cls(folder, lock)

    def unlock(self) -> None:
        """From now on it is as that of a run that was killed."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    @property
    def environment(self) -> dict[str, str]:
        """What every process of the run carries."""
        return {TOKEN: str(self.folder), "TMPDIR": str(self.folder / TEMPORARY)}

    def reports(self) -> list[Path]:
        """Those that were written."""
        return sorted(self.folder.glob("part*.xml"))

    def report(self, number: int) -> Path:
        """Where pytest writes what came of a part's tests."""
        return self.folder / f"part{number}.xml"

    def left(self) -> list[str]:
        """What is still there although no test runs: a sentence for each thing."""
        lines = [f"process {pid}: {_words(pid)}" for pid in self._processes()]
        lines += [f"mount {point}" for point in self._mounts()]
        lines += [f"loop device {device} of {file}" for device, file in self._loops().items()]
        lines += [f"test bed {folder}" for folder, _ in self._beds()]
        names = sorted(path.name for path in (self.folder / TEMPORARY).glob("*"))
        # pytest in a test keeps its last folders, as everywhere
        return lines + [f"in TMPDIR: {name}" for name in names if not name.startswith("pytest-of-")]

    def clear(self) -> list[str]:
        """Remove all that is there; a sentence for each thing that was not just a file."""
        lines = [f"ended process {pid}: {_words(pid)}" for pid in self._processes()]
        self._end_processes()
        for folder, down in self._beds():
            lines += _tried(down, folder)
        for folder in self._found("journal"):
            lines += _tried(orphaned_sessions.end_leftovers, folder)
            lines += _tried(undo_pending, folder)
        for point in self._mounts():
            subprocess.run(["umount", "--lazy", point], check=False)
            lines.append(f"unmounted {point}")
        for device, file in self._loops().items():
            subprocess.run(["losetup", "--detach", device], check=False)
            lines.append(f"detached {device} from {file}")
        for session in (self.folder / TEMPORARY).glob(f"{orphaned_sessions.SCRATCH}*"):
            shutil.rmtree(MEMORY / session.name, ignore_errors=True)  # it has two of one name
        return lines + self._remove()

    def _remove(self) -> list[str]:
        """The folder itself, if nothing is mounted in it any more; a sentence if it stays."""
        if not self._mounts():
            # some tests close folders to themselves
            subprocess.run(["chmod", "-R", "u+rwX", self.folder], check=False)
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        return [f"{self.folder} cannot be removed"] if self.folder.exists() else []

    def _processes(self) -> list[int]:
        """Pids of the run, of this user."""
        mark, inside = f"{TOKEN}={self.folder}".encode(), f"{self.folder}/"
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                carries = mark in (entry / "environ").read_bytes().split(b"\0")
                if carries or str((entry / "fd" / "2").readlink()).startswith(inside):
                    found.append(int(entry.name))
        return sorted(set(found) - {os.getpid()})

    def _end_processes(self) -> None:
        deadline = time.monotonic() + GRACE
        while (pids := self._processes()) and time.monotonic() < deadline:
            for process in filter(None, map(Process.of, pids)):
                with process.held() as handle, contextlib.suppress(ProcessLookupError):
                    if handle is not None:
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
            time.sleep(0.1)

    def _mounts(self) -> list[str]:
        """Points below the folder, the innermost first."""
        inside = f"{self.folder}/"
        return [mount.point for mount in reversed(mounts()) if mount.point.startswith(inside)]

    def _loops(self) -> dict[str, str]:
        inside = f"{self.folder}/"
        return {device: file for device, file in loop_devices().items() if file.startswith(inside)}

    def _beds(self) -> Iterator[tuple[Path, Callable[[Path], list[str]]]]:
        for marker in self._found(tree.MARKER):
            with contextlib.suppress(OSError, BackendError):
                if (tag := tree.read_marker(marker.parent)) in BEDS:
                    yield marker.parent, BEDS[tag]

    def _found(self, name: str) -> list[Path]:
        """Files and folders of that name; what is mounted (and may hang) is not entered."""
        points, found = set(self._mounts()), []
        for folder, inside, files in os.walk(self.folder):
            inside[:] = [entry for entry in inside if f"{folder}/{entry}" not in points]
            found += [Path(folder, name)] * (name in inside or name in files)
        return found


def dead_places() -> list[Place]:
    """Of runs of this user that were killed, in this TMPDIR."""
    return [Place(*found) for found in workfolder.abandoned(PREFIX)]


def others() -> list[Path]:
    """Folders of runs of this user that are alive, this one's too."""
    dead = dead_places()
    for place in dead:
        os.close(place._lock)
    gone = {place.folder for place in dead}
    return [path for path in workfolder.made(PREFIX) if path not in gone]


def _tried(undo: Callable[[Path], list[str]], folder: Path) -> list[str]:
    try:
        return undo(folder)
    except (BackendError, OSError) as error:
        return [f"{folder}: {error}"]


def _words(pid: int) -> str:
    """What a process was started with, in a line."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return "(it just ended)"
    return text.decode(errors="replace")[:120].strip()
