"""Where bandwidth stops growing, and what is at its limit there (figure 10, section 5.5).

Growth is the ratio of medians of neighbouring levels of chunk size or processes, with its interval
over attachments; where these are closer than a doubling, per doubling.  It has stopped where the
whole interval lies below a declared threshold.  A step over many doublings is judged as a whole:
what it gains may all come from its first doubling, or from each a little.  A resource is at its
limit where the whole interval of its share does not lie below the declared share.  The study
concluded "network" from bandwidth alone; here the evidence of network, devices and client CPUs is
looked at, and missing evidence is said.

Busy time of a device only excludes: an SSD works on many requests at once, and is busy all the time
at a few per cent of what it can do as soon as one request is there at any moment.  Only its limit
shows that it is at it.  Below a limit in bytes per second an always busy device may be at that of
its operations.

What a run used is in the campaign file (USAGE_COLUMNS of results/files/run_rows.py); of an older
one run files are read, if told where, else only the finding `cpu-saturated` tells of a full CPU.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.factors import Key
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.data.metric_cells import Study, ratio_of, study
from fsmatrix.analysis.questions.bottleneck import bottleneck_chart
from fsmatrix.analysis.questions.bottleneck.bottleneck_result import (
    AXES,
    BUSY,
    FULL,
    STORAGE,
    Bottleneck,
    Growth,
    GrowthStep,
    GrowthVerdict,
    Resource,
    State,
)
from fsmatrix.analysis.stats.estimates.medians import of_independent
from fsmatrix.analysis.units import Level, Unit
from fsmatrix.results.audits.nodes import fullest
from fsmatrix.results.files import runfile
from fsmatrix.results.files.run_rows import USAGE_COLUMNS, Usage, usage_of
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord

CPU_AUDIT = "cpu-saturated"
CPU_AUDIT_SHARE = 0.95  # what that audit calls busy (results/audits/machine.py)
_LINK = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMG])bit", re.ASCII)
_SCALE = {"K": 1e3, "M": 1e6, "G": 1e9}
Name = tuple[str, str]  # run id, phase

STOPPED = 0.10  # growth of a step below which it has stopped
IMPOSSIBLE = 1.05  # share above which the limit or the counter is wrong: no evidence


@dataclass(frozen=True)
class Used(Usage):
    """With the largest shares that storage nodes had of their limits, where they were watched."""

    storage: Mapping[str, float] = field(default_factory=dict)  # by the names of STORAGE


def of_campaign(ds: xr.Dataset) -> dict[Name, Usage]:
    """From a campaign file's own variables and findings."""
    data = rows(ds)
    names = list(zip(data["run_id"].tolist(), data["phase"].tolist(), strict=True))
    columns = {
        name: data[name].astype(np.float64).tolist()
        for name in USAGE_COLUMNS
        if name in data.columns
    }
    usages = {
        name: Usage(**{column: values[i] for column, values in columns.items()})
        for i, name in enumerate(names)
    }
    if "cpu_busy" not in columns and "finding_run" in ds:
        audits = ds["finding_audit"].values.astype(str).tolist()
        for row, audit in zip(ds["finding_run"].values.tolist(), audits, strict=True):
            if audit == CPU_AUDIT:
                usages[names[int(row)]] = Usage(cpu_busy=CPU_AUDIT_SHARE)
    return usages


def of_store(
    directory: Path | str, run_ids: Iterable[str], left_out: list[ResultError] | None = None
) -> dict[Name, Usage]:
    """From the run files of a store, as `Used`; runs that it does not have are left out.

    So are those that cannot be read or do not fit, each with an error in `left_out`.
    """
    store = Store.open(directory)
    usages: dict[Name, Usage] = {}
    for run_id in dict.fromkeys(run_ids):
        record = read_or_none(store, run_id, [] if left_out is None else left_out)
        if record is None:
            continue
        try:
            for phase in record.phases:
                storage = {
                    f"storage {kind.replace('cpu', 'CPU')}": share
                    for kind, share in fullest(record, phase).items()
                }
                usages[run_id, phase.name] = Used(**vars(usage_of(record, phase)), storage=storage)
        except runfile.NONSENSE as error:
            if left_out is not None:
                left_out.append(ResultError(store.path(run_id), f"its counters: {error}"))
    return usages


def read_or_none(store: Store, run_id: str, left_out: list[ResultError]) -> RunRecord | None:
    """A run of a store; None if it is not there, or with an error in `left_out` if it is no run."""
    if run_id not in store:
        return None
    try:
        return store.with_nodes(runfile.read_checked(store.path(run_id)))
    except ResultError as error:
        left_out.append(error)
        return None


def left_out_sentences(left_out: Iterable[ResultError]) -> list[str]:
    """A sentence for each file that was left out."""
    return [f"{error.path.name} is left out: {error.reason}." for error in left_out]


def usages_by_cell(
    ds: xr.Dataset, of: Study, usages: Mapping[Name, Usage]
) -> list[dict[str, list[Usage]]]:
    """Attachment -> usages, for each cell of `of.valued`."""
    data = rows(ds)
    names = list(zip(data["run_id"].tolist(), data["phase"].tolist(), strict=True))
    attachments = data["attachment"].tolist()
    result: list[dict[str, list[Usage]]] = [{} for _ in of.valued]
    for own, cell in zip(result, of.valued, strict=True):
        for row in cell.cell.rows.tolist():
            if names[row] in usages:
                own.setdefault(attachments[row], []).append(usages[names[row]])
    return result


