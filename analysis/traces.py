"""The properties of a trace in sentences, tables and a picture.

From outside: `shown.TraceShown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fsmatrix.analysis import units
from fsmatrix.analysis.draw import drawing
from fsmatrix.analysis.draw.panels import INK
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.units import brief, fitting, number, rounded_size, size
from fsmatrix.results.evidence.replay import Replayed
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.evidence.trace import (
    Order,
    PageReuse,
    TraceStatistics,
    TraceSummary,
    WorkingSet,
    gaps,
)
from fsmatrix.results.units import plural, printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fsmatrix.results.evidence.trace import Band, Windows


# What a trace is like, in sentences: for `fsmatrix trace info` and for reports of its replays.


CACHES = (1 / 64, 1 / 8, 1.0)  # of the bytes of unique pages


def summary_says(of: TraceSummary) -> Iterator[str]:
    """Pages and caches, working set, reads and writes, their order."""
    if of.reuse:
        yield from _pages(of.reuse)
    if of.working_set:
        yield _working_set(of.working_set)
    if of.reads + of.writes:
        yield _mix(of)
    yield from _order("reads", of.read_order)
    yield from _order("writes", of.write_order)


def _working_set(of: WorkingSet) -> str:
    """The unit is s or operations."""
    return (
        f"The working set, pages touched within {brief(of.length)} {of.unit}, is "
        f"{rounded_size(round(of.median))} in the median and {rounded_size(round(of.largest))} at "
        "most."
    )


def _mix(of: TraceSummary) -> str:
    transfers, moved = of.reads + of.writes, of.read_bytes + of.written_bytes
    text = f"Of {transfers} reads and writes, {100 * of.reads / transfers:.1f} % are reads"
    if not moved:
        return f"{text}."
    return f"{text}; of {rounded_size(moved)} moved, {100 * of.read_bytes / moved:.1f} % are read."


def _pages(of: PageReuse) -> Iterator[str]:
    """Numbers that are estimated carry two standard errors."""
    unique = f"{of.unique:.0f}" + (f" ± {2 * of.unique_error:.0f}" if of.unique_error else "")
    touched = rounded_size(round(of.unique) * of.page_bytes)
    yield (
        f"They touch {unique} unique pages of {size(of.page_bytes)} ({touched}), "
        f"each {number(of.accesses / of.unique)} times on average."
    )
    if of.rate < 1:
        yield (
            f"One page in {1 / of.rate:.0f} was followed ({of.followed} at the end): ± is two "
            "standard errors."
        )
    if of.distance_p50 is not None:
        yield (
            "Of the accesses to a page that was touched before, half have a reuse distance of at "
            f"most {rounded_size(of.distance_p50)}: bytes of other pages touched since."
        )
    points = list(dict.fromkeys(_points(of)))
    if points:
        misses = ", ".join(
            f"{rounded_size(cache)} {100 * ratio:.1f}{f' ± {200 * error:.1f}' if error else ''} %"
            for cache, ratio, error in points
        )
        yield f"An LRU cache, empty at the start, misses of all accesses to pages: with {misses}."


def _points(of: PageReuse) -> Iterator[tuple[int, float, float]]:
    curve = list(zip(of.cache_bytes, of.miss_ratio, of.miss_ratio_error, strict=True))
    for share in CACHES:
        wanted = share * of.unique * of.page_bytes
        larger = [point for point in curve if point[0] >= wanted]
        if larger:
            yield larger[0]


def _order(what: str, of: Order) -> Iterator[str]:
    if of.consecutive_share is not None and of.sequential_share is not None:
        yield (
            f"Of {of.transfers - of.first} {what} that have one before them on the handle, "
            f"{100 * of.consecutive_share:.1f} % begin where that one ended, "
            f"{100 * of.sequential_share:.1f} % there or beyond."
        )


# What a trace is like: the statistics of it (results/evidence/trace.py) for readers.


# How replays of one cell went, in sentences.


def played_says(runs: Sequence[Replayed]) -> Iterator[str]:
    """Fidelity, how it was played, errors, what was left out, and how late it was issued."""
    seen = runs[0]
    operations, agreed = (sum(getattr(t, n) for t in runs) for n in ("operations", "agreed"))
    lowest = min(t.fidelity for t in runs)
    declared = share(seen.declared_fidelity)
    yield (
        f"Fidelity {share(lowest)} (declared: at least {declared}): {agreed} of {operations} "
        "operations had the captured outcome."
    )
    yield from _how(seen)
    for words, name in (
        ("failed with the captured errno", "errors_as_captured"),
        ("failed differently than captured", "errors_otherwise"),
    ):
        errors = added(getattr(t, name) for t in runs)
        if errors:
            shown = ", ".join(f"{count} x {number}" for number, count in errors.items())
            yield f"{sum(errors.values())} operations {words}: {shown}."
    left = added(t.left_out for t in runs)
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
            f"{units.text(worst.longest, unit)} {unit.label}; {share(worst.within_100us)} within "
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


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts of several runs by name, as sums."""
    total: dict[str, int] = {}
    for of in counts:
        for name, count in of.items():
            total[name] = total.get(name, 0) + count
    return total


