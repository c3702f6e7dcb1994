"""Growth over storage nodes: speed-up, efficiency and the laws that fit.

From outside: `scalability`, `laws`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import scipy
import xarray as xr

from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.doubts import doubts_of, listed
from fsmatrix.analysis.data.factors import Key
from fsmatrix.analysis.data.metric_cells import Study, ratio_of, study
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.medians import LEVEL, SMALLEST, Floats, Median
from fsmatrix.analysis.units import Level, Metric, Unit, brief
from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Amdahl's law and the Universal Scalability Law, fitted to throughput over nodes.
#
#     X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))
#
# sigma: serialised share; kappa: cost of keeping nodes coherent; Amdahl's law is kappa = 0.
# Sources: Amdahl, AFIPS 1967; Gunther, "A General Theory of Computational Scalability Based on
# Rational Functions", arXiv:0808.1431.
#
# N / X is linear in ((1 - sigma), sigma, kappa) / lambda, all of them >= 0: non-negative least
# squares on relative errors, without start values.  Intervals: bootstrap of the logs of
# attachments around their level (residuals pooled over the levels, widened by sqrt(n / (n -
# levels)) and by the ratio of Student's to the normal quantile: percentiles alone cover too
# little); they hold the spread of attachments, not a misfit of the law.
#
# There is one criterion: the USL where kappa's whole interval lies above 0, else Amdahl's law.
# AICc of the levels' means, which knows nothing of how attachments spread, misses the USL far more
# often (python -P bench/laws.py; docs/statistics.md).  The law that is chosen must hold: where its
# levels' means miss it by more than attachments vary (F test of lack of fit: Draper and Smith,
# Applied Regression Analysis, 1998, section 2.1), neither is used, and what was measured is said.


RESAMPLES = 500
TAIL = 50 * (1 - LEVEL)  # per cent on each side
FEWEST_LEVELS = 6  # three parameters, and as many levels to contradict them
TINY = 1e-12  # of a misfit: attachments that vary less are equal but for rounding
FEWEST_FREEDOM = 5  # attachments beyond one per level: below, their spread is unknown


@dataclass(frozen=True)
class Estimate:
    """A parameter with its bootstrap interval of LEVEL; NaN ends without one."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Law:
    """A law of growth over nodes, fitted to one series."""

    name: str
    parameters: int
    rate: Estimate  # lambda: throughput of one node, SI
    sigma: Estimate
    kappa: Estimate  # 0 in Amdahl's law
    peak: Estimate  # nodes of the largest throughput, sqrt((1 - sigma) / kappa); inf without
    error: float  # RMS of the logs of levels around it
    misfit: float  # p that chance moves the levels so far from it
    drawn: Floats = field(repr=False, compare=False)  # the bootstrap's [resample, rate sigma kappa]

    def at(self, nodes: Floats) -> Floats:
        """Throughput at node counts, SI."""
        return throughput(nodes, self.rate.value, self.sigma.value, self.kappa.value)


@dataclass(frozen=True)
class Top:
    """The most that was measured, and whether more nodes than it takes gained or lost anything."""

    nodes: float  # of the largest mean
    enough: float  # the fewest nodes that are not shown to have less
    last: float  # the most nodes that were measured
    after: Estimate  # throughput there over that at `enough`

    @property
    def says(self) -> str:
        """The plateau or the fall, or that there is none."""
        ratio = (
            f"{self.last:g} nodes have {_span(self.after, '.3g')} times what {self.enough:g} have"
        )
        if self.after.high < 1:
            return f"the most is measured at {self.nodes:g} nodes; {ratio}"
        if self.enough < self.last:
            return f"from {self.enough:g} nodes on no gain is shown; {ratio}"
        return f"the most is measured at {self.last:g} nodes, the most that there were"


