"""Pages that a trace touches: unique ones, reuse distances, working sets, in bounded memory.

Pages are followed all at first.  Where there are too many, only those are followed whose hash
begins with some zero bits: a fair sample of pages, each with all its accesses, so that distances
within it, divided by the sampling rate, are those of the whole (spatial sampling, Waldspurger et
al., "Efficient MRC construction with SHARDS", FAST 2015; the rate falls as there).  What is
estimated from followed pages is a sum of 1 / rate (Horvitz and Thompson); misses are corrected by
the number of accesses, which is known for all pages (regression estimator; their SHARDS-adj is the
same with slope 0).  Of caches that hold few of the followed pages nothing is said.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import Integers, scrambled
from fsmatrix.results import histogram
from fsmatrix.results.evidence.trace import Frequent, PageReuse, Sizes
from fsmatrix.traces.trace_model import PAGE

# How often each number occurs, in bounded memory.


MOST_VALUES = 1 << 16  # told apart; beyond, values are rounded down to edges of histogram bins
FREQUENT, RARE = 5, 0.01  # sizes that are named, if they have this share


class Spectrum:
    """Counts of numbers from 0 to 2^31."""

    def __init__(self) -> None:
        self.exact = True
        self._values = np.empty(0, dtype=np.int64)
        self._counts = np.empty(0, dtype=np.int64)
        self._sum = 0
        self._least, self._most = 1 << 62, 0

    def add(self, values: Integers) -> None:
        """Count some more."""
        if not len(values):
            return
        self._sum += int(values.sum())
        self._least = min(self._least, int(values.min()))
        self._most = max(self._most, int(values.max()))
        self._merge(*np.unique(values, return_counts=True))

    def _merge(self, values: Integers, counts: Integers) -> None:
        values = np.concatenate([self._values, values])
        counts = np.concatenate([self._counts, counts])
        self.exact = self.exact and len(values) <= MOST_VALUES
        if not self.exact:
            values = histogram.lower_edges()[histogram.bin_of(values)]
        self._values, place = np.unique(values, return_inverse=True)
        self._counts = np.zeros(len(self._values), dtype=np.int64)
        np.add.at(self._counts, place, counts)

    def sizes(self) -> Sizes | None:
        """As evidence; None if nothing was counted."""
        total = int(self._counts.sum())
        if not total:
            return None
        reached = np.cumsum(self._counts)
        p50, p90, p99 = (
            int(self._values[np.searchsorted(reached, max(np.ceil(q * total - 1e-9), 1))])
            for q in (0.5, 0.9, 0.99)
        )
        bits = np.frexp(self._values.astype(np.float64))[1]
        often = np.argsort(-self._counts, kind="stable")[:FREQUENT]
        return Sizes(
            smallest=self._least,
            mean=self._sum / total,
            p50=p50,
            p90=p90,
            p99=p99,
            largest=self._most,
            exact=self.exact,
            frequent=tuple(
                Frequent(bytes=int(self._values[i]), operations=int(self._counts[i]))
                for i in often
                if self._counts[i] >= RARE * total
            ),
            by_bits=tuple(np.bincount(bits, self._counts).astype(int).tolist()),
        )


# Reuse distances of a sequence of pages, vectorised.


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


Hashes = npt.NDArray[np.uint64]
Reals = npt.NDArray[np.float64]

MOST_PAGES = 1 << 18  # followed at a time: 1 GiB
MOST_ACCESSES = 1 << 22  # at one rate; then it is halved if there are pages enough
LEAST_PAGES = 1 << 15
AT_ONCE = 1 << 17  # accesses looked at together, at least
GROUPS = 16  # of pages, by their hash, to see by how much estimates vary
PER_OCTAVE = 4  # cache sizes
LEAST_CACHE = 32  # followed pages that a cache must hold for its misses to be estimated


class Pages:
    """Takes reads and writes in the order of their issue."""

    def __init__(
        self, windows: int, most_pages: int = MOST_PAGES, most_accesses: int = MOST_ACCESSES
    ) -> None:
        self.accesses = 0
        self._most_pages, self._most_accesses = most_pages, most_accesses
        self._halvings = 0
        self._at_rate = 0  # accesses followed at this rate
        self._waiting: list[tuple[Hashes, Integers]] = []
        self._waits = 0
        # pages that are followed, in the order of their last accesses, and the windows of those
        self._live = np.empty(0, dtype=np.uint64)
        self._live_window = np.empty(0, dtype=np.int64)
        # weights of accesses by distance (in all pages); the last bin: never touched before
        self._weights = np.zeros((GROUPS, histogram.BINS + 1))
        self._unique_variance = 0.0
        self.working_set = np.zeros(windows)  # pages touched in each window
        self.new = np.zeros(windows)  # for the first time

    @property
    def rate(self) -> float:
        """Share of the pages that is followed."""
        return 0.5**self._halvings

    def add(self, file: Integers, offset: Integers, moved: Integers, window: Integers) -> None:
        """Operations that move bytes: 1 or more each."""
        first, last = offset // PAGE, (offset + moved - 1) // PAGE
        counts = last - first + 1
        self.accesses += int(counts.sum())
        ends = np.cumsum(counts)
        begin = 0
        while begin < len(counts):  # not all pages of long requests at once
            done = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, done + AT_ONCE, side="right")))
            part = slice(begin, end)
            self._take(file[part], first[part], counts[part], window[part])
            begin = end

    def _take(self, file: Integers, first: Integers, counts: Integers, window: Integers) -> None:
        of = np.repeat(np.arange(len(counts)), counts)
        page = first[of] + np.arange(len(of)) - (np.cumsum(counts) - counts)[of]
        files = scrambled(file.astype(np.uint64), 1)
        hashes = scrambled(page.astype(np.uint64) ^ files[of], 2)
        followed = self._follows(hashes)
        hashes, windows = hashes[followed], window[of][followed]
        if not len(hashes):
            return
        self._waiting.append((hashes, windows))
        self._waits += len(hashes)
        if self._waits >= max(AT_ONCE, len(self._live)):
            self._look()

    def _follows(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        if not self._halvings:
            return np.ones(len(hashes), dtype=np.bool_)
        followed: npt.NDArray[np.bool_] = hashes >> np.uint64(64 - self._halvings) == 0
        return followed

    def _look(self) -> None:
        """Distances of what waits, after the last accesses of all pages."""
        if not self._waiting:
            return
        old = len(self._live)
        pages = np.concatenate([self._live, *(pages for pages, _ in self._waiting)])
        window = np.concatenate([self._live_window, *(windows for _, windows in self._waiting)])
        self._waiting.clear()
        self._at_rate, self._waits = self._at_rate + self._waits, 0
        before = previous(pages)
        self._count(pages[old:], distances(before)[old:])
        new = before[old:] == NEVER
        fresh = new | (window[before[old:]] < window[old:])
        weight = 1 / self.rate
        windows = len(self.new)
        self.new += weight * np.bincount(window[old:][new], minlength=windows)
        self.working_set += weight * np.bincount(window[old:][fresh], minlength=windows)
        self._unique_variance += np.count_nonzero(new) * (1 - self.rate) * weight**2
        last = np.ones(len(pages), dtype=np.bool_)
        last[before[before != NEVER]] = False
        self._live, self._live_window = pages[last], window[last]
        while self._too_many():
            self._halvings += 1
            self._at_rate = 0
            kept = self._follows(self._live)
            self._live, self._live_window = self._live[kept], self._live_window[kept]

    def _too_many(self) -> bool:
        long = self._at_rate > self._most_accesses and len(self._live) >= 2 * LEAST_PAGES
        return long or len(self._live) > self._most_pages

    def _count(self, pages: Hashes, distance: Integers) -> None:
        bins = np.full(len(pages), histogram.BINS)
        again = distance != NEVER
        bins[again] = histogram.bin_of(distance[again] << self._halvings)
        group = (pages % np.uint64(GROUPS)).astype(np.int64)
        counts = np.bincount(group * (histogram.BINS + 1) + bins, minlength=self._weights.size)
        self._weights += counts.reshape(self._weights.shape) / self.rate

    # -- what came of it -------------------------------------------------------------------
    def reuse(self) -> PageReuse | None:
        """As evidence; None if no page was touched."""
        self._look()
        if not self.accesses:
            return None
        unique = float(self.new.sum())
        cache = _cache_sizes(unique)
        least = LEAST_CACHE << self._halvings if self._halvings else 0
        cache = cache[cache >= least]
        misses, error = self._misses()
        at = histogram.bin_of(cache)
        p10, p50, p90 = (_distance(misses, q, least) for q in (0.1, 0.5, 0.9))
        return PageReuse(
            page_bytes=PAGE,
            accesses=self.accesses,
            unique=unique,
            unique_error=float(np.sqrt(self._unique_variance)),
            followed=len(self._live),
            rate=self.rate,
            cache_bytes=tuple((cache * PAGE).tolist()),
            miss_ratio=tuple(misses[at].tolist()),
            miss_ratio_error=tuple(error[at].tolist()),
            distance_p10=p10,
            distance_p50=p50,
            distance_p90=p90,
        )

    def _misses(self) -> tuple[Reals, Reals]:
        """Miss ratio of a cache as large as each bin's lower edge, and its error.

        Missed is what has that distance or a larger one, or is touched first; the last entry is
        the latter alone.  Errors: of which pages are followed (over groups of them), and of
        distances, in which a cache of c pages is seen as a binomial number of followed ones.
        """
        by_group = np.cumsum(self._weights[:, ::-1], axis=1)[:, ::-1]
        misses = by_group.sum(axis=0) / self.accesses
        if not self._halvings:
            return misses, np.zeros(len(misses))
        by_group /= self.accesses
        # the true number of accesses is known: what is off in theirs is off in misses by a slope
        apart = by_group[:, 0] - by_group[:, 0].mean()
        slope = apart @ by_group / max(float(apart @ apart), 1e-300)
        misses = np.clip(misses - slope * (misses[0] - 1), 0, 1)
        left = by_group - by_group.mean(axis=0) - np.outer(apart, slope)
        sampled = np.sqrt((left**2).sum(axis=0) / (GROUPS - 2) * GROUPS)
        edges = histogram.lower_edges()
        off = np.sqrt((1 - self.rate) * np.maximum(edges, 1) / self.rate)  # pages
        shift = np.interp(edges - off, edges, misses[:-1]) - np.interp(
            edges + off, edges, misses[:-1]
        )
        return misses, np.hypot(sampled, np.append(shift / 2, 0))


def _distance(misses: Reals, q: float, least: int) -> float | None:
    """Bytes below which a share `q` of the distances stay; None below `least` pages, or of none."""
    again = 1 - misses[-1]
    if again <= 0:
        return None
    within = int(np.argmax(1 - misses[1:] >= q * again * (1 - 1e-12)))
    edge = int(histogram.lower_edges()[within])
    return float(edge * PAGE) if edge >= least else None


def _cache_sizes(unique: float) -> Integers:
    """Pages: 1 to the first size that holds all, some in each octave, edges of bins."""
    most = int(np.ceil(np.log2(max(unique, 1)))) * PER_OCTAVE
    sizes = histogram.bin_of(np.rint(2 ** (np.arange(most + 1) / PER_OCTAVE)).astype(np.int64))
    return np.unique(histogram.lower_edges()[sizes])
