"""What each backend tells of its deployment, from what it described and from its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.ceph import deployment as ceph
from fsmatrix.backends.ceph.facts import of_osds
from fsmatrix.backends.contract import BACKENDS, Backend, ProvisionContext
from fsmatrix.backends.daos import daos_state as daos
from fsmatrix.backends.local import provenance as local
from fsmatrix.results.evidence import target as d
from fsmatrix.results.evidence.target import NAMES
from tests.backends.daos_standin import Standin
from tests.backends.daos_standin import daos as daos_dfs

GIB = 1 << 30
NVME = {"name": "nvme0n1", "rotational": False}
DISK = {"name": "sda", "rotational": True}
LOOP = {"name": "loop3", "rotational": False, "loop": {"direct_io": True}}


def made(name: str, **options: Any) -> Backend:
    kind = BACKENDS.load(name)
    backend = kind(kind.Options(**options))
    assert isinstance(backend, Backend)
    return backend


# -- file systems of this machine --------------------------------------------------------------
def mounted(*devices: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What `describe` tells of a local file system."""
    return {
        "filesystem": "xfs",
        "mount_options": "rw,noatime",
        "super_options": "rw,attr2",
        "capacity": 100 * GIB,
        "free": 75 * GIB,
        "devices": list(devices),
        **changes,
    }


def test_a_local_file_system_has_no_server_and_no_network() -> None:
    told = local.local_deployment(mounted(NVME)).facts
    assert told == {
        "redundancy": "none", "failure_domain": "none", "durability": "write-back",
        "checksums": "none", "ec_encoder": "none", "chunk_size": 0, "transport": "none",
        "encrypted": False, "data_cache": "page cache", "metadata_cache": "kernel",
        "storage_nodes": 1, "devices_per_node": 1.0, "media": "NVMe SSD",
        "metadata_media": "NVMe SSD", "fill": 0.25, "usable_bytes": 100 * GIB, "server_memory": 0,
        "shared_cores": "none",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("described", "fact", "value"),
    [
        (mounted(DISK), "media", "HDD"),
        (mounted(LOOP), "media", "file"),
        (mounted({"name": "pmem0"}), "media", "PMem"),
        (mounted({"name": "vda"}), "media", None),  # the kernel does not tell
        (mounted({"name": "dm-0", "parts": [DISK, NVME]}), "media", "HDD + NVMe SSD"),
        (mounted({"name": "dm-0", "parts": [DISK, NVME]}), "redundancy", None),
        (mounted({"name": "dm-0", "parts": [DISK, NVME]}), "devices_per_node", 2.0),
        (mounted(), "media", None),
        (mounted(), "devices_per_node", None),
        (mounted(DISK, mount_options="rw,sync"), "durability", "durable on return"),
        (mounted(DISK, super_options="rw,sync"), "durability", "durable on return"),
        (mounted(DISK, filesystem="nilfs2"), "checksums", None),
        (mounted(DISK, filesystem="btrfs"), "checksums", None),  # nobody tells how it was made
        (mounted(DISK, filesystem="btrfs", mkfs=["mkfs.btrfs"]), "checksums", "crc32c at rest"),
        (
            mounted(DISK, filesystem="btrfs", mkfs=["mkfs.btrfs", "--csum", "blake2"]),
            "checksums",
            "blake2 at rest",
        ),
        (
            mounted(DISK, filesystem="btrfs", mkfs=["mkfs.btrfs"], super_options="rw,nodatasum"),
            "checksums",
            "none",
        ),
    ],
)
def test_facts_of_devices_and_mounts(described: dict[str, Any], fact: str, value: Any) -> None:
    assert local.local_deployment(described).facts.get(fact) == value


def test_a_network_file_system_tells_little() -> None:
    nfs = mounted(super_options="rw,vers=4.2,proto=rdma,xprtsec=tls")
    assert local.network_deployment(nfs).facts == {
        "transport": "RDMA", "encrypted": True, "fill": 0.25, "usable_bytes": 100 * GIB,
    }  # fmt: skip
    lustre = mounted(super_options="rw,flock")
    assert local.network_deployment(lustre).facts == {"fill": 0.25, "usable_bytes": 100 * GIB}


