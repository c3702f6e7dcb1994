"""One run on a real session: steps of every place and kind, and what they leave in the record."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.results import histogram
from fsmatrix.results.audits import judged
from fsmatrix.results.files.store import Store
from fsmatrix.results.formats.parsed import Parsed, totals
from fsmatrix.results.record import Case, Geometry, Monitor, window
from fsmatrix.suite.cases.resolve import Engines
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.launchers.local import Local
from fsmatrix.suite.launchers.mpirun import Mpirun
from fsmatrix.suite.run.assemble import RunSpec, Settings
from fsmatrix.suite.run.record_writer import RecordWriter, Summary
from fsmatrix.suite.run.runner import Runner
from fsmatrix.suite.session.client import Session
from fsmatrix.suite.session.programs import Interrupted, StopFlag
from fsmatrix.suite.workloads.metadata import Metadata, MetadataOptions
from fsmatrix.suite.workloads.pattern import Pattern, PatternOptions
from fsmatrix.suite.workloads.workload import (
    Argv,
    Footprint,
    Function,
    Output,
    Step,
    Workload,
    WorkloadOptions,
)
from tests.suite import probe
from tests.suite.sessions import runner_like, runner_on, started
from tests.waiting import PATIENCE

TWO = Geometry(1, 2)


@pytest.fixture(scope="module", autouse=True)
def ranks_import_the_probe() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", probe.ROOT)
        yield


class Scripted(Workload):
    """Steps that the test says; parse keeps what it is given."""

    name: ClassVar[str] = "scripted"
    Options = WorkloadOptions
    accesses: ClassVar[frozenset[str]] = frozenset({"path"})

    def __init__(self, *steps: Step) -> None:
        super().__init__(WorkloadOptions())
        self.scripted = list(steps)
        self.outputs: list[Output] = []

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        return self.scripted

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        self.outputs = list(outputs)
        return Parsed(phases=(totals("scripted", 1.0),))

    def footprint(self, case: Case) -> Footprint:
        return Footprint(0, 0, 0)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    out, data = tmp_path_factory.mktemp("out"), tmp_path_factory.mktemp("data")
    with started(Geometry(1, 3)) as session:
        yield runner_on(session, data, out, Settings(120.0, 5.0, out=out))
    assert os.listdir(data) == [], "every run removes its own directory"


def job(
    workload: Workload,
    geometry: Geometry = TWO,
    options: dict[str, Any] | None = None,
    cache: str = "cold",
    repetition: int = 0,
) -> RunSpec:
    case = Case("here", workload.name, options or {}, geometry, cache=cache)
    return RunSpec(
        case, workload, Engines({}).get("player"), {"target": "here"}, repetition, 1, 0, "a", 1
    )


def test_steps_of_every_place(runner: Runner) -> None:
    show = ("sh", "-c", "pwd; echo {path}")
    work = Scripted(
        Step("once", "once", "setup", Argv(show)),
        Step("node", "node", "setup", Argv(show, {"GIVEN": "1"})),
        Step("mpi", "mpi", "timed", Argv((sys.executable, "-c", "print('world')"))),
        Step("rank", "rank", "timed", Function(probe.WHERE, {"x": [1]})),
    )
    record, broken = runner.run(job(work))
    assert broken is None
    assert record.status == "ok", record.error
    by_step: dict[str, list[Output]] = {}
    for output in work.outputs:
        by_step.setdefault(output.step, []).append(output)
    assert {name: len(outputs) for name, outputs in by_step.items()} == {
        "once": 1,
        "node": 1,
        "mpi": 1,
        "rank": 2,
    }
    root = by_step["node"][0].stdout.split()
    assert root[0] == root[1]
    assert root[0].endswith(record.run_id)
    assert by_step["mpi"][0].stdout.split() == ["world"] * 2
    assert [output.value["params"] for output in by_step["rank"]] == [{"x": [1]}] * 2
    started = record.argv[2]  # as it was: with what the launcher said before it
    assert Path(started[0]).name.startswith("mpi")
    assert started[-3:] == (sys.executable, "-c", "print('world')")
    assert record.evidence.settle.keys() == {"mpi", "rank"}
    assert record.evidence.cpu.keys() == record.evidence.counters.keys() == {"mpi", "rank"}


def test_a_file_beside_the_journals_is_for_later_steps_and_goes(runner: Runner) -> None:
    runner.context.journal.mkdir(exist_ok=True)
    work = Scripted(
        Step("say", "mpi", "setup", Argv(("sh", "-c", "echo word > {beside}"))),
        Step("read", "node", "timed", Argv(("cat", "{beside}"))),
    )
    record, _ = runner.run(job(work))
    assert record.status == "ok", record.error
    assert work.outputs[-1].stdout == "word\n"
    assert not list(runner.context.journal.glob("*.beside"))


def test_a_program_that_needs_a_directory_does_not_get_the_root(runner: Runner) -> None:
    """As root it would write there, and measure another file system than the target's."""
    access, runner.access = runner.access, Access("other", "t")
    work = Scripted(Step("write", "node", "timed", Argv(("touch", "{path}/written"))))
    try:
        record, _ = runner.run(job(work))
    finally:
        runner.access = access
    assert record.status == "failed"
    assert record.error == "target here: write: the program needs a directory; the target has none"
    assert not Path("/written").exists()


