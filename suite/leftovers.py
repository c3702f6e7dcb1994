"""Sessions that a killed conductor left: found by pid and start time, and ended.

Each conductor writes down its session's processes beside its own; the next one ends those
whose conductor is gone.  Sessions of other hosts end by themselves when their channel closes.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from fsmatrix.backends.journal import boot_id
from fsmatrix.results import safefile
from fsmatrix.results.hdf import write_whole
from fsmatrix.results.schema import from_json
from fsmatrix.suite.session.programs import SCRATCH as PROGRAM_SCRATCH

PATTERN = "session-*.json"
SCRATCH = "fsmatrix-session-"  # how the name of a session's folder begins
WAIT_SECONDS = 10.0
SAME = 0.01  # seconds between two readings of one process's start time

Process = tuple[int, float]  # pid and start time: one process for sure


def remember(folder: Path, pids: Iterable[int], scratch: str) -> None:
    """Write down the running session: its processes and its scratch folder."""
    noted = [found for pid in pids if (found := _known(pid)) is not None]
    facts = {"boot_id": boot_id(), "conductor": _known(os.getpid()), "processes": noted}
    write_whole(_file(folder), json.dumps(facts | {"scratch": scratch}).encode())


def forget(folder: Path) -> None:
    """The session ended in good order."""
    _file(folder).unlink(missing_ok=True)


def end_leftovers(folder: Path) -> list[str]:
    """End what dead conductors left; a sentence for each process that was ended."""
    ended = []
    for path in sorted(folder.glob(PATTERN)):
        try:
            noted = from_json(safefile.read_text(path))
        except ValueError:  # torn by a crash; its ranks ended when their channel closed
            path.unlink()
            continue
        if noted["boot_id"] != boot_id() or _runs(noted["conductor"]):
            continue
        for process in noted["processes"]:
            with contextlib.suppress(psutil.NoSuchProcess):
                if _runs(process):
                    psutil.Process(process[0]).kill()
                    ended.append(f"ended process {process[0]} of a session that was left behind")
        _wait_for(noted["processes"])
        remove_program_scratch(pid for pid, _ in noted["processes"])
        _remove_scratch(Path(noted["scratch"]))
        path.unlink(missing_ok=True)
    return ended


def remove_program_scratch(pids: Iterable[int]) -> None:
    """Remove the folders of programs that killed ranks of this kernel had started."""
    for pid in pids:
        for folder in Path(tempfile.gettempdir()).glob(f"{PROGRAM_SCRATCH}{pid}-*"):
            _remove_scratch(folder)


def _remove_scratch(scratch: Path) -> None:
    """Remove our folder: only files directly in it, only where sessions make theirs."""
    expected = Path(tempfile.gettempdir()) / scratch.name
    ours = scratch.name.startswith((SCRATCH, PROGRAM_SCRATCH))
    if scratch != expected or not ours or scratch.is_symlink():
        return
    if scratch.exists() and scratch.stat().st_uid != os.geteuid():
        return
    with contextlib.suppress(FileNotFoundError):
        for entry in scratch.iterdir():
            if not entry.is_dir() or entry.is_symlink():
                entry.unlink()
        scratch.rmdir()


def _file(folder: Path) -> Path:
    return folder / PATTERN.replace("*", f"{os.uname().nodename}-{os.getpid()}")


def _known(pid: int) -> Process | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        return pid, psutil.Process(pid).create_time()
    return None


def _wait_for(processes: Iterable[Process]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline and any(_runs(process) for process in processes):
        time.sleep(0.05)


def _runs(process: Process) -> bool:
    """Whether this very process is there and no zombie."""
    pid, birth = process
    try:
        found = psutil.Process(pid)
        same = abs(found.create_time() - birth) < SAME
        return same and bool(found.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
