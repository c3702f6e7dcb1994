"""The four workloads of the page-cache study (results/published/page-cache-workloads.csv).

What was printed of each is kept at every scale: operations, unique pages, sizes.  What was not
printed is chosen here, and said with each function.  Any block of a trace comes from a seed, in
constant memory.  They are generated in ranks: numpy and the standard library only.
"""

from __future__ import annotations

import bisect
import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

import fsmatrix.results
from fsmatrix.backends.player.ops import Flag, Integers, Kind, drawn, mix, permuted, salt
from fsmatrix.traces.trace_model import BLOCK, COLUMNS, NOT_CAPTURED, PAGE, Columns, Files, Header

# Draws that depend on their index alone: uniform, Zipfian, and sizes of a given mean.
#
# Positions of the same trace agree on one machine and numpy; another library of logarithms may
# round one draw in 10^8 to a neighbour.


Reals = npt.NDArray[np.float64]
_DIGITS = 1 << 53
_BINS = 200_000  # of ranks, for sums over all of them; those below about 10^4 are exact


def uniform(index: Integers, key: int) -> Reals:
    """Independent draws from [0, 1), one for each index."""
    return drawn(index, _DIGITS, key) / _DIGITS


@dataclass(frozen=True)
class Zipf:
    """P(rank k) ~ k^-exponent, k = 1 ... n; exponent other than 1.

    Drawn by rejection-inversion (Hörmann and Derflinger, ACM TOMACS 6(3), 1996): exact, and
    without a table of n entries.
    """

    n: int
    exponent: float

    def ranks(self, index: Integers, key: int) -> Integers:
        """A rank for each index; the most frequent one is 0."""
        lowest, highest = float(self._area(np.array(1.5))) - 1, float(self._area(self.n + 0.5))
        # below this distance from a rank every draw is accepted
        near = 2 - float(self._position(self._area(np.array(2.5)) - 2.0**-self.exponent))
        ranks = np.ones(len(index), dtype=np.int64)
        open_, turn = np.arange(len(index)), 0
        while len(open_):
            area = highest + uniform(index[open_], mix(key, turn)) * (lowest - highest)
            at = self._position(area)
            rank = np.clip(np.floor(at + 0.5), 1, self.n)
            taken = (rank - at <= near) | (area >= self._area(rank + 0.5) - rank**-self.exponent)
            ranks[open_[taken]] = rank[taken]
            open_, turn = open_[~taken], turn + 1
        return ranks - 1

    def untouched(self, draws: int) -> float:
        """Expected share of the n ranks that `draws` draws leave out."""
        edges = np.unique(np.rint(np.geomspace(1, self.n + 1, _BINS)))
        width, middle = np.diff(edges), (edges[:-1] + edges[1:] - 1) / 2
        weight = middle**-self.exponent
        share = weight / (weight @ width)
        return float(np.exp(draws * np.log1p(-np.minimum(share, 1 - 1e-12))) @ width / self.n)

    def _area(self, x: Reals | float) -> Reals:
        """Integral of t^-exponent from 1 to x."""
        power = 1 - self.exponent
        return np.asarray(np.expm1(power * np.log(x)) / power)

    def _position(self, area: Reals) -> Reals:
        """The x that has this area."""
        power = 1 - self.exponent
        return np.asarray(np.exp(np.log1p(power * area) / power))


@dataclass(frozen=True)
class Sizes:
    """n whole numbers from least to most, most of them small, with a given sum.

    The n quantiles 0, 1/(n-1), ... 1 of a bounded Pareto distribution, each once and in random
    order: least, most and mean are those wanted for every n, which independent draws of so heavy
    a tail are not (for 57 bytes of up to 1 MB: 1 % off with 2e7 draws, 12 % with 2e5).
    """

    n: int
    least: int
    most: int
    mean: float

    def of(self, index: Integers, key: int) -> Integers:
        """Sizes of operations 0 ... n-1."""
        share = permuted(index, self.n, key) / max(self.n - 1, 1)
        shape = _shape(self)
        left = 1 - share + share * (self.least / self.most) ** shape
        sizes = self.least * left ** (-1 / shape)
        whole: Integers = np.minimum(sizes * (1 + 1e-12), self.most).astype(np.int64)
        return whole


@lru_cache(maxsize=16)
def _shape(sizes: Sizes) -> float:
    """Shape of the Pareto distribution whose quantiles have the mean, by bisection.

    The sum of whole numbers is the sum, over s, of how many are s or more.
    """
    logs = np.log(np.arange(sizes.least + 1, sizes.most + 1) / sizes.least)
    low, high = 1e-3, 16.0
    for _ in range(28):
        shape = (low + high) / 2
        share = np.expm1(-shape * logs) / np.expm1(-shape * logs[-1]) if len(logs) else logs
        above = sizes.n - np.ceil(share * (sizes.n - 1))
        mean = sizes.least + float(above.sum()) / sizes.n
        low, high = (shape, high) if mean > sizes.mean else (low, shape)
    return high


# A trace that is made, not captured: every operation follows from its position alone.


Make = Callable[[Integers], Columns]


