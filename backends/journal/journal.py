"""The journal: what the suite is about to do to a machine, written down before it does it.

One JSON object per line, appended and fsync'd.  `begin` is written before the action,
`confirm` adds facts that are known only afterwards (the name of a loop device), `end` says
that it was undone.  What has no `end` was left by a crash; `undo_pending` takes it down.
An entry belongs to the store that wrote it where it lay then (proof.py), to the kernel that
did it (host and boot id) and to a process.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.proof import PREFIX as PREFIX
from fsmatrix.backends.journal.proof import (
    Facts,
    Identity,
    Kind,
    NotProvenOurs,
    OwnershipScope,
    PlannedPaths,
    Stage,
    identity,
    load_kinds,
)
from fsmatrix.backends.system import cgroups
from fsmatrix.backends.system.cgroups import remove
from fsmatrix.results.evidence.stored import Json, JsonObject, text, whole
from fsmatrix.results.files import safefile
from fsmatrix.results.process import Process, boot_id, start_of

# Lines of a journal as they are read back: believed only in the form in which they are written.
#
# What another process, a crash or somebody else put into the file is told with file and line.


LIMIT = 64 << 20  # bytes of a journal
_STORE = re.compile(r"[0-9a-f]{32}")
# facts by which a thing is known
_NAMES = ("path", "image", "name", "container", "device", "point", "folder")
_EVENTS = ("begin", "confirm", "end")
# field of a `begin` -> its type
_FORM: Mapping[str, tuple[type, ...]] = {
    "id": (str,), "kind": (str,), "facts": (dict,), "host": (str,), "boot_id": (str,),
    "pid": (int,), "process_start": (int,), "time": (int, float), "store": (str,), "home": (str,),
}  # fmt: skip


class BadLine(ValueError):
    """A line that no journal of ours holds."""


@dataclass(frozen=True)
class Entry:
    """One action and what is known of it."""

    id: str
    kind: str
    facts: JsonObject
    host: str
    boot_id: str
    pid: int
    process_start: int  # clock ticks after boot: with the pid, one process for sure
    time: float  # Unix time
    store: str  # what proves the store that wrote it (proof.py)
    home: str  # and where its journals were
    journal: Path = field(compare=False, default=Path())

    @property
    def thing(self) -> str:
        """What it is about: its kind, and its name or place."""
        name = next((self.facts[key] for key in _NAMES if self.facts.get(key)), "")
        return f"{self.kind} {name}".strip()

    @property
    def is_own(self) -> bool:
        """Whether this very process wrote it: another shard may use the same journal."""
        return self.pid == os.getpid() and self._process.runs

    @property
    def in_use(self) -> bool:
        """Whether it belongs to another process of this kernel that still runs."""
        return self.pid != os.getpid() and self._process.runs

    @property
    def _process(self) -> Process:
        return Process(self.pid, self.process_start, self.boot_id)


@dataclass(frozen=True)
class Content:
    """What a journal holds: entries to undo, and lines that are refused."""

    entries: list[Entry]  # without an end, oldest first
    faults: list[str]  # a sentence for each line that cannot be believed


def read(path: Path) -> Content:
    """Entries of a journal that have no end.  A line that a crash tore is left out.

    A torn `begin` was never acted on, since the action waits for the line to be on the disk.
    BackendError if others can have written the file.
    """
    try:
        content = safefile.read_note(path, LIMIT)
    except FileNotFoundError:
        return Content([], [])
    except safefile.NotTrusted as error:
        raise BackendError(str(error)) from error
    entries: dict[str, Entry] = {}
    faults = []
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            if line and not _torn(line):
                _take(line, entries, path)
        except BadLine as error:
            faults.append(f"{path}:{number}: {error}")
    return Content([*entries.values()], faults)


def _torn(line: bytes) -> bool:
    """Whether a crash cut the line off."""
    begin = b'{"event": "'
    return begin.startswith(line) or (line.startswith(begin) and not line.endswith(b"}"))


def _take(line: bytes, entries: dict[str, Entry], path: Path) -> None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine("this is no line of a journal (no JSON)") from error
    if not isinstance(data, dict) or data.get("event") not in _EVENTS:
        raise BadLine("this is no line of a journal (no event)")
    event, name = data.pop("event"), data.get("id")
    if not isinstance(name, str):
        raise BadLine("its id is no text")
    if event == "begin":
        _check(data)
        if name in entries:
            raise BadLine(f"an entry of the id {name!r} was begun before")
        entries[name] = Entry(**data, journal=path)
    elif event == "end":
        entries.pop(name, None)
    elif not isinstance(data.get("facts"), dict):
        raise BadLine("its facts are no object")
    elif name in entries:
        facts = {**entries[name].facts, **data["facts"]}
        entries[name] = replace(entries[name], facts=facts)


def _check(data: JsonObject) -> None:
    """BadLine if a `begin` has not the fields that it is written with."""
    for name, kinds in _FORM.items():
        if name not in data:
            raise BadLine(f"it has no field {name!r}")
        if type(data[name]) not in kinds:
            raise BadLine(f"its field {name!r} is not of the right type")
    if strange := sorted(set(data) - set(_FORM)):
        raise BadLine(f"it has a field {strange[0]!r}, which no journal has")
    if whole(data, "pid") <= 0 or whole(data, "process_start") < 0:
        raise BadLine("its pid or process_start is no number of a process")
    if not _STORE.fullmatch(text(data, "store")):
        raise BadLine("its field 'store' is no proof of a store")


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
                safefile.FOLDER_MODE, exist_ok=True
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

    def undo_own(self, kind: str, target: str, undo: Callable[[JsonObject], object]) -> None:
        """Undo, by their facts, what this process made of a kind for a target; end the entries."""
        for entry in self.pending(kind, target=target):
            if entry.is_own:
                undo(entry.facts)
                self.end(entry)

    def pending(self, kind: str | None = None, **facts: Json) -> list[Entry]:
        """Entries without an end, oldest first; only those of `kind` and with these facts."""
        return [
            entry
            for entry in read(self.path).entries
            if entry.store == self.identity.store
            and kind in (None, entry.kind)
            and all(entry.facts.get(name) == value for name, value in facts.items())
        ]

    def _append(self, line: JsonObject) -> None:
        fresh = not self.path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, safefile.FILE_MODE)
        try:
            if reason := safefile.trust_flaw(self.path, os.fstat(descriptor), folder=False):
                raise BackendError(f"{self.path}: {reason}")
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            text = ("\n" if torn else "") + json.dumps(line, default=str) + "\n"
            with safefile.naming(self.path):
                data = text.encode()
                while data:  # a disk that fills takes a part first, without an error
                    data = data[os.write(descriptor, data) :]
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if fresh:
            _sync_folder(self.path.parent)


def undo_pending(folder: Path, named: PlannedPaths | None = None) -> list[str]:
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
    contents = [read(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    pending = [entry for content in contents for entry in content.entries]
    report = [f"{LEFT_ALONE}{fault}" for content in contents for fault in content.faults]
    if not pending:
        return [_plain(line) for line in report]
    ground = OwnershipScope(identity(folder), named or PlannedPaths())
    refuse_foreign(pending, ground.identity)
    kinds = load_kinds(entry.kind for entry in pending)
    pending.sort(key=lambda entry: (_stage(kinds.get(entry.kind)), -entry.time))
    for entry in pending:
        if entry.in_use:
            continue
        try:
            done = _undo(entry, kinds.get(entry.kind), ground)
        except NotProvenOurs as reason:
            report.append(f"{LEFT_ALONE}{reason}")
            continue
        Journal(entry.journal).end(entry)
        if done:
            report.append(done)
    return [_plain(line) for line in report]


def _stage(kind: Kind | NotProvenOurs | None) -> int:
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


def _undo(entry: Entry, kind: Kind | NotProvenOurs | None, ground: OwnershipScope) -> str:
    what = entry.thing
    same_boot = entry.boot_id == boot_id()
    if not same_boot and entry.host != socket.gethostname():
        raise NotProvenOurs(f"{what} belongs to host {entry.host}: resume there to remove it")
    if kind is None:
        raise NotProvenOurs(f"{what}: this version does not know how to undo it")
    if isinstance(kind, NotProvenOurs):
        raise NotProvenOurs(f"{what}: {kind}")
    try:
        if same_boot or not kind.ends_with_boot:
            kind.proof(entry.facts, ground)
        return kind.undo(entry.facts, same_boot)
    except KeyError as error:
        raise NotProvenOurs(f"{what}: the journal has no {error} of it") from error
    except (BackendError, OSError, ValueError, TypeError, AttributeError) as error:
        raise NotProvenOurs(f"{what}: {error}") from error


def _plain(text: str) -> str:
    """Without what a terminal would obey: names in journals may hold anything."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Trees of the suite, journalled: made before use, removed after it.


