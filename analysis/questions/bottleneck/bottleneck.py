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
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.study import Key, Study, Values, ratio_of, study
from fsmatrix.analysis.questions.bottleneck import usage
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.medians import Median, of_independent
from fsmatrix.analysis.units import Level, Unit
from fsmatrix.results.files.errors import ResultError
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

AXES = ("chunk", "processes")
STOPPED = 0.10  # growth of a step below which it has stopped
# share of a limit from which a resource is called full: a link's payload is below its bit rate,
# a device is never busy all the time between two looks, a CPU's rest is rounding; of busy time
# (a device without a given limit): share below which it cannot be full
FULL = {"network": 0.85, "device": 0.90, "client CPU": 0.95}
IMPOSSIBLE = 1.05  # share above which the limit or the counter is wrong: no evidence
Growth = Literal["grows", "stopped", "cannot tell"]
State = Literal["at its limit", "below its limit", "always busy, limit not known",
                "cannot tell", "not measured"]  # fmt: skip
BUSY: State = "always busy, limit not known"


@dataclass(frozen=True)
class Resource:
    """The share of its limit that a resource had in a cell."""

    name: str
    share: Median  # over attachments; of 1
    state: State


@dataclass(frozen=True)
class Step:
    """From one level to the next."""

    axis: str
    key: Key
    before: float
    after: float
    gain: float  # 0.1: ten per cent more; for a doubling where the step is shorter than one
    low: float
    high: float
    growth: Growth


@dataclass(frozen=True)
class Verdict:
    """One series along an axis: where growth stops, and what is full there."""

    axis: str
    key: Key
    steps: tuple[Step, ...]
    knee: float  # level from which there is no more growth; NaN if it goes on or is unknown
    resources: tuple[Resource, ...]  # at the levels beyond the knee: of the largest one

    @property
    def full(self) -> tuple[str, ...]:
        """Resources at their limit."""
        return tuple(r.name for r in self.resources if r.state == "at its limit")

    @property
    def cause(self) -> str:
        """What limits, in words; empty where nothing stops."""
        if self.knee != self.knee:
            return ""
        if self.full:
            return " and ".join(self.full)
        states = {r.name: r.state for r in self.resources}
        unknown = [name for name, state in states.items() if state != "below its limit"]
        if unknown:
            return f"unknown ({'; '.join(f'{name}: {states[name]}' for name in unknown)})"
        return "none of network, device and client CPU: servers, locks or the queue depth"


@dataclass(frozen=True)
class Bottleneck:
    """Verdicts of all series of a campaign along chunk size and processes."""

    study: Study
    unit: Unit
    threshold: float
    verdicts: tuple[Verdict, ...]
    shares: Mapping[int, tuple[Resource, ...]]  # by index of a cell in study.valued
    left_out: tuple[str, ...] = ()  # run files that could not be used, and why

    @property
    def says(self) -> list[str]:
        """Where growth ends and why, and what evidence is missing."""
        said = []
        for axis in AXES:
            mine = [v for v in self.verdicts if v.axis == axis]
            title = self.study.title(axis)
            if not mine:
                said.append(f"{title}: one level only, so whether more would help is not known.")
                continue
            stops = [v for v in mine if v.knee == v.knee]
            states = Counter(step.growth for v in mine for step in v.steps)
            said.append(
                f"{title[0].upper()}{title[1:]}: bandwidth stops growing in {len(stops)} of "
                f"{len(mine)} series (the next level gives less than {self.threshold:.0%} more). "
                f"Of {plural(sum(states.values()), 'step')} {states['grows']} still grow, "
                f"{states['stopped']} do not, {states['cannot tell']} are not sure."
            )
            for (knee, cause), number in Counter((v.knee, v.cause) for v in stops).items():
                said.append(
                    f"No more from {self.study.label(axis, knee)} on in {number} "
                    f"series; at the limit: {cause}."
                )
        return said + self._always_busy() + self._missing() + [*self.left_out] + self.study.remarks

    def _always_busy(self) -> list[str]:
        if not any(one.state == BUSY for mine in self.shares.values() for one in mine):
            return []
        return [
            "A device that is always busy is not shown to be at its limit: an SSD works on many "
            "requests at once. Measure what it can do in this pattern and chunk size (fio with a "
            "deep queue) and give it: --limit device=BYTES_PER_SECOND."
        ]

    def _missing(self) -> list[str]:
        states: dict[str, set[str]] = {}
        for resources in self.shares.values():
            for one in resources:
                states.setdefault(one.name, set()).add(one.state)
        missing = [name for name, found in states.items() if found == {"not measured"}]
        if not missing:
            return []
        return [
            f"No evidence of {', '.join(missing)}: the campaign file has no counters, or no limit "
            "to hold them against. Give the directory with the run files, and the limits: "
            "--limit network=1.25GB --limit device=500MB (bytes per second)."
        ]

    def table(self) -> pd.DataFrame:
        """One row per step; the verdict of its series in each."""
        import pandas as pd

        frame = pd.DataFrame([
            {
                **dict(v.key), "axis": v.axis, "from": s.before, "to": s.after,
                "growth of the step": s.gain, "low": s.low, "high": s.high,
                "growth": s.growth, "stops at": v.knee, "at the limit": v.cause,
                **{f"{r.name}, share": r.share.median for r in v.resources},
            }
            for v in self.verdicts
            for s in v.steps
        ])  # fmt: skip
        frame.attrs |= {"threshold": self.threshold, "full": dict(FULL)}
        return frame

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        verdicts = [
            {"axis": v.axis, "levels": dict(v.key), "knee": v.knee, "cause": v.cause,
             "steps": [{**vars(s), "key": dict(s.key)} for s in v.steps],
             "resources": v.resources}
            for v in self.verdicts
        ]  # fmt: skip
        made: dict[str, Any] = plain(
            {"threshold": self.threshold, "full": FULL, "verdicts": verdicts, "says": self.says}
        )
        return made

    @property
    def pages(self) -> tuple[Key, ...]:
        """What each figure is of: whatever varies beyond pattern, chunk and processes."""
        names = ("pattern", *AXES)
        cells = self.study.series(*AXES)
        keys = (tuple(p for p in key if p[0] not in names) for key in cells)
        return tuple(dict.fromkeys(keys))

    def figure(self, page: int = 0) -> Figure:
        """Above: bandwidth over chunk size; below: shares of the limits."""
        from fsmatrix.analysis.questions.bottleneck.chart import draw

        if not 0 <= page < len(self.pages):
            raise ValueError(f"there are pages 0 to {len(self.pages) - 1}, not {page}")
        return draw(self, self.pages[page])


