"""Bring a Ceph up, step by step, and ask its monitor how it is.

Monitor first; while it starts, the OSDs make their stores (they need nothing from it).
Manager and MDS start next, and while they do, the OSDs and their pools enter the maps, balanced;
then the OSDs start and make each placement group where it will stay.
"""

from __future__ import annotations

import base64
import os
import struct
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster
from fsmatrix.backends.ceph.facts import at_once, wait_for_stats
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Entry, Journal
from fsmatrix.backends.local import images
from fsmatrix.backends.system import cgroups, tools
from fsmatrix.backends.system.cgroups import Hierarchy, Limits
from fsmatrix.backends.testbed import daemons, network
from fsmatrix.backends.testbed.ceph_bed_options import (
    DRIVES,
    CephTestbedOptions,
    balance,
    lay_out_root,
    make_filesystem,
    make_pools,
    placement,
)
from fsmatrix.backends.testbed.daemons import Launch
from fsmatrix.backends.testbed.home import Home, Steps, make_sockets
from fsmatrix.backends.testbed.network import Network
from fsmatrix.results.evidence.stored import Json, JsonObject


def serving(cluster: Cluster) -> bool:
    """Whether the manager is available and an MDS active."""
    status = cluster.mon("status")
    active = status["fsmap"].get("up", 0) >= 1 and any(
        rank.get("status") == "up:active" for rank in status["fsmap"].get("by_rank", [])
    )
    return bool(status["mgrmap"]["available"]) and active


def all_clean(cluster: Cluster) -> bool:
    """Whether all placement groups are active+clean, as far as the manager knows."""
    groups = cluster.mon("status")["pgmap"]
    clean = sum(
        int(state["count"])
        for state in groups.get("pgs_by_state", [])
        if state["state_name"] == "active+clean"
    )
    return 0 < clean == int(groups["num_pgs"])


def health_summary(cluster: Cluster) -> str:
    """Where a cluster stands, for an error."""
    states = cluster.mon("status")["pgmap"].get("pgs_by_state", [])
    words = [f"{state['count']} {state['state_name']}" for state in states]
    return "; ".join([", ".join(words), *health_checks(cluster).values()])


def health_checks(cluster: Cluster) -> dict[str, str]:
    """Health checks that are raised now: {code: summary}."""
    raised = cluster.mon("health")["checks"]
    return {code: str(check["summary"]["message"]) for code, check in raised.items()}


# Emulated drives: a loop device on an image of its own, and a cgroup that limits it.


@dataclass(frozen=True)
class Emulated:
    """One drive: its device and the cgroup of the process that uses it."""

    device: str  # /dev/loopN
    number: str  # major:minor
    cgroup: Path
    direct_io: bool


def limits_of(options: CephTestbedOptions) -> Limits:
    """Limits of one drive at the bed's scale."""
    drive, scale = DRIVES[options.interface], options.scale
    return Limits(
        *(
            round(value * scale)
            for value in (
                drive.read_bytes,
                drive.write_bytes,
                drive.read_operations,
                drive.write_operations,
            )
        )
    )


def make(home: Home, options: CephTestbedOptions, bed: str, hierarchy: Hierarchy) -> list[Emulated]:
    """A drive for each OSD; BackendError if a part cannot be made."""
    if reason := images.loop_refusal():
        raise BackendError(f"emulated drives need loop devices: {reason}")
    limits, journal = limits_of(options), home.journal
    drives = []
    for osd in range(options.osds):
        device, direct = _device(home.folder / f"image.{osd}", options.osd_size, journal)
        _as_flash(device)
        status = Path(device).stat()
        number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        name = f"fsmatrix-{bed}-osd{osd}"
        journal.begin("cgroup", path=str(hierarchy.root / name), device=number, osd=osd)
        folder = cgroups.make(hierarchy, name)
        cgroups.limit_drive(folder, number, limits)
        drives.append(Emulated(device, number, folder, direct))
    return drives


