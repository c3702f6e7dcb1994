"""Was a preloaded library really at work in the programs that were measured?"""

from __future__ import annotations

from collections.abc import Iterator

from fsmatrix.results.audits.base import Audit, Remark, data_bytes
from fsmatrix.results.evidence.evidence import Interception
from fsmatrix.results.record import Phase, RunRecord

CALLS_SHARE = 0.9  # of the reads or writes that a program counted itself


def interception_missed(record: RunRecord) -> Iterator[Remark]:
    """The library says that it took over none, or few, of a program's calls."""
    for phase in record.phases:
        seen = record.evidence.interception.get(phase.name)
        if seen is None:
            continue
        facts = {"summaries": seen.summaries, "calls": dict(seen.calls)}
        if missed := _missed(phase, seen):
            yield "invalid", phase.name, f"interception {seen.library}: {missed}", facts
        elif few := _few(phase, seen):
            yield "warning", phase.name, f"interception {seen.library}: {few}", facts


def _missed(phase: Phase, seen: Interception) -> str:
    """Why the program went by the kernel, and not by the library (empty: it did not)."""
    if not seen.summaries:
        return "no process said what its library took over"
    if not any(seen.calls.values()):
        return "the library took over no call"
    for kind, moved in zip(("read", "write"), data_bytes(phase), strict=True):
        if moved and not seen.calls.get(kind):
            return f"the library took over no {kind}"
    return ""


def _few(phase: Phase, seen: Interception) -> str:
    operations = int(phase.operations.sum())
    if phase.name not in ("read", "write"):  # whose operations are such calls
        return ""
    calls = seen.calls.get(phase.name, 0)
    if calls >= CALLS_SHARE * operations:
        return ""
    return f"the library took over {calls} {phase.name}s of {operations}"


AUDITS = (
    Audit(
        "interception-missed",
        1,
        "phase",
        interception_missed,
        "the program is statically linked, forks, ends without its exit handlers, or does not "
        "work on the mount: use another engine, or interception: none",
    ),
)
