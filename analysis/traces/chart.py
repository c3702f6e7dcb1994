"""The picture of a trace: where, what, how large, found again, how fast, how much at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fsmatrix.analysis.draw import drawing
from fsmatrix.analysis.draw.panels import INK
from fsmatrix.analysis.units import rounded_size, size
from fsmatrix.results.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fsmatrix.results.evidence.trace import Band, PageReuse, TraceStatistics, Windows

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
