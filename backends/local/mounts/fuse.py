"""Clients that serve a mount: started in the foreground, recognised, ended; and the mount itself.

A client of ours is known by its whole argument list, which holds its mount point: the list is in
the journal before the process is started, and a process is ours if its /proc/PID/cmdline is
exactly that.  Nothing is ever ended by its name.

A mount whose client or servers hang keeps who touches it in the kernel, deaf to signals.  So it
is another process that looks whether a mount answers, and that is not waited for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.proof import SESSION
from fsmatrix.backends.system import libc, mounts, tools
from fsmatrix.backends.system.tools import Overdue, within

DEVICE = Path("/dev/fuse")
UNMOUNTER = "fusermount3"  # for who is not root
FAREWELL = 15.0  # seconds in which a client flushes its data and ends, or is killed
LOOK = 8.0  # seconds in which a living mount answers
DIED = "its client has died"
_DEAD = {os.strerror(errno.ENOTCONN), os.strerror(errno.ECONNABORTED)}
_PAUSE = 0.01
_SAID = 300  # characters of what a client said
_MNT_FORCE = 1
_children: dict[int, subprocess.Popen[bytes]] = {}  # to be reaped by this process


def device_refusal() -> str:
    """Why nothing can be mounted by FUSE (empty: it can)."""
    return "" if os.access(DEVICE, os.R_OK | os.W_OK) else f"{DEVICE} cannot be used"


def processes(argv: Sequence[str]) -> list[int]:
    """Processes with exactly these arguments; none that has ended already."""
    wanted, pids = os.fsencode("\0".join(argv)) + b"\0", []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cmdline").read_bytes() == wanted:
                pids.append(int(entry.name))
    return pids


def start(
    argv: Sequence[str],
    point: Path,
    serves: Callable[[int], bool],
    deadline: float,
    complaint: Callable[[str], str] = lambda _text: "",
) -> int:
    """Start a client and wait until it `serves` (asked with its pid); returns the pid.

    ToolError with its own words (`complaint` picks them from what it said) if it fails, or does
    not serve within `deadline` seconds; it is ended then.  It outlives the session that mounts.
    """
    found = tools.find(argv[0])
    if found is None:
        raise ToolError(tools.lacking(argv[0]))
    environment = {name: text for name, text in os.environ.items() if name != SESSION}
    environment["PATH"] = tools.path()
    program = Path(argv[0]).name
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            argv,
            executable=found,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
            cwd="/",
            env=environment,
        )
        _children[process.pid] = process
        limit = time.monotonic() + deadline
        try:
            while time.monotonic() < limit:
                if process.poll() is not None:
                    raise ToolError(f"{program} failed: {_words(words, complaint)}")
                if serves(process.pid):
                    return process.pid
                time.sleep(_PAUSE)
        except BaseException:
            end(argv, patience=0.0)
            raise
        end(argv, patience=0.0)
        output = _words(words, complaint)
        raise ToolError(f"{program} did not mount {point} within {deadline:g} s: {output}")


def _words(words: IO[bytes], complaint: Callable[[str], str]) -> str:
    words.seek(0)
    text = words.read(1 << 16).decode(errors="replace")
    return complaint(text) or " ".join(text.split())[-_SAID:] or "it said nothing"


def end(argv: Sequence[str], patience: float = FAREWELL) -> list[int]:
    """Wait until a client of ours is gone; after `patience` seconds it is killed.

    Returns the pids that had to be killed.  BackendError if one survives even that.
    """
    if _wait(lambda: not alive(argv), patience):
        return []
    killed = alive(argv)
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if not _wait(lambda: not alive(argv), FAREWELL):
        left = ", ".join(map(str, alive(argv)))
        raise BackendError(f"{Path(argv[0]).name}, pid {left}, cannot be ended")
    return killed


def alive(argv: Sequence[str]) -> list[int]:
    """As `processes`; what this process has started and that has ended is reaped."""
    for pid, process in list(_children.items()):
        if process.poll() is not None:
            del _children[pid]
    return processes(argv)


def _wait(reached: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)
    return True


def trouble(point: Path, servers: bool = False) -> str:
    """Why what is mounted at `point` does not answer (empty: it does).

    `servers`: ask for the free space, which the servers tell and no client remembers.
    """
    asked = ["--file-system", "--format=%a"] if servers else ["--format=%s %u %i %Y"]
    argv = ["stat", *asked, str(point)]  # it asks the client only for what it is to print
    try:
        ran = tools.run(argv, deadline=LOOK, check=False)
    except ToolError:
        return f"{point} does not answer within {LOOK:g} s"
    if ran.returncode == 0:
        return ""
    reason = ran.complaint.rpartition(": ")[2]
    return f"{point}: {f'{DIED}: ' if reason in _DEAD else ''}{reason}"


def detach(point: Path, argv: Sequence[str] = (), force: bool = True) -> bool:
    """Unmount what is mounted at `point`, and wait until its client `argv` has ended.

    False if the client did not take its leave of the servers: it was dead already, or, with
    `force`, hung or was still in use and was killed (or the kernel was told to give up: stuck
    processes end then, and data that were not written are lost).
    OSError with EBUSY if somebody uses it (with `force`: even after that).
    """
    in_order = True
    if mounts.mounted_at(point) is not None:
        in_order = not argv or bool(alive(argv))
        try:
            gone = _unmounted(point, FAREWELL)
        except OSError as error:
            if error.errno != errno.EBUSY or not force:
                raise
            gone = False
        if not gone:
            in_order = False
            _force(point, argv)
    if argv and end(argv):
        in_order = False
    return in_order


def _force(point: Path, argv: Sequence[str]) -> None:
    if argv:
        end(argv, patience=0.0)
    else:
        libc.libc().umount2(os.fsencode(str(point)), _MNT_FORCE)
    if mounts.mounted_at(point) is not None and not _unmounted(point, FAREWELL):
        raise BackendError(f"{point} cannot be unmounted: it hangs")


def _unmounted(point: Path, seconds: float) -> bool:
    """Unmount; False if that hangs.  A busy one is tried again, as everywhere."""
    try:
        within(seconds, lambda: _unmount(point), f"umount {point}")
    except Overdue:
        return False
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):  # it is gone
            raise
    return True


def _unmount(point: Path) -> None:
    """As root by the system call, else by the program that may do it for the mount's owner."""
    if os.geteuid() == 0:
        return mounts.unmount(point)
    limit = time.monotonic() + mounts.PATIENCE
    while True:
        ran = tools.run([UNMOUNTER, "-u", str(point)], deadline=FAREWELL, check=False)
        if ran.returncode == 0 or mounts.mounted_at(point) is None:
            return None
        if time.monotonic() >= limit:
            raise OSError(errno.EBUSY, ran.complaint)
        time.sleep(0.05)
