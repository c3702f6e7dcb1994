"""The runs that a comparison counts, coded by factors and by side."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xarray as xr

from fsmatrix.analysis.data.cells import values_of
from fsmatrix.analysis.data.columns import Codes, Mask, coded, combined
from fsmatrix.analysis.data.doubts import audits_of
from fsmatrix.analysis.data.factors import OF_PHASES
from fsmatrix.analysis.data.load import Rows, join, open_loops, rows, runs_of, saturated_points
from fsmatrix.analysis.data.matrices import Axis, factor_columns
from fsmatrix.analysis.data.metric_cells import why_no_value
from fsmatrix.analysis.stats.testing.tests import ALPHA, Correction
from fsmatrix.analysis.units import (
    METRICS,
    OWN,
    Level,
    Metric,
    level_text,
    metric_of,
    own_metric,
    written,
)

CAMPAIGN = "campaign"  # the factor that tells files apart
NOTABLE = ("warning", "invalid")  # severities of findings that raise a doubt
ALIASES = {"cluster": "target", "system": "target"}  # where no factor has that name

Levels = Mapping[str, Level]
Key = tuple[Level, ...]
Where = npt.NDArray[np.int64]


def together(datasets: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Several campaigns as one, with a factor `campaign` that names them.

    ValueError if a run is in two of them: nothing can be compared with itself.
    """
    marked = []
    for name, ds in datasets.items():
        factors = json.loads(ds.attrs.get("factors") or "{}") | {CAMPAIGN: CAMPAIGN}
        column = np.full(ds.sizes.get("run", 0), name, dtype=object)
        marked.append(
            ds.assign({CAMPAIGN: ("run", column)}).assign_attrs(factors=json.dumps(factors))
        )
    whole = join(marked)
    lost = sum(ds.sizes.get("run", 0) for ds in marked) - whole.sizes.get("run", 0)
    if lost:
        raise ValueError(f"{lost} runs are in more than one of {', '.join(datasets)}")
    return whole


@dataclass(frozen=True)
class Table:
    """The rows that count: ok, newest attempt, valid, with a value; shape [row].

    Those of a reference only if it was named as a side.
    """

    ds: xr.Dataset
    current: Mask  # rows of the campaign of which these are the ok, valid ones with a value
    references: frozenset[str]  # sides that are references
    factors: Mapping[str, Axis]  # over these rows, without those of `by`
    by: tuple[str, ...]
    sides: Axis
    side_levels: Mapping[str, Key]  # name of a side -> its levels
    values: npt.NDArray[np.float64]  # SI units
    metrics: npt.NDArray[np.object_]  # str: what the row's phase is judged by (units.own_metric)
    attachments: Codes
    blocks: Codes  # of a campaign
    numbers: Codes  # of those blocks, from 0
    campaigns: Codes
    works: npt.NDArray[np.object_]  # str
    index: Where  # row of the campaign
    order: npt.NDArray[np.float64]  # rises with time
    failed: Mapping[str, int]  # side -> runs
    invalid: Mapping[str, int]
    open_loops: Mapping[str, int]  # side -> runs whose latencies, or whose rates, do not count
    why_open: str  # why they do not
    valueless: Mapping[str, str]  # side without a row that counts -> why

    def metric(self, name: str, places: Sequence[int] | None = None) -> Metric:
        """A known metric as readers of these rows know it; `places`: in `values`, default all."""
        data = rows(self.ds)
        names = [name for name in ("engine", "phase") if name in data.columns]
        index = self.index if places is None else self.index[np.asarray(places, dtype=np.int64)]
        different = set(zip(*(data[name][index] for name in names), strict=True))
        return metric_of(name, (dict(zip(names, levels, strict=True)) for levels in different))

    @functools.cached_property
    def beside_work(self) -> frozenset[str]:
        """Factors, but of phases, of which runs of one work_id have several levels."""
        works, work = coded(self.works)
        return frozenset(
            name
            for name, axis in self.factors.items()
            if name not in OF_PHASES
            and combined([work, axis.codes], work.size)[0].size > len(works)
        )

    @functools.cached_property
    def notable(self) -> Mapping[int, set[str]]:
        """Row of the campaign -> audits that found something notable."""
        every = np.arange(self.ds.sizes["run"])
        return audits_of(self.ds, every, every, NOTABLE)