DATA = "data"  # the folder in a tree that a run works in


def new_folder(
    parent: Path,
    name: str,
    journal: Journal,
    kind: str,
    *,
    mode: int = 0o777,
    at: int | None = None,
    failed: str = "{} cannot be made",
    **facts: str,
) -> Path:
    """Make the folder `name` (or `name-2`, ... where that exists), journalled as a `kind`.

    A present one is never taken: another shard may work in it, or something is still busy there.
    `at`: a descriptor of `parent`, whose path others may lead elsewhere.  BackendError if it cannot
    be made, with the text `failed` ({}: its path) before the reason.
    """
    for number in itertools.count(1):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        if os.path.lexists(folder):
            continue
        entry = journal.begin(kind, path=str(folder), **facts)
        try:
            os.mkdir(folder if at is None else folder.name, mode, dir_fd=at)
        except FileExistsError:
            journal.end(entry)
            continue
        except OSError as error:
            journal.end(entry)
            raise BackendError(f"{failed.format(folder)}: {error.strerror}") from error
        return folder
    raise AssertionError("itertools.count does not end")


def make_tree(parent: Path, tag: str, journal: Journal) -> Path:
    """Make `fsmatrix-<tag>` (or `...-2` where that exists) in `parent`, marked, with `data`.

    Not even a directory with our tag is taken over.  It is closed to others, and everything is
    done by descriptors.  BackendError if it cannot be made.
    """
    if not tag or "/" in tag or "\0" in tag:
        raise BackendError(f"a tag names a directory and must not be {tag!r}")
    with ExitStack() as opened:
        folder = parent.resolve()
        try:
            place = tree.walk(folder)
        except OSError as error:
            raise BackendError(f"{folder} cannot be used: {error.strerror}") from error
        opened.callback(os.close, place)
        name = f"{PREFIX}{tag}"
        folder = new_folder(folder, name, journal, "tree", mode=tree.MODE, at=place, tag=tag)
        try:
            made = tree.step(folder.name, place)
            opened.callback(os.close, made)
            tree.write_marker(tree.by_descriptor(made), tag, journal.identity.store)
            os.mkdir(DATA, dir_fd=made)
        except OSError as error:
            raise BackendError(f"{folder} cannot be used: {error.strerror}") from error
    return folder


