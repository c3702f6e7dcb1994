"""What the engines of this machine count themselves: bytes for clients, and aggregation.

Clients' bytes where every engine is on this machine's loopback: no interface tells them apart from
other traffic.  `daos_metrics` reads the shared memory of a local engine, which takes its owner's or
root's rights; no engine and no client is asked.
"""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Iterable

from fsmatrix.backends.daos.state.facts import AtAttachment
from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools
from fsmatrix.results.evidence.values import JsonObject

TOOL = "daos_metrics"
MOST_ENGINES = 8
TIMEOUT = 5.0  # seconds for each engine: a look stands beside a measurement
REST = 30.0  # seconds after a failed look in which none is tried
# counter -> metrics of a pool that are added up
_SUMS = {
    "network_received_bytes": ("xferred/fetch",),
    "network_sent_bytes": ("xferred/update",),
    "server_aggregated_records": (
        *("vos_aggregation/deleted_sv", "vos_aggregation/deleted_ev"),
        *("vos_aggregation/merged_recs", "vos_gc/ev_del", "vos_gc/sv_del"),
    ),
}
_resting: dict[str, float] = {}  # UUID of a pool -> until when


def counters(details: JsonObject) -> dict[str, float]:
    """Of the engines of an access's pool, all of which are here.

    Nothing while a step is sampled (outside the main thread): a look starts a program.  What
    cannot be told is absent.
    """
    attached = AtAttachment.of(details)
    pool, engines = attached.pool_uuid, attached.engines
    if threading.current_thread() is not threading.main_thread() or engines > MOST_ENGINES:
        return {}
    if time.monotonic() < _resting.get(pool, 0.0) or tools.find(TOOL) is None:
        return {}
    try:
        metrics = [_metrics(index, pool) for index in range(engines)]
    except ToolError:
        _resting[pool] = time.monotonic() + REST
        return {}
    totals = {
        name: sum(of_engine.get(metric, 0.0) for of_engine in metrics for metric in parts)
        for name, parts in _SUMS.items()
    }
    return {**totals, "network_counting_engines": float(engines)}


def _metrics(index: int, pool: str) -> dict[str, float]:
    """Metric of the pool -> its sum over the targets of one engine."""
    argv = [TOOL, f"--srv_idx={index}", "--csv"]
    values = parse(tools.run(argv, deadline=TIMEOUT).stdout.splitlines(), pool)
    if not values:
        raise ToolError(f"{TOOL} reports nothing about pool {pool}")
    return values


def parse(lines: Iterable[str], pool: str) -> dict[str, float]:
    """Sums over targets, of lines as "ID: 0/pool/<uuid>/xferred/fetch/tgt_0,248"."""
    sums: dict[str, float] = {}
    for row in csv.reader(lines):
        before, _, name = row[0].partition(f"/pool/{pool}/") if row else ("", "", "")
        metric, _, target = name.rpartition("/")
        if not before.startswith("ID: ") or not target.startswith("tgt_") or len(row) < 2:
            continue
        if row[1].isdecimal():
            sums[metric] = sums.get(metric, 0.0) + float(row[1])
    return sums
