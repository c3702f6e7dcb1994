"""The workload `io500`: its two halves, the score, and why it is no submission."""

from __future__ import annotations

import importlib
import json
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.ops import Chunk, Kind, Place
from fsmatrix.backends.player import PlayerResult, open_player
from fsmatrix.results import metrics
from fsmatrix.results.case import Case, Geometry
from fsmatrix.results.formats.base import ParseError, totals
from fsmatrix.results.formats.io500.score import BANDWIDTHS, RATES, score
from fsmatrix.results.formats.io500.score import PHASES as SCORED
from fsmatrix.suite.engines.base import EngineError
from fsmatrix.suite.engines.find import Engines
from fsmatrix.suite.engines.ior_mdtest import KIND, mdtest_of
from fsmatrix.suite.job import Job, Settings
from fsmatrix.suite.launchers.mpirun import Mpirun
from fsmatrix.suite.runner import Runner
from fsmatrix.suite.session.client import Session, StopFlag
from fsmatrix.suite.streams import io500 as streams
from fsmatrix.suite.workloads.base import Argv, Engine, Function, Output, Step, Stream
from fsmatrix.suite.workloads.io500 import Io500, Io500Options
from fsmatrix.suite.workloads.io500.phases import PHASES

DATA = Path(__file__).parents[1] / "data" / "io500_workload"
ACCESS = PathAccess("directory", "t")
PLAYER = Engine("player-c", "1")
IOR_FEATURES = {"option:stonewall-status-file", "option:ranks-csv"}
MDTEST_OPTIONS = ("x", "W", "Y", "X", "P", "saveRankPerformanceDetails")
PAIR = Engine(
    "ior+mdtest",
    "4.1.0",
    "/opt/ior/bin/ior",
    frozenset(
        {*IOR_FEATURES, "mdtest:/opt/ior/bin/mdtest"}
        | {f"mdtest-option:{name}" for name in MDTEST_OPTIONS}
    ),
)
IN_ORDER = [
    "write-ior-easy", "create-mdtest-easy", "write-ior-hard", "create-mdtest-hard", "find",
    "read-ior-easy", "stat-mdtest-easy", "read-ior-hard", "stat-mdtest-hard",
    "remove-mdtest-easy", "read-mdtest-hard", "remove-mdtest-hard",
]  # fmt: skip
SMALL = {
    "ior_easy_transfer_size": "64KiB",
    "ior_easy_block_size": "512KiB",
    "ior_hard_segments": 7,
    "mdtest_easy_n": 11,
    "mdtest_hard_n": 102,
}


def workload(**options: Any) -> Io500:
    return Io500(Io500Options.model_validate({**SMALL, **options}))


def case_of(cache: str = "cold", **geometry: int) -> Case:
    return Case("t", "io500", geometry=Geometry(**geometry), cache=cache)


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
    player = open_player(
        "posix", str(root), slots=what.slots, threads=1, seed=5,
        max_op_bytes=what.max_op_bytes, count_metadata=what.metadata,
    )  # fmt: skip
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
    assert {phase.io500 for phase in PHASES} == set(SCORED)
    names = [step.name for step in steps]
    assert (
        names.index("create-mdtest-easy") < names.index("timestamp") < names.index("write-ior-hard")
    )


def test_only_writing_stops_at_the_stonewall() -> None:
    steps = workload(stonewall=7).steps(case_of(), ACCESS, PLAYER)
    walls = {step.name: step.what.seconds for step in steps if isinstance(step.what, Stream)}
    assert {name for name, seconds in walls.items() if seconds} == {
        phase.name for phase in PHASES if phase.writes
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
        "write-ior-easy": 6, "write-ior-hard": 5,
        "create-mdtest-easy": 17, "create-mdtest-hard": 3 * 99 + 1,
    }  # fmt: skip
    results = play_all(workload(), case, tmp_path, most)
    found = {"ior-easy": 5 << 16, "ior-hard": 4 * 47008, "mdtest-easy": 9, "mdtest-hard": 99}
    assert results["survey"] == [found] * ranks
    assert sum(r.bytes for r in results["read-ior-easy"]) == ranks * found["ior-easy"]
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