@pytest.mark.root
@pytest.mark.needs("mounts")
def test_a_measurement_is_kept_when_its_data_cannot_be_removed(
    runner: Runner, tmp_path: Path
) -> None:
    """Something is mounted in the run's folder."""
    mounting = "mkdir {path}/busy && mount -t tmpfs none {path}/busy && echo {path} > " + str(
        tmp_path / "where"
    )
    work = Scripted(Step("work", "once", "timed", Argv(("sh", "-c", mounting))))
    record, broken = runner.run(job(work))
    folder = Path((tmp_path / "where").read_text().strip())
    subprocess.run(["umount", folder / "busy"], check=True)
    shutil.rmtree(folder)
    assert broken is None
    assert record.status == "ok", record.error
    assert [phase.name for phase in record.phases] == ["scripted"]
    assert "remove_run on " in (record.evidence.not_removed or "")
    (finding,) = [one for one in judged(record).findings if one.audit == "data-left"]
    assert (finding.severity, finding.phase) == ("warning", "")
    assert "could not be removed: remove_run on " in finding.message


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (
            Step("n", "node", "timed", Argv(("sh", "-c", "echo why >&2; exit 3"))),
            r"^target here: n on .*: the program ended with status 3: why",
        ),
        (Step("n", "node", "timed", Argv(("/no/such/program",))), "No such file"),
        (
            Step("m", "mpi", "timed", Argv((sys.executable, "-c", "import os; os._exit(9)"))),
            "m: the program ended with status 9",
        ),
        (Step("f", "rank", "timed", Function("os:listdir", {})), "raised TypeError"),
        (Step("g", "rank", "timed", Function("no.such.module:f", {})), "ModuleNotFoundError"),
    ],
)
def test_a_step_that_fails_is_a_failed_run_with_its_reason(
    runner: Runner, step: Step, reason: str
) -> None:
    record, broken = runner.run(job(Scripted(step)))
    assert broken is None, "the session lives on"
    assert record.status == "failed"
    assert re.search(reason, record.error)


class Broken(Scripted):
    """Raises in one of its methods."""

    def __init__(self, where: str) -> None:
        super().__init__(Step("r", "rank", "timed", Function(probe.WHERE, {})))
        self.where = where

    def _reach(self, where: str) -> None:
        if where == self.where:
            raise KeyError("played")

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        self._reach("steps")
        return super().steps(case, access, engine)

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        self._reach("parse")
        return super().parse(case, outputs)

    def with_samples(self, case: Case, parsed: Parsed, monitor: Monitor | None) -> Parsed:
        self._reach("with_samples")
        return parsed

    def footprint(self, case: Case) -> Footprint:
        self._reach("footprint")
        return super().footprint(case)


