"""Ceph backends against a real cluster: two OSDs, users and capabilities (cephx)."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends import registry, tree
from fsmatrix.backends.access import Access, access_from_json
from fsmatrix.backends.base import Backend, Room
from fsmatrix.backends.ceph import clients, login, trees
from fsmatrix.backends.ceph.librados import CephError
from fsmatrix.backends.ceph.login import Login
from fsmatrix.backends.ceph.spaces import Space
from fsmatrix.backends.ceph.trees import Tree
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import Journal, undo_pending
from fsmatrix.backends.system import mounts
from fsmatrix.backends.testbed.ceph import Bed, BedOptions, down, missing, up

NAMES = ("rados", "libcephfs", "cephfs-fuse", "cephfs-kernel")
WHY_NOT = missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "Ceph is here"),
]


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder = tmp_path_factory.mktemp("bed") / "b"
    options = BedOptions(
        nodes=2, redundancy="size=1", failure_domain="osd", pg_num=16, auth="cephx"
    )
    yield up(options, folder)
    assert [line for line in down(folder) if "left" in line] == []


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    """The conductor's room; nothing may stay mounted or running after a test."""
    yield Room("a", tmp_path / "state", Journal(tmp_path / "journals/host.jsonl"), "tag1")
    assert mounts.mounted_below(tmp_path) == []


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter deadlines, for what does not answer at all."""
    monkeypatch.setattr(login, "TIMEOUT", 2.0)
    monkeypatch.setattr(trees, "TIMEOUT", 2.0)
    monkeypatch.setattr(trees, "QUIET", 3.0)
    monkeypatch.setattr(clients, "LOOK", 2.0)
    monkeypatch.setattr(clients, "FAREWELL", 2.0)
    monkeypatch.setattr(mounts, "PATIENCE", 0.2)


def backend(name: str, bed: Bed, **options: Any) -> Any:
    """A backend on the bed; a skip if this machine cannot have it."""
    kind = registry.load(name)
    usable = kind.check()
    if not usable.ok:
        assert usable.reason
        if name == "cephfs-kernel":  # no registry has another kernel for this machine
            pytest.skip(f"not in any registry: {usable.reason}; see tests/backends/test_guest.py")
        pytest.skip(usable.reason)
    needed = {"pool": bed.pools["rados"]} if name == "rados" else {}
    cluster = {"conf": bed.conf, "keyring": bed.keyring, "user": bed.user}
    return kind(kind.Options(**(cluster | needed | options)))


def objects(bed: Bed, namespace: str = "\x01") -> list[tuple[str, str]]:
    """(name, namespace) of the objects of the bed's RADOS pool."""
    with bed.cluster() as cluster, cluster.ioctx(bed.pools["rados"], namespace) as pool:
        return sorted(pool.entries())


@contextmanager
def whole_filesystem(bed: Bed, folder: Path) -> Iterator[Path]:
    """The root of the bed's file system, mounted by another ceph-fuse than the suite's."""
    folder.mkdir(exist_ok=True)
    mine = Login(bed.conf, bed.user, bed.keyring)
    argv = clients.fuse_argv(mine, bed.filesystem, "/", str(folder), "ceph-fuse", {})
    clients.start_fuse(argv, folder)
    try:
        yield folder
    finally:
        clients.detach(folder, argv)


def test_what_works_for_the_storage_here_is_known(bed: Bed, room: Room) -> None:
    """Daemons of the bed, and of a FUSE mount its client: none of them is foreign load."""
    pids: dict[str, set[int]] = {name: set() for name in ("rados", "cephfs-fuse")}
    for name in pids:
        with attached(name, bed, room) as (used, access):
            pids[name] = set(used.workers(access))
            client = set(fuse_of(access)) if name == "cephfs-fuse" else set()
            assert client <= pids[name]
            pids[name] -= client
    assert len(pids["rados"]) == 5, "mon, mgr, mds and two OSDs"
    assert pids["cephfs-fuse"] == pids["rados"]


def names_in(bed: Bed, folder: Path) -> list[str]:
    with whole_filesystem(bed, folder) as root:
        return sorted(path.name for path in root.iterdir())


