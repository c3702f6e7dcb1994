"""Calls that copy and end descriptors, move working directories, make and replace processes."""

from __future__ import annotations

from fsmatrix.traces.capture.processes import Folder, OpenFile, Task
from fsmatrix.traces.capture.system import System, failed
from fsmatrix.traces.capture.text import AT_FDCWD, Call, at, descriptor, name, number, split
from fsmatrix.traces.capture.transfers import Handler
from fsmatrix.traces.model import normal

FORKS = frozenset(("fork", "vfork", "clone", "clone3"))
_ALL = 1 << 32  # close_range to the last descriptor


def begun(_: System, task: Task, call: Call) -> None:
    """A close that is interrupted: the number is free from now on."""
    if call.name == "close":
        number = descriptor(at(split(call.arguments), 0))
        task.closing = task.table.pop(number) or OpenFile(None, users=1)


def _close(system: System, task: Task, call: Call) -> None:
    number = descriptor(at(split(call.arguments), 0))
    file, task.closing = task.closing or task.table.pop(number), None
    if file is None:
        system.unseen["a descriptor that was not opened in the trace"] += 1
    else:
        system.closed(task, file, call)


def _close_range(system: System, task: Task, call: Call) -> None:
    parts = split(call.arguments)
    first, last = number(at(parts, 0)), number(at(parts, 1)) % _ALL
    if failed(call):
        return
    if b"CLOSE_RANGE_UNSHARE" in at(parts, 2):
        system.unshare(task)
    if b"CLOSE_RANGE_CLOEXEC" in at(parts, 2):
        task.table.mark_all(first, last)
    else:
        system.close_all(task, first, last, Call(call.task, call.name, time=call.time, result=0))


def _copy(system: System, task: Task, call: Call, number: int, cloexec: bool) -> None:
    file = task.table.get(number)
    if failed(call) or call.result is None or call.result == number:
        return
    if file is not None:
        system.place(task, call.result, file, call, cloexec)
    else:  # what is copied is not known, and what was there is closed
        system.close(task, call.result, call, implied=True)


def _dup(system: System, task: Task, call: Call) -> None:
    parts = split(call.arguments)
    cloexec = len(parts) > 2 and b"O_CLOEXEC" in parts[2]
    _copy(system, task, call, descriptor(at(parts, 0)), cloexec)


def _fcntl(system: System, task: Task, call: Call) -> None:
    parts = split(call.arguments)
    number, command = descriptor(at(parts, 0)), at(parts, 1)
    if command in (b"F_DUPFD", b"F_DUPFD_CLOEXEC"):
        _copy(system, task, call, number, command == b"F_DUPFD_CLOEXEC")
    elif failed(call) or (file := task.table.get(number)) is None:
        return
    elif command == b"F_SETFD":
        task.table.mark(number, b"FD_CLOEXEC" in at(parts, 2))
    elif command == b"F_SETFL":
        file.append = b"O_APPEND" in at(parts, 2)


def _ioctl(system: System, task: Task, call: Call) -> None:
    parts = split(call.arguments)
    number, command = descriptor(at(parts, 0)), at(parts, 1)
    file = task.table.get(number)
    if failed(call) or file is None:
        return
    if command in (b"FIOCLEX", b"FIONCLEX"):
        task.table.mark(number, command == b"FIOCLEX")
    elif command in (b"FICLONE", b"FICLONERANGE") and file.slot >= 0:
        system.unseen[command.decode()] += 1


def _chdir(system: System, task: Task, call: Call) -> None:
    if not failed(call):
        text = name(at(split(call.arguments), 0))
        task.folder.path = system.path(task, AT_FDCWD, text)


def _getcwd(_: System, task: Task, call: Call) -> None:
    if not failed(call) and task.folder.path is None:
        text = name(at(split(call.arguments), 0))
        task.folder.path = normal(b"", text) if text and text.startswith(b"/") else None


def _fchdir(system: System, task: Task, call: Call) -> None:
    if not failed(call):
        file = system.file(task, descriptor(at(split(call.arguments), 0)))
        task.folder.path = file.path if file is not None else None


def _fork(system: System, task: Task, call: Call) -> None:
    if not failed(call) and call.result is not None:
        child = (task.id >> 40 << 40) | (call.result & 0x7FFFFFFF)
        shared = call.arguments if call.name.startswith("clone") else b""
        system.forked(task, child, shared, call.time)


def _execve(system: System, task: Task, call: Call) -> None:
    if not failed(call):
        system.executed(task, call)


def _unshare(system: System, task: Task, call: Call) -> None:
    if failed(call):
        return
    if b"CLONE_FILES" in call.arguments:
        system.unshare(task)
    if b"CLONE_FS" in call.arguments:
        task.folder = Folder(task.folder.path)


HANDLERS: dict[str, Handler] = {
    "close": _close,
    "close_range": _close_range,
    "dup": _dup,
    "dup2": _dup,
    "dup3": _dup,
    "fcntl": _fcntl,
    "fcntl64": _fcntl,
    "ioctl": _ioctl,
    "chdir": _chdir,
    "fchdir": _fchdir,
    "getcwd": _getcwd,
    "fork": _fork,
    "vfork": _fork,
    "clone": _fork,
    "clone3": _fork,
    "execve": _execve,
    "execveat": _execve,
    "unshare": _unshare,
}
