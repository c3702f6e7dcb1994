"""A counter that the ranks of a node share: each of 0, 1, 2, ... is handed out once.

It is eight bytes of a file without a name, changed under a lock: that needs nothing of MPI, no
rank has to answer for another, and nothing is left of it when the ranks end, however they do.
"""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fsmatrix.backends.system.workfolder import work_folder
from fsmatrix.suite.session.comm import Comm

BYTES = 8


@contextmanager
def taking_turns(node: int, comm: Comm) -> Iterator[Callable[[], int]]:
    """What gives this rank the next number of its node; called by all ranks of `comm`.

    `node`: index of the node that this rank is on.  OSError if the ranks of a node share no
    folder for temporary files, or if that has no locks.
    """
    if comm.size == 1:
        yield itertools.count().__next__
        return
    first = comm.bcast(comm.gather(node)).index(node)
    with ExitStack() as named:
        path = ""
        if comm.rank == first:
            path = str(named.enter_context(work_folder()) / "turns")
            Path(path).write_bytes(bytes(BYTES))
        paths = comm.bcast(comm.gather(path))
        file = os.open(paths[first], os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        comm.barrier()  # all have it open: its name is not needed any more
    try:
        yield lambda: next_turn(file)
    finally:
        os.close(file)


def next_turn(file: int) -> int:
    """Take a number.  Every process needs an open of its own: the lock belongs to it."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        turn = int.from_bytes(os.pread(file, BYTES, 0), "little")
        os.pwrite(file, (turn + 1).to_bytes(BYTES, "little"), 0)
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
    return turn
