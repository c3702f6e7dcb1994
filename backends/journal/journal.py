"""The journal: what the suite is about to do to a machine, written down before it does it.

One JSON object per line, appended and fsync'd.  `begin` is written before the action,
`confirm` adds facts that are known only afterwards (the name of a loop device), `end` says
that it was undone.  What has no `end` was left by a crash; `undo_pending` takes it down.
An entry belongs to the store that wrote it where it lay then (identity.py), to the kernel that
did it (host and boot id) and to a process.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from functools import cached_property
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import entries
from fsmatrix.backends.journal.entries import Entry as Entry
from fsmatrix.backends.journal.identity import Identity, identity
from fsmatrix.backends.journal.kinds import Kind, load_kinds
from fsmatrix.backends.journal.proof import Ground, LeftAlone, Named
from fsmatrix.results.evidence.values import Json, JsonObject
from fsmatrix.results.files import asides, trust
from fsmatrix.results.process import boot_id, start_of

SUFFIX = ".jsonl"
LEFT_ALONE = "left alone: "  # before what could not be taken down, and why


class Journal:
    """An append-only file; safe for several processes of one kernel."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def identity(self) -> Identity:
        """The store that it belongs to; BackendError if others could have written that."""
        if not self.path.parent.exists():
            self.path.parent.mkdir(
                trust.FOLDER_MODE, exist_ok=True
            )  # a store that is gone stays so
        return identity(self.path.parent)

    def begin(self, kind: str, **facts: Json) -> Entry:
        """Write the intent down; on return it is on the disk."""
        entry = Entry(
            id=secrets.token_hex(8),
            kind=kind,
            facts=facts,
            host=socket.gethostname(),
            boot_id=boot_id(),
            pid=os.getpid(),
            process_start=start_of(os.getpid()),
            time=time.time(),
            store=self.identity.store,
            home=str(self.identity.folder),
            journal=self.path,
        )
        values = {name: value for name, value in vars(entry).items() if name != "journal"}
        self._append({"event": "begin", **values})
        return entry

    def confirm(self, entry: Entry, **facts: Json) -> Entry:
        """Add facts that the action gave; returns the entry with them."""
        self._append({"event": "confirm", "id": entry.id, "facts": facts})
        return Entry(**{**vars(entry), "facts": {**entry.facts, **facts}})

    def end(self, entry: Entry) -> None:
        """It was undone, or never done."""
        self._append({"event": "end", "id": entry.id})

    def end_all(self, kind: str, **facts: Json) -> None:
        """End what is `pending` of this kind and with these facts."""
        for entry in self.pending(kind, **facts):
            self.end(entry)

    def pending(self, kind: str | None = None, **facts: Json) -> list[Entry]:
        """Entries without an end, oldest first; only those of `kind` and with these facts."""
        return [
            entry
            for entry in entries.read(self.path).entries
            if entry.store == self.identity.store
            and kind in (None, entry.kind)
            and all(entry.facts.get(name) == value for name, value in facts.items())
        ]

    def _append(self, line: JsonObject) -> None:
        fresh = not self.path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, trust.FILE_MODE)
        try:
            if reason := trust.flaw(self.path, os.fstat(descriptor), folder=False):
                raise BackendError(f"{self.path}: {reason}")
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            text = ("\n" if torn else "") + json.dumps(line, default=str) + "\n"
            with asides.naming(self.path):
                data = text.encode()
                while data:  # a disk that fills takes a part first, without an error
                    data = data[os.write(descriptor, data) :]
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if fresh:
            _sync_folder(self.path.parent)


def undo_pending(folder: Path, named: Named | None = None) -> list[str]:
    """Take down what crashes left, according to all journals (*.jsonl) in `folder`.

    In reverse order; of this boot everything, of an earlier boot of this host only files,
    directories and signatures (mounts and loop devices ended with it), of other hosts and
    of processes that still live nothing.  Each thing must prove first that it is this store's
    (proof.py); `named` is what its stored plan names.  Returns one sentence for each thing that
    was taken down ("unmounted ...") or left alone ("left alone: ...", with the reason); what is
    left alone stays pending.  What belongs to a process that still runs (another shard) is no
    leftover and not mentioned.

    BackendError, with nothing done, if others can have written the journals or the store was
    moved or copied.
    """
    contents = [entries.read(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    pending = [entry for content in contents for entry in content.entries]
    report = [f"{LEFT_ALONE}{fault}" for content in contents for fault in content.faults]
    if not pending:
        return [_plain(line) for line in report]
    ground = Ground(identity(folder), named or Named())
    refuse_foreign(pending, ground.identity)
    kinds = load_kinds(entry.kind for entry in pending)
    pending.sort(key=lambda entry: (_stage(kinds.get(entry.kind)), -entry.time))
    for entry in pending:
        if entry.in_use:
            continue
        try:
            done = _undo(entry, kinds.get(entry.kind), ground)
        except LeftAlone as reason:
            report.append(f"{LEFT_ALONE}{reason}")
            continue
        Journal(entry.journal).end(entry)
        if done:
            report.append(done)
    return [_plain(line) for line in report]


def _stage(kind: Kind | LeftAlone | None) -> int:
    return kind.stage if isinstance(kind, Kind) else -1


def refuse_foreign(pending: list[Entry], own: Identity) -> None:
    """BackendError if entries of this host were written where the store does not lie now."""
    here = (boot_id(), socket.gethostname())
    for entry in pending:
        if entry.store != own.store and (entry.boot_id == here[0] or entry.host == here[1]):
            text = (
                f"{entry.journal}: written in {entry.home}, and this is {own.folder}: the results "
                "directory was moved or copied. What it made may be in use by the original, so "
                "nothing was touched. If it was moved: move it back, resume it there, then move "
                f"it. If it is a copy: remove {own.folder} and {own.state} of this copy (look "
                "that nothing is mounted there), then resume it."
            )
            raise BackendError(_plain(text))


def _undo(entry: Entry, kind: Kind | LeftAlone | None, ground: Ground) -> str:
    what = entry.thing
    same_boot = entry.boot_id == boot_id()
    if not same_boot and entry.host != socket.gethostname():
        raise LeftAlone(f"{what} belongs to host {entry.host}: resume there to remove it")
    if kind is None:
        raise LeftAlone(f"{what}: this version does not know how to undo it")
    if isinstance(kind, LeftAlone):
        raise LeftAlone(f"{what}: {kind}")
    try:
        if same_boot or not kind.ends_with_boot:
            kind.proof(entry.facts, ground)
        return kind.undo(entry.facts, same_boot)
    except KeyError as error:
        raise LeftAlone(f"{what}: the journal has no {error} of it") from error
    except (BackendError, OSError, ValueError, TypeError, AttributeError) as error:
        raise LeftAlone(f"{what}: {error}") from error


def _plain(text: str) -> str:
    """Without what a terminal would obey: names in journals may hold anything."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
