"""Audits of windows, clocks and series."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np

from fsmatrix.results.audits.audit import Audit, Remark, window
from fsmatrix.results.evidence.workloads import SATURATED, capacity, open_loop
from fsmatrix.results.record import Floats, Phase, RunRecord, Severity, operations

SHORTEST_WINDOW = 0.25  # s: below, start-up, one scheduling delay or one flush decides
FEWEST_OPERATIONS = 100  # below, single operations decide
FEWEST_INTERVALS = 20  # of a series whose trend is tested
SHORTEST_TREND = (
    1.0  # s: in less, one pass over the data, one flush or one delay looks like a trend
)
HALVES_DIFFER = 0.2  # share of the mean: below, a trend does not matter
TREND_P = 0.01  # of the Mann-Kendall test: one false alarm in a hundred phases at most
GROUPS = 20  # the series is averaged to these first: neighbours are not independent
STRAGGLER_SHARE = 0.1  # of the window between the median and the last worker's end
STRAGGLER_SECONDS = 0.05  # as well: one scheduling delay or one last fsync is no straggler
CLOCK_WARNING = 0.01  # of the window: no longer small beside the spread of repetitions
CLOCK_INVALID = 0.1  # of the window: the rate itself is wrong by that
OVERHEAD_SHARE = 0.1  # of the window spent by the engine itself: the rate is too low by so much
ENDED_EARLY = 0.98  # of the fixed time


def too_short(record: RunRecord) -> Iterator[Remark]:
    """A window or a number of operations, where it is known, too small to tell anything."""
    for phase in record.phases:
        seconds, count = window(phase), operations(phase)
        reasons = []
        if seconds < SHORTEST_WINDOW:
            reasons.append(f"the window is {seconds:.3g} s, below {SHORTEST_WINDOW} s")
        if count < FEWEST_OPERATIONS:
            reasons.append(f"it has {count:.0f} operations, below {FEWEST_OPERATIONS}")
        if reasons:
            evidence = {"window": seconds, **({"operations": int(count)} if count == count else {})}
            yield "warning", phase.name, " and ".join(reasons), evidence


def steady_part(phase: Phase) -> Floats | None:
    """The series while every worker was at its data, per interval; None if there is none."""
    series = phase.interval_bytes
    if series is None or not series.any():
        series = phase.interval_operations
    if series is None or phase.interval <= 0 or phase.start.size == 0:
        return None
    # a worker without data operations, as in metadata phases, has NaN there
    starts, ends = phase.start, phase.end
    if phase.io_start is not None and phase.io_end is not None:
        starts = np.where(np.isfinite(phase.io_start), phase.io_start, starts)
        ends = np.where(np.isfinite(phase.io_end), phase.io_end, ends)
    if not (np.isfinite(starts).all() and np.isfinite(ends).all()):
        return None  # a worker did nothing at all
    first = math.ceil(float(np.max(starts)) / phase.interval)
    last = math.floor(float(np.min(ends)) / phase.interval)
    return series[max(first, 0) : max(last, 0)].astype(np.float64)


def mann_kendall(series: Floats) -> float:
    """Two-sided p of no trend, normal approximation without ties (n of 10 or more).

    Mann 1945 (doi:10.2307/1907187); Kendall, Rank Correlation Methods.
    """
    n = len(series)
    signs = np.sign(series[np.newaxis, :] - series[:, np.newaxis])
    score = float(np.triu(signs, 1).sum())
    if score == 0:
        return 1.0
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return math.erfc((abs(score) - 1) / deviation / math.sqrt(2))


def not_stationary(record: RunRecord) -> Iterator[Remark]:
    """The rate at the end is another than at the beginning."""
    for phase in record.phases:
        series = steady_part(phase)
        if series is None or len(series) < FEWEST_INTERVALS or not series.any():
            continue
        groups = np.array([part.mean() for part in np.array_split(series, GROUPS)])
        halves = [float(half.mean()) for half in np.array_split(groups, 2)]
        change = (halves[1] - halves[0]) / float(groups.mean())
        p = mann_kendall(groups)
        if abs(change) <= HALVES_DIFFER or p >= TREND_P:
            continue
        message = (
            f"the second half was {abs(change):.0%} {'slower' if change < 0 else 'faster'} than "
            f"the first (share of the mean; trend p = {p:.2g}): no steady state"
        )
        seconds = len(series) * phase.interval
        severity: Severity = "warning" if seconds >= SHORTEST_TREND else "info"
        evidence = {"change": change, "p": p, "intervals": len(series), "seconds": seconds}
        yield severity, phase.name, message, evidence


def stragglers(record: RunRecord) -> Iterator[Remark]:
    """The window waits for a few workers."""
    for phase in record.phases:
        seconds = window(phase)
        ends = phase.end[np.isfinite(phase.end)]
        if ends.size < 2 or seconds <= 0:
            continue
        late = float(np.max(ends) - np.median(ends))
        if late > max(STRAGGLER_SHARE * seconds, STRAGGLER_SECONDS):
            rank = int(np.nanargmax(phase.end))
            message = (
                f"worker {rank} ended {late:.3g} s after the median worker, {late / seconds:.0%} "
                f"of the window of {seconds:.3g} s"
            )
            yield "warning", phase.name, message, {"worker": rank, "late": late, "window": seconds}


def clock_uncertainty(record: RunRecord) -> Iterator[Remark]:
    """Clocks of the nodes are not known well enough for this window."""
    for phase in record.phases:
        seconds = window(phase)
        if phase.clock_uncertainty <= CLOCK_WARNING * seconds:
            continue
        share = phase.clock_uncertainty / seconds if seconds > 0 else math.inf
        message = (
            f"offsets between clocks are uncertain by {phase.clock_uncertainty:.2g} s in a "
            f"window of {seconds:.3g} s"
        )
        evidence = {"uncertainty": phase.clock_uncertainty, "window": seconds}
        yield "invalid" if share > CLOCK_INVALID else "warning", phase.name, message, evidence


def overhead(record: RunRecord) -> Iterator[Remark]:
    """The engine spent its own time: making operations, filling and verifying buffers."""
    geometry = json.loads(record.case).get("geometry", {}) if record.case else {}
    threads = int(geometry.get("threads", 1))  # overhead adds up over a worker's threads
    for phase in record.phases:
        if phase.overhead is None or phase.overhead.size == 0:
            continue
        windows = np.maximum(phase.end - phase.start, 1e-12)
        shares = np.nan_to_num(phase.overhead / threads / windows)
        worst = float(np.max(shares))
        if worst > OVERHEAD_SHARE:
            message = (
                f"{worst:.0%} of the window of worker {int(np.argmax(shares))} went into the "
                f"engine itself (generating operations, verifying buffers, evicting read data)"
            )
            yield "warning", phase.name, message, {"share": worst}


def idle_workers(record: RunRecord) -> Iterator[Remark]:
    """Fixed time: workers that began nothing; the number is of fewer than the geometry says."""
    for phase in record.phases:
        idle, workers = int((phase.operations == 0).sum()), phase.operations.size
        if not idle or not phase.facts.get("stonewall_seconds") or math.isnan(operations(phase)):
            continue
        evidence = {"idle": idle, "workers": workers}
        message = f"{idle} of {workers} workers did nothing before the time ran out"
        if idle == workers:
            message = "no worker did anything before the time ran out"
        yield "invalid" if idle == workers else "warning", phase.name, message, evidence


def ended_early(record: RunRecord) -> Iterator[Remark]:
    """Fixed time: the data was at its end before the time was.

    The time counts from the agreed start (0), also for workers that began late.
    """
    for phase in record.phases:
        limit = phase.facts.get("stonewall_seconds")
        if operations(phase) == 0 or open_loop(phase.facts):
            continue  # there `idle-workers` speaks, or the last operation was due before
        seconds = float(np.max(phase.end, initial=0.0, where=np.isfinite(phase.end)))
        if isinstance(limit, int | float) and limit and seconds < ENDED_EARLY * limit:
            message = f"the data ended after {seconds:.3g} s of the fixed {limit:g} s"
            evidence = {"window": window(phase), "seconds": float(limit)}
            yield "info", phase.name, message, evidence


def saturated(record: RunRecord) -> Iterator[Remark]:
    """Open loop: the system did not follow the rate, so that what was due waited ever longer."""
    for phase in record.phases:
        loop = open_loop(phase.facts)
        if loop is None or not loop.saturated:
            continue
        left_out = f", and {loop.unplayed} were never begun" if loop.unplayed else ""
        message = (
            f"{loop.achieved:.4g} of {loop.offered:.4g} operations per second were begun in time: "
            f"{loop.backlog} of {loop.due} were waiting at the end of {loop.seconds:.3g} s"
            f"{left_out}; no latency of it counts"
        )
        evidence = loop.document() | {"offered": loop.offered, "achieved": loop.achieved}
        yield "warning", phase.name, message, evidence


def capacity_not_found(record: RunRecord) -> Iterator[Remark]:
    """Capacity: the search was led by luck, as another step at or above its rate showed."""
    for phase in record.phases:
        searched = capacity(phase.facts)
        if searched is None or searched.rate is not None or searched.at_least is not None:
            continue
        last = searched.probes[-1]
        limit = f"{searched.percentile} within {1e3 * searched.limit:.3g} ms"
        seen = "saturated" if last.latency is None else f"{1e3 * last.latency:.3g} ms"
        also = (
            "was kept although lower rates did not keep it" if last.kept else "was not kept again"
        )
        message = (
            f"{limit} {also}, at {last.rate:.4g} operations per second ({seen}): latencies vary "
            "too much from step to step for a capacity"
        )
        yield "invalid", phase.name, message, searched.document()


def capacity_at_least(record: RunRecord) -> Iterator[Remark]:
    """Capacity: all that the closed loop did keeps the limit, so that there is nothing to find."""
    for phase in record.phases:
        searched = capacity(phase.facts)
        if searched is None or searched.at_least is None:
            continue
        latency = searched.probes[-1].latency or 0.0  # it was kept
        message = (
            f"the capacity is at least {searched.at_least:.4g} operations per second, what the "
            f"closed loop did: {searched.percentile} was {1e3 * latency:.3g} ms there, within the "
            f"limit of {1e3 * searched.limit:.3g} ms; no number of it counts"
        )
        yield "warning", phase.name, message, searched.document()


AUDITS = (
    Audit(
        SATURATED,
        1,
        "phase",
        saturated,
        "its rate is what the system can do; for latencies offer less, or more threads or depth",
    ),
    Audit(
        "capacity-not-found",
        1,
        "phase",
        capacity_not_found,
        "give each step more seconds, a quieter machine, or a limit above what single stalls take",
    ),
    Audit(
        "capacity-at-least",
        1,
        "phase",
        capacity_at_least,
        "give a lower limit, or more processes, threads or depth, which raise the closed loop",
    ),
    Audit("too-short", 2, "phase", too_short, "give it more work, or a fixed time"),
    Audit(
        "not-stationary",
        2,
        "phase",
        not_stationary,
        "look at the series; run longer, or declare and reach the intended device state",
    ),
    Audit(
        "stragglers",
        2,
        "phase",
        stragglers,
        "see when and where the workers ended; a fixed time with wear_out shows the rate before",
    ),
    Audit(
        "clock-uncertainty",
        1,
        "phase",
        clock_uncertainty,
        "run longer, or on a quieter network between the nodes",
    ),
    Audit(
        "overhead",
        2,
        "phase",
        overhead,
        "switch verify off, use the C player instead of the Python one, or read with cache: "
        "bypass, where nothing needs to be evicted between two passes",
    ),
    Audit(
        "idle-workers",
        2,
        "phase",
        idle_workers,
        "give it more time: on a busy client some processes get no CPU within so short a window",
    ),
    Audit(
        "ended-early",
        3,
        "phase",
        ended_early,
        "a cold read is not started again, because its data is cached by then: give it more data",
    ),
)
