"""What is random in a transaction, drawn from its seed as the functions of transactions.sql do.

The same seed gives the same numbers as PostgreSQL's `hashint8extended`: Bob Jenkins' lookup3
(public domain), here for all numbers of a transaction at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.suite.oltp.rows import SYLLABLES, Constants

Words = npt.NDArray[np.uint32]
FEW, MANY = 16, 256  # numbers that a transaction draws at most: a payment; an order of 15 lines
_START = np.uint32((0x9E3779B9 + 4 + 3923095) & 0xFFFFFFFF)
_MIX = (4, 6, 8, 16, 19, 4)
_FINAL = (14, 11, 25, 16, 4, 14, 24)


def _turned(word: Words, bits: int) -> Words:
    return (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))


def hashes(seed: int, size: int) -> list[int]:
    """hashint8extended(k, seed) without its sign bit, for k from 0 to size - 1; seed > 0."""
    a, b, c = (np.full(1, _START, np.uint32) for _ in range(3))
    a, b = a + np.uint32(seed >> 32), b + np.uint32(seed & 0xFFFFFFFF)
    for bits in _MIX:  # three words take turns
        a = (a - c) ^ _turned(c, bits)
        c = c + b
        a, b, c = b, c, a
    k = np.arange(size, dtype=np.uint32)
    a, b, c = a + k, b + np.zeros_like(k), c + np.zeros_like(k)
    for bits in _FINAL:
        c = (c ^ b) - _turned(b, bits)
        a, b, c = b, c, a
    # after seven turns the words have moved by one place
    b, c = a, b
    whole = (b.astype(np.uint64) << np.uint64(32)) | c
    return [int(value) for value in whole & np.uint64(0x7FFFFFFFFFFFFFFF)]


@dataclass(frozen=True)
class Draws:
    """The numbers of one transaction."""

    hashes: list[int]
    constants: Constants
    warehouses: int

    @classmethod
    def of(cls, seed: int, size: int, constants: Constants, warehouses: int) -> Draws:
        """Those of a seed, of which `size` at most are asked for."""
        return cls(hashes(seed, size), constants, warehouses)

    def draw(self, k: int, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        return low + self.hashes[k] % (high - low + 1)

    def nurand(self, k: int, a: int, x: int, y: int, c: int) -> int:
        """Non-uniform, clause 2.1.6."""
        return ((self.draw(k, 0, a) | self.draw(k + 1, x, y)) + c) % (y - x + 1) + x

    def last_name(self, k: int) -> str:
        """Of a customer who is looked for."""
        n = self.nurand(k, 255, 0, 999, self.constants.last_run)
        return "".join(SYLLABLES[digit] for digit in (n // 100, n // 10 % 10, n % 10))

    def elsewhere(self, k: int, home: int) -> int:
        """Another warehouse than `home`; `home` if there is no other."""
        if self.warehouses == 1:
            return home
        return (home + self.draw(k, 1, self.warehouses - 1) - 1) % self.warehouses + 1
