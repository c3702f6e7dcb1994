"""Calls that work on names: stat, make, remove, rename."""

from __future__ import annotations

import re
from collections.abc import Callable

from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.traces.capture.descriptors import Handler
from fsmatrix.traces.capture.processes import OpenFile, Task
from fsmatrix.traces.capture.system import System, failed, learn
from fsmatrix.traces.capture.text import (
    AT_FDCWD,
    Call,
    at,
    descriptor,
    facts,
    flags,
    name,
    offset,
    split,
    stated,
)
from fsmatrix.traces.trace_model import NOT_CAPTURED, Operation, normal

# Calls that open files.


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


OPENING: dict[str, Handler] = {
    "open": _open,
    "openat": _openat,
    "openat2": _openat2,
    "creat": _creat,
}


# -- stat and its kin --------------------------------------------------------------------------
def _stat(where: int | None, path: int) -> Handler:
    """By name: `where`, `path` say which arguments (None: there is no directory)."""

    def handler(system: System, task: Task, call: Call) -> None:
        parts = split(call.arguments)
        number = AT_FDCWD if where is None else descriptor(at(parts, where))
        text = name(at(parts, path))
        if text == b"" and where is not None and b"AT_EMPTY_PATH" in call.arguments:
            _of_handle(system, task, call, number)
            return
        if text is None and where is not None and at(parts, path) == b"NULL":
            _of_handle(system, task, call, number)
            return
        if (place := system.name(system.path(task, number, text))) is not None:
            _examined(system, task, call, place)

    return handler


def _fstat(system: System, task: Task, call: Call) -> None:
    _of_handle(system, task, call, descriptor(at(split(call.arguments), 0)))


def _of_handle(system: System, task: Task, call: Call, number: int) -> None:
    """A stat of an open file: in the trace it is one of its name."""
    file = system.handle(task, number)
    if file is None or file.node is None:
        return
    if file.node.name is None:
        system.unseen["fstat of a file without a name"] += 1
        if not failed(call):
            system.files.present(file.node, *facts(call.arguments))
        return
    _examined(system, task, call, file.node.name)


def _examined(system: System, task: Task, call: Call, place: bytes) -> None:
    system.add(task, call, Operation(Kind.STAT, system.files.slot(place)))
    if failed(call):
        learn(system, place, call)
    else:
        system.files.present(system.files.node(place), *facts(call.arguments))


def _getdents(system: System, task: Task, call: Call) -> None:
    """One listing is one operation: that of its first call."""
    file = system.handle(task, descriptor(at(split(call.arguments), 0)))
    if file is None or file.node is None:
        return
    if file.listed and not failed(call):
        system.facts["further_calls_of_listings"] += 1
        return
    result = None if failed(call) else 0
    system.add(task, call, Operation(Kind.READDIR, file.slot), result=result)
    file.listed = True
    system.files.present(file.node, mode=b"S_IFDIR")


# -- names that come and go --------------------------------------------------------------------
def _at_name(
    where: int | None, path: int, do: Callable[[System, Task, Call, bytes], None]
) -> Handler:
    def handler(system: System, task: Task, call: Call) -> None:
        parts = split(call.arguments)
        number = AT_FDCWD if where is None else descriptor(at(parts, where))
        place = system.name(system.path(task, number, name(at(parts, path))))
        if place is not None:
            do(system, task, call, place)

    return handler


def _mkdir(system: System, task: Task, call: Call, place: bytes) -> None:
    system.add(task, call, Operation(Kind.MKDIR, system.files.slot(place)))
    if call.error == "EEXIST":
        system.files.present(system.files.node(place), mode=b"S_IFDIR")
    elif failed(call):
        learn(system, place, call)
    else:
        system.files.created(place, directory=True)


def _remove(system: System, task: Task, call: Call, place: bytes) -> None:
    folder = call.name == "rmdir" or b"AT_REMOVEDIR" in call.arguments
    kind = Kind.RMDIR if folder else Kind.UNLINK
    system.add(task, call, Operation(kind, system.files.slot(place)))
    if failed(call):
        learn(system, place, call)
    else:
        system.files.removed(place, directory=folder)


