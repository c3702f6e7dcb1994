"""What every name of every registry keeps to, of fsmatrix and of other packages alike.

Analyses are in tests/analysis/test_contract.py.  tests/suite/test_other_packages.py runs these for
the package of CONTRIBUTING.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.contract import BACKENDS, Backend, SpeedEstimate
from fsmatrix.backends.journal.proof import KINDS, Kind, NotProvenOurs
from fsmatrix.backends.testbed.bed import TESTBEDS, StorageTestbed
from fsmatrix.results.audits import AUDITS, run_audits
from fsmatrix.results.audits.audit import Audit
from fsmatrix.results.files.runfile import read_run, write_run
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.formats.parsed import FORMATS, ParseError, matching
from fsmatrix.results.process import NO_JOB
from fsmatrix.results.record import SEVERITIES, Case, Geometry, RunRecord
from fsmatrix.slurm.scheduler import SCHEDULERS, BatchJob, Scheduler
from fsmatrix.suite.engines.engine import Engine, EngineError, EngineKind
from fsmatrix.suite.launchers.launcher import Launcher
from fsmatrix.suite.registry import ENGINES, LAUNCHERS, WORKLOADS
from fsmatrix.suite.workloads.workload import Workload
from fsmatrix.traces.importing.importer import IMPORTERS, Importer, import_traces
from tests.results import audit_records, hostile
from tests.waiting import PATIENCE

ONE_SERVER = {"tpcc"}  # workloads of one program on one node
NEEDED = {
    "replay": {"generator": "ycsb-zipfian", "scale": 1e-4, "mode": "queue"},
    "fio": {"size": "1MiB"},
}  # options without which a workload has no meaning
PLAYER = ("player", "player-c", "player-python")  # engines that are no programs
JOB = BatchJob(
    "a-job",
    "0123456789abcdef",
    ("a job",),
    ("fsmatrix", "run", "a campaign.yaml"),
    Path("/somewhere else"),
    "log.txt",
    seconds=600,
    nodes=2,
    tasks_per_node=3,
)


def refuses_unknown_options(options: Any) -> bool:
    with pytest.raises(ValidationError, match="no_such_option"):
        options.model_validate({"no_such_option": 1})
    return True


@pytest.mark.parametrize("name", BACKENDS.names())
def test_backend(name: str) -> None:
    kind = BACKENDS.load(name)
    assert issubclass(kind, Backend)
    assert kind.name == name
    assert refuses_unknown_options(kind.Options)
    usable = kind.check()
    assert usable.ok or usable.reason
    access = kind.access_type(name, "here", {"level": {"pool": "p"}})
    assert access.type
    assert access.word
    assert kind.access_type.from_json(json.loads(json.dumps(access.to_json()))) == access


@pytest.mark.parametrize("name", KINDS.names())
def test_journal(name: str) -> None:
    kind: object = KINDS.load(name)
    assert isinstance(kind, Kind)
    with pytest.raises((KeyError, NotProvenOurs)):  # an entry without facts proves nothing
        kind.proof({}, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TESTBEDS.names())
def test_testbed(name: str) -> None:
    kind = TESTBEDS.load(name)
    assert issubclass(kind, StorageTestbed)
    assert refuses_unknown_options(kind.Options)
    tags = [TESTBEDS.load(other).kind.tag for other in TESTBEDS.names()]
    assert tags.count(kind.kind.tag) == 1  # `down` knows by it whose directory it is
    options = kind.Options()
    assert {*kind.factors, "network"} <= set(kind.attributes(options))
    assert kind.pace(options, SpeedEstimate()).attach > 0
    speaks = [each for each in BACKENDS.names() if BACKENDS.load(each).testbed == name]
    assert speaks, "no backend works on it"


@pytest.mark.parametrize("name", WORKLOADS.names())
def test_workload(name: str) -> None:
    kind = WORKLOADS.load(name)
    assert issubclass(kind, Workload)
    assert kind.name == name
    assert set(kind.engines) <= {*ENGINES.names(), *PLAYER}
    assert refuses_unknown_options(kind.Options)
    assert "path" in kind.accesses
    workload = kind(kind.Options.model_validate(NEEDED.get(name, {})))
    geometry = Geometry(1, 1) if name in ONE_SERVER else Geometry(2, 3)
    case = Case("t", name, cache="warm", geometry=geometry)
    assert workload.refusal(case) == ""
    engine = Engine(kind.engines[0], "9.9", "/opt/program")
    made = [workload.steps(case, PathAccess("directory", "/t"), engine) for _ in range(2)]
    assert made[0] == made[1]
    assert "timed" in {step.role for step in made[0]}
    assert json.loads(json.dumps([asdict(step) for step in made[0]], allow_nan=False))
    needs = workload.footprint(case)
    assert min(needs.space, needs.written, needs.files, needs.read) >= 0
    try:
        phases = workload.parse(case, []).phases
    except ParseError:
        phases = ()
    assert phases == ()  # there was no output


@pytest.mark.parametrize("name", ENGINES.names())
def test_engine(name: str) -> None:
    kind = ENGINES.load(name)
    assert isinstance(kind, EngineKind)
    assert kind.name == name
    assert kind.questions
    with pytest.raises(EngineError, match=r"\w{3}"):
        kind.read(["another program 1.0"] * len(kind.questions))
    with pytest.raises(EngineError, match="/no/such/program: not an executable file") as caught:
        kind.probe("/no/such/program")
    assert kind.cure in str(caught.value)


@pytest.mark.parametrize("name", FORMATS.names())
def test_format(name: str) -> None:
    for form in FORMATS.load(name):
        for text in ("", "nothing that a benchmark prints\n", '{"a": [1, 2]}', "\0\ufffd\n" * 99):
            assert not form.recognises(text)
            with pytest.raises(ParseError, match=r"old/out\.txt"):
                form.parse(text, "old/out.txt")
            assert matching(text) == []


@pytest.mark.parametrize("name", IMPORTERS.names())
def test_trace_format(name: str, tmp_path: Path) -> None:
    importer, source = IMPORTERS.load(name), tmp_path / "log"
    assert issubclass(importer, Importer)
    for data in (b"", b"nothing that is a trace\n", b"\0\xff\n" * 99):
        assert not importer.recognises(data)
        source.write_bytes(data)
        with pytest.raises((ResultError, ImportError), match=r"log|install"):
            import_traces([source], tmp_path / "trace.h5", name)
        assert [path.name for path in tmp_path.iterdir()] == ["log"]


# srun works inside allocations only: tests/slurm/test_launchers_slurm.py
@pytest.mark.parametrize("name", [name for name in LAUNCHERS.names() if name != "srun"])
def test_launcher(name: str, tmp_path: Path) -> None:
    kind = LAUNCHERS.load(name)
    assert issubclass(kind, Launcher)
    assert kind.name == name
    found = kind.probe()
    if not found.ok:
        pytest.skip(f"launcher {name}: {found.reason}")
    launcher = kind(found, scratch=str(tmp_path))
    launcher.prepare()
    program = [sys.executable, "-c", "import os; print('here', os.environ['GIVEN'])"]
    done = subprocess.run(
        launcher.command(program, Geometry(), {"GIVEN": "a b"}),
        env=os.environ | launcher.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.strip() == "here a b"


@pytest.mark.parametrize("name", SCHEDULERS.names())
def test_scheduler(name: str, tmp_path: Path) -> None:
    kind = SCHEDULERS.load(name)
    assert issubclass(kind, Scheduler)
    assert kind.name == name
    scheduler = kind()
    assert scheduler.current({}) == NO_JOB
    script = scheduler.script(JOB)
    assert script == scheduler.script(JOB)
    assert script.startswith("#!")
    assert JOB.token in script
    program = tmp_path / "fsmatrix"
    program.write_text('#!/bin/sh\npwd\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    text = scheduler.script(replace(JOB, directory=tmp_path, command=(str(program), "a b")))
    done = subprocess.run(
        ["bash"], input=text, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout.splitlines()[-2:] == [str(tmp_path), "a b"]


@pytest.mark.parametrize("name", AUDITS.names())
def test_audits(name: str, tmp_path: Path) -> None:
    family = AUDITS.load(name)
    assert family
    for audit in family:
        assert isinstance(audit, Audit)
        assert run_audits()[audit.name] is audit
        assert audit.version >= 1
        assert len(audit.advice.split()) >= 2, audit.name
        for record in records():
            found = tuple(audit.findings(record))
            assert {one.severity for one in found} <= set(SEVERITIES)
            assert {one.phase for one in found} <= {"", *(phase.name for phase in record.phases)}
            assert all(len(one.message.split()) >= 3 for one in found)
            write_run(tmp_path / "run.h5", replace(record, findings=found))
            stored = read_run(tmp_path / "run.h5")
            assert (stored.findings, tuple(audit.findings(stored))) == (found, found)


def records() -> Iterator[RunRecord]:
    """Good runs, a failed one, one without phases."""
    yield hostile.record()
    yield hostile.record(status="failed", error="EIO", phases=())
    yield hostile.record(phases=())
    yield audit_records.record(*map(audit_records.phase, ("read", "write", "mixed", "create")))
    yield audit_records.declared("cold", "warm")
    yield audit_records.read_with(device_read_bytes=1.0)
