"""Undo what a bed's journal names, and nothing else: parts of every bed's `end`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import proof
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.testbed import network, sockets
from fsmatrix.backends.testbed.base import LEFT, end_daemons
from fsmatrix.backends.testbed.home import Home

Undo = Callable[[Entry], str]  # what was done ("" if it was gone); raises what says why not

_JUST_STARTED = 0.1  # seconds in which a program that a killed process started shows its name
# names that a bed gives: six hex digits of its own in each
_OWN = re.compile(
    r"fsmatrix-[0-9a-f]{6}-(osd|node)\d+|fsm[0-9a-f]{6}(b|n\d+)|fsmatrix-bed-[0-9a-f]{6}"
)


def processes(home: Home, entries: Iterable[Entry]) -> list[str]:
    """End the processes of these entries, the youngest first: some end with those before them.

    A sentence for what was ended or left alone.
    """
    started = [entry for entry in entries if entry.kind == "process"][::-1]
    if any("pid" not in entry.facts for entry in started):
        time.sleep(_JUST_STARTED)
    sentences, stuck = end_daemons(started)
    for entry in started:
        if entry.facts["role"] not in stuck:
            home.journal.end(entry)
    return sentences


def things(home: Home, entries: Iterable[Entry], kinds: Mapping[str, Undo]) -> list[str]:
    """Undo the entries of these kinds, kind by kind, the youngest first.

    One sentence for each thing that was removed or left alone; the latter stays in the journal.
    """
    here, sentences = list(entries), []
    for kind, undo in kinds.items():
        for entry in reversed([entry for entry in here if entry.kind == kind]):
            line = _undone(undo, entry)
            if line:
                sentences.append(line)
            if not line.startswith(LEFT):
                home.journal.end(entry)
    return sentences


def _undone(undo: Undo, entry: Entry) -> str:
    try:
        return undo(entry)
    except (BackendError, proof.LeftAlone, OSError, KeyError, ValueError, TypeError) as error:
        return f"{LEFT}{error}"


def is_own(name: str) -> bool:
    """Whether it is a name that beds give."""
    return _OWN.fullmatch(name) is not None


def own_name(entry: Entry) -> str:
    """The name of what an entry names; LeftAlone if it is none that beds give."""
    name = Path(str(entry.facts.get("path") or entry.facts.get("name"))).name
    if not is_own(name):
        raise proof.LeftAlone(f"{name} is no {entry.kind} of a test bed: not removed")
    return name


def _sockets(entry: Entry) -> str:
    own_name(entry)
    return sockets.remove(Path(str(entry.facts["path"])))


NETWORK: Mapping[str, Undo] = {
    "link": lambda entry: network.remove_link(own_name(entry)),
    "sockets": _sockets,
    "namespace": lambda entry: network.remove_namespace(own_name(entry)),
}
