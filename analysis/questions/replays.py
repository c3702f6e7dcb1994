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
from fsmatrix.analysis.data.columns import combined
from fsmatrix.analysis.data.factors import roles, rows_by_group
from fsmatrix.analysis.data.load import Rows, rows
from fsmatrix.analysis.data.matrices import factor_columns
from fsmatrix.analysis.traces import added, played_says, share, summary_says
from fsmatrix.analysis.units import MISSING, described, fitting
from fsmatrix.results import histogram
from fsmatrix.results.evidence.replay import Amount, PlayedKind, Replayed
from fsmatrix.results.evidence.stored import StoredError, read

COLUMN = "replay"
MOST_CELLS = 24
NOT_LOOKED = (
    "Not looked at: too long for it, or of an earlier version; fsmatrix trace info does it."
)


@dataclass(frozen=True)
class KindLine:
    """One kind of operation, as text."""

    kind: str
    captured: str  # operations
    played: str
    agreed: str  # share of the captured ones
    captured_rate: str  # operations per second
    rate: str
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
    captured_rate: str
    rate: str
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
    like: tuple[str, ...]  # what the trace is like
    kinds: tuple[KindLine, ...]
    classes: tuple[ClassLine, ...]

    @property
    def shown_fidelity(self) -> str:
        """The lowest of the runs, as text."""
        return share(self.fidelity)


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
    kept = (data[COLUMN] != "") & ~data.failed & data.current
    if not kept.any():
        return None
    factors = factor_columns(ds, data.factors)
    first, group = combined([axis.codes for axis in factors.values()], len(data))
    few = {name: np.array(axis.levels)[axis.codes[first]] for name, axis in factors.items()}
    own = np.isin(data["phase"][first], np.unique(data["phase"][kept]))  # not of their fsyncs
    varying = roles(few, own)[0]
    places = np.flatnonzero(kept)
    parts = [places[part] for part in rows_by_group(group[places])]
    order = sorted(parts, key=lambda part: [int(factors[n].codes[part[0]]) for n in varying])
    cells = []
    for part in order[:most]:
        levels = {name: factors[name].levels[factors[name].codes[part[0]]] for name in varying}
        named = described(levels, (name for name in varying if name != "trace"))
        if (cell := _cell(ds, data, part.tolist(), named)) is not None:
            cells.append(cell)
    return Replays(tuple(cells), max(len(parts) - most, 0)) if cells else None


def _cell(ds: xr.Dataset, data: Rows, part: Sequence[int], named: str) -> ReplayCell | None:
    read_back = {row: seen for row in part if (seen := _read(str(data[COLUMN][row]))) is not None}
    runs = list(read_back.values())
    if not runs:
        return None
    seconds = float(sum(data["window"][row] for row in read_back))
    latencies, like = _latencies(ds, part), runs[0].like
    return ReplayCell(
        named=named or "the only case",
        trace=runs[0].trace,
        runs=len(runs),
        fidelity=min(seen.fidelity for seen in runs),
        declared=runs[0].declared_fidelity,
        says=tuple(played_says(runs)),
        like=tuple(summary_says(like)) if like else (NOT_LOOKED,),
        kinds=tuple(_kinds(runs, latencies, seconds)),
        classes=tuple(_classes(runs, seconds)),
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


def _kinds(
    runs: Sequence[Replayed], latencies: Mapping[str, np.ndarray], seconds: float
) -> Iterator[KindLine]:
    for name in dict.fromkeys(kind for seen in runs for kind in seen.kinds):
        of = [seen.kinds[name] for seen in runs if name in seen.kinds]
        captured = sum(kind.captured.operations for kind in of)
        played = sum(kind.played for kind in of)
        agreed = sum(kind.agreed for kind in of)
        counts = latencies.get(name)
        own = [
            float("nan") if counts is None else histogram.percentile(counts, q) for q in (0.5, 0.99)
        ]
        before = of[0].captured
        yield KindLine(
            kind=name,
            captured=f"{captured:,}",
            played=f"{played:,}",
            agreed=share(agreed / captured) if captured else MISSING,
            captured_rate=_rate(of[0].captured.operations, runs[0].captured_seconds),
            rate=_rate(played, seconds),
            captured_bytes=_size(sum(kind.captured.bytes for kind in of)),
            bytes=_size(sum(kind.bytes for kind in of)),
            captured_p50=_time(before.p50),
            p50=_time(own[0]),
            captured_p99=_time(before.p99),
            p99=_time(own[1]),
            notes="; ".join(_notes(of)),
        )


def _notes(of: Sequence[PlayedKind]) -> Iterator[str]:
    for reason, count in added(kind.skipped for kind in of).items():
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


def _classes(runs: Sequence[Replayed], seconds: float) -> Iterator[ClassLine]:
    for name in dict.fromkeys(kind for seen in runs for kind in seen.classes):
        of = [seen.classes[name] for seen in runs if name in seen.classes]
        captured, played = _sum(c.captured for c in of), _sum(c.played for c in of)
        yield ClassLine(
            name=name,
            captured=f"{captured.operations:,}",
            played=f"{played.operations:,}",
            captured_rate=_rate(of[0].captured.operations, runs[0].captured_seconds),
            rate=_rate(played.operations, seconds),
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


def _size(count: int) -> str:
    return units.size(count) if count else MISSING


def _time(seconds: float | None) -> str:
    if seconds is None or not np.isfinite(seconds):
        return MISSING
    unit = fitting("time", [seconds])
    return f"{units.text(seconds, unit)} {unit.label}"


def _rate(operations: int, seconds: float | None) -> str:
    """Operations per second; missing where the time is not known."""
    return units.number(operations / seconds) if seconds and np.isfinite(seconds) else MISSING
