"""Sessions that a killed conductor left: found by pid and start time, and ended.

Each conductor writes down its session's folders before it makes them, and its processes beside
its own; the next one ends and removes those whose conductor is gone.  A note only says where to
look: a process must carry the store's proof in its environment or be below one that does, a
folder in its marker.  Sessions of other hosts end by themselves when their channel closes.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.proof import Identity, carriers, carries, identity
from fsmatrix.backends.system import trusted
from fsmatrix.results.evidence.stored import Stored, read
from fsmatrix.results.files import safefile
from fsmatrix.results.files.safefile import write_whole
from fsmatrix.results.process import Process, boot_id

PATTERN = "session-*.json"
SCRATCH = "fsmatrix-session-"  # how the name of a session's folder begins
MEMORY = Path("/dev/shm")
WAIT_SECONDS = 10.0
TRIES = 5
LIMIT = 16 << 20  # bytes of a note
_NAME = re.compile(rf"{SCRATCH}[0-9a-f]{{16}}")


@dataclass(frozen=True, kw_only=True)
class Note(Stored):
    """A running session as its conductor writes it down; a process is its pid and start time."""

    boot_id: str
    host: str
    store: str  # as of a journal's entry
    home: str
    conductor: tuple[int, ...] | None
    processes: tuple[tuple[int, ...], ...]
    scratch: tuple[str, ...]  # folders


@dataclass(frozen=True)
class Scratch:
    """Folders of one session, each with a marker: on disk, and for shared memory."""

    folders: tuple[Path, ...]
    own: Identity

    @classmethod
    def drawn(cls, journals: Path) -> Scratch:
        """Names that nobody can know, noted before there is anything of that name.

        BackendError if root's could be replaced by others'.
        """
        if reason := trusted.temporary_refusal():
            raise BackendError(reason)
        name = f"{SCRATCH}{secrets.token_hex(8)}"
        parents = [Path(tempfile.gettempdir()).resolve()]
        if os.access(MEMORY, os.W_OK | os.X_OK):
            parents.append(MEMORY)
        scratch = cls(tuple(parent / name for parent in parents), identity(journals))
        remember(journals, (), scratch)
        return scratch

    @property
    def session(self) -> str:
        """The name that all processes of the session carry (proof.py)."""
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
            lines = [line for folder in self.folders if (line := _remove(folder, self.own))]
            if not lines:
                break
            time.sleep(0.1)
        return lines


def session_folder(scratch: Scratch | None) -> str:
    """The session's own folder, made."""
    if scratch is None:
        return tempfile.mkdtemp(prefix=SCRATCH)
    scratch.make()
    return str(scratch.folders[0])


def remember(journals: Path, pids: Iterable[int], scratch: Scratch) -> None:
    """Write down the running session: its processes and its folders."""
    note = Note(
        boot_id=boot_id(),
        host=os.uname().nodename,
        store=scratch.own.store,
        home=str(scratch.own.folder),
        conductor=_noted(os.getpid()),
        processes=tuple(place for pid in pids if (place := _noted(pid)) is not None),
        scratch=tuple(map(str, scratch.folders)),
    )
    write_whole(_file(journals), json.dumps(note.document()).encode())


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
    lines: dict[Process, str] = {}
    deadline = time.monotonic() + WAIT_SECONDS
    left: list[Process] = []
    while left := _of_session(store, session, left):
        lines |= {process: line for process in left if (line := _kill(process))}
        _wait_for(left)
        if time.monotonic() >= deadline:
            stuck = {process: f"left alone: process {process.pid} hangs" for process in left}
            return list((lines | stuck).values())
    return list(lines.values())


def _of_session(store: str, session: str, known: Iterable[Process]) -> list[Process]:
    """What runs of a session: carriers of its proof, what they have started, what is known.

    A child may show no environment (PostgreSQL's overwrite theirs with their titles); when its
    parent is dead nothing tells whose it was.
    """
    found = dict.fromkeys(process for process in known if process.runs)
    for pid in carriers(store, session):
        if carrier := Process.of(pid):
            found |= dict.fromkeys((carrier, *_below(carrier)))
    return list(found)


