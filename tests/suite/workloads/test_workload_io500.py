"""The workload `io500`: its plans, the player's half of it, find."""

from __future__ import annotations

import importlib
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import Chunk, Kind, Place
from fsmatrix.backends.player.player import PlayerResult, open_player
from fsmatrix.results.audits.storage import RANDOM_READS
from fsmatrix.results.formats.io500_text import PHASES as SCORED
from fsmatrix.results.record import Case
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.workloads.io500 import Io500
from fsmatrix.suite.workloads.io500_phases import PHASES
from fsmatrix.suite.workloads.streams import io500 as streams
from fsmatrix.suite.workloads.workload import Function, Step, Stream
from tests.suite.io500_workload import (
    ACCESS,
    IN_ORDER,
    PAIR,
    PLAYER,
    RANDOM,
    case_of,
    workload,
)


def place(case: Case, rank: int) -> Place:
    geometry = case.geometry
    node = rank // geometry.processes_per_node
    return Place(rank, geometry.processes, node, geometry.nodes, geometry.threads, 9)


def call(step: Step, where: Place, root: Path) -> dict[str, Any]:
    """A function's answer, as a session gets it: by name, through JSON."""
    assert isinstance(step.what, Function)
    module, name = step.what.function.split(":")
    params = json.loads(json.dumps(step.what.params))
    value: dict[str, Any] = getattr(importlib.import_module(module), name)(params, where, str(root))
    return value


def play(step: Step, where: Place, root: Path, most: int | None = None) -> PlayerResult:
    """Play a stream of one rank to its end, or for `most` operations and then what ends it."""
    what = step.what
    assert isinstance(what, Stream)
    module, name = what.generator.split(":")
    params = json.loads(json.dumps(what.params))
    generator = getattr(importlib.import_module(module), name)(params, where)
    options = PlayerOptions(
        slots=what.slots, seed=5, max_op_bytes=what.max_op_bytes, count_metadata=what.metadata
    )
    player = open_player("posix", str(root), options)
    try:
        done, chunk = 0, next(generator, None)
        while chunk is not None:
            size = len(chunk.ops) if most is None else min(len(chunk.ops), most - done)
            part = Chunk(chunk.ops[:size], chunk.names, chunk.first)
            assert player.play(part) == size, player.result().first_error
            done += size
            stopped = done == most
            most = None if stopped else most
            chunk = _next(generator, stopped)
        return player.result()
    finally:
        player.close()


def _next(generator: Any, stopped: bool) -> Chunk | None:
    try:
        return generator.send(True) if stopped else next(generator)  # type: ignore[no-any-return]
    except StopIteration:
        return None


def play_all(work: Io500, case: Case, root: Path, most: dict[str, int]) -> dict[str, list[Any]]:
    """All steps of the player's half, rank after rank; answers and results by step.

    `most`: step -> operations of every rank at its stonewall.
    """
    results: dict[str, list[Any]] = {}
    for step in work.steps(case, ACCESS, PLAYER):
        for rank in range(case.geometry.processes):
            where = place(case, rank)
            if isinstance(step.what, Function):
                result: Any = call(step, where, root)
            else:  # here all ranks share one memory: each is given what its own survey found
                if "survey" in results:
                    streams._found[where.seed] = results["survey"][rank]
                result = play(step, where, root, most.get(step.name))
            results.setdefault(step.name, []).append(result)
    return results


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


# -- options and plans -------------------------------------------------------------------------
def test_options_are_judged() -> None:
    with pytest.raises(ValidationError, match="must be a multiple of ior_easy_transfer_size"):
        workload(ior_easy_block_size="100KiB")
    with pytest.raises(ValidationError, match="1KiB is below 4KiB, one random read"):
        workload(ior_easy_transfer_size="1KiB", ior_easy_block_size="1KiB")
    with pytest.raises(ValidationError, match="stonewall"):
        workload(stonewall=0)
    with pytest.raises(ValidationError, match="phases"):
        workload(phases=["find"])


