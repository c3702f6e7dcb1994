"""What became of each operation, and when: outcomes, intended times and pauses; C and Python."""

from __future__ import annotations

import errno
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fsmatrix.backends.player.lanes import EVERIFY, Player, PlayerOptions
from fsmatrix.backends.player.ops import OUTCOME, UNKNOWN, Chunk, Flag, Kind
from fsmatrix.backends.player.player import open_player
from fsmatrix.traces import trace_model
from tests import asking
from tests.backends.playing import Open, chunk, op

MILLISECOND = 1_000_000  # ns
ANCHOR = 100_000  # ns that the C player's clock may be set right by between two operations
DEPTHS = ["c", "python", "c, depth 4"]


@pytest.fixture(params=DEPTHS)
def flying(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """What opens a player: of both implementations, and with operations in flight."""
    made: list[Player] = []
    implementation, _, depth = request.param.partition(", depth ")
    if implementation == "c" and (reason := asking.why_not("c player")):
        pytest.skip(reason)

    def open_one(**more: Any) -> Player:
        given: dict[str, Any] = {"slots": 8, "max_op_bytes": 1 << 20, "seed": 7} | more
        options = PlayerOptions(depth=int(depth or 1), **given)
        driver = "posix-threads" if depth else "posix"
        made.append(open_player(driver, str(tmp_path), options, implementation))  # type: ignore[arg-type]
        return made[-1]

    yield open_one
    for player in made:
        player.close()


def wanted(*ops: tuple[Any, ...], **more: Any) -> tuple[Chunk, npt.NDArray[Any]]:
    """A chunk, and the array for its outcomes, which holds something else before."""
    plain = chunk(*ops, **more)
    outcomes = np.full(len(ops), 7, dtype=np.uint8).repeat(OUTCOME.itemsize).view(OUTCOME)
    return replace(plain, outcomes=outcomes), outcomes


def test_unknown_is_what_traces_call_so() -> None:
    assert UNKNOWN == trace_model.UNKNOWN


def test_bytes_short_reads_and_errors(flying: Open, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 6000)
    played, outcomes = wanted(
        op(Kind.OPEN, 0),
        op(Kind.READ, 0, 0, 4096),
        op(Kind.READ, 0, 4096, 4096),
        op(Kind.READ, 0, 9000, 1),
        op(Kind.STAT, 1),
        op(Kind.OPEN, 1),
        op(Kind.READ, 1, 0, 10),
        op(Kind.STAT, 2),
        op(Kind.WRITE, 0, 0, 300),
        op(Kind.FSYNC, 0),
        op(Kind.OPEN, 0),
        op(Kind.CLOSE, 0),
        names=(b"f", b"missing", b"../f"),
    )
    one = flying(stop_on_error=False)
    assert one.play(played) == len(outcomes)
    assert outcomes["result"].tolist() == [
        0,
        4096,
        1904,
        0,
        -errno.ENOENT,
        -errno.ENOENT,
        -errno.EBADF,
        -errno.EINVAL,
        300,
        0,
        -errno.EBUSY,
        0,
    ]
    assert (outcomes["start"] > 0).all()
    result = one.result()  # the same durations, of what succeeded, are in the histograms
    assert result.errors_by_errno == {"EBADF": 1, "EBUSY": 1, "EINVAL": 1, "ENOENT": 2, "ESHORT": 2}
    good = np.array([0, 1, 8, 9, 11])
    assert outcomes["duration"][good].sum() == result.total_ns.sum()


def test_wrong_bytes(flying: Open, tmp_path: Path) -> None:
    one = flying(stop_on_error=False)
    writes = [op(Kind.WRITE, 0, i * 8192, 8192) for i in range(16)]
    one.play(chunk(op(Kind.CREATE), *writes, names=(b"f",)))
    one.drain()
    data = bytearray((tmp_path / "f").read_bytes())
    data[50_001] ^= 0x40
    (tmp_path / "f").write_bytes(data)
    reads = [op(Kind.READ, 0, i * 8192, 8192, flags=Flag.VERIFY) for i in range(16)]
    played, outcomes = wanted(*reads)
    assert one.play(played) == 16
    assert outcomes["result"].tolist() == [8192] * 6 + [-EVERIFY] + [8192] * 9


@pytest.mark.needs("c player")
def test_outcomes_of_the_null_driver() -> None:
    seen = []
    for implementation in ("c", "python"):
        options = PlayerOptions(slots=1, max_op_bytes=100)
        one = open_player("null", "", options, implementation)  # type: ignore[arg-type]
        played, outcomes = wanted(
            op(Kind.CREATE), op(Kind.WRITE, 0, 0, 100), op(Kind.CLOSE), names=(b"f",)
        )
        one.play(played)
        seen.append(outcomes["result"].tolist())
        one.close()
    assert seen == [[0, 100, 0]] * 2


def test_what_an_error_kept_back_is_unknown(opened: Open) -> None:
    one = opened()
    played, outcomes = wanted(op(Kind.CREATE), op(Kind.STAT, 1), op(Kind.STAT), names=(b"f", b"g"))
    assert one.play(played) == 2
    assert outcomes["result"].tolist() == [0, -errno.ENOENT, UNKNOWN]
    assert outcomes["start"][2] == outcomes["duration"][2] == 0
    more, later = wanted(op(Kind.STAT))
    assert one.play(more) == 0
    assert later.tolist() == [(0, 0, UNKNOWN)]


def test_what_the_deadline_kept_back_is_unknown(flying: Open) -> None:
    one = flying(stop_on_error=False)
    one.play(chunk(op(Kind.CREATE), names=(b"f",)))
    one.stop_at(time.monotonic_ns() + 3 * MILLISECOND)
    played, outcomes = wanted(*[op(Kind.WRITE, 0, i, 1) for i in range(20_000)])
    done = one.play(played)
    assert (outcomes["result"] == [1] * done + [UNKNOWN] * (20_000 - done)).all()
    assert ((outcomes["start"] > 0) == (outcomes["result"] == 1)).all()


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(2, dtype=OUTCOME),
        np.zeros(3, dtype="u8"),
        np.zeros((3, 1), dtype=OUTCOME),
        np.zeros(6, dtype=OUTCOME)[::2],
        np.frombuffer(bytes(3 * OUTCOME.itemsize), dtype=OUTCOME),
        [1, 2, 3],
    ],
)
def test_what_cannot_hold_outcomes_is_refused(opened: Open, tmp_path: Path, wrong: Any) -> None:
    one = opened()
    ops = chunk(op(Kind.CREATE), op(Kind.STAT), op(Kind.CLOSE), names=(b"f",))
    with pytest.raises(ValueError, match="outcomes of a chunk of 3 operations"):
        one.play(replace(ops, outcomes=wrong))
    assert list(tmp_path.iterdir()) == []


