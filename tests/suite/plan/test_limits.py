"""Limits of devices and networks: who says them, and that they reach the audits."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmatrix.backends.testbed.ceph_bringup import limits_of
from fsmatrix.results.evidence.evidence import Limits
from fsmatrix.results.files.store import Store
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.campaign.site import Fabric, Site
from fsmatrix.suite.campaign.yamlio import Tree
from fsmatrix.suite.plan.estimate import DEVICE, NETWORK, of_target, with_links
from fsmatrix.suite.plan.plan import Installation, Request, build_plan
from fsmatrix.suite.session.survey import link_speed
from tests.ranks import rank
from tests.suite.planning_stubs import HEAD, planned
from tests.suite.running import fsmatrix

FABRIC = Site(fabric=Fabric(bandwidth=10**9))


def test_campaign_wins_over_site_and_links() -> None:
    head = HEAD.replace("backend: disk", "backend: disk, limits: {network_bandwidth: 5MB}")
    plan = planned(head=head)
    declared, open_ = plan.target("a"), plan.target("b")
    assert of_target(declared, {}, FABRIC, 4).network_bytes_per_second == 5_000_000
    by_site = Limits(network_bytes_per_second=4e9, sources={NETWORK: "site"})
    assert of_target(open_, {}, FABRIC, 4) == by_site
    assert of_target(open_, {}, Site(), 4) is None
    ranks = [rank(boot_id="x", links=125e6), rank(boot_id="x", links=125e6)]
    # one kernel counts once
    assert with_links(None, ranks).network_bytes_per_second == 125e6
    more = [*ranks, rank(boot_id="y", links=250e6)]
    assert with_links(None, more).network_bytes_per_second == 375e6
    assert with_links(None, [*ranks, rank(boot_id="z", links=0.0)]) is None
    assert with_links(by_site, ranks) is by_site
    limits = with_links(of_target(declared, {}, Site(), 1), ranks)
    assert limits.network_bytes_per_second == 5_000_000
    device = Limits(device_bytes_per_second=7.0, sources={DEVICE: "campaign"})
    assert with_links(device, ranks).document() == {
        DEVICE: 7.0, "sources": {DEVICE: "campaign", NETWORK: "links"}, NETWORK: 125e6,
    }  # fmt: skip


def test_drives_of_a_bed_are_a_limit() -> None:
    text = (
        "campaign: bed\ntargets:\n"
        "  ceph: {backend: rados, testbed: {osds_per_node: 2, interface: sata, nodes: 2}}\n"
        "workloads: {io: {workload: pattern}}\n"
    )
    plan = build_plan(
        Source(text), Request(), installation=Installation(site=None, user=Tree()), here=False
    )
    member = plan.target("ceph")
    assert member.testbed is not None
    drive = limits_of(member.testbed.options)
    made = of_target(member, {}, FABRIC, 2)
    assert made.device_bytes_per_second == 4 * max(drive.read_bytes, drive.write_bytes) > 0
    assert made.network_bytes_per_second is None  # the links of a bed are not the clients' fabric


@pytest.mark.parametrize(
    ("interfaces", "speed"),
    [
        ({"eth0": ("10000", "up")}, 1.25e9),
        ({"eth0": ("10000", "up"), "eth1": ("10000", "up")}, 2.5e9),
        ({"eth0": ("10000", "up"), "eth1": ("-1", "down")}, 1.25e9),
        ({"eth0": ("-1", "up")}, 0.0),
        ({}, 0.0),
    ],
)
def test_links_of_a_kernel(
    tmp_path: Path, interfaces: dict[str, tuple[str, str]], speed: float
) -> None:
    for name, (megabits, state) in interfaces.items():
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "speed").write_text(f"{megabits}\n")
        (tmp_path / name / "operstate").write_text(f"{state}\n")
    (tmp_path / "bond0").mkdir()
    (tmp_path / "bond0" / "speed").write_text("20000\n")
    if any(Path("/sys/class/infiniband").glob("*")):
        speed = 0.0
    assert link_speed(tmp_path) == speed


def test_a_run_above_what_its_device_can_is_invalid(tmp_path: Path) -> None:
    campaign = tmp_path / "limited.yaml"
    target = tmp_path / "target"
    target.mkdir()
    campaign.write_text(
        "campaign: limited\ntargets:\n"
        f"  here: {{backend: directory, options: {{path: {target}}}, "
        "limits: {device_bandwidth: 1KB}}\n"
        "workloads: {io: {workload: pattern, options: {pattern: seq-write, "
        "bytes_per_process: 1MiB}}}\nrepetitions: 1\n"
    )
    out = tmp_path / "out"
    assert fsmatrix("run", campaign, "-o", out).returncode == 0
    store = Store.open(out)
    (run,) = store.ids()
    record = store.read(run)
    assert record.evidence.limits.device_bytes_per_second == 1000
    found = {finding.audit: finding.severity for finding in record.findings}
    assert found.get("faster-than-device", "invalid" if "memory-reference" in found else "") == (
        "invalid"
    )