def _below(parent: Process) -> list[Process]:
    """What a process has started, and they in turn."""
    import psutil  # not in every rank: only here

    try:
        children = psutil.Process(parent.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    found = [(child, Process.of(child.pid)) for child in children] if parent.runs else []
    return [process for child, process in found if process is not None and child.is_running()]


def end_leftovers(folder: Path) -> list[str]:
    """End what dead conductors left; a sentence for each thing that was ended or left alone.

    BackendError, with nothing ended, if others can have written a note or the store was copied.
    """
    own, lines, notes = identity(folder), [], []
    for path in sorted(folder.glob(PATTERN)):
        try:
            noted = _note(path)
        except ValueError as error:
            lines.append(f"left alone: {path}: {error}")
            continue
        here = noted.boot_id == boot_id() or noted.host == os.uname().nodename
        if here and noted.store != own.store:
            raise BackendError(
                f"{path}: written in another place than {own.folder}: the results directory was "
                "moved or copied, and what it names may be in use by the original. Nothing was "
                f"touched. If this is a copy, remove its {own.folder} and {own.state}."
            )
        if here:
            notes.append((path, noted))
    for path, noted in notes:
        lines += _end(path, noted, own)
    return lines


def _end(path: Path, noted: Note, own: Identity) -> list[str]:
    lines, boot = [], noted.boot_id
    processes = [Process(pid, start, boot) for pid, start in noted.processes]
    if noted.conductor is not None:
        pid, start = noted.conductor
        if Process(pid, start, boot).runs:
            return []
    if boot == boot_id():
        for name in {Path(folder).name for folder in noted.scratch}:
            lines += _end_carriers(own.store, name)
        lines += [line for process in processes if (line := _kill(process, own.store))]
        _wait_for([each for each in processes if carries(each.pid, own.store)])
    lines += Scratch(tuple(map(Path, noted.scratch)), own).remove()
    if not any(line.startswith("left alone") for line in lines):
        path.unlink(missing_ok=True)
    return lines


def _note(path: Path) -> Note:
    """A note in its form; ValueError with what is wrong, BackendError if others wrote it."""
    try:
        data = json.loads(safefile.read_note(path, LIMIT))
    except safefile.NotTrusted as error:
        raise BackendError(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise ValueError("this is no note of a session (no JSON)") from error
    noted = read(Note, data, "note", exact=True)
    if "conductor" not in noted.keys:
        raise ValueError("note.conductor is missing")
    conductor = () if noted.conductor is None else (noted.conductor,)
    if not all(map(_is_process, (*noted.processes, *conductor))):
        raise ValueError("note.processes or note.conductor is not pid and start time")
    return noted


def _is_process(value: tuple[int, ...]) -> bool:
    return len(value) == 2 and 0 < value[0] < 1 << 31 and value[1] > 0


def _kill(process: Process, store: str = "") -> str:
    """Kill a process of a session; what was done.

    By a handle that is taken before the looks: a pid that is used again is never hit.  What is
    only noted must carry the store's proof.
    """
    pid = process.pid
    with process.held() as handle:
        if handle is None:
            return ""
        if store and not carries(pid, store):
            return f"left alone: process {pid} does not carry the proof of this results directory"
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            return ""
        return f"ended process {pid} of a session that was left behind"


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


def _file(folder: Path) -> Path:
    return folder / PATTERN.replace("*", f"{os.uname().nodename}-{os.getpid()}")


def _noted(pid: int) -> tuple[int, int] | None:
    process = Process.of(pid)
    return None if process is None else (process.pid, process.start)


def _wait_for(processes: Iterable[Process]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline and any(process.runs for process in processes):
        time.sleep(0.05)
