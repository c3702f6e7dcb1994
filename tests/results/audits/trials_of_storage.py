"""Trials of the audits of caches, devices and storage systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fsmatrix.results.evidence.target import WRITE_BACK
from fsmatrix.results.record import RunRecord
from tests.results.audit_records import (
    MB,
    declared,
    latency,
    phase,
    read_with,
    record,
    with_evidence,
)
from tests.results.judged_records import (
    aggregated,
    durable,
    hung,
    in_jobs,
    in_servers,
    longer,
    metadata_caches,
    of_links,
    on_emulated,
    placed,
    written_with,
)


@dataclass(frozen=True)
class Trial:
    """Records on which an audit fires (with that severity), and does not."""

    severity: str
    fires: list[Callable[[], RunRecord]]
    silent: list[Callable[[], RunRecord]] = field(default_factory=list)


OF_STORAGE = {
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
}
