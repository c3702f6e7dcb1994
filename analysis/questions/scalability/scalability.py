"""Metrics over the number of storage nodes: figures 7 to 9 of the SSD-cluster study.

Speed-up is the ratio to the fewest nodes that were measured (the study: 2), as a ratio of
medians over attachments with its interval; efficiency divides it by the ratio of nodes.  For a
latency there is a ratio only.  Laws of scalability are fitted where enough levels are there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.doubts import doubts_of
from fsmatrix.analysis.data.roles import Key
from fsmatrix.analysis.data.study import Study, Values, ratio_of, study
from fsmatrix.analysis.questions.scalability import headline, laws
from fsmatrix.analysis.questions.scalability.series import NodePoint, NodeSeries
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.medians import SMALLEST
from fsmatrix.analysis.units import MARKS, Level, Metric, Unit, brief
from fsmatrix.results.evidence.values import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NODES = "storage_nodes"
MOST_ROWS = 6  # of panels in one figure


@dataclass(frozen=True)
class Scalability:
    """All lines of a campaign and one metric."""

    study: Study
    series: tuple[NodeSeries, ...]
    unit: Unit

    @property
    def says(self) -> list[str]:
        """Growth from the fewest to the most nodes, the worst point, laws, what cannot be said."""
        of = self.study
        sentences = []
        several = [s for s in self.series if len(s.steps) > 1]
        ends = [s.steps[-1] for s in several]
        for first, last in sorted({(s.steps[0].nodes, s.steps[-1].nodes) for s in several}):
            curves = [
                s.steps[-1]
                for s in several
                if (s.steps[0].nodes, s.steps[-1].nodes) == (first, last)
            ]
            r = [step.ratio for step in curves]
            text = (
                f"{of.metric.title} from {first:g} to {last:g} storage nodes: "
                f"{min(r):.2f} to {max(r):.2f} times in {len(r)} series (median {np.median(r):.2f})"
            )
            if of.metric.more_is_better:
                e = [100 * step.efficiency for step in curves]
                text += (
                    f"; that is {brief(min(e))} to {brief(max(e))} % of growth in proportion "
                    "to the nodes (efficiency)"
                )
            sentences.append(text + ".")
        if several:
            sentences += headline.worst(self.study, several) + headline.bases(self.study, several)
        undecided = sum(not step.decides for step in ends)
        if undecided:
            sentences.append(
                f"{undecided} of these ratios have too few attachments (fewer than "
                f"{SMALLEST}) to say how sure they are."
            )
        single = [s for s in self.series if len(s.steps) == 1]
        if single:
            sentences.append(
                f"{len(single)} series have one number of storage nodes only: nothing to compare."
            )
        for why, number in Counter(s.why_no_laws for s in self.series if s.why_no_laws).items():
            sentences.append(f"No law of scalability (Amdahl's, USL) for {number} series: {why}.")
        sentences += [f"{of.describe(s.key)}: {s.laws.says}." for s in self.series if s.laws]
        return sentences + of.remarks

    def table(self) -> pd.DataFrame:
        """One row per series and number of nodes."""
        import pandas as pd

        scale, unit = self.unit.divisor, self.unit.label
        rows = []
        for line in self.series:
            for step in line.steps:
                m = step.median
                row: dict[str, Json] = {
                    **dict(line.key),
                    NODES: step.nodes,
                    f"median, {unit}": m.median / scale,
                    f"low, {unit}": m.low / scale,
                    f"high, {unit}": m.high / scale,
                    "kind": m.kind,
                    "attachments": m.independent,
                    "ratio": step.ratio,
                    "ratio low": step.low,
                    "ratio high": step.high,
                    "decides": step.decides,
                    "efficiency": step.efficiency,
                    "in doubt": ", ".join(step.doubts),
                }
                if line.laws and line.laws.hold:
                    law = line.laws.chosen
                    row |= {"law": law.name, "sigma": law.sigma.value, "kappa": law.kappa.value}
                rows.append(row)
        frame = pd.DataFrame(rows)
        frame.attrs |= {"metric": self.study.metric.name, "unit": unit}
        return frame

    def to_dict(self) -> dict[str, Json]:
        """SI units."""
        series = [
            {
                "levels": dict(s.key),
                "steps": s.steps,
                "laws": s.laws,
                "certainty": s.certainty,
                "why_no_laws": s.why_no_laws,
            }
            for s in self.series
        ]
        data: dict[str, Json] = plain(
            {"metric": self.study.metric.name, "series": series, "says": self.says}
        )
        return data

    @property
    def pages(self) -> int:
        """Number of figures."""
        return max(math.ceil(len(self._keys(("chunk", "pattern"))) / MOST_ROWS), 1)

    def _keys(self, without: Sequence[str]) -> list[Key]:
        return list(dict.fromkeys(_without(s.key, without) for s in self.series))

    def figure(self, page: int = 0) -> Figure:
        """Rows: processes and what else varies; columns: chunk sizes; colours: patterns."""
        from fsmatrix.analysis.draw import drawing

        rows = self._keys(("chunk", "pattern"))[page * MOST_ROWS : (page + 1) * MOST_ROWS]
        if not rows:
            raise ValueError(f"there are pages 0 to {self.pages - 1}, not {page}")
        of, chunks = self.study, self.study.levels("chunk") or [""]
        shown = [s for s in self.series if _without(s.key, ("chunk", "pattern")) in rows]
        kinds = {step.median.kind for s in shown for step in s.steps}
        notes = (
            [
                "Medians over attachments with their intervals; dotted lines: proportional "
                "growth from the first point of each line."
            ]
            if of.metric.more_is_better
            else ["Medians over attachments with their intervals."]
        )
        if kinds & set(MARKS):
            notes.append("Hollow: too few attachments; the whisker decides nothing.")
        if any(s.laws and s.laws.hold for s in shown):
            notes.append("Thick faint lines: the USL where the data need it, else Amdahl's law.")
        figure, axes = drawing.frame(
            len(rows),
            len(chunks),
            title=f"{of.metric.title} over storage nodes",
            notes=[*notes, *of.remarks],
            height=2.2,
        )
        for r, row in enumerate(rows):
            for c, chunk in enumerate(chunks):
                ax = axes[r][c]
                for s in shown:
                    own = dict(s.key).get("chunk", chunk)
                    if _without(s.key, ("chunk", "pattern")) == row and own == chunk:
                        self._line(ax, s)
                where = [of.label("chunk", chunk)] if chunk != "" else []
                where += [of.describe(row)] if of.describe(row) != "all" else []
                ax.set_title(", ".join(where), fontsize=8)
                ax.set_ylim(bottom=0)
                if c == 0:
                    ax.set_ylabel(self.unit.label, fontsize=8)
                if r == len(rows) - 1:
                    ax.set_xlabel(of.title(NODES), fontsize=8)
        drawing.legend(figure, axes, "pattern" if of.levels("pattern") else "")
        return figure

    def _line(self, ax: Axes, s: NodeSeries) -> None:
        from fsmatrix.analysis.draw import drawing

        patterns = self.study.levels("pattern") or [""]
        pattern = dict(s.key).get("pattern", patterns[0])
        index = patterns.index(pattern)
        shade, scale = drawing.colour(index), self.unit.divisor
        x = np.array([step.nodes for step in s.steps]) + _dodge(index, len(patterns))
        y = np.array([step.median.median for step in s.steps]) / scale
        medians = [step.median for step in s.steps]
        reach = [drawing.whiskers(m.median / scale, m.low / scale, m.high / scale) for m in medians]
        both = [[whisker[side][0] for whisker in reach] for side in (0, 1)]
        weak = any(step.median.kind in MARKS for step in s.steps)
        label = self.study.label("pattern", pattern) if pattern != "" else None
        ax.errorbar(
            x,
            y,
            yerr=both,
            color=shade,
            marker=drawing.MARKERS[index % 8],
            markersize=4,
            markerfacecolor="white" if weak else shade,
            linewidth=1.1,
            capsize=2,
            label=label,
        )
        nodes = np.array([step.nodes for step in s.steps])
        if self.study.metric.more_is_better and nodes.size > 1:
            ax.plot(nodes, y[0] * nodes / nodes[0], color=shade, linestyle=":", linewidth=0.7)
        if s.laws and s.laws.hold:
            grid = np.linspace(nodes.min(), nodes.max(), 60)
            ax.plot(grid, s.laws.chosen.at(grid) / scale, color=shade, linewidth=4, alpha=0.25)
        ax.set_xticks(nodes)


def scalability(
    ds: xr.Dataset,
    metric: str,
    *,
    unit: Unit | None = None,
    where: Mapping[str, Level] | None = None,
    seed: int = 0,
    studied: Study | None = None,
) -> Scalability:
    """Lines over storage nodes, one for each combination of whatever else varies.

    `studied`: the study of this metric, of `ds` and `where`, if it is there already.
    ValueError if no run has a value or none a number of storage nodes.  Where the number of
    nodes belongs to the target (each target has its own) it cannot be told from the target.
    """
    of = studied or study(ds, metric, where)
    series = of.series(NODES)
    if not series:
        raise ValueError("no storage nodes in this campaign: it has no factor storage_nodes")
    node_series = [_series(key, cells, of, seed) for key, cells in series.items()]
    owner = "target" in of.varying and all(len(s.steps) == 1 for s in node_series)
    if owner and len(of.levels(NODES)) > 1:
        raise ValueError(
            "each target has its own number of storage nodes: give one target several levels"
        )
    return Scalability(of, tuple(node_series), of.fitting(unit))


def _series(key: Key, cells: Sequence[Values], of: Study, seed: int) -> NodeSeries:
    if len({cell.number(NODES) for cell in cells}) < len(cells):
        raise ValueError(f"several cells of one number of nodes in {of.describe(key)}")
    steps = tuple(_step(cell, cells[0], of.metric) for cell in cells)
    if not of.metric.more_is_better:
        return NodeSeries(key, steps, None, "a latency is no throughput")
    nodes = np.array([cell.number(NODES) for cell in cells])
    result = laws.fit(nodes, [cell.values for cell in cells], seed)
    if isinstance(result, str):
        return NodeSeries(key, steps, None, result)
    return NodeSeries(key, steps, result, "")


def _step(cell: Values, first: Values, metric: Metric) -> NodePoint:
    nodes, rate = cell.number(NODES), metric.more_is_better
    doubts = doubts_of(cell.cell, cell.median, metric)
    share = nodes / first.number(NODES)
    if cell is first:
        return NodePoint(nodes, cell.median, 1.0, 1.0, 1.0, True, 1.0 if rate else math.nan, doubts)
    r = ratio_of(cell, first)
    efficiency = r.ratio / share if rate else math.nan
    return NodePoint(nodes, cell.median, r.ratio, r.low, r.high, r.decides, efficiency, doubts)


def _without(key: Key, names: Sequence[str]) -> Key:
    return tuple(pair for pair in key if pair[0] not in names)


def _dodge(index: int, count: int) -> float:
    """A small shift, so that whiskers of several lines do not hide each other."""
    return 0.05 * (index - (count - 1) / 2)
