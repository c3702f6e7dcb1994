"""A target that was full: which runs of a plot need not be begun after that."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fsmatrix.backends.base import Space
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system.deadline import Overdue, within
from fsmatrix.results.record import RunRecord
from fsmatrix.suite.plan.estimate import short_of_room
from fsmatrix.suite.run.spec import RunSpec

FULL = re.compile(r"\b(ENOSPC|EDQUOT)\b|No space left on device|Disk quota exceeded")
SECONDS = 10.0  # for an answer about the space


def met(record: RunRecord) -> bool:
    """Whether the run failed for want of space."""
    return record.status == "failed" and bool(FULL.search(record.error))


def hopeless(spec: RunSpec, todo: Sequence[RunSpec], space: Callable[[], Space]) -> list[RunSpec]:
    """Those of `todo` that hold as much as the run that failed, or more than there is now.

    None where that run would fit by now: what it met is no full target (a disk that shrank).
    """
    try:
        room = within(SECONDS, space)
    except (BackendError, OSError, Overdue):
        room = Space(None, None, "unknown")
    least, files = _needs(spec)
    if room.bytes is not None and not any(short_of_room(least, files, room)):
        return []

    def fits(other: RunSpec) -> bool:
        size, files = _needs(other)
        return size < least and not any(short_of_room(size, files, room))

    return [other for other in todo if not fits(other)]


def _needs(spec: RunSpec) -> tuple[int, int]:
    """Bytes and files that a run holds at once; 0 where what planned them has gone."""
    try:
        needs = spec.workload.footprint(spec.case)
    except Exception:  # noqa: BLE001 - of another package, perhaps
        return 0, 0
    return needs.space, needs.files


def reason(record: RunRecord) -> str:
    """Why they are not begun."""
    return f"not begun, because a run before met a full target ({record.error}): make room there"
