"""tests.whole: what an interrupted or killed run of all tests leaves is ended; the table."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmatrix.results.process import start_of
from fsmatrix.slurm.testbed import SlurmTestbedOptions, up
from tests.conftest import LONG, TESTS
from tests.waiting import PATIENCE, until
from tests.whole import leftovers, place, table
from tests.whole.place import TOKEN, Place, dead_places, others

ROOT = Path(__file__).parents[2]
# A test that starts a process which outlives it, tells its pid, and does not end.
ENDLESS = """
import os, pathlib, subprocess, time

def test_endless():
    sleep = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    pathlib.Path(os.environ["TOLD"]).write_text(f"{sleep.pid} {os.getpid()} {os.environ['TMPDIR']}")
    time.sleep(1000)
"""
REPORT = """<testsuites><testsuite>
<testcase classname="tests.suite.run.test_a" time="60.0"/>
<testcase classname="tests.suite.run.test_a" time="30.0"><skipped type="pytest.skip"/></testcase>
<testcase classname="tests.suite.run.test_b" time="6.0"><failure message="x"/></testcase>
<testcase classname="tests.cli.test_c" time="12.0"><error message="x"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A TMPDIR of the test's own: short, for sockets below it, and its processes are of no run."""
    folder = Path(tempfile.mkdtemp(prefix="s"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    for dead in dead_places():
        dead.clear()
    shutil.rmtree(folder)


@pytest.fixture
def live(shelf: Path) -> Iterator[Place]:
    """The folder of a run that lives; what a test that fails leaves in it is ended too."""
    made = Place.make()
    yield made
    made.clear()


def abandoned(live: Place) -> Path:
    """A run's folder whose run was killed: nobody has its lock."""
    live.unlock()
    return live.folder


def test_what_a_killed_run_left_is_ended_and_removed(live: Place) -> None:
    closed = live.folder / "t" / "closed"
    closed.mkdir()
    closed.chmod(0)
    sleeper = subprocess.Popen(["sleep", "1000"], env={**os.environ, **live.environment})
    folder = abandoned(live)
    (dead,) = dead_places()
    until(lambda: dead.left() == [f"process {sleeper.pid}: sleep 1000"])  # exec may not be through
    assert dead.clear() == [f"ended process {sleeper.pid}: sleep 1000"]
    assert sleeper.wait() == -signal.SIGKILL
    assert not folder.exists()


def test_what_shows_no_environment_is_known_by_its_log(live: Place) -> None:
    """As PostgreSQL's processes, whose titles stand where it was."""
    with (live.folder / "server.log").open("w") as log:
        hidden = subprocess.Popen(["sleep", "1000"], env={}, stderr=log)
    abandoned(live)
    (dead,) = dead_places()
    until(lambda: dead.left() == [f"process {hidden.pid}: sleep 1000"])  # exec may not be through
    assert dead.clear() == [f"ended process {hidden.pid}: sleep 1000"]
    assert hidden.wait() == -signal.SIGKILL


def test_a_run_that_was_killed_as_it_began_is_no_trouble(live: Place) -> None:
    """Before its folder had anything in it."""
    folder = abandoned(live)
    for path in folder.iterdir():
        path.rmdir()
    (dead,) = dead_places()
    assert dead.left() == []
    assert dead.clear() == []
    assert not folder.exists()


def test_a_run_that_lives_and_a_foreign_folder_are_left_alone(live: Place, shelf: Path) -> None:
    for name in (f"{place.PREFIX}short", f"{place.PREFIX}abcdefg!", "other-abcdefgh"):
        (shelf / name).mkdir()
    (shelf / f"{place.PREFIX}abcdefgh").symlink_to(live.folder)
    assert dead_places() == []
    assert others() == [live.folder]
    assert live.left() == []
    assert len(list(shelf.iterdir())) == 5


@pytest.mark.loop
@pytest.mark.needs("ext4")
def test_mounts_and_loop_devices_of_a_killed_run_go(live: Place) -> None:
    image, point = live.folder / "image", live.folder / "t" / "point"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    point.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)
    folder = abandoned(live)
    (dead,) = dead_places()
    assert any(line == f"mount {point}" for line in dead.left())
    assert f"unmounted {point}" in dead.clear()
    assert not folder.exists()
    until(lambda: str(image) not in leftovers.loop_devices().values())


@pytest.mark.root
@pytest.mark.needs("slurm")
def test_a_test_bed_of_a_killed_run_is_taken_down(live: Place) -> None:
    bed = up(SlurmTestbedOptions(nodes=2), live.folder / "b")
    pids = [bed.pid(role) for role in ("slurmctld", "slurmd.node1", "slurmd.node2")]
    folder = abandoned(live)
    (dead,) = dead_places()
    assert any(line.startswith("test bed ") for line in dead.left())
    assert dead.clear()
    until(lambda: not any(map(start_of, pids)))
    assert not folder.exists()


# -- the command ---------------------------------------------------------------------------------
def whole(told: Path) -> subprocess.Popen[str]:
    """A run of one endless test by two workers."""
    test = told.parent / "toy" / "test_endless.py"
    test.parent.mkdir(exist_ok=True)
    test.write_text(ENDLESS)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.whole", "--jobs", "2", "-p", "no:randomly", str(test)],
        cwd=ROOT,
        env={**os.environ, "TOLD": str(told), TOKEN: "of none: nothing is warmed up"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def what_runs(told: Path) -> tuple[int, int]:
    """Pids of the process that outlives its test, and of the test's worker."""
    until(lambda: told.exists() and len(told.read_text().split()) == 3, 240)
    sleeper, worker, folder = told.read_text().split()
    assert Path(folder).is_dir()
    told.unlink()
    return int(sleeper), int(worker)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(shelf: Path, tmp_path: Path, number: int) -> None:
    run = whole(tmp_path / "told")
    sleeper, _ = what_runs(tmp_path / "told")
    run.send_signal(number)
    text, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130, text
    assert f"ended process {sleeper}: sleep 1000" in text
    assert not start_of(sleeper)
    assert list(shelf.iterdir()) == []


def test_a_run_whose_worker_is_killed_ends_and_leaves_nothing(shelf: Path, tmp_path: Path) -> None:
    run = whole(tmp_path / "told")
    sleeper, worker = what_runs(tmp_path / "told")
    os.kill(worker, signal.SIGKILL)
    text, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode not in (0, 130), text
    assert f"left behind: process {sleeper}: sleep 1000" in text
    assert not start_of(sleeper)
    assert list(shelf.iterdir()) == []


def test_the_next_run_removes_what_a_killed_one_left(shelf: Path, tmp_path: Path) -> None:
    killed = whole(tmp_path / "told")
    sleeper, worker = what_runs(tmp_path / "told")
    killed.kill()
    killed.wait()
    assert start_of(sleeper)
    run = whole(tmp_path / "told")
    what_runs(tmp_path / "told")
    assert not start_of(sleeper)
    assert not start_of(worker)
    run.send_signal(signal.SIGINT)
    text, _ = run.communicate(timeout=PATIENCE)
    assert "a run of these tests was killed: " in text
    assert f"ended process {sleeper}: sleep 1000" in text
    assert list(shelf.iterdir()) == []


# -- the table -----------------------------------------------------------------------------------
def test_a_run_that_was_ended_at_once_has_a_table_too() -> None:
    lines = table.table({}, 3.0).splitlines()
    assert lines[1].split() == ["all", "0", "0", "0", "0", "0.0"]


def test_the_table_adds_up(tmp_path: Path) -> None:
    report = tmp_path / "part0.xml"
    report.write_text(REPORT)
    modules = table.by_module([report, report])
    lines = [line.split() for line in table.table(modules, 90.0).splitlines()]
    assert ["cli", "2", "0", "2", "0", "0.4"] in lines
    assert ["suite", "6", "2", "2", "2", "3.2"] in lines
    assert ["all", "8", "2", "4", "2", "3.6"] in lines
    slowest = lines[lines.index(["slowest", "modules", "minutes"]) + 1 :]
    assert slowest[:3] == [
        ["suite.run.test_a", "3.0"],
        ["cli.test_c", "0.4"],
        ["suite.run.test_b", "0.2"],
    ]
    assert lines[-1] == ["side", "by", "side", "in", "1.5", "minutes"]


def test_modules_that_begin_first_are_there() -> None:
    assert [name for name in LONG if not (TESTS / name).is_file()] == []