# -- the score -----------------------------------------------------------------------------------
# the example in IO500's README, Appendix B: name, value, and the two means and the score
EXAMPLE = {
    "ior-easy-write": 0.186620, "mdtest-easy-write": 103.300821, "ior-hard-write": 0.001313,
    "mdtest-hard-write": 58.939081, "find": 1486.435084, "ior-easy-read": 1.575557,
    "mdtest-easy-stat": 839.392805, "ior-hard-read": 2.272671, "mdtest-hard-stat": 1212.558124,
    "mdtest-easy-delete": 160.765642, "mdtest-hard-read": 275.011939,
    "mdtest-hard-delete": 132.015851,
}  # fmt: skip


def test_score_of_io500s_own_example() -> None:
    result = score(EXAMPLE)
    assert result.bandwidth == pytest.approx(0.172092, rel=1e-4)
    assert result.rate == pytest.approx(292.625029, rel=1e-6)
    assert result.total == pytest.approx(7.096374, rel=1e-4)


@given(
    name=st.sampled_from(SCORED),
    value=st.sampled_from([0.0, -1.0, math.nan, math.inf]),
    gone=st.booleans(),
)
def test_no_score_without_all_phases(name: str, value: float, gone: bool) -> None:
    values = {key: old for key, old in EXAMPLE.items() if key != name}
    if not gone:
        values[name] = value
    result = score(values)
    assert result.total is None
    assert (result.bandwidth is None) == (name in BANDWIDTHS)
    assert (result.rate is None) == (name in RATES)


# -- parse ---------------------------------------------------------------------------------------
def find_outputs(found: int = 3) -> list[Output]:
    values = [{"entries": 500, "found": found, "seconds": 0.25 * (r + 1)} for r in range(2)]
    return [Output("find", "h", rank, value=value) for rank, value in enumerate(values)]


def played_outputs(seconds: float = 2.0) -> list[Output]:
    """As a session gives them: phases that count calls."""
    outputs = []
    calls = {"create-mdtest-easy": 2, "create-mdtest-hard": 3, "read-mdtest-hard": 3}
    for name in IN_ORDER:
        if name == "find":
            outputs += find_outputs()
            continue
        data = "ior" in name
        count = 1000 * calls.get(name, 1) + (1 if name == "create-mdtest-hard" else 0)
        phase = totals(name, seconds, (1 << 30) if data else 0, count)
        outputs.append(Output(name, "", 0, phase=phase))
    return outputs


def test_a_played_run_has_a_score_and_says_that_it_is_no_submission() -> None:
    run = workload(stonewall=2).parse(case_of(processes_per_node=2), played_outputs())
    assert run.failure == ""
    assert [phase.name for phase in run.phases] == IN_ORDER
    facts = run.facts["io500"]
    assert facts["bandwidth_score_gib_s"] == pytest.approx(0.5)
    assert facts["phases"]["mdtest-hard-write"] == pytest.approx(0.5)  # whole files, not calls
    assert facts["phases"]["find"] == pytest.approx(2.0)  # 1000 entries, the slower walk 0.5 s
    assert facts["rate_score_kiops"] == pytest.approx((0.5**7 * 2.0) ** (1 / 8))
    rate = facts["rate_score_kiops"]
    assert facts["score"] == pytest.approx(math.sqrt(0.5 * rate))
    assert facts["valid"] is False
    assert facts["why_not"] == [
        "done by the built-in player instead of IOR and mdtest",
        "a stonewall of 2 s, the rules want 300 s",
    ]
    (note,) = run.notes
    assert note.key == "not-a-submission"
    assert all(reason in note.message for reason in facts["why_not"])
    told = {phase.name: phase.facts for phase in run.phases}
    assert told["read-ior-easy"]["shift"] == "rank"
    assert told["stat-mdtest-easy"]["io500_phase"] == "mdtest-easy-stat"
    assert told["write-ior-hard"]["synced"] is True
    assert told["create-mdtest-hard"]["synced"] is False
    json.dumps(run.facts, allow_nan=False)