def test_a_refused_chunk_leaves_the_outcomes_alone(opened: Open) -> None:
    played, outcomes = wanted(op(Kind.CREATE), op(Kind.STAT, 8))
    before = outcomes.copy()
    with pytest.raises(ValueError, match="beyond the slots"):
        opened().play(played)
    assert (outcomes == before).all()


# -- times -------------------------------------------------------------------------------------
def test_nothing_is_issued_before_its_time(flying: Open) -> None:
    one = flying()
    one.play(chunk(op(Kind.CREATE), op(Kind.WRITE, 0, 0, 4096), names=(b"f",)))
    one.drain()
    now = time.monotonic_ns()
    two = flying()
    two.begin(now)
    rng = np.random.default_rng(3)
    times = np.sort(rng.integers(1, 60 * MILLISECOND, 300))
    played, outcomes = wanted(
        op(Kind.OPEN), *[op(Kind.READ, 0, 0, 100, time=int(at)) for at in times], names=(b"f",)
    )
    assert two.play(played) == 301
    assert (outcomes["start"][1:] >= times).all()
    result = two.result()
    assert result.service is not None  # durations are those of the call, latencies are not
    assert result.service.total_ns[Kind.READ] == outcomes["duration"][1:].sum()
    late = (outcomes["start"][1:].astype(np.int64) - times).sum()
    assert abs(result.total_ns[Kind.READ] - result.service.total_ns[Kind.READ] - late) <= 300 * 10


def test_pauses_follow_the_end_of_the_operation_before(opened: Open) -> None:
    one = opened(pauses=True)
    now = time.monotonic_ns()
    one.begin(now)
    pause = [5, 0, 2, 3, 0, 1]
    first, early = wanted(
        op(Kind.CREATE, time=pause[0] * MILLISECOND),
        *[op(Kind.STAT, time=at * MILLISECOND) for at in pause[1:3]],
        names=(b"f",),
    )
    second, late = wanted(*[op(Kind.STAT, time=at * MILLISECOND) for at in pause[3:]])
    assert (one.play(first), one.play(second)) == (3, 3)
    outcomes = np.concatenate([early, late])
    ends = np.concatenate([[0], (outcomes["start"] + outcomes["duration"])[:-1]]).astype(np.int64)
    waited = outcomes["start"].astype(np.int64) - ends
    assert (waited >= np.array(pause) * MILLISECOND - ANCHOR).all()
    result = one.result()
    assert result.service is None  # latencies count from the call
    assert result.total_ns.sum() == outcomes["duration"].sum()


def test_each_thread_pauses_by_itself(opened: Open) -> None:
    one = opened(pauses=True, threads=2)
    one.play(chunk(op(Kind.CREATE), names=(b"f",)))
    played, outcomes = wanted(
        *[op(Kind.STAT, stream=i % 2, time=2 * MILLISECOND) for i in range(80)]
    )
    assert one.play(played) == 80
    for stream in range(2):
        own = outcomes[stream::2].astype([("start", "i8"), ("duration", "i8"), ("result", "i8")])
        between = own["start"][1:] - (own["start"] + own["duration"])[:-1]
        assert (between >= 2 * MILLISECOND - ANCHOR).all()


def test_a_pause_does_not_go_beyond_the_deadline(opened: Open) -> None:
    one = opened(pauses=True)
    one.stop_at(time.monotonic_ns() + 50 * MILLISECOND)
    played, outcomes = wanted(
        op(Kind.CREATE), op(Kind.STAT, time=3_600_000 * MILLISECOND), names=(b"f",)
    )
    assert one.play(played) <= 1
    assert outcomes["result"][1] == UNKNOWN


def test_pauses_with_operations_in_flight_are_refused() -> None:
    with pytest.raises(ValueError, match="with pauses the depth must be 1, not 2"):
        PlayerOptions(slots=1, max_op_bytes=1, depth=2, pauses=True)
