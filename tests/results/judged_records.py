"""Records that audits judge: of replays, of pools and devices, of servers, of loaded libraries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fsmatrix.results.evidence.replay import CapturedKind, IssueError, PlayedKind
from fsmatrix.results.evidence.target import DURABLE
from fsmatrix.results.evidence.workloads import Analysed, Capacity, OpenLoop, Probe, Selection
from fsmatrix.results.record import Latency, Phase, RunRecord
from tests.results.audit_records import (
    MB,
    counters,
    declared,
    latency,
    phase,
    record,
    with_evidence,
)


def written_with(synced: bool = True, **moved: float) -> RunRecord:
    made = phase("write")
    if not synced:
        made = replace(made, latency={"write": made.latency["write"]})
    return with_evidence(record(made), counters={"write": counters(**moved)} if moved else {})


def durable(run: RunRecord, word: str = DURABLE) -> RunRecord:
    """On a target of that durability."""
    return replace(run, environment={"target": {"deployment": {"durability": word}}})


def aggregated(records: float) -> RunRecord:
    """Engines merged or removed so many while they were read."""
    moved = counters(server_aggregated_records=records)
    return with_evidence(record(phase()), counters={"read": moved})


def metadata_caches(state: str, made: Phase | None = None) -> RunRecord:
    """A cold run whose inodes were kept or dropped."""
    made = made or phase("stat", latency={"stat": latency(400)})
    cache = {"declared": "cold", "state": "cold", "facts": {"metadata_caches": state}}
    return with_evidence(record(made), cache={made.name: cache})


def hadrons(events: int = 10, counts: tuple[int, ...] = (1, 2), **changes: Any) -> RunRecord:
    """The LHCb analysis of 10 events of which 3 pass the cuts."""
    cuts = {"no_muon": 9, "kaons": 4, "no_pions": 3, "below": 0, "above": 0}
    found = Selection(events=events, counts=counts, **cuts)  # type: ignore[arg-type]
    wanted = Selection(events=10, counts=(1, 2), **cuts)  # type: ignore[arg-type]
    seen = Analysed(
        data="seed 18",
        found=found,
        wanted=wanted,
        uncompressed=1320,
        stored=1000,
        initialisation=0.1,
        loop=1.0,
        closing=0.0,
        start=1.0,
        files=1,
    )
    read = phase("read")
    return record(replace(read, facts={**read.facts, "lhcb": replace(seen, **changes).document()}))


def replay(agreed: int = 100, played: int = 100, late: float = 0.0, **changes: Any) -> RunRecord:
    """A replay of 100 reads; `late`: seconds, the 99th percentile of its issue errors."""
    kind = PlayedKind(
        captured=CapturedKind(operations=100, bytes=100, failed=0, p50=1e-3, p99=None),
        played=played,
        agreed=agreed,
        failed_as_captured=0,
        failed_otherwise=played - agreed,
        succeeded_otherwise=0,
        other_bytes=0,
        short=0,
        bytes=agreed,
        skipped={"no such kind": 100 - played} if played < 100 else {},
    )
    issue = IssueError(
        operations=played, mean=late / 2, p50=late / 2, p99=late, longest=late, within_100us=0.5
    )
    facts = {
        "trace": "t.h5",
        "source": "strace",
        "anonymised": False,
        "mode": "timed" if late else "closed",
        "time_scale": 1.0 if late else 0.0,
        "fill": "filled",
        "clients": 1,
        "operations": 100,
        "played": played,
        "agreed": agreed,
        "fidelity": agreed / 100,
        "declared_fidelity": 0.99,
        "kinds": {"read": kind.document()},
        "classes": {},
        "errors_as_captured": {},
        "errors_otherwise": {"ENOENT": played - agreed} if played > agreed else {},
        "left_out": {},
        "issue_error": issue.document() if late else None,
        **dict.fromkeys(("barriers", "threads", "sharing", "added", "added_failed"), 0),
        **dict.fromkeys(("widened", "buffered"), 0),
    }
    return record(phase("replay", facts={"replay": facts | changes}))


def world(**changes: Any) -> RunRecord:
    base = record(phase())
    return with_evidence(base, world={**base.evidence.world.document(), **changes})


def series(values: Any, **changes: Any) -> RunRecord:
    return record(phase(interval_bytes=np.asarray(values, dtype=np.int64), **changes))


def stonewalled(**changes: Any) -> RunRecord:
    return record(phase(facts={"stonewall_seconds": 2.0}, **changes))


def paced(backlog: int = 0, unplayed: int = 0, **facts: float) -> RunRecord:
    """An open loop of 10,000 operations."""
    loop = OpenLoop(
        rate=1000, arrivals="constant", seconds=10.0, due=10_000, backlog=backlog, unplayed=unplayed
    )
    return record(phase(facts={"open_loop": loop.document(), **facts}))


def limited(latency: float | None, rate: float | None = None, **found: float) -> RunRecord:
    """A search for the rate whose p99 stays within 2 ms, with that latency in its last step."""
    kept = latency is not None and latency <= 0.002
    probe = Probe(rate=500.0, latency=latency, saturated=latency is None, kept=kept)
    fact = Capacity(percentile="p99", limit=0.002, probes=(probe,), rate=rate, **found)
    return record(phase(facts={"capacity": fact.document()}))


def of_links(speed: int) -> dict[str, Any]:
    name = "network_bytes_per_second"
    return {name: speed, "sources": {name: "links"}}


def with_ceiling(rate: float | None, **evidence: Any) -> RunRecord:
    return with_evidence(record(phase()), ceilings={"read": {"rate": rate}}, **evidence)


def noisy(spread: float, slope: float = 0.0, length: int = 100) -> Any:
    rng = np.random.default_rng(3)
    return MB * (1 + slope * np.linspace(-1, 1, length) + spread * rng.standard_normal(length))


def longer(base: Latency, seconds: float) -> Latency:
    """With one operation more, of so many seconds."""
    counts = base.counts.copy()
    counts[-1] += 1
    return Latency(counts, base.total + seconds, base.minimum, seconds)


def hung(longest: float, window: float) -> RunRecord:
    """A read of that many seconds in which one operation took so long."""
    return record(phase(seconds=window, latency={"read": longer(latency(400), longest)}))


def placed(
    level: bool = True, realised: str = "", metadata: bool = False, moved: int = MB, **place: Any
) -> RunRecord:
    """A run in a pool that lies so: of a level, or of the target."""
    lies = {"hosts": ["a", "b"], "machines": ["x", "y"], "max_over_mean": 1.02, **place}
    target: dict[str, Any] = {
        "ceph": {"pools": {"p": {"placement": lies, "metadata": metadata}, "other": {"size": 3}}}
    }
    if level:
        target = {"level": {"pool": "q", "placement": lies}}
    known = {"realised": {"storage_nodes": realised}} if realised else {}
    done = phase(bytes=np.full(4, moved))
    return record(done, environment={"target": target, **known})


def on_emulated(adapter: float, devices: int = 4, cache: str = "bypass") -> RunRecord:
    """A second of 400 reads on devices of 100 reads per second; see `phase`."""
    made = declared(cache, cache, record(phase(seconds=0.5)))
    limits = {
        "adapter_limits": {"read_operations": adapter, "write_operations": 1},
        "device_limits": {"read_operations": 100, "write_operations": 1},
    }
    target = {"emulated": limits, "device_numbers": list(range(devices))}
    return replace(made, environment={"target": target})


def in_jobs(parallel: str) -> RunRecord:
    """A run of a submission that allows so many jobs at once."""
    variables = {"FSMATRIX_PARALLEL_JOBS": parallel}
    return record(phase(), environment={"machine": {"variables": variables}})


def in_servers(memory: Any, run: RunRecord, **told: str) -> RunRecord:
    """Of a target whose servers have so much memory; `told`: of their caches."""
    caches = run.evidence.document()["cache"]
    told_of = {name: {**state, "facts": told} for name, state in caches.items()}
    environment = {"target": {"deployment": {"server_memory": memory}}}
    return replace(with_evidence(run, cache=told_of), environment=environment)


def preloaded(name: str = "write", summaries: int = 4, **calls: int) -> RunRecord:
    """A phase of 400 operations of a program that a library was put into."""
    seen = {"library": "ioil", "summaries": summaries, "calls": calls}
    return with_evidence(record(phase(name)), interception={name: seen})
