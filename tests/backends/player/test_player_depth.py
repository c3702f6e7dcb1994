"""Operations in flight: the player's loop with a queue, on drivers that need no storage system.

The driver "posix-threads" is posix with its depth by threads; it is not offered to users.
"""

from __future__ import annotations

import ctypes
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.backends.player import content, player
from fsmatrix.backends.player.lanes import Player, PlayerOptions, PlayerResult
from fsmatrix.backends.player.ops import OP, OUTCOME, Chunk, Flag, Kind
from fsmatrix.backends.player.player import open_player
from fsmatrix.results.histogram import upper_edges
from tests.backends.playing import adds_up, chunk, op

pytestmark = pytest.mark.needs("c player")

THREADS = "posix-threads"
DRIVERS = [
    THREADS,
    *(
        pytest.param(name, marks=pytest.mark.needs("io_uring"))
        for name in ("uring", "uring-sqpoll")
    ),
]
NAMES = (b"a", b"b", b"a", b"d", b"d/a", b"../a")  # two slots have the same name
SLOTS = len(NAMES) + 1  # one is never named
MOST = 20_000


def opened(root: Path, depth: int = 8, driver: str = THREADS, **more: Any) -> Player:
    given: dict[str, Any] = {"slots": 8, "max_op_bytes": 1 << 20, "seed": 7} | more
    return open_player(driver, str(root), PlayerOptions(depth=depth, **given), "c")


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def one(tmp_path: Path, driver: str) -> Iterator[Player]:
    made = opened(tmp_path, driver=driver, stop_on_error=False)
    yield made
    made.close()


operations = st.tuples(
    st.sampled_from([Kind.CREATE, Kind.WRITE, Kind.WRITE, Kind.READ, Kind.OPEN])
    | st.sampled_from(list(Kind)),
    st.sampled_from([0, 0, Flag.VERIFY, Flag.TRUNCATE, Flag.READ_ONLY, Flag.EXCLUSIVE]),
    st.integers(0, 3),
    st.sampled_from([0, 0, 0, 1, 2]) | st.integers(0, SLOTS - 1),
    st.integers(0, SLOTS - 1),
    st.sampled_from([0, 0, 1, 4090, 4096]) | st.integers(0, 60_000),
    st.sampled_from([0, 1, 4096]) | st.integers(0, MOST),
    st.just(0),
)
chunks = st.lists(st.lists(operations, max_size=40), min_size=1, max_size=3)


def facts(result: PlayerResult) -> dict[str, Any]:
    """What must not depend on the depth.  Which error is the first depends on who is faster."""
    return {
        "numbers": (result.ops, result.bytes, result.operations, result.errors),
        "errors": result.errors_by_errno,
        "counts": result.counts.sum(axis=1).tolist(),
        "timeline": (adds_up(result), result.timeline.sum(axis=(1, 2)).tolist()),
        "series": (int(result.interval_bytes.sum()), int(result.interval_operations.sum())),
    }


def played(driver: str, depth: int, stream: list[list[Any]]) -> tuple[Any, ...]:
    """Executed of each chunk, outcomes, facts of the result, the files afterwards.

    Every other chunk asks for outcomes: their flights end with it.
    """
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        player = opened(
            root, depth, driver, slots=SLOTS, max_op_bytes=MOST, stop_on_error=False, seed=5
        )
        outcomes = [None if i % 2 else np.zeros(len(ops), OUTCOME) for i, ops in enumerate(stream)]
        try:
            executed = [
                player.play(
                    Chunk(np.array(ops, dtype=OP), () if i else NAMES, outcomes=outcomes[i])
                )
                for i, ops in enumerate(stream)
            ]
            became = [None if each is None else each["result"].tolist() for each in outcomes]
            player.drain()
            found = facts(player.result())
        finally:
            player.close()
        files = {
            str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
            for path in root.rglob("*")
        }
        return executed, became, found, files


@pytest.mark.parametrize("name", DRIVERS)
@settings(max_examples=80)
@given(stream=chunks, depth=st.sampled_from([1, 2, 5, 16]))
def test_any_depth_does_what_depth_one_does(name: str, stream: list[list[Any]], depth: int) -> None:
    assert played(name, depth, stream) == played("posix", 1, stream)


