"""Sessions that a killed conductor left: found by pid and start time, and ended.

Each conductor writes down its session's folders before it makes them, and its processes beside
its own; the next one ends and removes those whose conductor is gone.  A note only says where to
look: a process must carry the store's proof in its environment, a folder in its marker.
Sessions of other hosts end by themselves when their channel closes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fsmatrix.backends import tree
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.identity import Identity, carriers, carries, identity
from fsmatrix.backends.journal import boot_id
from fsmatrix.results import trust
from fsmatrix.results.hdf import write_whole
from fsmatrix.suite.session.programs import SCRATCH as PROGRAM_SCRATCH

PATTERN = "session-*.json"
SCRATCH = "fsmatrix-session-"  # how the name of a session's folder begins
MEMORY = Path("/dev/shm")
WAIT_SECONDS = 10.0
TRIES = 5
SAME = 0.01  # seconds between two readings of one process's start time
LIMIT = 16 << 20  # bytes of a note
_NAME = re.compile(rf"{SCRATCH}[0-9a-f]{{16}}")
_FIELDS = {"boot_id", "host", "store", "home", "conductor", "processes", "scratch"}

Process = tuple[int, float]  # pid and start time: one process for sure


@dataclass(frozen=True)
class Scratch:
    """Folders of one session, each with a marker: on disk, and for shared memory."""

    folders: tuple[Path, ...]
    own: Identity

    @classmethod
    def drawn(cls, journals: Path) -> Scratch:
        """Names that nobody can know, noted before there is anything of that name."""
        name = f"{SCRATCH}{secrets.token_hex(8)}"
        parents = [Path(tempfile.gettempdir()).resolve()]
        if os.access(MEMORY, os.W_OK | os.X_OK):
            parents.append(MEMORY)
        made = cls(tuple(parent / name for parent in parents), identity(journals))
        remember(journals, (), made)
        return made

    @property
    def session(self) -> str:
        """The name that all processes of the session carry (identity.py)."""
        return self.folders[0].name

    def make(self) -> None:
        """Make and mark them; FileExistsError if somebody was quicker."""
        for folder in self.folders:
            folder.mkdir(0o700)
            tree.write_marker(folder, folder.name, self.own.store)

    def remove(self) -> list[str]:
        """Remove what is there; a sentence for each that stays.

        A daemon that ends removes its own files at the same time: then it is tried again.
        """
        for _ in range(TRIES):
            said = [line for folder in self.folders if (line := _remove(folder, self.own))]
            if not said:
                break
            time.sleep(0.1)
        return said


def remember(journals: Path, pids: Iterable[int], scratch: Scratch) -> None:
    """Write down the running session: its processes and its folders."""
    noted = [found for pid in pids if (found := _known(pid)) is not None]
    facts = {
        "boot_id": boot_id(),
        "host": os.uname().nodename,
        "store": scratch.own.store,
        "home": str(scratch.own.folder),
        "conductor": _known(os.getpid()),
        "processes": noted,
        "scratch": [str(folder) for folder in scratch.folders],
    }
    write_whole(_file(journals), json.dumps(facts).encode())


def forget(journals: Path, scratch: Scratch) -> None:
    """The session has ended; what could not be ended or removed stays noted."""
    if not carriers(scratch.own.store, scratch.session) and not scratch.remove():
        _file(journals).unlink(missing_ok=True)


def end_session(scratch: Scratch) -> list[str]:
    """Kill all of a session that runs on this kernel; a sentence for each process.

    Also workers that a program left when it died, whoever their parent is now.
    """
    return _end_carriers(scratch.own.store, scratch.session)


def _end_carriers(store: str, session: str) -> list[str]:
    said: dict[Process, str] = {}
    deadline = time.monotonic() + WAIT_SECONDS
    while left := [found for pid in carriers(store, session) if (found := _known(pid))]:
        said |= {process: line for process in left if (line := _kill(process, store))}
        _wait_for(left)
        if time.monotonic() >= deadline:
            stuck = {process: f"left alone: process {process[0]} hangs" for process in left}
            return list((said | stuck).values())
    return list(said.values())


def end_leftovers(folder: Path) -> list[str]:
    """End what dead conductors left; a sentence for each thing that was ended or left alone.

    BackendError, with nothing ended, if others can have written a note or the store was copied.
    """
    own, said, notes = identity(folder), [], []
    for path in sorted(folder.glob(PATTERN)):
        try:
            noted = _note(path)
        except ValueError as error:
            said.append(f"left alone: {path}: {error}")
            continue
        here = noted["boot_id"] == boot_id() or noted["host"] == os.uname().nodename
        if here and noted["store"] != own.store:
            raise BackendError(
                f"{path}: written in another place than {own.folder}: the results directory was "
                "moved or copied, and what it names may be in use by the original. Nothing was "
                f"touched. If this is a copy, remove its {own.folder} and {own.state}."
            )
        if here:
            notes.append((path, noted))
    for path, noted in notes:
        said += _end(path, noted, own)
    return said


def _end(path: Path, noted: Mapping[str, Any], own: Identity) -> list[str]:
    said, same_boot = [], noted["boot_id"] == boot_id()
    processes = [(int(pid), float(birth)) for pid, birth in noted["processes"]]
    if same_boot and noted["conductor"] is not None and _runs(tuple(noted["conductor"])):
        return []
    if same_boot:
        said = [line for process in processes if (line := _kill(process, own.store))]
        proven = [process for process in processes if not _runs(process) or _ours(process, own)]
        _wait_for(proven)
        for name in {Path(folder).name for folder in noted["scratch"]}:
            said += _end_carriers(own.store, name)
        starters = [*proven, *([tuple(noted["conductor"])] if noted["conductor"] else [])]
        remove_program_scratch(pid for pid, _ in starters)
    said += Scratch(tuple(map(Path, noted["scratch"])), own).remove()
    if not any(line.startswith("left alone") for line in said):
        path.unlink(missing_ok=True)
    return said


def _note(path: Path) -> dict[str, Any]:
    """A note in its form; ValueError with what is wrong, BackendError if others wrote it."""
    try:
        noted = json.loads(trust.read(path, LIMIT))
    except trust.NotTrusted as error:
        raise BackendError(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise ValueError("this is no note of a session (no JSON)") from error
    if not isinstance(noted, dict) or set(noted) != _FIELDS:
        raise ValueError("this is no note of a session (other fields)")
    texts = [noted[name] for name in ("boot_id", "host", "store", "home")]
    conductor = [] if noted["conductor"] is None else [noted["conductor"]]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a field is no text")
    if not isinstance(noted["processes"], list) or not all(
        _is_process(one) for one in [*noted["processes"], *conductor]
    ):
        raise ValueError("its processes are not pid and start time")
    folders = noted["scratch"]
    if not isinstance(folders, list) or not all(isinstance(one, str) for one in folders):
        raise ValueError("its folders are no texts")
    return noted


def _is_process(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2:
        return False
    pid, birth = value
    return type(pid) is int and 0 < pid < 1 << 31 and type(birth) in (int, float)


def _ours(process: Process, own: Identity) -> bool:
    return carries(process[0], own.store)


def _kill(process: Process, store: str) -> str:
    """Kill a noted process that carries our proof; what was done.

    By a handle that is taken before the looks: a pid that is used again is never hit.
    """
    pid = process[0]
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return ""
    try:
        if not _runs(process):
            return ""
        if not carries(pid, store):
            return f"left alone: process {pid} does not carry the proof of this results directory"
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return f"ended process {pid} of a session that was left behind"
    except ProcessLookupError:
        return ""
    finally:
        os.close(handle)


def remove_program_scratch(pids: Iterable[int]) -> None:
    """Remove the folders of programs that killed ranks of this kernel had started."""
    for pid in pids:
        if (process := _known(pid)) is not None and _runs(process):
            continue  # another one by now: what bears this number may be its own
        for folder in Path(tempfile.gettempdir()).glob(f"{PROGRAM_SCRATCH}{pid}-*"):
            _remove_flat(folder)


def _remove(folder: Path, own: Identity) -> str:
    """Remove a session's folder whole, if its marker proves it; an empty one by its name."""
    if not _NAME.fullmatch(folder.name) or not folder.is_absolute():
        return f"left alone: {str(folder)!r} is no name of a session's folder"
    try:
        if not os.path.lexists(folder):
            return ""
        if folder.lstat().st_uid != os.geteuid():
            return f"left alone: {folder} belongs to another user"
        mark = tree.read_mark(folder)
        if mark is None:
            folder.rmdir()  # a crash came before its marker: it is empty
        elif (mark.tag, mark.store) != (folder.name, own.store):
            return f"left alone: {folder} belongs to another results directory"
        else:
            tree.remove_tree(folder, folder.name)
    except (BackendError, OSError, ValueError) as error:
        return f"left alone: {folder}: {error}"
    return ""


def _remove_flat(scratch: Path) -> None:
    """Remove a program's folder of ours: only files directly in it."""
    with contextlib.suppress(OSError):
        facts = scratch.lstat()
        if scratch.is_symlink() or facts.st_uid != os.geteuid():
            return
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
