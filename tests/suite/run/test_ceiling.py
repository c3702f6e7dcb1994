"""What clients can generate: measured on real sessions, stored, judged, left out where it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fsmatrix.results.audits import judged
from fsmatrix.results.record import Case, Geometry, RunRecord
from fsmatrix.suite.cases.engines import Engines
from fsmatrix.suite.run.assemble import RunSpec, Settings
from fsmatrix.suite.run.runner import Runner
from fsmatrix.suite.workloads.base import Workload
from fsmatrix.suite.workloads.metadata import Metadata, MetadataOptions
from fsmatrix.suite.workloads.pattern import Pattern, PatternOptions
from tests.suite.sessions import runner_like, runner_on, started

TWO = Geometry(1, 2)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    out, data = tmp_path_factory.mktemp("out"), tmp_path_factory.mktemp("data")
    with started(TWO) as session:
        yield runner_on(session, data, out, Settings(120.0, 0.0, out=out, client_ceiling=True))


def reads(**options: object) -> Pattern:
    given = {"pattern": "rand-read", "chunk": 4096, "bytes_per_process": 1 << 20}
    fixed = {"fixed": "time", "seconds": 2.0, "random": "with-replacement"}
    return Pattern(PatternOptions.model_validate({**given, **fixed, **options}))


def ran(runner: Runner, workload: Workload, repetition: int = 0) -> RunRecord:
    options = workload.options.model_dump(mode="json", exclude_defaults=True)
    case = Case("here", workload.name, options, TWO, cache="warm")
    engine = Engines({}).get("player")
    spec = RunSpec(case, workload, engine, {"target": "here"}, repetition, 1, 0, "a", 1)
    record, broken = runner.run(spec)
    assert broken is None and record.status == "ok", record.error
    return judged(record)


def audits(record: RunRecord) -> set[str]:
    return {finding.audit for finding in record.findings}


def test_a_ceiling_is_measured_once_in_a_session_and_is_above_the_phase(runner: Runner) -> None:
    own = runner_like(runner)
    workload = reads(verify=True, iodepth=1)
    first, second = (ran(own, workload, repetition) for repetition in (0, 1))
    (ceiling,) = first.evidence.ceilings.values()
    assert ceiling.rate is not None
    assert 0.05 <= ceiling.seconds <= 0.05 * first.duration
    assert ceiling.rate > first.phases[0].operations.sum() / 2.0
    assert second.evidence.ceilings == first.evidence.ceilings


def test_each_phase_of_metadata_has_one_and_an_open_loop_the_closed_maximum(
    runner: Runner,
) -> None:
    own = runner_like(runner)
    ran(own, reads())  # earns the time; what it spends is less
    ran(own, reads())
    options = MetadataOptions.model_validate({"phases": ["create"], "files_per_process": 500})
    record = ran(own, Metadata(options))
    (ceiling,) = record.evidence.ceilings.values()
    assert list(record.evidence.ceilings) == ["create"]
    assert ceiling.rate is not None
    assert ceiling.rate > record.phases[0].operations.sum() / record.phases[0].end.max()
    paced = ran(runner_like(runner), reads(rate=2000.0))
    assert paced.evidence.ceilings["read"].rate > 4000
    assert "client-bound" not in audits(paced)  # the clients could do far more


def test_clients_of_the_slow_player_are_the_bound(runner: Runner) -> None:
    slow = runner_like(runner, implementation="python")
    record = ran(slow, reads(chunk=1, bytes_per_process=4096))
    ceiling = record.evidence.ceilings["read"]
    assert ceiling.rate is not None
    share = record.phases[0].operations.sum() / 2.0 / ceiling.rate
    print(share, ceiling)


def test_short_runs_have_none_and_say_so_and_the_option_stores_nothing(runner: Runner) -> None:
    short = ran(runner_like(runner), reads(seconds=0.2))
    ceiling = short.evidence.ceilings["read"]
    assert ceiling.rate is None
    assert "too short" in str(ceiling.why_not)
    off = ran(runner_like(runner, client_ceiling=False), reads())
    assert off.evidence.ceilings == {}
    assert replace(off.evidence).document().get("ceilings", {}) == {}