def _as_flash(device: str) -> None:
    """Tell the kernel, and so Ceph, that it is no rotating disk.

    A loop device takes over what its image lies on, anew whenever it is attached.  On a rotating
    one BlueStore writes what is below 64 KiB twice, and the OSD has fewer shards.
    """
    Path(f"/sys/block/{Path(device).name}/queue/rotational").write_text("0")


def _device(path: Path, size: int, journal: Journal) -> tuple[str, bool]:
    image = journal.begin("image", path=str(path), folder=str(path.parent), size=size)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        status = os.fstat(descriptor)
        image = journal.confirm(image, inode=status.st_ino, filesystem=status.st_dev)
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        raise BackendError(f"{path}: no room for {size} bytes: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return images.attach(image, journal, "preferred")


# The test bed's ceph.conf and keyring, as text.


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


CLEAN_WITHIN = 120.0  # seconds; a bound, not a measure
COMMAND_WITHIN = 30.0  # seconds, for each command
_POLL = 0.03
# What the manager would do by itself: a pool of its own, and moving data.
_SWITCHED_OFF = ("mgr/devicehealth/enable_monitoring", "mgr/balancer/active")


@dataclass
class Making:
    """A bed that is being made."""

    home: Home
    options: CephTestbedOptions
    steps: Steps
    bed: str  # its short id
    fsid: str
    network: Network = field(default_factory=lambda: Network("", ()))
    drives: list[Emulated] = field(default_factory=list)
    hierarchy: Hierarchy | None = None
    running: list[Entry] = field(default_factory=list)

    def bring_up(self) -> dict[str, Json]:
        """All steps; returns the facts of the bed."""
        with self.steps.step("drives and network"):
            self._prepare()
        with self.steps.step("monitor"):
            uuids, stores = self._make_stores()
            self._monitor()
        with Cluster(str(self.home.conf), timeout=COMMAND_WITHIN) as cluster:
            with self.steps.step("pools and placement"):
                self._serve(cluster)
                with self.steps.waiting():
                    self._enter(cluster, uuids)
                    make_pools(cluster, self.options)
                    moved = balance(self.home, cluster)
                    make_filesystem(cluster, self.options)
            with self.steps.step("OSDs"):
                self._osds(cluster, stores)
            with self.steps.step("clean"):
                self._clean(cluster)
            with self.steps.step("facts"):
                return self._facts(cluster, moved)

    def _prepare(self) -> None:
        options, home = self.options, self.home
        with self.steps.waiting():  # ip, tc, losetup: the kernel's time
            if options.bits_per_second:
                self.network = network.bridged(
                    home.journal, self.bed, options.nodes, options.bits_per_second
                )
            else:
                self.network = network.loopback(options.nodes, MON_PORT, options.address)
            if options.interface != "none":
                self.hierarchy = cgroups.drive_hierarchy()
                self.drives = make(home, options, self.bed, self.hierarchy)
        places = [
            Place(osd, options.node_of(osd), self.network.nodes[options.node_of(osd) - 1])
            for osd in range(options.osds)
        ]
        folder = make_sockets(home, self.bed, "osd.999.asok")
        home.conf.write_text(
            conf_text(home.folder, self.fsid, options, self.network.address, places, folder)
        )
        if options.auth == "cephx":
            keyring = home.folder / "keyring"
            keyring.touch(mode=0o600)
            keyring.write_text(keyring_text(options.osds))

    def _launch(self, osd: int) -> Launch:
        cgroup = str(self.drives[osd].cgroup) if self.drives else ""
        namespace = self.network.namespace(self.options.node_of(osd))
        return _daemon(self.home, f"osd.{osd}", cgroup=cgroup, namespace=namespace)

    def _make_stores(self) -> tuple[list[str], list[Entry]]:
        uuids, stores = [], []
        for osd in range(self.options.osds):
            uuids.append(str(uuid.uuid4()))
            folder = self.home.folder / f"osd.{osd}"
            folder.mkdir()
            if self.drives:
                (folder / "block").symlink_to(self.drives[osd].device)
            argv = ("ceph-osd", "-f", "--mkfs", "-i", str(osd), "--osd-uuid", uuids[-1],
                    "--no-mon-config", "-c", str(self.home.conf))  # fmt: skip
            stores.append(daemons.start(self.home, Launch(f"osd.{osd}-mkfs", argv)))
        return uuids, stores

    def _monitor(self) -> None:
        home, address, port = self.home, self.network.address, MON_PORT
        addresses = f"[v2:{address}:{port},v1:{address}:{MON_PORT_V1}]"
        monmap = home.folder / "monmap"
        with self.steps.waiting():
            tools.run(["monmaptool", "--create", "--fsid", self.fsid, "--addv", "a", addresses,
                       str(monmap)], deadline=COMMAND_WITHIN)  # fmt: skip
        argv = ["ceph-mon", "-f", "--mkfs", "-i", "a", "-c", str(home.conf),
                "--monmap", str(monmap)]  # fmt: skip
        if self.options.auth == "cephx":
            argv += ["--keyring", str(home.folder / "keyring")]
        (home.folder / "mon.a").mkdir()
        mkfs = daemons.start(home, Launch("mon.a-mkfs", tuple(argv)))
        daemons.finish(home, [mkfs], self.steps, lambda _: None)
        if not (home.folder / "mon.a" / "store.db").exists():
            raise CephError("ceph-mon --mkfs failed", 0, daemons.last_words(home, mkfs))
        monitor = daemons.start(home, _daemon(home, "mon.a"))
        self.running.append(monitor)
        daemons.wait_for_port(home, monitor, address, port, self.steps)

    def _serve(self, cluster: Cluster) -> None:
        """Start manager and MDS; they are slow, and nobody needs them soon."""
        with self.steps.waiting():
            for name in _SWITCHED_OFF:
                cluster.mon("config set", who="mgr", name=name, value="false", force=True)
            unused = f"--mgr-disabled-modules={','.join(_unused_modules(cluster))}"
        for launch in (
            _daemon(self.home, "mgr.a", unused),
            _daemon(self.home, "mds.a"),
        ):
            (self.home.folder / launch.role).mkdir()
            self.running.append(daemons.start(self.home, launch))

    def _enter(self, cluster: Cluster, uuids: list[str]) -> None:
        """Put the OSDs into the maps before they run.

        So the pools' placement groups can be balanced before they exist: nothing ever moves.
        """
        options = self.options
        for osd, identity in enumerate(uuids):
            given = cluster.mon("osd new", uuid=identity)
            if int(given["osdid"]) != osd:
                raise CephError(f"OSD {osd} got another number: {given}")
        ids = [str(osd) for osd in range(options.osds)]
        at_once(
            lambda osd: cluster.mon(
                "osd crush create-or-move", id=osd, weight=1.0,
                args=[f"host=node{options.node_of(osd)}", "root=default"],
            ),
            range(options.osds),
        )  # fmt: skip
        if self.drives:
            kind = {"class": options.interface}
            cluster.mon("osd crush set-device-class", **kind, ids=ids)
        cluster.mon("osd in", ids=ids)

    def _osds(self, cluster: Cluster, stores: list[Entry]) -> None:
        home = self.home

        def start_osd(entry: Entry) -> None:
            osd = int(str(entry.facts["role"]).removesuffix("-mkfs").removeprefix("osd."))
            if not (home.folder / f"osd.{osd}" / "ready").exists():
                raise CephError(f"OSD {osd}: its store was not made", 0,
                                daemons.last_words(home, entry))  # fmt: skip
            self.running.append(daemons.start(home, self._launch(osd)))

        daemons.finish(home, stores, self.steps, start_osd)
        self._until("all OSDs are up", lambda: self._up(cluster), cluster)

    def _up(self, cluster: Cluster) -> bool:
        return int(cluster.mon("osd stat")["num_up_osds"]) == self.options.osds

    def _clean(self, cluster: Cluster) -> None:
        self._until(
            "the MDS is active and the manager available", lambda: serving(cluster), cluster
        )
        with self.steps.waiting():
            deadline = time.monotonic() + CLEAN_WITHIN
            wait_for_stats(cluster, range(self.options.osds), deadline)
        self._until("all placement groups are active+clean", lambda: all_clean(cluster), cluster)
        if self.options.copies.erasure_coded:
            with self.steps.waiting():
                lay_out_root(str(self.home.conf))
        self._until("health is OK", lambda: not health_checks(cluster), cluster)

    def _until(self, what: str, done: Callable[[], bool], cluster: Cluster) -> None:
        def check() -> None:
            daemons.check(self.home, self.running)

        if not self.steps.until(done, CLEAN_WITHIN, check, _POLL):
            raise CephError(
                f"within {CLEAN_WITHIN:g} s not reached: {what}", 0, health_summary(cluster)
            )

    def _facts(self, cluster: Cluster, moved: int) -> dict[str, Json]:
        options = self.options
        with self.steps.waiting():
            listed = {
                int(pool["poolnum"]): str(pool["poolname"]) for pool in cluster.mon("osd lspools")
            }
            placed = placement(cluster, listed, options.osds)
            version = cluster.version
        return {
            "version": version,
            "factors": self._factors(),
            "redundancy": options.redundancy,
            "failure_domain": options.failure_domain,
            "osds": options.osds,
            "osd_bytes": options.osd_size,
            "device_state": "fresh (allocated, never written)" if self.drives else "sparse file",
            "pg_num": options.placement_groups,
            "placement_groups_moved": moved,
            "placement": placed,
            "health": sorted(health_checks(cluster)),
        }

    def _factors(self) -> dict[str, Json]:
        """How each level is realised."""
        options = self.options
        nodes: JsonObject = {"level": options.nodes, "realised": "emulated",
                 "how": "virtual nodes on one machine, each a host bucket"}  # fmt: skip
        interface: dict[str, Json] = {"level": options.interface}
        if self.hierarchy is not None:
            interface |= {
                "realised": "emulated",
                "how": f"loop devices, {cgroups.how(self.hierarchy)}",
                "drive": DRIVES[options.interface].model,
                "scale": options.scale,
                "limits": vars(limits_of(options)),
                "direct_io": all(drive.direct_io for drive in self.drives),
                "osds_per_node": options.per_node,
            }
        link: dict[str, Json] = {"level": options.network}
        if options.bits_per_second:
            link |= {
                "realised": "emulated",
                "how": "a network namespace for each storage node, veth to a bridge, tbf on both "
                f"ends (burst {network.BURST}, limit {network.LIMIT}); monitor, manager, MDS and "
                "clients are on the bridge without a limit",
                "bits_per_second": options.bits_per_second,
            }
        return {"storage_nodes": nodes, "interface": interface, "network": link}


def _daemon(home: Home, role: str, *options: str, cgroup: str = "", namespace: str = "") -> Launch:
    """The launch of "mon.a", "mgr.a", "mds.a" or "osd.N"."""
    kind, _, number = role.partition(".")
    argv = (f"ceph-{kind}", "-f", "-i", number, "-c", str(home.conf), *options)
    return Launch(role, argv, cgroup, namespace)


def _unused_modules(cluster: Cluster) -> list[str]:
    """The manager's modules that it can do without: loading them takes seconds."""
    always = cluster.mon("mgr dump")["always_on_modules"]
    needed = {name for names in always.values() for name in names}
    folder = Path(cluster.option("mgr_module_path"))
    modules = {path.parent.name for path in folder.glob("*/__init__.py")}
    return sorted(modules - needed)
