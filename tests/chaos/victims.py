"""The processes of a campaign that runs, by the part they play; and what hits them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.results.process import start_of

LAUNCHERS = ("mpirun", "prterun", "orterun", "mpiexec")
SESSION = "fsmatrix.suite.session"
OLTP = "fsmatrix.suite.oltp"
LOOK_SECONDS = 0.004  # between two looks for a process that lives shortly
HELD_SECONDS = 1.0  # the longest that a stopped process stays stopped


@dataclass(frozen=True)
class Process:
    """One line of the table of processes."""

    pid: int
    parent: int
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        return Path(self.words[0]).name if self.words else ""


def processes() -> dict[int, Process]:
    """All processes of this PID namespace that are no zombies."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace")
            stat = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if stat[0] not in "ZX":
            found[int(name)] = Process(int(name), int(stat[1]), tuple(words.split("\0")[:-1]))
    return found


def _is_launcher(process: Process) -> bool:
    return process.program in LAUNCHERS


def _is_rank(process: Process) -> bool:
    return SESSION in process.words and not _is_launcher(process)


def _plays(part: str, process: Process, table: dict[int, Process]) -> bool:
    parent = table.get(process.parent)
    if part == "launcher":
        return _is_launcher(process)
    if part == "rank":
        return _is_rank(process)
    if part == "fio":
        return process.program == "fio" and parent is not None and _is_rank(parent)
    if part == "fio worker":
        return process.program == "fio" and parent is not None and parent.program == "fio"
    if part == "database":
        return process.program.startswith("postgres")
    if part == "database user":
        return OLTP in process.words
    if part == "helper":  # mkfs, losetup, a program that is asked for its version...
        known = _is_launcher(process) or _is_rank(process)
        return not known and not (parent is not None and parent.program == "fio")
    raise ValueError(part)


def of_part(part: str, conductor: int) -> list[int]:
    """Pids of those who play `part` in the campaign of this conductor, ascending."""
    table = processes()
    if part == "conductor":
        return [conductor] if conductor in table else []
    return sorted(
        pid
        for pid, process in table.items()
        if _descends(pid, conductor, table) and _plays(part, process, table)
    )


def _descends(pid: int, ancestor: int, table: dict[int, Process]) -> bool:
    while (process := table.get(pid)) is not None and process.parent != ancestor:
        pid = process.parent
    return process is not None


def wait_for(
    part: str, conductor: int, running: Callable[[], bool], rng: random.Random
) -> int | None:
    """One who plays `part`, as soon as there is one; None if the command ended first."""
    while running():
        if pids := of_part(part, conductor):
            return rng.choice(pids)
        time.sleep(LOOK_SECONDS)
    return None


def strike(how: str, pid: int, rng: random.Random) -> bool:
    """Send it; whether the process was there.  STOP is followed by CONT after a while."""
    born = start_of(pid)
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if born == 0 or start_of(pid) != born:
            return False
        signal.pidfd_send_signal(handle, signal.Signals[f"SIG{how}"])
        if how == "STOP":
            time.sleep(rng.uniform(0.05, HELD_SECONDS))
            signal.pidfd_send_signal(handle, signal.SIGCONT)
    except ProcessLookupError:
        return how == "STOP"
    finally:
        os.close(handle)
    return True
