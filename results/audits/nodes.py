"""Audits of the storage nodes that were watched: who was full, who had more to do, who is unknown.

They explain a number and take nothing from it: all are of severity info.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from fsmatrix.results.audits.audit import Audit, Remark, data_bytes, size, window
from fsmatrix.results.evidence.nodes import DISKS, LINKS, SERVICES
from fsmatrix.results.record import Monitor, Phase, RunRecord

FULL = 0.9  # of a limit: a mean over a window in which the first and last moments are not full
COVERED = 0.5  # of a window that values must tell of
COARSE = 2.0  # intervals: of a shorter window nobody expects series
UNEVEN = 1.5  # times the median node
FEWEST = 3  # nodes: of two, nobody can say which one is off
LEAST = 1 << 20  # bytes of the busiest node: below, daemons' own talk decides
OWN_SHARE = 0.1  # of the run's bytes that the nodes together must have moved


@dataclass(frozen=True)
class Within:
    """What a node's series say of a window: seconds of it, and each series' mean over these."""

    seconds: float
    means: Mapping[str, float]


def within(monitor: Monitor, row: int, began: float, ended: float) -> Within:
    """Of a node's series from `began` to `ended` (Unix time) alone.

    A value is of the time since the sample of that node before it.  It counts by the part of it
    that lies in the window; one of which more than half lies outside does not.  Of a series with
    gaps, the mean is over what there is.
    """
    known = monitor.known[row]
    at = monitor.time[known]
    if at.size < 2:
        return Within(0.0, {})
    before = np.concatenate(([2 * at[0] - at[1]], at[:-1]))
    inside = np.clip(np.minimum(at, ended) - np.maximum(before, began), 0.0, None)
    inside[inside * 2 < at - before] = 0.0
    means, longest = {}, 0.0
    for name, values in monitor.series.items():
        own = values[row][known]
        weights = np.where(np.isnan(own), 0.0, inside)
        if (seconds := float(weights.sum())) > 0:
            means[name] = float(np.nansum(own * weights)) / seconds
            longest = max(longest, seconds)
    return Within(longest, means)


def of_phase(record: RunRecord, phase: Phase) -> dict[str, Within]:
    """What the series of each storage node say of a phase."""
    if record.nodes is None or not phase.began or not window(phase) > 0:
        return {}
    began = phase.began + float(np.nanmin(phase.start))
    ended = began + window(phase)
    hosts = record.nodes.hosts
    return {host: within(record.nodes, row, began, ended) for row, host in enumerate(hosts)}


def _covered(record: RunRecord, phase: Phase) -> dict[str, Within]:
    """As `of_phase`, of the nodes whose values tell of enough of the window."""
    nodes = of_phase(record, phase)
    return {host: seen for host, seen in nodes.items() if seen.seconds >= COVERED * window(phase)}


def monitor_missing(record: RunRecord) -> Iterator[Remark]:
    """A node was to be watched, and its series say too little."""
    for phase in record.phases:
        if not phase.began:
            continue
        seen, seconds = of_phase(record, phase), window(phase)
        missing = {}
        for name, node in record.evidence.nodes.items():
            there = seen[name].seconds if name in seen else 0.0
            expected = node.interval is not None and seconds >= COARSE * node.interval
            if there < COVERED * seconds and (expected or node.why_not):
                missing[name] = node.why_not or f"{there:.3g} of {seconds:.3g} s"
        if missing:
            first = next(iter(missing))
            message = (
                f"{len(missing)} of {_nodes(record)} storage nodes have no series, or "
                f"of less than half of the window: {first}: {missing[first]}"
            )
            yield "info", phase.name, message, {"why_not": missing}


def busy(means: Mapping[str, float]) -> float | None:
    """Share of a node's cores that worked; None if it is not known."""
    if "cpu_idle" in means:
        return 1.0 - means["cpu_idle"] - means.get("cpu_iowait", 0.0)
    if "cpu_user" in means:
        return means["cpu_user"] + means.get("cpu_system", 0.0)
    return None


