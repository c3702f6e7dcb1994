"""Each audit: a record on which it fires, and one on which it must not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.results.audits import RUN_AUDITS, audit_run, engines
from fsmatrix.results.audits.base import data_bytes
from fsmatrix.results.audits.timing import mann_kendall, steady_part
from fsmatrix.results.histogram import BINS
from fsmatrix.results.record import Latency, Phase, RunRecord
from fsmatrix.results.runfile import read_run, write_run

MB = 10**6
DOCS = Path(__file__).parents[2] / "docs/audits.md"


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


def record(*phases: Phase, case: Mapping[str, Any] | None = None, **changes: Any) -> RunRecord:
    """A good run with the given phases."""
    text = json.dumps({"workload": "pattern", "target": "t", **(case or {})})
    made = RunRecord(
        case=text, case_id="0" * 16, work_id="1" * 16, repetition=0, attempt=0, block=0,
        attachment="a", session="s", status="ok", engine="player-c", engine_version="1",
        started="2026-01-01T00:00:00+00:00", phases=phases,
        evidence={
            "cache": {p.name: {"declared": "cold", "state": "cold"} for p in phases},
            "counters": {
                p.name: counters(device_read_bytes=400 * MB, device_written_bytes=400 * MB)
                for p in phases
            },
            "cpu": {p.name: {"a": {"busy": 0.3, "idle": 0.7, "steal": 0.0}} for p in phases},
            "settle": {p.name: {"reached": True, "seconds": 0.1, "state": {}} for p in phases},
            "world": {
                "asked_ranks": 4, "got_ranks": 4, "asked_nodes": 1, "got_nodes": 1, "kernels": 1,
                "oversubscribed": False, "emulated_nodes": False,
            },
            "output": {"on_target": False},
            "load": {"before": 0.2, "foreign": 0.02},
            "limits": {"device_bytes_per_second": 500 * MB, "network_bytes_per_second": 500 * MB},
        },
    )  # fmt: skip
    return replace(made, **changes)


def with_evidence(base: RunRecord, **changes: Any) -> RunRecord:
    return replace(base, evidence={**base.evidence, **changes})


def read_with(**moved: float) -> RunRecord:
    return with_evidence(record(phase()), counters={"read": counters(**moved)})


def written_with(synced: bool = True, **moved: float) -> RunRecord:
    made = phase("write")
    if not synced:
        made = replace(made, latency={"write": made.latency["write"]})
    return with_evidence(record(made), counters={"write": counters(**moved)} if moved else {})


def declared(state: str, reached: str, base: RunRecord | None = None) -> RunRecord:
    base = base or record(phase())
    cache = {p.name: {"declared": state, "state": reached} for p in base.phases}
    return with_evidence(base, cache=cache)


def metadata_caches(state: str, made: Phase | None = None) -> RunRecord:
    """A cold run whose inodes were kept or dropped."""
    made = made or phase("stat", latency={"stat": latency(400)})
    cache = {"declared": "cold", "state": "cold", "facts": {"metadata_caches": state}}
    return with_evidence(record(made), cache={made.name: cache})


def world(**changes: Any) -> RunRecord:
    base = record(phase())
    return with_evidence(base, world={**base.evidence["world"], **changes})


def series(values: Any, **changes: Any) -> RunRecord:
    return record(phase(interval_bytes=np.asarray(values, dtype=np.int64), **changes))


def noisy(spread: float, slope: float = 0.0, length: int = 100) -> Any:
    rng = np.random.default_rng(3)
    return MB * (1 + slope * np.linspace(-1, 1, length) + spread * rng.standard_normal(length))


@dataclass(frozen=True)
class Trial:
    """Records on which an audit fires (with that severity), and does not."""

    severity: str
    fires: list[Callable[[], RunRecord]]
    silent: list[Callable[[], RunRecord]] = field(default_factory=list)


LATE = np.array([2.0, 2.0, 2.0, 2.5])


def placed(
    level: bool = True, realised: str = "", metadata: bool = False, moved: int = MB, **place: Any
) -> RunRecord:
    """A run in a pool that lies so: of a level, or of the target."""
    lies = {"hosts": ["a", "b"], "machines": ["x", "y"], "max_over_mean": 1.02, **place}
    target: dict[str, Any] = {"ceph": {"pools": {
        "p": {"placement": lies, "metadata": metadata}, "other": {"size": 3}}}}  # fmt: skip
    if level:
        target = {"level": {"pool": "q", "placement": lies}}
    known = {"realised": {"storage_nodes": realised}} if realised else {}
    done = phase(bytes=np.full(4, moved))
    return record(done, environment={"target": target, **known})


def in_jobs(parallel: str) -> RunRecord:
    """A run of a submission that allows so many jobs at once."""
    variables = {"FSMATRIX_PARALLEL_JOBS": parallel}
    return record(phase(), environment={"machine": {"variables": variables}})


TRIALS = {
    "read-served-by-servers": Trial(
        "warning",
        [lambda: read_with(network_received_bytes=400 * MB, server_device_read_bytes=359 * MB)],
        [
            lambda: read_with(network_received_bytes=400 * MB, server_device_read_bytes=361 * MB),
            lambda: read_with(network_received_bytes=400 * MB),
            lambda: declared("bypass", "bypass", read_with(server_device_read_bytes=0)),
            lambda: written_with(server_device_read_bytes=0),
        ],
    ),
    "placement-imbalance": Trial(
        "warning",
        [
            lambda: placed(max_over_mean=1.11),
            lambda: placed(level=False, max_over_mean=1.5),
            lambda: placed(level=False, metadata=True, moved=0, max_over_mean=1.5),
        ],
        [
            placed,
            lambda: placed(level=False, metadata=True, max_over_mean=1.5),
            lambda: placed(max_over_mean=1.10),
            lambda: record(phase(), environment={"target": {"ceph": {"pools": {"error": "x"}}}}),
            lambda: record(
                phase(),
                environment={"target": {"ceph": {"pools": {"p": {"placement": {"error": "x"}}}}}},
            ),
        ],
    ),
    "shared-machine": Trial(
        "warning",
        [lambda: placed(machines=["x"]), lambda: placed(level=False, machines=["x"])],
        [
            placed,
            lambda: placed(machines=["x"], realised="emulated"),
            lambda: placed(hosts=["a"], machines=["x"]),
            lambda: placed(machines=[]),
        ],
    ),
    "parallel-jobs": Trial(
        "warning",
        [lambda: in_jobs("2")],
        [lambda: in_jobs("1"), lambda: record(phase()), lambda: in_jobs("x")],
    ),
    "read-served-by-cache": Trial(
        "invalid",
        [
            lambda: read_with(device_read_bytes=10 * MB),
            lambda: read_with(device_read_bytes=350 * MB),
            # the loop device moved everything, the disk below its image nothing
            lambda: read_with(device_read_bytes=400 * MB, backing_read_bytes=0),
            lambda: declared("bypass", "bypass", read_with(device_read_bytes=0)),
            lambda: read_with(network_received_bytes=100 * MB),
        ],
        [
            lambda: read_with(device_read_bytes=361 * MB),
            lambda: read_with(device_read_bytes=0, backing_read_bytes=400 * MB),
            lambda: read_with(network_received_bytes=300 * MB, device_read_bytes=100 * MB),
            lambda: declared("warm", "warm", read_with(device_read_bytes=0)),
            lambda: declared("cold", "memory", read_with(device_read_bytes=0)),
            lambda: replace(
                read_with(device_read_bytes=200 * MB),
                case='{"options":{"compressible":0.5},"target":"t","workload":"pattern"}',
            ),
            lambda: replace(read_with(device_read_bytes=0), status="failed"),
        ],
    ),
    "cache-state-not-reached": Trial(
        "warning",
        [
            lambda: declared("cold", "unknown"),
            lambda: declared("warm", "cold"),
            lambda: metadata_caches("kept"),
        ],
        [
            lambda: declared("bypass", "bypass"),
            lambda: declared("cold", "memory"),
            lambda: metadata_caches("dropped"),
            lambda: metadata_caches("kept", phase()),
        ],
    ),
    "evidence-missing": Trial(
        "warning",
        [
            lambda: with_evidence(record(phase()), counters={}),
            lambda: with_evidence(record(phase()), counters={"read": []}),
            lambda: read_with(device_busy_seconds=1.0),
            lambda: written_with(device_busy_seconds=1.0),
        ],
        [
            lambda: declared("warm", "warm", with_evidence(record(phase()), counters={})),
            lambda: declared("cold", "memory", written_with(device_busy_seconds=1.0)),
            lambda: with_evidence(record(phase("write")), counters={}),
        ],
    ),
    "memory-reference": Trial(
        "invalid",
        [lambda: declared("cold", "memory")],
        [lambda: declared("cold", "cold")],
    ),
    "write-not-flushed": Trial(
        "warning",
        [
            lambda: written_with(device_written_bytes=100 * MB),
            lambda: written_with(synced=False, device_written_bytes=100 * MB),
            lambda: declared("cold", "cold", written_with(synced=False)),
        ],
        [
            lambda: written_with(device_written_bytes=401 * MB),
            lambda: written_with(synced=False, network_sent_bytes=401 * MB),
            lambda: written_with(),
            lambda: declared("bypass", "bypass", written_with(synced=False)),
            lambda: declared("cold", "memory", written_with(device_written_bytes=0)),
        ],
    ),
    "faster-than-device": Trial(
        "invalid",
        [
            lambda: with_evidence(
                record(phase()), limits={"device_bytes_per_second": 150 * MB}
            ),
        ],
        [
            lambda: with_evidence(record(phase()), limits={}),
            lambda: with_evidence(record(phase()), limits={"device_bytes_per_second": 195 * MB}),
            lambda: declared("warm", "warm", with_evidence(
                record(phase()), limits={"device_bytes_per_second": 150 * MB}
            )),
        ],
    ),
    "faster-than-network": Trial(
        "invalid",
        [lambda: with_evidence(record(phase()), limits={"network_bytes_per_second": 125 * MB})],
        [lambda: with_evidence(record(phase()), limits={"network_bytes_per_second": 10**9})],
    ),
    "too-short": Trial(
        "warning",
        [
            lambda: record(phase(seconds=0.2)),
            lambda: record(phase(operations=np.array([20, 20, 20, 20]))),
        ],
        [lambda: record(phase(seconds=0.26, operations=np.array([25, 25, 25, 25])))],
    ),
    "not-stationary": Trial(
        "warning",
        [
            lambda: series(np.r_[np.full(50, 4 * MB), np.full(50, 2 * MB)]),
            lambda: series(noisy(0.2, slope=0.5)),
            lambda: record(phase("create", interval_bytes=np.zeros(100, dtype=np.int64),
                                 interval_operations=np.arange(100))),
        ],
        [
            lambda: series(noisy(0.4)),
            lambda: series(noisy(0.01, slope=0.1)),
            lambda: series(np.arange(10), interval=0.2),  # too few intervals
            # the others have ended: the series falls, but no worker became slower
            lambda: series(np.r_[np.full(40, 4 * MB), np.full(60, MB)],
                           io_start=np.zeros(4), io_end=np.array([0.8, 0.8, 0.8, 2.0])),
        ],
    ),
    "stragglers": Trial(
        "warning",
        [lambda: record(phase(end=LATE))],
        [
            lambda: record(phase(end=np.array([2.0, 2.0, 2.0, 2.1]))),
            lambda: record(phase(ranks=1)),
        ],
    ),
    "clock-uncertainty": Trial(
        "warning",
        [lambda: record(phase(clock_uncertainty=0.05))],
        [lambda: record(phase(clock_uncertainty=0.01))],
    ),
    "overhead": Trial(
        "warning",
        [lambda: record(phase(overhead=np.array([0.0, 0.0, 0.2, 0.0])))],
        [
            lambda: record(phase(overhead=np.array([0.0, 0.0, 0.09, 0.0]))),
            lambda: record(phase(overhead=np.full(4, 0.3)), case={"geometry": {"threads": 4}}),
            lambda: record(phase(overhead=None)),
        ],
    ),
    "ended-early": Trial(
        "info",
        [lambda: record(phase(facts={"stonewall_seconds": 3.0}))],
        [lambda: record(phase(facts={"stonewall_seconds": 2.0}))],
    ),
    "cpu-saturated": Trial(
        "warning",
        [lambda: with_evidence(record(phase()), cpu={"read": {"a": {"busy": 0.5},
                                                              "b": {"busy": 0.97}}})],
        [lambda: with_evidence(record(phase()), cpu={"read": {"a": {"busy": 0.94}}})],
    ),
    "fewer-ranks": Trial(
        "invalid",
        [
            lambda: world(got_ranks=1),
            lambda: world(asked_nodes=2),
            lambda: replace(world(got_ranks=1), status="failed"),
        ],
        [lambda: world(got_ranks=8)],
    ),
    "errors-ignored": Trial(
        "invalid",
        [
            lambda: record(phase(errors=np.array([0, 3, 0, 0]), errors_by_errno={"EIO": 3})),
            lambda: record(phase(errors_by_errno={"ENOSPC": 1})),
        ],
        [lambda: record(phase(errors=np.array([0, 3, 0, 0])), status="failed")],
    ),
    "storage-unhealthy": Trial(
        "warning",
        [lambda: with_evidence(record(phase()), health={"read": ["12 PGs are backfilling"]})],
        [lambda: with_evidence(record(phase()), health={"read": []})],
    ),
    "background-load": Trial(
        "warning",
        [
            lambda: with_evidence(record(phase()), load={"before": 3.0, "foreign": 0.2}),
            lambda: with_evidence(record(phase()), cpu={"read": {"a": {"busy": 0.4,
                                                                       "steal": 0.2}}}),
        ],
        [lambda: with_evidence(record(phase()), load={"before": 3.0, "foreign": 0.1})],
    ),
    "carry-over": Trial(
        "warning",
        [lambda: with_evidence(record(phase()), settle={
            "read": {"reached": False, "seconds": 10.0, "state": {"dirty": 4096}}})],
        [lambda: with_evidence(record(phase()), settle={})],
    ),
    "oversubscribed": Trial("warning", [lambda: world(oversubscribed=True)], [world]),
    "emulated-nodes": Trial("info", [lambda: world(emulated_nodes=True)], [world]),
    "nodes-disagree": Trial(
        "warning",
        [lambda: world(disagreements=["MPI sees one shared memory on 2 nodes (a, a)"])],
        [world, lambda: world(disagreements=[])],
    ),
    "output-on-target": Trial(
        "warning",
        [lambda: with_evidence(record(phase()), output={"on_target": True})],
        [lambda: with_evidence(record(phase()), output={})],
    ),
}  # fmt: skip


def found(made: RunRecord, name: str) -> list[str]:
    return [finding.severity for finding in audit_run(made) if finding.audit == name]


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(name, index, id=f"{name}-{index}")
        for name, trial in TRIALS.items()
        for index in range(len(getattr(trial, kind)))
    ]


def test_every_audit_is_tried() -> None:
    """Those of external engines: test_audits_engines.py."""
    assert set(TRIALS) == set(RUN_AUDITS) - {audit.name for audit in engines.AUDITS}
    assert all(trial.fires and trial.silent for trial in TRIALS.values())


@pytest.mark.parametrize(("name", "index"), cases("fires"))
def test_fires(name: str, index: int) -> None:
    made = TRIALS[name].fires[index]()
    assert found(made, name) == [TRIALS[name].severity]


@pytest.mark.parametrize(("name", "index"), cases("silent"))
def test_silent(name: str, index: int) -> None:
    made = TRIALS[name].silent[index]()
    assert found(made, name) == []


def test_a_good_run_has_no_findings() -> None:
    assert audit_run(record(phase(), phase("write"))) == ()


def test_a_run_without_any_evidence_has_no_findings() -> None:
    assert audit_run(record(phase(), phase("write"), evidence={})) == ()
    assert audit_run(record(evidence={}, status="failed", case={})) == ()


def test_an_imported_run_with_totals_only() -> None:
    """No case, no ranks: one worker, nothing optional."""
    total = phase(
        ranks=1,
        overhead=None,
        latency={},
        interval=0.0,
        interval_bytes=None,
        interval_operations=None,
    )
    assert audit_run(replace(record(total), case="", evidence={})) == ()


def test_workers_without_data_operations_or_without_any() -> None:
    """Times that are not there are NaN; that is no reason to stumble."""
    none = np.full(4, np.nan)
    falling = np.arange(100)[::-1]
    made = phase("create", io_start=none, io_end=none, interval_bytes=falling)
    assert found(record(made), "not-stationary") == ["warning"]
    some = np.array([0.0, 0.0, np.nan, 0.0])
    idle = phase(start=some, end=some + 2, overhead=some, interval_bytes=falling)
    assert audit_run(record(idle)) == ()
    nobody = record(phase(start=none, end=none, overhead=none))
    assert [finding.audit for finding in audit_run(nobody)] == ["too-short"]


def test_clock_far_too_uncertain_is_invalid() -> None:
    assert found(record(phase(clock_uncertainty=0.3)), "clock-uncertainty") == ["invalid"]


def test_gravest_first_and_versions() -> None:
    findings = audit_run(
        with_evidence(
            read_with(device_read_bytes=0),
            output={"on_target": True},
            world={"emulated_nodes": True},
        )
    )
    assert [f.severity for f in findings] == ["invalid", "warning", "info"]
    assert all(f.version == RUN_AUDITS[f.audit].version and f.advice for f in findings)
    assert findings[0].evidence == {"device_read_bytes": 0.0, "bytes_read": 400 * MB}


def test_findings_survive_the_store(tmp_path: Path) -> None:
    """Whatever an audit gives as evidence can be written and read again."""
    for name, trial in TRIALS.items():
        for index, make in enumerate(trial.fires):
            findings = audit_run(make())
            path = tmp_path / f"{name}-{index}.h5"
            write_run(path, replace(make(), findings=findings))
            assert read_run(path).findings == findings


def test_audits_are_pure_functions_of_what_is_stored(tmp_path: Path) -> None:
    """Judging the file again gives the same findings."""
    for trial in TRIALS.values():
        path = tmp_path / "run.h5"
        write_run(path, trial.fires[0]())
        assert audit_run(read_run(path)) == audit_run(trial.fires[0]())


def test_mixture_is_divided_by_operations() -> None:
    mixed = phase("mixed", latency={"read": latency(300), "write": latency(100)})
    assert data_bytes(mixed) == (300 * MB, 100 * MB)
    served = with_evidence(record(mixed), counters={"mixed": counters(device_read_bytes=100 * MB)})
    assert found(served, "read-served-by-cache") == ["invalid"]
    honest = with_evidence(record(mixed), counters={"mixed": counters(device_read_bytes=300 * MB)})
    assert found(honest, "read-served-by-cache") == []


def test_metadata_phases_move_no_data() -> None:
    assert data_bytes(phase("open-read")) == (0.0, 0.0)
    assert data_bytes(phase("create")) == (0.0, 0.0)


def test_trend_test_against_its_definition() -> None:
    """p of the Mann-Kendall test for a known score: 10 rising values, S = 45."""
    # Var S = 10 * 9 * 25 / 18 = 125; z = 44 / sqrt(125) = 3.9355; p = 8.3e-5
    assert mann_kendall(np.arange(10.0)) == pytest.approx(8.30e-5, rel=0.01)
    assert mann_kendall(np.ones(10)) == 1.0


def test_trend_test_has_its_error_rate() -> None:
    """On pure noise at most about 1 % of the phases would be called not stationary."""
    rng = np.random.default_rng(1)
    alarms = sum(mann_kendall(rng.standard_normal(20)) < 0.01 for _ in range(2000))
    assert alarms < 40


def test_steady_part_leaves_out_opening_and_fsync() -> None:
    made = phase(io_start=np.full(4, 0.2), io_end=np.full(4, 1.6), ranks=4)
    part = steady_part(made)
    assert part is not None
    assert len(part) == 70


def test_every_audit_is_documented() -> None:
    """docs/audits.md has a row for each audit, with its scope and severity, and none besides."""
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in DOCS.read_text().splitlines()
        if line.startswith("| `") and line.count("|") == 6
    ]
    assert [row[0] for row in rows] == list(RUN_AUDITS)
    for name, scope, severities, *_ in rows:
        assert RUN_AUDITS[name].scope == scope
        assert name not in TRIALS or TRIALS[name].severity in severities
    noted = {name: severity for name, severity, _ in engines.NOTES.values()}
    assert {row[0]: row[2] for row in rows if row[0] in noted} == noted


def test_a_declared_reference_in_memory_is_only_said() -> None:
    made = replace(declared("cold", "memory"), coordinates={"reference": True})
    assert found(made, "memory-reference") == ["info"]
