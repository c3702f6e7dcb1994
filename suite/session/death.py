"""Why a session could not go on: its errors, and what its end tells."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from fsmatrix.suite.session.wire import ERROR_MARK


class SessionError(Exception):
    """The session cannot go on; `facts` tell what is known (rank, host, signal...)."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


class NodeError(SessionError):
    """A leader answered that its part failed; the session itself goes on."""


class SessionDied(SessionError):
    """It ended by itself."""


class DeadlinePassed(SessionError):
    """It did not answer in time."""


def explain_death(
    printed: str,
    returncode: int | None,
    ranks: Sequence[Mapping[str, Any]],
) -> SessionDied:
    """Why a session ended: from a rank's own words, the launcher's, or its exit status."""
    for line in printed.splitlines():
        if line.startswith(ERROR_MARK):
            facts = json.loads(line[len(ERROR_MARK) :])
            return SessionDied(
                f"rank {facts['rank']} on {facts['host']} raised {facts['error']}", **facts
            )
    by_pid = {rank["pid"]: rank for rank in ranks}
    for found in re.finditer(r"\bPID[:= ]+(\d+)", printed):
        rank = by_pid.get(int(found.group(1)))
        if rank is not None:
            tail = printed[found.end() :]
            number = re.search(r"signal (\d+)|EXIT CODE: (\d+)", tail)
            code = int(next(filter(None, number.groups()))) if number else 0
            how = f"was ended by signal {code} ({_signal_name(code)})" if code else "ended"
            return SessionDied(
                f"rank {rank['rank']} on {rank['host']} (pid {rank['pid']}) {how}",
                rank=rank["rank"],
                host=rank["host"],
                signal=code,
            )
    last = " | ".join(printed.strip().splitlines()[-5:]) or "no message"
    if returncode is not None and returncode < 0:
        name = _signal_name(-returncode)
        return SessionDied(
            f"the session was ended by signal {-returncode} ({name}): {last}", signal=-returncode
        )
    return SessionDied(f"the session ended with status {returncode}: {last}")


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return "unknown"
