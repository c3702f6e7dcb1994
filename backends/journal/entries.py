"""Lines of a journal as they are read back: believed only in the form in which they are written.

What another process, a crash or somebody else put into the file is told with file and line.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.values import JsonObject, text, whole
from fsmatrix.results.files import trust
from fsmatrix.results.process import Process

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
    store: str  # what proves the store that wrote it (identity.py)
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
        content = trust.read(path, LIMIT)
    except FileNotFoundError:
        return Content([], [])
    except trust.NotTrusted as error:
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
