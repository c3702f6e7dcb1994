"""Processes of a test bed are known by pid, start and command line."""

from __future__ import annotations

import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fsmatrix.backends.system import mounts
from fsmatrix.backends.testbed import daemons
from fsmatrix.backends.testbed.daemons import Launch, Recorded, Seen
from tests.waiting import PATIENCE


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[tuple[Seen, list[str]]]:
    argv = ["sleep", "300"]
    seen = daemons.spawn(argv, tmp_path / "log")
    deadline = time.monotonic() + PATIENCE  # the kernel shows a command line a moment after exec
    while (now := daemons.look(seen.pid)) and now.argv == ("",) and time.monotonic() < deadline:
        time.sleep(0.01)
    yield seen, argv
    daemons.end_process(
        [Recorded(role="sleeper", argv=tuple(argv), pid=seen.pid, start=seen.start)]
    )


def test_a_pid_with_another_start_or_command_line_is_not_ours(
    sleeper: tuple[Seen, list[str]],
) -> None:
    seen, argv = sleeper
    facts = Recorded(role="x", argv=tuple(argv), pid=seen.pid, start=seen.start)
    assert daemons.ours(facts) is not None
    for other in (
        replace(facts, start=seen.start + 1),
        replace(facts, argv=("sleep", "301")),
        replace(facts, argv=("a", "sleep")),
    ):
        assert daemons.ours(other) is None
        assert not daemons.send(other, signal.SIGKILL)
    assert daemons.ours(facts) is not None
    assert daemons.end_process([facts]) == (["x"], [])
    assert daemons.ours(facts) is None


def test_a_process_whose_pid_was_not_written_down_is_found_by_its_command_line(
    tmp_path: Path,
) -> None:
    argv = ["tail", "-f", str(tmp_path / "log")]
    after = daemons.clock_ticks()
    seen = daemons.spawn(argv, tmp_path / "log")
    facts = Recorded(role="x", argv=tuple(argv), after=after)
    try:
        deadline = time.monotonic() + PATIENCE
        while (found := daemons.ours(facts)) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert found is not None
        assert found.pid == seen.pid
        assert daemons.ours(replace(facts, after=seen.start + 1)) is None
    finally:
        assert daemons.end_process([facts]) == (["x"], [])


@pytest.mark.root
@pytest.mark.parametrize("unmounted", ["before", "after"])
def test_a_daemon_keeps_no_file_system_of_others_busy(unmounted: str, tmp_path: Path) -> None:
    """One that it does not need it leaves; one that goes later goes in its namespace too, where
    the machine's mounts are shared at all.
    """
    machine = tmp_path / "machine"
    point, needed = machine / "theirs", machine / "ours"
    try:
        for folder in (machine, point, needed):
            folder.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "fsmatrix-test", folder], check=True)
            subprocess.run(["mount", "--make-shared", folder], check=True)
        left = mounts.not_needed([needed / "data"] if unmounted == "before" else [tmp_path])
        assert (str(point) in left) is (unmounted == "before")
        assert str(needed) not in left
        script = f"{shlex.join(['umount', '--lazy', *left])} || true"
        command = Launch("x", ("sleep", "300"), host="x", private=script).command
        seen = daemons.spawn(command, tmp_path / "log")
        facts = Recorded(role="x", argv=tuple(command), pid=seen.pid, start=seen.start)
        try:
            assert _sleeps(seen.pid)
            subprocess.run(["umount", point], check=True)
            held = Path(f"/proc/{seen.pid}/mountinfo").read_text()
            assert str(point) not in held
            assert str(needed) in held
        finally:
            daemons.end_process([facts])
    finally:
        for folder in (point, needed, machine):
            subprocess.run(["umount", "--quiet", folder], check=False, capture_output=True)


def _sleeps(pid: int) -> bool:
    """Whether the program itself runs, after all that comes before it."""
    deadline = time.monotonic() + PATIENCE
    while (now := daemons.look(pid)) and now.argv[:1] != ("sleep",):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return now is not None
