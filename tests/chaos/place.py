"""A scenario's own folder: a store, a target, foreign things beside them, and what is left.

The program runs in PID, IPC and mount namespaces of its own: every process, segment and mount
there, and every loop device whose file lies in the folder, was made by the scenario.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fsmatrix.backends.journal.journal import read
from fsmatrix.backends.system.mounts import Mount, mounts
from fsmatrix.results.process import start_of
from tests.chaos.commands import reap

WORDS = "not yours\n"
MEMORY = Path("/dev/shm")
GRACE = 15.0  # seconds that processes which end get until they are gone
THEIRS = 1 << 20  # bytes of the foreign image


class Place:
    """Use as a context manager: at its end everything in it is gone, whatever it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.store = self.folder / "out"
        self.target = self.folder / "target"
        self.tmp = self.folder / "tmp"
        self.theirs = self.folder / "theirs"  # a foreign tmpfs
        self.image = self.folder / "theirs.img"  # behind a foreign loop device
        self.device = ""
        self.sleeper = 0  # a foreign process
        self.kept: dict[str, str] = {}  # run file -> digest, of runs that were stored
        self._before: frozenset[int] = frozenset()  # processes of another scenario around this one

    def __enter__(self) -> Place:
        for path in (self.target, self.tmp, self.theirs):
            path.mkdir(parents=True)
        (self.target / "empty").mkdir()  # folders of others
        _do("mount", "-t", "tmpfs", "-o", "size=1m", "theirs", str(self.theirs))
        for path in self._files():
            path.write_text(WORDS)
        self.image.write_bytes(bytes(THEIRS))
        self.device = _do("losetup", "--find", "--show", str(self.image))
        self._before = frozenset(_processes())
        self.sleeper = subprocess.Popen(["sleep", "100000"]).pid
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _until_gone(GRACE, self._processes)
        for mount in self.mounts():
            _do("umount", "--lazy", mount.point)
        for device in self.loops():
            _do("losetup", "--detach", device)
        for entry in MEMORY.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.rmtree(self.folder)

    def _processes(self) -> set[int]:
        return set(_processes()) - self._before

    def _files(self) -> list[Path]:
        return [self.target / "theirs", self.tmp / "theirs", self.theirs / "theirs"]

    def mounts(self) -> list[Mount]:
        """What is mounted in the folder, the innermost first."""
        found = [mount for mount in mounts() if Path(mount.point).is_relative_to(self.folder)]
        return found[::-1]

    def loops(self) -> list[str]:
        """Loop devices whose file lies in the folder."""
        found = []
        for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):  # detached meanwhile
                if Path(backing.read_text().strip()).is_relative_to(self.folder):
                    found.append(f"/dev/{backing.parts[3]}")
        return sorted(found)

    # -- what must hold after a fault ----------------------------------------------------------
    def touched(self) -> list[str]:
        """Foreign things that are not as they were."""
        wrong = [f"{path} was changed" for path in self._files() if _text(path) != WORDS]
        if not (self.target / "empty").is_dir():
            wrong.append("a foreign folder was removed")
        if not any(mount.point == str(self.theirs) for mount in mounts()):
            wrong.append("a foreign tmpfs was unmounted")
        if self.device not in self.loops() or self.image.read_bytes() != bytes(THEIRS):
            wrong.append("a foreign loop device was touched")
        if start_of(self.sleeper) == 0:
            wrong.append("a foreign process was ended")
        return wrong

    def left(self, also: Path | None = None) -> list[str]:
        """What is left of us; `also`: a store's own mount that is the scenario's."""
        _until_gone(GRACE, lambda: self._processes() - {self.sleeper})
        found = [f"process {pid}: {_line(pid)}" for pid in self._processes() - {self.sleeper}]
        own = {str(self.theirs), str(also)}
        found += [f"mount {mount.point}" for mount in self.mounts() if mount.point not in own]
        found += [f"loop device {name}" for name in self.loops() if name != self.device]
        found += [f"in the target: {name}" for name in _names(self.target, "theirs", "empty")]
        found += [f"in TMPDIR: {name}" for name in _names(self.tmp, "theirs")]
        found += [f"in {MEMORY}: {name}" for name in _names(MEMORY)]
        segments = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
        found += [f"shared memory segment {line.split()[1]}" for line in segments]
        return found + _left_in(self.store)

    def remember(self) -> list[str]:
        """Note the runs that are stored; which of those noted before were changed or removed."""
        now = {}
        for path in self.store.glob("runs/*/*.h5"):
            now[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        wrong = [
            f"run {name} was {'changed' if name in now else 'removed'}"
            for name, digest in self.kept.items()
            if now.get(name) != digest
        ]
        self.kept = now
        return wrong


def _left_in(store: Path) -> list[str]:
    """Images, pending journal entries, notes, locks, half-written files of a store."""
    found = [f"in state: {path.name}" for path in store.glob("state/*/*")]
    for journal in store.glob("journal/*.jsonl"):
        found += [f"pending {entry.kind}" for entry in read(journal).entries]
    found += [f"note {path.name}" for path in store.glob("journal/session-*")]
    found += [f"lock {path.name}" for path in store.glob("locks/*")]
    hidden = [path for path in store.rglob(".*") if path.is_file()]
    return found + [f"half-written {path.relative_to(store)}" for path in hidden]


def _names(folder: Path, *foreign: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name not in foreign)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        return str(error)


def _processes() -> Iterator[int]:
    """Every process of this namespace but the first and its forks that are gone."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid() and start_of(int(name)):
            yield int(name)


def _line(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "gone meanwhile"
    return b" ".join(words[:6]).decode(errors="replace")


def _until_gone(seconds: float, there: Callable[[], object]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        reap()
        if not there():
            return
        time.sleep(0.05)


def _do(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