def share(share: float) -> str:
    """Per cent; what is not all never reads as 100 %."""
    return "100 %" if share >= 1 else f"{min(100 * share, 99.99):.4g} %"


# The picture of a trace: where, what, how large, found again, how fast, how much at a time.


READ, WRITE, OTHER = (drawing.colour(i) for i in (0, 5, 6))
COLOURS = {"reads": READ, "writes": WRITE, "others": OTHER}
TOUCHED = "#c8cdd3"
MOST_TICKS = 6  # on an axis of sizes
FAINTEST = 0.25  # opacity of a cell of the map with one operation


def draw(name: str, statistics: TraceStatistics) -> Figure:
    """Six panels."""
    figure, ((places, kinds, sizes), (misses, rates, working)) = drawing.frame(
        2, 3, title=f"Trace {_plain(name)}", notes=_notes(statistics), width=3.5, height=2.7
    )
    _map(places, statistics)
    _kinds(kinds, statistics)
    _sizes(sizes, statistics)
    _misses(misses, statistics.reuse)
    _rates(rates, statistics)
    _working(working, statistics.windows)
    drawing.legend(figure, [[rates, sizes]])
    return figure


def _plain(text: str) -> str:
    """Text of a trace; matplotlib would read formulas between dollar signs."""
    return printable(text).replace("$", r"\$")


def _notes(of: TraceStatistics) -> list[str]:
    notes = []
    if of.reuse and of.reuse.rate < 1:
        notes.append(
            f"Pages: one in {1 / of.reuse.rate:.0f} was followed; the band is two standard errors."
        )
    if not of.timed:
        notes.append("The trace has no times: only the order of its operations means anything.")
    if of.unseen:
        notes.append("Seen, but not in the trace: " + _plain(", ".join(of.unseen)) + ".")
    return notes


def _title(ax: Axes, text: str) -> None:
    ax.set_title(text, fontsize=drawing.MEDIUM, color=INK)


def _nothing(ax: Axes, why: str) -> None:
    ax.text(0.5, 0.5, why, ha="center", va="center", fontsize=drawing.SMALL, color=INK,
            transform=ax.transAxes)  # fmt: skip
    ax.set_axis_off()


# -- windows ----------------------------------------------------------------------------------
def _scale(windows: Windows) -> tuple[float, str]:
    """(what a window's length is divided by, label of the axis)."""
    total = windows.length * len(windows.reads)
    if windows.unit == "s":
        for divisor, label in ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
            if total >= 2 * divisor:
                return divisor, f"time, {label}"
        return 1e-6, "time, µs"
    for divisor, label in ((1e6, "millions of operations"), (1e3, "thousands of operations")):
        if total >= 2 * divisor:
            return divisor, label
    return 1.0, "operations"


def _edges(ax: Axes, windows: Windows) -> npt.NDArray[np.float64]:
    """Edges of the windows; labels the axis."""
    divisor, label = _scale(windows)
    edges: npt.NDArray[np.float64] = (
        np.arange(len(windows.reads) + 1, dtype=np.float64) * windows.length / divisor
    )
    ax.set_xlim(0, edges[-1])
    ax.set_xlabel(label, fontsize=drawing.SMALL, color=INK)
    return edges


