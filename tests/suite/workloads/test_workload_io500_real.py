"""The workload `io500`: how its pair of programs is found, and whole runs on a session."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.results.record import Case, Geometry
from fsmatrix.suite.cases.resolve import Engines
from fsmatrix.suite.engines.engine import Engine, EngineError
from fsmatrix.suite.engines.ior_mdtest import KIND, mdtest_of
from fsmatrix.suite.run.assemble import RunSpec, Settings
from fsmatrix.suite.run.runner import Runner
from tests.suite.io500_workload import IN_ORDER, workload
from tests.suite.sessions import runner_on, started

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
    with pytest.raises(EngineError, match="does not print its version"):
        KIND.probe(str(stand_in(tmp_path / "ior", "something else\\n")))


# -- for real ------------------------------------------------------------------------------------
@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    data = tmp_path / "data"
    data.mkdir()
    with started(Geometry(1, 2)) as session:
        yield runner_on(session, data, tmp_path, Settings(60.0, 1.0, out=tmp_path))
    assert list(data.iterdir()) == []


def run_on(runner: Runner, engine: Engine) -> Any:
    """A run with a stonewall of 2 s, which the creation of empty files meets."""
    work = workload(stonewall=2, mdtest_easy_n=600_000)
    case = Case("here", "io500", {}, Geometry(1, 2), cache="warm")
    job = RunSpec(case, work, engine, {"target": "here"}, 0, 1, 0, "a", 1)
    record, broken = runner.run(job)
    assert broken is None
    assert record.status == "ok", record.error
    assert [phase.name for phase in record.phases] == IN_ORDER
    found = {phase.name: phase for phase in record.phases}
    assert not any(phase.errors.sum() for phase in record.phases)
    assert found["read-ior-easy"].bytes.sum() == found["write-ior-easy"].bytes.sum() == 1 << 20
    assert found["read-ior-hard"].bytes.sum() == 2 * 7 * 47008
    reads = found["read-ior-rnd4K-easy"]
    assert reads.bytes.sum() == reads.operations.sum() * 4096 > 0
    assert reads.facts["stonewall_seconds"] == 2.0
    made = int(found["create-mdtest-easy"].operations.sum())
    met = int(found["stat-mdtest-easy"].operations.sum())
    assert 0 < made <= met <= made + 2
    assert found["remove-mdtest-easy"].operations.sum() == met
    assert found["find"].operations.sum() > met + 2 * 102
    assert found["find"].facts["found"] > 0
    facts = record.evidence.engine.facts["io500"]
    assert facts["score"] > 0
    assert not any("were made" in reason for reason in facts["why_not"])
    return record


def test_the_player_does_it_on_a_session(runner: Runner) -> None:
    record = run_on(runner, Engines({}).get("player"))
    assert record.evidence.engine.name == "player"
    random = next(p for p in record.phases if p.name == "read-ior-rnd4K-easy")
    assert random.operations.tolist() == [128, 128]  # every block of 512 KiB, none twice
    notes = [note.message for note in record.evidence.engine.notes]
    assert any("built-in player" in note for note in notes)


def test_ior_and_mdtest_do_it_on_a_session(runner: Runner) -> None:
    try:
        engine = KIND.probe()
    except EngineError as error:
        pytest.skip(f"not in any registry: {error}")
    record = run_on(runner, engine)
    assert record.evidence.engine.name == "ior+mdtest"
    assert np.all([phase.bytes.sum() >= 0 for phase in record.phases])