@pytest.mark.parametrize("where", ["steps", "parse", "with_samples"])
def test_what_a_workload_raises_is_the_reason_of_a_failed_run(runner: Runner, where: str) -> None:
    record, broken = runner.run(job(Broken(where)))
    assert broken is None, "the session lives on"
    assert record.status == "failed"
    assert record.error.endswith("KeyError: 'played'")
    assert "_reach" in record.texts["unexpected/traceback"]
    assert runner.run(job(Broken("")))[0].status == "ok"


def test_bytes_of_a_run_are_known_without_its_workload(runner: Runner) -> None:
    spec = job(Broken("footprint"))
    assert spec.written(runner.run(spec)[0]) == 0


class Unstorable(Broken):
    """Gives a phase that no file can hold."""

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        (phase,) = super().parse(case, outputs).phases
        return Parsed(phases=(replace(phase, bytes=None),))  # type: ignore[arg-type]


def test_what_cannot_be_stored_is_a_failed_run(runner: Runner, tmp_path: Path) -> None:
    store, summary = Store.create(tmp_path / "store"), Summary()
    with RecordWriter(store, summary, lambda _: None) as records:
        for repetition, work in enumerate((Unstorable(""), Broken(""))):
            records.keep(runner.run(job(work, repetition=repetition))[0])
    ((failed, reason),) = summary.failures
    assert (summary.ok, store.status(failed)) == (1, "failed")
    assert reason.startswith("what the run gave cannot be stored: ")
    assert "Traceback" in store.read(failed).texts["unexpected/traceback"]


def test_a_program_that_hangs_is_a_timeout_and_is_ended(runner: Runner) -> None:
    quick = runner_like(runner, time_per_run=1.0)
    record, broken = quick.run(job(Scripted(Step("n", "node", "timed", Argv(("sleep", "61.5"))))))
    assert broken is None
    assert record.status == "timeout"
    assert "deadline" in record.error
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert "sleep 61.5" not in listed.stdout


def test_a_request_to_stop_ends_a_program_of_the_conductor(tmp_path: Path) -> None:
    stop = StopFlag()
    session = Session(Local(Local.probe()), Geometry(), stop)
    session.start()
    local = runner_on(session, tmp_path, tmp_path, Settings(60.0, 5.0, out=tmp_path))
    try:
        timer = threading.Timer(1.0, lambda: setattr(stop, "signal", signal.SIGINT))
        timer.start()
        with pytest.raises(Interrupted):
            local.run(job(Scripted(Step("m", "mpi", "setup", Argv(("sleep", "62.5")))), Geometry()))
    finally:
        session.kill()
        session.close()
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert "sleep 62.5" not in listed.stdout


@pytest.mark.parametrize("implementation", ["auto", "python"])
def test_pattern_record(runner: Runner, implementation: str) -> None:
    """Bytes, operations, times and histograms of every rank; evidence of the cold cache."""
    options = PatternOptions(
        pattern="rand-read", chunk=4096, bytes_per_process=1 << 20, verify=True
    )
    using = runner_like(runner, implementation=implementation)
    record, _ = using.run(job(Pattern(options), options={"pattern": "rand-read"}))
    assert record.status == "ok", record.error
    (phase,) = record.phases
    assert phase.name == "read"
    assert phase.bytes.tolist() == [1 << 20] * 2
    assert phase.operations.tolist() == [256] * 2
    assert int(phase.latency["read"].counts.sum()) == 512
    assert (phase.end > phase.start).all()
    assert phase.start.min() >= 0, "nothing begins before the agreed start"
    assert phase.interval_bytes is not None
    assert int(phase.interval_bytes.sum()) == 2 << 20
    over_time = phase.timeline["read"]
    assert (over_time.sum(axis=0) == histogram.coarse(phase.latency["read"].counts)).all()
    assert (over_time.sum(axis=1) == phase.interval_operations).all()
    assert phase.timeline.keys() == {"read", "other"}
    assert 0 < window(phase) < 30
    assert record.evidence.cache["read"].state == "cold"
    assert record.evidence.world.got_ranks == 2
    assert len(record.ranks) == 2
    assert record.monitor is not None
    assert len(record.monitor.time) >= 2
    audits = {finding.audit for finding in judged(record).findings}
    assert "read-served-by-cache" not in audits
    assert "errors-ignored" not in audits