def fuse_of(access: Access) -> list[int]:
    return clients.processes(registry.load("cephfs-fuse").argv(access.details))  # type: ignore[attr-defined]


@contextmanager
def attached(name: str, bed: Bed, room: Room, **options: Any) -> Iterator[tuple[Any, Any]]:
    """(backend, access), mounted; everything is taken down afterwards."""
    used = backend(name, bed, **options)
    access = used.provision({}, room)
    try:
        used.mount(access, room.journal)
        yield used, access
    finally:
        used.release(access, room)
        used.finish(room)
        assert room.journal.pending() == []


def user(bed: Bed, folder: Path, name: str, **capabilities: str) -> dict[str, str]:
    """Options for a new user with these capabilities."""
    with bed.cluster() as cluster:
        caps = [word for pair in capabilities.items() for word in pair]
        cluster.mon("auth rm", entity=f"client.{name}")
        (made,) = cluster.mon("auth get-or-create", entity=f"client.{name}", caps=caps)
    keyring = folder / f"{name}.keyring"
    keyring.write_text(f"[client.{name}]\n\tkey = {made['key']}\n")
    return {"user": name, "keyring": str(keyring)}


# -- the contract -----------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_whole_life(name: str, bed: Bed, room: Room, tmp_path: Path) -> None:
    used = backend(name, bed)
    assert used.refusal() == ""
    free = used.space().bytes
    assert free is not None
    assert 0 < free < 4 << 30
    access = used.provision({}, room)
    assert access == access_from_json(json.loads(json.dumps(access.to_json())))
    used.mount(access, room.journal)
    used.mount(access, room.journal)
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
    used.unmount(access, room.journal)
    used.unmount(access, room.journal)
    used.release(access, room)
    used.release(access, room)
    used.finish(room)
    assert room.journal.pending() == []
    assert objects(bed) == []
    assert names_in(bed, tmp_path / "all") == []


def put(bed: Bed, access: Access, root: str, folder: Path) -> None:
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
def test_no_factors_and_no_unknown_states(name: str, bed: Bed, room: Room) -> None:
    used = backend(name, bed)
    with pytest.raises(
        BackendError, match=r"makes levels of storage_nodes only with options\.levels"
    ):
        used.provision({"storage_nodes": 2}, room)
    assert room.journal.pending() == []
    with attached(name, bed, room) as (_, access):
        with pytest.raises(BackendError, match="cache state"):
            used.cache(access, "lukewarm", [])
        if "warm" in used.cache_states:
            used.make_run(access, "r")
            Path(access.path, "r/file").write_bytes(bytes(1 << 20))
            assert used.cache(access, "warm", ["r"]).state == "warm"


@pytest.mark.parametrize("name", ["rados", "cephfs-fuse"])
def test_two_shards_and_a_foreign_one_do_not_meet(
    name: str, bed: Bed, room: Room, tmp_path: Path
) -> None:
    """A foreign directory, object and namespace, also with our names, are never touched."""
    foreign = Tree(Login(bed.conf, "admin", bed.keyring), bed.filesystem, "/", "fsmatrix-tag1", "x")
    foreign.make({})
    foreign.make_run("keep")
    pool = bed.pools["rados"]
    with bed.cluster() as cluster, cluster.ioctx(pool, "fsmatrix-tag1") as theirs:
        theirs.write_full("keep", b"x")
        with attached(name, bed, room) as (used, first):
            second = used.provision({}, room)
            assert second.details != first.details
            used.release(second, room)
            used.make_run(first, "r")
            forged = access_from_json(
                first.to_json()
                | {"details": {**first.details, "name": "fsmatrix-tag1", "prefix": "fsmatrix-tag1"}}
            )
            used.unmount(first, room.journal)
            with pytest.raises(BackendError, match=r"not touched \(expected 'tag1'\)"):
                used.release(forged, room)
            used.mount(first, room.journal)
        assert theirs.read("keep") == b"x"
        theirs.remove("keep")
    with whole_filesystem(bed, tmp_path / "all") as root:
        assert [path.name for path in root.iterdir()] == ["fsmatrix-tag1"]
        assert (root / "fsmatrix-tag1/data/keep").is_dir()
    foreign.remove()


def test_a_foreign_directory_without_a_marker_stays(bed: Bed, tmp_path: Path) -> None:
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


