"""Bar charts of medians by interface x pattern x chunk size x processes.

Figures 2 to 4 of the SSD-cluster study: rows are interfaces (SATA above PCIe), columns patterns,
groups of bars chunk sizes, colours processes per client.  The study drew means with error bars
that it does not define; here a bar is the median over attachments, its whisker the interval of
medians.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.factors import Key, factor_of, level_text
from fsmatrix.analysis.data.metric_cells import Study, study
from fsmatrix.analysis.draw.charts import why_absent
from fsmatrix.analysis.draw.panels import INK
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.units import MARKS, Level, Unit
from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 6  # of panels in one figure
BAR_SHARE = 0.84  # of the room of a group of bars
PANEL = ("interface", "pattern", "chunk", "processes")
UPRIGHT: dict[str, Any] = {  # text above a bar
    "textcoords": "offset points",
    "rotation": 90,
    "ha": "center",
    "va": "bottom",
    "fontsize": 6,
}
MARK_TEXT = {
    "range": "*: fewer than 6 attachments; the whisker is their range and decides nothing.",
    "one session": "†: one attachment; the whisker holds within that session only.",
}


@dataclass(frozen=True)
class Bar:
    """One bar: levels, the median and its interval (SI units), how far to trust it."""

    levels: Mapping[str, Level]
    median: float
    low: float
    high: float
    kind: str  # of the interval: medians.Kind
    coverage: float
    attachments: int
    runs: int
    absent: str  # why there is no median
    finding: str  # worst severity among its runs


@dataclass(frozen=True)
class Bars:
    """All bars of a campaign and one metric."""

    study: Study
    bars: tuple[Bar, ...]
    unit: Unit
    rows: tuple[Key, ...]  # interface and everything beyond the four roles

    @property
    def says(self) -> list[str]:
        """What the bars are, and what they are not."""
        weak = [bar for bar in self.bars if bar.kind in MARK_TEXT]
        absent = [bar for bar in self.bars if bar.absent]
        sentences = [
            f"{len(self.bars) - len(absent)} medians of {self.study.metric.title.lower()} "
            f"in {self.unit.label}; a whisker is the interval of the median over attachments."
        ]
        if weak:
            sentences.append(
                f"{len(weak)} of them have too few attachments for a verdict (marked * or †)."
            )
        if absent:
            reasons = sorted({bar.absent for bar in absent})
            sentences.append(f"{len(absent)} combinations have no value: {', '.join(reasons)}.")
        if len(self.rows) > MOST_ROWS:
            sentences.append(f"The figure has {self.pages} pages of at most {MOST_ROWS} rows.")
        return sentences + self.study.remarks

    @property
    def pages(self) -> int:
        """Number of figures: `figure(page)`, from 0."""
        return max(math.ceil(len(self.rows) / MOST_ROWS), 1)

    def table(self) -> pd.DataFrame:
        """One row per bar, values in `unit`; client nodes, and what tells bars apart, in columns.

        Processes are called what the campaign counts: of each node, if it says so.
        """
        import pandas as pd

        names = [n for n in self.bars[0].levels if n not in (*PANEL, "nodes")]
        per_node = any("processes_per_node" in cell.cell.levels for cell in self.study.cells)
        called = {"processes": factor_of("processes")} if per_node else {}
        scale = self.unit.divisor
        frame = pd.DataFrame(
            [
                {
                    **{
                        called.get(name, name): bar.levels[name]
                        for name in (*names, "nodes", *PANEL)
                    },
                    f"median, {self.unit.label}": bar.median / scale,
                    f"low, {self.unit.label}": bar.low / scale,
                    f"high, {self.unit.label}": bar.high / scale,
                    "kind": bar.kind,
                    "coverage": bar.coverage,
                    "attachments": bar.attachments,
                    "runs": bar.runs,
                    "absent": bar.absent,
                    "finding": bar.finding,
                }
                for bar in self.bars
            ]
        )
        frame.attrs |= {"metric": self.study.metric.name, "unit": self.unit.label}
        return frame

    def to_dict(self) -> dict[str, Json]:
        """SI units."""
        data: dict[str, Json] = plain(
            {"metric": self.study.metric.name, "bars": self.bars, "says": self.says}
        )
        return data

    def figure(self, page: int = 0) -> Figure:
        """Panels of one page.  ValueError for a page that is not there."""
        from fsmatrix.analysis.draw import drawing

        if not 0 <= page < self.pages:
            raise ValueError(f"there are pages 0 to {self.pages - 1}, not {page}")
        rows = self.rows[page * MOST_ROWS : (page + 1) * MOST_ROWS]
        patterns = self.study.levels("pattern") or [""]
        chunks, processes = _levels(self.study, "chunk"), _levels(self.study, "processes")
        figure, axes = drawing.frame(
            len(rows),
            len(patterns),
            title=f"{self.study.metric.title} ({self.unit.label}): "
            "median over attachments with its interval",
            notes=self._notes(rows),
            width=max(1.1 + 0.22 * len(chunks) * len(processes), 2.2),
        )
        for r, row in enumerate(rows):
            for c, pattern in enumerate(patterns):
                ax = axes[r][c]
                self._panel(ax, row, pattern, chunks, processes)
                head = [self.study.label("pattern", pattern)] if pattern != "" else []
                where = self.study.describe(row)
                ax.set_title("\n".join([*head, *([where] if where != "all" else [])]), fontsize=8.5)
                if c == 0:
                    ax.set_ylabel(self.unit.label, fontsize=8.5)
                if r == len(rows) - 1:
                    ax.set_xlabel(self.study.title("chunk"), fontsize=8.5)
        _one_scale_a_column(axes)
        drawing.legend(figure, axes, self.study.title("processes").replace(" per ", "\nper "))
        return figure

    def _notes(self, rows: Sequence[Key]) -> list[str]:
        shown = [bar for bar in self.bars if self._row(bar) in rows]
        kinds = {bar.kind for bar in shown}
        notes = [MARK_TEXT[kind] for kind in MARK_TEXT if kind in kinds]
        if len(rows) > 1:
            notes.append("Panels of one column have one scale.")
        if any(bar.finding in ("warning", "invalid") for bar in shown):
            notes.append("Hatched: runs with a finding of severity warning or invalid.")
        return notes + self.study.remarks

    def _row(self, bar: Bar) -> Key:
        return tuple((name, bar.levels[name]) for name, _ in self.rows[0])

    def _panel(
        self, ax: Axes, row: Key, pattern: Level, chunks: list[Level], processes: list[Level]
    ) -> None:
        from fsmatrix.analysis.draw import drawing

        wide = BAR_SHARE / len(processes)
        for p, count in enumerate(processes):
            label = level_text("processes", count) if count != "" else "all"
            ax.bar([0], [0], width=0, color=drawing.colour(p), label=label)
        shown: list[tuple[Bar, float, str]] = []
        for bar in self.bars:
            levels = bar.levels
            if self._row(bar) != row or levels["pattern"] != pattern:
                continue
            if levels["chunk"] not in chunks or levels["processes"] not in processes:
                continue
            p = processes.index(levels["processes"])
            x = chunks.index(levels["chunk"]) + (p - (len(processes) - 1) / 2) * wide
            shown.append((bar, x, drawing.colour(p)))
        self._drawn(ax, [placed for placed in shown if not placed[0].absent], wide)
        for bar, x, shade in shown:
            if bar.absent:
                ax.annotate(bar.absent, (x, 0), (0, 2), color=shade, **UPRIGHT)
        ax.set_xticks(
            range(len(chunks)), [level_text("chunk", c) if c != "" else "" for c in chunks]
        )
        ax.set_xlim(-0.55, len(chunks) - 0.45)

    def _drawn(self, ax: Axes, shown: Sequence[tuple[Bar, float, str]], wide: float) -> None:
        """All bars of a panel in two calls: one call a bar takes most of the time."""
        from matplotlib.colors import to_rgba

        from fsmatrix.analysis.draw import drawing

        if not shown:
            return
        scale, xs = self.unit.divisor, [x for _, x, _ in shown]
        heights = [bar.median / scale for bar, *_ in shown]
        ax.bar(
            xs,
            heights,
            width=wide * 0.92,
            edgecolor="white",
            linewidth=0,
            color=[to_rgba(c, 0.55 if bar.kind in MARK_TEXT else 1.0) for bar, _, c in shown],
            hatch=["///" if bar.finding in ("warning", "invalid") else "" for bar, *_ in shown],
        )
        ax.errorbar(
            xs,
            heights,
            yerr=drawing.whiskers([bar for bar, *_ in shown], scale),
            color=INK,
            linewidth=0,
            elinewidth=0.9,
            capsize=1.8,
        )
        for bar, x, _ in shown:
            text = units.text(bar.median, self.unit) + MARKS.get(bar.kind, "")
            label = ax.annotate(text, (x, bar.high / scale), (0, 2.5), **UPRIGHT)
            label.set_in_layout(False)  # there is room for it in the panel; layout takes long


def bars(
    ds: xr.Dataset,
    metric: str,
    *,
    unit: Unit | None = None,
    where: Mapping[str, Level] | None = None,
) -> Bars:
    """Bars of a campaign; `unit` (roles.PAPER_UNITS has the paper's), else one that fits.

    `where` keeps some levels only, {"storage_nodes": 2} as in figures 2 to 4; whatever else
    varies gets rows of its own.  ValueError where no run has a value.
    """
    of = study(ds, metric, where)
    others = _others(of)
    rows = [name for name in ("interface", *others) if name != "interface" or name in of.varying]
    drawn = tuple(_bar(cell, (*PANEL, "nodes", *others), metric) for cell in of.cells)
    places = {name: {v: i for i, v in enumerate(of.levels(name))} for name in rows}
    keys = {tuple((name, bar.levels[name]) for name in rows) for bar in drawn}
    order = sorted(keys, key=lambda key: [places[name].get(level, -1) for name, level in key])
    return Bars(of, drawn, of.fitting(unit), tuple(order))


def _others(of: Study) -> tuple[str, ...]:
    """What else varies, and what else tells bars without a value from all others."""
    others = [name for name in of.varying if name not in PANEL]
    for name in dict.fromkeys(("target", *(n for cell in of.cells for n in cell.cell.levels))):
        known = (*PANEL, "nodes", *others)
        coarser, finer = (
            {tuple(cell.level(n) for n in names) for cell in of.cells}
            for names in (known, (*known, name))
        )
        others += [name] * (len(finer) > len(coarser))
    return tuple(others)


def _bar(cell: Values, names: Sequence[str], metric: str) -> Bar:
    median = cell.median
    return Bar(
        levels={name: cell.level(name) for name in names},
        median=median.median,
        low=median.low,
        high=median.high,
        kind=median.kind,
        coverage=median.coverage,
        attachments=median.independent,
        runs=median.runs,
        absent=why_absent(cell.cell, metric) if median.runs == 0 else "",
        finding=cell.cell.worst_finding,
    )


def _levels(of: Study, role: str) -> list[Level]:
    return of.levels(role) or [""]


def _one_scale_a_column(axes: Sequence[Sequence[Axes]]) -> None:
    """The same range for all panels of a column, with room for the numbers above the bars."""
    for column in zip(*axes, strict=True):
        top = max(ax.get_ylim()[1] for ax in column)
        for ax in column:
            ax.set_ylim(0, top * 1.32)
