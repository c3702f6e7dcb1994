"""What nmon, sar or collectl told of storage nodes, put onto runs that are in a store.

A run gets the samples of its time, one before and one after it.  All is looked at first: what does
not fit is told, and then nothing is written.  The runs' own files stay as they are (nodefile.py).
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fsmatrix.results.evidence.nodes import WatchedNode, moving, unit_of
from fsmatrix.results.evidence.stored import Json, texts
from fsmatrix.results.files import nodefile, runfile, safefile
from fsmatrix.results.files.nodefile import Watched
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import NODES, Store
from fsmatrix.results.formats.nodes.node_series import (
    Clock,
    NodeSeries,
    Spans,
    counted,
    known,
)
from fsmatrix.results.formats.parsed import ParseError
from fsmatrix.results.record import Floats, Monitor, Phase, window
from fsmatrix.results.units import plural
from fsmatrix.suite.campaign.yamlio import CampaignError, Problem
from fsmatrix.suite.importing.clockfit import Burst, ClockFit, fit
from fsmatrix.suite.importing.nodetext import NodeFile, here, zone_of

MOST = 256 << 20  # bytes of the series of one run
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Options:
    """What the user says about files."""

    hosts: Mapping[str, str] = field(default_factory=dict)  # file, or "" for all -> host
    zone: str | None = None  # of files that do not say theirs
    shifts: Mapping[str, float] = field(default_factory=dict)  # host, or "" for all -> seconds
    replace: bool = False
    dry: bool = False


@dataclass(frozen=True)
class RunTime:
    """When a run was at work."""

    run_id: str
    begin: float  # Unix time
    end: float
    shortest: float  # window of a phase, seconds
    bursts: tuple[Burst, ...]


@dataclass
class Taken:
    """What became of the files of one host."""

    host: str
    source: str
    files: tuple[str, ...]
    series: tuple[NodeSeries, ...]
    zone: str  # where it is from, too
    shift: float  # seconds by which its clock was ahead, as it was said
    fit: ClockFit | None = None
    runs: list[str] = field(default_factory=list)  # got series
    there: list[str] = field(default_factory=list)  # had the very same
    against: list[str] = field(default_factory=list)  # have others, and which tool told them
    notes: list[str] = field(default_factory=list)

    @property
    def interval(self) -> float:
        """Seconds between samples, of the coarsest file."""
        return max(series.interval for series in self.series)

    @property
    def span(self) -> tuple[float, float]:
        """Unix times of the runs' clock."""
        begin = min(float(series.begins[0]) for series in self.series)
        end = max(float(series.time[-1]) for series in self.series)
        return begin - self.shift, end - self.shift

    def watched(self) -> WatchedNode:
        """As it is stored with a run; an endless uncertainty is one that nothing bounds."""
        return WatchedNode(
            source=self.source,
            interval=round(self.interval, 6),
            offset=self.shift,
            uncertainty=round(self.fit.uncertainty(self.shift), 6) if self.fit else math.inf,
            more={"files": [Path(name).name for name in self.files], "zone": self.zone},
        )


@dataclass(frozen=True)
class Outcome:
    """What became of an import."""

    runs: int  # of the store, whose times are known
    taken: tuple[Taken, ...]
    damaged: tuple[str, ...]  # run files that cannot be read
    written: bool
    coarse: Mapping[str, str]  # host -> what its samples are too coarse for


def told(outcome: Outcome) -> dict[str, Json]:
    """An outcome as JSON."""
    return {
        "written": outcome.written and any(taken.runs for taken in outcome.taken),
        "runs_known": outcome.runs,
        "nodes": [
            {
                "host": taken.host,
                "source": taken.source,
                "files": list(taken.files),
                "runs": taken.runs,
                "already_there": taken.there,
                "first": taken.span[0],
                "last": taken.span[1],
                "interval": taken.interval,
                "zone": taken.zone,
                "shift": taken.shift,
                "clock_ahead": taken.fit.offset if taken.fit else None,
                "clock_bound": taken.fit.bound if taken.fit else None,
                "too_coarse": outcome.coarse.get(taken.host, ""),
                "notes": taken.notes,
            }
            for taken in outcome.taken
        ],
        "damaged": list(outcome.damaged),
    }


