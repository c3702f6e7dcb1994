"""Real sessions under every launcher of this machine: steps of each kind, and faults."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from fsmatrix.backends.journal.proof import carriers
from fsmatrix.results.record import Geometry
from fsmatrix.suite.launchers.launcher import Launcher, Probe, find_library
from fsmatrix.suite.launchers.mpirun import Mpirun
from fsmatrix.suite.registry import LAUNCHERS
from fsmatrix.suite.session.client import (
    DeadlinePassed,
    Launched,
    Session,
    SessionDied,
    SessionError,
    explain_death,
)
from fsmatrix.suite.session.messages import Answers, Argv, Call, Function, RankOutput, in_rows
from fsmatrix.suite.session.orphaned_sessions import Scratch
from fsmatrix.suite.session.programs import Interrupted, StopFlag
from fsmatrix.suite.session.survey import Where
from tests.asking import OPEN_MPI_4
from tests.suite import probe
from tests.suite.sessions import in_step, started

EMULATED = {"hosts": ("one", "two"), "emulated": True}
TWO_NODES = pytest.mark.needs("emulated nodes")


@pytest.fixture(scope="module", autouse=True)
def ranks_import_the_probe() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", probe.ROOT)
        yield


def launcher(name: str, **fields: Any) -> Launcher:
    kind = LAUNCHERS.load(name)
    found = kind.probe()
    if not found.ok:
        pytest.skip(f"launcher {name}: {found.reason}")
    return kind(found, **fields)


@pytest.fixture
def stop() -> Iterator[StopFlag]:
    yield StopFlag()


def function(
    session: Session, geometry: Geometry, name: str = probe.WHERE, **more: Any
) -> tuple[RankOutput, ...]:
    what = Function(name, {"x": 1})
    return in_step(session, geometry, function=what, **more)[0].outputs


@pytest.mark.parametrize(
    ("name", "geometry", "fields"),
    [
        ("local", Geometry(), {}),
        ("mpirun", Geometry(1, 3), {}),
        ("mpiexec", Geometry(1, 2), {}),
        pytest.param("mpirun", Geometry(2, 2), EMULATED, marks=TWO_NODES),
        pytest.param("mpiexec", Geometry(2, 2), EMULATED, marks=TWO_NODES),
    ],
)
def test_steps_of_every_kind(
    name: str, geometry: Geometry, fields: dict[str, Any], stop: StopFlag
) -> None:
    session = Session(launcher(name, **fields), geometry, stop)
    try:
        session.start()
        answers = function(session, geometry)
        assert [a.rank for a in answers] == list(range(geometry.processes))
        assert len({a.value["pid"] for a in answers}) == geometry.processes
        assert len({a.value["host"] for a in answers}) == geometry.nodes
        assert answers[0].value["params"] == {"x": 1}
        smaller = Geometry(1, 1)
        assert [a.rank for a in function(session, smaller)] == [0]
        wheres: list[tuple[Where, int]] = [("node", geometry.nodes), ("once", 1)]
        for where, count in wheres:
            what = Argv(("sh", "-c", "uname -n; env | grep -c '^OMPI\\|^PMI' "))
            outputs = in_step(session, geometry, where, program=what)[0].outputs
            assert len(outputs) == count
            assert [o.done.stdout.split()[1] for o in outputs] == ["0"] * count
    finally:
        session.close()
    assert not [pid for pid in session.pids if psutil.pid_exists(pid)]


@pytest.mark.parametrize(
    ("geometry", "fields"),
    [(Geometry(1, 3), {}), pytest.param(Geometry(2, 2), EMULATED, marks=TWO_NODES)],
)
@pytest.mark.needs("open mpi 4")
def test_open_mpi_4(geometry: Geometry, fields: dict[str, Any], stop: StopFlag) -> None:
    """The distribution's Open MPI beside PyPI's: each program with its own library."""
    program = OPEN_MPI_4
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    version = (told.stdout + told.stderr).splitlines()[0].split()[-1]
    library = find_library(str(program), ("libmpi.so.40",))
    session = Session(
        Mpirun(Probe(True, str(program), version, library=library), **fields), geometry, stop
    )
    try:
        session.start()
        assert version in session.hello.mpi
        hosts = {answer.value["host"] for answer in function(session, geometry)}
        assert len(hosts) == geometry.nodes
    finally:
        session.close()


def test_affinity_is_set_per_run_and_given_back(stop: StopFlag) -> None:
    session = Session(launcher("mpirun"), Geometry(1, 2), stop)
    try:
        session.start()
        allowed = list(session.hello.ranks[0].cpus)
        pinned = function(session, Geometry(1, 2), affinity="core")
        assert [a.value["cpus"] for a in pinned] == [
            [allowed[rank % len(allowed)]] for rank in range(2)
        ]
        free = function(session, Geometry(1, 2))
        assert [a.value["cpus"] for a in free] == [allowed] * 2
    finally:
        session.close()


def test_a_function_that_raises_is_an_answer(stop: StopFlag) -> None:
    session = Session(launcher("local"), Geometry(), stop)
    try:
        session.start()
        (answer,) = function(session, Geometry(), "os:listdir")
        assert answer.error is not None
        assert answer.error.startswith("TypeError")
        assert function(session, Geometry())[0].value["rank"] == 0
    finally:
        session.close()


@pytest.mark.parametrize("name", ["mpirun", "mpiexec"])
def test_a_killed_rank_is_named(name: str, stop: StopFlag) -> None:
    session = Session(launcher(name), Geometry(1, 2), stop)
    try:
        session.start()
        os.kill(session.hello.ranks[1].pid, signal.SIGKILL)
        with pytest.raises(SessionDied, match=r"rank 1 on .* ended by signal 9 \(SIGKILL\)"):
            function(session, Geometry(1, 2))
    finally:
        session.close()


def test_a_stopped_rank_passes_the_deadline_and_is_ended(stop: StopFlag) -> None:
    session = Session(launcher("mpirun"), Geometry(1, 2), stop)
    try:
        session.start()
        os.kill(session.hello.ranks[1].pid, signal.SIGSTOP)
        command = Call(to=in_rows([0, 1]), function="x", access={}, journal="")
        with pytest.raises(DeadlinePassed, match="call: no answer within 1 s"):
            session.request(command, Answers, 1)
    finally:
        session.kill()
        session.close()
    deadline = time.monotonic() + 30
    while any(psutil.pid_exists(pid) for pid in session.pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in session.pids if psutil.pid_exists(pid)]


def test_ranks_end_when_the_conductor_is_gone(stop: StopFlag) -> None:
    session = Session(launcher("mpirun"), Geometry(1, 2), stop)
    session.start()
    assert session._channel is not None
    session._channel.close()
    session._channel = None
    deadline = time.monotonic() + 30
    ranks = [rank.pid for rank in session.hello.ranks]
    while any(psutil.pid_exists(pid) for pid in ranks) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in ranks if psutil.pid_exists(pid)]
    session.kill()
    session.close()


def test_a_world_of_the_wrong_size_is_an_error(
    stop: StopFlag,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mpirun = launcher("mpirun")
    one = Mpirun.command(mpirun, ["x"], Geometry(1, 1), {})[:-1]
    monkeypatch.setattr(Mpirun, "command", lambda self, argv, geometry, env: [*one, *argv])
    session = Session(mpirun, Geometry(1, 2), stop)
    with pytest.raises(SessionError, match="asked for a world of 2 ranks, MPI made one of 1"):
        session.start()
    session.close()


def test_a_launcher_that_fails_is_told_with_its_words(stop: StopFlag) -> None:
    mpirun = launcher("mpirun")
    broken = replace(mpirun, options=("--no-such-option",))
    session = Session(broken, Geometry(), stop)
    with pytest.raises(SessionDied, match="no-such-option"):
        session.start()
    session.close()


def test_a_request_to_stop_interrupts_a_wait(stop: StopFlag) -> None:
    session = Session(launcher("local"), Geometry(), stop)
    try:
        session.start()
        with stop:
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(Interrupted):
                in_step(session, Geometry(), "once", program=Argv(("sleep", "30")))
    finally:
        session.kill()
        session.close()


def test_the_folder_of_a_session_is_removed(stop: StopFlag) -> None:
    session = Session(launcher("local"), Geometry(), stop)
    session.start()
    folder = Path(session._folder)
    assert folder.exists()
    session.close()
    assert not folder.exists()


def test_a_library_that_cannot_be_loaded_is_the_reason(stop: StopFlag) -> None:
    found = replace(Mpirun.probe(), library="/nonexistent/libmpi.so.40")
    if not found.ok:
        pytest.skip(found.reason)
    session = Session(Mpirun(found), Geometry(1, 2), stop, 60)
    try:
        with pytest.raises(SessionDied, match=r"cannot load MPI library\s+/nonexistent"):
            session.start()
    finally:
        session.close()


def test_last_words_need_no_disk() -> None:
    """They may tell that it is full."""
    launched = Launched(
        ("sh", "-c", "readlink /proc/$$/fd/2 >&2; seq 20000; exit 3"), {}, nullcontext()
    )
    assert launched.wait(60)
    assert launched.poll() == 3
    assert launched.output("stderr") == "/memfd:stderr (deleted)\n"
    assert launched.output("stdout").endswith("\n19999\n20000\n")
    assert len(launched.output("stdout")) == 65536
    launched.close()


@pytest.mark.needs("loops", "mpirun")  # to mount a small one
def test_a_full_folder_for_temporary_files_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: StopFlag
) -> None:
    """Open MPI dies there of SIGBUS, or says nothing of it."""
    place = tmp_path / "t"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "full", str(place)], check=True)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    journals = tmp_path / "journals"
    journals.mkdir(mode=0o700)
    # as the conductor does: ranks that outlive their dead launcher are known by it
    scratch = Scratch.drawn(journals)
    session = Session(launcher("mpirun"), Geometry(1, 2), stop, 60, scratch=scratch)
    try:
        with pytest.raises(SessionDied, match=f"{place} has .* bytes free .*No space left"):
            session.start()
    finally:
        session.close()
        subprocess.run(["umount", str(place)], check=True)
    assert carriers(scratch.own.store, scratch.session) == []


@pytest.mark.needs("mpirun")
def test_a_long_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: StopFlag
) -> None:
    """Longer than an address of a Unix socket can be (107 bytes)."""
    place = tmp_path / ("x" * 100) / ("y" * 60)
    place.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    with started(Geometry(1, 2)) as session:
        assert len(session.hello.ranks) == 2
    assert list(place.iterdir()) == []


def test_explain_death_reads_a_rank_s_own_words() -> None:
    text = 'noise\nfsmatrix-rank-error {"rank": 3, "host": "n2", "error": "ValueError: bad"}\n'
    death = explain_death(text, 71, [])
    assert str(death) == "rank 3 on n2 raised ValueError: bad"
    assert death.facts["rank"] == 3
