"""Op streams of `pattern`: what is covered, in which order, and that nothing is lost."""

from __future__ import annotations

import ast
import itertools
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.backends.player import ops
from fsmatrix.backends.player.ops import OP, Chunk, Flag, Kind, Place
from fsmatrix.suite.workloads.streams import chunks as shared_chunks
from fsmatrix.suite.workloads.streams import pattern
from fsmatrix.suite.workloads.streams.pattern import CHUNK_OPS, Task, generate, part_of

LAYOUTS = ("file-per-process", "shared-segmented", "shared-strided")
RECORDED_MIX = 5246500226706903259
RECORDED_SALT = 9320235656248564025
RECORDED_PERMUTED = [361, 674, 146, 980, 380, 945, 515, 885]
RECORDED_DRAWN = [72, 389, 16, 900, 582, 452, 249, 467]
BASE = Task("read", "read", "file-per-process", 4096, 1 << 20)


def place(rank: int = 0, ranks: int = 1, threads: int = 1, seed: int = 1, nodes: int = 1) -> Place:
    return Place(rank, ranks, rank * nodes // ranks, nodes, threads, seed)


def chunks(task: Task, where: Place) -> list[Chunk]:
    return list(generate(task.document(), where))


def data(task: Task, where: Place) -> Any:
    """All data operations of a rank."""
    ops = np.concatenate([chunk.ops for chunk in chunks(task, where)])
    return ops[np.isin(ops["kind"], [Kind.READ, Kind.WRITE])]


# -- numbers ---------------------------------------------------------------------------------
@given(n=st.integers(1, 5000), key=st.integers(0, 2**64 - 1))
def test_permuted_is_a_permutation(n: int, key: int) -> None:
    image = ops.permuted(np.arange(n, dtype=np.int64), n, key)
    assert np.array_equal(np.sort(image), np.arange(n))


@pytest.mark.parametrize("n", [10**9, 2**32, 2**32 + 12345, 10**15])
def test_permuted_is_injective_where_nobody_can_look_at_all_of_it(n: int) -> None:
    index = np.unique(np.linspace(0, n - 1, 200_000).astype(np.int64))
    image = ops.permuted(index.copy(), n, 99)
    assert image.min() >= 0
    assert image.max() < n
    assert len(np.unique(image)) == len(index)
    # evenly spread over the range: mean of a uniform within 5 standard errors
    assert abs(image.mean() / n - 0.5) < 5 * np.sqrt(1 / 12 / len(index))


def test_permuted_leaves_no_order_behind() -> None:
    """Neighbours are as far from each other as in a random order (n / 3 on average)."""
    n = 1 << 16
    image = ops.permuted(np.arange(n, dtype=np.int64), n, 5)
    steps = np.diff(image)
    assert np.abs(steps).mean() == pytest.approx(n / 3, rel=0.02)
    assert len(np.unique(steps)) > n / 3  # a full-cycle generator would have one or two
    assert abs(np.corrcoef(image[:-1], image[1:])[0, 1]) < 0.02


def test_first_block_depends_on_the_key_evenly() -> None:
    n = 100
    first = [
        int(ops.permuted(np.zeros(1, dtype=np.int64), n, ops.mix(key))[0]) for key in range(20_000)
    ]
    counts = np.bincount(first, minlength=n)
    expected = 20_000 / n
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic < 99 + 5 * np.sqrt(2 * 99)


@given(n=st.integers(1, 2**40), key=st.integers(0, 2**64 - 1))
def test_drawn_stays_in_range(n: int, key: int) -> None:
    values = ops.drawn(np.arange(100, dtype=np.int64), n, key)
    assert values.min() >= 0
    assert values.max() < n


def test_drawn_is_even_and_repeats() -> None:
    counts = np.bincount(ops.drawn(np.arange(100_000, dtype=np.int64), 100, 3), minlength=100)
    assert counts.min() > 800
    assert counts.max() < 1200
    draws = ops.drawn(np.arange(1000, dtype=np.int64), 1000, 3)
    assert 560 < len(np.unique(draws)) < 700  # 1 - 1/e of them


def test_numbers_are_the_same_everywhere() -> None:
    """Recorded values: another machine, numpy or byte order must give these."""
    assert ops.mix(1, 2, 3) == RECORDED_MIX
    assert ops.salt("read") == RECORDED_SALT
    assert ops.permuted(np.arange(8, dtype=np.int64), 1000, 7).tolist() == RECORDED_PERMUTED
    assert ops.drawn(np.arange(8, dtype=np.int64), 1000, 7).tolist() == RECORDED_DRAWN


# -- coverage --------------------------------------------------------------------------------
@given(
    layout=st.sampled_from(LAYOUTS),
    chunk=st.integers(1, 50),
    size=st.integers(1, 3000),
    total=st.booleans(),
    ranks=st.integers(1, 7),
    threads=st.integers(1, 5),
    random=st.sampled_from(["", "permutation"]),
    wider=st.booleans(),
)
def test_every_byte_is_met_once(
    layout: str,
    chunk: int,
    size: int,
    total: bool,
    ranks: int,
    threads: int,
    random: str,
    wider: bool,
) -> None:
    """All ranks together cover the data exactly: no hole, no overlap, nothing beyond."""
    task = replace(
        BASE,
        layout=layout,
        chunk=chunk,
        bytes=size,
        total=total,
        random=random,
        operation_bytes=chunk * 3 if wider else 0,
    )
    seen: dict[str, Any] = {}
    for rank in range(ranks):
        name = pattern.name_of(layout, rank)
        length = size if total else size * ranks
        counts = seen.setdefault(name, np.zeros(length, dtype=int))
        for op in data(task, place(rank, ranks, threads)):
            assert 0 < op["size"] <= chunk * 3
            counts[op["offset"] : op["offset"] + op["size"]] += 1
            assert op["stream"] < threads
    if layout == "file-per-process":
        lengths = [part_of(task, rank, ranks).bytes for rank in range(ranks)]
        assert sum(lengths) == (size if total else size * ranks)
        for rank, length in enumerate(lengths):
            counts = seen[pattern.name_of(layout, rank)]
            assert (counts[:length] == 1).all()
            assert not counts[length:].any()
    else:
        assert (seen["data"] == 1).all()


def test_remainder_goes_to_the_first_ranks() -> None:
    task = replace(BASE, chunk=10, bytes=10 * 10 + 3, total=True, layout="shared-segmented")
    assert [part_of(task, rank, 4).bytes for rank in range(4)] == [30, 30, 20, 23]
    strided = replace(task, layout="shared-strided")
    assert [part_of(strided, rank, 4).bytes for rank in range(4)] == [30, 30, 23, 20]


def test_sequential_order() -> None:
    ops = data(replace(BASE, chunk=100, bytes=1050), place())
    assert ops["offset"].tolist() == [100 * i for i in range(11)]
    assert ops["size"].tolist() == [100] * 10 + [50]


def test_threads_have_contiguous_parts_in_sequential_order() -> None:
    ops = data(replace(BASE, chunk=1, bytes=10), place(threads=3))
    streams = [ops["offset"][ops["stream"] == thread].tolist() for thread in range(3)]
    assert streams == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert ops["stream"][:6].tolist() == [0, 1, 2, 0, 1, 2]


def test_strided_ranks_interleave() -> None:
    task = replace(BASE, chunk=10, bytes=30, layout="shared-strided")
    assert [data(task, place(rank, 3))["offset"].tolist() for rank in range(3)] == [
        [0, 30, 60],
        [10, 40, 70],
        [20, 50, 80],
    ]


# -- the order of random patterns ------------------------------------------------------------
def test_random_order_depends_on_seed_rank_and_step_only() -> None:
    task = replace(BASE, random="permutation")
    orders = {
        name: tuple(data(t, where)["offset"])
        for name, t, where in (
            ("base", task, place(0, 2)),
            ("seed", task, place(0, 2, seed=2)),
            ("rank", task, place(1, 2)),
            ("step", replace(task, step="other"), place(0, 2)),
        )
    }
    assert len(set(orders.values())) == 4
    assert tuple(data(task, place(0, 2))["offset"]) == orders["base"]
    assert {frozenset(order) for order in orders.values()} == {frozenset(orders["base"])}


@pytest.mark.parametrize("random", ["", "permutation"])
def test_an_endless_stream_covers_the_data_in_every_pass(random: str) -> None:
    task = replace(BASE, chunk=10, bytes=77, random=random, endless=True)
    source = generate(task.document(), place(threads=3))
    next(source)
    offsets = np.concatenate([next(source).ops["offset"] for _ in range(2)])
    passes = offsets[: len(offsets) // 8 * 8].reshape(-1, 8)
    assert (np.sort(passes, axis=1) == np.arange(8) * 10).all()
    if random:
        assert len(np.unique(passes, axis=0)) > 30  # another order in nearly every pass
    assert (passes[:, -1] == 70).all()  # the short block is the last of every pass


@pytest.mark.parametrize(
    ("operation", "evict", "kinds"),
    [("read", True, ["EVICT"]), ("write", False, ["FSYNC"]), ("mixed", True, ["FSYNC", "EVICT"])],
)
def test_what_stands_between_two_passes(operation: str, evict: bool, kinds: list[str]) -> None:
    """Every pass of `bytes` is followed by its sync or eviction, also over many chunks."""
    task = replace(
        BASE,
        operation=operation,
        chunk=10,
        bytes=10 * 40_000,
        endless=True,
        fsync="end",
        evict=evict,
    )
    source = generate(task.document(), place())
    next(source)
    for _ in range(2):
        moved = 0
        while True:
            ops = next(source).ops
            if int(ops["kind"][0]) not in (Kind.READ, Kind.WRITE):
                break
            moved += int(ops["size"].sum())
        assert moved == task.bytes
        assert [Kind(int(kind)).name for kind in ops["kind"]] == kinds


def test_with_replacement_meets_blocks_again() -> None:
    ops = data(replace(BASE, random="with-replacement"), place())
    assert len(ops) == 256
    assert 140 < len(np.unique(ops["offset"])) < 190


# -- mixtures, syncing, flags ----------------------------------------------------------------
@given(
    above=st.integers(0, 20),
    below=st.integers(1, 20),
    size=st.integers(1, 400),
    chunk=st.integers(1, 40),
    threads=st.integers(1, 4),
    random=st.sampled_from(["", "permutation"]),
)
def test_reads_of_a_mixture_are_counted_exactly(
    above: int, below: int, size: int, chunk: int, threads: int, random: str
) -> None:
    share = (min(above, below), below)
    task = replace(
        BASE, operation="mixed", chunk=chunk, bytes=size, read_share=share, random=random
    )
    ops = data(task, place(threads=threads))
    reads = ops[ops["kind"] == Kind.READ]
    assert (len(reads), int(reads["size"].sum())) == pattern.reads_of(
        task, part_of(task, 0, 1), threads
    )
    assert abs(len(reads) - len(ops) * share[0] / share[1]) <= threads


def test_mixture_is_spread_evenly_over_each_thread() -> None:
    task = replace(BASE, operation="mixed", chunk=1, bytes=1000, read_share=(7, 10))
    ops = data(task, place(threads=2))
    for thread in (0, 1):
        kinds = ops["kind"][ops["stream"] == thread] == Kind.READ
        windows = np.convolve(kinds, np.ones(10), "valid")
        assert set(windows) == {7}


def test_fsync_of_every_write_follows_it_in_its_stream() -> None:
    task = replace(BASE, operation="mixed", fsync="per-write", chunk=1, bytes=40_000)
    made = chunks(task, place(threads=2))
    assert max(len(chunk.ops) for chunk in made) <= CHUNK_OPS
    ops = np.concatenate([chunk.ops for chunk in made[1:-1]])
    after = np.flatnonzero(ops["kind"] == Kind.WRITE) + 1
    assert (ops["kind"][after] == Kind.FSYNC).all()
    assert (ops["stream"][after] == ops["stream"][after - 1]).all()
    assert (ops["kind"] == Kind.FSYNC).sum() == len(after) == 20_000
    assert made[-1].ops["kind"].tolist() == [Kind.CLOSE]


def test_first_and_last_chunk() -> None:
    task = replace(BASE, operation="write", create=True, direct=True, fsync="end")
    first, *_, last = chunks(task, place(3, 4))
    assert list(first.names) == [b"data.00000003"]
    assert first.ops["kind"].tolist() == [Kind.CREATE]
    assert first.ops["flags"][0] == Flag.WRITE_ONLY | Flag.DIRECT
    assert last.ops["kind"].tolist() == [Kind.FSYNC, Kind.CLOSE]
    first, middle, last = chunks(replace(BASE, verify=True), place())
    assert first.ops["flags"][0] == Flag.READ_ONLY
    assert first.ops["kind"].tolist() == [Kind.OPEN]
    assert (middle.ops["flags"] == Flag.VERIFY).all()
    assert last.ops["kind"].tolist() == [Kind.CLOSE]


@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_stopped_stream_closes_its_file(after: int) -> None:
    task = replace(BASE, operation="write", fsync="end", endless=True)
    source = generate(task.document(), place())
    for _ in range(after):
        next(source)
    assert source.send(True).ops["kind"].tolist() == [Kind.FSYNC, Kind.CLOSE]
    with pytest.raises(StopIteration):
        next(source)


# -- shifted reads ---------------------------------------------------------------------------
def opened(task: Task, where: Place) -> bytes:
    return chunks(task, where)[0].names[0]


def test_shift_by_rank_and_by_node() -> None:
    by_rank, by_node = replace(BASE, shift="rank"), replace(BASE, shift="node")
    places = [place(rank, 6, nodes=3) for rank in range(6)]
    assert [int(opened(by_rank, p)[-1:]) for p in places] == [1, 2, 3, 4, 5, 0]
    assert [int(opened(by_node, p)[-1:]) for p in places] == [2, 3, 4, 5, 0, 1]


def test_shift_in_a_shared_file_reads_the_segment_of_the_other_rank() -> None:
    task = replace(BASE, layout="shared-segmented", chunk=10, bytes=100, shift="rank")
    assert data(task, place(2, 3))["offset"].min() == 0
    assert data(task, place(0, 3))["offset"].min() == 100


def test_shift_by_node_needs_neighbours_on_a_node() -> None:
    """With ranks dealt out over the nodes in turn the shift could end on the own node."""
    with pytest.raises(ValueError, match="rank 1 of 4 is on node 1 of 2"):
        chunks(replace(BASE, shift="node"), Place(1, 4, 1, 2, 1, 1))


# -- size and speed --------------------------------------------------------------------------
def some(source: Iterator[Chunk], count: int) -> list[Chunk]:
    return list(itertools.islice(source, count))


@pytest.mark.parametrize("random", ["", "permutation", "with-replacement"])
def test_memory_does_not_grow_with_the_operations(random: str) -> None:
    """10**12 blocks: chunks come at once and take what any others take."""
    task = replace(BASE, bytes=4096 * 10**12, random=random)
    tracemalloc.start()
    try:
        source = generate(task.document(), place(threads=2))
        for chunk in itertools.islice(source, 20):
            assert len(chunk.ops) <= CHUNK_OPS <= 1 << 16
            assert chunk.ops["offset"].max() < task.bytes
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * CHUNK_OPS * OP.itemsize


def test_chunks_already_given_stay_as_they_are() -> None:
    """A driver may hold a chunk while the next one is made."""
    source = generate(replace(BASE, bytes=4096 * 10**6, random="permutation").document(), place())
    first, second = some(source, 3)[1:]
    kept = second.ops.copy()
    some(source, 3)
    assert np.array_equal(second.ops, kept)
    assert not np.array_equal(first.ops, second.ops)
    assert first.ops.dtype == OP


def test_ranks_import_little() -> None:
    """Generators run in MPI ranks: numpy, the standard library and the op stream only."""
    for module in (pattern, ops, shared_chunks):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        names = {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        ours = {name for name in names if name.startswith("fsmatrix")}
        assert ours <= {
            "fsmatrix.backends.player.ops",
            "fsmatrix.results.evidence.workloads",  # these two: the standard library only
            "fsmatrix.results.evidence.stored",
            "fsmatrix.suite.workloads.streams.chunks",
        }
        assert {name.split(".")[0] for name in names - ours} <= {
            "__future__",
            "collections",
            "concurrent",
            "contextlib",
            "dataclasses",
            "enum",
            "functools",
            "numpy",
            "os",
            "typing",
        }