def sentences(outcome: Outcome, directory: Path) -> Iterator[tuple[str, str]]:
    """An outcome in words, and the style of each line."""
    for error in outcome.damaged:
        yield f"left out: {error}", "yellow"
    for taken in outcome.taken:
        verb = "put onto" if outcome.written else "would be put onto"
        begin, end = taken.span
        there = f", {len(taken.there)} have them already" if taken.there else ""
        yield (
            f"{taken.host}: {taken.source}, every {taken.interval:.3g} s, {shown(begin)} to "
            f"{shown(end, begin)} UTC: {verb} {len(taken.runs)} of "
            f"{plural(outcome.runs, 'run')} of {directory}{there}",
            "",
        )
        yield (
            f"{taken.host}: times are of {taken.zone}",
            "yellow" if "assumed" in taken.zone else "",
        )
        yield f"{taken.host}: {clock(taken)}", ""
        for note in filter(None, (outcome.coarse.get(taken.host, ""), *taken.notes)):
            yield f"{taken.host}: {note}", "yellow"


class Onto:
    """One import.  `run` does it."""

    def __init__(self, directory: Path, tool: str, options: Options = Options()) -> None:
        """LookupError if the tool is not known; ResultError if there is no store."""
        self.store = Store.open(directory)
        self.format = known(tool)
        self.options = options
        self._zone = zone_of(options.zone) if options.zone else None
        self._problems: list[Problem] = []
        self._damaged: list[str] = []

    def run(self, paths: Sequence[Path], progress: Progress | None = None) -> Outcome:
        """Import files; CampaignError with everything that does not fit: nothing is written."""
        paths = list({path.resolve(): path for path in paths}.values())
        self._check(paths)
        runs = list(self._runs())
        taken = self._read(paths, [(run.begin, run.end) for run in runs], progress)
        for each in taken:
            self._fit(each, runs)
        self._raise()
        if self.options.dry:
            self._match(taken, runs)
            self._raise()
        else:
            with self._locked():
                changes = self._match(taken, runs)
                self._raise()
                for run_id, watched in changes.items():
                    path = self.store.nodes_path(run_id)
                    safefile.make_folder(path.parent)
                    nodefile.write(path, watched)
        too_coarse = {each.host: text for each in taken if (text := coarse(each, runs))}
        written = not self.options.dry
        return Outcome(len(runs), tuple(taken), tuple(self._damaged), written, too_coarse)

    # -- what there is -----------------------------------------------------------------------
    def _raise(self) -> None:
        if self._problems:
            raise CampaignError(self._problems)

    def _problem(self, file: str, reason: str) -> None:
        self._problems.append(Problem(file, 0, "", reason))

    def _check(self, paths: Sequence[Path]) -> None:
        """Options that name files which are not there."""
        names = {"", *map(str, paths), *(path.name for path in paths)}
        for name in self.options.hosts:
            if name not in names:
                self._problem(f"--host {name}", "names no file of this import")
        if "" in self.options.hosts and len(paths) > 1 and self.format.name != "collectl":
            reason = "several files: say whose each is, --host FILE=NAME"
            self._problem(f"--host {self.options.hosts['']}", reason)
        self._raise()

    def _runs(self) -> Iterator[RunTime]:
        for path in self.store.files():
            try:
                phases = [p for p in runfile.read_phases(path) if p.began > 0 and p.start.size]
            except ResultError as error:
                self._damaged.append(str(error))
                continue
            if phases:
                yield RunTime(
                    path.stem,
                    min(phase.began + float(np.min(phase.start)) for phase in phases),
                    max(phase.began + float(np.max(phase.end)) for phase in phases),
                    min(map(window, phases)),
                    tuple(burst for phase in phases for burst in _bursts(phase)),
                )

    # -- files -------------------------------------------------------------------------------
    def _read(
        self, paths: Sequence[Path], spans: Sequence[tuple[float, float]], tell: Progress | None
    ) -> list[Taken]:
        """The series of each host; what is wrong with files is a problem."""
        found: dict[str, list[tuple[str, NodeSeries, str]]] = {}
        for done, path in enumerate(paths, 1):
            try:
                series, zone = self._series(NodeFile(path), spans)
                found.setdefault(series.host, []).append((str(path), series, zone))
            except ParseError as error:
                self._problem(str(path), error.reason)
            if tell is not None:
                tell(done, len(paths))
        for name in self.options.shifts:
            if name and name not in found:
                self._problem(f"--shift {name}", f"no file is of that host: {', '.join(found)}")
        taken = []
        for host, files in found.items():
            self._refuse_twice(host, files)
            notes = [f"{name}: {note}" for name, series, _ in files for note in series.notes]
            each = Taken(
                host,
                self.format.name,
                tuple(name for name, _, _ in files),
                tuple(series for _, series, _ in files),
                "; ".join(dict.fromkeys(zone for _, _, zone in files)),
                self._shift(host),
                notes=notes,
            )
            taken.append(each)
        return taken

    def _shift(self, host: str) -> float:
        return self.options.shifts.get(host, self.options.shifts.get("", 0.0))

    def _series(
        self, text: NodeFile, spans: Sequence[tuple[float, float]]
    ) -> tuple[NodeSeries, str]:
        """What a file tells near the runs, and which zone its times are of."""
        try:
            head = self.format.head(text)
        except ParseError as error:
            if self.format.wanted in error.reason:
                raise
            reason = f"{error.reason}; what is read of {self.format.name} is {self.format.wanted}"
            raise ParseError(text.name, 0, reason) from None
        hosts = self.options.hosts
        host = hosts.get(text.name) or hosts.get(text.path.name) or hosts.get("") or head.host
        if not host:
            raise ParseError(text.name, 0, f"does not say its host: --host {text.name}=NAME")
        if head.zone is not None:
            zone = f"{head.zone} as the file says"
        elif self._zone is not None:
            zone = f"{self.options.zone} as --zone says"
        else:
            zone = f"{here()}, this machine's zone, was assumed: the file says none (--zone)"
        clock = Clock(head.zone or self._zone)
        wanted = Spans.of(spans, self._shift(host))
        return self.format.parse(text, replace(head, host=host), clock, wanted), zone

    def _refuse_twice(self, host: str, files: Sequence[tuple[str, NodeSeries, str]]) -> None:
        """Files of one host may tell other series, or those of other times."""
        for index, (name, series, _) in enumerate(files):
            for before, other, _ in files[:index]:
                apart = series.begins[0] >= other.time[-1] or other.begins[0] >= series.time[-1]
                both = _names(series) & _names(other)
                if both and not apart:
                    reason = f"tells {min(both)} of {host} at the same time as {before}"
                    self._problem(name, f"{reason}: import one of them")

    # -- runs --------------------------------------------------------------------------------
    def _fit(self, taken: Taken, runs: Sequence[RunTime]) -> None:
        bursts = [burst for run in runs for burst in run.bursts]
        for series in taken.series:
            found = fit(bursts, series.begins, series.time, series.moved, series.resolution)
            if found and (taken.fit is None or found.bound < taken.fit.bound):
                taken.fit = found

    def _match(self, taken: Sequence[Taken], runs: Sequence[RunTime]) -> dict[str, Watched]:
        """What is to be written, by run; everything that does not fit is a problem."""
        changes: dict[str, Watched] = {}
        for run in runs:
            parts = [(each, cut(each, run)) for each in taken]
            there = [(each, monitor) for each, monitor in parts if monitor is not None]
            if there:
                watched = self._added(run, there)
                if watched is not None:
                    changes[run.run_id] = watched
        for each in taken:
            if each.against:
                count = plural(len(each.against), "run")
                reason = f"{count} with other series of {each.host} already: {each.against[0]}"
                self._problem(each.files[0], f"{reason}: --replace puts these in their place")
            elif not each.runs and not each.there:
                self._problem(each.files[0], _nowhere(each, runs))
        return changes

    def _added(self, run: RunTime, parts: Sequence[tuple[Taken, Monitor]]) -> Watched | None:
        """The nodes of a run with those of `parts`; None if that changes nothing."""
        record = runfile.read_run(self.store.path(run.run_id))
        path = self.store.nodes_path(run.run_id)
        before = nodefile.read_watched(path) if path.exists() else None
        if before is not None and before.started != record.started:
            before = None
        nodes = dict(before.nodes) if before else {}
        monitor = before.monitor if before else None
        changed = False
        for taken, part in parts:
            old = nodes.get(taken.host)
            if old and monitor and _same(monitor, part):
                taken.there.append(run.run_id)
                continue
            own = record.evidence.nodes.get(taken.host)
            if self.options.replace:
                monitor, old = monitor and nodefile.without(monitor, part.hosts), None
            elif (own and not own.why_not) or (
                old and monitor and not _may(taken, old, monitor, part)
            ):
                source = (old or own or taken).source
                taken.against.append(f"{run.run_id} has them by {source}")
                continue
            monitor = nodefile.joined([m for m in (monitor, part) if m and m.hosts])
            nodes[taken.host] = _with(old, taken.watched())
            taken.runs.append(run.run_id)
            changed = True
            if monitor.time.size * len(monitor.hosts) * len(monitor.series) * 8 > MOST:
                reason = f"the series of run {run.run_id} would need more than {MOST >> 20} MiB"
                self._problem(taken.files[0], reason)
        return Watched(record.started, nodes, monitor) if changed and monitor else None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """No other import writes meanwhile."""
        folder = self.store.directory / NODES
        safefile.make_folder(folder)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise ResultError(folder, "another import is writing there: try again") from None
        finally:
            os.close(handle)


