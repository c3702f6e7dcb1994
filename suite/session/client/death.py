"""Why a session could not go on: its errors, and what its end tells."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
from collections.abc import Iterable, Sequence

from fsmatrix.results.evidence.rank import Rank
from fsmatrix.results.evidence.values import Json
from fsmatrix.suite.session.wire import ERROR_MARK

ROOM = 8 << 20  # bytes that the folders and shared memory of a session may want in TMPDIR


class SessionError(Exception):
    """The session cannot go on; `facts` tell what is known (rank, host, signal...)."""

    def __init__(self, message: str, **facts: Json) -> None:
        super().__init__(message)
        self.facts = facts


class NodeError(SessionError):
    """A leader answered that its part failed; the session itself goes on."""


class SessionDied(SessionError):
    """The session's processes ended before they were told to; the text says how."""


class DeadlinePassed(SessionError):
    """It did not answer in time."""


class StorageStalled(SessionError):
    """No operation completes any more, and the storage does not answer or says what is wrong.

    `known`: what it had said before, when operations completed.
    """

    def __init__(self, message: str, known: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.known = tuple(known)


def explain_death(
    printed: str,
    returncode: int | None,
    ranks: Sequence[Rank],
) -> SessionDied:
    """Why a session ended: from a rank's own words, the launcher's, or its exit status."""
    for line in printed.splitlines():
        if line.startswith(ERROR_MARK):
            facts = json.loads(line[len(ERROR_MARK) :])
            which = f"rank {facts['rank']}" if "rank" in facts else "a rank that MPI did not start"
            return SessionDied(f"{which} on {facts['host']} raised {facts['error']}", **facts)
    launcher = _launcher_said(printed, ranks)
    if launcher is not None:
        return launcher
    last = " | ".join(printed.strip().splitlines()[-5:]) or "it printed nothing"
    if returncode is not None and returncode < 0:
        name = _signal_name(-returncode)
        return SessionDied(
            f"the session was ended by signal {-returncode} ({name}): {last}", signal=-returncode
        )
    return SessionDied(f"the session ended with status {returncode}: {last}")


def full_disk(folder: str) -> str:
    """That a folder's disk has no room for an MPI library's files, which it may not say itself."""
    free = shutil.disk_usage(folder).free
    if free >= ROOM:
        return ""
    return f"; {folder} has {free} bytes free (TMPDIR): No space left for MPI's own files"


def _launcher_said(printed: str, ranks: Sequence[Rank]) -> SessionDied | None:
    """The rank that a launcher names, with its end; None if it names none.

    A rank whose neighbour has gone may complain first, with a PID of its own ("Local PID").
    """
    by_pid = {rank.pid: rank for rank in ranks}
    named = [
        match
        for match in re.finditer(r"(?<!Local )\bPID[:= ]+(\d+)", printed)
        if int(match.group(1)) in by_pid
    ]
    if not named:
        return None
    ends = [*(match.start() for match in named[1:]), len(printed)]
    deaths = []
    for match, end in zip(named, ends, strict=True):
        rank = by_pid[int(match.group(1))]
        number = re.search(r"signal (\d+)|EXIT CODE: (\d+)", printed[match.end() : end])
        code = int(next(filter(None, number.groups()))) if number else 0
        how = f"was ended by signal {code} ({_signal_name(code)})" if code else "ended"
        text = f"rank {rank.rank} on {rank.host} (pid {rank.pid}) {how}"
        deaths.append(SessionDied(text, rank=rank.rank, host=rank.host, signal=code))
    return next((death for death in deaths if death.facts["signal"]), deaths[0] if deaths else None)


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return "unknown"
