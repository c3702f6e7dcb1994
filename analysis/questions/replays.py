"""What replays played, beside what had been captured: by kind, by class of files, and fidelity.

Reads the column `replay` of a campaign (docs/results.md).  Counts are sums over the runs of a cell,
latencies are pooled over them: histograms add.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.data.axes import factor_columns
from fsmatrix.analysis.data.columns import combined
from fsmatrix.analysis.data.factors import roles, rows_by_group
from fsmatrix.analysis.data.load import Rows, rows
from fsmatrix.analysis.data.summary import current
from fsmatrix.analysis.units import MISSING, fitting, labelled
from fsmatrix.results import histogram
from fsmatrix.results.evidence.replay import Amount, PlayedKind, Replayed
from fsmatrix.results.evidence.stored import StoredError, read
from fsmatrix.results.units import plural

COLUMN = "replay"
MOST_CELLS = 24


@dataclass(frozen=True)
class KindLine:
    """One kind of operation, as text."""

    kind: str
    captured: str  # operations
    played: str
    agreed: str  # share of the captured ones
    captured_bytes: str
    bytes: str
    captured_p50: str
    p50: str
    captured_p99: str
    p99: str
    notes: str


@dataclass(frozen=True)
class ClassLine:
    """One class of files, as text."""

    name: str
    captured: str
    played: str
    captured_bytes: str
    bytes: str
    captured_mean: str  # latency
    mean: str


@dataclass(frozen=True)
class ReplayCell:
    """The replays of one cell."""

    named: str
    trace: str
    runs: int
    fidelity: float  # the lowest of the runs
    declared: float
    says: tuple[str, ...]
    kinds: tuple[KindLine, ...]
    classes: tuple[ClassLine, ...]

    @property
    def shown_fidelity(self) -> str:
        """The lowest of the runs, as text."""
        return _share(self.fidelity)


@dataclass(frozen=True)
class Replays:
    """All cells with replays, up to a number of them."""

    cells: tuple[ReplayCell, ...]
    more: int  # cells that are not shown


def replays(ds: xr.Dataset, most: int = MOST_CELLS) -> Replays | None:
    """The replays of a campaign's last attempts; None if it has none."""
    data = rows(ds)
    if COLUMN not in data.columns:
        return None
    kept = (data[COLUMN] != "") & (data["status"] == "ok") & current(data)
    if not kept.any():
        return None
    factors = factor_columns(ds, data.factors)
    first, group = combined([axis.codes for axis in factors.values()], len(data))
    few = {name: np.array(axis.levels)[axis.codes[first]] for name, axis in factors.items()}
    varying = roles(few, data["phase"][first] != "")[0]
    places = np.flatnonzero(kept)
    parts = [places[part] for part in rows_by_group(group[places])]
    order = sorted(parts, key=lambda part: [int(factors[n].codes[part[0]]) for n in varying])
    cells = []
    for part in order[:most]:
        levels = {name: factors[name].levels[factors[name].codes[part[0]]] for name in varying}
        named = ", ".join(labelled(name, levels[name]) for name in varying if name != "trace")
        if (cell := _cell(ds, data, part.tolist(), named)) is not None:
            cells.append(cell)
    return Replays(tuple(cells), max(len(parts) - most, 0)) if cells else None


def _cell(ds: xr.Dataset, data: Rows, part: Sequence[int], named: str) -> ReplayCell | None:
    runs = [seen for row in part if (seen := _read(str(data[COLUMN][row]))) is not None]
    if not runs:
        return None
    latencies = _latencies(ds, part)
    return ReplayCell(
        named=named or "the only case",
        trace=runs[0].trace,
        runs=len(runs),
        fidelity=min(seen.fidelity for seen in runs),
        declared=runs[0].declared_fidelity,
        says=tuple(_says(runs)),
        kinds=tuple(_kinds(runs, latencies)),
        classes=tuple(_classes(runs)),
    )


def _read(text: str) -> Replayed | None:
    try:
        return read(Replayed, json.loads(text), COLUMN)
    except (ValueError, StoredError, RecursionError):
        return None


def _latencies(ds: xr.Dataset, part: Iterable[int]) -> dict[str, np.ndarray]:
    """Pooled histograms by kind."""
    pooled: dict[str, np.ndarray] = {}
    if "latency_first" not in ds or "kind_name" not in ds:
        return pooled
    names = [str(name) for name in ds["kind_name"].values]
    first, size = ds["latency_first"].values, ds["latency_size"].values
    for row in part:
        span = slice(int(first[row]), int(first[row] + size[row]))
        kind, bin_, count = (
            ds[f"latency_{name}"][span].values for name in ("kind", "bin", "count")
        )
        for number in np.unique(kind).tolist():
            counts = pooled.setdefault(names[number], np.zeros(histogram.BINS, np.int64))
            np.add.at(counts, bin_[kind == number], count[kind == number])
    return pooled


