"""The published workloads, made: their statistics, and that any block can be made alone."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fsmatrix.results
from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.traces.page_cache import (
    MOST_SCALE,
    NAMES,
    Generated,
    Sizes,
    Zipf,
    covered_pages,
    generate,
    item_pages,
)
from fsmatrix.traces.trace_model import COLUMNS, NOT_CAPTURED, Operations, problem
from tests import peak
from tests.waiting import PATIENCE

PAGE = 4096
# The table as it was printed, not as the generators read it.
PRINTED: dict[str, dict[str, float]] = {
    "uniform-random": {"reads": 10_485_760, "unique_pages": 10_485_760},
    "ycsb-zipfian": {"reads": 39_188_480, "unique_pages": 5_748_822},
    "neo4j-dijkstra": {"reads": 22_450_263, "writes": 113, "unique_pages": 1_086_955},
    "synapse-labelling": {"writes": 19_462_656, "unique_pages": 2_697_487},
}


def whole(trace: Operations, **options: Any) -> dict[str, npt.NDArray[Any]]:
    """All operations, as one array a column."""
    blocks = list(trace.blocks(**options))
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def transfers(trace: Operations) -> dict[str, npt.NDArray[Any]]:
    values = whole(trace)
    chosen = np.isin(values["kind"], (Kind.READ, Kind.WRITE))
    return {name: column[chosen] for name, column in values.items()}


def unique_pages(values: Mapping[str, npt.NDArray[Any]]) -> int:
    """One page after the other, in a set."""
    first = values["offset"] // PAGE
    last = (values["offset"] + values["size"] - 1) // PAGE
    pages = set()
    for a, b in zip(first.tolist(), last.tolist(), strict=True):
        pages.update(range(a, b + 1))
    return len(pages)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("scale", "tolerance"), [(0.01, 0.01), (0.001, 0.03)])
def test_what_is_made_has_the_printed_statistics(name: str, scale: float, tolerance: float) -> None:
    """Counts to the operation, unique pages to 1 % at 0.01 (their standard deviation: 0.4 %)."""
    values = transfers(generate(name, scale, seed=1))
    printed = PRINTED[name]
    counts = np.bincount(values["kind"], minlength=len(Kind))
    assert counts[Kind.READ] == round(printed.get("reads", 0) * scale)
    writes = printed.get("writes", 0) * scale
    assert counts[Kind.WRITE] == (max(1, round(writes)) if writes else 0)
    assert unique_pages(values) == pytest.approx(printed["unique_pages"] * scale, rel=tolerance)
    assert np.array_equal(values["result"], values["size"].astype(np.int64))
    assert np.all(values["latency"] == NOT_CAPTURED)


def test_uniform_random_reads_no_page_twice() -> None:
    values = transfers(generate("uniform-random", 0.01))
    pages = values["offset"] // PAGE
    assert np.array_equal(np.sort(pages), np.arange(len(pages)))
    assert np.all(values["size"] == 128)
    within = values["offset"] % PAGE
    assert within.max() <= PAGE - 128  # no read leaves its page
    assert len(np.unique(within)) == PAGE - 128 + 1
    assert abs(np.corrcoef(pages[1:], pages[:-1])[0, 1]) < 0.02


def test_ycsb_reads_whole_pages_with_zipfian_popularity() -> None:
    values = transfers(generate("ycsb-zipfian", 0.01))
    assert np.all(values["size"] == PAGE)
    assert np.all(values["offset"] % PAGE == 0)
    counts = np.sort(np.bincount((values["offset"] // PAGE).astype(np.int64)))[::-1]
    # the most popular item, of 300,000: 1 / (sum of k^-0.99); its page has others beside it
    share = 1 / (np.arange(1, 300_001) ** -0.99).sum()
    assert share < counts[0] / len(values["size"]) < 1.1 * share
    assert 1.5 < counts[0] / counts[1] < 2.2  # 2^0.99 without the neighbours


def test_neo4j_sizes_are_the_printed_ones() -> None:
    values = transfers(generate("neo4j-dijkstra", 0.01))
    sizes = values["size"].astype(np.int64)
    assert (sizes.min(), sizes.max()) == (1, 1_001_616)
    assert sizes.mean() == pytest.approx(57, rel=1e-3)
    assert np.median(sizes) < 10  # most are small
    large = np.sort(sizes)[::-1][: len(sizes) // 100]
    assert large.sum() > 0.5 * sizes.sum()


def test_synapse_writes_are_unaligned_and_of_16_threads_in_turn() -> None:
    trace = generate("synapse-labelling", 0.01)
    values = transfers(trace)
    assert values["size"].mean() == pytest.approx(1000, rel=0.005)
    assert (values["offset"] % 512 == 0).mean() == pytest.approx(1 / 512, rel=0.2)
    assert np.array_equal(np.bincount(values["thread"]), [len(values["size"]) // 16 + (t < 3)
                                                          for t in range(16)])  # fmt: skip
    assert np.array_equal(values["thread"], values["slot"])
    assert trace.threads.shape == (16, 3)


@pytest.mark.parametrize("name", NAMES)
def test_full_scale_counts(name: str) -> None:
    """Counts without making an operation; the pages of the file by an own formula."""
    trace = generate(name)
    printed = PRINTED[name]
    assert trace.transfers == printed.get("reads", 0) + printed.get("writes", 0)
    pages = int(trace.files.size[0]) // PAGE
    if name == "uniform-random":
        assert pages == printed["unique_pages"]
    elif name == "ycsb-zipfian":
        assert 2 < 30e6 / pages < 4  # items on a page: records of YCSB have 1 KB
    else:
        size = {"neo4j-dijkstra": 57, "synapse-labelling": 1000}[name]
        touches = trace.transfers * (1 + (size - 1) / PAGE)
        expected = pages * (1 - (1 - 1 / pages) ** touches)
        assert expected == pytest.approx(printed["unique_pages"], rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_any_block_can_be_made_alone(name: str) -> None:
    trace: Operations = generate(name, 0.0005, seed=5)
    values = whole(trace)
    count = trace.operations
    assert len(values["kind"]) == count
    assert problem(values, len(trace.slots), len(trace.threads)) is None
    for first, stop in ((0, 7), (count // 2, count // 2 + 99), (count - 9, count + 5)):
        part = whole(trace, first=first, stop=stop, block=8)
        for column, numbers in part.items():
            assert numbers.dtype == COLUMNS[column]
            assert np.array_equal(numbers, values[column][first:stop])
    (only,) = trace.blocks(("size", "kind"), first=3, stop=5)
    assert list(only) == ["size", "kind"]
    assert list(trace.blocks(first=count)) == []


@pytest.mark.parametrize("name", NAMES)
def test_seeds(name: str) -> None:
    first, again, other = (transfers(generate(name, 0.0005, seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(first[column], again[column]) for column in COLUMNS)
    assert (first["offset"] != other["offset"]).mean() > 0.5
    assert unique_pages(first) == pytest.approx(unique_pages(other), rel=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_slots_are_opened_first_and_closed_last(name: str) -> None:
    trace = generate(name, 0.0005)
    values, slots = whole(trace), len(trace.slots)
    for part, kind in ((slice(0, slots), Kind.OPEN), (slice(-slots, None), Kind.CLOSE)):
        assert np.all(values["kind"][part] == kind)
        assert values["slot"][part].tolist() == list(range(slots))
    assert np.count_nonzero(np.isin(values["kind"], (Kind.READ, Kind.WRITE))) == trace.transfers
    read_only = name in ("uniform-random", "ycsb-zipfian")
    assert np.all(values["flags"][:slots] == (Flag.READ_ONLY if read_only else 0))
    assert not np.any(values["flags"][slots:])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1e-7, 1e-5, 0.00037, MOST_SCALE])
def test_at_every_scale_operations_stay_in_the_file(name: str, scale: float) -> None:
    trace = generate(name, scale)
    middle = trace.operations // 2
    for values in trace.blocks(first=max(0, middle - 500), stop=middle + 500):
        assert np.all(values["offset"] + values["size"] <= trace.files.size[0])


def test_what_cannot_be_made() -> None:
    with pytest.raises(ValueError, match=r"'zipf'.*ycsb-zipfian"):
        generate("zipf")
    for scale in (0.0, -1.0, 101.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="scale"):
            generate("ycsb-zipfian", scale)


def test_the_header_says_what_was_printed_and_what_is_a_guess() -> None:
    header = generate("neo4j-dijkstra", 0.5, seed=9).header
    assert header.source == "generator"
    assert header.command == ("neo4j-dijkstra", "--scale=0.5", "--seed=9")
    assert not header.timed
    assert header.facts["published"]["unique_pages"] == 1_086_955
    assert "guess" in header.facts["doubts"]["writes"]


def test_printed_figures_are_those_of_the_table() -> None:
    table = Path(fsmatrix.results.__file__).parent / "published" / "page-cache-workloads.csv"
    with table.open(encoding="utf-8", newline="") as file:
        rows = {(row["workload"], row["quantity"]): row["value"] for row in csv.DictReader(file)}
    for name, quantities in PRINTED.items():
        for quantity, value in quantities.items():
            assert float(rows[name, quantity]) == value


def test_zipf_draws_have_zipfian_frequencies() -> None:
    n, draws = 50, 200_000
    ranks = Zipf(n, 0.99).ranks(np.arange(draws), key=3)
    share = np.arange(1, n + 1) ** -0.99
    expected = draws * share / share.sum()
    counts = np.bincount(ranks, minlength=n)
    chi = float(((counts - expected) ** 2 / expected).sum())
    assert chi < 85.4  # 49 degrees of freedom: exceeded once in 1000 keys


def test_share_of_ranks_that_are_never_drawn() -> None:
    n, draws = 3_000, 4_000
    share = np.arange(1, n + 1) ** -0.99
    share /= share.sum()
    assert Zipf(n, 0.99).untouched(draws) == pytest.approx(((1 - share) ** draws).mean(), rel=1e-9)
    large = 2_000_000  # ranks are taken together here
    share = np.arange(1, large + 1) ** -0.99
    share /= share.sum()
    expected = ((1 - share) ** draws).mean()
    assert Zipf(large, 0.99).untouched(draws) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("n", "most", "mean"), [(1_000, 500, 20.0), (30_000, 1_001_616, 150.0)])
def test_sizes_have_the_mean_and_both_ends(n: int, most: int, mean: float) -> None:
    sizes = Sizes(n, 1, most, mean).of(np.arange(n), key=4)
    assert (sizes.min(), sizes.max()) == (1, most)
    assert sizes.mean() == pytest.approx(mean, rel=2e-3)


def test_pages_that_give_as_many_touched() -> None:
    random = np.random.default_rng(1)
    pages = covered_pages(3_000, 1.0, 900)
    touched = [len(np.unique(random.integers(0, pages, 3_000))) for _ in range(50)]
    assert np.mean(touched) == pytest.approx(900, rel=0.01)
    pages = item_pages(1_000, 0.6, 300)
    page_of = np.arange(1_000) * pages // 1_000
    touched = [len(np.unique(page_of[random.random(1_000) > 0.6])) for _ in range(50)]
    assert np.mean(touched) == pytest.approx(300, rel=0.01)
    assert item_pages(1_000, 0.6, 900) == 1_000  # at most one for each item


def test_memory_does_not_grow_with_operations() -> None:
    """Blocks 0 and 1000 of a billion operations: less memory than 40 bytes for each page."""
    script = """
from fsmatrix.traces.page_cache import generate
trace = generate("ycsb-zipfian", 100)
for block in (*trace.blocks(stop=1 << 18), *trace.blocks(first=trace.operations - (1 << 17))):
    pass
print(PEAK)
""".replace("PEAK", peak.KILOBYTES)
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert int(done.stdout) < 200 << 10


def test_generated_is_what_replays_take() -> None:
    def takes(trace: Operations) -> int:
        return trace.operations

    trace: Generated = generate("synapse-labelling", 0.001)
    assert takes(trace) == trace.transfers + 32
    assert list(trace.files.names()) == [b"synapse-labelling.data"]
    assert trace.files.size.tolist() == [trace.files.size[0]]
    assert not trace.files.directory.any()