def test_memory_is_never_durable() -> None:
    told = local.memory_deployment(mounted(filesystem="tmpfs")).facts
    assert (told["durability"], told["media"], told["transport"]) == ("none", "RAM", "none")


def test_a_real_directory(tmp_path: Path, context: ProvisionContext) -> None:
    backend = made("directory", path=str(tmp_path))
    access = backend.provision({}, context)
    told = backend.deployment(backend.describe(access)).facts
    backend.release(access, context)
    assert told["usable_bytes"] > 0
    assert 0 <= told["fill"] <= 1


NEEDED = {
    "directory": {"path": "/x"}, "devices": {"paths": ["/x"]}, "rados": {"pool": "p"},
    "device": {"device": "/dev/sdz", "destroy": "S"},
    **{key: {"pool": "p"} for key in ("daos-dfs", "daos-dfuse", "daos-objects")},
}  # fmt: skip


@pytest.mark.parametrize("name", BACKENDS.names())
def test_options_alone_tell_something_or_nothing(name: str) -> None:
    """Before anything is attached: pure, and no fact that only the storage knows."""
    told = made(name, **NEEDED.get(name, {})).deployment({}).facts
    assert told.keys() <= set(NAMES)
    assert told.keys().isdisjoint({"fill", "usable_bytes", "server_cores"})


# -- Ceph --------------------------------------------------------------------------------------
def described(**changes: Any) -> dict[str, Any]:
    """What `describe` tells of a CephFS of three hosts, as cluster_facts gives it."""
    data = {
        "type": "replicated",
        "size": 3,
        "crush_steps": [{"op": "take"}, {"op": "chooseleaf_firstn", "type": "host"}],
        "placement": {"hosts": ["a", "b", "c"], "osds": [0, 1, 2, 3, 4, 5]},
        "hardware": {
            "memory": 384 * GIB, "cores": None, "media": "NVMe SSD",
            "metadata_media": "NVMe SSD", "objectstores": ["bluestore"],
        },
        "stored": 10 * GIB,
        "max_avail": 90 * GIB,
    }  # fmt: skip
    facts: dict[str, Any] = {
        "pools": {"data": {**data, **changes.pop("pool", {})}, "meta": data},
        "osds": {
            "tree": [{"id": -1, "kb": 999, "kb_used": 999}]
            + [{"id": osd, "kb": 1000, "kb_used": 250} for osd in range(8)]
        },
        "filesystem": {"metadata_pool": "meta", "data_pools": ["data"]},
        "messenger": {"ms_type": "async+posix", "ms_client_mode": "crc secure"},
        "configuration": {"osds": [{"osds": [0, 1], "settings": {}}]},
        **changes,
    }
    return {"layout": "stripe_unit=65536 object_size=8388608 pool=data", "ceph": facts}


def test_facts_of_a_ceph_cluster() -> None:
    backend = made("cephfs-kernel", object_size="8MiB")
    assert backend.deployment(described()).facts == {
        "redundancy": "replica 3", "failure_domain": "host", "durability": "write-back",
        "checksums": "crc32c at rest", "ec_encoder": "none", "chunk_size": 8 << 20,
        "transport": "TCP", "encrypted": False, "data_cache": "page cache",
        "metadata_cache": "capabilities of the MDS", "storage_nodes": 3, "devices_per_node": 2.0,
        "media": "NVMe SSD", "metadata_media": "NVMe SSD", "fill": 0.25,
        "usable_bytes": 100 * GIB, "server_memory": 384 * GIB, "shared_cores": "none",
    }  # fmt: skip


def test_rados_is_the_pool_that_is_described() -> None:
    other = {**described()["ceph"]["pools"]["data"], "size": 2}
    ceph_facts = {**described()["ceph"], "pools": {"other": other, **described()["ceph"]["pools"]}}
    told = made("rados", pool="other").deployment({"pool": "other", "ceph": ceph_facts}).facts
    assert (told["redundancy"], told["chunk_size"], told["media"]) == (
        "replica 2",
        4 << 20,
        "NVMe SSD",
    )


CODED = {"type": "erasure", "size": 3, "erasure_code_profile": {"k": "2", "m": "1"}}
SECURE = {"ms_type": "async+rdma", "ms_client_mode": "secure crc"}


