"""Each audit: a record on which it fires, and one on which it must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.results.audits import audit_run, engines, run_audits
from fsmatrix.results.evidence.deployment import WRITE_BACK
from fsmatrix.results.files.run.runfile import read_run, write_run
from fsmatrix.results.record import RunRecord
from tests.results.audit_records import (
    MB,
    declared,
    found,
    latency,
    phase,
    read_with,
    record,
    with_evidence,
)
from tests.results.judged_records import (
    aggregated,
    durable,
    hadrons,
    hung,
    in_jobs,
    in_servers,
    longer,
    metadata_caches,
    noisy,
    of_links,
    on_emulated,
    placed,
    preloaded,
    replay,
    series,
    stonewalled,
    world,
    written_with,
)

DOCS = Path(__file__).parents[3] / "docs/audits.md"


@dataclass(frozen=True)
class Trial:
    """Records on which an audit fires (with that severity), and does not."""

    severity: str
    fires: list[Callable[[], RunRecord]]
    silent: list[Callable[[], RunRecord]] = field(default_factory=list)


LATE = np.array([2.0, 2.0, 2.0, 2.5])


TRIALS = {
    "fits-server-memory": Trial(
        "warning",
        [
            lambda: in_servers(400 * MB, record(phase())),
            lambda: in_servers(400 * MB, record(phase()), server_caches="unknown"),
        ],
        [
            lambda: in_servers(400 * MB - 1, record(phase())),
            lambda: in_servers(0, record(phase())),
            lambda: in_servers("much", record(phase())),
            lambda: in_servers(400 * MB, record(phase()), server_caches="dropped"),
            lambda: in_servers(400 * MB, record(phase()), server_data_caches="unused"),
            lambda: in_servers(400 * MB, read_with(server_device_read_bytes=400 * MB)),
            lambda: in_servers(400 * MB, declared("warm", "warm", record(phase()))),
            lambda: in_servers(400 * MB, written_with(network_sent_bytes=400 * MB)),
            lambda: record(phase()),
        ],
    ),
    "interception-missed": Trial(
        "invalid",
        [
            lambda: preloaded(summaries=0),
            lambda: preloaded(read=0, write=0),
            lambda: preloaded(read=400, write=0),
            lambda: preloaded("read", read=0, write=400),
            lambda: preloaded("create", open=0, stat=0),
        ],
        [
            lambda: preloaded(write=400),
            lambda: preloaded("read", read=1),
            lambda: preloaded("create", open=400),
            lambda: record(phase("write")),
        ],
    ),
    "replay-fidelity": Trial(
        "warning",
        [lambda: replay(98), lambda: replay(98, 98), lambda: replay(99, declared_fidelity=1.0)],
        [
            lambda: replay(),
            lambda: replay(99, 99),
            lambda: replay(98, declared_fidelity=0.5),
            lambda: record(phase("replay", facts={"replay": {"agreed": 0}})),
            lambda: record(phase()),
        ],
    ),
    "replay-late": Trial(
        "warning", [lambda: replay(late=1.1e-3)], [lambda: replay(late=0.9e-3), replay]
    ),
    "replay-holes": Trial(
        "warning",
        [lambda: replay(fill="sparse")],
        [replay, lambda: replay(fill="sparse", kinds={})],
    ),
    "replay-widened": Trial(
        "warning",
        [lambda: replay(widened=1)],  # a phase of this module moves far more than 100 bytes
        [replay, lambda: replay(10**6 * 400, widened=1)],
    ),
    "lhcb-histogram": Trial(
        "invalid",
        [lambda: hadrons(counts=(2, 1)), lambda: hadrons(counts=(1, 2, 0)), lambda: hadrons(9)],
        [hadrons, lambda: hadrons(wanted=None), replay],
    ),
    "interception-partly": Trial(
        "warning",
        [lambda: preloaded(write=359), lambda: preloaded("read", read=1)],
        [
            lambda: preloaded(write=360),
            lambda: preloaded("create", open=1),
            lambda: preloaded(write=0),
        ],
    ),
    "random-faster-than-sequential": Trial(
        "warning",
        [
            lambda: record(phase("ior-easy-read"), phase("ior-rnd4K-easy-read", seconds=1.8)),
            lambda: record(phase("read-ior-easy"), phase("read-ior-rnd4K-easy", seconds=1.8)),
        ],
        [
            lambda: record(phase("ior-easy-read"), phase("ior-rnd4K-easy-read", seconds=1.83)),
            lambda: record(phase("ior-hard-read"), phase("ior-rnd4K-easy-read", seconds=1.0)),
            lambda: record(phase("ior-rnd4K-easy-read")),
        ],
    ),
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
    "faster-than-emulated": Trial(
        "invalid",
        [lambda: on_emulated(400), lambda: on_emulated(1e6, devices=3)],
        [
            lambda: on_emulated(1e6, devices=8),
            lambda: on_emulated(400, cache="cold"),
            lambda: record(phase()),
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
            # others read from the disk, this run from the page cache above its image
            lambda: read_with(device_read_bytes=8700, backing_read_bytes=562 * MB),
            lambda: declared("bypass", "bypass", read_with(device_read_bytes=0)),
            lambda: read_with(network_received_bytes=100 * MB),
        ],
        [
            lambda: read_with(device_read_bytes=361 * MB),
            # its image's disk has other users
            lambda: read_with(device_read_bytes=400 * MB, backing_read_bytes=900 * MB),
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
            lambda: read_with(device_read_bytes=562 * MB),  # of 400: others read there too
        ],
        [
            lambda: read_with(device_read_bytes=424 * MB),
            lambda: read_with(device_read_bytes=400 * MB, backing_read_bytes=900 * MB),
            lambda: declared("warm", "warm", with_evidence(record(phase()), counters={})),
            lambda: declared("cold", "memory", written_with(device_busy_seconds=1.0)),
            lambda: with_evidence(record(phase("write")), counters={}),
        ],
    ),
    "memory-reference": Trial(
        "invalid", [lambda: declared("cold", "memory")], [lambda: declared("cold", "cold")]
    ),
    "write-not-flushed": Trial(
        "warning",
        [
            lambda: written_with(device_written_bytes=100 * MB),
            lambda: written_with(synced=False, device_written_bytes=100 * MB),
            lambda: declared("cold", "cold", written_with(synced=False)),
            lambda: durable(written_with(synced=False, network_sent_bytes=100 * MB)),
            lambda: durable(written_with(synced=False), WRITE_BACK),
        ],
        [
            lambda: durable(declared("cold", "cold", written_with(synced=False))),
            lambda: written_with(device_written_bytes=401 * MB),
            lambda: written_with(synced=False, network_sent_bytes=401 * MB),
            lambda: written_with(),
            lambda: declared("bypass", "bypass", written_with(synced=False)),
            lambda: declared("cold", "memory", written_with(device_written_bytes=0)),
        ],
    ),
    "faster-than-device": Trial(
        "invalid",
        [lambda: with_evidence(record(phase()), limits={"device_bytes_per_second": 150 * MB})],
        [
            lambda: with_evidence(record(phase()), limits={}),
            lambda: with_evidence(record(phase()), limits={"device_bytes_per_second": 195 * MB}),
            lambda: declared(
                "warm",
                "warm",
                with_evidence(record(phase()), limits={"device_bytes_per_second": 150 * MB}),
            ),
        ],
    ),
    "faster-than-network": Trial(
        "invalid",
        [
            lambda: with_evidence(record(phase()), limits={"network_bytes_per_second": 125 * MB}),
            lambda: with_evidence(
                read_with(network_received_bytes=400 * MB), limits=of_links(125 * MB)
            ),
        ],
        [
            lambda: with_evidence(record(phase()), limits={"network_bytes_per_second": 10**9}),
            # a local disk: no interface saw its bytes
            lambda: with_evidence(read_with(device_read_bytes=400 * MB), limits=of_links(125 * MB)),
        ],
    ),
    "too-short": Trial(
        "warning",
        [
            lambda: record(phase(seconds=0.2)),
            lambda: record(phase(operations=np.array([20, 20, 20, 20]))),
        ],
        [lambda: record(phase(seconds=0.26, operations=np.array([25, 25, 25, 25])))],
    ),
    "idle-workers": Trial(
        "warning",
        [lambda: stonewalled(operations=np.array([900, 0, 800, 900]))],
        [
            lambda: stonewalled(operations=np.array([900, 1, 800, 900])),
            lambda: stonewalled(operations=np.array([0, 0, 0, 0])),  # too-short
            lambda: record(phase("mkdir", operations=np.array([900, 0, 0, 0]))),  # rank 0 alone
        ],
    ),
    "not-stationary": Trial(
        "warning",
        [
            lambda: series(np.r_[np.full(50, 4 * MB), np.full(50, 2 * MB)]),
            lambda: series(noisy(0.2, slope=0.5)),
            lambda: record(
                phase(
                    "create",
                    interval_bytes=np.zeros(100, dtype=np.int64),
                    interval_operations=np.arange(100),
                )
            ),
        ],
        [
            lambda: series(noisy(0.4)),
            lambda: series(noisy(0.01, slope=0.1)),
            lambda: series(np.arange(10), interval=0.2),  # too few intervals
            # the others have ended: the series falls, but no worker became slower
            lambda: series(
                np.r_[np.full(40, 4 * MB), np.full(60, MB)],
                io_start=np.zeros(4),
                io_end=np.array([0.8, 0.8, 0.8, 2.0]),
            ),
        ],
    ),
    "stragglers": Trial(
        "warning",
        [lambda: record(phase(end=LATE))],
        [
            lambda: record(phase(end=np.array([2.0, 2.0, 2.0, 2.1]))),
            # 13 % of the window, but one scheduling delay
            lambda: record(phase(seconds=0.3, end=np.array([0.3, 0.3, 0.3, 0.34]))),
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
        [lambda: record(phase(overhead=np.array([0.0, 0.0, 0.21, 0.0])))],
        [
            lambda: record(phase(overhead=np.array([0.0, 0.0, 0.19, 0.0]))),
            lambda: record(phase(overhead=np.full(4, 0.7)), case={"geometry": {"threads": 4}}),
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
        [
            lambda: with_evidence(
                record(phase()), cpu={"read": {"a": {"busy": 0.5}, "b": {"busy": 0.97}}}
            )
        ],
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
    "server-aggregation": Trial(
        "info",
        [lambda: aggregated(12.0)],
        [lambda: aggregated(0.0), lambda: with_evidence(record(phase()), counters={})],
    ),
    "io-stalled": Trial(
        "warning",
        [lambda: hung(3.0, 12.0), lambda: hung(110.0, 120.0)],
        [
            lambda: hung(0.9, 2.0),
            lambda: hung(3.0, 40.0),
            lambda: record(
                phase("write", latency={"write": latency(400), "fsync": longer(latency(4), 1.5)})
            ),
            lambda: record(phase(latency={})),
        ],
    ),
    "background-load": Trial(
        "warning",
        [
            lambda: with_evidence(record(phase()), load={"before": 3.0, "foreign": 0.2}),
            lambda: with_evidence(
                record(phase()), cpu={"read": {"a": {"busy": 0.4, "steal": 0.2}}}
            ),
        ],
        [
            lambda: with_evidence(record(phase()), load={"before": 3.0, "foreign": 0.1}),
            lambda: with_evidence(record(phase()), load={"foreign": 0.2, "noise": 0.11}),
        ],
    ),
    "carry-over": Trial(
        "warning",
        [
            lambda: with_evidence(
                record(phase()),
                settle={"read": {"reached": False, "seconds": 10.0, "state": {"dirty": 4096}}},
            )
        ],
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
        [
            lambda: with_evidence(record(phase()), output={"on_target": True}),
            lambda: with_evidence(
                read_with(device_read_bytes=400 * MB), output={"on_target": True, "written": 9000}
            ),
            lambda: with_evidence(
                read_with(device_read_bytes=400 * MB, device_written_bytes=30 * MB),
                output={"on_target": True, "written": 0},
            ),
        ],
        [
            lambda: with_evidence(record(phase()), output={}),
            lambda: with_evidence(
                read_with(device_read_bytes=400 * MB), output={"on_target": False, "written": 9000}
            ),
        ],
    ),
}


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(name, index, id=f"{name}-{index}")
        for name, trial in TRIALS.items()
        for index in range(len(getattr(trial, kind)))
    ]


def test_every_audit_is_tried() -> None:
    """Those of external engines: test_audits_engines.py."""
    assert set(TRIALS) == set(run_audits()) - {audit.name for audit in engines.AUDITS}
    assert all(trial.fires and trial.silent for trial in TRIALS.values())


@pytest.mark.parametrize(("name", "index"), cases("fires"))
def test_fires(name: str, index: int) -> None:
    made = TRIALS[name].fires[index]()
    assert found(made, name) == [TRIALS[name].severity]


@pytest.mark.parametrize(("name", "index"), cases("silent"))
def test_silent(name: str, index: int) -> None:
    made = TRIALS[name].silent[index]()
    assert found(made, name) == []


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


def test_a_replay_that_played_nothing_is_invalid_and_says_why() -> None:
    (finding,) = [f for f in audit_run(replay(0, 0)) if f.audit == "replay-fidelity"]
    assert finding.severity == "invalid"
    reason = "none of 100 chosen operations was played: 100 x read skipped (no such kind)"
    assert finding.message == reason


def test_errors_of_a_replay_are_its_fidelitys() -> None:
    failed = replay(98)
    (made,) = failed.phases
    errors = replace(made, errors=made.errors + 1, errors_by_errno={"ENOENT": 4})
    assert "errors-ignored" not in {f.audit for f in audit_run(replace(failed, phases=(errors,)))}
    plain = replace(errors, facts={})
    assert "errors-ignored" in {f.audit for f in audit_run(replace(failed, phases=(plain,)))}


def test_every_audit_is_documented() -> None:
    """docs/audits.md has a row for each audit, with its scope and severity, and none besides."""
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in DOCS.read_text().splitlines()
        if line.startswith("| `") and line.count("|") == 6
    ]
    assert [row[0] for row in rows] == list(run_audits())
    for name, scope, severities, *_ in rows:
        assert run_audits()[name].scope == scope
        assert name not in TRIALS or TRIALS[name].severity in severities
    noted = {name: severity for name, severity, _ in engines.NOTES.values()}
    assert {row[0]: row[2] for row in rows if row[0] in noted} == noted