def test_removal_does_not_follow_links(bed: Bed, room: Room, tmp_path: Path) -> None:
    with whole_filesystem(bed, tmp_path / "all") as root:
        (root / "theirs").mkdir()
        (root / "theirs/file").write_text("keep")
        with attached("libcephfs", bed, room) as (used, access):
            used.make_run(access, "r")
            run = root / access.path.lstrip("/") / "r"
            (run / "out").symlink_to("../../../theirs")
            (run / "absolute").symlink_to("/theirs")
            used.remove_run(access, "r")
            assert not run.exists()
        assert (root / "theirs/file").read_text() == "keep"
        shutil.rmtree(root / "theirs")


# -- options ----------------------------------------------------------------------------------
def test_layout_holds_for_files(bed: Bed, room: Room) -> None:
    layout = {"stripe_unit": "64KiB", "stripe_count": 2, "object_size": "1MiB"}
    pool = bed.pools["data"]
    with attached("cephfs-fuse", bed, room, **layout, data_pool=pool) as (used, access):
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
        ("rados", {"client_options": {"no_such_option": 1}}, "no_such_option"),
    ],
)
def test_what_cannot_work_is_refused(
    name: str, options: dict[str, Any], reason: str, bed: Bed, room: Room
) -> None:
    if options.get("pool") == "metadata":
        options = {"pool": bed.pools["metadata"]}
    with pytest.raises(BackendError, match=reason):
        backend(name, bed, **options).provision({}, room)
    assert room.journal.pending() == []


def test_users_and_capabilities(bed: Bed, room: Room, tmp_path: Path) -> None:
    pool = bed.pools["rados"]
    nobody = {"user": "nobody"}
    reading = user(
        bed, tmp_path, "reading", mon="allow r", osd=f"allow r pool={pool}", mds="allow r"
    )
    writing = user(bed, tmp_path, "writing", mon="allow r", osd="allow rw", mds="allow rw")
    for name in ("rados", "cephfs-fuse"):
        refusal = backend(name, bed, **nobody).refusal()
        assert "as client.nobody: " in refusal
        assert "no key for this user" in refusal or "refuse this user's key" in refusal
        with pytest.raises(BackendError, match=r"EPERM|EACCES|not permitted|Permission denied"):
            backend(name, bed, **reading).provision({}, room)
        assert room.journal.pending() == []
        with attached(name, bed, room, **writing, drop_server_caches=True) as (used, access):
            used.make_run(access, "r")
            told = used.cache(access, "cold", ["r"]).facts
            assert told["server_caches"] == "unknown"  # tell is not allowed
            assert told["osd_cache_drop"].startswith("0 of 2: ")
            assert used.settle(access, 60.0).reached
    with pytest.raises(BackendError, match=r"MDS capability `p` \(allow rwp\)"):
        backend("libcephfs", bed, **writing, stripe_count=2).provision({}, room)
    assert room.journal.pending() == []


@pytest.mark.parametrize("name", ["rados", "libcephfs", "cephfs-fuse"])
def test_a_cluster_that_cannot_be_reached(
    name: str, bed: Bed, room: Room, tmp_path: Path, fast: None
) -> None:
    conf = tmp_path / "ceph.conf"
    conf.write_text("[global]\nmon_host = 127.99.99.99:3300\nauth_client_required = none\n")
    used = backend(name, bed, conf=str(conf))
    assert "no monitor answered within 2 s" in used.refusal()
    with pytest.raises(BackendError, match="no monitor answered within 2 s"):
        used.provision({}, room)
    assert used.space().bytes is None
    assert room.journal.pending() == []


def test_own_deadlines_end_within_ten_seconds() -> None:
    assert max(login.TIMEOUT, trees.QUIET, clients.MOUNT_DEADLINE) < 10


def test_quota_limits_the_space(bed: Bed) -> None:
    used, name = backend("rados", bed), bed.pools["rados"]
    with bed.cluster() as cluster:
        cluster.mon("osd pool set-quota", pool=name, field="max_bytes", val="1000000")
        try:
            assert used.space().bytes <= 1_000_000
        finally:
            cluster.mon("osd pool set-quota", pool=name, field="max_bytes", val="0")