def test_what_cannot_be_done_is_refused() -> None:
    assert "O_DIRECT" in workload().refusal(case_of("bypass"))
    assert "threads" in workload().refusal(case_of(threads=2))
    assert workload().refusal(case_of(nodes=2, processes_per_node=3)) == ""


def test_the_engine_is_the_pair_where_it_can_be_used() -> None:
    assert Io500.default_engine(lambda name: name == "ior+mdtest") == "ior+mdtest"
    assert Io500.default_engine(lambda name: name == "ior") == "player"


@pytest.mark.parametrize("engine", [PLAYER, PAIR])
def test_phases_are_those_of_io500_in_its_order(engine: Engine) -> None:
    steps = workload().steps(case_of(processes_per_node=2), ACCESS, engine)
    timed = [step for step in steps if step.role == "timed"]
    assert [step.name for step in timed] == IN_ORDER
    looks = {step.name for step in timed if step.reads}
    assert looks == {name for name in IN_ORDER if name.startswith(("read", "stat", "find"))}
    assert {phase.io500 for phase in PHASES if phase.name != RANDOM} == set(SCORED)
    names = [step.name for step in steps]
    assert (
        names.index("create-mdtest-easy") < names.index("timestamp") < names.index("write-ior-hard")
    )


def test_only_writing_and_random_reads_stop_at_the_stonewall() -> None:
    steps = workload(stonewall=7).steps(case_of(), ACCESS, PLAYER)
    walls = {step.name: step.what.seconds for step in steps if isinstance(step.what, Stream)}
    assert {name for name, seconds in walls.items() if seconds} == {
        *(name for name in IN_ORDER if name.startswith(("write", "create"))),
        RANDOM,
    }
    assert set(walls.values()) == {0.0, 7.0}


def test_footprint_bounds_what_is_made(tmp_path: Path) -> None:
    case, work = case_of(processes_per_node=2), workload()
    steps = work.steps(case, ACCESS, PLAYER)
    for step in steps[: [step.name for step in steps].index("survey")]:
        for rank in range(2):
            run = call if isinstance(step.what, Function) else play
            run(step, place(case, rank), tmp_path)
    needs = work.footprint(case)
    everything = files(tmp_path)
    assert sum(path.stat().st_size for path in everything) == needs.space == needs.written
    assert len(list(tmp_path.rglob("*"))) <= needs.files


# -- the player's half ---------------------------------------------------------------------------
@pytest.mark.parametrize("geometry", [(1, 1), (1, 3), (2, 2)])
def test_later_phases_meet_exactly_what_there_is(geometry: tuple[int, int], tmp_path: Path) -> None:
    case = case_of(nodes=geometry[0], processes_per_node=geometry[1])
    ranks = case.geometry.processes
    # at the stonewall: 5 transfers, 4 segments, 8 files and the create of a ninth, 100 files
    # of which the last has no data yet
    most = {
        "write-ior-easy": 6,
        "write-ior-hard": 5,
        "create-mdtest-easy": 17,
        "create-mdtest-hard": 3 * 99 + 1,
    }
    results = play_all(workload(), case, tmp_path, most)
    found = {"ior-easy": 5 << 16, "ior-hard": 4 * 47008, "mdtest-easy": 9, "mdtest-hard": 99}
    assert results["survey"] == [found] * ranks
    assert sum(r.bytes for r in results["read-ior-easy"]) == ranks * found["ior-easy"]
    assert [r.bytes for r in results[RANDOM]] == [found["ior-easy"]] * ranks
    assert [int(r.counts[Kind.READ].sum()) for r in results[RANDOM]] == [5 << 4] * ranks
    assert sum(r.bytes for r in results["read-ior-hard"]) == ranks * found["ior-hard"]
    assert sum(r.bytes for r in results["read-mdtest-hard"]) == ranks * 99 * 3901
    for name, count in (("stat-mdtest-easy", 9), ("stat-mdtest-hard", 99)):
        assert [int(r.counts[Kind.STAT].sum()) for r in results[name]] == [count] * ranks
    left = {path.name for path in files(tmp_path)}
    assert not [name for name in left if name.startswith("f.")]
    names = [f"f.{rank:08d}.0.{item:04d}" for rank in range(ranks) for item in range(99)]
    expected = sum("01" in name for name in names)
    assert sum(answer["found"] for answer in results["find"]) == expected
    assert streams.STAMP in left