@dataclass(frozen=True)
class Laws:
    """Both laws of one series."""

    amdahl: Law
    usl: Law
    superlinear: bool  # more than proportional: neither law can say that
    top: Top

    @property
    def hold(self) -> bool:
        """Whether the chosen law may be used: the levels do not contradict it."""
        return not self.superlinear and self.chosen.misfit > 1 - LEVEL

    @property
    def apart(self) -> bool:
        """Whether the data need the USL: the interval of kappa lies above 0."""
        return self.usl.kappa.low > 0

    @property
    def chosen(self) -> Law:
        """The simplest law that the data do not exclude."""
        return self.usl if self.apart else self.amdahl

    def nodes_for(self, wanted: float) -> Estimate:
        """Nodes at which the chosen law's throughput (SI) reaches `wanted`; inf: it never does.

        Not rounded.  The interval is that of both laws together, and holds if one of them does:
        beyond the nodes that were measured nothing tests them.
        """
        law = self.chosen
        parameters = np.array([[law.rate.value], [law.sigma.value], [law.kappa.value]])
        (value,) = reached(wanted, *parameters).tolist()
        drawn = [reached(wanted, *law.drawn.T) for law in (self.amdahl, self.usl)]
        ends = np.percentile(drawn, [TAIL, 100 - TAIL], axis=1, method="inverted_cdf")
        return Estimate(value, float(ends[0].min()), float(ends[1].max()))

    @property
    def says(self) -> str:
        """The verdict in words."""
        sigma, kappa, peak = self.chosen.sigma, self.usl.kappa, self.usl.peak
        if self.superlinear:
            return "it grows more than proportionally at first: neither law can say that"
        if not self.hold:
            return (
                f"neither law describes it ({self.chosen.name} misses the numbers of nodes by "
                f"{100 * self.chosen.error:.2g} %, more than attachments vary): {self.top.says}"
            )
        serial = f"{_percent(sigma)} of the work is not shared by the nodes"
        if self.apart:
            return (
                f"the USL describes it: {serial}, and each pair of nodes costs {_percent(kappa)} "
                f"more; the most is reached at {_span(peak, '.3g')} nodes"
            )
        return (
            f"Amdahl's law describes it: {serial}; that more nodes get slower together (kappa "
            f"of the USL) is not shown, 95 % sure: {kappa.low:.2g} to {kappa.high:.2g}"
        )


def _percent(of: Estimate) -> str:
    return f"{100 * of.value:.2g} % (95 % sure: {100 * of.low:.2g} to {100 * of.high:.2g} %)"


def _span(of: Estimate, form: str) -> str:
    return f"{of.value:{form}} (95 % sure: {of.low:{form}} to {of.high:{form}})"


def throughput(nodes: Floats, rate: float, sigma: float, kappa: float) -> Floats:
    """X(N) of the Universal Scalability Law."""
    return rate * nodes / (1 + sigma * (nodes - 1) + kappa * nodes * (nodes - 1))


def reached(wanted: float, rate: Floats, sigma: Floats, kappa: Floats) -> Floats:
    """The smaller N with X(N) = wanted, [law]; inf where X never gets there.

    kappa X N^2 - (rate - sigma X + kappa X) N + (1 - sigma) X = 0.
    """
    a, b, c = kappa * wanted, rate - sigma * wanted + kappa * wanted, (1 - sigma) * wanted
    with np.errstate(invalid="ignore", divide="ignore"):
        root = np.sqrt(b**2 - 4 * a * c)
        peak: Floats = np.where(b > 0, 2 * c / (b + root), math.inf)
    return np.where(np.isnan(peak), math.inf, peak)