# -- caches, settling, health -----------------------------------------------------------------
@pytest.mark.parametrize("name", ["rados", "libcephfs"])
def test_caches_of_the_servers(name: str, bed: Bed, room: Room) -> None:
    for drop, whole in ((False, "unknown"), (True, "dropped")):
        with attached(name, bed, room, drop_server_caches=drop) as (used, access):
            used.make_run(access, "r")
            told = used.cache(access, "cold", ["r"]).facts
            assert told["server_caches"] == whole
            assert told["server_data_caches"] == ("dropped" if drop else "unused")
            assert told["bluestore_default_buffered_read"] == ["false"]
            assert ("mds_cache_drop" in told) == (drop and name != "rados")


def test_cold_by_remount(bed: Bed, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "PATIENCE", 0.2)
    with attached("cephfs-fuse", bed, room, drop_server_caches=True) as (used, access):
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
    with attached("cephfs-fuse", bed, room, client_oc=False) as (used, access):
        used.make_run(access, "r")
        file = Path(access.path, "r/file")
        file.write_bytes(data)
        with file.open("rb"):
            assert used.cache(access, "cold", ["r/file"]).state == "cold"


def test_settling_waits_for_removed_pools_and_files(bed: Bed, room: Room) -> None:
    with attached("cephfs-fuse", bed, room) as (used, access), bed.cluster() as cluster:
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