def test_overlapping_operations_keep_their_order(one: Player, tmp_path: Path) -> None:
    """Reads see the write before them, and truncation comes after the writes before it."""
    rounds = []
    for i in range(200):
        at = i * 100
        rounds += [
            op(Kind.WRITE, 0, at, 9000),
            op(Kind.READ, 0, at + 50, 8000, flags=Flag.VERIFY),
            op(Kind.TRUNCATE, 0, at + 5000),
        ]
    one.play(chunk(op(Kind.CREATE), *rounds, op(Kind.CLOSE), names=(b"f",)))
    one.drain()
    result = one.result()
    assert (result.errors, result.ops) == (0, 602)
    end = 199 * 100 + 5000
    assert (tmp_path / "f").read_bytes() == content.expected(7, b"f", 0, end)


def test_verification_at_completion(one: Player, tmp_path: Path) -> None:
    writes = [op(Kind.WRITE, 0, i * 8192, 8192) for i in range(64)]
    one.play(chunk(op(Kind.CREATE), *writes, op(Kind.FSYNC), names=(b"f",)))
    data = bytearray((tmp_path / "f").read_bytes())
    data[50_001] ^= 0x40
    (tmp_path / "f").write_bytes(bytes(data))
    reads = [op(Kind.READ, 0, i * 8192, 8192, flags=Flag.VERIFY) for i in range(64)]
    one.play(chunk(*reads))
    one.drain()
    result = one.result()
    assert result.errors_by_errno == {"EVERIFY": 1}
    assert result.bytes == (64 + 63) * 8192
    assert result.first_error is not None
    assert result.first_error.wrong_offset == 50_001
    assert result.first_error.op == 66 + 6


def test_errors_of_completions_name_their_operation(tmp_path: Path, driver: str) -> None:
    (tmp_path / "f").write_bytes(b"x" * 10_000)
    one = opened(tmp_path, 4, driver)
    reads = [op(Kind.READ, 0, i * 1000, 1000) for i in range(50)]
    executed = one.play(chunk(op(Kind.OPEN), *reads, names=(b"f",)))
    one.drain()
    result = one.result()
    error = result.first_error
    assert error is not None
    assert (error.errno, error.kind) == ("ESHORT", "read")
    assert error.op == 1 + error.offset // 1000
    assert error.offset >= 10_000
    assert result.operations == 10
    assert 11 < executed <= 11 + 1 + 4  # no more begin once the error is known
    assert result.ops == executed
    assert one.play(chunk(*reads)) == 0
    one.close()


def test_what_is_in_flight_counts_after_drain(one: Player) -> None:
    writes = [op(Kind.WRITE, 0, i * 4096, 4096) for i in range(100)]
    assert one.play(chunk(op(Kind.CREATE), *writes, names=(b"f",))) == 101
    assert one.result().ops <= 101
    one.drain()
    result = one.result()
    assert (result.ops, result.operations, result.bytes) == (101, 100, 100 * 4096)
    assert result.interval_bytes.sum() == result.bytes
    assert result.counts[Kind.WRITE].sum() == 100
    assert result.first_ns <= result.io_first_ns < result.io_last_ns <= result.last_ns


def test_several_are_in_flight(tmp_path: Path, driver: str) -> None:
    """Latencies one after the other fill the window at most; these overlap (Little's law)."""
    depth = 8
    one = opened(tmp_path, depth, driver)
    writes = [op(Kind.WRITE, 0, i << 20, 1 << 20) for i in range(64)]
    one.play(chunk(op(Kind.CREATE), *writes, names=(b"f",)))
    one.drain()
    result = one.result()
    one.close()
    window = result.io_last_ns - result.io_first_ns
    total = int(result.total_ns[Kind.WRITE])
    assert window < total <= depth * window


@pytest.mark.parametrize("threads", [1, 3])
def test_the_deadline_stops_and_the_rest_can_be_played(
    tmp_path: Path, driver: str, threads: int
) -> None:
    one = opened(tmp_path, driver=driver, threads=threads)
    streams = [op(Kind.WRITE, i % 7, i, 100, stream=i % 7) for i in range(50_000)]
    names = tuple(b"f%d" % i for i in range(7))
    one.play(chunk(*(op(Kind.CREATE, i, stream=i) for i in range(7)), names=names))
    whole = chunk(*streams)
    one.stop_at(time.monotonic_ns() - 1)
    assert one.play(whole) == 0
    one.stop_at(time.monotonic_ns() + 3_000_000)
    done = one.play(whole)
    left = one.left(whole)
    assert 0 < len(left.ops) == len(whole.ops) - done
    one.stop_at(0)
    assert one.play(left) == len(left.ops)
    one.drain()
    result = one.result()
    one.close()
    assert (result.errors, result.ops) == (0, len(whole.ops) + 7)
    assert result.bytes == len(whole.ops) * 100


