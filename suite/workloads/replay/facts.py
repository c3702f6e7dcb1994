"""What a replay's phase tells beside its rates, from the tallies of its ranks and the trace."""

from __future__ import annotations

import errno
import math
from functools import lru_cache

from fsmatrix.results import histogram
from fsmatrix.results.evidence.replay import (
    Amount,
    CapturedKind,
    FileClass,
    IssueError,
    PlayedKind,
    Replayed,
)
from fsmatrix.results.evidence.trace import TraceSummary
from fsmatrix.suite.workloads.replay.options import ReplayOptions
from fsmatrix.suite.workloads.streams.replay.converting import Skipped
from fsmatrix.suite.workloads.streams.replay.outcomes import ERRNOS, Counts, kinds
from fsmatrix.suite.workloads.streams.replay.survey import (
    Integers,
    ReplayParams,
    Survey,
    opened_trace,
)
from fsmatrix.suite.workloads.streams.replay.tree import KEPT, prepared
from fsmatrix.traces.statistics import survey

MOST_OPERATIONS, MOST_BYTES = 10**8, 1 << 46  # of a trace whose pages are looked at: minutes
SOON_NS = 100_000  # an issue that is later than that is late
REASONS = {
    Skipped.MODE: "the mode plays reads and writes only",
    Skipped.DRIVER: "the driver has no such operation",
    Skipped.SIZE: "larger, or further behind in its file, than the player does",
    Skipped.NAME: "a path that is too long for the target",
}


def facts_of(counts: Counts, work: ReplayParams, clients: int, options: ReplayOptions) -> Replayed:
    """`counts`: of all ranks.  `clients`: how often the trace was played at once.

    Fidelity: operations that were played and had the captured outcome, of those chosen (in mode
    queue: of the reads and writes among them).
    """
    survey = prepared(work).survey
    chosen = survey.captured.operations * clients
    expected = int(chosen.sum() - counts.skipped[Skipped.MODE].sum())
    agreed = int(counts.agreed.sum())
    header = options.trace.header if options.trace else None
    return Replayed(
        trace=options.trace.path.rpartition("/")[2] if options.trace else str(options.generator),
        source=header.source if header else "generator",
        anonymised=header is not None and header.anonymised,
        mode=options.mode,
        time_scale=options.scale_of_times,
        fill=options.fill,
        clients=clients,
        like=_like(work.trace, work.sha256, work.generator, work.scale, work.seed),
        captured_seconds=(
            (survey.end_ns - survey.begin_ns) / 1e9 if header and header.timed else None
        ),
        operations=expected,
        played=int(counts.played.sum()),
        agreed=agreed,
        fidelity=agreed / expected if expected else 0.0,
        declared_fidelity=options.fidelity,
        kinds={
            name: _kind(i, counts, survey, clients) for i, name in enumerate(kinds()) if chosen[i]
        },
        classes=_classes(counts, survey, clients),
        errors_as_captured=_errors(counts.errno[0]),
        errors_otherwise=_errors(counts.errno[1]),
        left_out={name: n for name, n in zip(kinds(), survey.left_out.tolist(), strict=True) if n},
        issue_error=_issue_error(counts) if counts.issue_error.any() else None,
        added=counts.added,
        added_failed=counts.added_failed,
        widened=counts.widened,
        buffered=counts.buffered,
        barriers=counts.barriers,
        threads=counts.threads,
        sharing=counts.sharing,
    )


@lru_cache(maxsize=KEPT)
def _like(path: str, sha256: str, generator: str, scale: float, seed: int) -> TraceSummary | None:
    """What the whole trace is like: one pass over it for all runs that play it.

    None for a trace that this would take too long, or that claims to move absurdly much.
    """
    work = ReplayParams(trace=path, sha256=sha256, generator=generator, scale=scale, seed=seed)
    with opened_trace(work) as trace:
        if trace.operations > MOST_OPERATIONS:
            return None
        if (
            path
            and sum(int(b["size"].sum(dtype=int)) for b in trace.blocks(("size",))) > MOST_BYTES
        ):
            return None
        return survey(trace).summary


def _kind(i: int, counts: Counts, survey: Survey, clients: int) -> PlayedKind:
    captured = survey.captured
    median, tail = _percentiles(captured.latency[i])
    return PlayedKind(
        captured=CapturedKind(
            operations=int(captured.operations[i]) * clients,
            bytes=int(captured.bytes[i]) * clients,
            failed=int(captured.failed[i]) * clients,
            p50=median,
            p99=tail,
        ),
        skipped={
            REASONS[reason]: int(counts.skipped[reason][i])
            for reason in Skipped
            if counts.skipped[reason][i]
        },
        played=int(counts.played[i]),
        agreed=int(counts.agreed[i]),
        failed_as_captured=int(counts.failed_as_captured[i]),
        failed_otherwise=int(counts.failed_otherwise[i]),
        succeeded_otherwise=int(counts.succeeded_otherwise[i]),
        other_bytes=int(counts.other_bytes[i]),
        short=int(counts.short[i]),
        bytes=int(counts.bytes[i]),
    )


def _percentiles(latency: Integers) -> tuple[float | None, float | None]:
    """Median and 99th percentile in seconds; None where too few were counted."""
    median, tail = (histogram.percentile(latency, q) for q in (0.5, 0.99))
    return (median if math.isfinite(median) else None, tail if math.isfinite(tail) else None)


def _classes(counts: Counts, survey: Survey, clients: int) -> dict[str, FileClass]:
    """By name, the one with the most operations first; seconds are sums of latencies."""
    return {
        name: FileClass(
            captured=Amount(
                operations=int(survey.class_operations[i]) * clients,
                bytes=int(survey.class_bytes[i]) * clients,
                seconds=float(survey.class_ns[i]) * clients / 1e9,
            ),
            played=Amount(
                operations=int(counts.class_operations[i]),
                bytes=int(counts.class_bytes[i]),
                seconds=float(counts.class_ns[i]) / 1e9,
            ),
        )
        for i, name in enumerate(survey.classes)
        if survey.class_operations[i]
    }


def _errors(numbers: Integers) -> dict[str, int]:
    return {
        errno.errorcode.get(number, "other"): int(numbers[number])
        for number in range(ERRNOS)
        if numbers[number]
    }


def _issue_error(counts: Counts) -> IssueError:
    late = counts.issue_error
    total = int(late.sum())
    soon = late[: int(histogram.bin_of([SOON_NS])[0])]
    median, tail = _percentiles(late)
    return IssueError(
        operations=total,
        mean=counts.issue_error_ns / total / 1e9,
        longest=counts.issue_error_ns_max / 1e9,
        within_100us=float(soon.sum() / total),
        p50=median,
        p99=tail,
    )
