"""Trials of the audits of watched storage nodes, and the records that they are tried with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fsmatrix.results.evidence.nodes import unit_of
from fsmatrix.results.record import Monitor, Phase, RunRecord
from tests.results.audit_records import MB, phase, record, with_evidence
from tests.results.audits.trials_of_storage import Trial

BEGAN = 1.7e9
LIMIT = {"link_limits": {"eth0": 100.0 * MB}, "drive_limits": {"disk_written:sda": 50.0 * MB}}


def series(*nodes: dict[str, float], every: float = 0.5, of: Phase | None = None) -> Monitor:
    """The same values all the time, on n1, n2...; the first look gives no rates."""
    seconds = float((of or phase()).end.max())
    time = BEGAN + np.arange(0, seconds + every, every)
    names = sorted({name for node in nodes for name in node})
    table = {
        name: np.array([[float(node.get(name, np.nan))] * time.size for node in nodes])
        for name in names
    }
    for values in table.values():
        values[:, 0] = np.nan
    table["memory_used"] = np.ones((len(nodes), time.size))
    hosts = tuple(f"n{number}" for number in range(1, len(nodes) + 1))
    return Monitor(hosts, time, table, {name: unit_of(name) for name in table})


def watched(
    monitor: Monitor | None, *, seconds: float = 2.0, nodes: int = 3, **told: Any
) -> RunRecord:
    """A run of 400 MB beside these series."""
    made = record(phase("write", seconds=seconds, began=BEGAN))
    evidence = {"source": "ssh", "interval": 0.5, **told}
    named = {f"n{number}": evidence for number in range(1, nodes + 1)}
    return replace(with_evidence(made, nodes=named), nodes=monitor)


def links(*rates: float) -> RunRecord:
    """Nodes that receive so many MB/s."""
    return watched(series(*({"link_received:eth0": rate * MB} for rate in rates)), **LIMIT)


def cpu(**means: float) -> RunRecord:
    return watched(series({f"cpu_{name}": value for name, value in means.items()}), nodes=1)


OF_NODES = {
    "monitor-missing": Trial(
        "info",
        [
            lambda: watched(None),
            lambda: watched(None, why_not="ssh hangs", interval=None),
            lambda: watched(series({"cpu_user": 0.1}, {"cpu_user": 0.1})),  # n3 is not there
            lambda: watched(series({"cpu_user": 0.1}, of=phase(seconds=0.4)), nodes=1),
            lambda: watched(series({"cpu_user": 0.1}, every=9.0), nodes=1, why_not="coarse"),
        ],
        [
            lambda: watched(series({"cpu_user": 0.1}, of=phase(seconds=1.1)), nodes=1),
            lambda: watched(series({"cpu_user": 0.1}), nodes=1, why_not="2 looks were late"),
            lambda: watched(None, seconds=0.9),  # of so short a window nobody expects any
            lambda: record(phase()),
        ],
    ),
    "storage-node-saturated": Trial(
        "info",
        [
            lambda: cpu(idle=0.08, iowait=0.01),
            lambda: cpu(user=0.5, system=0.41),
            lambda: links(91, 10, 10),
            lambda: watched(series({"disk_written:sda": 46.0 * MB}), nodes=1, **LIMIT),
        ],
        [
            lambda: cpu(idle=0.08, iowait=0.03),
            lambda: cpu(user=0.5, system=0.39),
            lambda: links(89, 89, 89),
            lambda: watched(series({"link_sent:eth0": 99.0 * MB}), nodes=1),  # of no known limit
            lambda: watched(series({"disk_written:sdb": 99.0 * MB}), nodes=1, **LIMIT),
            lambda: watched(series({"link_sent:eth0": 99.0 * MB}, every=9.0), nodes=1, **LIMIT),
            lambda: replace(cpu(idle=0.0, iowait=0.0), status="failed"),
        ],
    ),
    "storage-imbalance": Trial(
        "info",
        [
            lambda: links(20, 20, 31),
            lambda: links(0, 0, 31),
            lambda: watched(
                series(
                    *({f"disk_written:{d}": r * MB} for d, r in (("a", 20), ("b", 20), ("c", 31)))
                )
            ),
        ],
        [
            lambda: links(20, 20, 29),
            lambda: links(20, 31),
            lambda: links(0.1, 0.1, 0.4),  # less than a megabyte
            lambda: links(1, 1, 4),  # of 400 MB: not what the run moved
        ],
    ),
}
