"""The steps of the workload `tpcc` for tests: started as node leaders start them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.system import mounts
from fsmatrix.suite.engines.postgresql import KIND
from fsmatrix.suite.oltp.account import DATA, RESULT, SQLITE, SQLITE_DATA, TASK, Task
from fsmatrix.suite.oltp.server import of_directory
from fsmatrix.suite.session.programs import Finished
from fsmatrix.suite.session.programs import run as run_program
from tests.waiting import PATIENCE

NEEDED = pytest.mark.needs("postgresql", "own folders")
PROGRAM = (sys.executable, "-P", "-m", "fsmatrix.suite.oltp", "{scratch}")
SETTINGS = {"shared_buffers": "8192kB", "max_wal_size": "64MB", "min_wal_size": "32MB"}
SQLITE_SETTINGS = {
    "page_size": "4096",
    "journal_mode": "wal",
    "synchronous": "full",
    "cache_size": "-8192",
}


def programs() -> Path:
    """Folder of the PostgreSQL of this machine."""
    return Path(KIND.find()).parent


def task(do: str, path: Path, **more: Any) -> Task:
    given: dict[str, Any] = {"seed": "42", "warehouses": 1, "users": 2, "max_tries": 10}
    embedded = more.get("engine") == SQLITE
    given |= {"settings": SQLITE_SETTINGS if embedded else SETTINGS, "warm_up": 1, "seconds": 3}
    return Task(do, "" if embedded else str(programs()), str(path), **{**given, **more})


def step(do: str, path: Path, **more: Any) -> Finished:
    """One step, to its end."""
    return run_program(
        PROGRAM, "/", PATIENCE, files={TASK: task(do, path, **more).text()}, collect=(RESULT,)
    )


def answer(done: Finished) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.files[RESULT])
    return found


@dataclass
class Background:
    """A step that runs, as node leaders see it."""

    path: Path
    done: list[Finished] = field(default_factory=list)

    def server(self) -> int:
        """Pid of the postmaster, once users work."""
        return self._wait(lambda: next(iter(self._postmaster()), 0))

    def pgbench(self) -> int:
        """Pid of the running pgbench."""
        return self._wait(lambda: next(iter(named("pgbench", str(self.path))), 0))

    def users(self, count: int) -> list[int]:
        """Pids of SQLite's users, once all have begun; their parent is the step."""
        pids: list[int] = []

        def look() -> int:
            there = of_directory(self.path / SQLITE_DATA)
            pids[:] = [pid for pid in there if parent(pid) in there]
            return int(len(pids) == count)

        self._wait(look)
        return pids

    def driver(self) -> int:
        """Pid of the step's own process."""
        return parent(self.server())

    def _postmaster(self) -> list[int]:
        if not self.pgbench():
            return []
        pids = of_directory(self.path / DATA)
        return [pid for pid in pids if parent(pid) not in pids]

    def _wait(self, look: Callable[[], int]) -> int:
        deadline = time.monotonic() + PATIENCE
        while not (pid := look()):
            assert not self.done, f"the step ended before: {self.done[0].stderr}"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return pid


@contextmanager
def in_background(do: str, path: Path, **more: Any) -> Iterator[Background]:
    """A step beside the test; it has ended at the end."""
    running = Background(path)
    thread = threading.Thread(target=lambda: running.done.append(step(do, path, **more)))
    thread.start()
    try:
        yield running
    finally:
        thread.join()


def named(program: str, mark: str) -> list[int]:
    """Processes of a program whose parent was given the run's directory."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().strip() != program:
                continue
            words = (folder / "cmdline").read_bytes().split(b"\0")
            prefix = next(w for w in words if w.startswith(b"--log-prefix=")).decode()
            scratch = Path(prefix.partition("=")[2]).parent.parent
            if json.loads((scratch / TASK).read_text())["path"] == mark:
                found.append(int(folder.name))
        except (OSError, StopIteration, ValueError):
            continue
    return found


def parent(pid: int) -> int:
    """Of a process; 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def left_running(path: Path, data: str = DATA) -> list[int]:
    """Processes of a database in a run's directory, after a little patience."""
    deadline = time.monotonic() + 30
    while (pids := of_directory(path / data)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return pids


def statements(path: Path, text: str) -> str:
    """Let statements be done to a run's database, by a server of its own; what it answers."""
    code = (
        "import sys; from pathlib import Path\n"
        "from fsmatrix.suite.oltp.__main__ import server_of\n"
        "from fsmatrix.suite.oltp.account import Task\n"
        "folder = Path(sys.argv[1])\n"
        "server = server_of(Task.read(folder / 'task.json'), folder)\n"
        "server.start()\n"
        "try: print(server.sql(sys.stdin.read()))\n"
        "finally: server.stop()\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / TASK).write_text(task("check", path).text())
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, folder],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def small_disk(point: Path, mebibytes: int) -> Iterator[Path]:
    """A file system of that size in memory, at a new folder."""
    point.mkdir()
    size = f"size={mebibytes}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "fsmatrix-test", str(point)], check=True)
    try:
        yield point
    finally:
        mounts.unmount(point)