def settings(*osds: dict[str, Any]) -> dict[str, Any]:
    """The configuration of groups of OSDs."""
    return {"osds": [{"osds": [i], "settings": each} for i, each in enumerate(osds)]}


@pytest.mark.parametrize(
    ("changes", "fact", "value"),
    [
        ({"pool": CODED}, "redundancy", "EC 2+1"),
        ({"pool": CODED}, "ec_encoder", "server"),
        ({"pool": {"size": 1}}, "redundancy", "none"),
        ({"pool": {"size": 1}}, "failure_domain", "none"),
        ({"pool": {**CODED, "erasure_code_profile": {"error": "no"}}}, "redundancy", None),
        ({"messenger": SECURE}, "transport", "RDMA"),
        ({"messenger": SECURE}, "encrypted", True),
        ({"messenger": {"error": "no"}}, "transport", None),
        (
            {"messenger": SECURE, "configuration": settings({"ms_service_mode": "crc"})},
            "encrypted",
            False,
        ),
        (
            {"messenger": SECURE, "configuration": settings({"ms_service_mode": "crc"}, {})},
            "encrypted",
            None,
        ),
        ({"configuration": settings({"bluestore_csum_type": "none"})}, "checksums", "none"),
        ({"configuration": settings({"bluestore_csum_type": "none"}, {})}, "checksums", None),
        ({"configuration": settings({"error": "no"})}, "checksums", None),
        ({"pool": {"placement": {"error": "no"}}}, "storage_nodes", None),
        ({"pools": {"error": "no"}}, "redundancy", None),
    ],
)
def test_facts_of_a_ceph_cluster_that_are_else(
    changes: dict[str, Any], fact: str, value: Any
) -> None:
    assert ceph.of_cluster(described(**changes)).facts.get(fact) == value


@pytest.mark.parametrize(
    ("name", "options", "durability", "data_cache"),
    [
        ("rados", {"pool": "p"}, "durable on return", "none"),
        ("libcephfs", {}, "write-back", "object cache"),
        ("libcephfs", {"client_options": {"client_oc": False}}, "durable on return", "none"),
        ("cephfs-fuse", {}, "write-back", "page cache and object cache"),
        (
            "cephfs-fuse",
            {"client_options": {"client_oc": False}},
            "durable on return",
            "page cache",
        ),
        ("cephfs-fuse", {"path": "/mnt/x"}, None, None),  # somebody else mounted it
        ("cephfs-kernel", {}, "write-back", "page cache"),
    ],
)
def test_the_clients_half_of_ceph(
    name: str, options: dict[str, Any], durability: str | None, data_cache: str | None
) -> None:
    told = made(name, **options).deployment({}).facts
    assert (told.get("durability"), told.get("data_cache")) == (durability, data_cache)


def test_levels_of_ceph_say_their_redundancy_before_they_are_made() -> None:
    levels = {"redundancy": "ec=2+1", "failure_domain": "osd", "classes": {"SATA": "ssd"}}
    told = made("rados", levels=levels).deployment({}).facts
    assert (told["redundancy"], told["failure_domain"]) == ("EC 2+1", "osd")


def osd(host: str, **facts: str) -> dict[str, Any]:
    return {
        "hostname": host, "mem_total_kb": "1048576", "osd_objectstore": "bluestore",
        "bluestore_bdev_devices": "sda", "bluestore_bdev_type": "hdd", **facts,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "media", "metadata_media"),
    [
        ({}, "HDD", "HDD"),
        ({"bluestore_bdev_type": "ssd"}, "SSD", "SSD"),
        ({"bluestore_bdev_devices": "nvme0n1,nvme1n1"}, "NVMe SSD", "NVMe SSD"),
        ({"bluestore_bdev_devices": "loop1"}, "file", "file"),
        ({"bluestore_bdev_access_mode": "file"}, "file", "file"),
        ({"osd_objectstore": "memstore"}, "RAM", "RAM"),
        ({"bluestore_bdev_type": ""}, "", ""),
        (
            {"bluefs_dedicated_db": "1", "bluefs_db_devices": "nvme0n1", "bluefs_db_type": "ssd"},
            "HDD",
            "NVMe SSD",
        ),
    ],
)
def test_media_of_osds(facts: dict[str, str], media: str, metadata_media: str) -> None:
    told = of_osds([osd("a", **facts)], "here", 8)
    assert (told["media"], told["metadata_media"]) == (media, metadata_media)


