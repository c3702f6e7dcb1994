"""Was what is asked for between programs and storage at work: a preloaded library, io_uring?"""

from __future__ import annotations

from collections.abc import Iterator

from fsmatrix.results.audits.base import Audit, Remark, data_bytes
from fsmatrix.results.evidence.evidence import Interception
from fsmatrix.results.evidence.values import Json
from fsmatrix.results.record import Phase, RunRecord

CALLS_SHARE = 0.9  # of the reads or writes that a program counted itself


def interception_missed(record: RunRecord) -> Iterator[Remark]:
    """The library says that it took over none of a program's calls, of one kind or of all."""
    for phase, seen in _phases(record):
        if missed := _missed(phase, seen):
            message = f"interception {seen.library}: {missed}"
            yield "invalid", phase.name, message, _facts(seen)


def _missed(phase: Phase, seen: Interception) -> str:
    """Why the program went by the kernel, and not by the library (empty: it did not)."""
    if not seen.summaries:
        return "no process reported what its library intercepted"
    if not any(seen.calls.values()):
        return "the library intercepted no call"
    for kind, moved in zip(("read", "write"), data_bytes(phase), strict=True):
        if moved and not seen.calls.get(kind):
            return f"the library intercepted no {kind}"
    return ""


def interception_partly(record: RunRecord) -> Iterator[Remark]:
    """It took over some reads or writes of a phase, and fewer than the program did."""
    for phase, seen in _phases(record):
        if phase.name not in ("read", "write"):  # whose operations are such calls
            continue
        calls, operations = seen.calls.get(phase.name, 0), int(phase.operations.sum())
        if 0 < calls < CALLS_SHARE * operations:
            message = (
                f"interception {seen.library}: the library intercepted {calls} of {operations} "
                f"{phase.name}s"
            )
            yield "warning", phase.name, message, _facts(seen)


def fell_back(record: RunRecord) -> Iterator[Remark]:
    """io_uring was not to be had, and the campaign says that posix may take its place."""
    for phase in record.phases:
        if reason := phase.facts.get("driver_refused"):
            message = f"not by io_uring, but by posix, one operation at a time: {reason}"
            yield "warning", phase.name, message, {"reason": reason}


def _phases(record: RunRecord) -> Iterator[tuple[Phase, Interception]]:
    for phase in record.phases:
        if (seen := record.evidence.interception.get(phase.name)) is not None:
            yield phase, seen


def _facts(seen: Interception) -> dict[str, Json]:
    return {"summaries": seen.summaries, "calls": dict(seen.calls)}


AUDITS = (
    Audit(
        "io-fell-back",
        1,
        "phase",
        fell_back,
        "allow io_uring on every client node (sysctl kernel.io_uring_disabled, the container's "
        "seccomp profile), and do not compare the number with one of io_uring",
    ),
    Audit(
        "interception-missed",
        1,
        "phase",
        interception_missed,
        "the program is statically linked, forks, ends without its exit handlers, or does not "
        "work on the mount: use another engine, or interception: none",
    ),
    Audit(
        "interception-partly",
        1,
        "phase",
        interception_partly,
        "some processes, or some kinds of calls, went through the kernel: the number is a mixture",
    ),
)