def _map(ax: Axes, of: TraceStatistics) -> None:
    """Reads and writes of a sample: windows across, files of a class end to end upwards."""
    _title(ax, "Where in the files")
    if not of.bands:
        _nothing(ax, "no read or write moves a byte")
        return
    edges = _edges(ax, of.windows)
    bands = of.bands[::-1]  # the first at the top
    cells = np.concatenate([_cells(band, len(of.windows.reads)) for band in bands])
    counts = cells.sum(axis=-1)
    share = cells[..., 1] / np.maximum(counts, 1)
    from matplotlib.colors import to_rgb

    shades = np.array([to_rgb(READ), to_rgb(WRITE)])
    depth = np.log1p(counts) / np.log1p(counts.max())
    opacity = np.where(counts > 0, FAINTEST + (1 - FAINTEST) * depth, 0)
    image = np.dstack([(1 - share)[..., None] * shades[0] + share[..., None] * shades[1], opacity])
    ax.imshow(
        image, origin="lower", aspect="auto", interpolation="nearest",
        extent=(0, edges[-1], 0, len(image)),
    )  # fmt: skip
    ends = np.cumsum([band.rows for band in bands])
    for end in ends[:-1]:
        ax.axhline(end, color=INK, linewidth=0.6)
    ax.grid(visible=False)
    ax.set_yticks(ends - [band.rows / 2 for band in bands], [_band_label(band) for band in bands])
    ax.tick_params(axis="y", length=0)


def _cells(band: Band, windows: int) -> npt.NDArray[np.int64]:
    """[row, window, (reads, writes)]."""
    counts = np.stack([band.reads, band.writes], axis=-1)
    return counts.reshape(band.rows, windows, 2)


def _band_label(band: Band) -> str:
    name = band.name if len(band.name) <= 14 else band.name[:13] + "…"
    files = f"{band.files} file" + ("s" if band.files != 1 else "")
    return f"{_plain(name)}\n{files}, {rounded_size(band.bytes)}"


def _rates(ax: Axes, of: TraceStatistics) -> None:
    """Operations per second; without times, bytes moved in each window."""
    windows = of.windows
    edges = _edges(ax, windows)
    if windows.unit == "s":
        _title(ax, "Operations issued per second")
        series = {name: getattr(windows, name) for name in COLOURS}
        scale = 1 / windows.length
        label = "1/s"
    else:
        _title(ax, "Bytes moved per operation")
        per = np.maximum(np.add(np.add(windows.reads, windows.writes), windows.others), 1)
        series = {"reads": windows.read_bytes / per, "writes": windows.written_bytes / per}
        scale, label = 1.0, "B"
    for name, values in series.items():
        if np.any(values):
            ax.stairs(
                np.multiply(values, scale), edges, baseline=None, color=COLOURS[name], label=name
            )
    ax.set_ylim(0, 1.1 * scale * max(1, *(max(values) for values in series.values())))
    ax.set_ylabel(label, fontsize=drawing.SMALL, color=INK)


