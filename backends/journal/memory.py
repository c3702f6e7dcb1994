"""Limits of memory: a cgroup of our own, journalled before it is made, and removed again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.journal.proof import (
    PREFIX,
    Facts,
    Kind,
    NotProvenOurs,
    OwnershipScope,
    Stage,
)
from fsmatrix.backends.system.cgroups import memory
from fsmatrix.backends.system.cgroups.throttle import remove

KIND = "memory-limit"
PATIENCE = 10.0  # seconds for killed processes to leave a cgroup
_NAME = re.compile(rf"{PREFIX}memory-(?P<uuid>[0-9a-f-]{{36}})")


@contextmanager
def limited(size: int, journal: Journal) -> Iterator[Path]:
    """A cgroup of `size` bytes of memory, page cache included; empty when this ends.

    BackendError if it cannot be made, or stays because a process in it does not end.
    """
    folder = memory.parent() / f"{PREFIX}memory-{journal.identity.new_uuid()}"
    entry = journal.begin(KIND, path=str(folder))
    try:
        yield memory.make(folder, size)
    finally:
        if reason := remove(folder, PATIENCE):
            raise BackendError(reason)
        journal.end(entry)


def prove(facts: Facts, ground: OwnershipScope) -> None:
    """A cgroup where the kernel has them, with a name that this store has drawn."""
    path = Path(str(facts["path"]))
    root = memory.hierarchy().root
    if not path.is_relative_to(root) or path.resolve() != path:
        raise NotProvenOurs(f"{path} is no cgroup below {root}: not removed")
    name = _NAME.fullmatch(path.name)
    if name is None or not ground.identity.made_uuid(name["uuid"]):
        raise NotProvenOurs(f"{path} is no cgroup of this results directory: not removed")


def undo(facts: Facts, same_boot: bool) -> str:
    """Remove it; what runs in it is not ended here: it ends with who started it."""
    path = Path(str(facts["path"]))
    if not same_boot or not path.exists():
        return ""
    if reason := remove(path, PATIENCE):
        raise NotProvenOurs(reason)
    return f"removed cgroup {path}"


MEMORY_LIMIT = Kind(Stage.MOUNT, prove, undo, ends_with_boot=True)