def cut(taken: Taken, run: RunTime) -> Monitor | None:
    """The samples of a run's time, one before and one after; None if there is none of its time."""
    monitors = [m for series in taken.series if (m := _cut(series, taken, run)) is not None]
    return nodefile.joined(monitors) if monitors else None


def _cut(series: NodeSeries, taken: Taken, run: RunTime) -> Monitor | None:
    begin, end = run.begin + taken.shift, run.end + taken.shift
    during = (series.begins < end) & (series.time > begin)
    if not during.any():
        return None
    low = max(0, int(np.searchsorted(series.time, begin, side="right")) - 1)
    high = min(series.time.size, int(np.searchsorted(series.time, end)) + 2)
    ends, begins = series.time[low:high], series.begins[low:high]
    time = np.union1d(ends, begins)
    values: dict[str, Floats] = {}
    for columns in series.columns:
        first, last = np.searchsorted(columns.rows, (low, high))
        at = np.searchsorted(time, series.time[columns.rows[first:last]])
        table = np.asarray(columns.values[first:last], dtype=np.float64)
        table[~(np.isfinite(table) & (table >= 0))] = np.nan
        for place, name in enumerate(columns.names):
            row = values.setdefault(name, np.full((1, time.size), np.nan))
            row[0, at] = table[:, place]
    values = _of_use(values)
    units = {name: unit_of(name) for name in values}
    return Monitor((taken.host,), time - taken.shift, values, units)


