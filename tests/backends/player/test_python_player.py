"""C and Python player do the same on the same random stream, erroneous operations included."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fsmatrix.backends.player import content, player
from fsmatrix.backends.player.lanes import PlayerOptions, PlayerResult
from fsmatrix.backends.player.ops import DRIVERS, OP, OUTCOME, Chunk, Flag, Kind
from fsmatrix.backends.player.player import NativePlayer, open_player
from fsmatrix.backends.player.python_player import PythonPlayer
from tests.backends.playing import adds_up, op

pytestmark = pytest.mark.needs("c player")

NAMES = (b"a", b"b", b"d", b"d/a", b"d/e", b"d/e/f", b"../a", b"/a", b"", b"l", b"l/a", b"a/b")
SLOTS = len(NAMES) + 2  # two are never named
MOST = 20_000
GIVEN: dict[str, Any] = {
    "slots": SLOTS, "seed": 5, "fill_ratio": 0.3, "max_op_bytes": MOST,
}  # fmt: skip

kinds = st.sampled_from(list(Kind))
flags = st.integers(0, 255).map(lambda value: value & ~(Flag.DIRECT | Flag.DSYNC))
likely = st.sampled_from([0, 0, 0, 1, 2, 3, 4])
slots = likely | st.integers(0, SLOTS - 1)
offsets = st.sampled_from([0, 0, 1, 4090, 4096, 1 << 20]) | st.integers(0, 3 << 20)
sizes = st.sampled_from([0, 1, 4096]) | st.integers(0, MOST)
# mostly data on files that are there, so that streams get somewhere
operations = st.tuples(
    st.sampled_from([Kind.CREATE, Kind.WRITE, Kind.READ, Kind.OPEN]) | kinds,
    flags,
    st.integers(0, 3),
    slots,
    slots,
    offsets,
    sizes,
    st.just(0),
)
chunks = st.lists(st.lists(operations, max_size=30), min_size=1, max_size=4)


def prepare(root: Path) -> None:
    """A link out of the tree, which no operation may follow."""
    (root / "l").symlink_to("/")


def tree(root: Path) -> dict[str, Any]:
    """Path below root -> bytes, target of a link, or None for a directory."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = path.readlink()
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def facts(result: PlayerResult) -> dict[str, Any]:
    """What must not depend on the implementation."""
    return {
        "numbers": (result.ops, result.bytes, result.operations, result.errors),
        "errors": result.errors_by_errno,
        "first": result.first_error,
        "counts": result.counts.sum(axis=1).tolist(),
        "timeline": (adds_up(result), result.timeline.sum(axis=(1, 2)).tolist()),
        "series": (int(result.interval_bytes.sum()), int(result.interval_operations.sum())),
        "min": (result.min_ns == np.iinfo(np.int64).max).tolist(),
        "service": None if result.service is None else result.service.counts.sum(axis=1).tolist(),
    }


def played(make: Any, stream: list[list[Any]], **more: Any) -> tuple[Any, ...]:
    """Executed of each chunk, outcomes, facts of the result, the tree afterwards."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        prepare(root)
        one = make(root, **more)
        outcomes = [np.zeros(len(ops), dtype=OUTCOME) for ops in stream]
        try:
            executed = [
                one.play(Chunk(np.array(ops, dtype=OP), () if i else NAMES, outcomes=outcomes[i]))
                for i, ops in enumerate(stream)
            ]
            found = facts(one.result())
        finally:
            one.close()
        became = [(each["result"].tolist(), (each["start"] > 0).tolist()) for each in outcomes]
        return executed, became, found, tree(root)


def native(root: Path, **more: Any) -> NativePlayer:
    how = {name: more.pop(name) for name in ("openat2", "tsc") if name in more}
    return NativePlayer("posix", str(root), PlayerOptions(**GIVEN, **more), **how)


def twin(root: Path, *, openat2: bool = True, tsc: bool = True, **more: Any) -> PythonPlayer:
    assert openat2 in (True, False)
    assert tsc in (True, False)
    return PythonPlayer("posix", str(root), PlayerOptions(**GIVEN, **more))


@settings(max_examples=300, deadline=None)
@given(stream=chunks, stop=st.booleans(), metadata=st.booleans(), tsc=st.booleans())
def test_twins_agree(stream: list[list[Any]], stop: bool, metadata: bool, tsc: bool) -> None:
    more = {
        "stop_on_error": stop,
        "count_metadata": metadata,
        "tsc": tsc and player.tsc_is_invariant(),
    }
    assert played(native, stream, **more) == played(twin, stream, **more)


# nothing is read from a directory
EMPTY_READ = [op(Kind.MKDIR, 1), op(Kind.OPEN, 1, flags=Flag.READ_ONLY), op(Kind.READ, 1)]


@settings(max_examples=100, deadline=None)
@given(stream=chunks)
@example(stream=[EMPTY_READ])
def test_twins_agree_without_openat2(stream: list[list[Any]]) -> None:
    more = {"stop_on_error": False, "count_metadata": True}
    assert played(native, stream, openat2=False, **more) == played(twin, stream, **more)


@settings(max_examples=200, deadline=None)
@given(
    data=st.binary(max_size=400),
    names=st.lists(st.binary(max_size=8), max_size=6),
    first=st.integers(0, SLOTS),
)
def test_no_bytes_crash_the_c_player(data: bytes, names: list[bytes], first: int) -> None:
    ops = np.frombuffer(data[: len(data) // OP.itemsize * OP.itemsize], dtype=OP)
    one = open_player(
        "null", "/", PlayerOptions(slots=SLOTS, max_op_bytes=MOST, stop_on_error=False), "c"
    )
    one.stop_at(1)  # nothing is waited for
    try:
        assert one.play(Chunk(ops, names, first)) == 0
    except ValueError:
        pass
    finally:
        one.close()


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(-(1 << 70), 1 << 70),
    name=st.binary(min_size=1, max_size=20),
    offset=st.integers(0, 1 << 50),
    size=st.integers(0, 3 << 20),
    ratio=st.sampled_from([0.0, 0.5, 0.9999, 1.0]),
)
def test_fill_gives_the_reference(
    seed: int, name: bytes, offset: int, size: int, ratio: float
) -> None:
    pool = content.extended(content.make_pool(seed, ratio), size)
    at = content.fill(pool, content.key_of(seed, name), offset, size)
    assert pool[at : at + size].tobytes() == content.expected(seed, name, offset, size, ratio)


@pytest.mark.parametrize("name", DRIVERS)
def test_each_driver_that_planning_knows_is_built_in(name: str) -> None:
    assert player._native is not None
    assert player._native._driver(name) is not None
    if not DRIVERS[name].native:
        PythonPlayer(name, "/", PlayerOptions(slots=1, max_op_bytes=1)).close()


def test_a_capsule_is_a_driver_and_anything_else_is_not(tmp_path: Path) -> None:
    assert player._native is not None
    capsule = player._native._driver("null")
    one = open_player(capsule, str(tmp_path), PlayerOptions(slots=1, max_op_bytes=10))
    ops = np.array(
        [(Kind.CREATE, 0, 0, 0, 0, 0, 0, 0), (Kind.WRITE, 0, 0, 0, 0, 0, 10, 0)], dtype=OP
    )
    assert one.play(Chunk(ops, (b"f",))) == 2
    assert one.result().bytes == 10
    one.close()
    assert os.listdir(tmp_path) == []
    for wrong in (None, 3, b"posix", object()):
        with pytest.raises(ValueError, match="no driver"):
            open_player(wrong, str(tmp_path), PlayerOptions(slots=1, max_op_bytes=10), "c")