def fit(nodes: Floats, values: Sequence[Floats], seed: int = 0) -> Laws | str:
    """Both laws for node counts [level] and the attachments' throughputs of each; or why not."""
    if nodes.size < FEWEST_LEVELS:
        return (
            f"{nodes.size} numbers of storage nodes: a law of up to 3 parameters needs at least "
            f"{FEWEST_LEVELS} to be tested on"
        )
    if any(np.any(throughputs <= 0) for throughputs in values):
        return "throughputs must be positive"
    logs = [np.log(value) for value in values]
    means = np.array([values_of.mean() for values_of in logs])
    total = sum(of_level.size for of_level in logs)
    if total - nodes.size < FEWEST_FREEDOM:
        return f"{total} attachments at {nodes.size} levels: their spread is unknown"
    residuals = np.concatenate([of_level - of_level.mean() for of_level in logs])
    freedom = total - nodes.size
    tail = (1 + LEVEL) / 2
    residuals *= (
        math.sqrt(total / freedom)
        * scipy.special.stdtrit(freedom, tail)
        / scipy.special.ndtri(tail)
    )
    rng = np.random.default_rng(seed)
    drawn = np.stack(
        [
            mean + rng.choice(residuals, (RESAMPLES, of_level.size)).mean(axis=1)
            for mean, of_level in zip(means, logs, strict=True)
        ],
        axis=1,
    )
    laws = [_law(name, nodes, logs, drawn) for name in ("Amdahl", "USL")]
    # growth from the first to the second level, beyond the interval of proportional growth
    steps = drawn[:, 1] - drawn[:, 0] - math.log(nodes[1] / nodes[0])
    superlinear = float(np.percentile(steps, TAIL)) > 0
    return Laws(laws[0], laws[1], superlinear, _top(nodes, means, drawn))


def _misfit(logs: Sequence[Floats], residual: Floats, spare: int) -> float:
    """p of the F test of lack of fit, from the logs of attachments at each level.

    `residual`, [level]: of their means; `spare`: levels beyond the parameters of the law.
    """
    sizes = np.array([of_level.size for of_level in logs])
    missed = float(sizes @ np.square(residual)) / spare
    freedom = int(sizes.sum()) - sizes.size
    within = sum(float(np.square(v - v.mean()).sum()) for v in logs) / freedom
    if within <= TINY * missed:
        return 0.0
    f = missed / max(within, np.finfo(float).tiny)
    return float(scipy.special.fdtrc(spare, freedom, f))


def _top(nodes: Floats, means: Floats, drawn: Floats) -> Top:
    """From the levels' means of logs [level] and those of the bootstrap [resample, level].

    The best of several levels is the luckiest too, so every pair of levels is judged at once: by
    how far apart chance alone drives the two that are farthest from each other.
    """
    best = int(np.argmax(means))
    apart = float(np.percentile(np.ptp(drawn - means, axis=1), 100 * LEVEL))
    enough = int(np.argmax(means > means[best] - apart))
    after = float(means[-1] - means[enough])
    ends = (math.exp(after + side) for side in (0.0, -apart, apart))
    return Top(float(nodes[best]), float(nodes[enough]), float(nodes[-1]), Estimate(*ends))


def _law(name: str, nodes: Floats, logs: Sequence[Floats], drawn: Floats) -> Law:
    terms = 3 if name == "USL" else 2
    means = np.array([of_level.mean() for of_level in logs])
    solution = _solve(nodes, means, terms)
    boot = np.array([_solve(nodes, resampled, terms) for resampled in drawn])
    low, high = np.percentile(boot, [TAIL, 100 - TAIL], axis=0, method="inverted_cdf")
    residual = means - np.log(throughput(nodes, *(float(v) for v in solution[:3])))
    square = float(np.square(residual).mean())
    rate, sigma, kappa, peak = (
        Estimate(float(v), float(a), float(b)) for v, a, b in zip(solution, low, high, strict=True)
    )
    misfit = _misfit(logs, residual, nodes.size - terms)
    return Law(name, terms, rate, sigma, kappa, peak, math.sqrt(square), misfit, boot[:, :3])


def _solve(nodes: Floats, logs: Floats, terms: int) -> Floats:
    """(lambda, sigma, kappa, peak) from the logs of throughput at each level."""
    cost = nodes / np.exp(logs - logs[0])
    columns = np.stack([np.ones_like(nodes), nodes, nodes * (nodes - 1)], axis=1)[:, :terms]
    part, _ = scipy.optimize.nnls(columns / cost[:, None], np.ones_like(nodes))
    alone = part[0] + part[1]  # 1 / lambda
    if alone <= 0:
        return np.array([math.inf, 0.0, 0.0, math.inf])
    sigma = part[1] / alone
    kappa = part[2] / alone if terms == 3 else 0.0
    peak = math.sqrt((1 - sigma) / kappa) if kappa > 0 else math.inf
    return np.array([math.exp(logs[0]) / alone, sigma, kappa, peak])