def bottleneck(
    ds: xr.Dataset,
    *,
    store: Path | str | None = None,
    limits: Mapping[str, float] | None = None,
    threshold: float = STOPPED,
    where: Mapping[str, Level] | None = None,
    unit: Unit | None = None,
    known: Study | None = None,
) -> Bottleneck:
    """Verdicts from a campaign; `store`: the directory of its run files, for their evidence.

    `limits`: "network" and "device" in bytes per second, of all together.  Without a network
    limit the factor `network` ("1Gbit" for each storage node's link) gives one; device shares are
    those of the given limit, else of busy time, which only excludes.  `known`: the study of
    bandwidth of `ds` and `where`, if it is there already.  ValueError where no run has a bandwidth,
    for other limits, and if neither chunk size nor processes vary.
    """
    if unknown := set(limits or {}) - {"network", "device"}:
        raise ValueError(f"limits are of network and device, not of {', '.join(sorted(unknown))}")
    if not threshold > 0:
        raise ValueError(f"the threshold of growth must be positive, not {threshold}")
    of = known or study(ds, "bandwidth", where)
    if not any(axis in of.varying for axis in AXES):
        raise ValueError("neither chunk size nor processes vary: nothing can stop growing")
    found = usage.of_campaign(ds)
    left_out: list[ResultError] = []
    if store is not None:
        found |= usage.of_store(store, [run_id for run_id, _ in found], left_out)
    by_cell = usage.by_cell(ds, of, found)
    shares = {i: _resources(cell, by_cell[i], limits or {}) for i, cell in enumerate(of.valued)}
    index = {id(cell): i for i, cell in enumerate(of.valued)}
    verdicts = []
    for axis in AXES:
        for key, cells in of.series(axis).items() if axis in of.varying else ():
            if len(cells) > 1:
                last = shares[index[id(cells[-1])]]
                verdicts.append(_verdict(axis, key, cells, threshold, last))
    told = tuple(usage.told(left_out))
    return Bottleneck(of, of.fitting(unit), threshold, tuple(verdicts), shares, told)


def _verdict(
    axis: str, key: Key, cells: Sequence[Values], threshold: float, last: tuple[Resource, ...]
) -> Verdict:
    steps = tuple(_step(axis, key, a, b, threshold) for a, b in itertools.pairwise(cells))
    knee = math.nan
    for step in reversed(steps):
        if step.growth != "stopped":
            break
        knee = step.before
    return Verdict(axis, key, steps, knee, last)


def _step(axis: str, key: Key, a: Values, b: Values, threshold: float) -> Step:
    before, after = a.number(axis), b.number(axis)
    power = 1 / min(math.log2(after / before), 1)
    r = ratio_of(b, a)
    value, low, high = (x**power - 1 for x in (r.ratio, r.low, r.high))
    growth: Growth = "cannot tell"
    if r.decides and high < threshold:
        growth = "stopped"
    elif r.decides and low > threshold:
        growth = "grows"
    return Step(axis, key, before, after, value, low, high, growth)


def _resources(
    cell: Values, of: Mapping[str, Sequence[usage.Usage]], limits: Mapping[str, float]
) -> tuple[Resource, ...]:
    link = usage.link_limit(cell.level("network"), cell.number("storage_nodes"))
    network, device = limits.get("network", link), limits.get("device", math.nan)
    busy = _resource("device", [[one.device_busy for one in mine] for mine in of.values()])
    if busy.state == "at its limit":
        busy = replace(busy, state=BUSY)
    rated = _resource("device", [[u.device_rate / device for u in mine] for mine in of.values()])
    return (
        _resource("network", [[u.network_rate / network for u in mine] for mine in of.values()]),
        _device(busy, rated),
        _resource("client CPU", [[one.cpu_busy for one in mine] for mine in of.values()]),
    )


def _device(busy: Resource, rated: Resource) -> Resource:
    """At its limit by the limit alone; excluded by busy time, or by the limit where not busy."""
    if rated.state in ("not measured", "cannot tell") and busy.state != "not measured":
        return busy
    return replace(rated, state=BUSY) if rated.state != "at its limit" and busy.state == BUSY \
        else rated  # fmt: skip


def _resource(name: str, values: Iterable[Sequence[float]]) -> Resource:
    known = [[v for v in mine if v <= IMPOSSIBLE] for mine in values]  # and no NaN
    share = of_independent([float(np.median(mine)) for mine in known if mine])
    state: State = "cannot tell"
    if share.kind == "none":
        state = "not measured"
    elif share.decides and share.low >= FULL[name]:
        state = "at its limit"
    elif share.decides and share.high < FULL[name]:
        state = "below its limit"
    return Resource(name, share, state)