def link_limit(network: Any, storage_nodes: float) -> float:
    """Bytes per second of all storage nodes' links together ("1Gbit" each); NaN if unknown."""
    match = _LINK.fullmatch(network.strip()) if isinstance(network, str) else None
    if match is None or not storage_nodes > 0:
        return math.nan
    return float(match[1]) * _SCALE[match[2]] / 8 * storage_nodes


def bottleneck(
    ds: xr.Dataset,
    *,
    store: Path | str | None = None,
    limits: Mapping[str, float] | None = None,
    threshold: float = STOPPED,
    where: Mapping[str, Level] | None = None,
    unit: Unit | None = None,
    bandwidth: Study | None = None,
) -> Bottleneck:
    """Verdicts from a campaign; `store`: the directory of its run files, for their evidence.

    `limits`: "network" and "device" in bytes per second, of all together.  Without a network
    limit the factor `network` ("1Gbit" for each storage node's link) gives one; device shares are
    those of the given limit, else of busy time, which only excludes.  `bandwidth`: its study
    of `ds` and `where`, if it is there already.  ValueError where no run has a bandwidth,
    for other limits, and if neither chunk size nor processes vary.
    """
    if unknown := set(limits or {}) - {"network", "device"}:
        raise ValueError(f"limits are of network and device, not of {', '.join(sorted(unknown))}")
    if not threshold > 0:
        raise ValueError(f"the threshold of growth must be positive, not {threshold}")
    of = bandwidth or study(ds, "bandwidth", where)
    if not any(axis in of.varying for axis in AXES):
        raise ValueError("neither chunk size nor processes vary: nothing can stop growing")
    usages_by_run = of_campaign(ds)
    left_out: list[ResultError] = []
    if store is not None:
        usages_by_run |= of_store(store, [run_id for run_id, _ in usages_by_run], left_out)
    by_cell = usages_by_cell(ds, of, usages_by_run)
    watched = [
        name
        for name in STORAGE
        if any(isinstance(used, Used) and name in used.storage for used in usages_by_run.values())
    ]
    shares = {
        i: (*_resources(cell, by_cell[i], limits or {}), *_of_nodes(by_cell[i], watched))
        for i, cell in enumerate(of.valued)
    }
    index = {id(cell): i for i, cell in enumerate(of.valued)}
    verdicts = []
    for axis in AXES:
        for key, cells in of.series(axis).items() if axis in of.varying else ():
            if len(cells) > 1:
                last = shares[index[id(cells[-1])]]
                verdicts.append(_verdict(axis, key, cells, threshold, last))
    sentences = tuple(left_out_sentences(left_out))
    return Bottleneck(
        of, of.fitting(unit), threshold, tuple(verdicts), shares, sentences, chart=bottleneck_chart
    )


def _verdict(
    axis: str, key: Key, cells: Sequence[Values], threshold: float, last: tuple[Resource, ...]
) -> GrowthVerdict:
    steps = tuple(_step(axis, key, a, b, threshold) for a, b in itertools.pairwise(cells))
    knee = math.nan
    for step in reversed(steps):
        if step.growth != "stopped":
            break
        knee = step.before
    return GrowthVerdict(axis, key, steps, knee, last)


def _step(axis: str, key: Key, a: Values, b: Values, threshold: float) -> GrowthStep:
    before, after = a.number(axis), b.number(axis)
    power = 1 / min(math.log2(after / before), 1)
    r = ratio_of(b, a)
    value, low, high = (x**power - 1 for x in (r.ratio, r.low, r.high))
    growth: Growth = "cannot tell"
    if r.decides and high < threshold:
        growth = "stopped"
    elif r.decides and low > threshold:
        growth = "grows"
    return GrowthStep(axis, key, before, after, value, low, high, growth)


def _resources(
    cell: Values, of: Mapping[str, Sequence[Usage]], limits: Mapping[str, float]
) -> tuple[Resource, ...]:
    link = link_limit(cell.level("network"), cell.number("storage_nodes"))
    network, device = limits.get("network", link), limits.get("device", math.nan)
    busy = _resource(
        "device", [[usage_of_run.device_busy for usage_of_run in usages] for usages in of.values()]
    )
    if busy.state == "at its limit":
        busy = replace(busy, state=BUSY)
    rated = _resource(
        "device", [[u.device_rate / device for u in usages] for usages in of.values()]
    )
    return (
        _resource(
            "network", [[u.network_rate / network for u in usages] for usages in of.values()]
        ),
        _device(busy, rated),
        _resource("client CPU", [[used.cpu_busy for used in usages] for usages in of.values()]),
    )


def _of_nodes(of: Mapping[str, Sequence[Usage]], names: Sequence[str]) -> Iterator[Resource]:
    """Resources of the storage nodes: the fullest one's share in each run."""
    for name in names:
        yield _resource(
            name,
            [
                [used.storage.get(name, math.nan) for used in usages if isinstance(used, Used)]
                for usages in of.values()
            ],
        )


def _device(busy: Resource, rated: Resource) -> Resource:
    """At its limit by the limit alone; excluded by busy time, or by the limit where not busy."""
    if rated.state in ("not measured", "cannot tell") and busy.state != "not measured":
        return busy
    return (
        replace(rated, state=BUSY)
        if rated.state != "at its limit" and busy.state == BUSY
        else rated
    )


def _resource(name: str, values: Iterable[Sequence[float]]) -> Resource:
    possible = [[v for v in runs if v <= IMPOSSIBLE] for runs in values]  # and no NaN
    share = of_independent([float(np.median(shares)) for shares in possible if shares])
    state: State = "cannot tell"
    if share.kind == "none":
        state = "not measured"
    elif share.decides and share.low >= FULL[name]:
        state = "at its limit"
    elif share.decides and share.high < FULL[name]:
        state = "below its limit"
    return Resource(name, share, state)
