"""Queue, timed and closed replays, of one rank and of several: who plays what, and when."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.backends.player.ops import OP, Chunk, Flag, Kind
from fsmatrix.suite.workloads.streams.replay import generate
from fsmatrix.suite.workloads.streams.replay.outcomes import Pauses, converted
from fsmatrix.suite.workloads.streams.replay.survey import ReplayParams
from fsmatrix.traces.trace_model import COLUMNS, Columns
from tests.suite.replay_workload import MS, READ_ONLY, Recorder, case_of, play, trace, workload

MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def many(to: Recorder) -> None:
    """Four threads, each with a file of its own of 1 MiB: 100 reads and 25 writes each."""
    names = [b"dir/%d.dat" % i for i in range(4)]
    for i, name in enumerate(names):
        to.there(name, MIB)
        to.do(Kind.OPEN, name, thread=i)
    for number in range(125):
        for i, name in enumerate(names):
            kind = Kind.WRITE if number % 5 == 4 else Kind.READ
            to.do(kind, name, 1000, offset=7001 * number, thread=i)
    for i, name in enumerate(names):
        to.do(Kind.CLOSE, name, thread=i)


@pytest.fixture
def busy(tmp_path: Path) -> str:
    return str(trace(tmp_path / "busy.h5", many))


class Seen:
    """The operations of all chunks of a timed step."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def __call__(self, chunk: Chunk) -> None:
        self.chunks.append(Chunk(chunk.ops.copy(), chunk.names, batch=chunk.batch))

    @property
    def ops(self) -> Any:
        return np.concatenate([chunk.ops for chunk in self.chunks])

    def data(self) -> Counter[tuple[int, int]]:
        """Reads and writes by kind and offset."""
        ops = self.ops
        data = ops[np.isin(ops["kind"], (Kind.READ, Kind.WRITE))]
        return Counter(zip(data["kind"].tolist(), data["offset"].tolist(), strict=True))


EXPECTED = Counter(
    (int(Kind.WRITE if number % 5 == 4 else Kind.READ), 7001 * number)
    for number in range(125)
    for _ in range(4)
)


@pytest.mark.parametrize(
    "geometry",
    [
        {},
        {"threads": 3},
        {"processes_per_node": 3},
        {"nodes": 2, "processes_per_node": 2, "threads": 2},
    ],
)
def test_a_queue_plays_each_read_and_write_once(
    busy: str, root: Path, geometry: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "TURN", 16)
    seen = Seen()
    facts = play(workload(trace=busy, mode="queue"), case_of(**geometry), root, watch=seen)
    assert seen.data() == EXPECTED
    assert facts["operations"] == facts["agreed"] == 500
    assert facts["fidelity"] == 1.0
    reason = "the mode plays reads and writes only"
    assert facts["kinds"]["open"]["skipped"] == {reason: 4}
    assert {chunk.batch for chunk in seen.chunks if len(chunk.ops)} == {0, generate.BATCH}
    assert facts["added"] == 8 * max(
        1, np.prod(list(geometry.values())) // geometry.get("threads", 1)
    )


def test_nodes_have_static_parts_of_a_queue(
    busy: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "TURN", 100)
    parts: list[Seen] = []

    def watch(chunk: Chunk) -> None:
        if len(chunk.names):  # a rank begins
            parts.append(Seen())
        parts[-1](chunk)

    play(workload(trace=busy, mode="queue"), case_of(nodes=2), root, watch=watch)
    first, second = (sum(part.data().values()) for part in parts)
    assert (first, second) == (296, 204)  # blocks 0, 2, 4 and 1, 3, 5 of 508, less opens and closes


def test_a_queue_finds_files_as_long_as_they_ever_were(tmp_path: Path, root: Path) -> None:
    def grows(to: Recorder) -> None:
        to.do(Kind.CREATE, b"new/f")
        to.do(Kind.WRITE, b"new/f", 5000, offset=5000)
        to.do(Kind.READ, b"new/f", 1000, offset=9000)
        to.do(Kind.TRUNCATE, b"new/f", offset=0)
        to.do(Kind.READ, b"new/f", 1000, result=0)

    facts = play(
        workload(trace=str(trace(tmp_path / "t.h5", grows)), mode="queue"), case_of(), root
    )
    assert (root / "new/f").stat().st_size == 10_000
    assert (facts["played"], facts["agreed"]) == (3, 2)  # nothing was made shorter
    assert facts["kinds"]["read"]["other_bytes"] == 1


