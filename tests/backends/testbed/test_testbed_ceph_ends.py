"""Ends of the Ceph test bed: bring-ups that fail, are killed or interrupted, and what stays."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.testbed.bed import LEFT
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed, CephTestbedOptions, down, status, up
from tests.backends.testbed.remains import QUICK, assert_gone, of_bed, running, traces
from tests.waiting import PATIENCE


@pytest.mark.loop
def test_a_bring_up_that_fails_leaves_nothing(ceph: None, tmp_path: Path) -> None:
    directory, before = tmp_path / "bed", traces()
    huge = CephTestbedOptions(**QUICK, interface="pcie", network="1Gbit", osd_size=4 << 60)
    with pytest.raises(BackendError):
        up(huge, directory)
    assert not directory.exists()
    assert running(directory) == []
    assert not {name for name in traces()["loops"] - before["loops"] if str(directory) in name}


def _started(directory: Path, *more: str) -> subprocess.Popen[str]:
    program = "from fsmatrix.cli.testbed import app; app()"
    argv = [sys.executable, "-P", "-c", program, "up", "ceph", "--nodes", "2", "--pg-num", "32"]
    return subprocess.Popen(
        [*argv, "--osd-size", "1GiB", "--directory", str(directory), *more],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def _read_until(process_: subprocess.Popen[str], word: str) -> str:
    assert process_.stdout is not None
    seen = ""
    for line in process_.stdout:
        seen += line
        if line.startswith(word):
            return seen
    raise AssertionError(f"it ended before {word!r}: {seen}")


@contextmanager
def _killed(directory: Path, after: str, *more: str) -> Iterator[None]:
    """A bring-up that was killed after a step; whatever the test does, nothing stays."""
    child = _started(directory, *more)
    try:
        _read_until(child, after)
        child.kill()
        child.communicate(timeout=PATIENCE)
        yield
    finally:
        child.kill()
        child.communicate(timeout=PATIENCE)
        down(directory)


@pytest.mark.root
@pytest.mark.parametrize(
    "after", ["monitor", "pools and placement", pytest.param("OSDs", marks=pytest.mark.loop)]
)
def test_what_a_killed_bring_up_left_is_found_and_removed(
    after: str, ceph: None, tmp_path: Path
) -> None:
    directory = tmp_path / "bed"
    emulated = ["--interface", "sata", "--network", "1Gbit"] if after == "OSDs" else []
    with _killed(directory, after, *emulated):
        before = of_bed(directory)
        assert bool(before["loops"]) == bool(emulated)
        assert status(directory)["state"] == "interrupted"
        assert [line for line in running(directory) if line.startswith("ceph-")]
        with pytest.raises(BackendError, match="interrupted"):
            CephTestbed.open(directory)
        said = down(directory)
    assert not [line for line in said if line.startswith(LEFT)]
    assert_gone(directory, before)
    assert down(directory) == []


@pytest.mark.root
def test_sigterm_takes_down_and_the_directory_is_locked_meanwhile(
    ceph: None, tmp_path: Path
) -> None:
    directory = tmp_path / "bed"
    child = _started(directory)
    try:
        _read_until(child, "monitor")
        with pytest.raises(BackendError, match="another process"):
            down(directory)
    finally:
        child.terminate()
        child.communicate(timeout=PATIENCE)
        left = down(directory)
    assert left == []
    assert child.returncode == 128 + signal.SIGTERM
    assert_gone(directory, {})


@pytest.mark.root
def test_foreign_things_stay(ceph: None, tmp_path: Path) -> None:
    """A file in the bed's directory and a process that looks like an OSD are left alone."""
    directory = tmp_path / "bed"
    like = ["ceph-osd", "-f", "-i", "0", "-c", str(directory / "ceph.conf")]
    with _killed(directory, "monitor"), _foreign(["sh", "-c", "sleep 300", *like]) as foreign:
        (directory / "results.txt").write_text("mine")
        said = down(directory)
        assert any("results.txt" in line for line in said if line.startswith(LEFT))
        assert (directory / "results.txt").read_text() == "mine"
        assert foreign.poll() is None
        assert [line for line in running(directory) if line.startswith("ceph-")] == []
        (directory / "results.txt").unlink()
        assert f"removed {directory}" in down(directory)
        assert foreign.poll() is None


@contextmanager
def _foreign(argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process_ = subprocess.Popen(argv)
    try:
        yield process_
    finally:
        process_.kill()
        process_.wait()
