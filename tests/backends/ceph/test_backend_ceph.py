"""Ceph backends against a real cluster: two OSDs, users and capabilities (cephx)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends import contract
from fsmatrix.backends.access import Access
from fsmatrix.backends.ceph import trees
from fsmatrix.backends.ceph.bindings import librados
from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import Login
from fsmatrix.backends.ceph.mounts import MOUNT_DEADLINE
from fsmatrix.backends.ceph.trees import Tree
from fsmatrix.backends.contract import Backend, ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import mounts
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed
from tests.backends.ceph_backends import (
    NAMES,
    attached,
    backend,
    fuse_of,
    names_in,
    user,
    whole_filesystem,
)
from tests.ceph_beds import objects
from tests.waiting import until

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("ceph"),
]


def test_what_works_for_the_storage_here_is_known(
    bed: CephTestbed, context: ProvisionContext
) -> None:
    """Daemons of the bed, and of a FUSE mount its client: none of them is foreign load."""
    pids: dict[str, set[int]] = {name: set() for name in ("rados", "cephfs-fuse")}
    for name in pids:
        with attached(name, bed, context) as (used, access):
            pids[name] = set(used.workers(access))
            client = set(fuse_of(access)) if name == "cephfs-fuse" else set()
            assert client <= pids[name]
            pids[name] -= client
    assert len(pids["rados"]) == 5, "mon, mgr, mds and two OSDs"
    assert pids["cephfs-fuse"] == pids["rados"]


# -- the contract -----------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_whole_life(name: str, bed: CephTestbed, context: ProvisionContext, tmp_path: Path) -> None:
    used = backend(name, bed)
    assert used.refusal() == ""
    free = used.space().bytes
    assert free is not None
    assert 0 < free < 4 << 30
    access = used.provision({}, context)
    assert access == used.access_type.from_json(json.loads(json.dumps(access.to_json())))
    used.mount(access, context.journal)
    used.mount(access, context.journal)
    for _ in range(2):
        used.make_run(access, "run1")
    put(bed, access, used.run_root(access, "run1"), tmp_path)
    described = used.describe(access)
    text = json.dumps(described)
    key = Path(bed.keyring).read_text().split("key = ")[1].split()[0]
    assert key not in text
    assert '"error"' not in text
    ceph = described["ceph"]
    assert ceph["health"]["status"] == "HEALTH_OK"
    assert ceph["osds"]["number"] == 2
    assert ceph["pools"][bed.pools["rados"]]["pg_num"] == 16
    (group,) = ceph["configuration"]["osds"]
    assert group["osds"] == [0, 1]
    assert group["settings"]["bluestore_default_buffered_read"] in (False, "false")
    assert used.health(access) == []
    settled = used.settle(access, 60.0)
    assert settled.reached, settled
    seen = used.counters(access)  # of the OSDs: they are on this machine's loopback
    assert seen["network_counting_osds"] == 2
    assert seen["network_sent_bytes"] > 0
    assert used.cache(access, "cold", ["run1"]).state == "cold"
    assert used.cache(access, "bypass", ["run1"]).state == "bypass"
    for _ in range(2):
        used.remove_run(access, "run1")
    used.unmount(access, context.journal)
    used.unmount(access, context.journal)
    used.release(access, context)
    used.release(access, context)
    used.finish(context)
    assert context.journal.pending() == []
    assert objects(bed) == []
    assert names_in(bed, tmp_path / "all") == []


def put(bed: CephTestbed, access: Access, root: str, folder: Path) -> None:
    """Some files in the place of a run."""
    data = os.urandom(100_000)
    if access.type == "path":
        Path(root, "deep").mkdir()
        Path(root, "deep/file").write_bytes(data)
        Path(root, "link").symlink_to("/")
        return
    told = dict(line.split("=", 1) for line in root.splitlines())
    if access.type == "rados":
        with bed.cluster() as cluster, cluster.ioctx(told["pool"], told["namespace"]) as pool:
            for number in range(40):
                pool.write_full(f"file.{number:016x}", data)
        return
    with whole_filesystem(bed, folder / "other") as whole:
        place = whole / told["path"].lstrip("/")
        for number in range(40):
            (place / f"a/b{number % 3}").mkdir(parents=True, exist_ok=True)
            (place / f"a/b{number % 3}/{number}").write_bytes(data[:1000])
        (place / "link").symlink_to("/")


@pytest.mark.parametrize("name", NAMES)
def test_no_factors_and_no_unknown_states(
    name: str, bed: CephTestbed, context: ProvisionContext
) -> None:
    used = backend(name, bed)
    with pytest.raises(
        BackendError, match=r"makes levels of storage_nodes only with options\.levels"
    ):
        used.provision({"storage_nodes": 2}, context)
    assert context.journal.pending() == []
    with attached(name, bed, context) as (_, access):
        with pytest.raises(BackendError, match="cache state"):
            used.cache(access, "lukewarm", [])
        if "warm" in used.cache_states:
            used.make_run(access, "r")
            Path(access.path, "r/file").write_bytes(bytes(1 << 20))
            assert used.cache(access, "warm", ["r"]).state == "warm"


@pytest.mark.parametrize("name", ["rados", "cephfs-fuse"])
def test_two_shards_and_a_foreign_one_do_not_meet(
    name: str, bed: CephTestbed, context: ProvisionContext, tmp_path: Path
) -> None:
    """A foreign directory, object and namespace, also with our names, are never touched."""
    foreign = Tree(Login(bed.conf, "admin", bed.keyring), bed.filesystem, "/", "fsmatrix-tag1", "x")
    foreign.make({})
    foreign.make_run("keep")
    pool = bed.pools["rados"]
    with bed.cluster() as cluster, cluster.ioctx(pool, "fsmatrix-tag1") as theirs:
        theirs.write_full("keep", b"x")
        with attached(name, bed, context) as (used, first):
            second = used.provision({}, context)
            assert second.details != first.details
            used.release(second, context)
            used.make_run(first, "r")
            forged = used.access_type.from_json(
                first.to_json()
                | {"details": {**first.details, "name": "fsmatrix-tag1", "prefix": "fsmatrix-tag1"}}
            )
            used.unmount(first, context.journal)
            with pytest.raises(BackendError, match=r"not touched \(expected 'tag1'\)"):
                used.release(forged, context)
            used.mount(first, context.journal)
        assert theirs.read("keep") == b"x"
        theirs.remove("keep")
    with whole_filesystem(bed, tmp_path / "all") as root:
        assert [path.name for path in root.iterdir()] == ["fsmatrix-tag1"]
        assert (root / "fsmatrix-tag1/data/keep").is_dir()
    foreign.remove()


def test_a_foreign_directory_without_a_marker_stays(bed: CephTestbed, tmp_path: Path) -> None:
    mine = Tree(Login(bed.conf, "admin", bed.keyring), bed.filesystem, "/", "fsmatrix-tag1", "tag1")
    with whole_filesystem(bed, tmp_path / "all") as root:
        (root / "fsmatrix-tag1").mkdir()
        (root / "fsmatrix-tag1/file").write_text("keep")
        for unmarked in (False, True):
            with pytest.raises(CephError):
                mine.remove(unmarked)
        assert (root / "fsmatrix-tag1/file").read_text() == "keep"
        (root / "other").symlink_to("fsmatrix-tag1")
        with pytest.raises(CephError):
            Tree(mine.login, mine.filesystem, "/", "other", "tag1").remove()
        (root / "other").unlink()
        (root / "fsmatrix-tag1/file").unlink()
        assert mine.remove(unmarked=True)


def test_removal_does_not_follow_links(
    bed: CephTestbed, context: ProvisionContext, tmp_path: Path
) -> None:
    with whole_filesystem(bed, tmp_path / "all") as root:
        (root / "theirs").mkdir()
        (root / "theirs/file").write_text("keep")
        with attached("libcephfs", bed, context) as (used, access):
            used.make_run(access, "r")
            run = root / access.path.lstrip("/") / "r"
            (run / "out").symlink_to("../../../theirs")
            (run / "absolute").symlink_to("/theirs")
            used.remove_run(access, "r")
            assert not run.exists()
        assert (root / "theirs/file").read_text() == "keep"
        shutil.rmtree(root / "theirs")


# -- options ----------------------------------------------------------------------------------
def test_layout_holds_for_files(bed: CephTestbed, context: ProvisionContext) -> None:
    layout = {"stripe_unit": "64KiB", "stripe_count": 2, "object_size": "1MiB"}
    pool = bed.pools["data"]
    with attached("cephfs-fuse", bed, context, **layout, data_pool=pool) as (used, access):
        used.make_run(access, "r")
        file = Path(access.path, "r/file")
        file.write_bytes(b"x")
        wanted = f"stripe_unit=65536 stripe_count=2 object_size=1048576 pool={pool}"
        assert os.getxattr(file, "ceph.file.layout").decode() == wanted
        assert used.describe(access)["layout"] == wanted


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("rados", {"pool": "nopool"}, "there is no pool nopool \\(there are: "),
        ("rados", {"pool": "metadata"}, "holds the metadata of a CephFS"),
        ("libcephfs", {"filesystem": "nofs"}, "there is no file system nofs \\(there are: cephfs"),
        ("cephfs-fuse", {"data_pool": "nopool"}, "nopool is no data pool of file system cephfs"),
        ("libcephfs", {"directory": "/missing"}, "is there such a user, key and directory"),
        ("cephfs-fuse", {"conf": "/no/ceph.conf"}, "read the Ceph configuration in /no/ceph.conf"),
        ("rados", {"keyring": "/no/keyring"}, "/no/keyring|no key for this user"),
        ("rados", {"client_options": {"client_no_such": 1}}, "client_no_such"),
    ],
)
def test_what_cannot_work_is_refused(
    name: str, options: dict[str, Any], reason: str, bed: CephTestbed, context: ProvisionContext
) -> None:
    if options.get("pool") == "metadata":
        options = {"pool": bed.pools["metadata"]}
    with pytest.raises(BackendError, match=reason):
        backend(name, bed, **options).provision({}, context)
    assert context.journal.pending() == []


def test_users_and_capabilities(
    bed: CephTestbed, context: ProvisionContext, tmp_path: Path
) -> None:
    pool = bed.pools["rados"]
    nobody = {"user": "nobody"}
    may_read = {"mon": "allow r", "osd": f"allow r pool={pool}", "mds": "allow r"}
    may_write = {"mon": "allow r", "osd": "allow rw", "mds": "allow rw"}
    with (
        user(bed, tmp_path, "reading", **may_read) as reading,
        user(bed, tmp_path, "writing", **may_write) as writing,
    ):
        for name in ("rados", "cephfs-fuse"):
            refusal = backend(name, bed, **nobody).refusal()
            assert "as client.nobody: " in refusal
            assert "no key for this user" in refusal or "refuse this user's key" in refusal
            with pytest.raises(BackendError, match=r"EPERM|EACCES|not permitted|Permission denied"):
                backend(name, bed, **reading).provision({}, context)
            assert context.journal.pending() == []
            with attached(name, bed, context, **writing, drop_server_caches=True) as (used, access):
                used.make_run(access, "r")
                told = used.cache(access, "cold", ["r"]).facts
                assert told["server_caches"] == "unknown"  # tell is not allowed
                assert told["osd_cache_drop"].startswith("0 of 2: ")
                assert used.settle(access, 60.0).reached
        with pytest.raises(BackendError, match=r"MDS capability `p` \(allow rwp\)"):
            backend("libcephfs", bed, **writing, stripe_count=2).provision({}, context)
        assert context.journal.pending() == []


@pytest.mark.parametrize("name", ["rados", "libcephfs", "cephfs-fuse"])
def test_a_cluster_that_cannot_be_reached(
    name: str, bed: CephTestbed, context: ProvisionContext, tmp_path: Path, fast: None
) -> None:
    conf = tmp_path / "ceph.conf"
    conf.write_text("[global]\nmon_host = 127.99.99.99:3300\nauth_client_required = none\n")
    used = backend(name, bed, conf=str(conf))
    assert "no monitor answered within 2 s" in used.refusal()
    with pytest.raises(BackendError, match="no monitor answered within 2 s"):
        used.provision({}, context)
    assert used.space().bytes is None
    assert context.journal.pending() == []


def test_own_deadlines_end_within_ten_seconds() -> None:
    assert max(librados.TIMEOUT, trees.QUIET, MOUNT_DEADLINE) < 10


def test_quota_limits_the_space(bed: CephTestbed) -> None:
    used, name = backend("rados", bed), bed.pools["rados"]
    with bed.cluster() as cluster:
        cluster.mon("osd pool set-quota", pool=name, field="max_bytes", val="1000000")
        try:
            assert used.space().bytes <= 1_000_000
        finally:
            cluster.mon("osd pool set-quota", pool=name, field="max_bytes", val="0")


# -- caches, settling, health -----------------------------------------------------------------
@pytest.mark.parametrize("name", ["rados", "libcephfs"])
def test_caches_of_the_servers(name: str, bed: CephTestbed, context: ProvisionContext) -> None:
    for drop, whole in ((False, "unknown"), (True, "dropped")):
        with attached(name, bed, context, drop_server_caches=drop) as (used, access):
            used.make_run(access, "r")
            told = used.cache(access, "cold", ["r"]).facts
            assert told["server_caches"] == whole
            assert told["server_data_caches"] == ("dropped" if drop else "unused")
            assert told["bluestore_default_buffered_read"] == ["false"]
            assert ("mds_cache_drop" in told) == (drop and name != "rados")


def test_cold_by_remount(
    bed: CephTestbed, context: ProvisionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "PATIENCE", 0.2)
    with attached("cephfs-fuse", bed, context, drop_server_caches=True) as (used, access):
        used.make_run(access, "r")
        file = Path(access.path, "r/file")
        data = os.urandom(1 << 20)
        file.write_bytes(data)
        before = fuse_of(access)
        evidence = used.cache(access, "cold", ["r/file"])
        assert (evidence.state, evidence.method) == ("cold", "remount")
        assert evidence.facts["metadata_caches"] == "dropped"
        assert evidence.facts["server_caches"] == "dropped"
        assert len(fuse_of(access)) == 1
        assert fuse_of(access) != before
        with file.open("rb") as held:
            evidence = used.cache(access, "cold", ["r/file"])
            assert evidence.state == "unknown"  # it is in use: the object cache may hold it
            assert f"pid {os.getpid()}" in evidence.facts["not_remounted"]
            assert held.read() == data
    with attached("cephfs-fuse", bed, context, client_oc=False) as (used, access):
        used.make_run(access, "r")
        file = Path(access.path, "r/file")
        file.write_bytes(data)
        with file.open("rb"):
            assert used.cache(access, "cold", ["r/file"]).state == "cold"


def test_settling_waits_for_removed_pools_and_files(
    bed: CephTestbed, context: ProvisionContext
) -> None:
    with attached("cephfs-fuse", bed, context) as (used, access), bed.cluster() as cluster:
        cluster.mon("osd pool create", pool="gone", pg_num=32)
        try:
            with cluster.ioctx("gone", "x") as pool:
                for number in range(64):
                    pool.write_full(str(number), bytes(4096))
        finally:
            really = {"yes_i_really_really_mean_it": True}
            cluster.mon("osd pool delete", pool="gone", pool2="gone", **really)
        used.make_run(access, "r")
        for number in range(64):
            Path(access.path, f"r/{number}").write_bytes(bytes(1 << 16))
        used.remove_run(access, "r")
        settled = used.settle(access, 60.0)
        assert settled.reached, settled
        assert settled.state["purge_queue"] == 0
        assert settled.state["groups_being_removed"] == 0
        assert settled.state["placement_groups"].keys() == {"active+clean"}


def test_health_tells_of_flags_and_dead_osds(bed: CephTestbed, context: ProvisionContext) -> None:
    with attached("rados", bed, context) as (used, access):
        with bed.cluster() as cluster:
            cluster.mon("osd set", key="noout")
            try:
                until(lambda: any("noout" in text for text in used.health(access)))
            finally:
                cluster.mon("osd unset", key="noout")
        bed.kill("osd.1")
        try:
            until(lambda: any(text.startswith("OSD_DOWN") for text in used.health(access)))
            assert not used.settle(access, 0.5).reached
        finally:
            bed.restart("osd.1")
            bed.wait_clean(60)
        until(lambda: used.health(access) == [])


def test_health_of_a_cluster_that_hangs(
    bed: CephTestbed, context: ProvisionContext, fast: None
) -> None:
    with attached("rados", bed, context) as (used, access):
        bed.stop("mon.a")
        try:
            (text,) = used.health(access)
            assert text.startswith("the cluster's health is not known: ")
            assert not used.settle(access, 2.0).reached
            with pytest.raises(BackendError, match="no monitor answered"):
                used.mount(access, context.journal)
        finally:
            bed.resume("mon.a")
        until(lambda: used.health(access) == [])


def test_registry_knows_them() -> None:
    for name in NAMES:
        kind = contract.load(name)
        assert issubclass(kind, Backend)
        assert kind.name == name