@pytest.mark.parametrize("count", range(13))
def test_a_run_that_broke_off_has_no_score(count: int) -> None:
    run = workload(stonewall=300).parse(case_of(), played_outputs(400.0)[:count])
    facts = run.facts["io500"]
    assert (facts["score"], facts["valid"]) == (None, False)
    assert any(reason.startswith("no value of ") for reason in facts["why_not"])


def test_what_breaks_the_rules_is_said() -> None:
    short = workload(stonewall=300).parse(case_of(), played_outputs(299.0)).facts["io500"]
    assert sum("before the stonewall" in reason for reason in short["why_not"]) == 4
    outputs = played_outputs(400.0)
    missed = [replace(o, value={**o.value, "found": 0}) if o.value else o for o in outputs]
    assert "find found nothing" in workload().parse(case_of(), missed).facts["io500"]["why_not"]
    other = [
        replace(o, phase=replace(o.phase, bytes=o.phase.bytes // 2))
        if o.phase is not None and o.step == "read-ior-hard"
        else o
        for o in outputs
    ]
    why = workload().parse(case_of(), other).facts["io500"]["why_not"]
    assert any(reason.startswith("ior-hard-read met 536870912 bytes") for reason in why)
    ten = workload().parse(case_of(nodes=10), outputs).facts["io500"]
    assert (ten["client_nodes"], ten["ten_node_list"]) == (10, True)


# -- IOR and mdtest ------------------------------------------------------------------------------
def recorded() -> list[Output]:
    """A real run of IOR and mdtest 4.1 by this workload: 2 processes, a stonewall of 1 s."""
    outputs = []
    for name in IN_ORDER:
        if name == "find":
            outputs += find_outputs()
            continue
        text = (DATA / f"{name}.txt").read_text()
        ranks = (DATA / f"{name}.ranks.csv").read_text()
        outputs.append(Output(name, "", 0, stdout=text, files={"ranks.csv": ranks}))
    return outputs


def test_real_outputs_give_every_phase_and_a_score() -> None:
    run = workload(stonewall=1).parse(case_of(processes_per_node=2), recorded())
    assert run.failure == ""
    assert (run.engine, run.version, run.processes, run.nodes) == ("ior+mdtest", "4.1.0+dev", 2, 1)
    found = {phase.name: phase for phase in run.phases}
    assert list(found) == IN_ORDER
    assert found["write-ior-easy"].bytes.sum() == found["read-ior-easy"].bytes.sum() == 528482304
    assert found["read-ior-hard"].bytes.sum() == 282048000
    for name in ("create", "stat", "remove"):
        assert found[f"{name}-mdtest-easy"].operations.sum() == 2300
        assert found[f"{name}-mdtest-hard"].operations.sum() == 8088
    values = run.facts["io500"]["phases"]
    for access in ("write", "read"):
        lines = (DATA / f"{access}-ior-easy.txt").read_text().splitlines()
        printed = next(line.split()[1] for line in lines if line.startswith(f"{access}  "))
        assert values[f"ior-easy-{access}"] * 1024 == pytest.approx(float(printed), rel=2e-4)
    assert run.facts["io500"]["why_not"] == [
        "a stonewall of 1 s, the rules want 300 s",
        "ior-hard-write ended after 0.5 s, before the stonewall: let it write more",
    ]
    shifts = {name: phase.facts.get("shift") for name, phase in found.items()}
    assert shifts["read-ior-easy"] == "none"
    assert shifts["stat-mdtest-easy"] == "rank"
    assert shifts["read-mdtest-hard"] == "none"  # two ranks further, of two
    assert metrics.window(found["create-mdtest-hard"]) > 1.0


@pytest.mark.parametrize("name", [name for name in IN_ORDER if name != "find"])
@settings(max_examples=25, deadline=None)
@given(share=st.floats(0.0, 0.9))
def test_a_cut_output_is_never_an_ok_run(name: str, share: float) -> None:
    whole = next(output for output in recorded() if output.step == name)
    cut = replace(whole, stdout=whole.stdout[: int(len(whole.stdout) * share)], files={})
    try:
        run = workload(stonewall=1).parse(case_of(processes_per_node=2), [cut])
    except ParseError:
        return
    assert run.failure.startswith(f"{name}: ")


def test_another_world_is_a_failed_run() -> None:
    run = workload(stonewall=1).parse(case_of(processes_per_node=4), recorded())
    assert "2 tasks" in run.failure


def argvs(**options: Any) -> dict[str, tuple[str, ...]]:
    steps = workload(**options).steps(case_of(processes_per_node=2), ACCESS, PAIR)
    return {step.name: step.what.argv for step in steps if isinstance(step.what, Argv)}


def test_arguments_are_those_of_io500() -> None:
    found = argvs(stonewall=30)
    for name, argv in found.items():
        program = "ior" if "ior" in name else "mdtest"
        assert argv[0] == f"/opt/ior/bin/{program}"
        line = " ".join(argv)
        home = name.partition("-")[2]
        assert f"{{path}}/{home}.stonewall" in line
        assert (" -D 30 " in line or " -W 30 " in line) == name.startswith(("write", "create"))
    easy, hard = " ".join(found["write-ior-easy"]), " ".join(found["write-ior-hard"])
    assert "-F -t 65536 -b 524288 -w -D 30 -O stoneWallingWearOut=1" in easy
    assert "-t 47008 -b 47008 -s 7 -w -D 30 -O stoneWallingWearOut=1" in hard
    assert " -F " not in hard
    assert all(" -C -Q 1 -g " in line and " -k -e " in line for line in (easy, hard))
    assert " -r -R" in " ".join(found["read-ior-hard"])
    files = " ".join(found["create-mdtest-easy"])
    assert "-n 11 -u -L -C -Y -W 30" in files
    assert "-n 102 -t -w 3901 -e 3901 -E -X" in " ".join(found["read-mdtest-hard"])
    assert all("-N 1" in " ".join(argv) for name, argv in found.items() if "mdtest" in name)


def test_what_is_written_and_read_has_one_signature_per_case() -> None:
    one, other = argvs(), argvs(stonewall=30)
    signature = {argv[argv.index("-G") + 1] for argv in one.values()}
    assert len(signature) == 1
    assert int(signature.pop()) < 1 << 31
    assert one.keys() == other.keys()


def test_builds_that_lack_an_option_are_refused() -> None:
    work, case = workload(), case_of()
    assert work.unsupported(case, "path", PAIR) == ""
    assert work.unsupported(case, "path", Engine("ior+mdtest", "")) == ""  # not probed
    assert work.unsupported(case, "path", PLAYER) == ""
    old = replace(PAIR, features=PAIR.features - {"mdtest-option:Y"})
    assert "(-Y)" in work.unsupported(case, "path", old)


# -- the pair ------------------------------------------------------------------------------------
IOR_ANSWER = "IOR-4.1.0: MPI Coordinated Test of Parallel I/O\\n  -O stoneWallingStatusFile=\\n"
MDTEST_ANSWER = (
    "  -C     only create files/dirs\\n  -Y    call\\n"
    "mdtest-4.1.0 was launched with 1 total task(s) on 1 node(s)\\n"
)


def stand_in(path: Path, answer: str) -> Path:
    """A program that answers every question with one text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nprintf '{answer}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither program on PATH nor in the environment."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("FSMATRIX_IOR", "FSMATRIX_MDTEST"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("bare")
def test_the_pair_is_found_by_iors_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ior = stand_in(tmp_path / "a" / "ior", IOR_ANSWER)
    with pytest.raises(EngineError, match="mdtest"):
        KIND.probe(str(ior))
    other = stand_in(tmp_path / "b" / "mdtest", MDTEST_ANSWER)
    monkeypatch.setenv("FSMATRIX_MDTEST", str(other))
    assert mdtest_of(KIND.probe(str(ior))) == str(other)
    monkeypatch.delenv("FSMATRIX_MDTEST")
    beside = stand_in(tmp_path / "a" / "mdtest", MDTEST_ANSWER)
    monkeypatch.setenv("FSMATRIX_IOR", str(ior))
    engine = KIND.probe()
    assert (engine.name, engine.version, engine.path) == ("ior+mdtest", "4.1.0", str(ior))
    assert mdtest_of(engine) == str(beside)
    assert {"mdtest-option:Y", "option:stonewall-status-file"} <= engine.features
    assert KIND.variable == "FSMATRIX_IOR"


@pytest.mark.usefixtures("bare")
def test_without_ior_there_is_no_pair(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="FSMATRIX_IOR"):
        KIND.probe()
    with pytest.raises(EngineError, match="does not tell its version"):
        KIND.probe(str(stand_in(tmp_path / "ior", "something else\\n")))


# -- for real ------------------------------------------------------------------------------------
@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    found = Mpirun.probe()
    if not found.ok:
        pytest.skip(found.reason)
    data = tmp_path / "data"
    data.mkdir()
    session = Session(Mpirun(found), Geometry(1, 2), StopFlag())
    session.start()
    access = PathAccess(backend="directory", target="here", path=str(data),
                        details={"tree": str(data), "tag": "t", "host": ""})  # fmt: skip
    facts = {"session": "s", "environment": {}, "driver": "posix", "memory": False}
    yield Runner(
        session,
        access,
        tmp_path / "journal",
        Settings(60.0, 1.0, out=tmp_path),
        lambda: None,
        facts,
    )
    session.close()
    assert list(data.iterdir()) == []


def run_on(runner: Runner, engine: Engine) -> Any:
    """A run with a stonewall of 1 s, which the creation of empty files meets."""
    work = workload(stonewall=1, mdtest_easy_n=300_000)
    case = Case("here", "io500", {}, Geometry(1, 2), cache="warm")
    job = Job(case, work, engine, {"target": "here"}, 0, 1, 0, "a", 1)
    record, broken = runner.run(job)
    assert broken is None
    assert record.status == "ok", record.error
    assert [phase.name for phase in record.phases] == IN_ORDER
    found = {phase.name: phase for phase in record.phases}
    assert not any(phase.errors.sum() for phase in record.phases)
    assert found["read-ior-easy"].bytes.sum() == found["write-ior-easy"].bytes.sum() == 1 << 20
    assert found["read-ior-hard"].bytes.sum() == 2 * 7 * 47008
    made = int(found["create-mdtest-easy"].operations.sum())
    met = int(found["stat-mdtest-easy"].operations.sum())
    assert 0 < made <= met <= made + 2
    assert found["remove-mdtest-easy"].operations.sum() == met
    assert found["find"].operations.sum() > met + 2 * 102
    assert found["find"].facts["found"] > 0
    facts = record.evidence["engine"]["facts"]["io500"]
    assert facts["score"] > 0
    assert not any("were made" in reason for reason in facts["why_not"])
    return record


def test_the_player_does_it_on_a_session(runner: Runner) -> None:
    record = run_on(runner, Engines({}).get("player"))
    assert record.evidence["engine"]["name"] == "player"
    notes = [note["message"] for note in record.evidence["engine"]["notes"]]
    assert any("built-in player" in note for note in notes)


def test_ior_and_mdtest_do_it_on_a_session(runner: Runner) -> None:
    try:
        engine = KIND.probe()
    except EngineError as error:
        pytest.skip(f"not in any registry: {error}")
    record = run_on(runner, engine)
    assert record.evidence["engine"]["name"] == "ior+mdtest"
    assert np.all([phase.bytes.sum() >= 0 for phase in record.phases])