def release_tree(folder: Path, tag: str, journal: Journal) -> None:
    """Remove a tree with everything in it; nothing if it is gone.

    BackendError if it cannot be: it is foreign (NotOurs), or the directory that it was made in is
    away.  The journal then keeps it, and what comes back is removed by whoever reads that next.
    A held tree (`tree.held`) that somebody has moved is emptied where it is, and that is said.
    """
    moved = tree.emptied_elsewhere(folder, tag)
    if not moved and not tree.is_gone(folder):
        tree.remove_tree(folder, tag)
    journal.end_all("tree", path=str(folder))
    tree.let_go(str(folder), tag)
    if moved:
        raise BackendError(
            f"{folder} was moved by somebody who may rename above it; its data are removed, an "
            "empty folder stays where it was moved to"
        )


# Limits of memory: a cgroup of our own, journalled before it is made, and removed again.


KIND = "memory-limit"
PATIENCE = 10.0  # seconds for killed processes to leave a cgroup
_NAME = re.compile(rf"{PREFIX}memory-(?P<uuid>[0-9a-f-]{{36}})")


@contextmanager
def limited(size: int, journal: Journal) -> Iterator[Path]:
    """A cgroup of `size` bytes of memory, page cache included; empty when this ends.

    BackendError if it cannot be made, or stays because a process in it does not end.
    """
    folder = cgroups.memory_parent() / f"{PREFIX}memory-{journal.identity.new_uuid()}"
    entry = journal.begin(KIND, path=str(folder))
    try:
        yield cgroups.make_memory_limit(folder, size)
    finally:
        if reason := remove(folder, PATIENCE):
            raise BackendError(reason)
        journal.end(entry)


def prove(facts: Facts, ground: OwnershipScope) -> None:
    """A cgroup where the kernel has them, with a name that this store has drawn."""
    path = Path(str(facts["path"]))
    root = cgroups.memory_hierarchy().root
    if not path.is_relative_to(root) or path.resolve() != path:
        raise NotProvenOurs(f"{path} is no cgroup below {root}: not removed")
    name = _NAME.fullmatch(path.name)
    if name is None or not ground.identity.made_uuid(name["uuid"]):
        raise NotProvenOurs(f"{path} is no cgroup of this results directory: not removed")


def undo(facts: Facts, same_boot: bool) -> str:
    """Remove it; what runs in it is not ended here: it ends with who started it."""
    path = Path(str(facts["path"]))
    if not same_boot or not path.exists():
        return ""
    if reason := remove(path, PATIENCE):
        raise NotProvenOurs(reason)
    return f"removed cgroup {path}"


MEMORY_LIMIT = Kind(Stage.MOUNT, prove, undo, ends_with_boot=True)