def _says(runs: Sequence[Replayed]) -> Iterator[str]:
    seen = runs[0]
    operations, agreed = (sum(getattr(t, n) for t in runs) for n in ("operations", "agreed"))
    lowest = min(t.fidelity for t in runs)
    declared = _share(seen.declared_fidelity)
    yield (
        f"Fidelity {_share(lowest)} (declared: at least {declared}): {agreed} of {operations} "
        "operations had the captured outcome."
    )
    yield from _how(seen)
    for words, name in (
        ("failed with the captured errno", "errors_as_captured"),
        ("failed differently than captured", "errors_otherwise"),
    ):
        errors = _added(getattr(t, name) for t in runs)
        if errors:
            shown = ", ".join(f"{count} x {number}" for number, count in errors.items())
            yield f"{sum(errors.values())} operations {words}: {shown}."
    left = _added(t.left_out for t in runs)
    if left:
        shown = ", ".join(f"{count} {kind}" for kind, count in left.items())
        yield f"Not chosen by window, files and kinds: {shown}."
    issue = [t.issue_error for t in runs if t.issue_error is not None]
    if issue:
        worst = max(issue, key=lambda error: error.mean)
        unit = fitting("time", [worst.mean, worst.longest])
        p99 = "" if worst.p99 is None else f"99 % below {units.text(worst.p99, unit)}, "
        yield (
            f"Issued late by {units.text(worst.mean, unit)} {unit.label} on average, {p99}at most "
            f"{units.text(worst.longest, unit)} {unit.label}; {_share(worst.within_100us)} within "
            "100 µs of their time."
        )


def _how(seen: Replayed) -> Iterator[str]:
    mode = {
        "closed": "each captured thread's operations one after the other",
        "queue": "reads and writes as fast as possible from a shared queue",
        "timed": "at the captured times",
    }.get(seen.mode, seen.mode)
    scale = f", times scaled by {seen.time_scale:g}" if seen.time_scale not in (0, 1) else ""
    clients = f" by {seen.clients} clients, each all of it" if seen.clients > 1 else ""
    threads = f"; {plural(seen.threads, 'captured thread')} in all ranks" if seen.threads else ""
    yield f"Played{clients}: {mode}{scale}{threads}."
    for count, words in (
        (seen.barriers, "barriers kept the order between threads"),
        (seen.sharing, "threads shared a lane with another of their time"),
        (seen.widened, "operations were widened to what O_DIRECT can do"),
        (seen.buffered, "operations went without O_DIRECT, not being aligned"),
        (seen.added, "opens and closes were added that the trace does not have"),
        (seen.added_failed, "of those failed"),
    ):
        if count:
            yield f"{count} {words} (first run)."
    if seen.fill == "sparse":
        yield "Files were made sparse: holes are read from no device."


def _kinds(runs: Sequence[Replayed], latencies: Mapping[str, np.ndarray]) -> Iterator[KindLine]:
    for name in dict.fromkeys(kind for seen in runs for kind in seen.kinds):
        of = [seen.kinds[name] for seen in runs if name in seen.kinds]
        captured = sum(kind.captured.operations for kind in of)
        agreed = sum(kind.agreed for kind in of)
        counts = latencies.get(name)
        own = [
            float("nan") if counts is None else histogram.percentile(counts, q) for q in (0.5, 0.99)
        ]
        before = of[0].captured
        yield KindLine(
            kind=name,
            captured=f"{captured:,}",
            played=f"{sum(kind.played for kind in of):,}",
            agreed=_share(agreed / captured) if captured else MISSING,
            captured_bytes=_size(sum(kind.captured.bytes for kind in of)),
            bytes=_size(sum(kind.bytes for kind in of)),
            captured_p50=_time(before.p50),
            p50=_time(own[0]),
            captured_p99=_time(before.p99),
            p99=_time(own[1]),
            notes="; ".join(_notes(of)),
        )


def _notes(of: Sequence[PlayedKind]) -> Iterator[str]:
    for reason, count in _added(kind.skipped for kind in of).items():
        yield f"{count} skipped: {reason}"
    for name, words in (
        ("failed_as_captured", "failed as captured"),
        ("failed_otherwise", "failed differently"),
        ("succeeded_otherwise", "succeeded but failed in the capture"),
        ("other_bytes", "moved another number of bytes"),
        ("short", "short"),
    ):
        if count := sum(getattr(kind, name) for kind in of):
            yield f"{count} {words}"


def _classes(runs: Sequence[Replayed]) -> Iterator[ClassLine]:
    for name in dict.fromkeys(kind for seen in runs for kind in seen.classes):
        of = [seen.classes[name] for seen in runs if name in seen.classes]
        captured, played = _sum(c.captured for c in of), _sum(c.played for c in of)
        yield ClassLine(
            name=name,
            captured=f"{captured.operations:,}",
            played=f"{played.operations:,}",
            captured_bytes=_size(captured.bytes),
            bytes=_size(played.bytes),
            captured_mean=_time(captured.seconds / max(captured.operations, 1) or None),
            mean=_time(played.seconds / max(played.operations, 1) or None),
        )


def _sum(amounts: Iterable[Amount]) -> Amount:
    every = list(amounts)
    return Amount(
        operations=sum(a.operations for a in every),
        bytes=sum(a.bytes for a in every),
        seconds=sum(a.seconds for a in every),
    )


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for of in counts:
        for name, count in of.items():
            total[name] = total.get(name, 0) + count
    return total


def _share(share: float) -> str:
    """Per cent; what is not all never reads as 100 %."""
    return "100 %" if share >= 1 else f"{min(100 * share, 99.99):.4g} %"


def _size(count: int) -> str:
    return units.size(count) if count else MISSING


def _time(seconds: float | None) -> str:
    if seconds is None or not np.isfinite(seconds):
        return MISSING
    unit = fitting("time", [seconds])
    return f"{units.text(seconds, unit)} {unit.label}"
