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
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

# Numbers that look random and can be had again: hashes and permutations, vectorised.
#
# They depend on nothing but their arguments: the same on every machine and with every numpy.


Integers = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
_MASK = (1 << 64) - 1
_ROUNDS = 4


def mix(*values: int) -> int:
    """64 bits that depend on every value and on their order (SplitMix64's finaliser)."""
    state = 0x9E3779B97F4A7C15
    for value in values:
        state = (state ^ (value & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


def salt(text: str) -> int:
    """A number for a text, to be mixed with others; texts up to any length."""
    return mix(*text.encode())


def scrambled(value: npt.NDArray[np.uint64], key: int) -> npt.NDArray[np.uint64]:
    """64 bits for each value, all different for different values (SplitMix64)."""
    state = value * np.uint64(0x9E3779B97F4A7C15)  # arrays wrap around, scalars warn
    state += np.uint64(key & _MASK)
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return state


def drawn(index: Integers, n: int, key: int) -> Integers:
    """Independent draws from 0..n-1, with replacement; one for each index."""
    state = scrambled(np.atleast_1d(index).astype(np.uint64), key)
    if n <= 1 << 32:  # multiply and shift: no division
        state = (state >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)
    else:
        state %= np.uint64(n)
    return state.astype(np.int64).reshape(np.shape(index))


def permuted(index: Integers, n: int, key: int) -> Integers:
    """Images of `index` (each in 0..n-1) under a permutation of 0..n-1 chosen by `key`.

    A bijection on the next power of two (rounds of: xor with a key, multiply by an odd
    number, xor with the upper half shifted down), applied again to what falls beyond n
    (cycle walking, Black and Rogaway 2002).  Memory: that of `index`, whatever n is.
    """
    if n <= 1:
        return np.zeros_like(index)
    bits = max(4, (n - 1).bit_length())
    rounds = _rounds(bits, key)
    unsigned: Unsigned = index.astype(np.uint32) if bits <= 32 else index.astype(np.uint64)
    image = _bijection(unsigned, bits, rounds)
    beyond = np.flatnonzero(image >= n)
    walking = image[beyond]
    while beyond.size:
        walking = _bijection(walking, bits, rounds)
        image[beyond] = walking  # what is beyond still is overwritten in the next turn
        again = np.flatnonzero(walking >= n)
        beyond, walking = beyond[again], walking[again]
    return image.astype(np.int64)


@lru_cache(maxsize=64)
def _rounds(bits: int, key: int) -> tuple[tuple[int, int], ...]:
    """What each round xors with, and the odd number that it multiplies by."""
    words = [mix(key, number) for number in range(_ROUNDS)]
    mask = (1 << bits) - 1
    return tuple((word & mask, (mix(word) | 1) & mask) for word in words)


def _bijection(value: Unsigned, bits: int, rounds: tuple[tuple[int, int], ...]) -> Unsigned:
    """One bijection of 0..2**bits-1, in place."""
    unsigned = value.dtype.type
    mask, shift = unsigned((1 << bits) - 1), unsigned((bits + 1) // 2)
    whole = bits == 8 * value.dtype.itemsize
    shifted = np.empty_like(value)
    for word, odd in rounds:
        value ^= unsigned(word)
        value *= unsigned(odd)
        if not whole:
            value &= mask
        np.right_shift(value, shift, out=shifted)
        value ^= shifted
    return value


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
    due: int = 0  # operations that have a time, where the generator counts them (open loops)


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


# What each driver of the player can do, as data: planning compares it with what is needed.
#
# Drivers are C and come with fsmatrix only: one file in native/, one line in native/module.c and
# one here.  They are compiled into the player, whose inner loop calls them.


ALL_KINDS = frozenset(kind.name.lower() for kind in Kind)
NO_DIRECTORIES = ALL_KINDS - {"mkdir", "rmdir", "rename", "readdir"}


@dataclass(frozen=True)
class Driver:
    """Operation kinds (lower-case names of ops.Kind) and operations in flight per thread.

    `depth_by`: who keeps operations in flight: nobody, the kernel, the storage's own library
    ("library"), or that many threads of the driver, each in a call that waits ("threads").
    """

    name: str
    kinds: frozenset[str] = ALL_KINDS
    max_depth: int = 1
    depth_by: Literal["nobody", "kernel", "library", "threads"] = "nobody"
    longest_path: int = 4095  # bytes, of a name below the place it works in
    native: bool = False  # the Python player does not have it
    shared: bool = False  # one process connects, the others join it (Player.share)


# Who carries out the operations of a stream, in a workload's words.  auto: the target's own driver
# (on paths posix); on paths also these, with "or" by posix where io_uring cannot be had.
Io = Literal["auto", "uring", "uring-sqpoll", "uring-or-posix"]
IO_DRIVERS: Mapping[str, str] = {
    "uring": "uring",
    "uring-sqpoll": "uring-sqpoll",
    "uring-or-posix": "uring",
}
OR_POSIX: Io = "uring-or-posix"


def driver_of(io: Io, own: str) -> str:
    """Name of the driver that is meant on a target with the driver `own`."""
    return IO_DRIVERS.get(io, own)


DRIVERS: dict[str, Driver] = {
    driver.name: driver
    for driver in (
        Driver("posix"),
        Driver("uring", max_depth=1024, depth_by="kernel", native=True),
        Driver("uring-sqpoll", max_depth=1024, depth_by="kernel", native=True),
        Driver("null"),
        Driver(
            "rados",
            NO_DIRECTORIES,
            max_depth=1024,
            depth_by="library",
            native=True,
            longest_path=2048 - len(".0123456789abcdef"),  # osd_max_object_name_len by default
        ),
        Driver("cephfs", max_depth=128, depth_by="threads", native=True),
        Driver("dfs", max_depth=1024, depth_by="library", native=True, shared=True),
    )
}