def test_memory_of_machines_counts_once_for_each() -> None:
    several = [osd("a"), osd("a"), osd("b", bluestore_bdev_type="ssd")]
    told = of_osds(several, "a", 8)
    assert (told["memory"], told["cores"]) == (2 * GIB, None)
    assert told["media"] == "HDD + SSD"
    assert of_osds(several[:2], "a", 8)["cores"] == 8  # all on this machine
    assert of_osds([], "a", 8)["media"] == ""


# -- DAOS --------------------------------------------------------------------------------------
def test_facts_of_a_daos_container(standin: Standin, context: ProvisionContext) -> None:
    backend = daos_dfs(oclass="S1", chunk_size="4MiB")
    access = backend.provision({}, context)
    told = backend.deployment(backend.describe(access)).facts
    backend.release(access, context)
    assert told.pop("fill") == pytest.approx(1 - 3324566816 / 4000002048)
    assert told == {
        "redundancy": "none", "failure_domain": "none", "durability": "durable on return",
        "checksums": "none", "ec_encoder": "none", "chunk_size": 4 << 20, "transport": "TCP",
        "encrypted": False, "data_cache": "none", "metadata_cache": "none", "storage_nodes": 1,
        "media": daos.SCM, "metadata_media": daos.SCM, "usable_bytes": 4000002048,
        "shared_cores": "none",
    }  # fmt: skip


def test_what_the_daos_tool_did_not_tell_is_unknown() -> None:
    failed = {name: {"error": "no"} for name in ("pool", "container", "properties")}
    assert daos.of_container({"provider": "", "servers": 0, **failed}).facts == {
        "durability": "durable on return", "encrypted": False, "data_cache": "none",
        "metadata_cache": "none",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("oclass", "factor", "redundancy"),
    [
        ("S2", "", "none"),
        ("SX", "rd_fac1", "none"),
        ("RP_2G1", "", "replica 2"),
        ("RP_3GX", "", "replica 3"),
        ("EC_2P1G1", "", "EC 2+1"),
        ("EC_16P2GX", "", "EC 16+2"),
        ("", "rd_fac0", "none"),
        ("", "rd_fac1", None),  # libdfs chooses
        ("RP_XSF", "rd_fac0", None),
        ("RP_2G1x", "", None),
        ("", "", None),
    ],
)
def test_redundancy_of_object_classes(oclass: str, factor: str, redundancy: str | None) -> None:
    assert daos.redundancy_of(oclass, factor) == redundancy


@pytest.mark.parametrize(
    ("provider", "transport"),
    [
        ("ofi+tcp", "TCP"),
        ("ofi+tcp;ofi_rxm", "TCP"),
        ("ofi+verbs;ofi_rxm", "RDMA"),
        ("ofi+cxi", "RDMA"),
        ("ucx+dc_x", "RDMA"),
        ("ucx+tcp", "TCP"),
        ("ofi+shm", None),
        ("", None),
    ],
)
def test_transport_of_providers(provider: str, transport: str | None) -> None:
    assert daos.transport_of(provider) == transport


