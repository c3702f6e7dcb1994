"""What is known of a run over time, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fsmatrix.analysis.result import Drawn, plain
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.units import fitting, text
from fsmatrix.results import histogram
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.histogram import Integers
from fsmatrix.results.record import Finding
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd

EDGES = histogram.coarse_edges() / 1e9  # seconds
MOST_COLUMNS = 300  # of a picture: more cannot be told apart
MOST_PHASES = 4  # that a text tells of, and a figure shows
MOST_EVENTS = 3
FEWEST = 10  # intervals of a series with a median to compare with
Array = TypeVar("Array", Integers, Floats)


@dataclass(frozen=True)
class Event:
    """Something that was seen at a moment."""

    time: float  # seconds after the phase's start
    says: str


@dataclass(frozen=True)
class NodesTimeline:
    """Storage nodes around a phase: each value is of the time since the sample before it."""

    hosts: tuple[str, ...]
    time: Floats  # [sample], seconds
    traffic: Floats  # [host, sample], bytes/s over all links, both ways
    cpu: Floats  # [host, sample], share of all cores, user and system

    @property
    def says(self) -> str:
        """The node with the most traffic, and the one with the busiest CPU; "" if none is known."""
        parts = []
        for values, what in ((self.traffic, "traffic"), (self.cpu, "CPU")):
            if np.isfinite(values).any():
                host, _ = np.unravel_index(np.nanargmax(values), values.shape)
                top = float(np.nanmax(values))
                unit = fitting("bandwidth", [top])
                shown = f"{top:.0%}" if what == "CPU" else f"{text(top, unit)} {unit.label}"
                parts.append(f"{what} up to {shown} ({self.hosts[int(host)]})")
        return f"storage nodes: {', '.join(parts)}" if parts else ""


@dataclass(frozen=True)
class PhaseTimeline:
    """One phase over time; times in seconds, 0 is its agreed start."""

    phase: str
    begin: float  # of its window
    end: float
    width: float  # of an interval
    latency: Mapping[str, Integers]  # sort of operations -> [interval, COARSE]; may be empty
    rate: Floats  # [interval], per second; empty if there is no series
    bytes: bool  # whether that is bytes, not operations
    latency_max: Floats | None  # [interval], seconds, where an engine told only these
    iterations: Floats  # [iteration, 3]: begin, end, rate
    cpu_time: Floats  # [sample + 1]: between two of them is a share of
    cpu: Floats  # [host, sample], busy share of all CPUs
    hosts: tuple[str, ...]
    events: tuple[Event, ...]  # what the storage said
    nodes: NodesTimeline | None = None  # where storage nodes were watched

    @property
    def counts(self) -> Integers:
        """Operations of all sorts, [interval, COARSE]."""
        return sum(self.latency.values(), start=np.zeros((self.rate.size, histogram.COARSE), int))

    @property
    def data(self) -> Integers:
        """The same of reads and writes; of all sorts where there are none."""
        own = {s: t for s, t in self.latency.items() if s in ("read", "write") and t.any()}
        return replace(self, latency=own).counts if own else self.counts

    @property
    def slowest(self) -> tuple[float, float, float] | None:
        """Edges of the highest bin, s, and the middle of the interval in which it was met first."""
        met = self.counts
        if not met.any():
            return None
        top = int(np.flatnonzero(met.any(axis=0))[-1])
        at = (int(np.flatnonzero(met[:, top])[0]) + 0.5) * self.width
        return float(EDGES[top]), float(EDGES[top + 1]), at

    @property
    def pause(self) -> tuple[float, float]:
        """Longest time without a completed operation, and its begin, between the first and last."""
        met = self.counts.any(axis=1) if self.latency else self.rate > 0
        places = np.flatnonzero(met)
        if places.size < 2:
            return 0.0, 0.0
        gaps = np.diff(places) - 1
        longest = int(np.argmax(gaps))
        return float(gaps[longest] * self.width), float((places[longest] + 1) * self.width)

    @property
    def slump(self) -> tuple[float, float]:
        """Longest time with less than half the median throughput, and its begin; 0: none.

        Of intervals as wide as the picture has them; the last one is cut off by the phase's end.
        """
        moved, width = narrowed(self.rate, self.width)
        low = np.flatnonzero(np.append(moved[:-1] >= np.median(moved[:-1]) / 2, True))
        begins = np.append(0, low + 1)[:-1]
        longest = int(np.argmax(low - begins))
        return float((low - begins)[longest] * width), float(begins[longest] * width)

    @property
    def says(self) -> str:
        """One sentence or two."""
        said = f"{self.phase}: {seconds(self.end - self.begin)}"
        if self.rate.size:
            said += f" in {self.rate.size} intervals of {seconds(self.width)}"
        elif len(self.iterations):
            said += f" in {plural(len(self.iterations), 'iteration')}"
        if (slowest := self.slowest) is not None:
            low, high, at = slowest
            said += f"; slowest operation {seconds(low)} to {seconds(high)}, at {at:.4g} s"
        elif self.latency_max is not None and np.isfinite(self.latency_max).any():
            place = int(np.nanargmax(self.latency_max))
            said += f"; slowest operation {seconds(float(self.latency_max[place]))}"
            said += f", at {(place + 0.5) * self.width:.4g} s"
        longest, begin = self.pause
        if longest > 0:
            said += f"; none completed for {seconds(longest)} from {begin:.4g} s on"
        longest, begin = self.slump if self.rate.size > FEWEST else (0.0, 0.0)
        if longest > 0:
            said += f"; less than half the median throughput for {seconds(longest)}"
            said += f" from {begin:.4g} s on"
        busy = np.nanmax(self.cpu) if np.isfinite(self.cpu).any() else np.nan
        said += f"; client CPU up to {busy:.0%}" if busy == busy else ""
        return f"{said}; {nodes}." if self.nodes and (nodes := self.nodes.says) else f"{said}."


@dataclass(frozen=True)
class RunTimeline:
    """One run, and why it is shown."""

    run_id: str
    title: str  # of its case
    why: str  # it is shown: nearest the median of a cell; "" where it was asked for
    phases: tuple[PhaseTimeline, ...]
    without: tuple[str, ...]  # phases of which nothing is known over time
    findings: tuple[Finding, ...]

    @property
    def says(self) -> list[str]:
        """What it is, then a sentence for each phase, what the storage said, and findings."""
        lines = [f"{self.run_id}: {self.title}{f' ({self.why})' if self.why else ''}."]
        lines += [phase.says for phase in self.phases[:MOST_PHASES]]
        if len(self.phases) > MOST_PHASES:
            lines.append(f"{len(self.phases) - MOST_PHASES} more phases: --out draws them.")
        events = [(one.phase, event) for one in self.phases for event in one.events]
        lines += [
            f"{name}, {event.time:.3g} s: {event.says}" for name, event in events[:MOST_EVENTS]
        ]
        if len(events) > MOST_EVENTS:
            lines.append(f"The storage said {len(events) - MOST_EVENTS} more things: --json.")
        if audits := sorted({f"{f.audit} ({f.severity})" for f in self.findings}):
            lines.append(f"Findings: {', '.join(audits)}.")
        if self.without:
            lines.append(f"Nothing over time is known of {', '.join(self.without)}.")
        return lines


@dataclass(frozen=True, kw_only=True)
class Timelines(Drawn):
    """Runs over time: the one that was asked for, or one for each cell."""

    runs: tuple[RunTimeline, ...]
    left_out: tuple[str, ...] = ()

    @property
    def says(self) -> list[str]:
        """All of one run; of several, which they are."""
        several = len(self.runs) > 1
        lines = [line for run in self.runs for line in run.says[: 2 if several else None]]
        return [*lines, *([" ".join(self.left_out)] if self.left_out else [])]

    def table(self) -> pd.DataFrame:
        """One row per phase and interval; SI units."""
        import pandas as pd

        return pd.DataFrame([row for run in self.runs for p in run.phases for row in _rows(run, p)])

    def to_dict(self) -> dict[str, Json]:
        """SI units; latencies over time as counts [interval, bin] of the bins with these edges."""
        data: dict[str, Json] = {
            "says": plain(self.says),
            "runs": [_document(r) for r in self.runs],
        }
        return data


def seconds(value: float) -> str:
    """A time with its unit: "12.5 ms"."""
    for scale, unit in ((1e-6, "us"), (1e-3, "ms")):
        if value < 999.5 * scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g} s"


def _rows(run: RunTimeline, phase: PhaseTimeline) -> Iterator[dict[str, Any]]:
    counts = phase.counts
    done = counts.sum(axis=1)
    for i, rate in enumerate(phase.rate.tolist()):
        begin = i * phase.width
        row = {"run_id": run.run_id, "phase": phase.phase, "from, s": begin}
        row |= {"to, s": begin + phase.width, "bytes/s" if phase.bytes else "operations/s": rate}
        if phase.latency:
            row |= {"operations": done[i], "latency p50, s": quantile(counts[i], 0.5)}
            row |= {"latency p99, s": quantile(counts[i], 0.99)}
            row |= {"latency up to, s": quantile(counts[i], 1.0)}
        elif phase.latency_max is not None:
            row |= {"latency up to, s": phase.latency_max[i]}
        yield row
    if not phase.rate.size:
        for begin, end, rate in phase.iterations.tolist():
            row = {"run_id": run.run_id, "phase": phase.phase, "from, s": begin, "to, s": end}
            yield row | {"bytes/s" if phase.bytes else "operations/s": rate}


def quantile(counts: Integers, q: float) -> float:
    """Upper edge of the coarse bin that a share `q` of these stays below, s; NaN without any."""
    total = int(counts.sum())
    if not total:
        return float("nan")
    return float(EDGES[1 + np.searchsorted(np.cumsum(counts), np.ceil(q * total - 1e-9))])


def _document(run: RunTimeline) -> Json:
    phases = []
    for phase in run.phases:
        used = np.flatnonzero(phase.counts.any(axis=0))
        low, high = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 0)
        latency = {sort: table[:, low:high] for sort, table in phase.latency.items()}
        own = {name: value for name, value in vars(phase).items() if name != "latency"}
        edges = EDGES[low : high + 1] if used.size else np.zeros(0)
        phases.append({**own, "latency_edges": edges, "latency": latency})
    document: Json = plain({**vars(run), "phases": phases})
    return document


def drawable(found: Sequence[RunTimeline]) -> list[tuple[RunTimeline, tuple[PhaseTimeline, ...]]]:
    """Pages: a run, and at most MOST_PHASES of its phases."""
    return [
        (run, run.phases[first : first + MOST_PHASES])
        for run in found
        for first in range(0, len(run.phases), MOST_PHASES)
    ]


def narrowed(series: Array, width: float) -> tuple[Array, float]:
    """At most MOST_COLUMNS intervals: neighbours added up; and how wide they are then."""
    each = -(-len(series) // MOST_COLUMNS) or 1
    padded = np.zeros((-(-len(series) // each) * each, *series.shape[1:]), dtype=series.dtype)
    padded[: len(series)] = series
    return padded.reshape(-1, each, *series.shape[1:]).sum(axis=1), width * each
