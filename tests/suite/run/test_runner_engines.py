"""Runs of external programs: outputs kept, parsed or refused, counters of repeated steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from fsmatrix.backends.access import Access
from fsmatrix.results.formats.parsed import Note, Parsed, ParseError, totals
from fsmatrix.results.record import Case, Geometry
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.run.assemble import RunSpec, Settings
from fsmatrix.suite.run.runner import Runner
from fsmatrix.suite.workloads.workload import (
    Argv,
    Footprint,
    Output,
    Step,
    Workload,
    WorkloadOptions,
)
from tests.suite.sessions import runner_on, started

NODES = Geometry(2, 1)


class Told(Workload):
    """Programs that the test says; the test says too what their output means."""

    name: ClassVar[str] = "told"
    Options = WorkloadOptions
    accesses: ClassVar[frozenset[str]] = frozenset({"path"})
    engines: ClassVar[tuple[str, ...]] = ("teller",)

    def __init__(self, *steps: Step, parsed: Parsed | ParseError | None = None) -> None:
        super().__init__(WorkloadOptions())
        self.told = list(steps)
        self.parsed = parsed
        self.outputs: Sequence[Output] = ()

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        return self.told

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        self.outputs = outputs
        if isinstance(self.parsed, ParseError):
            raise self.parsed
        return self.parsed or Parsed("teller", "1.0", (totals("told", 1.0),))

    def explain(self, output: Output) -> str:
        return "it is tired" if "tired" in output.stderr else ""

    def footprint(self, case: Case) -> Footprint:
        return Footprint(0, 0, 0)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A session of two emulated client nodes."""
    out, data = tmp_path_factory.mktemp("out"), tmp_path_factory.mktemp("data")
    with started(Geometry(2, 2), hosts=("one", "two"), emulated=True) as session:
        yield runner_on(session, data, out, Settings(120.0, 5.0, out=out))


def job(workload: Workload, geometry: Geometry = NODES, cache: str = "cold") -> RunSpec:
    case = Case("here", workload.name, {}, geometry, cache=cache)
    return RunSpec(case, workload, Engine("teller", "1.0"), {"target": "here"}, 1, 1, 0, "a", 1)


def shell(name: str, script: str, where: str = "node", **more: object) -> Step:
    return Step(name, where, "timed", Argv(("sh", "-c", script)), **more)  # type: ignore[arg-type]


def test_each_node_gets_its_own_words_and_its_output_is_kept(runner: Runner) -> None:
    what = Argv(
        ("sh", "-c", "uname -n; cat {scratch}/job; echo line > {scratch}/a.log"),
        files={"job": "node {node} in {path}\n"},
        collect=("*.log",),
    )
    work = Told(Step("write", "node", "timed", what))
    record, broken = runner.run(job(work))
    assert (record.status, broken) == ("ok", None), record.error
    hosts = [output.stdout.splitlines()[0] for output in work.outputs]
    assert hosts == ["one", "two"]
    for index, output in enumerate(work.outputs):
        assert output.stdout.splitlines()[1].startswith(f"node {index} in /")
        assert output.files == {"a.log": "line\n"}
        assert (output.clock_correction, output.clock_uncertainty) == (0.0, 0.0)
    assert record.texts.keys() == {
        f"00-write/{host}/{name}" for host in hosts for name in ("stdout", "a.log")
    }
    assert record.texts["00-write/two/stdout"] == work.outputs[1].stdout
    folders = [words[-1].partition("cat ")[2].partition("/job")[0] for words in record.argv]
    assert len(set(folders)) == 2, record.argv
    assert all(
        words[-1].endswith(f"> {f}/a.log") for words, f in zip(record.argv, folders, strict=True)
    )


def test_what_the_output_tells_becomes_the_record(runner: Runner) -> None:
    phase = totals("write", 2.0, 100, 10)
    note = Note("warning", "WARNING: low", 3, "write")
    parsed = Parsed(
        "teller", "2.0", (phase,), nodes=2, processes=2, notes=(note,), facts={"machine": "x"}
    )
    record, _ = runner.run(job(Told(shell("write", "sleep 0.3"), parsed=parsed)))
    assert record.status == "ok"
    assert record.phases == (phase,)
    engine = record.evidence.engine
    assert engine is not None
    assert (engine.name, engine.version, engine.nodes) == ("teller", "2.0", 2)
    assert engine.facts == {"machine": "x"}
    assert [n.key for n in engine.notes or ()] == ["warning", "versions-differ"]
    spent = record.evidence.seconds
    assert 0.3 <= spent["program"] <= record.duration
    assert record.engine_version == "1.0"