def test_a_replicated_pool_holds_less_than_it_has() -> None:
    tiers = {"scm": {"total": GIB, "free": GIB}, "nvme": {"total": 30 * GIB, "free": 15 * GIB}}
    told = daos.of_container({"pool": {"tiers": tiers}}, "EC_2P1GX").facts
    assert (told["usable_bytes"], told["fill"]) == (20 * GIB, 0.5)
    assert (told["media"], told["metadata_media"]) == ("NVMe SSD", "PMem or RAM")
    here = {"running": True, "scm": "RAM", "engines": 2, "cores": 16, "memory": 64 * GIB}
    told = daos.of_container({"pool": {"tiers": tiers}, "here": here}).facts
    assert (told["media"], told["metadata_media"]) == ("NVMe SSD", "PMem or RAM")
    one = {"scm": tiers["scm"]}
    described = {"pool": {"tiers": one}, "here": here, "servers": 2}
    alone = daos.of_container(described, "EC_2P1GX").facts
    assert (alone["media"], alone["metadata_media"]) == ("RAM", "RAM")
    assert (alone["server_cores"], alone["server_memory"]) == (16, 64 * GIB)
    assert (alone["devices_per_node"], alone["shared_cores"]) == (1.0, d.POLLED)
    assert alone["ec_encoder"] == "client"
    properties = {"rd_lvl": "rank (1)", "cksum": "crc64"}
    told = daos.of_container({"properties": properties}, "RP_2G1").facts
    assert (told["failure_domain"], told["checksums"]) == ("rank", "crc64 end to end")
    told = daos.of_container({"properties": {"rd_lvl": "node (2)"}}, "RP_2G1").facts
    assert told["failure_domain"] == "host"
    made = {"container": {"chunk_size": 1 << 20}}
    chunks = [daos.of_container(of, "RP_2G1", 4096).facts["chunk_size"] for of in (made, {})]
    assert chunks == [1 << 20, 4096]  # the container's own, before what was asked for


def test_engines_elsewhere_take_nothing_of_the_clients_cores() -> None:
    here = {"running": False, "scm": "", "engines": 0, "cores": None, "memory": None}
    told = daos.of_container({"here": here, "servers": 2}).facts
    assert told["shared_cores"] == d.NONE
    assert not {"server_cores", "server_memory", "devices_per_node"} & told.keys()
    told = daos.of_container({"here": here | {"running": True}, "servers": 2}).facts
    assert told["shared_cores"] == d.POLLED  # some are here, and others are not
    assert "server_cores" not in told
    assert "shared_cores" not in daos.of_container({}).facts


def test_what_a_new_pool_reserves_is_not_used() -> None:
    """A pool of 1.5 GB that had 820 MB free when it was empty, and then took 5 MB."""
    tiers = {"scm": {"total": 1_500_000_000, "free": 815_000_000}}
    told = daos.of_container({"pool": {"tiers": tiers}, "empty_free": 820_000_000}).facts
    assert told["fill"] == pytest.approx(5 / 820)
    assert daos.of_container({"pool": {"tiers": tiers}}).facts["fill"] == pytest.approx(685 / 1500)
    grown = daos.of_container({"pool": {"tiers": tiers}, "empty_free": 810_000_000}).facts
    assert grown["fill"] == 0.0


@pytest.mark.parametrize(
    ("caching", "interception", "durability", "data_cache", "metadata_cache"),
    [
        ("site", "none", "write-back", "page cache", daos.DFUSE),
        ("write_through", "none", "durable on return", "page cache", daos.DFUSE),
        ("disabled", "none", "durable on return", "none", "none"),
        ("site", "ioil", "durable on return", "none", daos.DFUSE),
        ("site", "pil4dfs", "durable on return", "none", "libpil4dfs"),
        ("as_found", "none", None, None, None),
    ],
)
def test_what_dfuse_keeps(
    caching: str, interception: str, durability: Any, data_cache: Any, metadata_cache: Any
) -> None:
    told = daos.of_mount(daos.of_container({}, "S1"), caching, interception)
    assert (told.durability, told.data_cache, told.metadata_cache) == (
        durability,
        data_cache,
        metadata_cache,
    )
    assert told.redundancy == "none"


def test_dfuse_tells_of_the_level_before_and_of_the_mount_after() -> None:
    backend = made("daos-dfuse", pool="p", file_oclass="RP_2G1")
    assert backend.deployment({}).durability == "write-back"
    assert backend.deployment({"caching": "disabled"}).data_cache == "none"
    assert backend.deployment({"caching": "site", "interception": "ioil"}).data_cache == "none"
    assert backend.deployment({"cache_attributes": {"data-cache": "off"}}).data_cache is None
    assert backend.deployment({"object_class": "S1"}).redundancy == "none"
    assert backend.deployment({}).redundancy == "replica 2"
    found = made("daos-dfuse", path="/mnt/x").deployment({})
    assert (found.durability, found.data_cache) == (None, None)
