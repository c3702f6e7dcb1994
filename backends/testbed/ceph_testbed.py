"""A real Ceph on one machine, for tests and for emulated cluster factors (root).

    from fsmatrix.backends.testbed.ceph_testbed import CephTestbed, CephTestbedOptions, up...

    options = CephTestbedOptions(nodes=2, osds_per_node=1, pg_num=32)  # see ceph_bed_options.py
    bed = up(options, "/tmp/x/bed")   # a directory of its own: missing or empty
    bed.conf          # path of ceph.conf (text)
    bed.user, bed.keyring             # "admin"; "" with auth="none"
    bed.filesystem    # "cephfs"
    bed.pools         # {"rados": ..., "metadata": ..., "data": ...} -> names of pools
    bed.facts         # JSON-able: version, factors (with `realised`), placement, pg_num...
    bed.steps         # seconds of each step: waited for Ceph, own
    with bed.cluster() as cluster: cluster.mon("status")
    bed.kill("osd.0"); bed.restart("osd.0"); bed.stop("osd.0"); bed.resume("osd.0")
    bed.kill("mds.a"); bed.restart("mds.a"); bed.stop("mon.a"); bed.resume("mon.a")
    bed.limit_drive(0, Limits(write_bytes=10_000_000))   # an emulated drive, live
    bed.wait_clean(60)
    CephTestbed.open("/tmp/x/bed")            # a bed that another process brought up
    status("/tmp/x/bed")              # dict; never hangs
    down("/tmp/x/bed")                # list of sentences; idempotent; also after any crash

`up` takes down what it made when it fails, and raises BackendError.  Beds in different
directories live side by side.  A bed outlives the process that brought it up.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster
from fsmatrix.backends.ceph.facts import wait_for_stats
from fsmatrix.backends.contract import SpeedEstimate
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import proof
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.system import cgroups
from fsmatrix.backends.system.cgroups import Limits
from fsmatrix.backends.testbed import bed, ceph_bringup, daemons
from fsmatrix.backends.testbed.bed import StorageTestbed, lacking
from fsmatrix.backends.testbed.ceph_bed_options import (
    CODED,
    DATA,
    FILESYSTEM,
    METADATA,
    RADOS,
    CephTestbedOptions,
)
from fsmatrix.backends.testbed.ceph_bringup import all_clean, health_checks, serving
from fsmatrix.backends.testbed.daemons import Daemon
from fsmatrix.backends.testbed.home import Home, Kind, Steps
from fsmatrix.results.evidence.stored import Json, JsonObject, Scalar, text

# Take a Ceph down: everything that its bed's journal names, and nothing else.


def end(home: Home, entries: list[Entry]) -> list[str]:
    """One sentence for each thing that was ended, removed or left alone.

    What is left alone stays in the journal.
    """

    def undo_loop(entry: Entry) -> str:
        proof.of_loop(entry.facts, proof.OwnershipScope(home.journal.identity, folder=home.folder))
        return proof.undo_loop(entry.facts, True)

    kinds = {"loop": undo_loop, "cgroup": _undo_cgroup, **bed.NETWORK}
    sentences = _unlimit(entries) + bed.processes(home, entries)
    return sentences + bed.things(home, entries, kinds)


def _unlimit(entries: list[Entry]) -> list[str]:
    """Drives at full speed: a process with I/O in flight cannot end before it is done."""
    sentences = []
    for entry in entries:
        folder = Path(str(entry.facts.get("path", "")))
        if entry.kind == "cgroup" and bed.is_own(folder.name) and folder.exists():
            try:
                cgroups.limit_drive(folder, str(entry.facts["device"]), cgroups.Limits())
            except BackendError as error:
                sentences.append(f"note: {error}")
    return sentences


def _undo_cgroup(entry: Entry) -> str:
    bed.own_name(entry)
    folder = Path(str(entry.facts["path"]))
    if not folder.exists():
        return ""
    # ended processes leave it a moment later
    if reason := cgroups.remove(folder, daemons.GONE_WITHIN):
        raise BackendError(reason)
    return f"removed cgroup {folder.name}"


__all__ = ["CephTestbed", "CephTestbedOptions", "Limits", "down", "missing", "status", "up"]

KIND = Kind(
    "fsmatrix-testbed-ceph",
    "ceph.conf",
    ("run", "log", "crash"),
    ("keyring", "monmap", "osdmap", "upmaps"),
    ("mon.", "mgr.", "mds.", "osd.", "image."),
)
STATUS_WITHIN = 5.0  # seconds for asking a cluster how it is
_UP_SECONDS, _OSD_SECONDS = 7.0, 1.0  # to bring it up and take it down, and for each OSD
_PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "monmaptool", "osdmaptool")
_MORE = ("ceph", "ceph-fuse", "librados.so.2", "libcephfs.so.2")


@dataclass(frozen=True, kw_only=True)
class CephTestbed(StorageTestbed[CephTestbedOptions]):
    """A test bed that is up."""

    kind = KIND
    Options = CephTestbedOptions
    factors: ClassVar[Mapping[str, str]] = {"storage_nodes": "nodes", "interface": "interface"}

    fsid: str
    pools: dict[str, str]
    user: str = "admin"
    filesystem: str = FILESYSTEM

    @classmethod
    def refusal(cls, options: CephTestbedOptions, folder: Path) -> str:  # noqa: ARG003
        """Why there can be no such bed here (empty: there can)."""
        return options.refusal() or cls.missing()

    @classmethod
    def missing(cls) -> str:
        """Why no Ceph can be brought up here (empty: it can); for skips and refusals."""
        return lacking(_PROGRAMS, *_MORE)

    @classmethod
    def attributes(cls, options: CephTestbedOptions) -> dict[str, Scalar]:
        """Nodes, drives, links and redundancy."""
        return {
            "storage_nodes": options.nodes,
            "interface": options.interface,
            "osds_per_node": options.per_node,
            **({"drive_scale": options.scale} if options.interface != "none" else {}),
            "network": options.network,
            "redundancy": options.redundancy,
            "failure_domain": options.failure_domain,
        }

    @classmethod
    def pace(cls, options: CephTestbedOptions, pace: SpeedEstimate) -> SpeedEstimate:
        """As fast as its emulated drives and links let it, for all copies."""
        rates = [pace.bandwidth]
        if options.interface != "none":
            drive = ceph_bringup.limits_of(options)
            rates.append(min(drive.read_bytes, drive.write_bytes) * options.osds)
        if bits := options.bits_per_second:
            rates.append(bits / 8 * options.nodes)
        copies = options.copies
        written = copies.size / (copies.k or 1)  # bytes on OSDs for each of a client's
        attach = pace.attach + _UP_SECONDS + options.osds * _OSD_SECONDS
        return replace(pace, attach=attach, bandwidth=min(rates) / written)

    @classmethod
    def device_limit(cls, options: CephTestbedOptions) -> tuple[float, str]:
        """Of the emulated drives, if there are any."""
        if options.interface == "none":
            return 0.0, ""
        drive = ceph_bringup.limits_of(options)
        most = max(drive.read_bytes, drive.write_bytes) * options.osds
        return most, f"{options.osds} emulated drives"

    @classmethod
    def chosen(cls) -> dict[str, Json]:
        """What is drawn for a new cluster: its `fsid`."""
        return {"fsid": str(uuid.uuid4())}

    @classmethod
    def bring_up(
        cls, home: Home, options: CephTestbedOptions, identity: JsonObject, steps: Steps
    ) -> dict[str, Json]:
        """Start the cluster's daemons one after the other: see ceph_bringup.py."""
        bed, fsid = text(identity, "id"), text(identity, "fsid")
        facts = ceph_bringup.Making(home, options, steps, bed, fsid).bring_up()
        names = {
            "rados": RADOS,
            "metadata": METADATA,
            "data": CODED if options.copies.erasure_coded else DATA,
            "default_data": DATA,
        }
        return {"pools": names, "facts": facts}

    @classmethod
    def end(cls, home: Home, entries: list[Entry]) -> list[str]:
        """End what the journal names; a line for each thing done: see teardown.py."""
        return end(home, entries)

    def look(self, states: Sequence[Daemon]) -> dict[str, Json]:  # noqa: ARG002
        """`health`; waits at most STATUS_WITHIN seconds for the cluster."""
        try:
            with self.cluster(STATUS_WITHIN) as cluster:
                raised = sorted(health_checks(cluster).items())
        except CephError as error:
            return {"health": [str(error)]}
        return {"health": [f"{code}: {text}" for code, text in raised]}

    def offer(self, what: str) -> Any:
        """As every bed; "pools.rados" is the name of that pool."""
        first, _, pool = what.partition(".")
        return self.pools[pool] if first == "pools" else super().offer(what)

    def node_of(self, role: str) -> str:
        """That of an OSD, as CRUSH calls it; monitor, manager and MDS are on none."""
        kind, _, number = role.partition(".")
        return f"node{self.options.node_of(int(number))}" if kind == "osd" else ""

    def drives_of(self, role: str) -> tuple[str, dict[str, float]]:
        """The loop device of an OSD, limited by its cgroup."""
        kind, _, number = role.partition(".")
        if kind != "osd":
            return "", {}
        for entry in self._home.journal.pending("cgroup", osd=int(number)):
            drive = Path("/sys/dev/block", str(entry.facts["device"])).resolve().name
            limits = ceph_bringup.limits_of(self.options)
            return drive, {
                f"disk_read:{drive}": float(limits.read_bytes),
                f"disk_written:{drive}": float(limits.write_bytes),
            }
        return "", {}

    @property
    def keyring(self) -> str:
        """Path of the users' keys; "" with auth="none"."""
        return str(self._home.folder / "keyring") if self.options.auth == "cephx" else ""

    def cluster(self, timeout: float = 10.0) -> Cluster:
        """A connection to the test bed's cluster as client.admin."""
        return Cluster(self.conf, self.user, keyring=self.keyring, timeout=timeout)

    def limit_drive(self, osd: int, limits: Limits) -> None:
        """Change what the OSD's emulated drive may do, at once; Limits(): everything."""
        for entry in self._home.journal.pending("cgroup", osd=osd):
            folder = Path(str(entry.facts["path"]))
            return cgroups.limit_drive(folder, str(entry.facts["device"]), limits)
        raise BackendError(f"{self.directory}: OSD {osd} has no emulated drive")

    def wait_clean(self, seconds: float = 60.0) -> None:
        """Until all OSDs and the MDS serve and health is OK; CephError after `seconds`."""
        deadline = time.monotonic() + seconds
        reason = "no answer"
        with self.cluster() as cluster:
            while time.monotonic() < deadline:
                up_now = int(cluster.mon("osd stat")["num_up_osds"])
                raised = health_checks(cluster)
                if up_now == self.options.osds and not raised and serving(cluster):
                    wait_for_stats(cluster, range(self.options.osds), deadline)
                    if all_clean(cluster):
                        return
                reason = f"{up_now} of {self.options.osds} OSDs up; {'; '.join(raised.values())}"
                time.sleep(0.1)
        raise CephError(f"{self.directory}: not clean within {seconds:g} s", 0, reason)


up, down, status = CephTestbed.up, CephTestbed.down, CephTestbed.status
missing = CephTestbed.missing
