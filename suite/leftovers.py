"""Sessions that a killed conductor left: found by pid and start time, and ended."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

FILE = "sessions.json"
WAIT_SECONDS = 10.0


def boot_id() -> str:
    """Identity of this kernel's boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def remember(folder: Path, pids: Iterable[int]) -> None:
    """Write down the processes of the running session (written aside, renamed)."""
    processes = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append([pid, psutil.Process(pid).create_time()])
    aside = folder / f".{FILE}.{os.getpid()}"
    aside.write_text(json.dumps({"boot_id": boot_id(), "processes": processes}))
    aside.replace(folder / FILE)


def forget(folder: Path) -> None:
    """The session ended in good order."""
    (folder / FILE).unlink(missing_ok=True)


def end_leftovers(folder: Path) -> list[str]:
    """End what the last conductor left; a sentence for each process that was ended."""
    try:
        noted = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return []
    ended = []
    if noted["boot_id"] == boot_id():
        for pid, birth in noted["processes"]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if abs(process.create_time() - birth) < 0.01:
                    process.kill()
                    ended.append(f"ended process {pid} of a session that was left behind")
        _wait_for([pid for pid, _ in noted["processes"]])
    forget(folder)
    return ended


def _wait_for(pids: Iterable[int]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline and any(_running(pid) for pid in pids):
        time.sleep(0.05)


def _running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
