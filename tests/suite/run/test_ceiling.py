"""What clients can generate: measured on real sessions, stored, judged, left out where it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fsmatrix.backends.access import Access
from fsmatrix.results.audits import judged
from fsmatrix.results.files.run_rows import rows_of
from fsmatrix.results.record import Case, Geometry, RunRecord
from fsmatrix.suite.cases.resolve import Engines
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.run.assemble import RunSpec, Settings
from fsmatrix.suite.run.runner import Runner
from fsmatrix.suite.workloads.metadata import Metadata, MetadataOptions
from fsmatrix.suite.workloads.pattern import Pattern, PatternOptions
from fsmatrix.suite.workloads.workload import Step, Stream, Workload
from tests.suite import probe
from tests.suite.sessions import runner_like, runner_on, started

TWO = Geometry(1, 2)


@pytest.fixture(scope="module", autouse=True)
def ranks_import_the_probe() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", probe.ROOT)
        yield


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
    assert broken is None
    assert record.status == "ok", record.error
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
    (row,) = rows_of(first)
    assert row.numbers["client_ceiling"] == ceiling.rate
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


class SlowClient(Pattern):
    """Its streams take 10 ms to make each read, however fast the storage is."""

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        *before, timed = super().steps(case, access, engine)
        assert isinstance(timed.what, Stream)
        assert timed.ceiling is not None
        what, ceiling = (replace(s, generator=probe.SLOW) for s in (timed.what, timed.ceiling))
        return [*before, replace(timed, what=what, ceiling=ceiling)]


def test_clients_that_are_slower_than_the_storage_are_the_bound(runner: Runner) -> None:
    workload = SlowClient(reads(seconds=4.0).options)
    record = ran(runner_like(runner), workload)
    (finding,) = [found for found in record.findings if found.audit == "client-bound"]
    assert finding.phase == "read"
    assert "that these clients can generate" in finding.message
    assert "client-bound" not in audits(ran(runner_like(runner), reads()))  # by system calls


def test_short_runs_have_none_and_say_so_and_the_option_stores_nothing(runner: Runner) -> None:
    short = ran(runner_like(runner), reads(seconds=0.2))
    ceiling = short.evidence.ceilings["read"]
    assert ceiling.rate is None
    assert "too short" in str(ceiling.why_not)
    off = ran(runner_like(runner, client_ceiling=False), reads())
    assert off.evidence.ceilings == {}
