"""Real Ceph clusters for tests: one of each kind in a run, proved to be as it was between modules.

Modules whose subject is the test bed itself, or who change what it is made of, have their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsmatrix.backends.ceph.bindings.cephfs import Cephfs
from fsmatrix.backends.ceph.bindings.librados import Login
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed, CephTestbedOptions, down, up
from tests.waiting import until

TESTS = Path(__file__).parent


@dataclass(frozen=True)
class Kind:
    """What a cluster is made of, and the modules of tests that use it, one after the other."""

    options: CephTestbedOptions
    modules: tuple[str, ...]


KINDS = {
    "one host": Kind(
        CephTestbedOptions(nodes=1, osds_per_node=1, pg_num=8),
        (
            "backends/player/test_player_cephfs_nonblocking.py",
            "suite/run/test_campaign_rados.py",
            "suite/run/test_campaign_replay_ceph.py",
        ),
    ),
    "two hosts, one copy, cephx": Kind(
        CephTestbedOptions(
            nodes=2, redundancy="size=1", failure_domain="osd", pg_num=16, auth="cephx"
        ),
        (
            "backends/ceph/test_backend_ceph.py",
            "backends/ceph/test_backend_ceph_faults.py",
            "backends/player/test_player_ceph.py",
            "backends/player/test_player_ceph_faults.py",
        ),
    ),
}
_KIND_OF = {TESTS / module: name for name, kind in KINDS.items() for module in kind.modules}


def kind_of(module: Path) -> str:
    """The kind of cluster that a module of tests uses; "" if it uses none of these."""
    return _KIND_OF.get(module, "")


def modules(kind: str) -> list[Path]:
    """Those that use a cluster of this kind."""
    return [TESTS / module for module in KINDS[kind].modules]


class CephBeds:
    """The clusters that run: begun when first asked for, ended when the next test needs none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, CephTestbed] = {}

    def get(self, kind: str) -> CephTestbed:
        """The cluster of this kind."""
        if kind not in self._running:
            folder = self._folder / f"b{list(KINDS).index(kind)}"
            self._running[kind] = up(KINDS[kind].options, folder)
        return self._running[kind]

    def keep(self, kind: str) -> None:
        """End all but this one; AssertionError if one leaves something."""
        with ExitStack() as stack:
            for name in self._running.keys() - {kind}:
                stack.callback(_end, self._running.pop(name))


def _end(bed: CephTestbed) -> None:
    assert [line for line in down(Path(bed.directory)) if "left" in line] == []


@contextmanager
def as_it_was(bed: CephTestbed) -> Iterator[CephTestbed]:
    """AssertionError with the difference if the cluster is not, afterwards, what it was."""
    before = state(bed)
    yield bed
    bed.wait_clean()
    until(lambda: clients(bed) == 0)
    after = state(bed)
    changed = {what: (before[what], after[what]) for what in before if before[what] != after[what]}
    assert not changed, f"the tests of this module left (before, after): {changed}"


def clients(bed: CephTestbed) -> int:
    """How many clients the MDS keeps a session of."""
    with bed.cluster() as cluster:
        return len(cluster.mds("a", "session ls"))


def state(bed: CephTestbed) -> dict[str, Any]:
    """All that a test could change in a cluster and another would meet."""
    with bed.cluster() as cluster:
        crush, dump = cluster.mon("osd crush dump"), cluster.mon("osd dump")
        users, settings = cluster.mon("auth ls"), cluster.mon("config dump")
        return {
            "buckets": {b["name"]: [i["id"] for i in b["items"]] for b in crush["buckets"]},
            "classes": {device["id"]: device.get("class") for device in crush["devices"]},
            "rules": [rule["rule_name"] for rule in crush["rules"]],
            "profiles": sorted(cluster.mon("osd erasure-code-profile ls")),
            "pools": {
                p["pool_name"]: (p["size"], p["min_size"], p["pg_num"]) for p in dump["pools"]
            },
            "OSDs": {osd["osd"]: (osd["up"], osd["in"]) for osd in dump["osds"]},
            "flags": dump["flags"],
            "upmaps": len(dump["pg_upmap_items"]),
            "users": {one["entity"]: one["caps"] for one in users.get("auth_dump", [])},
            "settings": [(s["section"], s["name"], s["value"]) for s in settings],
            "file systems": cluster.mon("fs ls"),
            "objects": objects(bed),
            "root": root(bed),
        }


def objects(bed: CephTestbed) -> list[tuple[str, str]]:
    """(name, namespace) of all in the pool that tests write to."""
    with bed.cluster() as cluster, cluster.ioctx(bed.pools["rados"], "\x01") as pool:
        return sorted(pool.entries())


def root(bed: CephTestbed) -> list[str]:
    """Names in the root of the file system."""
    with _mounted(bed) as (mount, folder):
        return sorted(name for name, _ in mount.entries(folder))


def empty(bed: CephTestbed) -> None:
    """Remove what tests of drivers play: all in the file system, and in the pool of objects."""
    with _mounted(bed) as (mount, folder):
        _clear(mount, folder)
    spaces = {space for _, space in objects(bed)}
    with bed.cluster() as cluster:
        for space in spaces:
            with cluster.ioctx(bed.pools["rados"], space) as pool:
                pool.remove_many(pool.names())


@contextmanager
def _mounted(bed: CephTestbed) -> Iterator[tuple[Cephfs, int]]:
    """The file system, and its root."""
    with Cephfs(Login(bed.conf, bed.user, bed.keyring), bed.filesystem, "/", 10.0) as mount:
        yield mount, mount.open_folder("/")


def _clear(mount: Cephfs, folder: int) -> None:
    for name, is_folder in mount.entries(folder):
        if is_folder:
            inner = mount.open_folder(name, folder)
            _clear(mount, inner)
            mount.close(inner)
            mount.rmdir(name, folder)
        else:
            mount.unlink(name, folder)
