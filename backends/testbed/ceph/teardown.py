"""Take a Ceph down: everything that its bed's journal names, and nothing else."""

from __future__ import annotations

from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import proof, rollback
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.system.cgroups import hierarchy, throttle
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
                throttle.limit(folder, str(entry.facts["device"]), throttle.Limits())
            except BackendError as error:
                sentences.append(f"note: {error}")
    return sentences


def _undo_cgroup(entry: Entry) -> str:
    undo.own_name(entry)
    folder = Path(str(entry.facts["path"]))
    if not folder.exists():
        return ""
    # ended processes leave it a moment later
    if reason := hierarchy.remove(folder, process.GONE_WITHIN):
        raise BackendError(reason)
    return f"removed cgroup {folder.name}"
