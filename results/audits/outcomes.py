"""Audits of work whose outcome is known: did what was played, or found, agree with it?

Of replays: was what was played what had been captured, and when it should be?  Of the LHCb
analysis: did it find what had been written?
"""

from __future__ import annotations

from collections.abc import Iterator

from fsmatrix.results.audits.audit import Audit, Remark
from fsmatrix.results.evidence.replay import Replayed, replayed
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.evidence.workloads import CUTS, analysed
from fsmatrix.results.record import Phase, RunRecord

LATE = 1e-3  # seconds
MORE = 1.1  # bytes moved / bytes asked for: beyond it the bandwidth is another quantity
OTHERWISE = {
    "failed_otherwise": "failed differently",
    "succeeded_otherwise": "succeeded but failed in the capture",
    "other_bytes": "moved another number of bytes",
}
MOST_REASONS = 4


def _replays(record: RunRecord) -> Iterator[tuple[Phase, Replayed]]:
    for phase in record.phases:
        if (seen := replayed(phase.facts)) is not None:
            yield phase, seen


def fidelity(record: RunRecord) -> Iterator[Remark]:
    """Fewer operations than declared were played and had the captured outcome."""
    for phase, seen in _replays(record):
        facts: dict[str, Json] = {
            "operations": seen.operations,
            "played": seen.played,
            "agreed": seen.agreed,
            "fidelity": seen.fidelity,
            "declared": seen.declared_fidelity,
            "errors": dict(seen.errors_otherwise),
        }
        if not seen.played:
            message = f"none of {seen.operations} chosen operations was played{_why(seen)}"
            yield "invalid", phase.name, message, facts
        elif seen.fidelity < seen.declared_fidelity:
            message = (
                f"{100 * seen.fidelity:.4g} % of {seen.operations} operations had the captured "
                f"outcome ({seen.agreed}; {seen.played} were played); declared: at least "
                f"{100 * seen.declared_fidelity:.4g} %{_why(seen)}"
            )
            yield "warning", phase.name, message, facts


def _why(seen: Replayed) -> str:
    """The largest reasons, with their figures."""
    reasons: dict[str, int] = {}
    for name, kind in seen.kinds.items():
        for reason, count in kind.skipped.items():
            reasons[f"{count} x {name} skipped ({reason})"] = count
        for field, words in OTHERWISE.items():
            count = getattr(kind, field)
            reasons |= {f"{count} x {name} {words}": count} if count else {}
    largest = sorted(reasons, key=lambda text: -reasons[text])[:MOST_REASONS]
    errors = ", ".join(f"{count} x {name}" for name, count in seen.errors_otherwise.items())
    parts = [*largest, f"errors: {errors}"] if errors else largest
    return f": {'; '.join(parts)}" if parts else ""


def late(record: RunRecord) -> Iterator[Remark]:
    """A timed replay issued operations later than it should have."""
    for phase, seen in _replays(record):
        error = seen.issue_error
        if error is None:
            continue
        high = error.longest if error.p99 is None else error.p99
        if high > LATE:
            message = (
                f"one in a hundred of {error.operations} operations was issued {1e3 * high:.3g} ms "
                f"or more after its time (mean {1e3 * error.mean:.3g} ms, at most "
                f"{1e3 * error.longest:.3g} ms)"
            )
            yield "warning", phase.name, message, error.document()


def holes(record: RunRecord) -> Iterator[Remark]:
    """Files were made sparse and read: a hole is read from no device."""
    for phase, seen in _replays(record):
        came = seen.kinds["read"].bytes if "read" in seen.kinds else 0
        if seen.fill == "sparse" and came:
            message = f"{came} bytes were read from files that were made sparse"
            yield "warning", phase.name, message, {"read": came}


def widened(record: RunRecord) -> Iterator[Remark]:
    """Operations moved whole blocks for O_DIRECT, which the bandwidth counts."""
    for phase, seen in _replays(record):
        wanted = sum(kind.bytes for kind in seen.kinds.values())
        moved = int(phase.bytes.sum())
        if seen.widened and moved > MORE * wanted:
            message = (
                f"{seen.widened} of {seen.played} operations were widened to the blocks of "
                f"O_DIRECT: {moved} bytes were moved for {wanted} in the trace, and the "
                "bandwidth counts those moved"
            )
            facts = {"widened": seen.widened, "moved": moved, "wanted": wanted}
            yield "warning", phase.name, message, facts


def histogram(record: RunRecord) -> Iterator[Remark]:
    """The histogram or a cut's count is not that of the events that were written."""
    for phase in record.phases:
        seen = analysed(phase.facts)
        if seen is None or seen.wanted is None:
            continue
        if different := seen.found.differing(seen.wanted):
            bins = [
                index
                for index, pair in enumerate(
                    zip(seen.found.counts, seen.wanted.counts, strict=False)
                )
                if pair[0] != pair[1]
            ]
            cuts = {
                name: [getattr(seen.found, name), getattr(seen.wanted, name)]
                for name in CUTS
                if getattr(seen.found, name) != getattr(seen.wanted, name)
            }
            message = (
                f"at least {different} of {seen.found.events} events are counted differently from "
                f"those that were written ({len(bins)} bins differ)"
            )
            facts: dict[str, Json] = {"events": different, "bins": bins[:20], "cuts": cuts}
            yield "invalid", phase.name, message, facts


AUDITS = (
    Audit(
        "replay-fidelity",
        1,
        "phase",
        fidelity,
        "see the replay's table of kinds for what was skipped or differed; use another "
        "target, choose the kinds that matter (`kinds`), or declare the fidelity that you accept",
    ),
    Audit(
        "replay-late",
        1,
        "phase",
        late,
        "the system, or the threads of a client, did not keep up: latencies count from the "
        "intended times; use more threads, or a larger time_scale",
    ),
    Audit(
        "replay-holes",
        1,
        "phase",
        holes,
        "use fill: filled where the speed of reads matters",
    ),
    Audit(
        "replay-widened",
        1,
        "phase",
        widened,
        "compare operations per second with buffered runs, or take `unaligned: buffered`",
    ),
    Audit(
        "lhcb-histogram",
        1,
        "phase",
        histogram,
        "the storage, or the program, returned different data: keep the file and inspect it",
    ),
)