@dataclass(frozen=True)
class Generated:
    """As model.Operations.  Any block can be made without those before it.

    Each slot is opened by its thread first (position = slot) and closed at the end; between
    stand the reads and writes, which `make` gives for their numbers (0, 1, ...): columns kind,
    slot, offset and size.  Thread t has slot t.
    """

    header: Header
    files: Files
    slots: npt.NDArray[np.uint32]
    threads: npt.NDArray[np.uint64]
    transfers: int  # reads and writes
    read_only: bool
    make: Make

    @property
    def operations(self) -> int:
        """Opens, transfers and closes."""
        return self.transfers + 2 * len(self.slots)

    def blocks(
        self,
        columns: Sequence[str] = tuple(COLUMNS),
        first: int = 0,
        stop: int | None = None,
        block: int = BLOCK,
    ) -> Iterator[Columns]:
        """Operations first, first + 1, ... stop - 1, `block` of them at a time."""
        stop = self.operations if stop is None else min(stop, self.operations)
        for begin in range(first, stop, block):
            whole = self._block(begin, min(begin + block, stop))
            yield {name: whole[name] for name in columns}

    def _block(self, begin: int, end: int) -> dict[str, npt.NDArray[np.generic]]:
        slots, count = len(self.slots), end - begin
        values = {name: np.zeros(count, dtype) for name, dtype in COLUMNS.items()}
        position = np.arange(begin, end, dtype=np.int64)
        opens, closes = position < slots, position >= slots + self.transfers
        made = self.make(position[~(opens | closes)] - slots)
        for name, numbers in made.items():
            values[name][~(opens | closes)] = numbers
        values["kind"][opens] = Kind.OPEN
        values["flags"][opens] = Flag.READ_ONLY if self.read_only else 0
        values["slot"][opens] = position[opens]
        values["kind"][closes] = Kind.CLOSE
        values["slot"][closes] = position[closes] - slots - self.transfers
        values["thread"][:] = values["slot"]
        values["time"][:] = position  # only the order means something
        values["latency"][:] = NOT_CAPTURED
        values["result"][:] = values["size"]  # all of it is there
        return values


# The published workloads in numbers: results/published/page-cache-workloads.csv, by workload.


TABLE = Path(fsmatrix.results.__file__).parent / "published" / "page-cache-workloads.csv"
EVERY = "all"  # workload of what holds for each


@dataclass(frozen=True)
class Published:
    """Quantities of one workload: counts of operations and pages, bytes of a request."""

    values: Mapping[str, float]
    doubts: Mapping[str, str]  # quantity -> "guess" or "assumed", and why

    def __getitem__(self, quantity: str) -> float:
        return self.values[quantity]

    def count(self, quantity: str, scale: float = 1.0) -> int:
        """A number of operations, pages, items at a scale; at least 1, 0 if there are none."""
        value = self.values.get(quantity, 0)
        return max(1, round(value * scale)) if value else 0


