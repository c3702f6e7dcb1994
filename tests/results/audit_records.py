"""Records of good runs, to be changed by the tests of audits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fsmatrix.results.audits import audit_run
from fsmatrix.results.evidence.evidence import Evidence
from fsmatrix.results.evidence.stored import read
from fsmatrix.results.histogram import BINS
from fsmatrix.results.record import Latency, Phase, RunRecord

MB = 10**6


def latency(count: int) -> Latency:
    counts = np.zeros(BINS, dtype=np.int64)
    counts[500] = count
    return Latency(counts, count * 1e-3, 1e-3, 1e-3)


def phase(name: str = "read", *, seconds: float = 2.0, ranks: int = 4, **changes: Any) -> Phase:
    """A quiet phase: 100 MB by each worker in 100 operations, an even series."""
    ones = np.ones(ranks)
    made = Phase(
        name=name,
        start=0.0 * ones,
        end=seconds * ones,
        bytes=np.full(ranks, 100 * MB),
        operations=np.full(ranks, 100),
        errors=np.zeros(ranks, dtype=np.int64),
        overhead=0.001 * ones,
        latency={name: latency(100 * ranks), "open": latency(ranks), "fsync": latency(ranks)},
        interval=seconds / 100,
        interval_bytes=np.full(100, ranks * MB),
        interval_operations=np.full(100, ranks),
    )
    return replace(made, **changes)


def counters(**moved: float) -> list[dict[str, Any]]:
    """Counters of one kernel that went so far."""
    return [
        {
            "host": "a",
            "before": dict.fromkeys(moved, 7.0),
            "after": {name: 7.0 + value for name, value in moved.items()},
        }
    ]


def evidence(document: Mapping[str, Any]) -> Evidence:
    """From what is stored."""
    return read(Evidence, document, "evidence")


def record(*phases: Phase, case: Mapping[str, Any] | None = None, **changes: Any) -> RunRecord:
    """A good run with the given phases."""
    text = json.dumps({"workload": "pattern", "target": "t", **(case or {})})
    made = RunRecord(
        case=text,
        case_id="0" * 16,
        work_id="1" * 16,
        repetition=0,
        attempt=0,
        block=0,
        attachment="a",
        session="s",
        status="ok",
        engine="player-c",
        engine_version="1",
        started="2026-01-01T00:00:00+00:00",
        phases=phases,
        evidence=evidence(
            {
                "cache": {p.name: {"declared": "cold", "state": "cold"} for p in phases},
                "counters": {
                    p.name: counters(device_read_bytes=400 * MB, device_written_bytes=400 * MB)
                    for p in phases
                },
                "cpu": {p.name: {"a": {"busy": 0.3, "idle": 0.7, "steal": 0.0}} for p in phases},
                "settle": {p.name: {"reached": True, "seconds": 0.1, "state": {}} for p in phases},
                "world": {
                    "asked_ranks": 4,
                    "got_ranks": 4,
                    "asked_nodes": 1,
                    "got_nodes": 1,
                    "kernels": 1,
                    "oversubscribed": False,
                    "emulated_nodes": False,
                },
                "output": {"on_target": False},
                "load": {"before": 0.2, "foreign": 0.02},
                "limits": {
                    "device_bytes_per_second": 500 * MB,
                    "network_bytes_per_second": 500 * MB,
                },
            }
        ),
    )
    return replace(made, **changes)


def with_evidence(base: RunRecord, **changes: Any) -> RunRecord:
    """`changes`: as they are stored."""
    return replace(base, evidence=evidence({**base.evidence.document(), **changes}))


def read_with(**moved: float) -> RunRecord:
    return with_evidence(record(phase()), counters={"read": counters(**moved)})


def declared(state: str, reached: str, base: RunRecord | None = None) -> RunRecord:
    base = base or record(phase())
    cache = {p.name: {"declared": state, "state": reached} for p in base.phases}
    return with_evidence(base, cache=cache)


def found(made: RunRecord, name: str) -> list[str]:
    return [finding.severity for finding in audit_run(made) if finding.audit == name]