def _working(ax: Axes, windows: Windows) -> None:
    """Bytes of the pages that each window touches, and those of them that are new."""
    _title(ax, f"Working set of 1/{len(windows.reads)} of the trace")
    edges = _edges(ax, windows)
    if not any(windows.working_set):
        _nothing(ax, "no read or write moves a byte")
        return
    power = min(int(np.log2(max(windows.working_set)) // 10), 4)
    divisor, label = 1024.0**power, ("B", "KiB", "MiB", "GiB", "TiB")[power]
    ax.stairs(
        np.divide(windows.working_set, divisor), edges, fill=True, color=TOUCHED, label="touched"
    )
    new = np.multiply(windows.new_pages, 4096 / divisor)
    ax.stairs(new, edges, fill=True, color=drawing.colour(4), label="for the first time")
    ax.set_ylim(0, 1.3 * max(windows.working_set) / divisor)  # the legend stands above
    ax.set_ylabel(label, fontsize=drawing.SMALL, color=INK)
    ax.legend(fontsize=drawing.SMALL, frameon=False, loc="upper right", ncols=2)


# -- amounts ----------------------------------------------------------------------------------
def _kinds(ax: Axes, of: TraceStatistics) -> None:
    """Operations of each kind."""
    _title(ax, "Operations by kind")
    if not of.kinds:
        _nothing(ax, "no operations")
        return
    kinds = of.kinds[::-1]
    colour = {"read": READ, "write": WRITE}
    ax.barh(
        [kind.kind for kind in kinds],
        [kind.operations for kind in kinds],
        color=[colour.get(kind.kind, OTHER) for kind in kinds],
        height=0.7,
    )
    ax.set_xscale("log")
    ax.set_xlim(0.5, 200 * max(kind.operations for kind in kinds))
    for place, kind in enumerate(kinds):
        text = _count(kind.operations) + (f", {_count(kind.failed)} failed" if kind.failed else "")
        ax.text(kind.operations * 1.2, place, text,
                va="center", fontsize=drawing.SMALL, color=INK)  # fmt: skip
    ax.minorticks_off()
    ax.grid(visible=False)


def _count(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")


def _sizes(ax: Axes, of: TraceStatistics) -> None:
    """Requests by size: bars of powers of two."""
    _title(ax, "Sizes of reads and writes")
    drawn = [kind for kind in of.kinds if kind.sizes and kind.kind in ("read", "write")]
    if not drawn:
        _nothing(ax, "no reads and writes")
        return
    least = min(np.flatnonzero(kind.sizes.by_bits)[0] for kind in drawn if kind.sizes)
    most = max(len(kind.sizes.by_bits) for kind in drawn if kind.sizes)
    wide = 0.8 / len(drawn)
    for place, kind in enumerate(sorted(drawn, key=lambda kind: kind.kind)):
        assert kind.sizes is not None
        shares = 100 * np.array(kind.sizes.by_bits[least:]) / kind.operations
        at = np.arange(least, least + len(shares)) + (place - (len(drawn) - 1) / 2) * wide
        ax.bar(at, shares, wide, color=COLOURS[f"{kind.kind}s"], label=f"{kind.kind}s")
    step = -(-(most - least) // MOST_TICKS)
    ticks = range(least, most, step)
    ax.set_xticks(list(ticks), [size(2.0 ** (bits - 1)) if bits else "0" for bits in ticks])
    middle, half = (least + most - 1) / 2, max((most - least) / 2 + 0.2, 1.5)
    ax.set_xlim(middle - half, middle + half)
    ax.set_xlabel("from this size to the next power of two", fontsize=drawing.SMALL, color=INK)
    ax.set_ylabel("% of its kind", fontsize=drawing.SMALL, color=INK)


def _misses(ax: Axes, reuse: PageReuse | None) -> None:
    """Miss ratio of an LRU cache, over its size."""
    _title(ax, "Misses of an LRU page cache")
    if reuse is None or not reuse.cache_bytes:
        _nothing(ax, "no read or write moves a byte" if reuse is None else "too few pages followed")
        return
    cache, ratio = np.array(reuse.cache_bytes), 100 * np.array(reuse.miss_ratio)
    error = 200 * np.array(reuse.miss_ratio_error)
    if error.any():
        ax.fill_between(cache, np.maximum(ratio - error, 0), np.minimum(ratio + error, 100),
                        color=TOUCHED, linewidth=0)  # fmt: skip
    ax.plot(cache, ratio, color=drawing.colour(0), marker="." if len(cache) < 3 else "")
    ax.set_xscale("log", base=2)
    low, high = np.log2(cache[0]), np.log2(max(cache[-1], 2 * cache[0]))
    step = max(1, -(-int(high - low) // MOST_TICKS))
    ticks = np.arange(np.ceil(low), high + 0.01, step)
    ax.set_xticks(2.0**ticks, [size(2.0**tick) for tick in ticks])
    ax.minorticks_off()
    ax.set_ylim(0, 103)
    ax.set_xlabel("size of the cache", fontsize=drawing.SMALL, color=INK)
    ax.set_ylabel("% of accesses to pages", fontsize=drawing.SMALL, color=INK)


MOST_CLASSES = 12


@dataclass(frozen=True)
class TraceShown:
    """The statistics of one trace, as an analysis.result.Result."""

    name: str
    statistics: TraceStatistics

    @property
    def says(self) -> list[str]:
        """What it is, what it leaves out, pages and caches, mix, order."""
        of = self.statistics
        return [
            _what(of),
            *_unseen(of),
            *gaps(of.facts),
            *summary_says(of.summary),
            *_published(of),
        ]

    def table(self) -> pd.DataFrame:
        """One row per kind of operation; bytes, and latencies in µs where they were captured."""
        import pandas as pd

        rows = []
        for kind in self.statistics.kinds:
            sizes, latencies = kind.sizes, kind.latencies
            rows.append({
                "kind": kind.kind,
                "operations": kind.operations,
                "failed": kind.failed,
                "short": kind.short,
                "bytes moved": kind.moved if sizes else None,
                "bytes, least": sizes.smallest if sizes else None,
                "bytes, median": sizes.p50 if sizes else None,
                "bytes, mean": round(sizes.mean, 1) if sizes else None,
                "bytes, p99": sizes.p99 if sizes else None,
                "bytes, most": sizes.largest if sizes else None,
                "median, µs": _micros(latencies.p50) if latencies else None,
                "p99, µs": _micros(latencies.p99) if latencies else None,
            })  # fmt: skip
        frame = pd.DataFrame(rows, dtype=object)
        return frame.dropna(axis="columns", how="all")

    def classes(self) -> pd.DataFrame:
        """One row per class of files, those of most operations; bytes."""
        import pandas as pd

        rows = [
            {
                "files of class": each.name,
                "files": each.files,
                "operations": each.operations,
                "reads": each.reads,
                "writes": each.writes,
                "bytes read": each.read_bytes,
                "bytes written": each.written_bytes,
            }
            for each in self.statistics.classes[:MOST_CLASSES]
        ]
        return pd.DataFrame(rows, dtype=object)

    def figure(self) -> Figure:
        """Six panels: where, kinds, sizes, misses of caches, rates, working set."""
        return draw(self.name, self.statistics)

    def to_dict(self) -> dict[str, Json]:
        """All statistics (results/evidence/trace.py), and the sentences."""
        data: dict[str, Json] = plain({**self.statistics.document(), "says": self.says})
        return data


def _micros(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def _what(of: TraceStatistics) -> str:
    command = f" ({' '.join(of.command)})" if of.command else ""
    why = f" ({of.facts['no_times']})" if "no_times" in of.facts else ""
    times = f"only their order means anything{why}"
    if of.seconds is not None:
        times = f"in {brief(of.seconds)} s"
    noun = "directory" if of.directories == 1 else "directories"
    directories = f" and {of.directories} {noun}" if of.directories else ""
    ranks = f" on {plural(of.ranks, 'rank')}" if of.ranks > 1 else ""
    names = ", names replaced" if of.anonymised else ""
    return (
        f"{of.operations} operations from {of.source}{command}, {times}: by "
        f"{plural(of.threads, 'thread')}{ranks}, on {plural(of.files - of.directories, 'file')}"
        f"{directories}{names}."
    )


def _unseen(of: TraceStatistics) -> Iterator[str]:
    if of.unseen:
        what = ", ".join(f"{name} ({count})" for name, count in of.unseen.items())
        yield f"Seen, but not in the trace: {what}."


def _published(of: TraceStatistics) -> Iterator[str]:
    """What was printed of a workload that was made, at its scale."""
    printed, scale = of.facts.get("published"), of.facts.get("scale")
    if not isinstance(printed, dict) or not isinstance(scale, int | float):
        return
    counts = [
        f"{printed[name] * scale:.0f} {name.replace('_', ' ')}"
        for name in ("reads", "writes", "unique_pages")
        if isinstance(printed.get(name), int | float)
    ]
    doubts = of.facts.get("doubts")
    unsure = [name.replace("_", " ") for name in doubts] if isinstance(doubts, dict) else []
    yield f"Published, at this scale: {', '.join(counts)}." + (
        f"  Guessed or assumed: {', '.join(unsure)}." if unsure else ""
    )