def test_an_output_that_cannot_be_understood_fails_the_run_and_is_kept(runner: Runner) -> None:
    wrong = ParseError("the output", 7, "is cut here")
    record, broken = runner.run(job(Told(shell("write", "echo half"), parsed=wrong)))
    assert (record.status, broken) == ("failed", None)
    assert "teller cannot be used" in record.error
    assert "line 7: is cut here" in record.error
    assert record.texts["00-write/one/stdout"] == "half\n"


def test_exit_0_with_an_error_inside_is_a_failed_run(runner: Runner) -> None:
    parsed = Parsed("teller", "1.0", (totals("write", 1.0),), failure="job 1 met ENOSPC")
    record, _ = runner.run(job(Told(shell("write", "true"), parsed=parsed)))
    assert (record.status, record.error) == ("failed", "target here: job 1 met ENOSPC")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo so tired >&2; exit 4", "ended with status 4: it is tired"),
        ("echo last words; exit 5", "ended with status 5: from 1 | last words"),
        ("exit 6", "ended with status 6: from 1"),
        ("kill -SEGV $$", "was ended by SIGSEGV"),
    ],
)
def test_one_node_that_fails_fails_the_run_and_the_others_are_kept(
    runner: Runner, script: str, reason: str
) -> None:
    both = f"echo from {{node}}; if [ $(uname -n) = two ]; then {script}; fi"
    record, broken = runner.run(job(Told(shell("write", both))))
    assert (record.status, broken) == ("failed", None)
    assert record.error.startswith("target here: write on two: ")
    assert reason in record.error
    assert record.failure["host"] == "two"
    assert record.texts["00-write/one/stdout"] == "from 0\n"


def test_too_much_output_is_a_failed_run_with_both_ends_kept(runner: Runner) -> None:
    flood = "import sys; sys.stdout.write('first\\n' + 'x' * (100 << 20) + '\\nlast\\n')"
    step = Step("write", "node", "timed", Argv((sys.executable, "-c", flood)))
    record, _ = runner.run(job(Told(step), Geometry(1, 1)))
    assert record.status == "failed"
    assert "printed too much" in record.error
    (text,) = (text for name, text in record.texts.items() if name.endswith("stdout"))
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert 2 << 20 <= len(text) < 5 << 20


def test_a_full_disk_is_said(runner: Runner) -> None:
    """/dev/full is a device on which every write meets ENOSPC."""
    record, _ = runner.run(job(Told(shell("write", "cat /etc/passwd > /dev/full"))))
    assert record.status == "failed"
    assert "No space left on device" in record.error


def test_evidence_of_steps_with_one_name_adds_up(runner: Runner) -> None:
    steps = [shell("write", "true"), shell("read", "true", reads=True)] * 3
    record, _ = runner.run(job(Told(*steps)))
    assert record.status == "ok", record.error
    looks = record.evidence.counters["read"]
    assert [look.host for look in looks] == ["one"] * 3, "one kernel, looked at three times"
    assert record.evidence.cache["read"].state == "cold"
    assert set(record.evidence.cpu["read"]) == {"one"}
    assert record.monitor is not None
    assert record.monitor.time.size == record.monitor.series["cpu_busy"].shape[1]


def test_a_program_of_two_phases_has_its_counters_under_both(runner: Runner) -> None:
    step = shell("write+read", "true", phases=("write", "read"))
    record, _ = runner.run(job(Told(step), cache="warm"))
    assert record.evidence.counters.keys() == {"write", "read"}
    assert record.monitor is not None
    assert (record.monitor.time[1:] > record.monitor.time[:-1]).all(), "sampled once"


def test_ranks_of_an_mpi_program_are_bound_as_it_asks(runner: Runner, tmp_path: Path) -> None:
    launcher = replace(runner.session.launcher, binding="socket")
    words = launcher.command(["ior"], Geometry(1, 2), {})
    assert words[words.index("--bind-to") + 1] == "socket"
    assert "--bind-to" in runner.session.launcher.command(["ior"], Geometry(1, 2), {})
    assert "none" in runner.session.launcher.command(["ior"], Geometry(1, 2), {})
