"""Nodes of a test bed: what a real Ceph's series say, held against what its client wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fsmatrix.backends.testbed import ceph_testbed
from fsmatrix.results.audits.nodes import busy, of_phase
from fsmatrix.results.evidence.nodes import unit_of
from fsmatrix.results.files.runfile import read_run
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Monitor
from tests.suite.running import fsmatrix

pytestmark = pytest.mark.root
NODES, COPIES = ("node1", "node2", "node3"), 2
CAMPAIGN = f"""
campaign: watched
seed: 5
targets:
  ceph:
    backend: rados
    testbed: {{nodes: 3, osds_per_node: 1, network: 400Mbit, redundancy: size={COPIES}}}
workloads:
  write:
    workload: pattern
    options: {{pattern: seq-write, bytes_per_process: 96MiB, chunk: 1MiB}}
monitor: {{interval: 0.5s}}
repetitions: 1
order: {{attachments: 1}}
"""


def moved(monitor: Monitor, name: str) -> float:
    """Bytes of a series over all of a node's looks together."""
    seconds = np.diff(monitor.time)
    return float(np.nansum(monitor.series[name][:, 1:] * seconds))


@pytest.mark.skipif(bool(ceph_testbed.missing()), reason=ceph_testbed.missing())
def test_the_links_of_the_nodes_received_what_the_client_wrote(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CAMPAIGN)
    said = fsmatrix("run", tmp_path / "c.yaml", "-o", tmp_path / "out")
    assert said.returncode == 0, said.stderr
    (path,) = Store.open(tmp_path / "out").files()
    record = read_run(path)
    monitor, watched = record.nodes, record.evidence.nodes
    assert monitor is not None
    assert monitor.hosts == (*NODES, "services")
    assert {node.source for node in watched.values()} == {"testbed"}
    assert [node.why_not for node in watched.values()] == [None] * 4
    assert [watched[name].link_limits for name in NODES] == [{"eth0": 50e6}] * 3
    assert dict(monitor.units) == {name: unit_of(name) for name in monitor.series}
    (phase,) = record.phases
    began, ended = phase.began + phase.start.min(), phase.began + phase.end.max()
    assert monitor.time[0] <= began
    assert monitor.time[-1] >= ended
    written = float(phase.bytes.sum())
    received, sent = (moved(monitor, f"link_{way}:eth0") for way in ("received", "sent"))
    stored = sum(moved(monitor, name) for name in monitor.series if "written:osd" in name)
    print(
        f"written {written / 1e6:.1f} MB x {COPIES}; received by the nodes {received / 1e6:.1f} "
        f"({received / written / COPIES:.3f}), sent {sent / 1e6:.1f} "
        f"({sent / written / (COPIES - 1):.3f} of the further copies), to their disks "
        f"{stored / 1e6:.1f} ({stored / written / COPIES:.3f})"
    )
    assert received == pytest.approx(written * COPIES, rel=0.05)
    assert sent == pytest.approx(written * (COPIES - 1), rel=0.1)
    assert stored >= written * COPIES
    seen = of_phase(record, phase)
    assert all(seen[name].seconds >= 0.5 * (ended - began) for name in NODES)
    shares = [busy(seen[name].means) for name in NODES]
    assert all(share is not None and 0 < share < 1 for share in shares)
    assert not [f for f in record.findings if f.audit == "monitor-missing"]
