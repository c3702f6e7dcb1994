"""Take a Ceph down: everything that its bed's journal names, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import proof, rollback
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.local.devices import cgroups
from fsmatrix.backends.testbed import process, undo
from fsmatrix.backends.testbed.home import Home


def end(home: Home, entries: list[Entry]) -> list[str]:
    """One sentence for each thing that was ended, removed or left alone.

    What is left alone stays in the journal.
    """

    def undo_loop(entry: Entry) -> str:
        proof.of_loop(entry.facts, proof.Ground(home.journal.identity, folder=home.folder))
        return rollback.undo_loop(entry.facts, True)

    kinds = {"loop": undo_loop, "cgroup": _undo_cgroup, **undo.NETWORK}
    sentences = _unlimit(entries) + undo.processes(home, entries)
    return sentences + undo.things(home, entries, kinds)


def _unlimit(entries: list[Entry]) -> list[str]:
    """Drives at full speed: a process with I/O in flight cannot end before it is done."""
    sentences = []
    for entry in entries:
        folder = Path(str(entry.facts.get("path", "")))
        if entry.kind == "cgroup" and undo.is_own(folder.name) and folder.exists():
            try:
                cgroups.limit(folder, str(entry.facts["device"]), cgroups.Limits())
            except BackendError as error:
                sentences.append(f"note: {error}")
    return sentences


def _undo_cgroup(entry: Entry) -> str:
    undo.own_name(entry)
    folder = Path(str(entry.facts["path"]))
    if not folder.exists():
        return ""
    deadline = time.monotonic() + process.GONE_WITHIN
    while reason := cgroups.remove(folder):  # ended processes leave it a moment later
        if time.monotonic() >= deadline or (folder / "cgroup.procs").read_text():
            raise BackendError(reason)
        time.sleep(0.02)
    return f"removed cgroup {folder.name}"
