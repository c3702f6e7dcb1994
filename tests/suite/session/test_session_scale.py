"""Many ranks on several nodes: what is a node, trees between nodes, and a session of 128."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.results.audits import audit_run
from fsmatrix.results.case import Case, Geometry
from fsmatrix.results.record import RunRecord
from fsmatrix.suite.cases.engines import Engines
from fsmatrix.suite.launchers.mpirun import Mpirun
from fsmatrix.suite.run.environment import world_of
from fsmatrix.suite.run.runner import Runner
from fsmatrix.suite.run.spec import RunSpec, Settings
from fsmatrix.suite.session import clock
from fsmatrix.suite.session.client.client import Session
from fsmatrix.suite.session.client.death import explain_death
from fsmatrix.suite.session.comm import SoloComm
from fsmatrix.suite.session.survey import Rank, disagreements, own_facts, plain_name, survey
from fsmatrix.suite.session.world import FAN, World, from_rows, in_rows
from fsmatrix.suite.workloads.pattern import Pattern
from fsmatrix.suite.workloads.pattern.options import PatternOptions
from tests.suite.sessions import runner_on, started

CHUNK = 4096
SECONDS = 300.0


# -- what is a node --------------------------------------------------------------------------
class Gathered(SoloComm):
    """A world whose ranks see what the test says: (host, boot id, processor, shared)."""

    def __init__(self, *sights: tuple[str, str, str, int]) -> None:
        self.size = len(sights)
        names = ("host", "boot_id", "processor", "shared")
        self.sights = [dict(zip(names, sight, strict=True)) for sight in sights]

    def gather(self, value: Any) -> list[Any] | None:
        return [value | sight for sight in self.sights]


def seen(*sights: tuple[str, str, str, int]) -> list[dict[str, Any]]:
    return [asdict(rank) for rank in survey(Gathered(*sights))]


PLAIN = (("a", "A", "a", 0), ("a", "A", "a", 0), ("b", "B", "b", 2), ("b", "B", "b", 2))


@pytest.mark.parametrize(
    ("sights", "nodes", "emulated", "said"),
    [
        pytest.param(PLAIN, [0, 0, 1, 1], False, [], id="two-hosts"),
        pytest.param(
            (PLAIN[0], PLAIN[2], ("a", "A", "a", 0), ("b", "B", "b", 1)),
            [0, 1, 0, 1],
            False,
            None,
            id="cyclic",
        ),
        pytest.param(
            (("n", "A", "n", 0), ("n", "A", "n", 0), ("n", "B", "n", 2), ("n", "B", "n", 2)),
            [0, 0, 1, 1],
            False,
            ["MPI sees the processor name n on 2 nodes (n, n)"],
            id="two-machines-of-one-name",
        ),
        pytest.param(
            (("n", "A", "n", 0), ("n", "B", "n", 0)),
            [0, 1],
            False,
            [
                "MPI sees the processor name n on 2 nodes (n, n)",
                "MPI sees one shared memory on 2 nodes (n, n)",
            ],
            id="one-name-that-MPI-believes",
        ),
        pytest.param(
            (("a", "A", "a", 0), ("a", "A", "a", 1)),
            [0, 0],
            False,
            ["MPI sees 2 groups of shared memory on the one node a"],
            id="one-host-split",
        ),
        pytest.param(
            (("a", "A", "a1", 0), ("a", "A", "a2", 1)),
            [0, 0],
            False,
            [
                "MPI sees 2 processor names on the one node a",
                "MPI sees 2 groups of shared memory on the one node a",
            ],
            id="aliases-of-one-host",
        ),
        pytest.param(
            (("a.site.org", "A", "a", 0), ("a", "A", "a", 0)), [0, 0], False, [], id="domain"
        ),
        pytest.param(
            (
                ("node-with-a-long-name-1", "A", "node-with", 0),
                ("node-with-a-long-name-2", "B", "node-with", 1),
            ),
            [0, 1],
            False,
            [
                "MPI sees the processor name node-with on 2 nodes "
                "(node-with-a-long-name-1, node-with-a-long-name-2)"
            ],
            id="truncated",
        ),
        pytest.param(
            (("box1", "A", "box1", 0), ("box2", "A", "box2", 1)),
            [0, 1],
            True,
            [],
            id="containers-on-one-kernel",
        ),
        pytest.param(
            (("10.0.0.1", "A", "10.0.0.1", 0), ("10.0.0.2", "A", "10.0.0.2", 1)),
            [0, 1],
            True,
            [],
            id="addresses-for-names",
        ),
    ],
)
def test_one_node_is_one_node(
    sights: tuple[tuple[str, str, str, int], ...],
    nodes: list[int],
    emulated: bool,
    said: list[str] | None,
) -> None:
    ranks = seen(*sights)
    assert [rank["node"] for rank in ranks] == nodes
    for node in set(nodes):
        inside = [rank["node_rank"] for rank in ranks if rank["node"] == node]
        assert inside == list(range(len(inside)))
    if said is not None:
        assert disagreements(ranks) == said
    world = world_of(Geometry(2, len(ranks) // 2), ranks)
    assert world.got_nodes == len(set(nodes))
    assert world.emulated_nodes is emulated


def test_a_world_of_one_sees_itself() -> None:
    (rank,) = survey(SoloComm())
    facts = own_facts(SoloComm())
    assert (rank.pid, rank.host, list(rank.cpus)) == (os.getpid(), facts["host"], facts["cpus"])
    assert plain_name(rank.processor) == plain_name(rank.host)


def test_oversubscription_is_counted_on_each_kernel() -> None:
    ranks = seen(*PLAIN)
    for rank, cpus in zip(ranks, ((0,), (1,), (0, 1), (0, 1)), strict=True):
        rank["cpus"] = cpus
    assert not world_of(Geometry(2, 2), ranks).oversubscribed, "each is bound to its own CPU"
    assert world_of(Geometry(2, 2, 2), ranks).oversubscribed
    ranks[1]["cpus"] = (0,)
    assert world_of(Geometry(2, 2), ranks).oversubscribed, "two ranks share one CPU"


# -- trees -------------------------------------------------------------------------------------
@given(st.lists(st.integers(0, 300), unique=True))
def test_rows_keep_ranks_and_their_order(ranks: list[int]) -> None:
    assert from_rows(json.loads(json.dumps(in_rows(ranks)))) == ranks


def test_rows_are_few() -> None:
    assert in_rows(range(10_000)) == [[0, 10_000, 1]]
    cyclic = [rank for node in range(5) for rank in range(node, 40, 5)]
    assert in_rows(cyclic) == [[node, 8, 5] for node in range(5)]
    half = [node * 8 + rank for node in range(5) for rank in range(4)]
    assert in_rows(half) == [[node * 8, 4, 1] for node in range(5)]


def leader(nodes: int, node: int) -> World:
    """Of a made-up world of two ranks on each node."""
    world = World.__new__(World)
    world.ranks = tuple(
        Rank(rank, f"n{rank // 2}", rank // 2, rank % 2, "", "", 0, ()) for rank in range(2 * nodes)
    )
    world.leaders = list(range(0, 2 * nodes, 2))
    world.me = world.ranks[2 * node]
    return world


@pytest.mark.parametrize("count", [1, 2, FAN, FAN + 1, FAN + 2, 73, 200])
def test_a_command_reaches_every_addressed_node_once(count: int) -> None:
    addressed = {4 * index for index in range(count)}  # every second node
    reached, hops = [0], 0
    line = [0]
    while line:
        line = [
            following
            for rank in line
            for following in leader(2 * count, rank // 2)._next_leaders(addressed)
        ]
        reached += line
        hops += bool(line)
    assert sorted(reached) == sorted(addressed)
    assert FAN ** (hops - 1) < max(count, 2)


@pytest.mark.parametrize("count", [1, 2, clock.FAN, clock.FAN + 1, 100, 600])
def test_clocks_are_compared_along_a_tree(count: int) -> None:
    hops = {0: 0}
    for knowing, asking in clock.pairs(count):
        assert asking not in hops
        hops[asking] = hops[knowing] + 1  # who answers knows the time already
    assert sorted(hops) == list(range(count))
    answered = [asking for knowing, asking in clock.pairs(count) if knowing == 0]
    rounds = sum(clock.FAN**digits < count for digits in range(10))
    assert max(hops.values()) <= rounds
    assert len(answered) <= (clock.FAN - 1) * rounds


TREES = """
import json
from mpi4py import MPI
from fsmatrix.suite.session.clock import measure
from fsmatrix.suite.session.comm import MpiComm
world = MpiComm(MPI.COMM_WORLD)
told = {}
for size in range(1, world.size + 1):
    if world.rank < size:
        told[size] = world.part(range(size)).gather({"rank": world.rank, "text": "x" * world.rank})