def until(reached: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_health_tells_of_flags_and_dead_osds(bed: Bed, room: Room) -> None:
    with attached("rados", bed, room) as (used, access):
        with bed.cluster() as cluster:
            cluster.mon("osd set", key="noout")
            try:
                until(lambda: any("noout" in text for text in used.health(access)))
            finally:
                cluster.mon("osd unset", key="noout")
        bed.kill_osd(1)
        try:
            until(lambda: any(text.startswith("OSD_DOWN") for text in used.health(access)))
            assert not used.settle(access, 0.5).reached
        finally:
            bed.restart_osd(1)
            bed.wait_clean(60)
        until(lambda: used.health(access) == [])


def test_health_of_a_cluster_that_hangs(bed: Bed, room: Room, fast: None) -> None:
    with attached("rados", bed, room) as (used, access):
        bed.stop_mon()
        try:
            (text,) = used.health(access)
            assert text.startswith("the cluster's health is not known: ")
            assert not used.settle(access, 2.0).reached
            with pytest.raises(BackendError, match="no monitor answered"):
                used.mount(access, room.journal)
        finally:
            bed.cont_mon()
        until(lambda: used.health(access) == [])


# -- faults of the clients --------------------------------------------------------------------
def test_ceph_fuse_killed(bed: Bed, room: Room) -> None:
    """The run fails; the next run, or the next mount, finds a clean one."""
    with attached("cephfs-fuse", bed, room) as (used, access):
        used.make_run(access, "r1")
        file = Path(access.path, "r1/file")
        with file.open("wb") as held:
            os.write(held.fileno(), b"x" * 4096)
            os.fsync(held.fileno())
            (pid,) = fuse_of(access)
            os.kill(pid, signal.SIGKILL)
            until(lambda: fuse_of(access) == [])
            with pytest.raises(OSError, match="not connected") as failure:
                os.write(held.fileno(), b"x")
            assert failure.value.errno == errno.ENOTCONN
            assert "its client has died" in used.health(access)[0]
            with suppress(OSError):
                held.close()
        used.remove_run(access, "r1")
        assert used.health(access) == []
        assert list(Path(access.path).iterdir()) == []
        (pid,) = fuse_of(access)
        os.kill(pid, signal.SIGKILL)
        until(lambda: fuse_of(access) == [])
        used.mount(access, room.journal)
        used.make_run(access, "r2")
        assert Path(access.path, "r2").is_dir()
        assert len(room.journal.pending("cephfs-mount")) == 1


def test_a_client_that_hangs_is_ended(bed: Bed, room: Room, fast: None) -> None:
    with attached("cephfs-fuse", bed, room) as (used, access):
        (pid,) = fuse_of(access)
        os.kill(pid, signal.SIGSTOP)
        assert "does not answer" in used.health(access)[0]
        with pytest.raises(BackendError, match="does not answer"):
            used.make_run(access, "r")
        used.unmount(access, room.journal)
        assert fuse_of(access) == []
        used.mount(access, room.journal)
        assert used.health(access) == []


def test_a_mount_in_use_is_said(bed: Bed, room: Room, fast: None) -> None:
    with attached("cephfs-fuse", bed, room) as (used, access):
        descriptor = os.open(access.path, os.O_RDONLY)
        try:
            with pytest.raises(BackendError, match=f"still in use by pid {os.getpid()}"):
                used.unmount(access, room.journal)
            assert len(room.journal.pending("cephfs-mount")) == 1
        finally:
            os.close(descriptor)


def test_another_mount_at_our_point_stays(bed: Bed, room: Room) -> None:
    with attached("cephfs-fuse", bed, room) as (used, access):
        used.unmount(access, room.journal)
        point = access.details["point"]
        subprocess.run(["mount", "-t", "tmpfs", "theirs", point], check=True)
        try:
            for action in (used.mount, used.unmount):
                with pytest.raises(BackendError, match="theirs is mounted there, not ours"):
                    action(access, room.journal)
        finally:
            subprocess.run(["umount", point], check=True)


def test_an_mds_that_hangs(bed: Bed, room: Room, fast: None) -> None:
    """Nothing waits for ever, the child that did is gone, and what it held is given up."""
    os.kill(bed.pid("mds.a"), signal.SIGSTOP)
    try:
        with pytest.raises(BackendError, match=r"ETIMEDOUT|nothing happened"):
            backend("libcephfs", bed).provision({}, room)
        (entry,) = room.journal.pending()
        assert entry.kind == "cephfs-tree"
    finally:
        os.kill(bed.pid("mds.a"), signal.SIGCONT)
    assert not [
        path for path in Path("/proc").glob("[0-9]*/cmdline") if b"ceph.treetool" in _read(path)
    ]
    bed.wait_clean(60)
    backend("libcephfs", bed).finish(room)
    assert room.journal.pending() == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# -- found mounted ----------------------------------------------------------------------------
def test_found_mounted(bed: Bed, room: Room, tmp_path: Path) -> None:
    with whole_filesystem(bed, tmp_path / "theirs") as place:
        (place / "sentinel").write_text("keep")
        with attached("cephfs-fuse", bed, room, path=str(place), stripe_count=2) as (used, access):
            assert access.path == f"{place}/fsmatrix-tag1/data"
            used.make_run(access, "r")
            file = Path(access.path, "r/file")
            file.write_bytes(bytes(1 << 20))
            assert b"stripe_count=2" in os.getxattr(file, "ceph.file.layout")
            assert used.health(access) == []
            assert used.settle(access, 60.0).reached
            facts = used.describe(access)
            assert facts["managed"] is False
            assert facts["ceph"]["filesystem"]["active_mds"] == 1
            assert "stripe_count=2" in facts["layout"]
            evidence = used.cache(access, "cold", ["r"])
            assert evidence.state == "unknown"  # its object cache is not ours to empty
            assert used.cache(access, "warm", ["r"]).state == "warm"
            assert used.space(access).bytes
            used.unmount(access, room.journal)
            assert tree.read_marker(place / "fsmatrix-tag1") == "tag1"
        assert [path.name for path in place.iterdir()] == ["sentinel"]
        assert mounts.mounted_at(place) is not None
        (place / "sentinel").unlink()


def test_found_mounted_without_the_cluster(
    bed: Bed, room: Room, tmp_path: Path, fast: None
) -> None:
    conf = tmp_path / "ceph.conf"
    conf.write_text("[global]\nmon_host = 127.99.99.99:3300\nauth_client_required = none\n")
    with whole_filesystem(bed, tmp_path / "theirs") as place:
        options = {"path": str(place), "conf": str(conf)}
        with attached("cephfs-fuse", bed, room, **options) as (used, access):
            assert "no monitor answered" in used.describe(access)["ceph"]["error"]
            assert used.health(access) == []
            used.make_run(access, "r")
            assert used.cache(access, "cold", ["r"]).facts["server_caches"] == "unknown"


def test_a_path_on_something_else_is_refused(bed: Bed, tmp_path: Path) -> None:
    refusal = backend("cephfs-fuse", bed, path=str(tmp_path)).refusal()
    assert "not fuse.ceph or fuse.ceph-fuse" in refusal
    assert "does not exist" in backend("cephfs-fuse", bed, path=f"{tmp_path}/no").refusal()


# -- crashes ----------------------------------------------------------------------------------
CONDUCTOR = """
import json, os, signal, sys
from pathlib import Path
from fsmatrix.backends import journal as module
from fsmatrix.backends.base import Room
from fsmatrix.backends.registry import load

def die():
    os.kill(os.getpid(), signal.SIGKILL)

base, line, name = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
options = json.loads(sys.argv[4])
append, lines = module.Journal._append, []

def counted(self, text):
    append(self, text)
    lines.append(text)
    if len(lines) == line:
        die()

module.Journal._append = counted
kind = load(name)
backend = kind(kind.Options(**options))
room = Room("a", base / "state", module.Journal(base / "journals/host.jsonl"), "tag1")
access = backend.provision({}, room)
backend.mount(access, room.journal)
backend.make_run(access, "r")
if name == "cephfs-fuse":
    (Path(access.path) / "r/file").write_bytes(bytes(4096))
if line:
    backend.unmount(access, room.journal)
    backend.release(access, room)
die()
"""


@pytest.mark.parametrize(
    ("name", "line"),
    [("rados", 0), ("rados", 1), ("libcephfs", 0), ("libcephfs", 1),
     *(("cephfs-fuse", line) for line in (0, 1, 3, 4))],
)  # fmt: skip
def test_killed_conductor(name: str, line: int, bed: Bed, room: Room, tmp_path: Path) -> None:
    """With everything attached (0), and after each line of the journal."""
    options = {"conf": bed.conf, "keyring": bed.keyring}
    if name == "rados":
        options["pool"] = bed.pools["rados"]
    argv = [sys.executable, "-P", "-c", CONDUCTOR, str(tmp_path), str(line), name]
    killed = subprocess.run([*argv, json.dumps(options)], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    said = undo_pending(tmp_path / "journals")
    assert [text for text in said if text.startswith("left alone")] == []
    assert (line != 0) or said
    assert mounts.mounted_below(tmp_path) == []
    assert not [
        path
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if os.fsencode(tmp_path) in _read(path) and b"ceph-fuse" in _read(path)
    ]
    assert objects(bed) == []
    assert names_in(bed, tmp_path / "all") == []
    assert undo_pending(tmp_path / "journals") == []


def test_a_crash_and_then_no_cluster(bed: Bed, room: Room, tmp_path: Path, fast: None) -> None:
    """Said, and kept for the next time."""
    conf = tmp_path / "ceph.conf"
    shutil.copyfile(bed.conf, conf)
    options = {"conf": str(conf), "keyring": bed.keyring, "pool": bed.pools["rados"]}
    argv = [sys.executable, "-P", "-c", CONDUCTOR, str(tmp_path), "0", "rados"]
    subprocess.run([*argv, json.dumps(options)], check=False)
    conf.write_text("[global]\nmon_host = 127.99.99.99:3300\nauth_client_required = none\n")
    (said,) = undo_pending(tmp_path / "journals")
    assert said.startswith("left alone: ")
    assert "no monitor answered" in said
    shutil.copyfile(bed.conf, conf)
    (said,) = undo_pending(tmp_path / "journals")
    assert said.startswith("removed namespaces fsmatrix-tag1-a-")
    assert objects(bed) == []


def test_marker_of_a_namespace_is_required(bed: Bed) -> None:
    space = Space(Login(bed.conf, "admin", bed.keyring), bed.pools["rados"], "fsmatrix-x", "x")
    with bed.cluster() as cluster, cluster.ioctx(space.pool, space.prefix) as theirs:
        theirs.write_full("keep", b"x")
        for action in (space.make, space.remove, lambda: space.make_run("r")):
            with pytest.raises(CephError, match=r"left alone|not touched"):
                action()
        assert list(theirs.names()) == ["keep"]
        theirs.remove("keep")


def test_registry_knows_them() -> None:
    for name in NAMES:
        kind = registry.load(name)
        assert issubclass(kind, Backend)
        assert kind.name == name
