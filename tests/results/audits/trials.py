"""What the audits are tried with: records on which each fires, and on which it must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fsmatrix.results.formats.parsed import totals
from tests.results.audit_records import (
    MB,
    phase,
    read_with,
    record,
    with_evidence,
)
from tests.results.audits.trials_of_nodes import OF_NODES
from tests.results.audits.trials_of_storage import OF_STORAGE, Trial
from tests.results.judged_records import (
    hadrons,
    limited,
    noisy,
    of_links,
    paced,
    preloaded,
    replay,
    series,
    stonewalled,
    with_ceiling,
    world,
)

CAMPAIGN_SAYS = {"network_bytes_per_second": "campaign"}
LATE = np.array([2.0, 2.0, 2.0, 2.5])

ELSEWHERE = OF_STORAGE | OF_NODES

TRIALS = ELSEWHERE | {
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
    "io-fell-back": Trial(
        "warning",
        [lambda: record(phase(facts={"driver": "posix", "driver_refused": "forbidden"}))],
        [lambda: record(phase(facts={"driver": "uring"})), lambda: record(phase())],
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
    "saturated": Trial(
        "warning",
        [lambda: paced(backlog=101), lambda: paced(unplayed=1)],
        [
            lambda: paced(backlog=100),
            lambda: record(phase(facts={"open_loop": {"rate": 5}})),
            lambda: record(phase()),
        ],
    ),
    "capacity-not-found": Trial(
        "invalid",
        [lambda: limited(0.0021), lambda: limited(None), lambda: limited(0.001)],
        [
            lambda: limited(0.002, rate=500.0),
            lambda: limited(0.001, at_least=500.0),
            lambda: record(phase(facts={"capacity": {"limit": 1.0}})),
        ],
    ),
    "capacity-at-least": Trial(
        "warning",
        [lambda: limited(0.001, at_least=500.0)],
        [lambda: limited(0.001, rate=500.0), lambda: limited(0.0021)],
    ),
    "client-bound": Trial(
        "warning",
        [  # 200 operations and 200 MB per second
            lambda: with_ceiling(249.0),
            lambda: with_ceiling(1e6, limits=of_links(249 * MB) | {"sources": CAMPAIGN_SAYS}),
        ],
        [
            lambda: with_ceiling(251.0),
            lambda: with_ceiling(None),
            lambda: with_ceiling(1e6, limits=of_links(251 * MB) | {"sources": CAMPAIGN_SAYS}),
            lambda: with_ceiling(1e6, limits=of_links(201 * MB)),  # its bytes may pass no link
            lambda: record(phase()),
        ],
    ),
    "too-short": Trial(
        "warning",
        [
            lambda: record(phase(seconds=0.2)),
            lambda: record(phase(operations=np.array([20, 20, 20, 20]))),
        ],
        [
            lambda: record(phase(seconds=0.26, operations=np.array([25, 25, 25, 25]))),
            lambda: record(totals("write", 2.0, 100 * MB, operations=None)),
        ],
    ),
    "idle-workers": Trial(
        "warning",
        [lambda: stonewalled(operations=np.array([900, 0, 800, 900]))],
        [
            lambda: stonewalled(operations=np.array([900, 1, 800, 900])),
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
        [
            lambda: record(phase(facts={"stonewall_seconds": 2.0})),
            lambda: record(phase(start=np.full(4, 0.2), facts={"stonewall_seconds": 2.0})),
            lambda: paced(stonewall_seconds=3.0),
        ],
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
    "data-left": Trial(
        "warning",
        [lambda: with_evidence(record(phase()), not_removed="remove_run on a: DER_MISC")],
        [
            lambda: record(phase()),
            lambda: replace(
                with_evidence(record(phase()), not_removed="remove_run on a: DER_MISC"),
                status="failed",
            ),
        ],
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
