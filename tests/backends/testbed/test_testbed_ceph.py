"""The Ceph test bed in use: whole clusters, their objects, faults, limits and users."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import cgroups, tools
from fsmatrix.backends.testbed.bed import LEFT
from fsmatrix.backends.testbed.ceph_testbed import (
    CephTestbed,
    CephTestbedOptions,
    Limits,
    down,
    status,
    up,
)
from fsmatrix.cli import testbed as cli
from tests.backends.testbed.remains import QUICK, assert_gone, of_bed, running
from tests.waiting import PATIENCE

ALLOWANCE = 0.7  # of a limit's duration: what a token bucket lets pass at once is free


@pytest.fixture(scope="module")
def plain(ceph: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CephTestbed]:
    """A bed of two nodes that several tests share; each leaves it clean."""
    directory = tmp_path_factory.mktemp("plain") / "bed"
    yield up(CephTestbedOptions(**QUICK), directory)
    down(directory)


# A directory that is somebody's


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path, ceph: None) -> None:
    (tmp_path / "mine").write_text("x")
    if os.geteuid() == 0:
        with pytest.raises(BackendError, match="not empty"):
            up(CephTestbedOptions(**QUICK), tmp_path)
    assert down(tmp_path) == []
    assert (tmp_path / "mine").read_text() == "x"
    assert status(tmp_path)["state"] == "none"


# A bed without emulated parts


@pytest.mark.root
def test_a_bed_is_a_whole_cluster(plain: CephTestbed) -> None:
    found = status(plain.directory)
    assert found["state"] == "up"
    assert {one["role"] for one in found["daemons"]} == {
        "mon.a",
        "mgr.a",
        "mds.a",
        "osd.0",
        "osd.1",
    }
    with plain.cluster() as cluster:
        assert cluster.fsid == plain.fsid
        tree = cluster.mon("osd tree")["nodes"]
        hosts = {node["name"]: node["children"] for node in tree if node["type"] == "host"}
        assert hosts == {"node1": [0], "node2": [1]}
        assert set(plain.pools.values()) <= {
            pool["poolname"] for pool in cluster.mon("osd lspools")
        }
        assert cluster.mon("health")["status"] == "HEALTH_OK"
        assert [one["name"] for one in cluster.mon("fs ls")] == [plain.filesystem]
    assert "16." in plain.facts["version"] or "ceph version" in plain.facts["version"]
    assert plain.facts["factors"]["storage_nodes"]["realised"] == "emulated"
    for name in ("rados", "data"):
        assert plain.facts["placement"][plain.pools[name]]["max_over_mean"] <= 1.10
    waited = sum(step.waited for step in plain.steps)
    assert sum(step.own for step in plain.steps) < waited


@pytest.mark.root
def test_objects_can_be_written_listed_and_removed(plain: CephTestbed) -> None:
    with plain.cluster() as cluster:
        pool, other = cluster.ioctx("rados", "one"), cluster.ioctx("rados", "two")
        pool.write_full("a", b"hello")
        pool.write("a", b"J")
        other.write_full("b", b"")
        assert (pool.read("a"), pool.stat("a")[0]) == (b"Jello", 5)
        pool.truncate("a", 2)
        assert pool.read("a") == b"Je"
        many = {f"o{number}" for number in range(300)}
        for name in many:
            pool.write_full(name, b"x")
        assert set(pool.names()) == many | {"a"}
        assert pool.remove_all() == 301
        assert list(pool.names()) == []
        assert list(other.names()) == ["b"]
        assert other.remove_many(["b", "gone"]) == 1
        for refused in (lambda: pool.read("a"), lambda: pool.remove("a")):
            with pytest.raises(CephError, match="No such file") as caught:
                refused()
            assert caught.value.errno == 2
        with pytest.raises(CephError, match="only a namespace of its own"):
            cluster.ioctx("rados").remove_all()


@pytest.mark.root
def test_what_ceph_refuses_is_an_error_with_its_words(plain: CephTestbed) -> None:
    with plain.cluster() as cluster:
        with pytest.raises(CephError, match="command not known"):
            cluster.mon("no such command")
        with pytest.raises(CephError, match=r"osd\.99"):
            cluster.osd(99, "version")
        with pytest.raises(CephError, match=r"open pool nope: .*\(ENOENT\)"):
            cluster.ioctx("nope")
        assert isinstance(cluster.mds("*", "session ls"), list)
        assert cluster.osd(0, "version")["version"] in plain.facts["version"]


@pytest.mark.root
def test_a_cluster_that_does_not_answer_is_an_error_in_time(ceph: None, tmp_path: Path) -> None:
    conf = tmp_path / "ceph.conf"
    conf.write_text("[global]\nmon_host = 127.9.9.9\n")
    began = time.monotonic()
    with pytest.raises(CephError, match="no monitor answered"):
        Cluster(str(conf), timeout=2.0)
    assert time.monotonic() - began < PATIENCE  # Ceph's own patience is 300 s
    with pytest.raises(CephError, match="read the Ceph configuration"):
        Cluster(str(tmp_path / "none.conf"))


@pytest.mark.root
def test_faults_are_seen_and_mended(plain: CephTestbed) -> None:
    plain.kill("osd.1")
    states = {one["role"]: one["state"] for one in status(plain.directory)["daemons"]}
    assert states["osd.1"] == "gone"
    with plain.cluster() as cluster:
        deadline = time.monotonic() + PATIENCE
        while cluster.mon("osd stat")["num_up_osds"] == 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "OSD_DOWN" in cluster.mon("health")["checks"]
    assert status(plain.directory)["state"] == "degraded"
    plain.restart("osd.1")
    before = plain.pid("mds.a")
    plain.kill("mds.a")
    plain.restart("mds.a")
    assert plain.pid("mds.a") != before
    plain.wait_clean(PATIENCE)
    assert status(plain.directory)["state"] == "up"


@pytest.mark.root
def test_a_stopped_monitor_hangs_nobody(plain: CephTestbed) -> None:
    plain.stop("osd.0")
    plain.stop("mon.a")
    try:
        found = status(plain.directory)
        stopped = {one["role"] for one in found["daemons"] if one["state"] == "stopped"}
        assert stopped == {"mon.a", "osd.0"}
        assert found["state"] == "degraded"
        assert "no monitor answered" in found["health"][0]
    finally:
        plain.resume("mon.a")
        plain.resume("osd.0")
    plain.wait_clean(PATIENCE)


@pytest.mark.root
def test_a_second_bed_in_the_same_directory_is_refused(plain: CephTestbed) -> None:
    with pytest.raises(BackendError, match="holds a test bed already"):
        up(CephTestbedOptions(**QUICK), plain.directory)
    assert status(plain.directory)["state"] == "up"


# Emulated drives and links


@pytest.mark.loop
def test_drives_and_links_are_limited_and_go_with_the_bed(
    plain: CephTestbed, tmp_path: Path
) -> None:
    try:
        cgroups.drive_hierarchy()
    except BackendError as error:
        pytest.skip(f"not in any registry: {error}")
    directory = tmp_path / "bed"
    asked = CephTestbedOptions(**QUICK, interface="sata", network="200Mbit", osd_size=1 << 30)
    bed = up(asked, directory)
    try:
        before = of_bed(directory)
        assert {kind: len(names) for kind, names in before.items()} == {
            "links": 3, "namespaces": 2, "cgroups": 2, "loops": 2,
        }  # fmt: skip
        factors = bed.facts["factors"]
        assert factors["interface"]["realised"] == factors["network"]["realised"] == "emulated"
        assert factors["interface"]["limits"]["write_bytes"] == 48_000_000
        with bed.cluster() as cluster:
            classes = {node.get("device_class") for node in cluster.mon("osd tree")["nodes"]}
            assert classes - {None, ""} == {"sata"}
            _network_is_limited(cluster, bits_per_second=200e6)
            for osd in range(asked.osds):
                bed.limit_drive(osd, Limits(write_bytes=4_000_000))
            _drives_are_limited(cluster, bytes_per_second=4e6)
        assert status(plain.directory)["state"] == "up"  # side by side
    finally:
        said = down(directory)
    assert not [line for line in said if line.startswith(LEFT)]
    assert_gone(directory, before)


def _network_is_limited(cluster: Cluster, bits_per_second: float) -> None:
    """Reads of one object come from one node; they cannot be faster than its link."""
    block, times = 4 << 20, 6
    pool = cluster.ioctx("rados", "limits")
    pool.write_full("link", bytes(block))
    began = time.monotonic()
    for _ in range(times):
        assert len(pool.read("link", block)) == block
    least = (times - 1) * block * 8 / bits_per_second
    assert time.monotonic() - began > ALLOWANCE * least


def _drives_are_limited(cluster: Cluster, bytes_per_second: float) -> None:
    """Objects written one after the other cannot be faster than one drive."""
    block, times = 1 << 20, 8
    pool = cluster.ioctx("rados", "limits")
    began = time.monotonic()
    for number in range(times):
        pool.write_full(f"drive{number}", bytes(block))
    assert time.monotonic() - began > ALLOWANCE * times * block / bytes_per_second


# Erasure coding, users


@pytest.mark.root
def test_an_erasure_coded_bed_with_users(ceph: None, tmp_path: Path) -> None:
    directory, point = tmp_path / "bed", tmp_path / "mnt"
    asked = CephTestbedOptions(nodes=3, redundancy="ec=2+1", pg_num=32, auth="cephx")
    bed = up(asked, directory)
    try:
        with bed.cluster() as cluster:
            coded = cluster.mon("osd pool get", pool=bed.pools["data"], var="size")
            assert coded["size"] == 3
            profile = cluster.mon("osd pool get", pool=bed.pools["data"],
                                  var="erasure_code_profile")["erasure_code_profile"]  # fmt: skip
            known = cluster.mon("osd erasure-code-profile get", name=profile)
            assert (known["k"], known["m"], known["crush-failure-domain"]) == ("2", "1", "host")
            metadata = cluster.mon("osd pool get", pool=bed.pools["metadata"], var="size")
            assert metadata["size"] == 2
            cluster.ioctx("rados").write("a", b"x", 5000)  # overwrites are allowed
            assert cluster.ioctx("rados").read("a") == bytes(5000) + b"x"
        with pytest.raises(CephError, match="nobody"):
            Cluster(bed.conf, "nobody", timeout=PATIENCE)
        assert (directory / "keyring").stat().st_mode & 0o077 == 0
        point.mkdir()
        _layout_is_coded(bed, point)
    finally:
        down(directory)
    assert running(directory) == []
    assert not directory.exists()


def _layout_is_coded(bed: CephTestbed, point: Path) -> None:
    if tools.find("ceph-fuse") is None:
        pytest.skip("ceph-fuse is missing: apt install ceph-fuse")
    tools.run(["ceph-fuse", "-c", bed.conf, str(point)], deadline=PATIENCE)
    try:
        (point / "f").write_bytes(b"x" * 10000)
        layout = os.getxattr(point / "f", "ceph.file.layout.pool").decode()
        assert layout == bed.pools["data"]
    finally:
        tools.run(["umount", str(point)], deadline=PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while any("ceph-fuse" in line for line in running(Path(bed.directory))):
            assert time.monotonic() < deadline, "ceph-fuse did not end"
            time.sleep(0.02)


# The command line


def test_the_command_line_says_what_is_there_and_refuses_in_words(tmp_path: Path) -> None:
    runner, place = CliRunner(), ["--directory", str(tmp_path / "bed")]
    none = runner.invoke(cli.app, ["status", *place])
    assert (none.exit_code, "no test bed" in none.output) == (cli.NOT_AS_ASKED, True)
    gone = runner.invoke(cli.app, ["down", "--json", *place])
    assert gone.exit_code == 0
    assert '"done": []' in gone.output
    refused = runner.invoke(cli.app, ["up", "ceph", "--redundancy", "raid5", *place])
    assert isinstance(refused.exception, BackendError)
    assert "size=1, size=3 or ec=2+1" in str(refused.exception)
    assert not (tmp_path / "bed").exists()


@pytest.mark.root
def test_status_by_the_command_line(plain: CephTestbed) -> None:
    runner = CliRunner()
    shown = runner.invoke(cli.app, ["status", "--directory", plain.directory])
    assert shown.exit_code == 0
    assert "osd.1" in shown.output
    as_json = runner.invoke(cli.app, ["status", "--json", "--directory", plain.directory])
    assert f'"fsid": "{plain.fsid}"' in as_json.output
