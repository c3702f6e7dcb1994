"""Ceph backends without a cluster: options, commands, sentences, what is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from fsmatrix.backends import contract
from fsmatrix.backends.access import CephfsAccess, PathAccess, RadosAccess
from fsmatrix.backends.ceph import ceph_state, facts, mounts
from fsmatrix.backends.ceph.bindings.librados import TIMEOUT, Login
from fsmatrix.backends.ceph.ceph_options import (
    CephfsOptions,
    FuseOptions,
    KernelOptions,
    LibcephfsOptions,
    RadosOptions,
)
from fsmatrix.backends.ceph.libcephfs import Libcephfs
from fsmatrix.backends.ceph.rados import Rados
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import own_mounts, provenance
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.mounts import Mount

NAMES = ("cephfs-fuse", "cephfs-kernel", "libcephfs", "rados")
LOGIN = Login("/etc/ceph/other.conf", "bench", "/etc/ceph/bench.keyring")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "options",
    [
        {"conf": "relative.conf"},
        {"conf": "/etc/a,b"},
        {"user": "a b"},
        {"user": ""},
        {"keyring": "key\nname"},
        {"key": "AQ=="},
        {"pool": "-x"},
        {"pool": "a b"},
        {"typo": 1},
    ],
)
def test_bad_options(name: str, options: dict[str, Any]) -> None:
    kind = contract.load(name).Options
    needed = {"pool": "p"} if name == "rados" else {}
    kind(**needed)
    with pytest.raises(ValidationError):
        kind(**(needed | options))


@pytest.mark.parametrize(
    "options",
    [
        {"directory": "relative"},
        {"directory": "/a/../b"},
        {"directory": "/a/.snap"},
        {"directory": "/a\nb"},
        {"stripe_unit": 4096},
        {"stripe_unit": "1MiB", "object_size": "1536KiB"},
        {"stripe_count": 0},
        {"object_size": 0},
        {"data_pool": "a/b"},
    ],
)
def test_bad_places_and_layouts(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CephfsOptions(**options)


@pytest.mark.parametrize(
    "option",
    ["keyring", "key", "keyfile", "mon_host", "log_file", "admin_socket", "client_mountpoint",
     "Client_oc", "a b", "--conf", "fsid"],
)  # fmt: skip
def test_client_options_are_no_way_around_the_others(option: str) -> None:
    with pytest.raises(ValidationError):
        LibcephfsOptions(client_options={option: "x"})


def test_values_of_client_options_are_one_line() -> None:
    with pytest.raises(ValidationError, match="one line"):
        RadosOptions(pool="p", client_options={"objecter_inflight_ops": "1\npool=other"})
    options = LibcephfsOptions(
        client_oc=False, client_oc_size="1MiB", client_options={"client_readahead_min": 4096}
    )
    assert options.client == {
        "client_readahead_min": "4096",
        "client_oc": "false",
        "client_oc_size": "1048576",
    }


def test_layout_in_words_of_ceph() -> None:
    assert CephfsOptions().layout == {}
    whole = CephfsOptions(
        stripe_unit="64KiB",
        stripe_count=4,
        object_size="1MiB",
        data_pool="fast",
        directory="/a//b/",
    )
    assert whole.layout == {
        "ceph.dir.layout": "stripe_unit=65536 stripe_count=4 object_size=1048576",
        "ceph.dir.layout.pool": "fast",
    }
    assert whole.directory == "/a/b"
    assert CephfsOptions(directory="//").directory == "/"


def test_a_found_mount_stays_as_it_is() -> None:
    FuseOptions(path="/mnt/ceph", stripe_count=2, user="bench")
    for beside in ({"client_oc": False}, {"client_options": {"client_oc": 1}}, {"directory": "/a"}):
        with pytest.raises(ValidationError, match="cannot be set on a mount that is found"):
            FuseOptions(path="/mnt/ceph", **beside)
    with pytest.raises(ValidationError, match="cannot be set on a mount that is found"):
        KernelOptions(path="/mnt/ceph", mount_options="rsize=65536")
    with pytest.raises(ValidationError, match="absolute"):
        FuseOptions(path="mnt")


@pytest.mark.parametrize(
    "text", ["secret=AQ", "secretfile=/etc/x", "name=admin", "conf=x", "dev", "a b", "fs=other"]
)
def test_refused_options_of_the_kernels_mount(text: str) -> None:
    with pytest.raises(ValidationError):
        KernelOptions(mount_options=text)
    assert KernelOptions(mount_options="rsize=65536,nowsync").mount_options == "rsize=65536,nowsync"


def test_commands() -> None:
    argv = mounts.fuse_argv(LOGIN, "fs1", "/dir", "/mnt", "fsmatrix-t", {"client_oc": "false"})
    assert Path(argv[0]).name == "ceph-fuse"
    assert argv[1] == "-f"
    assert argv[2:8] == [
        *("--conf", "/etc/ceph/other.conf", "--id", "bench"),
        *("--keyring", "/etc/ceph/bench.keyring"),
    ]
    assert {"--client_fs=fs1", "--client_mountpoint=/dir", "--client_oc=false"} <= set(argv)
    assert argv[-3:] == ["-o", "fsname=fsmatrix-t,subtype=ceph-fuse", "/mnt"]
    argv = mounts.kernel_argv(LOGIN, "fs1", "/dir", "/mnt", "rsize=65536")
    assert argv[:2] == ["env", "CEPH_KEYRING=/etc/ceph/bench.keyring"]
    assert argv[2:] == [
        *("mount", "-t", "ceph", "-o"),
        "name=bench,conf=/etc/ceph/other.conf,mds_namespace=fs1,rsize=65536,nodev,nosuid",
        *(":/dir", "/mnt"),
    ]
    assert mounts.kernel_argv(Login(), "", "/d", "/m", "")[-3:] == [
        *("name=admin,nodev,nosuid", ":/d", "/m")
    ]
    assert TIMEOUT < mounts.MOUNT_DEADLINE < 10


@pytest.mark.parametrize(
    ("fstype", "source", "ours"),
    [
        ("fuse.ceph-fuse", "fsmatrix-t", True),
        ("fuse.ceph-fuse", "ceph-fuse", False),
        ("fuse.sshfs", "fsmatrix-t", False),
        ("ceph", "10.0.0.1:6789,10.0.0.2:6789:/a/fsmatrix-t", True),
        ("ceph", "admin@1d3c.fs1=/a/fsmatrix-t", True),
        ("ceph", "10.0.0.1:6789:/", False),
        ("ceph", "10.0.0.1:6789:/b/a/fsmatrix-t", False),
    ],
)
def test_whose_mount_it_is(fstype: str, source: str, ours: bool) -> None:
    mount = Mount(1, "0:1", "/", "/mnt", "rw", fstype, source, "rw")
    kind = "ceph" if fstype == "ceph" else "fuse.ceph-fuse"
    own = mounts.Mounted(
        path="/mnt",
        filesystem="fs1",
        fstype=kind,
        source="fsmatrix-t",
        root="/a/fsmatrix-t",
        **LOGIN.facts,
    )
    assert mounts.is_ours(mount, own) is ours


def test_roots_of_the_players_drivers() -> None:
    own = {"conf": "/c", "user": "u", "keyring": "", "tag": "t"}
    space = {**own, "pool": "p", "prefix": "fsmatrix-t-a-0", "object_size": 65536}
    access = RadosAccess("rados", "a", {**space, "client": {"objecter_inflight_ops": "64"}})
    assert Rados.run_root(access, "r1").splitlines() == [
        *("conf=/c", "user=u", "pool=p", "namespace=fsmatrix-t-a-0.r1", "object_size=65536"),
        "option.objecter_inflight_ops=64",
    ]
    tree = {**own, "filesystem": "fs1", "directory": "/d", "name": "fsmatrix-t", "client": {}}
    cephfs = CephfsAccess("libcephfs", "a", tree, path="/d/fsmatrix-t/data")
    assert Libcephfs.run_root(cephfs, "r1").splitlines() == [
        *("conf=/c", "user=u", "filesystem=fs1", "path=/d/fsmatrix-t/data/r1"),
        "option.client_check_pool_perm=false",  # its test is a write, which waits in a full pool
    ]


def test_another_access_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="CephFS access"):
        Libcephfs.mount(PathAccess("libcephfs", "a"), Journal(Path("/nowhere")))
    with pytest.raises(TypeError, match="RADOS access"):
        Rados({}).describe(PathAccess("rados", "a"))  # type: ignore[arg-type]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find", lambda name: None)
    monkeypatch.setattr(own_mounts, "root_refusal", lambda: "")
    for name, program, package in (
        ("cephfs-fuse", "ceph-fuse", "ceph-fuse"),
        ("cephfs-kernel", "mount.ceph", "ceph-common"),
    ):
        usable = contract.load(name).check()
        assert not usable.ok
        assert f"{program} is missing: package {package}" in usable.reason
    monkeypatch.setattr(own_mounts, "kernel_refusal", lambda fstype: f"no {fstype} in this kernel")
    assert "no ceph in this kernel" in contract.load("cephfs-kernel").check().reason


# -- sentences --------------------------------------------------------------------------------
def status(checks: dict[str, tuple[str, str]], groups: dict[str, int], **more: Any) -> Any:
    """An answer to `ceph status` with these checks and placement groups."""
    raised = {
        name: {"severity": severity, "summary": {"message": message, "count": 1}, "muted": False}
        for name, (severity, message) in checks.items()
    }
    whole = "HEALTH_ERR" if "HEALTH_ERR" in str(checks) else "HEALTH_OK"
    states = [{"state_name": name, "count": count} for name, count in groups.items()]
    pgmap = {"pgs_by_state": states, "num_pgs": sum(groups.values()), **more}
    return {"health": {"status": whole, "checks": raised}, "pgmap": pgmap}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (status({}, {"active+clean": 8}), []),
        (status({"POOL_NO_REDUNDANCY": ("HEALTH_WARN", "1 pool")}, {"active+clean": 8}), []),
        (
            status({"SLOW_OPS": ("HEALTH_WARN", "3 slow ops, oldest 31 sec")}, {"active+clean": 8}),
            ["SLOW_OPS (HEALTH_WARN): 3 slow ops, oldest 31 sec"],
        ),
        (
            status({"OSD_NEARFULL": ("HEALTH_WARN", "1 nearfull osd(s)")}, {"active+clean": 8}),
            ["OSD_NEARFULL (HEALTH_WARN): 1 nearfull osd(s)"],
        ),
        (
            status({}, {"active+clean": 6, "active+undersized+degraded": 2}),
            ["2 of 8 placement groups are active+undersized+degraded"],
        ),
        (
            status(
                {}, {"active+recovering+degraded": 1, "active+clean": 7}, recovering_bytes_per_sec=9
            ),
            [
                "1 of 8 placement groups are active+recovering+degraded",
                "recovery moves 9 bytes per second",
            ],
        ),
        (
            status({}, {"active+clean+scrubbing+deep": 1, "active+clean": 7}),
            ["1 of 8 placement groups are active+clean+scrubbing+deep"],
        ),
        (status({}, {"unknown": 8}), ["8 of 8 placement groups are unknown"]),
        (status({}, {"stale+active+clean": 3}), ["3 of 3 placement groups are stale+active+clean"]),
    ],
)
def test_ailments(answer: Any, expected: list[str]) -> None:
    assert ceph_state.ailments(answer) == expected


@pytest.mark.parametrize(
    ("state", "quiet"),
    [
        ({"placement_groups": {"active+clean": 8}}, True),
        ({"placement_groups": {"active+clean+scrubbing": 8}}, True),
        ({"placement_groups": {"active+clean": 7, "active+recovering": 1}}, False),
        ({"placement_groups": {"active+clean": 7, "active+clean+snaptrim": 1}}, False),
        ({"placement_groups": {"active+clean": 8}, "groups_being_removed": 2}, False),
        ({"placement_groups": {"active+clean": 8}, "purge_queue": 1}, False),
        ({"placement_groups": {"active+clean": 8}, "purge_queue": "not known: x"}, True),
    ],
)
def test_what_is_quiet(state: dict[str, Any], quiet: bool) -> None:
    assert ceph_state.is_quiet(state) is quiet


@pytest.mark.parametrize(
    ("option", "left_out"),
    [
        ("bluestore_default_buffered_read", False),
        ("osd_memory_target", False),
        ("mgr/dashboard/password", True),
        ("mgr/dashboard/ssl_certificate", True),
        ("mgr/dashboard/key", True),
        ("mgr/prometheus/server_addr", True),
        ("mgr/cephadm/ssh_identity_key", True),
        ("rgw_keystone_admin_password", True),
        ("rgw_ldap_secret", True),
        ("keyring", True),
        ("mgr/telemetry/token", True),
        ("osd_max_backfills", False),
        ("rocksdb_perf", False),
    ],
)
def test_secrets_are_left_out(option: str, left_out: bool) -> None:
    assert facts.left_out(option) is left_out


# -- counters ---------------------------------------------------------------------------------
def test_bytes_over_the_loopback_interface_are_not_counted() -> None:
    assert ceph_state.counters(["127.0.0.1"]) == {}
    assert provenance.interfaces(()) == ()


def test_bytes_are_counted_on_the_interface_that_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    item = psutil.net_if_addrs()["lo"][0]
    addresses = {"eth0": [item._replace(address="192.0.2.7")], "lo": [item]}
    for name, count in (("eth0", 100), ("lo", 7), ("br0", 9)):
        (tmp_path / name / "statistics").mkdir(parents=True)
        for file in ("rx_bytes", "tx_bytes"):
            (tmp_path / name / "statistics" / file).write_text(f"{count}\n")
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(provenance, "SYS_NET", tmp_path)
    ways = {"192.0.2.1": "192.0.2.7", "192.0.2.7": "192.0.2.7", "198.51.100.1": ""}
    monkeypatch.setattr(provenance, "_source", ways.__getitem__)
    provenance.interfaces.cache_clear()
    counted = {"network_received_bytes": 100.0, "network_sent_bytes": 100.0}
    assert ceph_state.counters(["192.0.2.1"]) == counted
    assert ceph_state.counters(["192.0.2.1", "192.0.2.7"]) == {}  # one is this machine's own
    assert ceph_state.counters(["198.51.100.1"]) == {}  # no route
    provenance.interfaces.cache_clear()
