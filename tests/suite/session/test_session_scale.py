"""Real sessions of many ranks on several nodes: up to 128, and what they say when they end."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.results.audits import audit_run
from fsmatrix.results.record import Case, Geometry, RunRecord
from fsmatrix.suite.cases.resolve import Engines
from fsmatrix.suite.launchers.mpirun import Mpirun
from fsmatrix.suite.run.assemble import RunSpec, Settings
from fsmatrix.suite.run.runner import Runner
from fsmatrix.suite.session.client import Session, explain_death
from fsmatrix.suite.workloads.pattern import Pattern, PatternOptions
from tests.ranks import rank
from tests.suite.sessions import runner_on, started
from tests.waiting import PATIENCE

CHUNK = 4096


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
    ranks = [rank(f"n{number // 32}", rank=number, pid=number) for number in range(128)]
    death = explain_death(before + launcher + after, 1, ranks)
    assert str(death) == "rank 77 on n2 (pid 77) was ended by signal 9 (SIGKILL)"
    assert death.facts == {"rank": 77, "host": "n2", "signal": 9}


# -- real sessions ------------------------------------------------------------------------------
def running(geometry: Geometry, kind: type[Mpirun] = Mpirun) -> AbstractContextManager[Session]:
    """A session on emulated nodes n0, n1..."""
    hosts = tuple(f"n{index}" for index in range(geometry.nodes))
    return started(geometry, kind, PATIENCE, hosts=hosts, emulated=True)


def runner_of(session: Session, folder: Path) -> Runner:
    data = folder / "data"
    data.mkdir()
    return runner_on(session, data, folder, Settings(PATIENCE, 1.0, out=folder))


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


@pytest.mark.quiet  # and nothing else gets on beside it
@pytest.mark.needs("emulated nodes")
def test_a_session_of_128_ranks_on_4_nodes(tmp_path: Path) -> None:
    """Right totals, and nobody is left; killed ranks are told of in test_session.py."""
    geometry = Geometry(4, 32)
    chunks = 3
    with running(geometry) as session:
        ranks = session.hello.ranks
        assert [rank.node_rank for rank in ranks if rank.node == 3] == list(range(32))
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
    while any(alive(rank.pid) for rank in ranks) and time.monotonic() < gone:
        time.sleep(0.1)
    assert not [rank.pid for rank in ranks if alive(rank.pid)]


def check_totals(record: RunRecord, chunks: int) -> None:
    (phase,) = record.phases
    assert phase.bytes.tolist() == [chunks * CHUNK] * 128
    assert int(phase.latency["read"].counts.sum()) == chunks * 128
    assert len(set(phase.operations.tolist())) == 1
    assert phase.errors.tolist() == [0] * 128
    assert np.isfinite(phase.start).all()
    assert (phase.start <= phase.end).all()
    assert [rank.rank for rank in record.ranks] == list(range(128))
    placed = [rank.host for rank in record.ranks]
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