def _truncate(system: System, task: Task, call: Call, place: bytes) -> None:
    """By name: opened, truncated, closed; only the truncation has the latency."""
    size = offset(at(split(call.arguments), 1))
    if size < 0:
        system.unseen["a truncation to a negative size"] += 1
        return
    files = system.files
    row = files.row(place)
    slot = files.opened(row, call.time)
    bits = int(Flag.WRITE_ONLY)
    system.facts["truncate_by_name"] += 1
    system.add(task, call, Operation(Kind.OPEN, slot, flags=bits), latency=NOT_CAPTURED)
    if failed(call):
        learn(system, place, call)
    else:
        system.add(task, call, Operation(Kind.TRUNCATE, slot, offset=size))
        system.add(task, call, Operation(Kind.CLOSE, slot), latency=NOT_CAPTURED)
        node = files.node(place)
        files.present(node)
        files.resized(node, size)
    files.closed(row, slot, call.time)


def _rename(first: tuple[int | None, int], second: tuple[int | None, int]) -> Handler:
    def handler(system: System, task: Task, call: Call) -> None:
        parts = split(call.arguments)
        paths = []
        for where, index in (first, second):
            number = AT_FDCWD if where is None else descriptor(at(parts, where))
            paths.append(system.path(task, number, name(at(parts, index))))
        places = [system.roots.name(path) if path is not None else None for path in paths]
        how = parts[4] if len(parts) > 4 else b"0"
        if not places[0] or not places[1]:
            _across(system, call, paths, places)
        elif b"EXCHANGE" in how or (b"NOREPLACE" in how and failed(call)):
            system.unseen[f"{call.name} with flags"] += 1
            if not failed(call):
                system.files.exchanged(places[0], places[1])
        else:
            _renamed(system, task, call, places[0], places[1])

    return handler


def _renamed(system: System, task: Task, call: Call, old: bytes, new: bytes) -> None:
    slots = system.files.slot(old), system.files.slot(new)
    system.add(task, call, Operation(Kind.RENAME, slots[0], slot2=slots[1]))
    if failed(call):
        if call.error == "ENOENT":
            system.files.absent(old)
    elif old != new:
        system.files.renamed(old, new)


def _across(
    system: System, call: Call, paths: list[bytes | None], places: list[bytes | None]
) -> None:
    """Into the roots or out of them: no trace has that."""
    if not any(places):
        if None not in paths:
            system.unseen["outside the root"] += 1
        return
    system.unseen["a rename over the border of the roots"] += 1
    if failed(call):
        return
    if places[0]:
        system.files.removed(places[0])
    if places[1]:
        system.files.appeared(places[1])


NAMING: dict[str, Handler] = {
    "stat": _stat(None, 0),
    "stat64": _stat(None, 0),
    "lstat": _stat(None, 0),
    "lstat64": _stat(None, 0),
    "access": _stat(None, 0),
    "newfstatat": _stat(0, 1),
    "fstatat64": _stat(0, 1),
    "statx": _stat(0, 1),
    "faccessat": _stat(0, 1),
    "faccessat2": _stat(0, 1),
    "fstat": _fstat,
    "fstat64": _fstat,
    "getdents": _getdents,
    "getdents64": _getdents,
    "mkdir": _at_name(None, 0, _mkdir),
    "mkdirat": _at_name(0, 1, _mkdir),
    "rmdir": _at_name(None, 0, _remove),
    "unlink": _at_name(None, 0, _remove),
    "unlinkat": _at_name(0, 1, _remove),
    "truncate": _at_name(None, 0, _truncate),
    "truncate64": _at_name(None, 0, _truncate),
    "rename": _rename((None, 0), (None, 1)),
    "renameat": _rename((0, 1), (2, 3)),
    "renameat2": _rename((0, 1), (2, 3)),
}