@cache
def published(workload: str) -> Published:
    """KeyError for a workload that is not in the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["workload"] in (workload, EVERY)]
    if all(row["workload"] == EVERY for row in rows):
        raise KeyError(workload)
    return Published(
        {row["quantity"]: float(row["value"]) for row in rows},
        {
            row["quantity"]: f"{row['restored']}: {row['note']}"
            for row in rows
            if row["restored"] in ("guess", "assumed")
        },
    )


MOST_SCALE = 100.0  # 4e9 operations; products of items and pages stay below 2^63


def uniform_random(data: Published, scale: float, key: int) -> tuple[int, Make]:
    """Pages of the file and reads: each page once, the bytes anywhere in it."""
    reads, size = data.count("reads", scale), int(data["request_bytes"])

    def make(number: Integers) -> Columns:
        page = permuted(number, reads, mix(key, 1))
        within = (uniform(number, mix(key, 2)) * (PAGE - size + 1)).astype(np.int64)
        return {
            "kind": np.full(len(number), Kind.READ),
            "offset": page * PAGE + within,
            "size": np.full(len(number), size),
        }

    return reads, make


def ycsb_zipfian(data: Published, scale: float, key: int) -> tuple[int, Make]:
    """Reads of whole pages; the items behind them have Zipfian popularity.

    An item lies on one page, as many items on each as give the printed number of unique pages
    (2.7 at scale 1), popular ones anywhere (YCSB's scrambling).  Each read is a draw of its own;
    that MemcacheDB reads the inner pages of its tree again and again was not printed.
    """
    reads, items = data.count("reads", scale), data.count("items", scale)
    size = int(data["request_bytes"])
    zipf = Zipf(items, data["zipfian_constant"])
    pages = item_pages(items, zipf.untouched(reads), data.count("unique_pages", scale))

    def make(number: Integers) -> Columns:
        item = permuted(zipf.ranks(number, mix(key, 1)), items, mix(key, 2))
        return {
            "kind": np.full(len(number), Kind.READ),
            "offset": item * pages // items * PAGE,
            "size": np.full(len(number), size),
        }

    return pages, make


def neo4j_dijkstra(data: Published, scale: float, key: int) -> tuple[int, Make]:
    """Small reads of very unequal sizes, and a few writes at equal distances.

    Sizes: a bounded Pareto distribution (draws.Sizes); where few operations leave no room for
    the largest, it is one with a quarter of all bytes.  Where a read begins was not printed:
    anywhere, so that caches find less in it than in a search that follows edges.
    """
    reads, writes = data.count("reads", scale), data.count("writes", scale)
    count, mean = reads + writes, data["request_bytes_mean"]
    pages = covered_pages(count, mean, data.count("unique_pages", scale))
    most = min(int(data["request_bytes_max"]), max(round(mean * count / 4), math.ceil(mean)))
    sizes = Sizes(count, int(data["request_bytes_min"]), most, mean)

    def make(number: Integers) -> Columns:
        size = sizes.of(number, mix(key, 1))
        written = (number + 1) * writes // count > number * writes // count
        return {
            "kind": np.where(written, Kind.WRITE, Kind.READ),
            "offset": _anywhere(number, size, pages, mix(key, 2)),
            "size": size,
        }

    return pages, make


def synapse_labelling(data: Published, scale: float, key: int) -> tuple[int, Make]:
    """Unaligned writes by threads in turn.  Sizes: all between two bounds are as frequent.

    Where a write begins was not printed: anywhere.
    """
    writes = data.count("writes", scale)
    least, most = int(data["request_bytes_min"]), int(data["request_bytes_max"])
    pages = covered_pages(writes, (least + most) / 2, data.count("unique_pages", scale))
    threads = int(data["threads"])

    def make(number: Integers) -> Columns:
        size = least + (uniform(number, mix(key, 1)) * (most - least + 1)).astype(np.int64)
        size = np.minimum(size, pages * PAGE)
        return {
            "kind": np.full(len(number), Kind.WRITE),
            "slot": number % threads,
            "offset": _anywhere(number, size, pages, mix(key, 2)),
            "size": size,
        }

    return pages, make


WORKLOADS: Mapping[str, Callable[[Published, float, int], tuple[int, Make]]] = {
    "uniform-random": uniform_random,
    "ycsb-zipfian": ycsb_zipfian,
    "neo4j-dijkstra": neo4j_dijkstra,
    "synapse-labelling": synapse_labelling,
}
NAMES = tuple(WORKLOADS)


def generate(name: str, scale: float = 1.0, seed: int = 0) -> Generated:
    """A published workload; operations and pages are `scale` times those that were printed.

    The same name, scale and seed give the same operations.  ValueError for a name that is not
    in NAMES, or a scale that is not above 0 and at most MOST_SCALE.
    """
    if name not in WORKLOADS:
        raise ValueError(f"unknown published workload {name!r}: known are {', '.join(NAMES)}")
    if not 0 < scale <= MOST_SCALE:
        raise ValueError(f"scale {scale:g}: must be above 0 and at most {MOST_SCALE:g}")
    data = published(name)
    pages, make = WORKLOADS[name](data, scale, mix(salt(name), seed))
    threads = int(data.values.get("threads", 1))
    header = Header(
        source="generator",
        command=(name, f"--scale={scale:g}", f"--seed={seed}"),
        timed=False,
        facts={
            "workload": name,
            "scale": scale,
            "seed": seed,
            "published": dict(data.values),
            "doubts": dict(data.doubts),
        },
    )
    return Generated(
        header=header,
        files=Files.of([f"{name}.data".encode()], [pages * PAGE]),
        slots=np.zeros(threads, dtype=np.uint32),
        threads=np.array([(0, thread, 0) for thread in range(threads)], dtype=np.uint64),
        transfers=data.count("reads", scale) + data.count("writes", scale),
        read_only=not data.count("writes"),
        make=make,
    )


def covered_pages(operations: int, mean: float, unique: int) -> int:
    """Pages of a file of which operations that begin anywhere touch `unique`, as expected.

    An operation of s bytes touches 1 + (s - 1) / 4096 pages on average; a page of P is missed by
    t touches with probability exp(-t / P).
    """
    touches = operations * (1 + (mean - 1) / PAGE)
    return _smallest(lambda pages: -pages * math.expm1(-touches / pages), unique, 1 << 48)


def item_pages(items: int, untouched: float, unique: int) -> int:
    """Pages over which items are spread so that `unique` are touched, as expected.

    `untouched`: share of the items that no read draws.  At most a page for each item.
    """

    def expected(pages: int) -> float:
        on_each, more = divmod(items, pages)  # `more` pages have one item more
        alone = pages - more
        return pages - untouched**on_each * (alone + more * untouched)

    return _smallest(expected, unique, items)


def _smallest(expected: Callable[[int], float], wanted: int, most: int) -> int:
    """The smallest number of pages with which as many are expected as are wanted, or `most`."""
    return 1 + bisect.bisect_left(range(1, most), True, key=lambda n: expected(n) >= wanted)


def _anywhere(number: Integers, size: Integers, pages: int, key: int) -> Integers:
    return (uniform(number, key) * (pages * PAGE - size + 1)).astype(np.int64)
