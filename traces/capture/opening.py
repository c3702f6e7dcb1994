"""Calls that open files."""

from __future__ import annotations

import re

from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.traces.capture.processes import OpenFile, Task
from fsmatrix.traces.capture.system import System, failed, learn
from fsmatrix.traces.capture.text import AT_FDCWD, Call, at, descriptor, flags, name, split, stated
from fsmatrix.traces.capture.transfers import Handler
from fsmatrix.traces.model import Operation, normal

_OPEN_FLAGS = (
    (b"O_DIRECT", Flag.DIRECT),
    (b"O_DSYNC", Flag.DSYNC),
    (b"O_SYNC", Flag.DSYNC),
    (b"O_TRUNC", Flag.TRUNCATE),
    (b"O_RDONLY", Flag.READ_ONLY),
    (b"O_WRONLY", Flag.WRITE_ONLY),
)
_HOW = re.compile(rb"\bflags=([A-Z0-9_|]+)")
CREAT = frozenset((b"O_WRONLY", b"O_CREAT", b"O_TRUNC"))


def _open(system: System, task: Task, call: Call) -> None:
    parts = split(call.arguments)
    _opened(system, task, call, AT_FDCWD, name(at(parts, 0)), flags(at(parts, 1)))


def _openat(system: System, task: Task, call: Call) -> None:
    parts = split(call.arguments)
    where = descriptor(at(parts, 0))
    _opened(system, task, call, where, name(at(parts, 1)), flags(at(parts, 2)))


def _openat2(system: System, task: Task, call: Call) -> None:
    parts = split(call.arguments)
    how = _HOW.search(at(parts, 2))
    how_flags = flags(how[1]) if how is not None else frozenset[bytes]()
    _opened(system, task, call, descriptor(at(parts, 0)), name(at(parts, 1)), how_flags)


def _creat(system: System, task: Task, call: Call) -> None:
    _opened(system, task, call, AT_FDCWD, name(at(split(call.arguments), 0)), CREAT)


def _opened(
    system: System, task: Task, call: Call, where: int, text: bytes | None, how: frozenset[bytes]
) -> None:
    path = _stated(task, call, where, text) or system.path(task, where, text)
    if path is not None and b"O_TMPFILE" in how and not failed(call):
        system.facts["files_without_a_name"] += 1
        path += b"/.tmpfile-%d" % system.facts["files_without_a_name"]
        how |= {b"O_CREAT", b"O_EXCL"}
    place = system.name(path)
    if place is not None and b"O_PATH" in how:
        system.unseen["open with O_PATH"] += 1
        place = None
    if place is None:
        file = OpenFile(path)
    elif failed(call):
        _open_failed(system, task, call, place, how)
        return
    else:
        file = _open_done(system, task, call, place, path, how)
    if not failed(call) and call.result is not None:
        system.place(task, call.result, file, call, b"O_CLOEXEC" in how)


def _stated(task: Task, call: Call, where: int, text: bytes | None) -> bytes | None:
    """The path of a relative name that strace -y states, where the directory is not known."""
    if where != AT_FDCWD or task.folder.path is not None or not text or text.startswith(b"/"):
        return None
    place = next((path for _, path in stated(b"0" + call.place)), None)
    if place is None:
        return None
    path, tail = normal(b"", place), normal(b"", text)
    if path.endswith(tail) and b".." not in text:
        task.folder.path = path[: -len(tail)]
    return path


def _kind(how: frozenset[bytes]) -> tuple[Kind, int]:
    bits = sum({flag for word, flag in _OPEN_FLAGS if word in how})
    if b"O_CREAT" not in how:
        return Kind.OPEN, int(bits)
    return Kind.CREATE, int(bits) | (Flag.EXCLUSIVE if b"O_EXCL" in how else 0)


def _open_failed(
    system: System, task: Task, call: Call, place: bytes, how: frozenset[bytes]
) -> None:
    """A slot that no open handle has."""
    row = system.files.row(place)
    slot = system.files.opened(row, call.time)
    kind, bits = _kind(how)
    system.add(task, call, Operation(kind, slot, flags=bits))
    system.files.closed(row, slot, call.time)
    learn(system, place, call)


def _open_done(
    system: System,
    task: Task,
    call: Call,
    place: bytes,
    path: bytes | None,
    how: frozenset[bytes],
) -> OpenFile:
    files = system.files
    row = files.row(place)
    slot = files.opened(row, call.time)
    kind, bits = _kind(how)
    system.add(task, call, Operation(kind, slot, flags=bits))
    if b"O_EXCL" in how and kind == Kind.CREATE:
        node = files.created(place)
    else:
        node = files.node(place)
        if kind == Kind.CREATE:
            node.created, node.regular = True, True
        files.present(node, mode=b"S_IFDIR" if b"O_DIRECTORY" in how else b"")
    if b"O_TRUNC" in how:
        files.resized(node, 0)
    return OpenFile(path, node, row, slot, append=b"O_APPEND" in how)


HANDLERS: dict[str, Handler] = {
    "open": _open,
    "openat": _openat,
    "openat2": _openat2,
    "creat": _creat,
}