# Metrics over the number of storage nodes: figures 7 to 9 of the SSD-cluster study.
#
# Speed-up is the ratio to the fewest nodes that were measured (the study: 2), as a ratio of
# medians over attachments with its interval; efficiency divides it by the ratio of nodes.  For a
# latency there is a ratio only.  Laws of scalability are fitted where enough levels are there.


# One line over the number of storage nodes, and its points.


@dataclass(frozen=True)
class NodePoint:
    """One number of nodes in a series; SI units."""

    nodes: float
    median: Median
    ratio: float  # to the fewest nodes; 1 there
    low: float
    high: float
    decides: bool  # low..high is an interval of at least 95 %
    efficiency: float  # ratio / ratio of nodes; NaN for a latency
    doubts: tuple[str, ...] = ()  # audits that warn, values far off


@dataclass(frozen=True)
class NodeSeries:
    """One line: everything else is constant."""

    key: Key
    steps: tuple[NodePoint, ...]
    laws: Laws | None
    why_no_laws: str

    @property
    def certainty(self) -> Certainty:
        """Of what the laws say: a misfit is proven, a law that fits is not refuted."""
        if self.laws is None:
            return Certainty.INVALID
        fits = self.laws.hold or self.laws.superlinear
        return Certainty.LIKELY if fits else Certainty.PROVEN


# What the end points of curves do not say: the worst point, and first points that are in doubt.


NO_GROWTH = 1.0  # a rate below that of the fewest nodes has lost by more nodes


def worst(of: Study, several: Sequence[NodeSeries]) -> list[str]:
    """The point of the smallest efficiency (of a latency: of the largest ratio), and losses."""
    rate = of.metric.more_is_better
    points = [(node_series, step) for node_series in several for step in node_series.steps[1:]]
    series, step = min(points, key=lambda p: p[1].efficiency if rate else -p[1].ratio)
    value = f"{brief(step.ratio)} times the fewest nodes"
    value += f", efficiency {brief(100 * step.efficiency)} %" if rate else ""
    sentences = [f"Worst point: {value}, at {_place(of, series, step)}."]
    lost = [p for p in points if p[1].ratio < NO_GROWTH] if rate else []
    if len(lost) > 1:
        sentences.append(f"{len(lost)} of {len(points)} points are slower than the fewest nodes.")
    return sentences


def bases(of: Study, several: Sequence[NodeSeries]) -> list[str]:
    """First points in doubt: every ratio of their series hangs on them."""
    weak = [node_series for node_series in several if node_series.steps[0].doubts]
    if not weak:
        return []
    names = listed([_place(of, line, line.steps[0]) for line in weak])
    return [f"All ratios of {len(weak)} series hang on a first point in doubt: {names}."]


def _place(of: Study, series: NodeSeries, step: NodePoint) -> str:
    where = f" ({of.describe(series.key)})" if series.key else ""
    doubt = f", in doubt: {', '.join(step.doubts)}" if step.doubts else ""
    return f"{step.nodes:g} storage nodes{where}{doubt}"


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
            sentences += worst(self.study, several) + bases(self.study, several)
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
        notes = (
            [
                "Medians over attachments with their intervals; dotted lines: proportional "
                "growth from the first point of each line."
            ]
            if of.metric.more_is_better
            else ["Medians over attachments with their intervals."]
        )
        notes += drawing.hollow(step.median for s in shown for step in s.steps)
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
        medians, scale = [step.median for step in s.steps], self.unit.divisor
        nodes = np.array([step.nodes for step in s.steps])
        places = nodes + _dodge(index, len(patterns))
        label = self.study.label("pattern", pattern) if pattern != "" else None
        drawing.line(ax, places.tolist(), medians, scale, index, label=label)
        shade, first = drawing.colour(index), medians[0].median / scale
        if self.study.metric.more_is_better and nodes.size > 1:
            ax.plot(nodes, first * nodes / nodes[0], color=shade, linestyle=":", linewidth=0.7)
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
    result = fit(nodes, [cell.values for cell in cells], seed)
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
