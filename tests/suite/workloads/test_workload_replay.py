"""The workload `replay`: its options, refusals and footprint; a trace really played."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.player.ops import Chunk, Kind
from fsmatrix.results.record import Case
from fsmatrix.suite.workloads.streams.replay.tree import prepared
from fsmatrix.suite.workloads.workload import Stream
from fsmatrix.traces.trace_model import Operation
from tests.suite.replay_workload import (
    ACCESS,
    ENGINE,
    MS,
    READ_ONLY,
    Recorder,
    case_of,
    play,
    program,
    trace,
    workload,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def simple(tmp_path: Path) -> str:
    return str(trace(tmp_path / "simple.h5", program))


def kinds(facts: dict[str, Any], name: str) -> dict[str, int]:
    return {kind: of[name] for kind, of in facts["kinds"].items() if of[name]}


@pytest.mark.parametrize("implementation", ["auto", "python"])
@pytest.mark.parametrize("clients", ["shared", "private"])
def test_a_program_is_played_with_the_same_outcomes(
    simple: str, root: Path, implementation: str, clients: str
) -> None:
    work = workload(trace=simple, clients=clients)
    facts = play(work, case_of(), root, implementation=implementation)
    assert facts["operations"] == facts["played"] == facts["agreed"] == 16
    assert facts["fidelity"] == 1.0
    assert facts["errors_as_captured"] == {"ENOENT": 1, "EEXIST": 1}
    assert facts["errors_otherwise"] == {}
    assert kinds(facts, "failed_as_captured") == {"stat": 1, "mkdir": 1}
    assert kinds(facts, "short") == {"read": 1}
    assert facts["kinds"]["read"]["bytes"] == 4096 + 1808
    own = root / "client00000000" if clients == "private" else root
    left = {p.relative_to(own).as_posix(): p.stat().st_size for p in own.rglob("*") if p.is_file()}
    assert left == {"in/a.dat": 10_000, "out/result.txt": 4000}


def test_each_private_client_plays_all_of_it(simple: str, root: Path) -> None:
    facts = play(workload(trace=simple, clients="private"), case_of(processes_per_node=3), root)
    assert facts["clients"] == 3
    assert facts["operations"] == facts["agreed"] == 3 * 16
    assert facts["kinds"]["read"]["captured"]["bytes"] == 3 * 5904
    assert sorted(p.name for p in root.iterdir()) == [f"client0000000{i}" for i in range(3)]


def test_what_goes_otherwise_is_counted_by_kind(simple: str, root: Path) -> None:
    def spoil(place: Path) -> None:
        (place / "missing.cfg").write_text("")
        (place / "in/b.txt").unlink()
        os.truncate(place / "in/a.dat", 9000)

    facts = play(workload(trace=simple), case_of(), root, before=spoil)
    assert kinds(facts, "succeeded_otherwise") == {"stat": 1}
    assert kinds(facts, "failed_otherwise") == {"unlink": 1}
    assert kinds(facts, "other_bytes") == {"read": 1}
    assert facts["errors_otherwise"] == {"ENOENT": 1}
    assert facts["agreed"] == 13
    assert facts["fidelity"] == pytest.approx(13 / 16)


def test_a_handle_that_was_never_opened_fails_and_is_counted(tmp_path: Path, root: Path) -> None:
    def lying(to: Recorder) -> None:
        to.there(b"a", 100)
        to.do(Kind.READ, b"a", 10)
        to.do(Kind.CLOSE, b"a")

    facts = play(workload(trace=str(trace(tmp_path / "t.h5", lying))), case_of(), root)
    assert facts["errors_otherwise"] == {"EBADF": 2}
    assert facts["agreed"] == 0


def test_names_that_no_file_system_takes_are_skipped(tmp_path: Path, root: Path) -> None:
    long = b"x" * 256

    def named(to: Recorder) -> None:
        to.there(long, 100)
        to.there(b"short", 100)
        to.do(Kind.STAT, long)
        to.do(Kind.RENAME, b"short", to=b"d/" + long)
        to.do(Kind.STAT, b"short")

    facts = play(workload(trace=str(trace(tmp_path / "t.h5", named))), case_of(), root)
    reason = "a path that is too long for the target"
    assert {name: of["skipped"] for name, of in facts["kinds"].items()} == {
        "stat": {reason: 1},
        "rename": {reason: 1},
    }
    assert (facts["played"], facts["agreed"], facts["operations"]) == (1, 1, 3)


def test_paths_that_the_driver_does_not_take_are_skipped(tmp_path: Path) -> None:
    """As names of objects: whatever is too long is not made either, so that the run goes on."""
    long = b"/".join([b"x" * 200] * 11)

    def named(to: Recorder) -> None:
        to.there(long, 100)
        to.there(b"short", 100)
        to.do(Kind.STAT, long)

    work = workload(trace=str(trace(tmp_path / "t.h5", named)))
    made = {}
    for access in ("path", "rados"):
        ready = prepared(work._work(case_of(), access))
        made[access] = (ready.nameable.tolist(), len(ready.tree.files))
    assert made == {"path": ([True, True], 2), "rados": ([False, True], 1)}


def test_a_trace_that_claims_to_move_too_much_is_not_looked_at(tmp_path: Path, root: Path) -> None:
    def lying(to: Recorder) -> None:
        to.there(b"f", 10)
        to.do(Kind.OPEN, b"f", flags=READ_ONLY)
        to.do(Kind.READ, b"f", 10)

    short = play(workload(trace=str(trace(tmp_path / "t.h5", lying))), case_of(), root)
    assert short["like"]["reads"] == 1

    def longer(to: Recorder) -> None:
        lying(to)
        for _ in range(1 << 15):
            to.do(Kind.READ, b"f", (1 << 31) - 1, latency=0)
        to.do(Kind.READ, b"f", 1 << 20)

    work = workload(trace=str(trace(tmp_path / "long.h5", longer)))
    facts = play(work, case_of(), root)
    assert facts["like"] is None
    assert facts["kinds"]["read"]["played"] == 2


def test_many_open_files_meet_the_limit_and_are_counted(tmp_path: Path, root: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = len(os.listdir("/proc/self/fd")) + 40
    count = 100

    def many(to: Recorder) -> None:
        for i in range(count):
            to.there(b"f%d" % i, 10)
            to.do(Kind.OPEN, b"f%d" % i, flags=READ_ONLY)
        for i in range(count):
            to.do(Kind.READ, b"f%d" % i, 10)
            to.do(Kind.CLOSE, b"f%d" % i)

    work = workload(trace=str(trace(tmp_path / "t.h5", many)))

    def limit(_place: Path) -> None:
        from fsmatrix.suite.workloads.streams.replay import generate

        generate._raise_limit = lambda: None  # type: ignore[assignment]
        resource.setrlimit(resource.RLIMIT_NOFILE, (room, hard))

    from fsmatrix.suite.workloads.streams.replay import generate

    before = generate._raise_limit
    try:
        facts = play(work, case_of(), root, before=limit)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        generate._raise_limit = before
    refused = facts["errors_otherwise"]["EMFILE"]
    assert 0 < refused < count
    assert facts["errors_otherwise"]["EBADF"] == 2 * refused
    assert facts["agreed"] == 3 * (count - refused)


def test_the_tree_needs_few_open_files(tmp_path: Path, root: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def many(to: Recorder) -> None:
        for i in range(600):
            to.there(b"f%d" % i, 10)
        to.do(Kind.STAT, b"f599")

    work = workload(trace=str(trace(tmp_path / "t.h5", many)))
    room = len(os.listdir("/proc/self/fd")) + 300
    resource.setrlimit(resource.RLIMIT_NOFILE, (room, hard))
    try:
        assert play(work, case_of(), root)["agreed"] == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir(root)) == 600


def test_the_limit_of_open_files_is_raised(simple: str, root: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        play(workload(trace=simple), case_of(), root)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_window_finds_the_tree_and_handles_of_its_begin(simple: str, root: Path) -> None:
    """From the second read on: a file is open; before the unlink: nothing after it is played."""
    facts = play(workload(trace=simple, window=["3ms", "15ms"]), case_of(), root)
    assert facts["operations"] == facts["agreed"] == 12
    assert facts["added"] == 1  # the open of in/a.dat
    assert (root / "in/b.txt").exists()
    facts = play(workload(trace=simple, window=["9ms", "11ms"]), case_of(), root / "in")
    assert facts["agreed"] == 2  # truncate and fsync of a file that was made before
    assert facts["added"] == 1
    assert (root / "in/out/new.tmp").stat().st_size == 4000


def test_files_and_kinds_choose(simple: str, root: Path) -> None:
    facts = play(workload(trace=simple, files=["in/*"], kinds=["read"]), case_of(), root)
    assert facts["operations"] == facts["agreed"] == 4
    assert set(facts["kinds"]) == {"open", "read", "close"}
    assert facts["left_out"]["write"] == 1
    assert sorted(p.name for p in root.iterdir()) == ["in"]


def test_sparse_files_hold_nothing(tmp_path: Path, root: Path) -> None:
    def large(to: Recorder) -> None:
        to.there(b"large", 1 << 30)
        to.do(Kind.OPEN, b"large", flags=READ_ONLY)
        to.do(Kind.READ, b"large", 4096, offset=(1 << 30) - 4096)

    path = str(trace(tmp_path / "t.h5", large))
    work = workload(trace=path, fill="sparse")
    assert work.footprint(case_of()).space == 0
    assert workload(trace=path).footprint(case_of()).space == 1 << 30
    facts = play(work, case_of(), root)
    assert facts["fidelity"] == 1.0
    assert (root / "large").stat().st_blocks < 64


def test_order_of_each_file_is_kept_however_many_threads_there_are(
    tmp_path: Path, root: Path
) -> None:
    """Two operations of a file by different threads, one a change, are in different chunks."""
    names = [b"a", b"b", b"c"]

    def shared(to: Recorder) -> None:
        for name in names:
            to.there(name, 1 << 20)
        for i, name in enumerate(names * 2):
            to.writer.add(Operation(Kind.OPEN, to.writer.slot(to.writer.file(name))), i, thread=0)
        random = np.random.default_rng(5)
        threads = [to.writer.thread(_thread(i)) for i in range(4)]
        for _ in range(300):
            slot = int(random.integers(3, 9))
            kind = Kind.WRITE if random.random() < 0.3 else Kind.READ
            offset = int(random.integers(0, 4)) << 16
            to.now += MS
            thread = threads[int(random.integers(4))]
            operation = Operation(kind, slot, offset=offset, size=4096)
            to.writer.add(operation, to.now, thread=thread, result=4096)

    chunks: list[Chunk] = []
    work = workload(trace=str(trace(tmp_path / "t.h5", shared)))
    facts = play(work, case_of(threads=4), root, watch=chunks.append)
    assert facts["fidelity"] == 1.0
    assert facts["barriers"] > 10
    played = 0
    for chunk in chunks:
        writers: dict[tuple[int, int], set[int]] = {}
        users: dict[tuple[int, int], set[int]] = {}
        for op in chunk.ops:
            if op["kind"] in (Kind.READ, Kind.WRITE):
                played += 1
                place = (int(op["file"] - 3) % 3, int(op["offset"]) >> 16)
                users.setdefault(place, set()).add(int(op["stream"]))
                if op["kind"] == Kind.WRITE:
                    writers.setdefault(place, set()).add(int(op["stream"]))
        for place, of in writers.items():
            assert len(of | users[place]) == 1
    assert played == 300


def _thread(number: int) -> Any:
    from fsmatrix.traces.trace_model import Thread

    return Thread(1, number)


# -- options and planning --------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "give trace (a file) or generator"),
        ({"generator": "ycsb"}, "no workload 'ycsb' is published"),
        ({"trace": "relative.h5"}, "must be an absolute path"),
        ({"trace": "/nowhere/t.h5"}, "No such file"),
        ({"trace": "sha256:12"}, "no SHA-256"),
        ({"trace": "example:none"}, "there is no example trace 'none'"),
        ({"generator": "ycsb-zipfian", "scale": 0}, "greater than 0"),
        ({"mode": "queue", "time_scale": 2}, "has no times"),
        ({"mode": "queue", "kinds": ["stat"]}, "reads and writes only, not stat"),
        ({"mode": "timed", "time_scale": 0}, "is mode: queue or closed"),
        ({"kinds": ["read", "read"]}, "names one twice"),
        ({"window": ["2s", "1s"]}, "the window ends at 1 s"),
        ({"kinds": ["mmap"]}, "'open', 'create', 'read'"),
        ({"scale": 2.0}, "scale belongs to generator"),
    ],
)
def test_bad_options_are_refused(simple: str, options: dict[str, Any], text: str) -> None:
    given = options if not options or {"trace", "generator"} & set(options) else {"trace": simple}
    with pytest.raises(ValidationError) as error:
        workload(**(given | options))
    assert text in str(error.value)


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.h5"
    path.write_bytes(b"nothing")
    with pytest.raises(ValidationError, match="not a trace, or damaged"):
        workload(trace=str(path))


def test_a_trace_is_known_by_its_content(simple: str, tmp_path: Path) -> None:
    other = tmp_path / "other.h5"
    other.write_bytes(Path(simple).read_bytes())
    first, second = workload(trace=simple), workload(trace=str(other))
    assert first.options == second.options
    dumped = first.options.model_dump(mode="json")["trace"]
    assert dumped.startswith("sha256:")
    again = workload(trace=dumped)
    assert "where sha256:" in again.refusal(case_of())


def test_another_trace_on_a_node_ends_the_run(simple: str, root: Path) -> None:
    work = workload(trace=simple)
    steps = work.steps(case_of(), ACCESS, ENGINE)
    with Path(simple).open("ab") as file:
        file.write(b"\0")
    from tests.suite.replay_workload import place_of, play_step

    with pytest.raises(ValueError, match="is not the one of the plan"):
        play_step(steps[0], place_of(case_of(), 0), root)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"window": ["1h", "2h"]}, "no operation of the trace lies in the window"),
        ({"files": ["nothing*"]}, "no operation of the trace is left"),
    ],
)
def test_what_leaves_nothing_is_refused(simple: str, options: dict[str, Any], text: str) -> None:
    assert text in workload(trace=simple, **options).refusal(case_of())


def test_a_trace_without_operations_is_refused_as_that(tmp_path: Path) -> None:
    path = trace(tmp_path / "empty.h5", lambda to: None)
    with pytest.raises(ValueError, match=r"empty.h5' has no operations.*with the --root"):
        workload(trace=str(path))


def test_times_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    path = str(trace(tmp_path / "t.h5", program, timed=False))
    assert "mode: timed needs issue times" in workload(trace=path, mode="timed").refusal(case_of())
    assert "window: needs" in workload(trace=path, window=["0s", "1s"]).refusal(case_of())

    def without(to: Recorder) -> None:
        to.do(Kind.STAT, b"a", result=-2, latency=-1)

    path = str(trace(tmp_path / "l.h5", without))
    assert "have no latency" in workload(trace=path, time_scale=1).refusal(case_of())
    assert workload(trace=path).refusal(case_of()) == ""


def test_footprint(simple: str) -> None:
    needs = workload(trace=simple).footprint(case_of())
    assert (needs.space, needs.written, needs.read) == (10_100 + 5000, 10_100 + 5000, 8192)
    both = workload(trace=simple, clients="private").footprint(case_of(processes_per_node=2))
    assert both.space == 2 * needs.space
    timed = workload(trace=simple, mode="timed", time_scale=10).footprint(case_of())
    assert timed.seconds == pytest.approx(0.15)


def test_files_that_are_together_larger_than_64_bits_hold(tmp_path: Path) -> None:
    def lies(to: Recorder) -> None:
        for number in range(4):
            to.there(b"huge%d" % number, (1 << 63) - 1)
            to.do(Kind.STAT, b"huge%d" % number)

    path = str(trace(tmp_path / "t.h5", lies))
    prints = [workload(trace=path, fill=fill).footprint(case_of()) for fill in ("filled", "sparse")]
    assert [each.space for each in prints] == [4 * ((1 << 63) - 1), 0]


def test_kinds_that_a_driver_lacks_are_no_obstacle(simple: str) -> None:
    from fsmatrix.backends.player.ops import DRIVERS

    needs = workload(trace=simple).footprint(case_of())
    assert needs.kinds <= DRIVERS["rados"].kinds
    rados = type(ACCESS)  # noqa: F841


def test_steps_on_a_driver_without_directories(simple: str, root: Path) -> None:
    from dataclasses import replace

    class Rados(PathAccess):
        type = "rados"

    access = Rados("rados", "t")
    work = workload(trace=simple)
    steps = work.steps(Case("t", "replay", cache="warm"), access, ENGINE)
    assert [step.name for step in steps] == ["trace", "files", "verify-tree", "replay"]
    what = steps[-1].what
    assert isinstance(what, Stream)
    assert not {int(Kind.MKDIR), int(Kind.RENAME)} & set(what.params["able"])
    del replace, root