def _of_use(values: Mapping[str, Floats]) -> dict[str, Floats]:
    """Without partitions and what never moved; shares are 1 at most."""
    whole = {name: values[name] for name in counted(values)}
    kept = {name: whole[name] for name in moving(whole)} or whole
    for name, value in kept.items():
        if unit_of(name) == "1" and not name.startswith("disk_queue:"):
            np.minimum(value, 1.0, out=value)
    return kept


def _told(monitor: Monitor, host: str) -> tuple[Floats, dict[str, Floats]]:
    """Times and values of one host, without what it does not have."""
    row = monitor.hosts.index(host)
    series = {name: v[row] for name, v in monitor.series.items() if np.isfinite(v[row]).any()}
    if not series:
        return np.empty(0), {}
    known = np.isfinite(np.array(list(series.values()))).any(axis=0)
    return monitor.time[known], {name: values[known] for name, values in series.items()}


def _same(monitor: Monitor, part: Monitor) -> bool:
    """Whether a monitor has these series of a host already."""
    (time, series), (now, new) = (_told(each, part.hosts[0]) for each in (monitor, part))
    at = np.searchsorted(time, now)
    if not new or (at >= time.size).any() or not np.array_equal(time[at], now):
        return False
    return all(n in series and np.array_equal(series[n][at], v, True) for n, v in new.items())


