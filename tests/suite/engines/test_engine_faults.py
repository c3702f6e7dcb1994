"""Real fio and dbench that are killed, hang, meet a full disk: failed runs, nothing stays."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from fsmatrix.backends.system import workfolder
from fsmatrix.results.record import Case, Geometry
from fsmatrix.suite.cases.resolve import Engines
from fsmatrix.suite.engines.engine import EngineKind
from fsmatrix.suite.run.assemble import RunSpec, Settings
from fsmatrix.suite.run.runner import Runner
from fsmatrix.suite.session.client import Session
from fsmatrix.suite.workloads.dbench import Dbench
from fsmatrix.suite.workloads.fio import Fio
from fsmatrix.suite.workloads.workload import Workload
from tests.suite.sessions import runner_on, started
from tests.waiting import PATIENCE

FSMATRIX = [sys.executable, "-P", "-m", "fsmatrix.cli.main"]
pytestmark = pytest.mark.needs("fio")


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """Two emulated client nodes."""
    with started(Geometry(2, 1), hosts=("one", "two"), emulated=True) as session:
        yield session


def runner_in(session: Session, place: Path, out: Path, limit: float = 200.0) -> Runner:
    return runner_on(session, place, out, Settings(limit, 2.0, out=out))


def job(workload: Workload) -> RunSpec:
    case = Case("here", workload.name, {}, Geometry(2, 1), cache="warm")
    engine = Engines({}).get(workload.engines[0])
    return RunSpec(case, workload, engine, {"target": "here"}, 1, 1, 0, "a", 1)


def long_fio() -> Fio:
    return Fio(
        Fio.Options.model_validate(
            {"rw": "write", "bs": "64KiB", "size": "1MiB", "runtime": "40s", "rate_iops": 50}
        )
    )


def running(name: str, place: Path) -> list[psutil.Process]:
    """Processes of that name that were started for this directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.name() == name and str(place) in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return sorted(found, key=lambda process: process.pid)


def once_it_runs(name: str, place: Path, act: Callable[[psutil.Process], None]) -> threading.Thread:
    """Act on the second node's program a second after the programs of both nodes run."""

    def wait() -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if len(found := running(name, place)) >= 2:
                time.sleep(1.0)
                second = next(p for p in found if "node1" in " ".join(p.cmdline()))
                act(second)
                return
            time.sleep(0.05)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_one_killed_fio_fails_the_run_and_the_other_node_is_kept(
    session: Session, tmp_path: Path
) -> None:
    place = tmp_path / "data"
    place.mkdir()
    work = Fio(
        Fio.Options.model_validate(
            {"rw": "write", "bs": "64KiB", "size": "1MiB", "runtime": "4s", "rate_iops": 50}
        )
    )
    killer = once_it_runs("fio", place, lambda fio: fio.send_signal(signal.SIGKILL))
    record, broken = runner_in(session, place, tmp_path).run(job(work))
    killer.join()
    assert (record.status, broken) == ("failed", None)
    assert "write on two" in record.error
    assert "SIGKILL" in record.error
    (kept,) = (text for name, text in record.texts.items() if name.endswith("one/stdout"))
    assert '"jobs"' in kept
    assert os.listdir(place) == []


def test_a_hanging_fio_is_a_timeout_and_is_ended(session: Session, tmp_path: Path) -> None:
    place = tmp_path / "data"
    place.mkdir()
    stopper = once_it_runs("fio", place, lambda fio: fio.send_signal(signal.SIGSTOP))
    record, broken = runner_in(session, place, tmp_path, 8.0).run(job(long_fio()))
    stopper.join()
    assert (record.status, broken) == ("timeout", None)
    assert "deadline" in record.error
    assert running("fio", place) == []
    assert os.listdir(place) == []


def test_after_a_failure_the_session_goes_on(session: Session, tmp_path: Path) -> None:
    place = tmp_path / "data"
    place.mkdir()
    runner = runner_in(session, place, tmp_path)
    record, broken = runner.run(job(Fio(Fio.Options.model_validate({"size": "1MiB"}))))
    assert (record.status, broken) == ("ok", None), record.error


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "fsmatrix-test", str(place)], check=True
    )
    yield place
    subprocess.run(["umount", str(place)], check=True)


FULL = [
    Fio(Fio.Options.model_validate({"rw": "write", "size": "64MiB", "bs": "1MiB"})),
    Fio(Fio.Options.model_validate({"rw": "randread", "size": "64MiB"})),
    pytest.param(
        Dbench(Dbench.Options.model_validate({"runtime": "5s"})), marks=pytest.mark.needs("dbench")
    ),
]


@pytest.mark.root
@pytest.mark.parametrize("work", FULL, ids=["fio-write", "fio-layout", "dbench"])
def test_a_full_disk_is_a_failed_run_with_that_reason(
    session: Session, small: Path, tmp_path: Path, work: Workload
) -> None:
    record, broken = runner_in(session, small, tmp_path).run(job(work))
    assert (record.status, broken) == ("failed", None)
    assert re.search("No space left on device|file system or a quota is full", record.error)
    assert os.listdir(small) == []