def random_chunks(size: int, stop_after: int) -> list[Chunk]:
    """Chunks of the random reads of a file of that many bytes; the time is over after so many."""
    steps = {step.name: step for step in workload().steps(case_of(), ACCESS, PLAYER)}
    what = steps[RANDOM].what
    assert isinstance(what, Stream)
    streams._found[9] = {"ior-easy": size}
    generator = streams.read_data(what.params, place(case_of(), 0))
    chunks: list[Chunk] = []
    chunk: Chunk | None = next(generator)
    while chunk is not None:
        chunks.append(chunk)
        chunk = _next(generator, len(chunks) == stop_after)
    return chunks


@pytest.mark.parametrize("rest", [0, 1, 4095])
def test_random_reads_meet_each_whole_block_once_in_no_order(rest: int) -> None:
    opening, data, closing = random_chunks(300 * 4096 + rest, 0)
    assert opening.names == [b"data.00000000"]
    assert list(opening.ops["kind"]) == [Kind.OPEN]
    assert set(data.ops["kind"]) == {Kind.READ}
    assert set(data.ops["size"]) == {4096}
    offsets = [int(offset) for offset in data.ops["offset"]]
    assert sorted(offsets) == [4096 * block for block in range(300)]
    follow = sum(after - before == 4096 for before, after in pairwise(offsets))
    assert follow < 30
    assert list(closing.ops["kind"]) == [Kind.CLOSE]


def test_random_reads_end_at_the_stonewall_and_close_their_file() -> None:
    many = random_chunks(1 << 30, 2)  # the opening, and one chunk of eight
    assert [list(set(chunk.ops["kind"])) for chunk in many] == [
        [Kind.OPEN],
        [Kind.READ],
        [Kind.CLOSE],
    ]
    assert len(many[1].ops) < 1 << 18


def test_the_audit_of_random_reads_knows_the_phases_of_the_workload() -> None:
    names = {phase.name: phase for phase in PHASES}
    (ours,) = [name for name in RANDOM_READS if name in names]
    assert ours == RANDOM
    assert names[RANDOM_READS[ours]].home == names[ours].home == "ior-easy"
    both = {names[ours].io500: names[RANDOM_READS[ours]].io500}
    assert both.items() <= RANDOM_READS.items()


def test_a_wrong_byte_is_found_by_the_verifying_reads(tmp_path: Path) -> None:
    case = case_of()
    steps = {step.name: step for step in workload().steps(case, ACCESS, PLAYER)}
    for name in ("directories", "write-ior-easy", "create-mdtest-hard"):
        run = call if isinstance(steps[name].what, Function) else play
        run(steps[name], place(case, 0), tmp_path)
    streams._found[9] = {"ior-easy": 512 << 10, "mdtest-hard": 102}
    for path in (tmp_path / "data.00000000", next((tmp_path / "mdtest-hard").rglob("f.*"))):
        content = bytearray(path.read_bytes())
        content[3000] ^= 1
        path.write_bytes(content)
    for name in ("read-ior-easy", "read-mdtest-hard"):
        with pytest.raises(AssertionError, match="EVERIFY"):
            play(steps[name], place(case, 0), tmp_path)


