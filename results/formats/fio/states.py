"""States of a run that fio printed on the way (--status-interval): which documents are one run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fsmatrix.results.evidence.values import JsonObject, inside
from fsmatrix.results.formats.fio.documents import Document
from fsmatrix.results.formats.fio.job import DIRECTIONS

SLACK = 100.0  # ms by which the time of a state may be off


def final(parsed: Sequence[Document]) -> list[Document]:
    """Without those that --status-interval printed on the way, and without doubles."""
    kept: list[Document] = []
    for document in parsed:
        if kept and _goes_on(kept[-1], document):
            kept.pop()
        kept.append(document)
    return kept


def _goes_on(before: Document, after: Document) -> bool:
    """Whether `after` is a later state of the same run (or the same text again)."""
    if len(before.jobs) != len(after.jobs) or before.damage or after.damage:
        return before.damage != "" and before.jobs == after.jobs[: len(before.jobs)]
    if before.jobs == after.jobs:
        return True
    if any(
        a.get("jobname") != b.get("jobname") for a, b in zip(before.jobs, after.jobs, strict=True)
    ):
        return False
    starts = [[job.get("job_start") for job in document.jobs] for document in (before, after)]
    if any(starts[0]):
        return starts[0] == starts[1]
    passed = printed(after) - printed(before)
    grown = _grown(before, after)
    if not any(map(_moved, before.jobs)):  # it laid out its files, or waited for its ramp
        failed = any(job.get("error") for job in before.jobs)
        return not failed and _began(after)[0] < _began(before)[1]
    if grown is None:
        return False
    # groups one after the other lay out files between them
    between = passed / 2 if _began(after)[1] <= printed(before) else 0.0
    return grown > 0 and -between - SLACK <= grown - passed <= SLACK


def printed(document: Document) -> float:
    """Unix time in ms; 0 if it is not told."""
    return number(document.header.get("timestamp_ms"))


def _began(document: Document) -> tuple[float, float]:
    """The first and the last moment, ms, at which this fio may have begun: it tells whole seconds.

    Without them it may be any.
    """
    elapsed = max((number(job.get("elapsed")) for job in document.jobs), default=0.0)
    if not elapsed:
        return 0.0, math.inf
    return printed(document) - 1000 * elapsed, printed(document) - 1000 * (elapsed - 1)


def _grown(before: Document, after: Document) -> float | None:
    """ms by which the groups have worked longer in all; None if `after` is no later state."""
    groups: dict[object, float] = {}
    for old, new in zip(before.jobs, after.jobs, strict=True):
        begun = _runtime(old) if _runtime(old) <= _runtime(new) else 0.0
        again = not begun and "ramp_time" in options_of(after.header, new)  # counted anew
        if _moved(new) < _moved(old) and not again:
            return None
        group = new.get("groupid")
        groups[group] = max(groups.get(group, 0.0), _runtime(new) - begun)
    return sum(groups.values())


def options_of(header: JsonObject, job: JsonObject) -> JsonObject:
    return {**inside(header, "global options"), **inside(job, "job options")}


def _moved(job: JsonObject) -> float:
    """Bytes in all directions."""
    return sum(number(inside(job, kind).get("io_bytes")) for kind in DIRECTIONS)


def _runtime(job: JsonObject) -> float:
    return max(number(inside(job, kind).get("runtime")) for kind in DIRECTIONS)


def longest(document: Document) -> float:
    return max(map(_runtime, document.jobs), default=0.0)


def number(value: object) -> float:
    return float(value) if isinstance(value, int) and 0 <= value < 1 << 53 else 0.0