def test_a_killed_conductor_leaves_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranks end when its channel closes, and what they started ends with them."""
    temporary, place = tmp_path / "tmp", tmp_path / "data"
    for folder in (temporary, place):
        folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    file = tmp_path / "one.yaml"
    options = "{rw: write, bs: 64KiB, size: 1MiB, runtime: 60s, rate_iops: 50}"
    file.write_text(
        f"campaign: one\ntargets: {{here: {{backend: directory, options: {{path: {place}}}}}}}\n"
        f"workloads: {{w: {{workload: fio, options: {options}}}}}\nrepetitions: 1\n"
        "geometry: {processes_per_node: 2}\nlimits: {time_per_run: 120s}\n"
    )
    command = [*FSMATRIX, "run", str(file), "-o", str(tmp_path / "out"), "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        deadline = time.monotonic() + PATIENCE
        while not running("fio", place):
            assert time.monotonic() < deadline
            assert run.poll() is None
            time.sleep(0.05)
        run.kill()
    while running("fio", place):
        assert time.monotonic() < deadline, "fio outlived the conductor"
        time.sleep(0.1)
    again = subprocess.run(
        [*command, "--resume", "--set", "limits.time_per_run=1s"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert again.returncode == 1, "that run passes its deadline"
    assert "to try them again: fsmatrix run -o " in again.stdout + again.stderr
    left = list(temporary.glob("fsmatrix-work-*"))
    assert left == [], "folders of killed programs are removed by the next conductor"


def test_an_engine_that_floods_its_output_is_a_failed_run(session: Session, tmp_path: Path) -> None:
    """fio's own words, 100 MB of them."""
    place = tmp_path / "data"
    place.mkdir()
    noisy = tmp_path / "fio"
    noisy.write_text("#!/bin/sh\nhead -c 100000000 /dev/zero | tr '\\0' 'x'\n")
    noisy.chmod(0o755)
    asked = job(Fio(Fio.Options.model_validate({"rw": "write", "size": "1MiB"})))
    asked = replace(asked, engine=replace(asked.engine, path=str(noisy)))
    record, broken = runner_in(session, place, tmp_path).run(asked)
    assert (record.status, broken) == ("failed", None)
    assert "printed too much" in record.error
    assert all(len(text) < 3 << 20 for text in record.texts.values())


def test_what_a_program_leaves_when_it_is_asked_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As MPI programs do, which make folders in TMPDIR and leave them there."""
    program = tmp_path / "talks"
    program.write_text('#!/bin/sh\nmkdir -p "$TMPDIR/ompi.host.0/jf.0/1" && echo "talks 1.5"\n')
    program.chmod(0o755)
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    kind = EngineKind(
        "talks",
        "talks",
        "install it",
        (("--version",),),
        lambda answers: (answers[0].split()[1], frozenset()),
    )
    assert kind.probe(str(program)).version == "1.5"
    assert list(place.iterdir()) == []


SHARES = """#!{python}
import os
from mpi4py import MPI
lines = open("/proc/self/maps").read().splitlines()
print("shares", next(line.split()[-1] for line in lines if "sm_segment." in line), flush=True)
os._exit(0)
"""


@pytest.mark.needs("mpirun")
def test_shared_memory_of_a_program_that_ends_without_finalize_goes(tmp_path: Path) -> None:
    """As IOR after `-h`: Open MPI leaves 4 MiB of it in /dev/shm each time."""
    program = tmp_path / "shares"
    program.write_text(SHARES.format(python=sys.executable))
    program.chmod(0o755)
    kind = EngineKind("shares", "shares", "", (("-h",),), lambda said: (said[0], frozenset()))
    segment = Path(kind.probe(str(program)).version.split()[1])
    assert segment.name.startswith("sm_segment.")
    assert not segment.exists()


ASKS = (
    "import sys; from fsmatrix.suite.engines.engine import EngineKind\n"
    "kind = EngineKind('hangs', 'hangs', '', (('--version',),), lambda answers: ('', ()))\n"
    "kind.probe(sys.argv[1])"
)


def test_who_is_killed_while_it_asks_leaves_what_the_next_one_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, place = tmp_path / "hangs", tmp_path / "tmp"
    program.write_text(
        '#!/bin/sh\ncd "$TMPDIR" && echo $$ > .pid && mv .pid pid && exec sleep 600\n'
    )
    program.chmod(0o755)
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    argv = [sys.executable, "-P", "-c", ASKS, str(program)]
    with subprocess.Popen(argv) as asking:
        deadline = time.monotonic() + PATIENCE
        while not (told := list(place.glob("*/pid"))):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        asked = int(told[0].read_text())
        asking.kill()
    os.kill(asked, signal.SIGKILL)
    assert [path.parent for path in told] == workfolder.sweep()
    assert list(place.iterdir()) == []
