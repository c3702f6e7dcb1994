"""Op streams of `metadata`: which items, under which names, in which order."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.backends.player.ops import Chunk, Flag, Kind, Place
from fsmatrix.suite.workloads.streams import metadata
from fsmatrix.suite.workloads.streams.metadata import (
    CHUNK_OPS,
    Task,
    directories,
    generate,
    item_names,
)

CREATE = Task("create", 100)


def place(rank: int = 0, ranks: int = 1, threads: int = 1, nodes: int = 1) -> Place:
    return Place(rank, ranks, rank * nodes // ranks, nodes, threads, 1)


def chunks(task: Task, where: Place) -> list[Chunk]:
    return list(generate(task.document(), where))


def touched(task: Task, where: Place, column: str = "file") -> list[bytes]:
    """Names of the slots of all operations, in order."""
    return [chunk.names[op[column]] for chunk in chunks(task, where) for op in chunk.ops]


def kinds(task: Task) -> list[int]:
    ops = chunks(task, place())[0].ops
    return ops["kind"][ops["file"] == 0].tolist()


def test_operations_of_one_item() -> None:
    assert kinds(CREATE) == [Kind.CREATE, Kind.CLOSE]
    assert kinds(replace(CREATE, fsync=True)) == [Kind.CREATE, Kind.FSYNC, Kind.CLOSE]
    big = replace(CREATE, bytes=(2 << 20) + 5, fsync=True)
    assert kinds(big) == [Kind.CREATE, *[Kind.WRITE] * 3, Kind.FSYNC, Kind.CLOSE]
    ops = chunks(big, place())[0].ops[:6]
    assert ops["offset"].tolist() == [0, 0, 1 << 20, 2 << 20, 0, 0]
    assert ops["size"].tolist() == [0, 1 << 20, 1 << 20, 5, 0, 0]
    assert kinds(Task("read", 3, bytes=9)) == [Kind.OPEN, Kind.READ, Kind.CLOSE]
    assert chunks(Task("read", 3), place())[0].ops["flags"][0] == Flag.READ_ONLY
    for phase, kind in (
        ("mkdir", Kind.MKDIR),
        ("stat", Kind.STAT),
        ("rename", Kind.RENAME),
        ("remove", Kind.UNLINK),
        ("rmdir", Kind.RMDIR),
    ):
        assert kinds(Task(phase, 3)) == [kind]


@given(
    items=st.integers(1, 300),
    depth=st.integers(0, 4),
    branching=st.integers(1, 4),
    unique=st.booleans(),
)
def test_names_are_distinct_and_lie_in_the_tree(
    items: int, depth: int, branching: int, unique: bool
) -> None:
    task = Task("create", items, depth, branching, unique)
    names = [name for rank in (0, 1) for name in item_names(task, "file", rank, 0, items)]
    assert len(set(names)) == 2 * items
    trees = {
        rank: {metadata.directory(task, rank, n) for n in range(directories(depth, branching))}
        for rank in (0, 1)
    }
    for index, name in enumerate(names):
        folder, _, own = name.rpartition(b"/")
        assert folder in trees[index // items]
        assert own.startswith(b"f.0000000%d." % (index // items))
    assert bool(trees[0] & trees[1]) is not unique


@given(items=st.integers(1, 30_000), cut=st.integers(0, 30_000), depth=st.integers(0, 2))
def test_names_do_not_depend_on_the_cut(items: int, cut: int, depth: int) -> None:
    task = Task("create", items, depth, 3)
    cut = min(cut, items)
    whole = item_names(task, "file", 0, 0, items)
    assert item_names(task, "file", 0, 0, cut) + item_names(task, "file", 0, cut, items) == whole
    assert len(set(whole)) == items


def test_items_are_spread_over_all_directories() -> None:
    task = Task("create", 70, 2, 2)
    folders = [name.rpartition(b"/")[0] for name in item_names(task, "file", 0, 0, 70)]
    assert [folders.count(metadata.directory(task, 0, n)) for n in range(7)] == [10] * 7


@given(depth=st.integers(0, 6), branching=st.integers(1, 5))
def test_parents_come_first(depth: int, branching: int) -> None:
    made = touched(Task("tree", 0, depth, branching), place(0, 2))
    assert len(made) == len(set(made)) == directories(depth, branching)
    seen = {b""}
    for name in made:
        assert name.rpartition(b"/")[0] in seen
        seen.add(name)
    assert max(name.count(b"/") for name in made) == depth


def test_the_shared_tree_is_made_once_and_own_trees_by_each() -> None:
    assert touched(Task("tree", 0, 1, 2), place(1, 2)) == []
    own = touched(Task("tree", 0, 1, 2, unique=True), place(1, 2))
    assert own == [b"meta/r.00000001", b"meta/r.00000001/d.1", b"meta/r.00000001/d.2"]


def test_every_phase_meets_what_create_made() -> None:
    made = touched(CREATE, place())[::2]
    for phase in ("stat", "remove", "rename"):
        assert touched(replace(CREATE, phase=phase), place()) == made
    assert touched(replace(CREATE, phase="read"), place())[::2] == made
    second = touched(replace(CREATE, phase="rename"), place(), "file2")
    assert touched(replace(CREATE, phase="remove", renamed=True), place()) == second
    assert not set(made) & set(second)
    assert touched(Task("rmdir", 9), place()) == touched(Task("mkdir", 9), place())


def test_shifted_phases_meet_what_the_neighbour_made() -> None:
    stat = replace(CREATE, phase="stat", shift="rank")
    assert touched(stat, place(1, 3)) == touched(CREATE, place(2, 3))[::2]
    assert touched(stat, place(2, 3)) == touched(CREATE, place(0, 3))[::2]
    by_node = replace(stat, shift="node")
    assert touched(by_node, place(1, 4, nodes=2)) == touched(CREATE, place(3, 4, nodes=2))[::2]


def test_threads_share_the_items_and_keep_each_together() -> None:
    ops = chunks(replace(CREATE, bytes=10), place(threads=3))[0].ops
    assert (ops["stream"] == ops["file"] % 3).all()
    assert ops["file"].tolist() == [item for item in range(100) for _ in range(3)]


@pytest.mark.parametrize("phase", ["create", "stat", "rename", "remove", "read", "mkdir"])
def test_chunks_are_bounded_and_lose_nothing(phase: str) -> None:
    """One item more than two chunks."""
    task = Task(phase, 1)
    task = replace(task, items=2 * metadata.per_chunk(task) + 1)
    made = chunks(task, place(threads=2))
    assert len(made) == 3
    assert max(len(chunk.ops) for chunk in made) <= CHUNK_OPS
    assert max(len(chunk.names) for chunk in made) <= metadata.slots(task)
    columns = ["file", "file2"] if phase == "rename" else ["file"]
    names: list[bytes] = []
    for chunk in made:
        for column in columns:
            names += [chunk.names[slot] for slot in np.unique(chunk.ops[column])]
    assert len(names) == len(set(names)) == task.items * len(columns)


@pytest.mark.parametrize("phase", ["create", "rename"])
def test_memory_does_not_grow_with_the_items(phase: str) -> None:
    tracemalloc.start()
    try:
        for chunk in islice(generate(Task(phase, 10**12, 3, 5).document(), place()), 4):
            assert len(chunk.ops) <= CHUNK_OPS
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 << 20


def test_a_stopped_stream_ends() -> None:
    source: Any = generate(Task("stat", 10**9).document(), place())
    next(source)
    with pytest.raises(StopIteration):
        source.send(True)


def test_handles_never_outlive_a_chunk() -> None:
    for task in (replace(CREATE, items=100_000, fsync=True), Task("read", 100_000, bytes=1)):
        handles = 0
        for chunk in chunks(task, place()):
            opened = np.isin(chunk.ops["kind"], [Kind.OPEN, Kind.CREATE])
            closed = chunk.ops["kind"] == Kind.CLOSE
            assert chunk.ops["file"][opened].tolist() == chunk.ops["file"][closed].tolist()
            handles += int(opened.sum())
        assert handles == task.items
