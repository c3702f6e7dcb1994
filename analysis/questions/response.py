"""Throughput against latency as load grows, a line for each target: response curves.

A load is an offered rate, a queue depth, or a number of threads or processes.  Both numbers of a
point are medians over attachments with their intervals.  The knee is the load with the largest
throughput per latency (power: Kleinrock, "Power and Deterministic Rules of Thumb", ICC 1979), in
each block by itself.  Of a saturated open loop there is a throughput and no latency.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.factors import Key
from fsmatrix.analysis.data.load import open_loops
from fsmatrix.analysis.data.metric_cells import Study, study
from fsmatrix.analysis.questions.curves import CurveLine, described, lines, numbers
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.medians import Median, of_independent
from fsmatrix.analysis.units import METRICS, SHORT_TITLES, Level, Unit
from fsmatrix.results.evidence.evidence import CLIENT_BOUND
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.evidence.workloads import SATURATED
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOADS = ("load", "rate", "iodepth", "threads", "processes_per_node", "processes")
LATENCIES = tuple(name for name, metric in METRICS.items() if metric.quantity == "time")
BUSY = "cpu_busy"  # share of the client nodes' CPUs
FEWEST = 3  # loads with a latency: of fewer no knee is one
MOST_ROWS = 3  # of panels in a figure


@dataclass(frozen=True)
class ResponsePoint:
    """One load of a line; SI units.  A latency without a value has the kind `none`."""

    load: float
    rate: Median  # operations per second
    latency: Median  # the one that is asked for
    latencies: Mapping[str, Median]  # all of them
    busy: Median  # CPU of the clients, a share
    saturated: bool
    client_bound: bool  # in some run: more tells of the clients than of the storage
    power: Mapping[int, float]  # block -> throughput / latency


@dataclass(frozen=True)
class Knee:
    """Of a line: the median over blocks of the load with the most power, and its interval."""

    load: Median
    at: ResponsePoint  # the point of that load
    last: bool  # no larger load has a latency


@dataclass(frozen=True)
class Response:
    """One line; `key`: levels of all else that varies."""

    key: Key
    points: tuple[ResponsePoint, ...]  # by load
    knee: Knee | None
    why_no_knee: str

    def only(self, names: Sequence[str]) -> Key:
        """The levels of these factors."""
        return tuple(pair for pair in self.key if pair[0] in names)

    def without(self, names: Sequence[str]) -> Key:
        """The levels of the others."""
        return tuple(pair for pair in self.key if pair[0] not in names)


@dataclass(frozen=True)
class Responses:
    """All lines of a campaign."""

    along: str
    metric: str  # a latency
    of: Study  # of operations per second
    lines: tuple[Response, ...]

    @property
    def says(self) -> list[str]:
        """The knee of each line, and where it is saturated."""
        return [*self.answers, *self.of.remarks]

    @property
    def answers(self) -> list[str]:
        """A sentence for each line."""
        return [self._sentence(line) for line in self.lines]

    def _sentence(self, line: Response) -> str:
        where = f"{described(line.key)}: " if line.key else ""
        text = f"{where}{line.why_no_knee}"
        if line.knee is not None:
            knee, load = line.knee, line.knee.load
            low, high = (units.level_text(self.along, end) for end in (load.low, load.high))
            span = f" [{low}, {high}]" if load.decides else ""
            text = f"{where}knee at {self._load(load.median)}{span}: {self.reads(knee.at)}"
            text += "; no larger load has a latency" if knee.last else ""
        return f"{text}{self._saturated(line)}{self._client_bound(line)}."

    def _client_bound(self, line: Response) -> str:
        bound = [units.level_text(self.along, p.load) for p in line.points if p.client_bound]
        name = units.factor_title(self.along)
        return f"; in doubt: {CLIENT_BOUND} at {name} {', '.join(bound)}" if bound else ""

    def _saturated(self, line: Response) -> str:
        """From which load on, or at which alone: there a run had a hiccup that larger loads lack.

        "; saturated from rate 8000: 64.1 kIOPS".
        """
        full = [point for point in line.points if point.saturated]
        if not full:
            return ""
        if line.points[-len(full) :] == tuple(full):
            return f"; saturated from {self._load(full[0].load)}: {self._rate(full[0].rate)}"
        loads = ", ".join(units.level_text(self.along, point.load) for point in full)
        name = units.factor_title(self.along)
        return f"; saturated at {name} {loads} and not at every larger load: no limit is known"

    def reads(self, point: ResponsePoint) -> str:
        """A point in words: "57.0 kIOPS @ p99 1.9 ms [1.7, 2.2]"."""
        if point.latency.kind == "none":
            return self._rate(point.rate)
        m = point.latency
        unit = units.fitting("time", [m.median])
        middle, low, high = (units.text(value, unit) for value in (m.median, m.low, m.high))
        span = f" [{low}, {high}]" if m.decides else f" (range {low} to {high})" * (m.runs > 1)
        return f"{self._rate(point.rate)} @ {SHORT_TITLES[self.metric]} {middle} {unit.label}{span}"

    def _load(self, load: float) -> str:
        return f"{units.factor_title(self.along)} {units.level_text(self.along, load)}"

    def _rate(self, rate: Median) -> str:
        unit = self.of.fitting()
        return f"{units.text(rate.median, unit)} {unit.label}"

    def table(self) -> pd.DataFrame:
        """One row per point; throughput in the unit of the figure, latencies in seconds."""
        import pandas as pd

        unit = self.of.fitting()
        return pd.DataFrame(
            [
                {
                    **dict(line.key),
                    self.along: point.load,
                    "reads": self.reads(point),
                    f"throughput, {unit.label}": point.rate.median / unit.divisor,
                    f"low, {unit.label}": point.rate.low / unit.divisor,
                    f"high, {unit.label}": point.rate.high / unit.divisor,
                    **{
                        f"{SHORT_TITLES[name]}, s": median.median
                        for name, median in point.latencies.items()
                    },
                    f"{SHORT_TITLES[self.metric]} low, s": point.latency.low,
                    f"{SHORT_TITLES[self.metric]} high, s": point.latency.high,
                    "client CPU, %": 100 * point.busy.median,
                    "attachments": point.rate.independent,
                    "": self._mark(line, point),
                }
                for line in self.lines
                for point in line.points
            ]
        )

    @staticmethod
    def _mark(line: Response, point: ResponsePoint) -> str:
        if point.saturated:
            return SATURATED
        if point.client_bound:
            return CLIENT_BOUND
        return "knee" if line.knee is not None and line.knee.at is point else ""

    def to_dict(self) -> dict[str, Json]:
        """SI units."""
        data: dict[str, Json] = plain(
            {
                "along": self.along,
                "metric": self.metric,
                "says": self.says,
                "lines": [
                    {
                        "levels": dict(line.key),
                        "knee": line.knee.load if line.knee else None,
                        "points": [
                            {
                                self.along: point.load,
                                "reads": self.reads(point),
                                "throughput": point.rate,
                                **point.latencies,
                                "client_cpu": point.busy,
                                "saturated": point.saturated,
                                "client_bound": point.client_bound,
                            }
                            for point in line.points
                        ],
                    }
                    for line in self.lines
                ],
            }
        )
        return data

    @property
    def _rows(self) -> list[Key]:
        """What stands in a row of panels of its own: all but the targets."""
        return list(dict.fromkeys(line.without(("target",)) for line in self.lines))

    @property
    def pages(self) -> int:
        """Number of figures: `figure(page)`, from 0."""
        return math.ceil(len(self._rows) / MOST_ROWS)

    def figure(self, page: int = 0) -> Figure:
        """Left: latency over throughput; right: CPU of the clients.  ValueError as `Drawn`."""
        from fsmatrix.analysis.draw import drawing

        if not 0 <= page < self.pages:
            raise ValueError(f"there are pages 0 to {self.pages - 1}, not {page}")
        rows = self._rows[page * MOST_ROWS : (page + 1) * MOST_ROWS]
        shown = [line for line in self.lines if line.without(("target",)) in rows]
        busy = any(point.busy.runs for line in shown for point in line.points)
        title = METRICS[self.metric].title.lower()
        figure, axes = drawing.frame(
            len(rows),
            1 + busy,
            title=f"Throughput against {title}, as {units.factor_title(self.along)} grows",
            notes=[
                "Medians over attachments with their intervals, both ways. Ringed: the knee, the "
                "load with the most throughput per latency. Crosses: saturated, with this "
                "throughput and no latency.",
                *drawing.hollow(p.latency for line in shown for p in line.points if p.latency.runs),
                *self.of.remarks,
            ],
            width=4.4,
            height=2.8,
        )
        names = list(dict.fromkeys(line.only(("target",)) for line in self.lines))
        unit, time = self.of.fitting(), self._time(shown)
        for r, row in enumerate(rows):
            for line in (line for line in shown if line.without(("target",)) == row):
                number = names.index(line.only(("target",)))
                self._line(axes[r], line, number, unit, time)
            axes[r][0].set_title(described(row), fontsize=8)
            axes[r][0].set_yscale("log")
            _plain_numbers(axes[r][0])
            axes[r][0].set_ylabel(f"{SHORT_TITLES[self.metric]}, {time.label}", fontsize=8)
            for ax in axes[r]:
                ax.set_xlabel(unit.label, fontsize=8)
                ax.set_xlim(left=0)
            if busy:
                axes[r][1].set_ylabel("client CPU, %", fontsize=8)
                axes[r][1].set_ylim(0, 105)
        drawing.legend(figure, axes)
        return figure

    @staticmethod
    def _time(shown: Sequence[Response]) -> Unit:
        values = [p.latency.median for line in shown for p in line.points if p.latency.runs]
        return units.fitting("time", values)

    @staticmethod
    def _line(axes: Sequence[Axes], line: Response, number: int, unit: Unit, time: Unit) -> None:
        from fsmatrix.analysis.draw import drawing

        told = [point for point in line.points if point.latency.runs]
        rates = [point.rate for point in told]
        label, shade = described(line.only(("target",))) or None, drawing.colour(number)
        x = [rate.median / unit.divisor for rate in rates]
        latencies = [point.latency for point in told]
        if told:
            drawing.line(
                axes[0], x, latencies, time.divisor, number,
                label=label, across=rates, x_scale=unit.divisor,
            )  # fmt: skip
        for point in line.points:
            if point.saturated:
                at = [point.rate.median / unit.divisor]
                axes[0].plot(at, [0.97], "x", color=shade, transform=axes[0].get_xaxis_transform())
                axes[0].axvline(at[0], color=shade, linestyle=":", linewidth=0.8)
        if line.knee is not None:
            at = [line.knee.at.rate.median / unit.divisor]
            axes[0].plot(
                at,
                [line.knee.at.latency.median / time.divisor],
                marker="o",
                markersize=11,
                markerfacecolor="none",
                color=shade,
            )
        used = [point for point in line.points if point.busy.runs]
        if len(axes) > 1 and used:
            drawing.line(
                axes[1],
                [point.rate.median / unit.divisor for point in used],
                [point.busy for point in used],
                0.01,
                number,
            )


def _plain_numbers(ax: Axes) -> None:
    """On a logarithmic axis too, where there is room for few powers of ten."""
    from fsmatrix.analysis.draw import drawing

    for which in ("major", "minor"):
        getattr(ax.yaxis, f"set_{which}_formatter")("{x:g}")
    ax.tick_params(axis="y", which="minor", labelsize=drawing.SMALL - 1)


def response(
    ds: xr.Dataset,
    latency: str = "latency_p99",
    along: Sequence[str] = LOADS,
    *,
    where: Mapping[str, Level] | None = None,
) -> Responses:
    """Response curves over the first factor of `along` that has several levels.

    ValueError without such a factor, for what is no latency, and without any throughput.
    """
    if latency not in LATENCIES:
        raise ValueError(f"no latency {latency!r}: there are {', '.join(LATENCIES)}")
    of = study(_reached(ds), "iops", where)
    factor = next((name for name in along if len(set(numbers(of.valued, name))) > 1), "")
    if not factor:
        raise ValueError(f"no load: {' or '.join(along)} must have several levels")
    return Responses(
        factor, latency, of, tuple(_of_line(line, latency) for line in lines(of.valued, factor))
    )


def _reached(ds: xr.Dataset) -> xr.Dataset:
    """With what open loops reached of the rate that they were offered, as operations per second."""
    opened = open_loops(ds)
    if not opened.any():
        return ds
    reached = np.where(opened, ds["achieved_rate"].values, ds["iops"].values)
    return ds.assign(iops=("run", reached, ds["iops"].attrs))


def _of_line(line: CurveLine, latency: str) -> Response:
    points = tuple(
        _point(load, cell, latency) for load, cell in zip(line.levels, line.cells, strict=True)
    )
    told = [point for point in points if point.latency.runs]
    if len(told) < FEWEST:
        why = f"{plural(len(told), 'load')} with a latency, too few for a knee"
        return Response(line.key, points, None, why)
    blocks = sorted(set.intersection(*(set(point.power) for point in told)))
    if not blocks:
        return Response(line.key, points, None, "no block has all loads, so no knee is known")
    best = [max(told, key=lambda point: point.power[block]).load for block in blocks]
    load = of_independent(best)
    at = min(told, key=lambda point: abs(point.load - load.median))
    return Response(line.key, points, Knee(load, at, at is told[-1]), "")


def _point(load: float, cell: Values, latency: str) -> ResponsePoint:
    metrics = cell.cell.metrics
    own = cell.cell.values(latency)
    rates = dict(zip(cell.attachments, cell.values.tolist(), strict=True))
    power: dict[int, list[float]] = {}
    for name, block, value in zip(own.attachments, own.blocks, own.values.tolist(), strict=True):
        if name in rates and value > 0:
            power.setdefault(block, []).append(rates[name] / value)
    return ResponsePoint(
        load=load,
        rate=cell.median,
        latency=metrics[latency],
        latencies={name: metrics[name] for name in LATENCIES},
        busy=metrics[BUSY],
        saturated=SATURATED in cell.cell.doubts,
        client_bound=CLIENT_BOUND in cell.cell.doubts,
        power={block: float(np.median(values)) for block, values in power.items()},
    )