def test_a_timed_replay_issues_at_scaled_times(busy: str, root: Path) -> None:
    seen = Seen()
    work = workload(trace=busy, mode="timed", time_scale=0.25)
    facts = play(work, case_of(threads=2), root, watch=seen)
    assert facts["fidelity"] == 1.0
    times = seen.ops["time"]
    assert np.all(np.diff(times.astype(np.int64)) == MS // 4)
    error = facts["issue_error"]
    assert error["operations"] == 508
    assert 0 < error["mean"] <= error["longest"]
    assert 0 <= error["within_100us"] <= 1


@pytest.mark.parametrize("geometry", [{"threads": 4}, {"processes_per_node": 2, "threads": 2}])
def test_threads_that_share_nothing_need_no_barrier(
    busy: str, root: Path, geometry: dict[str, int]
) -> None:
    facts = play(workload(trace=busy), case_of(**geometry), root)
    assert (facts["barriers"], facts["sharing"], facts["threads"]) == (0, 0, 4)
    assert facts["fidelity"] == 1.0


def test_more_threads_than_lanes_share_them(busy: str, root: Path) -> None:
    facts = play(workload(trace=busy), case_of(), root)
    assert (facts["sharing"], facts["threads"]) == (3, 4)


def test_threads_that_follow_each_other_share_no_lane_of_their_time(
    tmp_path: Path, root: Path
) -> None:
    def waves(to: Recorder) -> None:
        for thread in range(10):
            to.there(b"f%d" % thread, 100)
            to.do(Kind.STAT, b"f%d" % thread, thread=thread)
            to.do(Kind.STAT, b"f%d" % thread, thread=thread)

    facts = play(workload(trace=str(trace(tmp_path / "t.h5", waves))), case_of(), root)
    assert (facts["sharing"], facts["threads"]) == (0, 10)


def test_threads_that_depend_stay_in_one_rank(tmp_path: Path, root: Path) -> None:
    """Pairs of threads hand files over; each pair is played by one rank, in order."""

    def pairs(to: Recorder) -> None:
        for number in range(20):
            for pair in range(3):
                name = b"pair%d/f%d" % (pair, number)
                to.do(Kind.CREATE, name, thread=2 * pair, flags=Flag.EXCLUSIVE)
                to.do(Kind.WRITE, name, 100, thread=2 * pair)
                to.do(Kind.CLOSE, name, thread=2 * pair)
                to.do(Kind.STAT, name, thread=2 * pair + 1)
                to.do(Kind.UNLINK, name, thread=2 * pair + 1)

    path = str(trace(tmp_path / "t.h5", pairs))
    facts = play(workload(trace=path), case_of(processes_per_node=3, threads=2), root)
    assert (facts["fidelity"], facts["threads"], facts["sharing"]) == (1.0, 6, 0)
    assert facts["barriers"] >= 20


def test_many_that_enter_one_directory_need_no_barrier_until_it_is_listed(
    tmp_path: Path, root: Path
) -> None:
    def enter(to: Recorder) -> None:
        to.do(Kind.MKDIR, b"d")
        for number in range(8):
            to.do(Kind.CREATE, b"d/%d" % number, thread=number % 4)
            to.do(Kind.CLOSE, b"d/%d" % number, thread=number % 4)
        to.do(Kind.READDIR, b"d", thread=1)
        to.do(Kind.UNLINK, b"d/1", thread=1)
        to.do(Kind.UNLINK, b"d/2", thread=2)

    path = str(trace(tmp_path / "t.h5", enter))
    facts = play(workload(trace=path), case_of(threads=4), root)
    assert facts["fidelity"] == 1.0
    assert facts["barriers"] == 3  # after mkdir, before readdir, and between it and an unlink


@pytest.mark.parametrize("unaligned", ["widened", "buffered"])
def test_direct_io_of_what_is_not_aligned(busy: str, tmp_path: Path, unaligned: str) -> None:
    root = Path("/var/tmp") / tmp_path.name
    root.mkdir()
    try:
        seen = Seen()
        work = workload(trace=busy, direct=True, unaligned=unaligned)
        facts = play(work, case_of(), root, watch=seen)
        left = {path.stat().st_size for path in root.rglob("*.dat")}
    finally:
        for path in sorted(root.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        root.rmdir()
    ops = seen.ops
    data = ops[np.isin(ops["kind"], (Kind.READ, Kind.WRITE))]
    assert facts["fidelity"] == 1.0
    assert facts["kinds"]["read"]["bytes"] == 400 * 1000
    assert facts[unaligned] == 500
    opens = ops[ops["kind"] == Kind.OPEN]
    if unaligned == "widened":
        assert not (data["offset"] % 4096).any()
        assert not (data["size"] % 4096).any()
        assert (opens["flags"] & Flag.DIRECT != 0).all()
        assert left == {MIB}
    else:
        assert facts["added"] == 8
        assert (opens["flags"] & Flag.DIRECT != 0).tolist() == [True, False] * 4
        assert set(data["size"].tolist()) == {1000}


def test_a_published_workload_is_played(root: Path) -> None:
    work = workload(generator="synapse-labelling", scale=1e-4, mode="queue")
    facts = play(work, case_of(threads=2), root)
    assert facts["fidelity"] == 1.0
    assert facts["trace"] == "synapse-labelling"
    assert facts["kinds"]["write"]["played"] == facts["operations"] > 100


# -- think times ---------------------------------------------------------------------------------
def block(**values: list[int]) -> Columns:
    count = len(next(iter(values.values())))
    return {name: np.array(values.get(name, [0] * count), dtype) for name, dtype in COLUMNS.items()}


def test_pauses_are_think_times_of_each_lane() -> None:
    pauses = Pauses(ReplayParams(time_scale=2.0), 2, 100)
    first = block(time=[100, 150, 200, 260], latency=[30, 10, 20, 5])
    lane = np.array([0, 1, 0, 1])
    assert pauses.of(first, lane).tolist() == [0, 2 * 50, 2 * 70, 2 * 100]
    second = block(time=[300, 301], latency=[1, 1])
    assert pauses.of(second, np.array([1, 0])).tolist() == [2 * 35, 2 * 81]


def test_flags_that_a_kind_does_not_have_are_not_played() -> None:
    played = converted(
        block(kind=[Kind.OPEN, Kind.READ, Kind.FSYNC], flags=[255, 255, 255], size=[5, 5, 5]),
        ReplayParams(direct=False),
        np.zeros(3, np.uint32),
        np.zeros(3, np.int64),
    )
    assert played.ops.dtype == OP
    assert played.ops["flags"].tolist() == [255 & ~Flag.VERIFY & ~Flag.DIRECT, 0, Flag.DATA_ONLY]
    assert played.ops["size"].tolist() == [0, 5, 0]


def test_closed_with_think_times(tmp_path: Path, root: Path) -> None:
    def slow(to: Recorder) -> None:
        to.there(b"f", 100)
        to.do(Kind.OPEN, b"f", flags=READ_ONLY)
        to.do(Kind.READ, b"f", 100)

    seen = Seen()
    work = workload(trace=str(trace(tmp_path / "t.h5", slow)), time_scale=3)
    facts = play(work, case_of(), root, watch=seen)
    assert seen.ops["time"].tolist() == [0, 3 * (MS - MS // 10)]
    assert facts["issue_error"] is None


def test_what_lies_below_a_renamed_directory_waits_for_it(tmp_path: Path, root: Path) -> None:
    def moves(to: Recorder) -> None:
        to.do(Kind.MKDIR, b"a")
        to.do(Kind.CREATE, b"a/f")
        to.do(Kind.CLOSE, b"a/f")
        to.do(Kind.RENAME, b"a", thread=1, to=b"b")
        to.do(Kind.STAT, b"b/f")
        to.do(Kind.STAT, b"a/f", thread=2, result=-2)

    path = str(trace(tmp_path / "t.h5", moves))
    facts = play(workload(trace=path), case_of(threads=3), root)
    assert (facts["fidelity"], facts["barriers"]) == (1.0, 2)
    one = play(workload(trace=path), case_of(processes_per_node=2, threads=3), root / "b")
    assert (one["fidelity"], one["threads"]) == (1.0, 3)  # all in one rank


def test_opens_that_are_added_and_fail_are_counted(busy: str, root: Path) -> None:
    def spoil(place: Path) -> None:
        (place / "dir/0.dat").unlink()

    facts = play(workload(trace=busy, mode="queue"), case_of(), root, before=spoil)
    assert (facts["added"], facts["added_failed"]) == (8, 2)
    assert facts["errors_otherwise"] == {"EBADF": 125}