odd = [5, 1, 3, 7]
if world.rank in odd:
    told["odd"] = world.part(odd).gather(world.rank)
if world.rank:
    world.post(b"%d" % world.rank, 0)
else:
    posts = []
    while len(posts) < world.size - 1:
        if (post := world.fetch()) is not None:
            posts.append(int(post))
    told["posts"] = sorted(posts)
first = {str(rank): rank for rank in range(world.size)}
offset = measure(world, first, str(world.rank))
told["offset"] = [offset.nanoseconds, offset.uncertainty]
answers = world.gather(told)
if answers is not None:
    print(json.dumps(answers))
"""


def test_trees_over_mpi() -> None:
    """Gathers of every size, posts, and clocks over two hops between kernels that are one."""
    found = Mpirun.probe()
    if not found.ok:
        pytest.skip(found.reason)
    ranks = clock.FAN + 2
    launcher = Mpirun(found)
    command = launcher.command([sys.executable, "-P", "-c", TREES], Geometry(1, ranks), {})
    done = subprocess.run(
        command,
        env=os.environ | launcher.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answers = json.loads(done.stdout)
    assert len(answers) == ranks
    for size in range(1, ranks + 1):
        assert answers[0][str(size)] == [{"rank": r, "text": "x" * r} for r in range(size)]
        assert all(answer[str(size)] is None for answer in answers[1:size])
    assert answers[5]["odd"] == [5, 1, 3, 7]
    assert answers[0]["posts"] == list(range(1, ranks))
    offsets = [answer["offset"] for answer in answers]
    assert offsets[0] == [0, 0]
    assert all(abs(offset) <= bound for offset, bound in offsets)
    assert offsets[clock.FAN + 1][1] > offsets[1][1], "the second hop adds to the first's bound"


# -- the reason of an end -------------------------------------------------------------------------
NEIGHBOUR = """
An MPI communication peer process has unexpectedly disconnected.
  Local host: n1
  Local PID:  45
  Peer host:  n2
