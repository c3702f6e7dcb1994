"""The test bed's ceph.conf and keyring, as text."""

from __future__ import annotations

import base64
import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.testbed.ceph.options import CephTestbedOptions

MON_PORT, MON_PORT_V1 = 3300, 6789

# Seconds and sizes that let a small cluster come up quickly; none of them touches the data path.
_QUICK = {
    "paxos_propose_interval": "0.05",
    "paxos_min_wait": "0.02",
    "mon_tick_interval": "1",
    "mgr_tick_period": "1",
    "mgr_stats_period": "1",
    "mds_beacon_interval": "1",
    "bdev_aio_poll_ms": "10",
    "bluestore_fsck_on_mkfs": "false",
    "mgr_initial_modules": "",
    "bluestore_rocksdb_options_annex": "write_buffer_size=33554432",
}
# What a bed of one machine needs: little memory, no automatic changes, its disk is shared.
_SMALL = {
    "bluestore_cache_autotune": "false",
    "bluestore_cache_size": "134217728",
    "bluefs_buffered_io": "false",
    "bluestore_default_buffered_read": "false",  # else the OSD's memory hides the device
    # as for SSDs, whatever the loop device or file lies on: a pause after each object (0.1 s)
    # or step of a removal (5 s) would make a recovery or a pool's end last for many seconds
    "osd_recovery_sleep_hdd": "0",
    "osd_delete_sleep_hdd": "0",
    "osd_class_update_on_start": "false",
    "osd_crush_initial_weight": "1",
    "osd_pool_default_pg_autoscale_mode": "off",
    "osd_pool_default_flag_hashpspool": "true",
    "mon_allow_pool_size_one": "true",
    "mon_allow_pool_delete": "true",
    "mon_warn_on_pool_no_redundancy": "false",  # one copy is what was asked for
    "mon_max_pg_per_osd": "65536",
    "osd_max_pg_per_osd_hard_ratio": "10",
    "mon_osd_max_initial_pgs": "65536",  # a pool begins with all of its placement groups,
    "mon_osd_max_creating_pgs": "65536",  # and they are made together
    "mon_data_avail_warn": "2",
    "mon_data_avail_crit": "1",
    "mon_osd_min_down_reporters": "1",  # with two OSDs there is one that can tell
    "auth_allow_insecure_global_id_reclaim": "false",
}


@dataclass(frozen=True)
class Place:
    """Which emulated node an OSD is on, and its address."""

    osd: int
    node: int  # 1, 2...
    address: str


def conf_text(
    folder: Path,
    fsid: str,
    options: CephTestbedOptions,
    address: str,
    places: list[Place],
    sockets: Path,
) -> str:
    """ceph.conf.  `address`: of the monitor, manager and MDS; `sockets`: of daemons' sockets."""
    auth = "none" if options.auth == "none" else "cephx"
    values = {
        "fsid": fsid,
        "mon_host": f"[v2:{address}:{MON_PORT},v1:{address}:{MON_PORT_V1}]",
        "public_addr": address,
        "auth_cluster_required": auth,
        "auth_service_required": auth,
        "auth_client_required": auth,
        "keyring": "/dev/null" if auth == "none" else str(folder / "keyring"),
        "run_dir": str(folder / "run"),
        "pid_file": "",
        "crash_dir": str(folder / "crash"),
        "log_file": f"{folder}/log/$name.log",
        "log_to_stderr": "false",
        "mon_cluster_log_file": f"{folder}/log/cluster.log",
        "admin_socket": "",
        "mon_data": f"{folder}/mon.$id",
        "mgr_data": f"{folder}/mgr.$id",
        "mds_data": f"{folder}/mds.$id",
        "osd_data": f"{folder}/osd.$id",
        "osd_crush_chooseleaf_type": "0" if options.failure_domain == "osd" else "1",
        "osd_pool_default_size": str(options.copies.copies),
        "osd_pool_default_min_size": str(max(1, options.copies.copies - 1)),
        **_QUICK,
        **_SMALL,
    }
    if options.interface == "none":
        values["bluestore_block_size"] = str(options.osd_size)
    sections = {"global": values}
    sections["client"] = {"log_file": "/dev/null"}
    for kind in ("mon", "mgr", "mds", "osd"):  # without it a daemon answers no `tell`
        sections[kind] = {"admin_socket": f"{sockets}/$name.asok"}
    for place in places:
        sections[f"osd.{place.osd}"] = {
            "public_addr": place.address,
            "cluster_addr": place.address,
            "crush_location": f"root=default host=node{place.node}",
        }
    return "\n".join(_section(name, lines) for name, lines in sections.items())


def _section(name: str, values: Mapping[str, str]) -> str:
    lines = [f"{key.replace('_', ' ')} = {value}" for key, value in values.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def keyring_text(osds: int) -> str:
    """A keyring with a fresh key for every daemon and for client.admin."""
    everything = {"mon": "allow *", "mgr": "allow *", "osd": "allow *", "mds": "allow *"}
    entities = {
        "mon.": {"mon": "allow *"},
        "client.admin": everything,
        "mgr.a": {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"},
        "mds.a": {"mon": "allow profile mds", "mgr": "allow profile mds", "osd": "allow *",
                  "mds": "allow"},
        **{
            f"osd.{number}": {"mon": "allow profile osd", "mgr": "allow profile osd",
                              "osd": "allow *"}
            for number in range(osds)
        },
    }  # fmt: skip
    lines = []
    for name, caps in entities.items():
        lines += [f"[{name}]", f"\tkey = {_key()}"]
        lines += [f'\tcaps {kind} = "{cap}"' for kind, cap in caps.items()]
    return "\n".join(lines) + "\n"


def _key() -> str:
    """A cephx secret: type 1 (AES), time of making, length, 16 random bytes."""
    now = time.time()
    seconds = int(now)
    head = struct.pack("<hiih", 1, seconds, int((now - seconds) * 1e9), 16)
    return base64.b64encode(head + os.urandom(16)).decode()
