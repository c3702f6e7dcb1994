"""The op stream: one idea for all built-in work.

A chunk is a numpy structured array of operations and the names of the files that it
touches.  Files are numbered slots; a slot keeps its open handle from chunk to chunk until
it is closed.  A chunk may rename a range of slots that are not open.  Within a stream the
order is kept; between streams there is no order (threads take whole streams).  Or a chunk is
a queue that all threads share: then there is no order but within a batch.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


class Kind(enum.IntEnum):
    """Kinds of operations; the numbers are part of the trace format."""

    OPEN = 0
    CREATE = 1
    READ = 2
    WRITE = 3
    FSYNC = 4
    CLOSE = 5
    STAT = 6
    UNLINK = 7
    MKDIR = 8
    RMDIR = 9
    RENAME = 10
    TRUNCATE = 11
    READDIR = 12
    EVICT = 13  # drop the file's clean pages from the page cache; its time counts as overhead


DATA_KINDS = frozenset({Kind.READ, Kind.WRITE})


class Flag(enum.IntFlag):
    """How an operation is done; the flags of one operation can be combined."""

    DIRECT = 1  # open, create: O_DIRECT
    DSYNC = 2  # open, create: O_DSYNC
    EXCLUSIVE = 4  # create: fail if it exists
    TRUNCATE = 8  # open, create: O_TRUNC
    READ_ONLY = 16  # open: O_RDONLY (otherwise O_RDWR)
    WRITE_ONLY = 32  # open, create: O_WRONLY
    VERIFY = 64  # read: compare every byte with what was written
    DATA_ONLY = 128  # fsync: fdatasync


OP = np.dtype(
    [
        ("kind", "u1"),
        ("flags", "u1"),
        ("stream", "<u2"),
        ("file", "<u4"),
        ("file2", "<u4"),  # rename: the slot that names the new path
        ("offset", "<u8"),
        ("size", "<u4"),  # bytes of a read or write (at most 1 GiB)
        ("time", "<u8"),  # intended issue time, ns after the phase's start; 0 = at once
    ],
    align=True,
)
MAX_OP_BYTES = 1 << 30
UNKNOWN = int(np.iinfo(np.int64).min)  # result of an operation that was not executed

OUTCOME = np.dtype(
    [
        ("start", "<u8"),  # ns after the player's origin, at least 1; 0: not executed
        ("duration", "<u8"),  # ns
        ("result", "<i8"),  # bytes moved (a short read too); -errno, -EVERIFY; UNKNOWN
    ],
    align=True,
)


@dataclass(frozen=True)
class Chunk:
    """Operations, and new names for slots first..first+len(names)-1 if names are given.

    Names are paths relative to the root of the access, without leading slash.

    `outcomes`: an array that play() fills in, one for each operation.  It waits for what it
    began of such a chunk, so that with a depth above 1 the queue runs dry at the chunk's end.
    What play() did not execute stays UNKNOWN there; when the time is over, the session does not
    play what is left of such a chunk, since its generator knows.

    `batch`: above 0 the chunk is a queue that the threads share.  Each takes that many
    operations, which follow one another, until none is left; `stream` means nothing, and
    there is no order between batches.
    """

    ops: npt.NDArray[Any]  # dtype OP, [operation]
    names: Sequence[bytes] = ()
    first: int = 0
    outcomes: npt.NDArray[Any] | None = None  # dtype OUTCOME, [operation]
    batch: int = 0  # operations


@dataclass(frozen=True)
class Place:
    """Where a rank stands in a run: what a generator needs to make its own part."""

    rank: int
    ranks: int
    node: int
    nodes: int
    threads: int
    seed: int  # of the run: campaign seed, case, repetition and attempt mixed
    # with Stream.shared_queue: hands out 0, 1, 2, ... once each over the step's ranks of this node
    turn: Callable[[], int] | None = None


# What a generator of chunks is: it yields chunks and is sent True when its time is over; it
# then ends its data operations and yields only what closes the files (fsync, close).
Chunks = Generator[Chunk, bool | None, None]
# What a generator counted: a whole number, or an array of them, for each name.  Over the ranks
# they are added up; where the name ends in "_max" the largest is taken, element by element.
Tallies = Mapping[str, int | npt.NDArray[np.int64]]
# A generator that counts returns that when it ends.
CountingChunks = Generator[Chunk, bool | None, Tallies]
