"""A trace is played again by the simplest of players, which checks every outcome."""

from __future__ import annotations

import os
from pathlib import Path

from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.traces.trace_model import UNKNOWN
from fsmatrix.traces.tracefile import Trace

MODES = {Flag.READ_ONLY: os.O_RDONLY, Flag.WRITE_ONLY: os.O_WRONLY}


def differences(trace: Trace, root: Path) -> list[str]:
    """Operations whose outcome below `root`, which is made, is not that of the trace."""
    root.mkdir()
    names = [os.path.join(os.fsencode(root), name) for name in trace.files.names()]  # noqa: PTH118
    for name, size, folder in zip(names, trace.files.size, trace.files.directory, strict=True):
        if size < 0:
            continue
        path = Path(os.fsdecode(name))
        (path if folder else path.parent).mkdir(parents=True, exist_ok=True)
        if not folder:
            with path.open("wb") as file:
                file.truncate(int(size))
    handles: dict[int, int] = {}
    found = []
    for block in trace.blocks():
        for at in range(len(block["kind"])):
            row = {column: int(values[at]) for column, values in block.items()}
            name = names[trace.slots[row["slot"]]]
            outcome = _outcome(row, name, names[trace.slots[row["slot2"]]], handles)
            if outcome != row["result"] and not (row["result"] == UNKNOWN and outcome >= 0):
                found.append(f"{Kind(row['kind']).name} {name!r} {row}: {outcome}")
    for handle in handles.values():
        os.close(handle)
    return found


def _outcome(row: dict[str, int], name: bytes, other: bytes, handles: dict[int, int]) -> int:
    try:
        return _play(row, name, other, handles)
    except OSError as error:
        return -(error.errno or 0)


def _play(row: dict[str, int], name: bytes, other: bytes, handles: dict[int, int]) -> int:
    slot, kind = row["slot"], Kind(row["kind"])
    if kind in (Kind.OPEN, Kind.CREATE):
        assert slot not in handles, "a slot is opened twice"
        handles[slot] = os.open(name, _how(kind, Flag(row["flags"])), 0o644)
    elif kind == Kind.READ:
        return len(os.pread(handles[slot], row["size"], row["offset"]))
    elif kind == Kind.WRITE:
        return os.pwrite(handles[slot], bytes(max(row["result"], 0)), row["offset"])
    elif kind == Kind.CLOSE:
        os.close(handles.pop(slot))
    elif kind == Kind.FSYNC:
        os.fsync(handles[slot])
    elif kind == Kind.TRUNCATE:
        os.ftruncate(handles[slot], row["offset"])
    elif kind == Kind.RENAME:
        os.rename(name, other)  # noqa: PTH104
    else:
        calls = {
            Kind.STAT: os.lstat,
            Kind.UNLINK: os.unlink,
            Kind.MKDIR: os.mkdir,
            Kind.RMDIR: os.rmdir,
            Kind.READDIR: os.listdir,
        }
        calls[kind](name)
    return 0


def _how(kind: Kind, flags: Flag) -> int:
    mode = next((mode for flag, mode in MODES.items() if flag & flags), os.O_RDWR)
    mode |= os.O_TRUNC if flags & Flag.TRUNCATE else 0
    if kind == Kind.CREATE:
        mode |= os.O_CREAT | (os.O_EXCL if flags & Flag.EXCLUSIVE else 0)
    return mode