"""
OTHER = """
WARNING: Open MPI failed to handshake with a connecting peer MPI process over TCP.
  Local host: n1
  PID:        46
"""
OPEN_MPI = """
prterun noticed that process rank 77 with PID 77 on node n2 exited on
signal 9 (Killed).
"""
HYDRA = """
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 77 RUNNING AT n2
=   EXIT CODE: 9
"""


@pytest.mark.parametrize("launcher", [OPEN_MPI, HYDRA])
@pytest.mark.parametrize("before", ["", NEIGHBOUR, OTHER, NEIGHBOUR + OTHER])
@pytest.mark.parametrize("after", ["", NEIGHBOUR, OTHER])
def test_the_rank_that_ended_is_named_not_who_noticed(
    launcher: str, before: str, after: str
) -> None:
    ranks = [{"rank": rank, "host": f"n{rank // 32}", "pid": rank} for rank in range(128)]
    death = explain_death(before + launcher + after, 1, ranks)
    assert str(death) == "rank 77 on n2 (pid 77) was ended by signal 9 (SIGKILL)"
    assert death.facts == {"rank": 77, "host": "n2", "signal": 9}


# -- real sessions ------------------------------------------------------------------------------
def running(geometry: Geometry, kind: type[Mpirun] = Mpirun) -> AbstractContextManager[Session]:
    """A session on emulated nodes n0, n1..."""
    hosts = tuple(f"n{index}" for index in range(geometry.nodes))
    return started(geometry, kind, SECONDS, hosts=hosts, emulated=True)


def runner_of(session: Session, folder: Path) -> Runner:
    data = folder / "data"
    data.mkdir()
    return runner_on(session, data, folder, Settings(SECONDS, 1.0, out=folder))


def run(runner: Runner, geometry: Geometry, **options: Any) -> tuple[RunRecord, Any]:
    work = Pattern(PatternOptions(chunk=CHUNK, **options))
    case = Case("here", "pattern", {"pattern": options["pattern"]}, geometry, cache="cold")
    engine = Engines({}).get("player")
    return runner.run(RunSpec(case, work, engine, {"target": "here"}, 0, 1, 0, "a", 1))


class Packed(Mpirun):
    """A launcher that starts all ranks on the first node."""

    def command(self, argv: Any, geometry: Geometry, env: Any) -> list[str]:
        return super().command(argv, Geometry(1, geometry.processes), env)


@pytest.mark.needs("emulated nodes")
def test_ranks_that_the_launcher_packed_are_no_number(tmp_path: Path) -> None:
    asked = Geometry(2, 2)
    with running(asked, Packed) as session:
        runner = runner_of(session, tmp_path)
        record, broken = run(runner, asked, pattern="seq-write", bytes_per_process=CHUNK)
        assert broken is None
        assert record.status == "failed"
        assert "2 client nodes with 2 processes each were asked for" in record.error
        assert "placed 4 on n0" in record.error
        assert "fewer-ranks" in {finding.audit for finding in audit_run(record)}
        fits, _ = run(runner, Geometry(1, 4), pattern="seq-write", bytes_per_process=CHUNK)
        assert fits.status == "ok", fits.error


@pytest.mark.needs("emulated nodes")
@pytest.mark.timeout(900)  # 128 processes on two CPUs start slowly
def test_a_session_of_128_ranks_on_4_nodes(tmp_path: Path) -> None:
    """Right totals, and nobody is left; killed ranks are told of in test_session.py."""
    geometry = Geometry(4, 32)
    chunks = 3
    with running(geometry) as session:
        ranks = session.hello["ranks"]
        assert [rank["node_rank"] for rank in ranks if rank["node"] == 3] == list(range(32))
        record, broken = run(
            runner_of(session, tmp_path),
            geometry,
            pattern="seq-read",
            bytes_per_process=chunks * CHUNK,
            verify=True,
        )
        assert broken is None
        assert record.status == "ok", record.error
        check_totals(record, chunks)
    gone = time.monotonic() + 60
    while any(alive(rank["pid"]) for rank in ranks) and time.monotonic() < gone:
        time.sleep(0.1)
    assert not [rank["pid"] for rank in ranks if alive(rank["pid"])]


def check_totals(record: RunRecord, chunks: int) -> None:
    (phase,) = record.phases
    assert phase.bytes.tolist() == [chunks * CHUNK] * 128
    assert int(phase.latency["read"].counts.sum()) == chunks * 128
    assert len(set(phase.operations.tolist())) == 1
    assert phase.errors.tolist() == [0] * 128
    assert np.isfinite(phase.start).all()
    assert (phase.start <= phase.end).all()
    assert [rank["rank"] for rank in record.ranks] == list(range(128))
    placed = [rank["host"] for rank in record.ranks]
    assert [placed.count(f"n{node}") for node in range(4)] == [32] * 4
    world = record.evidence.document()["world"]
    assert {
        key: world[key]
        for key in (
            "got_ranks",
            "got_nodes",
            "kernels",
            "processors",
            "shared_memories",
            "disagreements",
        )
    } == {
        "got_ranks": 128,
        "got_nodes": 4,
        "kernels": 1,
        "processors": 4,
        "shared_memories": 4,
        "disagreements": [],
    }
    found = {finding.audit: finding.severity for finding in audit_run(record)}
    assert found["emulated-nodes"] == "info"
    assert found["oversubscribed"] == "warning"


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
