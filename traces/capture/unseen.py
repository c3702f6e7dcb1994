"""Calls that touch files and that no operation of a trace stands for: they are counted by name."""

from __future__ import annotations

from collections.abc import Mapping

from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.traces.capture.processes import Task
from fsmatrix.traces.capture.system import System, failed
from fsmatrix.traces.capture.text import AT_FDCWD, Call, descriptor, split
from fsmatrix.traces.capture.text import name as path_of
from fsmatrix.traces.model import NOT_CAPTURED, Operation, name_problem, normal

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
