"""Numbers that look random and can be had again: hashes and permutations, vectorised.

They depend on nothing but their arguments: the same on every machine and with every numpy.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

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
