"""Reuse distances of a sequence of pages, vectorised."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.mixing import Integers

NEVER = -1  # no access before


def previous(pages: npt.NDArray[np.uint64]) -> Integers:
    """Position of the access before to the same page, for each; NEVER for the first."""
    order = np.argsort(pages, kind="stable")
    again = np.flatnonzero(pages[order[1:]] == pages[order[:-1]])
    before = np.full(len(pages), NEVER, dtype=np.int64)
    before[order[again + 1]] = order[again]
    return before


def distances(before: Integers) -> Integers:
    """How many other pages lie between each access and the one before to its page.

    NEVER where there is none.  With p = before[i], each other page after p is counted at its
    first access j there, which has before[j] < p; all accesses up to p have that too.  So the
    distance is the number of j < i with before[j] <= p, less the p + 1 of them up to p.
    """
    again = before != NEVER
    firsts = len(before) - np.count_nonzero(again)
    # numbers 0..n-1 in the order of `before`; first accesses have the smallest
    number = np.empty(len(before), dtype=np.int64)
    number[~again] = np.arange(firsts)
    followed = np.zeros(len(before), dtype=np.int64)
    followed[before[again]] = 1
    number[again] = firsts - 1 + np.cumsum(followed)[before[again]]
    ranks = smaller_before(number)
    ranks[again] -= before[again] + 1
    ranks[~again] = NEVER
    return ranks


def smaller_before(numbers: Integers) -> Integers:
    """For each of a permutation of 0..n-1: how many smaller ones stand before it.

    By bits from the highest (the levels of a wavelet tree): among numbers alike in the bits above,
    one with this bit set has those without it, that stand before it, as smaller ones.  What is
    alike so far stands together, from the place of its smallest number on; within it the order
    stays.  O(n log n).
    """
    n = len(numbers)
    count = np.zeros(n, dtype=np.int32)
    now, where = numbers.astype(np.int32), np.arange(n, dtype=np.int32)
    place = np.arange(n, dtype=np.int32)
    for bit in reversed(range(max(n - 1, 0).bit_length())):
        half = np.int32(1 << bit)
        upper = (now & half) != 0
        begin = now & np.int32(-2 << bit)  # of what is alike in the bits above
        lower_before = np.cumsum(~upper, dtype=np.int32)
        # up to and with this place; before `begin` half of all numbers have this bit clear
        lower_before -= begin >> 1
        count[upper] += lower_before[upper]
        target = np.where(upper, half + place - lower_before, begin + lower_before - 1)
        for array in (now, where, count):
            array[target] = array.copy()
    result = np.empty(n, dtype=np.int64)
    result[where] = count
    return result
