"""The four workloads of the page-cache study (results/published/page-cache-workloads.csv).

What was printed of each is kept at every scale: operations, unique pages, sizes.  What was not
printed is chosen here, and said with each function.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping

import numpy as np

from fsmatrix.backends.player.mixing import Integers, mix, permuted, salt
from fsmatrix.backends.player.ops import Kind
from fsmatrix.traces.files import Files
from fsmatrix.traces.generators.draws import Sizes, Zipf, uniform
from fsmatrix.traces.generators.generated import Generated, Make
from fsmatrix.traces.generators.published import Published, published
from fsmatrix.traces.model import PAGE, Columns, Header

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
