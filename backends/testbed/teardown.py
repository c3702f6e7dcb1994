"""Take a Ceph down: everything that its bed's journal names, and nothing else."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import proof, rollback
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.testbed import cephconf, cgroups, network, process
from fsmatrix.backends.testbed.base import LEFT, end_daemons
from fsmatrix.backends.testbed.home import Home

_JUST_STARTED = 0.1  # seconds in which a program that a killed process started shows its name
_UNDONE = ("loop", "cgroup", "link", "namespace", "sockets")  # kinds of entries, in this order


def end(home: Home, entries: list[Entry]) -> list[str]:
    """One sentence for each thing that was ended, removed or left alone.

    What is left alone stays in the journal.
    """
    sentences = _unlimit(entries) + _end_processes(home, entries)
    for kind in _UNDONE:
        for entry in reversed([entry for entry in entries if entry.kind == kind]):
            line = _undo(home, entry)
            if line:
                sentences.append(line)
            if not line.startswith(LEFT):
                home.journal.end(entry)
    return sentences


def _unlimit(entries: list[Entry]) -> list[str]:
    """Drives at full speed: a process with I/O in flight cannot end before it is done."""
    sentences = []
    for entry in entries:
        folder = Path(str(entry.facts.get("path", "")))
        if entry.kind == "cgroup" and _OWN.fullmatch(folder.name) and folder.exists():
            try:
                cgroups.limit(folder, str(entry.facts["device"]), cgroups.Limits())
            except BackendError as error:
                sentences.append(f"note: {error}")
    return sentences


def _end_processes(home: Home, entries: list[Entry]) -> list[str]:
    processes = [entry for entry in entries if entry.kind == "process"]
    if any("pid" not in entry.facts for entry in processes):
        time.sleep(_JUST_STARTED)
    sentences, stuck = end_daemons(processes)
    for entry in processes:
        if entry.facts["role"] not in stuck:
            home.journal.end(entry)
    return sentences


def _undo(home: Home, entry: Entry) -> str:
    try:
        _prove(home, entry)
        return _KINDS[entry.kind](entry)
    except (BackendError, proof.LeftAlone, OSError, KeyError, ValueError, TypeError) as error:
        return f"{LEFT}{error}"


def _prove(home: Home, entry: Entry) -> None:
    """LeftAlone if it is not the bed's: its image, or a name that only beds give."""
    if entry.kind == "loop":
        ground = proof.Ground(home.journal.identity, folder=home.folder)
        proof.of_loop(entry.facts, ground)
        return
    name = Path(str(entry.facts.get("path") or entry.facts.get("name"))).name
    if not _OWN.fullmatch(name):
        raise proof.LeftAlone(f"{name} is no {entry.kind} of a test bed: not removed")


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
        raise proof.LeftAlone(f"{folder} is not as the test bed made it")
    for path in folder.iterdir():
        if path.is_socket():
            path.unlink()
    folder.rmdir()
    return f"removed {folder}"


# names that a bed gives: six hex digits of its own in each
_OWN = re.compile(
    r"fsmatrix-[0-9a-f]{6}-(osd|node)\d+|fsm[0-9a-f]{6}(b|n\d+)|fsmatrix-bed-[0-9a-f]{6}"
)
_KINDS: dict[str, Callable[[Entry], str]] = {
    "loop": lambda entry: rollback.undo_loop(entry.facts, True),
    "cgroup": _undo_cgroup,
    "link": lambda entry: network.remove_link(str(entry.facts["name"])),
    "sockets": _undo_sockets,
    "namespace": lambda entry: network.remove_namespace(str(entry.facts["name"])),
}