def test_unequal_shares_of_the_shared_file_are_no_result(tmp_path: Path) -> None:
    case = case_of(processes_per_node=2)
    steps = {step.name: step for step in workload().steps(case, ACCESS, PLAYER)}
    call(steps["directories"], place(case, 0), tmp_path)
    (tmp_path / "data.00000000").write_bytes(b"x" * (1 << 16))
    (tmp_path / "data.00000001").write_bytes(b"x" * (1 << 16))
    (tmp_path / "data").write_bytes(b"x" * 3 * 47008)
    with pytest.raises(ValueError, match="not the same number of blocks"):
        call(steps["survey"], place(case, 0), tmp_path)
    (tmp_path / "data").write_bytes(b"x" * 4 * 47008)
    with pytest.raises(ValueError, match="made no file in mdtest-easy"):
        call(steps["survey"], place(case, 0), tmp_path)


@given(stop=st.integers(0, 10))
def test_wherever_the_time_ends_the_data_is_synced_and_the_file_closed(stop: int) -> None:
    step = workload().steps(case_of(), ACCESS, PLAYER)[1]
    assert isinstance(step.what, Stream)
    generator = streams.write_data(step.what.params, place(case_of(), 0))
    played: list[int] = []
    chunk = next(generator, None)
    while chunk is not None and len(played) < stop + 1:
        played += list(chunk.ops["kind"])
        chunk = _next(generator, len(played) >= stop + 1)
    while chunk is not None:
        played += list(chunk.ops["kind"])
        chunk = _next(generator, False)
    assert played.count(Kind.CLOSE) == 1
    assert played[-1] == Kind.CLOSE
    assert played[-2] == Kind.FSYNC
    writes = [index for index, kind in enumerate(played) if kind == Kind.WRITE]
    assert not writes or Kind.FSYNC in played[writes[-1] :]


def test_a_stop_within_a_chunk_of_files_does_not_play_the_rest() -> None:
    steps = {step.name: step for step in workload().steps(case_of(), ACCESS, PLAYER)}
    what = steps["create-mdtest-easy"].what
    assert isinstance(what, Stream)
    generator = streams.items(what.params, place(case_of(), 0))
    next(generator)
    last = _next(generator, True)
    assert last is not None  # None would make the session play what was left of the chunk
    assert len(last.ops) == 0
    assert _next(generator, False) is None


# -- find ----------------------------------------------------------------------------------------
def test_what_is_made_in_the_same_tick_of_the_clock_is_newer_than_the_stamp(tmp_path: Path) -> None:
    streams.stamp({}, place(case_of(), 0), str(tmp_path))
    file = tmp_path / "f.01"
    file.write_bytes(b"x" * 3901)
    stamped = (tmp_path / streams.STAMP).stat()
    coarse = stamped.st_ctime_ns // streams.EARLIER * streams.EARLIER  # the slowest clock's time
    os.utime(file, ns=(coarse, coarse))
    (step,) = (s for s in workload().steps(case_of(), ACCESS, PLAYER) if s.name == "find")
    assert call(step, place(case_of(), 0), tmp_path)["found"] == 1


def tree(root: Path) -> tuple[int, set[str]]:
    """A tree of 5 levels; the number of its entries, and what find must find."""
    (root / streams.STAMP).touch()
    os.utime(root / streams.STAMP, (1000, 1000))
    found = set()
    for folder in ("a/01/c/d", "a/01/e", "b/m/n/o/p", "01"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name, size in (("f01", 3901), ("f.0010", 3901), ("f02", 3901), ("g01", 3900)):
            path = root / folder / name
            path.write_bytes(b"x" * size)
            if "01" in name and size == 3901:
                found.add(str(path))
        old = root / folder / "h01"
        old.write_bytes(b"x" * 3901)
        os.utime(old, (999, 999))
        (root / folder / "link01").symlink_to(root / folder / "f01")
    return sum(1 for _ in root.rglob("*")), found


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_find_sees_each_entry_once(ranks: int, tmp_path: Path) -> None:
    entries, found = tree(tmp_path)
    case = case_of(processes_per_node=ranks)
    (step,) = (s for s in workload().steps(case, ACCESS, PLAYER) if s.name == "find")
    answers = [call(step, place(case, rank), tmp_path) for rank in range(ranks)]
    assert sum(answer["entries"] for answer in answers) == entries
    assert sum(answer["found"] for answer in answers) == len(found) == 8