def shares(record: RunRecord, phase: Phase) -> dict[str, dict[str, float]]:
    """Node -> shares of the limits that are known: "cpu", "link_sent:eth0", "disk_read:sda"..."""
    found: dict[str, dict[str, float]] = {}
    for host, seen in _covered(record, phase).items():
        node = record.evidence.nodes.get(host)
        limits = dict(node.drive_limits) if node else {}
        for link, limit in node.link_limits.items() if node else ():
            limits |= {f"{metric}{link}": limit for metric in LINKS}
        found[host] = {
            name: seen.means[name] / limit
            for name, limit in limits.items()
            if limit > 0 and name in seen.means
        }
        cpu = busy(seen.means)
        found[host] |= {"cpu": cpu} if cpu is not None else {}
    return found


def fullest(record: RunRecord, phase: Phase) -> dict[str, float]:
    """The largest share that a storage node had of its "link", "drive" or "cpu", where known."""
    found: dict[str, float] = {}
    for of_node in shares(record, phase).values():
        for name, share in of_node.items():
            kind = "link" if name.startswith(LINKS) else "drive" if ":" in name else name
            found[kind] = max(found.get(kind, 0.0), share)
    return found


def full(record: RunRecord, phase: Phase) -> dict[str, dict[str, float]]:
    """Node -> what of it was above FULL, with its share."""
    above = {
        host: {name: share for name, share in of_node.items() if share > FULL}
        for host, of_node in shares(record, phase).items()
    }
    return {host: found for host, found in above.items() if found}


def node_saturated(record: RunRecord) -> Iterator[Remark]:
    """A storage node was at the limit of its CPU, a link or a drive."""
    for phase in record.phases:
        if found := full(record, phase):
            host = max(found, key=lambda name: max(found[name].values()))
            what = max(found[host], key=lambda name: found[host][name])
            message = (
                f"{len(found)} of {_nodes(record)} storage nodes were at a limit, "
                f"{host} at {found[host][what]:.0%} of its {_word(what)}"
            )
            yield "info", phase.name, message, {"shares": found}


def _nodes(record: RunRecord) -> int:
    """How many were to be watched; a bed's daemons on none of them are no node."""
    return len(set(record.evidence.nodes) - {SERVICES})


def _word(what: str) -> str:
    metric, _, device = what.partition(":")
    if not device:
        return "cores"
    return f"{'link' if metric.startswith('link') else 'drive'} {device} ({metric})"


def imbalance(record: RunRecord) -> Iterator[Remark]:
    """One node moved far more bytes than the others."""
    for phase in record.phases:
        nodes = _covered(record, phase)
        for metrics in (LINKS, DISKS):
            moved = {
                host: seen.seconds
                * sum(mean for name, mean in seen.means.items() if name.startswith(metrics))
                for host, seen in nodes.items()
                if any(name.startswith(metrics) for name in seen.means)
            }
            if len(moved) < FEWEST:
                continue
            most, middle = max(moved, key=lambda host: moved[host]), median(moved.values())
            own = OWN_SHARE * sum(data_bytes(phase))
            if moved[most] > UNEVEN * middle and moved[most] > LEAST and sum(moved.values()) > own:
                message = (
                    f"{most} moved {size(moved[most])}, the median of {len(moved)} storage nodes "
                    f"is {size(middle)}: it may be the limit of all"
                )
                yield "info", phase.name, message, {"bytes": moved}
            break  # what the links tell the disks need not


AUDITS = (
    Audit(
        "monitor-missing",
        1,
        "phase",
        monitor_missing,
        "the reason is with each node (evidence.nodes); a source or node that cannot be had is "
        "left out of `monitor`",
    ),
    Audit(
        "storage-node-saturated",
        1,
        "phase",
        node_saturated,
        "this is what limits, if nothing on the clients does: compare with `cpu-saturated` and "
        "`client-bound`",
    ),
    Audit(
        "storage-imbalance",
        1,
        "phase",
        imbalance,
        "more files or placement groups spread the load; look at `placement-imbalance`",
    ),
)
