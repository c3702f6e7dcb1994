"""Take a test bed down: everything that its journal names, and nothing else."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from fsmatrix.backends import tree, undo
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import Entry, boot_id
from fsmatrix.backends.system import mounts
from fsmatrix.backends.testbed import cephconf, cgroups, network, process
from fsmatrix.backends.testbed.home import TAG, Home

_JUST_STARTED = 0.1  # seconds in which a program that a killed process started shows its name
LEFT = "left alone: "


def take_down(home: Home) -> list[str]:
    """One sentence for each thing that was ended, removed or left alone.

    What is left alone stays in the journal, and so does the bed's directory: `down` can be
    said again.  BackendError if the bed belongs to another host, or something is mounted in it.
    """
    entries = home.journal.pending()
    _refuse(home, entries)
    here = [entry for entry in entries if entry.boot_id == boot_id()]
    said = _unlimit(here) + _end_processes(home, here)
    stuck = any(line.startswith(LEFT) for line in said)
    kinds = ("loop", "cgroup", "link", "namespace", "sockets")
    for kind in kinds:
        for entry in reversed([entry for entry in here if entry.kind == kind]):
            line = _undo(entry)
            if line:
                said.append(line)
            if line.startswith(LEFT):
                stuck = True
            else:
                home.journal.end(entry)
    if stuck:
        return said
    return [*said, _remove(home)]


def _refuse(home: Home, entries: list[Entry]) -> None:
    for entry in entries:
        if entry.boot_id != boot_id() and entry.host != socket.gethostname():
            raise BackendError(f"{home.folder}: this test bed runs on host {entry.host}")
    inside = mounts.mounted_below(home.folder)
    if inside:
        raise BackendError(
            f"{home.folder}: {inside[0].point} is mounted in the test bed's directory; "
            "unmount it first"
        )


def _unlimit(entries: list[Entry]) -> list[str]:
    """Drives at full speed: a process with I/O in flight cannot end before it is done."""
    said = []
    for entry in entries:
        folder = Path(str(entry.facts.get("path", "")))
        if entry.kind == "cgroup" and folder.exists():
            try:
                cgroups.limit(folder, str(entry.facts["device"]), cgroups.Limits())
            except BackendError as error:
                said.append(f"note: {error}")
    return said


def _end_processes(home: Home, entries: list[Entry]) -> list[str]:
    found = [entry for entry in entries if entry.kind == "process"]
    if any("pid" not in entry.facts for entry in found):
        time.sleep(_JUST_STARTED)
    killed, stuck = process.end([entry.facts for entry in found])
    for entry in found:
        if entry.facts["role"] not in stuck:
            home.journal.end(entry)
    said = [f"ended {', '.join(sorted(killed))}"] if killed else []
    return said + [f"{LEFT}{role} cannot be killed; it hangs in the kernel" for role in stuck]


def _undo(entry: Entry) -> str:
    try:
        return _KINDS[entry.kind](entry)
    except (BackendError, undo.LeftAlone, OSError) as error:
        return f"{LEFT}{error}"


def _undo_cgroup(entry: Entry) -> str:
    folder = Path(str(entry.facts["path"]))
    if not folder.exists():
        return ""
    deadline = time.monotonic() + process.GONE_WITHIN
    while reason := cgroups.remove(folder):  # ended processes leave it a moment later
        if time.monotonic() >= deadline or (folder / "cgroup.procs").read_text():
            raise BackendError(reason)
        time.sleep(0.02)
    return f"removed cgroup {folder.name}"


def _undo_sockets(entry: Entry) -> str:
    """Sockets only, in a folder where and as we make them."""
    folder = Path(str(entry.facts["path"]))
    if not os.path.lexists(folder):
        return ""
    ours = folder.parent == cephconf.SHORT and folder.name.startswith(cephconf.SOCKETS)
    if not ours or folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise undo.LeftAlone(f"{folder} is not as the test bed made it")
    for path in folder.iterdir():
        if path.is_socket():
            path.unlink()
    folder.rmdir()
    return f"removed {folder}"


_KINDS: dict[str, Callable[[Entry], str]] = {
    "loop": lambda entry: undo.undo_loop(entry.facts, True),
    "cgroup": _undo_cgroup,
    "link": lambda entry: network.remove_link(str(entry.facts["name"])),
    "sockets": _undo_sockets,
    "namespace": lambda entry: network.remove_namespace(str(entry.facts["name"])),
}


def _remove(home: Home) -> str:
    foreign = home.foreign()
    if foreign:
        return (
            f"{LEFT}{home.folder} holds {', '.join(foreign[:3])}, which the test bed did not "
            "make: move it away and take the bed down again"
        )
    tree.remove_tree(home.folder, TAG)
    return f"removed {home.folder}" if not os.path.lexists(home.folder) else ""