def test_open_loop_counts_from_the_intended_time(one: Player) -> None:
    origin = time.monotonic_ns() - 500_000_000
    one.begin(origin)
    late = [op(Kind.WRITE, 0, i * 4096, 4096, time=1 + i) for i in range(10)]
    waited = op(Kind.WRITE, 0, 1 << 20, 4096, time=550_000_000)
    one.play(chunk(op(Kind.CREATE), *late, waited, names=(b"f",)))
    one.drain()
    result = one.result()
    assert result.last_ns >= origin + 550_000_000
    assert result.service is not None
    assert result.service.counts[Kind.WRITE].sum() == result.counts[Kind.WRITE].sum() == 11
    assert result.total_ns[Kind.WRITE] - result.service.total_ns[Kind.WRITE] >= 10 * 490_000_000


class Driver(ctypes.Structure):
    """The part of struct fsm_driver that is changed; 64-bit."""

    _fields_: ClassVar = [("before", ctypes.c_char * 80), ("reap", ctypes.c_void_p)]


REAP = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_int, ctypes.c_int
)
COMPLETION = 4  # words of a struct fsm_completion; the second is `ticks`
WHOLE = 136  # bytes, of struct fsm_driver


def test_what_completes_while_an_operation_is_waited_for_is_reaped_in_time(tmp_path: Path) -> None:
    """A driver that does not tell when: else the time until the next reap would count as its."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    name = b"fsmatrix.driver.v4"
    given = pointer_of(player._native._driver(THREADS), name)
    whole = ctypes.create_string_buffer(ctypes.string_at(given, WHOLE), WHOLE)
    driver = Driver.from_buffer(whole)
    own = REAP(driver.reap)

    def reap(lane: Any, completions: Any, most: int, wait: int) -> int:
        count = own(lane, completions, most, wait)
        for index in range(count):
            completions[index * COMPLETION + 1] = 0
        return int(count)

    kept = REAP(reap)
    driver.reap = ctypes.cast(kept, ctypes.c_void_p).value
    capsule = make(ctypes.addressof(whole), name, None)
    one = opened(tmp_path, driver=capsule)
    gap = 100_000_000
    writes = [op(Kind.WRITE, 0, i * 4096, 4096, time=(i + 1) * gap) for i in range(5)]
    one.play(chunk(op(Kind.CREATE), *writes, names=(b"f",)))
    one.drain()
    result = one.result()
    one.close()
    assert result.counts[Kind.WRITE].sum() == 5
    # the last one is reaped at once in any case
    assert result.counts[Kind.WRITE][upper_edges() < gap].sum() >= 2


def test_closing_with_operations_in_flight(tmp_path: Path, driver: str) -> None:
    before = threading.active_count()
    one = opened(tmp_path, 16, driver, threads=2)
    writes = [op(Kind.WRITE, i % 2, i * 4096, 4096, stream=i % 2) for i in range(100)]
    creates = [op(Kind.CREATE, i, stream=i) for i in range(2)]
    one.play(chunk(*creates, *writes, names=(b"f", b"g")))
    one.close()
    one.close()
    assert threading.active_count() == before
    sizes = [(tmp_path / name).stat().st_size for name in ("f", "g")]
    assert sorted(sizes) == [99 * 4096, 100 * 4096]
    with pytest.raises(ValueError, match="closed"):
        one.drain()


def test_direct_io(one: Player, tmp_path: Path) -> None:
    one.play(chunk(op(Kind.CREATE, flags=Flag.DIRECT), names=(b"f",)))
    if one.result().errors:
        pytest.skip("the temporary directory has no direct I/O")
    writes = [op(Kind.WRITE, 0, i * 65536, 65536) for i in range(16)]
    reads = [op(Kind.READ, 0, i * 65536, 65536, flags=Flag.VERIFY) for i in range(16)]
    one.play(chunk(*writes, *reads))
    one.drain()
    assert one.result().errors_by_errno == {}
    assert (tmp_path / "f").read_bytes() == content.expected(7, b"f", 0, 1 << 20)


@pytest.mark.parametrize(
    ("driver", "implementation", "depth"),
    [
        *((THREADS, "c", depth) for depth in (0, 129, 1025)),
        ("uring", "c", 1025),
        *((driver, "c", 2) for driver in ("posix", "null")),
        ("posix", "python", 2),
    ],
)
def test_a_depth_that_cannot_be(
    tmp_path: Path, driver: str, implementation: Any, depth: int
) -> None:
    with pytest.raises(ValueError, match="depth must"):
        open_player(
            driver,
            str(tmp_path),
            PlayerOptions(slots=1, max_op_bytes=1, depth=depth),
            implementation,
        )