def table(
    ds: xr.Dataset,
    metric: str,
    by: Sequence[str],
    where: Levels | None = None,
    named: Sequence[str] = (),
) -> Table:
    """The rows of a campaign that a comparison by these factors counts; ValueError without any.

    `metric`: a name, or OWN: each phase's own.  `named`: sides that may be references.
    """
    data = rows(ds)
    factors = factor_columns(ds, data.factors)
    names = tuple(_factor_name(name, factors) for name in by)
    sides = _sides([factors[name] for name in names], len(data))
    labels = np.array([str(level) for level in sides.levels], dtype=object)[sides.codes]
    current = data.current & (~data.reference | np.isin(labels, list(named)))
    kept = current & at_levels(factors, where or {}, len(data))
    invalid, failed = kept & data.invalid, kept & data.failed
    metrics, values = own_values(data)
    if metric != OWN:
        values = values_of(data, metric)
    counting = kept & data.counting & ~np.isnan(values)
    if not counting.any():
        raise ValueError(f"no run gave any {_wanted(metric)}: {why_no_value(ds, kept, metric)}")
    index = np.flatnonzero(counting)
    campaign = factors[CAMPAIGN].codes if CAMPAIGN in factors else np.zeros(len(data), np.int64)
    first = dict(zip(*np.unique(sides.codes, return_index=True), strict=True))
    latency = "latency" in metric
    loops = saturated_points(ds) if latency else open_loops(ds)
    return Table(
        ds=ds,
        current=current,
        references=frozenset(labels[data.reference & current]),
        factors={
            name: Axis(name, axis.levels, axis.codes[index])
            for name, axis in factors.items()
            if name not in names and not _derived(name, factors)
        },
        by=names,
        sides=Axis("side", sides.levels, sides.codes[index]),
        side_levels={
            str(sides.levels[code]): tuple(factors[n].levels[factors[n].codes[row]] for n in names)
            for code, row in first.items()
        },
        values=values[index],
        metrics=metrics[index],
        attachments=_labels(campaign, data["attachment"])[index],
        blocks=_labels(campaign, data["block"])[index],
        numbers=data["block"][index].astype(np.int64),
        campaigns=campaign[index],
        works=data["work_id"][index]
        if "work_id" in data.columns
        else np.full(index.size, "", object),
        index=index,
        order=_order(data)[index],
        failed=_counted(data, failed, sides),
        invalid=_counted(data, invalid, sides),
        open_loops=_counted(data, kept & data.counting & np.isnan(values) & loops, sides),
        why_open="of saturated points" if latency else "whose rate was given",
        valueless={
            str(sides.levels[code]): why_no_value(ds, kept & (sides.codes == code), metric)
            for code in np.setdiff1d(sides.codes[kept], sides.codes[index])
        },
    )


def _wanted(metric: str) -> str:
    """The metric in words."""
    if metric == OWN:
        return "bandwidth or operations per second"
    return METRICS[metric].title.lower() if metric in METRICS else metric


def own_values(data: Rows) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.float64]]:
    """(the metric that each row's phase is judged by, its value); shape [row].

    Data without bytes (transactions) is judged by operations per second too.
    """
    engines = data["engine"] if "engine" in data.columns else np.full(len(data), "")
    (names, engine), (phases, phase) = coded(engines), coded(data["phase"])
    each = np.array([[own_metric(str(e), str(p)) for p in phases] for e in names], dtype=object)
    metrics = each[engine, phase] if len(data) else np.empty(0, dtype=object)
    bandwidth, rate = (values_of(data, name) for name in ("bandwidth", "iops"))
    metrics = np.where(np.isnan(bandwidth) & ~np.isnan(rate), "iops", metrics)
    return metrics, np.where(metrics == "iops", rate, bandwidth)


def at_levels(factors: Mapping[str, Axis], where: Levels, size: int) -> Mask:
    """Rows of these levels, shape [row]; ValueError for an unknown factor or level."""
    kept = np.ones(size, dtype=bool)
    for name, level in where.items():
        kept &= _at(factors[_factor_name(name, factors)], level)
    return kept


def _factor_name(name: str, factors: Mapping[str, Axis]) -> str:
    factor = name if name in factors else ALIASES.get(name, name)
    if factor not in factors:
        raise ValueError(f"no factor {name!r}: there are {', '.join(sorted(factors))}")
    return factor


