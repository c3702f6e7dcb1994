"""Calls on descriptors: those that move bytes or say where, those that copy and end descriptors.

Also those that move working directories, and make and replace processes, which inherit descriptors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.traces.capture.processes import Folder, OpenFile, Task
from fsmatrix.traces.capture.system import System, failed, outcome
from fsmatrix.traces.capture.text import (
    AT_FDCWD,
    Call,
    Malformed,
    at,
    descriptor,
    first_of,
    name,
    number,
    split,
    vector,
)
from fsmatrix.traces.capture.text import name as path_of
from fsmatrix.traces.capture.text import offset as offset_of
from fsmatrix.traces.trace_model import MOST_OFFSET, NOT_CAPTURED, Operation, name_problem, normal

# Calls that touch files and that no operation of a trace stands for: they are counted by name.


# What of a call may be below the roots: (argument with a descriptor, argument with a path); None:
# there is no such argument.
Where = tuple[int | None, int | None]
FIRST: tuple[Where, ...] = ((0, None),)
NAMED: tuple[Where, ...] = ((None, 0),)
AT: tuple[Where, ...] = ((0, 1),)
TOUCHING: Mapping[str, tuple[Where, ...]] = {
    "mmap": ((4, None),),
    "mmap2": ((4, None),),
    "splice": ((0, None), (2, None)),
    "tee": ((0, None), (1, None)),
    "vmsplice": FIRST,
    "readahead": FIRST,
    "sync_file_range": FIRST,
    "syncfs": FIRST,
    "flock": FIRST,
    "fchmod": FIRST,
    "fchown": FIRST,
    "fgetxattr": FIRST,
    "fsetxattr": FIRST,
    "flistxattr": FIRST,
    "fremovexattr": FIRST,
    "link": ((None, 0), (None, 1)),
    "linkat": ((0, 1), (2, 3)),
    "symlink": ((None, 1),),
    "symlinkat": ((1, 2),),
    "readlink": NAMED,
    "readlinkat": AT,
    "chmod": NAMED,
    "fchmodat": AT,
    "fchmodat2": AT,
    "chown": NAMED,
    "lchown": NAMED,
    "fchownat": AT,
    "utime": NAMED,
    "utimes": NAMED,
    "utimensat": AT,
    "futimesat": AT,
    "mknod": NAMED,
    "mknodat": AT,
    "getxattr": NAMED,
    "lgetxattr": NAMED,
    "setxattr": NAMED,
    "lsetxattr": NAMED,
    "listxattr": NAMED,
    "llistxattr": NAMED,
    "removexattr": NAMED,
    "lremovexattr": NAMED,
    "name_to_handle_at": AT,
    "execve": NAMED,
    "execveat": AT,
}
# They work on files that their arguments do not name: counted wherever these are.
ALWAYS = frozenset(
    (
        "io_uring_setup", "io_uring_enter", "io_submit", "sync", "open_by_handle_at", "pidfd_getfd",
        "chroot", "pivot_root",
    )
)  # fmt: skip
MAKE = frozenset(("link", "linkat", "symlink", "symlinkat", "mknod", "mknodat"))
SYMBOLIC = frozenset(("symlink", "symlinkat"))
NAMES = (*TOUCHING, *ALWAYS)

FORKS = frozenset(("fork", "vfork", "clone", "clone3"))
_ALL = 1 << 32  # close_range to the last descriptor


def count(system: System, task: Task, call: Call) -> None:
    """Count a call if it touches what lies below the roots."""
    if call.name in ALWAYS:
        system.unseen[call.name] += 1
        return
    parts = split(call.arguments)
    places = [_place(system, task, parts, *where) for where in TOUCHING[call.name]]
    if places == [None] * len(places):
        return
    system.unseen[call.name] += 1
    if call.name in MAKE and places[-1] and not name_problem(places[-1]) and not failed(call):
        of = places[0]
        if call.name in SYMBOLIC:
            of = _target(system, task, parts, *TOUCHING[call.name][0])
        _stand_in(system, task, call, places[-1], of)


def _target(
    system: System, task: Task, parts: list[bytes], where: int | None, path: int | None
) -> bytes | None:
    """What of the roots a symbolic link leads to; None: nothing."""
    assert path is not None
    number = AT_FDCWD if where is None else descriptor(parts[where])
    text, link = path_of(parts[0]), system.path(task, number, path_of(parts[path]))
    if text is None or link is None:
        return None
    return system.roots.name(normal(link.rpartition(b"/")[0], text))


def _stand_in(system: System, task: Task, call: Call, name: bytes, of: bytes | None) -> None:
    """Make a file in the trace, as long as `of`: what comes later finds something there."""
    files = system.files
    length = files.length(of) if of and of != name else 0
    row = files.row(name)
    slot = files.opened(row, call.time)
    flags = int(Flag.EXCLUSIVE | Flag.WRITE_ONLY)
    system.add(task, call, Operation(Kind.CREATE, slot, flags=flags))
    if length:
        system.add(task, call, Operation(Kind.TRUNCATE, slot, offset=length), latency=NOT_CAPTURED)
    system.add(task, call, Operation(Kind.CLOSE, slot), latency=NOT_CAPTURED)
    files.closed(row, slot, call.time)
    files.linked(name, length)


def _place(
    system: System, task: Task, parts: list[bytes], where: int | None, path: int | None
) -> bytes | None:
    """What of the roots is meant there; None: nothing."""
    if max(where or 0, path or 0) >= len(parts):
        return None
    number = AT_FDCWD if where is None else descriptor(parts[where])
    text = path_of(parts[path]) if path is not None else b""
    if path is None or (not text and number != AT_FDCWD):
        file = task.table.get(number)
        return system.roots.name(file.path) if file is not None and file.path else None
    full = system.path(task, number, text) if text is not None else None
    return system.roots.name(full) if full is not None else None


MOST_ONCE = 0x7FFFF000  # bytes; Linux moves no more in one call
AT_END = 1 << 17  # bytes of a read that stands for a copy that met the end at once
Handler = Callable[[System, Task, Call], None]
_PLAIN = re.compile(
    rb'(\d{1,10})(?:<[^<>]*>)?, (?:"(?:[^"\\]++|\\.)*+"(?:\.\.\.)?|0x[0-9a-f]+|NULL), (\d{1,20})'
    rb"(?:, (-?\d{1,20}))?",
    re.DOTALL,
)


def _plain(kind: Kind, placed: bool) -> Handler:
    """read, write, pread64, pwrite64."""

    def handler(system: System, task: Task, call: Call) -> None:
        match = _PLAIN.fullmatch(call.arguments)
        if match is not None:
            where, size, position = match.groups()
        else:
            parts = split(call.arguments)
            where, size, position = at(parts, 0), at(parts, 2), parts[3] if len(parts) > 3 else None
        file = system.handle(task, descriptor(where))
        if placed and position is None:
            raise Malformed(f"{call.name} without an offset")
        if file is not None:
            begin = offset_of(position) if placed and position is not None else None
            _move(system, task, call, file, kind, number(size), begin)

    return handler


def _vectored(kind: Kind, placed: bool, flagged: bool) -> Handler:
    """readv, writev, preadv, pwritev, and those with flags."""

    def handler(system: System, task: Task, call: Call) -> None:
        parts = split(call.arguments)
        file = system.handle(task, descriptor(at(parts, 0)))
        if file is None:
            return
        size = vector(at(parts, 1))
        if not failed(call) and call.result is not None and call.result > size:
            size = call.result  # strace wrote down the beginning of the vector only
        begin = offset_of(at(parts, 3)) if placed else None
        if flagged and begin == -1:
            begin = None  # at the offset of the open file
        if flagged and b"RWF_APPEND" in at(parts, 4) and file.node is not None:
            begin = file.node.size
        _move(system, task, call, file, kind, size, begin)

    return handler


def _move(
    system: System,
    task: Task,
    call: Call,
    file: OpenFile,
    kind: Kind,
    size: int,
    begin: int | None,
) -> None:
    """One read or write.  `begin` None: at the offset of the open file, which moves on."""
    node, has_failed = file.node, failed(call)
    moves = begin is None
    if begin is None:
        begin = file.offset
    if file.append and kind == Kind.WRITE and node is not None:
        begin = node.size
        system.facts["appends_where_the_size_is_a_guess"] += not node.exact
    if begin < 0 and has_failed:
        system.unseen["at a negative offset"] += 1
        return
    done = 0 if has_failed or call.result is None else call.result
    size = min(size, MOST_ONCE)
    if done > size:
        raise Malformed(f"{call.name} gave {done} of {size} bytes")
    result = done if not has_failed else outcome(call)
    system.add(task, call, Operation(kind, file.slot, 0, 0, begin, size), result=result)
    if moves:
        file.offset = begin + done
    if node is None or has_failed:
        return
    if kind == Kind.WRITE:
        system.files.written(node, begin + done)
    else:
        system.files.read(node, begin + done, 0 < done < size)


def _copy_bytes(
    system: System,
    task: Task,
    call: Call,
    ends: tuple[tuple[int, bytes | None], tuple[int, bytes | None]],
    count: bytes,
) -> None:
    """From one descriptor to another: a read, and a write of what was moved."""
    files = [system.handle(task, where) for where, _ in ends]
    size = min(number(count), MOST_ONCE)
    if failed(call):  # for a reason that neither a read nor a write has
        system.unseen[call.name] += files != [None, None]
        return
    size = call.result or min(size, AT_END)  # asked for "as much as there is"
    kinds = [Kind.READ, Kind.WRITE] if call.result else [Kind.READ]
    if None not in files:
        call = replace(call, latency=NOT_CAPTURED)  # of both together, so of neither
    for file, (_, position), kind in zip(files, ends, kinds, strict=False):
        if file is not None:
            begin = None if position is None else offset_of(position)
            _move(system, task, call, file, kind, size, begin)


def _sendfile(system: System, task: Task, call: Call) -> None:
    parts = split(call.arguments)
    target, source = descriptor(at(parts, 0)), descriptor(at(parts, 1))
    _copy_bytes(
        system, task, call, ((source, first_of(at(parts, 2))), (target, None)), at(parts, 3)
    )


def _copy_file_range(system: System, task: Task, call: Call) -> None:
    parts = split(call.arguments)
    source = descriptor(at(parts, 0)), first_of(at(parts, 1))
    target = descriptor(at(parts, 2)), first_of(at(parts, 3))
    _copy_bytes(system, task, call, (source, target), at(parts, 4))


def _lseek(system: System, task: Task, call: Call) -> None:
    parts = split(call.arguments)
    file = task.table.get(descriptor(at(parts, 0)))
    if file is None or failed(call) or call.result is None:
        return
    if call.result >= MOST_OFFSET:
        raise Malformed(f"an offset of {call.result}: 2^63 or more")
    file.offset = call.result
    file.listed &= file.offset != 0
    if file.node is not None and at(parts, 2) == b"SEEK_END" and not file.node.directory:
        system.files.ends(file.node, max(0, call.result - number(parts[1])))


def _llseek(_: System, task: Task, call: Call) -> None:
    """lseek of programs of 32 bits: the new offset is an argument."""
    parts = split(call.arguments)
    file = task.table.get(descriptor(at(parts, 0)))
    text = first_of(at(parts, 2))
    if file is not None and text is not None and not failed(call):
        file.offset = offset_of(text)
        file.listed &= file.offset != 0


def _fsync(system: System, task: Task, call: Call) -> None:
    file = system.handle(task, descriptor(at(split(call.arguments), 0)))
    if file is not None:
        flags = Flag.DATA_ONLY if call.name == "fdatasync" else 0
        system.add(task, call, Operation(Kind.FSYNC, file.slot, flags=int(flags)))


def _ftruncate(system: System, task: Task, call: Call) -> None:
    parts = split(call.arguments)
    file = system.handle(task, descriptor(at(parts, 0)))
    if file is not None:
        _resize(system, task, call, file, offset_of(at(parts, 1)))


def _resize(system: System, task: Task, call: Call, file: OpenFile, size: int) -> None:
    if size < 0:
        system.unseen["a truncation to a negative size"] += 1
        return
    system.add(task, call, Operation(Kind.TRUNCATE, file.slot, offset=size))
    if file.node is not None and not failed(call):
        system.files.resized(file.node, size)


def _fallocate(system: System, task: Task, call: Call) -> None:
    """What makes a file longer is a truncation to its new size; else it is not seen."""
    parts = split(call.arguments)
    file = system.handle(task, descriptor(at(parts, 0)))
    if file is None or file.node is None:
        return
    end = offset_of(at(parts, 2)) + number(at(parts, 3))
    if failed(call) or at(parts, 1) != b"0" or end <= file.node.size:
        system.unseen["fallocate"] += 1
        return
    if end >= MOST_OFFSET:
        raise Malformed(f"an end of {end}: 2^63 or more")
    system.facts["fallocate_as_truncate"] += 1
    _resize(system, task, call, file, end)


TRANSFERS: dict[str, Handler] = {
    "read": _plain(Kind.READ, False),
    "write": _plain(Kind.WRITE, False),
    "pread64": _plain(Kind.READ, True),
    "pwrite64": _plain(Kind.WRITE, True),
    "readv": _vectored(Kind.READ, False, False),
    "writev": _vectored(Kind.WRITE, False, False),
    "preadv": _vectored(Kind.READ, True, False),
    "pwritev": _vectored(Kind.WRITE, True, False),
    "preadv2": _vectored(Kind.READ, True, True),
    "pwritev2": _vectored(Kind.WRITE, True, True),
    "sendfile": _sendfile,
    "sendfile64": _sendfile,
    "copy_file_range": _copy_file_range,
    "lseek": _lseek,
    "_llseek": _llseek,
    "fsync": _fsync,
    "fdatasync": _fsync,
    "ftruncate": _ftruncate,
    "ftruncate64": _ftruncate,
    "fallocate": _fallocate,
}


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
