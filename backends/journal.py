"""The journal: what the suite is about to do to a machine, written down before it does it.

One JSON object per line, appended and fsync'd.  `begin` is written before the action,
`confirm` adds facts that are known only afterwards (the name of a loop device), `end` says
that it was undone.  What has no `end` was left by a crash; `undo_pending` takes it down.
An entry belongs to the kernel that did it (host and boot id) and to a process.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.undo import ORDER, UNDO, LeftAlone

SUFFIX = ".jsonl"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Entry:
    """One action and what is known of it."""

    id: str
    kind: str
    facts: Mapping[str, Any]
    host: str
    boot_id: str
    pid: int
    process_start: int  # clock ticks after boot: with the pid, one process for sure
    time: float  # Unix time
    journal: Path = field(compare=False, default=Path())

    @property
    def mine(self) -> bool:
        """Whether this very process wrote it: another shard may use the same journal."""
        return self.pid == os.getpid() and self.process_start == _process_start(self.pid)

    @property
    def in_use(self) -> bool:
        """Whether it belongs to another process of this kernel that still runs."""
        same_kernel = self.boot_id == boot_id() and self.pid != os.getpid()
        return same_kernel and self.process_start == _process_start(self.pid)


class Journal:
    """An append-only file; safe for several processes of one kernel."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, kind: str, **facts: Any) -> Entry:
        """Write the intent down; on return it is on the disk."""
        entry = Entry(
            id=secrets.token_hex(8),
            kind=kind,
            facts=facts,
            host=socket.gethostname(),
            boot_id=boot_id(),
            pid=os.getpid(),
            process_start=_process_start(os.getpid()),
            time=time.time(),
            journal=self.path,
        )
        values = {name: value for name, value in vars(entry).items() if name != "journal"}
        self._append({"event": "begin", **values})
        return entry

    def confirm(self, entry: Entry, **facts: Any) -> Entry:
        """Add facts that the action gave; returns the entry with them."""
        self._append({"event": "confirm", "id": entry.id, "facts": facts})
        return Entry(**{**vars(entry), "facts": {**entry.facts, **facts}})

    def end(self, entry: Entry) -> None:
        """It was undone, or never done."""
        self._append({"event": "end", "id": entry.id})

    def end_all(self, kind: str, **facts: Any) -> None:
        """End what is `pending` of this kind and with these facts."""
        for entry in self.pending(kind, **facts):
            self.end(entry)

    def pending(self, kind: str | None = None, **facts: Any) -> list[Entry]:
        """Entries without an end, oldest first; only those of `kind` and with these facts."""
        return [
            entry
            for entry in read_entries(self.path)
            if kind in (None, entry.kind)
            and all(entry.facts.get(name) == value for name, value in facts.items())
        ]

    def _append(self, line: Mapping[str, Any]) -> None:
        fresh = not self.path.exists()
        if fresh:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            text = ("\n" if torn else "") + json.dumps(line, default=str) + "\n"
            os.write(descriptor, text.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if fresh:
            _sync_folder(self.path.parent)


def read_entries(path: Path) -> list[Entry]:
    """Entries of a journal that have no end.  A line that a crash tore is left out.

    A torn `begin` was never acted on, since the action waits for the line to be on the disk.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    entries: dict[str, dict[str, Any]] = {}
    for line in lines:
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if not isinstance(data, dict) or "id" not in data:
            continue
        event = data.pop("event", "")
        if event == "begin":
            entries[data["id"]] = data
        elif event == "confirm" and data["id"] in entries:
            entries[data["id"]]["facts"].update(data["facts"])
        elif event == "end":
            entries.pop(data["id"], None)
    return [Entry(**data, journal=path) for data in entries.values()]


def undo_pending(folder: Path) -> list[str]:
    """Take down what crashes left, according to all journals (*.jsonl) in `folder`.

    In reverse order; of this boot everything, of an earlier boot of this host only files,
    directories and signatures (mounts and loop devices ended with it), of other hosts and
    of processes that still live nothing.  Returns one sentence for each thing that was
    taken down ("unmounted ...") or left alone ("left alone: ...", with the reason); what is
    left alone stays pending.  What belongs to a process that still runs (another shard) is no
    leftover and not mentioned.
    """
    entries = [entry for path in sorted(folder.glob(f"*{SUFFIX}")) for entry in read_entries(path)]
    known = {kind: number for number, kind in enumerate(ORDER)}
    entries.sort(key=lambda entry: (known.get(entry.kind, -1), -entry.time))
    said = []
    for entry in entries:
        if entry.in_use:
            continue
        try:
            done = _undo(entry)
        except LeftAlone as reason:
            said.append(f"left alone: {reason}")
            continue
        Journal(entry.journal).end(entry)
        if done:
            said.append(done)
    return said


def _undo(entry: Entry) -> str:
    what = f"{entry.kind} {entry.facts.get('path') or entry.facts.get('image') or ''}".strip()
    same_boot = entry.boot_id == boot_id()
    if not same_boot and entry.host != socket.gethostname():
        raise LeftAlone(f"{what} belongs to host {entry.host}")
    if entry.kind not in UNDO:
        raise LeftAlone(f"{what}: this version does not know how to undo it")
    try:
        return UNDO[entry.kind](entry.facts, same_boot)
    except (BackendError, OSError, KeyError) as error:
        raise LeftAlone(f"{what}: {error}") from error


def boot_id() -> str:
    """The kernel's id of this boot: two hosts with the same one are one kernel."""
    return _BOOT_ID.read_text().strip()


def _process_start(pid: int) -> int:
    """Start of a process in clock ticks after boot (proc(5) stat, field 22); 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