def _at(axis: Axis, level: Level) -> Mask:
    wanted = (written(level) if isinstance(level, float) else str(level)).replace(" ", "")
    fits = [
        (not isinstance(own, str) and own == level)
        or wanted in (str(own).replace(" ", ""), level_text(axis.name, own).replace(" ", ""))
        for own in axis.levels
    ]
    if not any(fits):
        allowed = ", ".join(level_text(axis.name, own) for own in axis.levels)
        raise ValueError(f"no level {level!r} of {axis.name}: there are {allowed}")
    return np.array(fits)[axis.codes]


def _sides(axes: Sequence[Axis], size: int) -> Axis:
    """One label for each combination of levels, in the order of the levels; campaigns in theirs.

    Sides that nobody ordered are compared in this order, the earlier one over the later one.  The
    order of the rows is that of their run ids and says nothing, but for files that were named.
    """
    first, codes = combined([axis.codes for axis in axes], size)
    keys = [
        (combined([axis.codes], size)[1] if axis.name == CAMPAIGN else axis.codes)[first]
        for axis in reversed(axes)
    ]
    order = np.lexsort(keys) if first.size else np.empty(0, dtype=np.int64)
    labels = [
        " / ".join(level_text(axis.name, axis.levels[axis.codes[row]]) for axis in axes)
        for row in first[order]
    ]
    return Axis("side", list(labels), np.argsort(order)[codes])


def _derived(name: str, factors: Mapping[str, Axis]) -> bool:
    """Processes that are nodes x processes per node everywhere."""
    parts = ("nodes", "processes_per_node", "processes")
    if name != "processes" or any(part not in factors for part in parts):
        return False
    column = [np.array(factors[p].levels)[factors[p].codes] for p in parts]
    if any(array.dtype.kind not in "fi" for array in column):
        return False
    return bool(np.all(column[0] * column[1] == column[2]))


def _order(data: Rows) -> npt.NDArray[np.float64]:
    """When a run began, or its place among all starts; without either, that of its row."""
    began = data["began"].astype(np.float64) if "began" in data.columns else np.empty(0)
    if began.size and np.isfinite(began).all():
        return began
    if "started" in data.columns:
        return coded(data["started"])[1].astype(np.float64)
    return np.arange(len(data), dtype=np.float64)


def _labels(campaign: Codes, column: npt.NDArray[np.generic]) -> Codes:
    return combined([campaign, coded(column)[1]], campaign.size)[1]


def _counted(data: Rows, mask: Mask, sides: Axis) -> dict[str, int]:
    """Side -> different runs among these rows."""
    return {
        str(sides.levels[code]): _runs(data, mask & (sides.codes == code))
        for code in np.unique(sides.codes[mask])
    }


def _runs(data: Rows, mask: Mask) -> int:
    """Different runs among these rows."""
    return int(np.unique(runs_of(data.where(mask))).size) if mask.any() else 0


# What callers may choose about a comparison, a history or an acceptance test.


TOLERANCE = 0.05


@dataclass(frozen=True)
class VerdictOptions:
    """Which runs are judged, in which unit, and by which test."""

    where: Levels | None = None  # only runs of these levels
    unit: str | None = None  # to show values in; None: one that fits them
    tolerance: float = TOLERANCE  # the share that is no difference that matters
    alpha: float = ALPHA  # of a false claim in all looks at the campaign
    correction: Correction = "holm"

    def __post_init__(self) -> None:
        """ValueError for a tolerance or an alpha that makes no sense."""
        if not 0 < self.tolerance < math.inf:
            raise ValueError(f"the tolerance must be positive, such as 0.05, not {self.tolerance}")
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha must lie between 0 and 1, such as 0.05, not {self.alpha}")


def without_blocks(correction: Correction) -> Correction:
    """The correction where the two sides share no blocks, as campaigns do: Holm for max-t."""
    return "holm" if correction == "max-t" else correction


@dataclass(frozen=True)
class ComparisonOptions(VerdictOptions):
    """These, and in what the cells of a pair may differ beyond the two sides.

    `correction`: max-t where both sides of every cell share blocks; otherwise Holm takes its place.
    `ignore`: factors; `work_id`: options that are no factor.
    """

    correction: Correction = "max-t"
    across_engines: bool = False
    across_cache: bool = False
    ignore: Sequence[str] = ()
