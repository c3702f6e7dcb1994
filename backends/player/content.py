"""What the player writes: a function of (seed, file name, offset), so that reads can be verified.

A file's bytes are those of a pool of 256 KiB that repeats, turned by a rotation of its own,
with a stamp of 8 bytes at the start of every block of 4096 bytes:

    key      = mix64(seed ^ fnv1a64(name))
    byte(o)  = pool[(o + (key mod 64) * 4096) mod 256 KiB]
    stamp(b) = mix64(key + b), little endian, at the bytes 4096 b .. 4096 b + 7

The pool is random by the seed; of each of its blocks a stated share, at the end, is zero
(compressible).  Rotation and stamps let the player write straight from a private copy of the
pool (two such copies for one operation stand one behind the other): nothing is copied and
the alignment that O_DIRECT needs is kept.  A misplaced, stale or foreign block shows in its
stamp.  The pool's size is a compromise: a compressor that looks back further than 256 KiB
finds repetition (btrfs looks at 128 KiB, lz4 at 64 KiB, ZFS at a record of 128 KiB unless told
otherwise), while a pool that does not stay in a processor's second-level cache costs a small
write to memory 1-2 %.  The generator is splitmix64 (Steele, Lea, Flood, OOPSLA 2014), the hash
FNV-1a.
This module is the reference; native/fsm_content.h does the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

POOL = 1 << 18
BLOCK = 4096
ROTATIONS = POOL // BLOCK
STAMP = 8
MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15

Bytes = npt.NDArray[np.uint8]


def mix64(value: int) -> int:
    """Finaliser of splitmix64: a bijection of 64-bit numbers that mixes all bits."""
    value &= MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def mix64_array(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """`mix64` of each element."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def fnv1a64(data: bytes) -> int:
    """FNV-1a of 64 bits."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def key_of(seed: int, name: bytes) -> int:
    """The key of a file's content."""
    return mix64((seed & MASK) ^ fnv1a64(name))


def make_pool(seed: int, fill_ratio: float = 0.0) -> Bytes:
    """The pool, uint8 [POOL]; the last `fill_ratio` of each block is zero.  ValueError."""
    if not 0 <= fill_ratio <= 1:
        raise ValueError(f"fill_ratio must lie between 0 and 1, not {fill_ratio}")
    start = mix64((seed & MASK) ^ _GOLDEN)
    counter = np.arange(1, POOL // 8 + 1, dtype=np.uint64) * np.uint64(_GOLDEN) + np.uint64(start)
    pool = mix64_array(counter).astype("<u8").view(np.uint8)
    zeros = int(BLOCK * fill_ratio)
    if zeros:
        pool.reshape(-1, BLOCK)[:, BLOCK - zeros :] = 0
    return pool


def extended(pool: Bytes, max_op_bytes: int) -> Bytes:
    """A private copy in which any `max_op_bytes` from any position in POOL are contiguous."""
    length = POOL + -(-max_op_bytes // BLOCK) * BLOCK + BLOCK
    return np.resize(pool, length)


def fill(pool: Bytes, key: int, offset: int, size: int) -> int:
    """Stamp an extended pool for bytes [offset, offset + size) of a file.

    Returns the position in the pool where those bytes start.
    """
    position = (offset + key % ROTATIONS * BLOCK) % POOL
    at = position - offset % BLOCK
    block = offset // BLOCK
    while at < position + size:
        stamp = mix64(key + block).to_bytes(STAMP, "little")
        pool[at : at + STAMP] = np.frombuffer(stamp, dtype=np.uint8)
        at += BLOCK
        block += 1
    return position


def expected(seed: int, name: bytes, offset: int, size: int, fill_ratio: float = 0.0) -> bytes:
    """The bytes [offset, offset + size) that the player writes to a file: the reference."""
    pool = make_pool(seed, fill_ratio)
    key = key_of(seed, name)
    first, last = offset // BLOCK, -(-(offset + size) // BLOCK)
    blocks = np.arange(first, last, dtype=np.uint64)
    rows = pool.reshape(-1, BLOCK)[(blocks.astype(np.int64) + key % ROTATIONS) % ROTATIONS]
    stamps = mix64_array(blocks + np.uint64(key))
    rows[:, :STAMP] = stamps.astype("<u8").view(np.uint8).reshape(-1, STAMP)
    start = offset - first * BLOCK
    return rows.tobytes()[start : start + size]
