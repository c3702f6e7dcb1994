"""Programs that die and leave workers: these are ended, and what holds a mount is named."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from fsmatrix.backends.system.libc import libc
from fsmatrix.results.files.store import Store
from fsmatrix.suite.session.programs import _PR_GET_CHILD_SUBREAPER, adopting
from tests.suite.running import Running, fsmatrix
from tests.waiting import PATIENCE, until

CAMPAIGN = """
campaign: orphans
targets:
  disk: {{backend: {backend}, options: {{size: {size}}}}}
workloads:
  io: {{workload: fio, options: {{rw: write, bs: 64KiB, size: 1MiB, runtime: {runtime},
       rate_iops: 50}}}}
factors: {{processes_per_node: [2]}}
repetitions: {repetitions}
order: {{attachments: 2}}
settle: {{timeout: 1s}}
"""
on_loops = [
    pytest.mark.loop,
    pytest.mark.needs("fio", "mpirun"),
]
EXT4 = pytest.param("ext4", "128MiB", marks=[*on_loops, pytest.mark.needs("ext4")], id="ext4")
XFS = pytest.param("xfs", "320MiB", marks=[*on_loops, pytest.mark.needs("xfs")], id="xfs")


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    """A results directory; what a failed test leaves on the machine is taken away."""
    place = tmp_path / "out"
    yield place
    for process in fio_of(place):
        process.kill()
    for point in (place / "state").glob("*/mnt"):
        if os.path.ismount(point):
            subprocess.run(["umount", "--lazy", str(point)], check=True)


def once(look: Callable[[], Any], what: str) -> Any:
    """What `look` gives as soon as it gives something."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.02)
    pytest.fail(f"in vain: {what}")


def fio_of(out: Path) -> list[psutil.Process]:
    """The fio processes of a results directory that have not ended, the main one first."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.name() == "fio" and str(out) in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return sorted(found, key=lambda process: (process.create_time(), process.pid))


def main_and_workers(out: Path) -> tuple[psutil.Process, list[psutil.Process]]:
    """Once all of a running fio is there: workers are its children."""

    def whole() -> list[psutil.Process]:
        found = fio_of(out)
        below = [one for one in found if found[0].pid == one.ppid()]
        return found if len(below) == 2 else []

    main, *workers = once(whole, "fio with two workers")
    time.sleep(0.5)  # they work
    return main, workers


def campaign_in(folder: Path, backend: str, size: str, runtime: str, repetitions: int = 1) -> Path:
    path = folder / "orphans.yaml"
    text = CAMPAIGN.format(backend=backend, size=size, runtime=runtime, repetitions=repetitions)
    path.write_text(text)
    return path


def nothing_is_left(out: Path, said: str = "") -> None:
    """No process, mount, loop device or image."""
    assert fio_of(out) == []
    assert str(out) not in Path("/proc/self/mountinfo").read_text()
    loops = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout
    assert str(out) not in loops
    assert list((out / "state").rglob("*.img")) == [], said


@pytest.mark.parametrize(("backend", "size"), [EXT4, XFS])
def test_a_killed_main_process_fails_its_run_and_the_campaign_goes_on(
    tmp_path: Path, out: Path, backend: str, size: str
) -> None:
    """As the kernel does when memory is short."""
    running = Running(campaign_in(tmp_path, backend, size, "5s", 2), "-o", out)
    running.until("run")
    main, workers = main_and_workers(out)
    main.kill()
    running.until("failed")
    assert not any(worker.is_running() for worker in workers)
    assert running.end() == 1, running.errors
    store = Store.open(out)
    records = [store.read(run) for run in store.ids()]
    assert sorted(record.status for record in records) == ["failed", "ok"]
    (failed,) = (record for record in records if record.status == "failed")
    assert "the program was ended by SIGKILL" in failed.error
    nothing_is_left(out)


@pytest.mark.parametrize(("backend", "size"), [EXT4])
def test_a_stopped_main_process_does_not_outlive_an_interrupt(
    tmp_path: Path, out: Path, backend: str, size: str
) -> None:
    running = Running(campaign_in(tmp_path, backend, size, "30s"), "-o", out)
    running.until("run")
    main, _ = main_and_workers(out)
    main.suspend()
    running.process.terminate()
    assert running.end() == 130, running.errors
    nothing_is_left(out)


@pytest.mark.parametrize(("backend", "size"), [EXT4, XFS])
def test_resume_ends_our_orphans_and_names_what_is_foreign(
    tmp_path: Path, out: Path, backend: str, size: str
) -> None:
    running = Running(campaign_in(tmp_path, backend, size, "3s"), "-o", out)
    running.until("run")
    main, workers = main_and_workers(out)
    (point,) = (out / "state").glob("*/mnt")
    with sleeping_in(point) as foreign:
        for worker in workers:
            worker.suspend()  # or they would end by themselves when their time is over
        for process in (running.process, *session_of(main), main):
            os.kill(process.pid, signal.SIGKILL)
        running.process.wait()
        until(lambda: all(worker.status() == psutil.STATUS_STOPPED for worker in workers))
        said = fsmatrix("run", "-o", out, "--resume", "--quiet").stderr
        assert not any(worker.is_running() for worker in workers), said
        assert f"{point} is still in use by pid {foreign.pid} (sleep) in {point}" in said
        assert f"kill {foreign.pid}" in said
        assert foreign.poll() is None
        foreign.kill()

    def resumed() -> subprocess.CompletedProcess[str] | None:
        """Unless another program's mount namespace has just copied our mount."""
        again = fsmatrix("run", "-o", out, "--resume", "--quiet")
        assert again.returncode == 0, again.stderr
        return None if "in a mount namespace that" in again.stderr else again

    done = once(resumed, "a mount that nobody else has")
    nothing_is_left(out, said + done.stderr)


@contextmanager
def sleeping_in(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's process, with its working directory there."""
    with subprocess.Popen(["sleep", "600"], cwd=place) as process:
        try:
            yield process
        finally:
            process.kill()


def session_of(program: psutil.Process) -> list[psutil.Process]:
    """The rank that started a program, and its launcher: those above, up to the conductor."""
    rank = program.parent()
    launcher = rank.parent() if rank else None
    assert rank is not None
    assert launcher is not None
    assert "fsmatrix.suite.session" in launcher.cmdline(), launcher.cmdline()
    return [launcher, rank]


def test_programs_of_threads_that_overlap_leave_no_subreaper() -> None:
    """What a later program left would become a zombie of ours, for ever."""

    def adopts() -> bool:
        asked = ctypes.c_int()
        libc().prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(asked), 0, 0, 0)
        return bool(asked.value)

    assert not adopts()
    first, second = adopting(), adopting()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert adopts()
    second.__exit__(None, None, None)
    assert not adopts()
