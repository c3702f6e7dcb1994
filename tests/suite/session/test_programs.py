"""Programs that a step starts: how they end, what is kept of what they tell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fsmatrix.suite.session import programs
from fsmatrix.suite.session.programs import run

PYTHON = sys.executable


def gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process ended, or does so soon."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_output_status_and_moments(tmp_path: Path) -> None:
    before = time.time()
    done = run(("sh", "-c", "pwd; echo wrong >&2; exit 3"), str(tmp_path), 30)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{tmp_path}\n", "wrong\n")
    assert before <= done.began <= done.ended <= time.time()
    assert (done.timed_out, done.dropped, done.files) == (False, 0, {})


def test_a_signal_is_a_negative_status() -> None:
    assert run(("sh", "-c", "kill -KILL $$"), "/", 30).returncode == -signal.SIGKILL


def test_a_missing_program_says_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir(mode=0)  # for others than root: the kernel says EACCES
    (tmp_path / "open").mkdir()
    (tmp_path / "open/forbidden").write_text("no program")
    folders = f"{tmp_path / 'closed'}{os.pathsep}{tmp_path / 'open'}{os.pathsep}"
    monkeypatch.setenv("PATH", folders + os.environ["PATH"])
    assert "forbidden: Permission denied" in run(("forbidden",), "/", 30).stderr
    done = run(("no-such-program-here",), "/", 30)
    assert done.returncode == 127
    assert "no-such-program-here: No such file" in done.stderr
    plain = tmp_path / "plain"
    plain.write_text("text")
    assert "Permission denied" in run((str(plain),), "/", 30).stderr


def test_english_and_decimal_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    done = run(("sh", "-c", "echo $LC_ALL-$OMPI_COMM_WORLD_RANK"), "/", 30)
    assert done.stdout == "C-\n"


def test_a_flood_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beginning and end are kept; what is missing is said; both pipes are read all the time."""
    monkeypatch.setattr(programs, "KEPT", 100_000)
    script = (
        "import sys\n"
        "for stream in sys.stdout, sys.stderr:\n"
        "    stream.write('first\\n' + 'x' * 5_000_000 + '\\nlast\\n')\n"
    )
    done = run((PYTHON, "-c", script), "/", 60)
    for text in (done.stdout, done.stderr):
        assert text.startswith("first\n")
        assert text.endswith("\nlast\n")
        assert "bytes left out here" in text
        assert len(text) < 400_000
    kept = len(done.stdout) + len(done.stderr)
    assert 10_000_000 - kept < done.dropped <= 10_000_024 - 400_000


def test_output_that_is_no_text_is_kept_readable() -> None:
    done = run(("printf", "a\\377b\\n"), "/", 30)
    assert done.stdout == "a\N{REPLACEMENT CHARACTER}b\n"


def test_scratch_holds_files_gives_results_and_is_removed(tmp_path: Path) -> None:
    script = "cat {scratch}/job; echo more > {scratch}/out.1.log; echo no > {scratch}/other; "
    done = run(
        ("sh", "-c", script + "echo {scratch}"),
        str(tmp_path),
        30,
        files={"job": "log={scratch}/x\n"},
        collect=("out*.log",),
    )
    job, folder = done.stdout.splitlines()
    assert job == f"log={folder}/x"
    assert done.argv[-1].endswith(f"echo {folder}")
    assert done.files == {"out.1.log": "more\n"}
    assert not Path(folder).exists()
    assert os.listdir(tmp_path) == []


def test_the_deadline_ends_the_whole_group(tmp_path: Path) -> None:
    """A program that ignores SIGTERM, and its child."""
    script = "trap '' TERM; sleep 100 & echo $! > child; wait; sleep 100"
    done = run(("sh", "-c", script), str(tmp_path), 0.5)
    assert done.timed_out
    assert done.returncode == -signal.SIGKILL
    assert gone(int((tmp_path / "child").read_text()))


def test_what_a_program_leaves_may_end_by_itself_first(tmp_path: Path) -> None:
    """As the daemons of a launcher: killed while they clean up, the next ones do not start."""
    clean = tmp_path / "clean"
    done = run(["sh", "-c", f"setsid sh -c 'sleep 0.5; touch {clean}' >/dev/null 2>&1 &"], "/", 60)
    assert done.returncode == 0
    assert clean.exists()


@pytest.mark.parametrize("own", ["", "setsid "], ids=["its group", "a session of its own"])
def test_a_program_ends_with_what_it_started(tmp_path: Path, own: str) -> None:
    """Nor does a child that holds the pipe hold the run."""
    script = f"{own}sh -c 'echo $$ > child; exec sleep 60' & "
    script += "while ! [ -s child ]; do sleep 0.01; done; echo done"
    done = run(("sh", "-c", script), str(tmp_path), 50)
    assert (done.returncode, done.stdout, done.timed_out) == (0, "done\n", False)
    assert not psutil.pid_exists(int((tmp_path / "child").read_text()))


def test_also_what_shows_no_environment_ends(tmp_path: Path) -> None:
    """PostgreSQL's processes overwrite theirs, and one that waits for a pipe to be opened hears of
    nothing: its parent is a daemon that the program left."""
    os.mkfifo(tmp_path / "pipe")
    hidden = "env -i setsid sh -c 'echo $$ > child; read line < pipe' & wait"
    (tmp_path / "daemon").write_text(hidden)
    script = "setsid sh daemon >/dev/null 2>&1 & while ! [ -s child ]; do sleep 0.01; done"
    assert run(("sh", "-c", script), str(tmp_path), 50).returncode == 0
    assert not psutil.pid_exists(int((tmp_path / "child").read_text()))


def test_other_children_are_left_alone(tmp_path: Path) -> None:
    """Also one that dies meanwhile: its status is for who started it."""
    with subprocess.Popen(["sh", "-c", "sleep 0.2; exit 7"]) as brief:
        with subprocess.Popen(["sleep", "60"]) as other:
            assert run(("sleep", "0.5"), str(tmp_path), 50).returncode == 0
            assert other.poll() is None
            other.kill()
        assert brief.wait() == 7


def test_stop_ends_it_before_the_deadline() -> None:
    done = run(("sleep", "100"), "/", 90, stop=lambda: True)
    assert done.returncode == -signal.SIGTERM
    assert not done.timed_out


def test_a_killed_starter_leaves_no_program(tmp_path: Path) -> None:
    script = (
        "import sys; from fsmatrix.suite.session.programs import run; "
        f"run(('sh', '-c', 'echo $$ > pid; exec sleep 100'), {str(tmp_path)!r}, 90)"
    )
    with subprocess.Popen([PYTHON, "-P", "-c", script]) as starter:
        pid = tmp_path / "pid"
        deadline = time.monotonic() + 60
        while not (pid.exists() and pid.read_text().strip()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        starter.kill()
    assert gone(int(pid.read_text()))