def test_fixed_time_stops_and_wears_out(runner: Runner) -> None:
    options = PatternOptions(
        pattern="seq-write",
        chunk=65536,
        bytes_per_process=4 << 20,
        fixed="time",
        seconds=0.4,
        wear_out=5.0,
    )
    record, _ = runner.run(job(Pattern(options), repetition=2))
    assert record.status == "ok", record.error
    (phase,) = record.phases
    assert 0.4 <= window(phase) < 20
    reached = phase.facts["worn_out_to"]
    assert reached >= phase.facts["operations_at_stonewall"]
    assert len(set(phase.operations.tolist())) == 1, "all ranks did as much as the busiest"
    assert int(phase.latency["close"].counts.sum()) == 2
    assert int(phase.latency["fsync"].counts.sum()) >= 2


@pytest.mark.parametrize("pattern", ["seq-write", "rand-read"])
def test_a_time_that_is_over_before_the_first_operation_is_no_failure(
    runner: Runner, pattern: str
) -> None:
    """A busy node meets it with longer times: nothing was opened, so nothing is closed."""
    options = PatternOptions(
        pattern=pattern, chunk=65536, bytes_per_process=4 << 20, fixed="time", seconds=1e-9
    )
    for repetition in range(5):
        record, _ = runner.run(job(Pattern(options), repetition=30 + repetition))
        assert record.status == "ok", record.error
        assert "too-short" in {finding.audit for finding in judged(record).findings}


def test_threads_stop_at_a_fixed_time(runner: Runner) -> None:
    options = PatternOptions(
        pattern="rand-read", chunk=4096, bytes_per_process=1 << 20, fixed="time", seconds=0.3
    )
    record, _ = runner.run(job(Pattern(options), Geometry(1, 1, 2), repetition=3))
    assert record.status == "ok", record.error
    assert float(record.phases[0].end.max()) >= 0.3  # its first operation may start late
    assert int(record.phases[0].latency["close"].counts.sum()) == 1


def test_metadata_record(runner: Runner) -> None:
    work = Metadata(MetadataOptions(files_per_process=50))
    record, _ = runner.run(job(work, repetition=4))
    assert record.status == "ok", record.error
    by_name = {phase.name: phase for phase in record.phases}
    assert by_name["create"].operations.sum() == 100
    assert by_name["remove"].operations.sum() == 100
    assert all(np.isfinite(phase.end).all() for phase in record.phases)


CLOCKS = """
from mpi4py import MPI
from fsmatrix.suite.session.stream import measure
from fsmatrix.suite.session.comm import MpiComm
comm = MpiComm(MPI.COMM_WORLD)
kernel = "kernel-%d" % (comm.rank // 2)
offset = measure(comm, {"kernel-0": 0, "kernel-1": 2}, kernel)
both = comm.gather([comm.rank, offset.nanoseconds, offset.uncertainty])
if comm.rank == 0:
    print(*("%d:%d:%d" % tuple(one) for one in both))
"""


def test_clock_offsets_between_kernels_are_within_their_uncertainty() -> None:
    """Two made-up kernels that really share a clock: the offset is 0 but for its error."""
    found = Mpirun.probe()
    if not found.ok:
        pytest.skip(found.reason)
    launcher = Mpirun(found)
    command = launcher.command([sys.executable, "-P", "-c", CLOCKS], Geometry(1, 4), {})
    done = subprocess.run(
        command,
        env=os.environ | launcher.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    rows = [tuple(map(int, word.split(":"))) for word in done.stdout.split()]
    assert [rank for rank, _, _ in rows] == [0, 1, 2, 3]
    assert rows[0][1:] == rows[1][1:] == (0, 0)
    assert rows[2][1:] == rows[3][1:]
    assert rows[2][2] > 0
    assert abs(rows[2][1]) <= rows[2][2]


def test_the_run_directory_is_below_the_access(runner: Runner) -> None:
    work = Scripted(Step("r", "rank", "timed", Function(probe.WHERE, {})))
    runner.run(job(work, repetition=5))
    assert isinstance(runner.access, PathAccess)
    assert Path(work.outputs[0].value["root"]).parent == Path(runner.access.path)