def _may(taken: Taken, node: WatchedNode, monitor: Monitor, part: Monitor) -> bool:
    """Whether series of a host come to others of it: other ones of the same tool and clock."""
    has = set(_told(monitor, taken.host)[1])
    alike = node.source == taken.source and node.offset == taken.shift
    return alike and not has & set(part.series)


def _with(old: WatchedNode | None, new: WatchedNode) -> WatchedNode:
    """What is known of a node from files that came one after the other."""
    if old is None:
        return new
    files = dict.fromkeys([*texts({"files": (), **old.more}, "files"), *texts(new.more, "files")])
    return replace(
        new,
        interval=max(old.interval or 0.0, new.interval or 0.0),
        uncertainty=min(old.uncertainty, new.uncertainty),
        more={**old.more, **new.more, "files": list(files)},
    )


def _names(series: NodeSeries) -> set[str]:
    return {name for columns in series.columns for name in columns.names}


def _bursts(phase: Phase) -> Iterator[Burst]:
    """What the clients moved: by interval where that is known."""
    if phase.interval > 0 and phase.interval_bytes is not None and phase.interval_bytes.size:
        for index, size in enumerate(phase.interval_bytes.tolist()):
            begin = phase.began + index * phase.interval
            yield begin, begin + phase.interval, float(size)
    elif window(phase) > 0:
        begin, end = float(np.min(phase.start)), float(np.max(phase.end))
        yield phase.began + begin, phase.began + end, float(phase.bytes.sum())


def _nowhere(taken: Taken, runs: Sequence[RunTime]) -> str:
    begin, end = taken.span
    text = (
        f"0 of {plural(len(runs), 'run')} lie in {shown(begin)} to {shown(end, begin)} UTC "
        f"of {taken.host}"
    )
    if runs:
        first, last = min(run.begin for run in runs), max(run.end for run in runs)
        text += f"; the runs lie in {shown(first)} to {shown(last, first)} UTC"
    if taken.fit is not None:
        text += f"; {clock(taken)}"
    return text


def clock(taken: Taken) -> str:
    """What is known of a node's clock, as a sentence."""
    if taken.fit is None:
        return "nothing bounds its clock (no link of it moved as the clients did)"
    ahead = taken.fit.offset - taken.shift
    way = "behind" if ahead < 0 else "ahead of"
    text = (
        f"its clock is {abs(ahead):.1f} s {way} the runs' by what fits, +- {taken.fit.bound:.1f} s"
    )
    if abs(ahead) > taken.fit.bound:
        text += f" (--shift {taken.host}={taken.fit.offset:.1f} takes that out)"
    return text


def coarse(taken: Taken, runs: Sequence[RunTime]) -> str:
    """Why samples cannot tell of single windows; empty if they can."""
    mine = {*taken.runs, *taken.there}
    shortest = min((run.shortest for run in runs if run.run_id in mine), default=np.inf)
    if taken.interval <= shortest:
        return ""
    return (
        f"{taken.interval:.3g} s samples: too coarse for windows of {shortest:.2g} s; "
        "usable over the block"
    )


def shown(time: float, after: float | None = None) -> str:
    """A Unix time in UTC; of the same day as `after` without the date."""
    at = datetime.fromtimestamp(time, UTC)
    same = after is not None and datetime.fromtimestamp(after, UTC).date() == at.date()
    return at.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M:%S")
