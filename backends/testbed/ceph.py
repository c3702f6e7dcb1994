"""A real Ceph on one machine, for tests and for emulated cluster factors (root).

    from fsmatrix.backends.testbed.ceph import Bed, BedOptions, down, status, up

    options = BedOptions(nodes=2, osds_per_node=1, pg_num=32)  # see options.py
    bed = up(options, "/tmp/x/bed")   # a directory of its own: missing or empty
    bed.conf          # path of ceph.conf (text)
    bed.user, bed.keyring             # "admin"; "" with auth="none"
    bed.filesystem    # "cephfs"
    bed.pools         # {"rados": ..., "metadata": ..., "data": ...} -> names of pools
    bed.facts         # JSON-able: version, factors (with `realised`), placement, pg_num...
    bed.steps         # seconds of each step: waited for Ceph, own
    with bed.cluster() as cluster: cluster.mon("status")
    bed.kill_osd(0); bed.restart_osd(0); bed.stop_osd(0); bed.cont_osd(0)
    bed.kill_mds(); bed.restart_mds(); bed.stop_mon(); bed.cont_mon()
    bed.limit_drive(0, Limits(write_bytes=10_000_000))   # an emulated drive, live
    bed.wait_clean(60)
    Bed.open("/tmp/x/bed")            # a bed that another process brought up
    status("/tmp/x/bed")              # dict; never hangs
    down("/tmp/x/bed")                # list of sentences; idempotent; also after any crash

`up` takes down what it made when it fails, and raises BackendError.  Beds in different
directories live side by side.  A bed outlives the process that brought it up.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from fsmatrix.backends.ceph.errors import CephError
from fsmatrix.backends.ceph.librados import Cluster
from fsmatrix.backends.ceph.placement import wait_for_stats
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import tools
from fsmatrix.backends.testbed import bringup, cgroups, daemons, health, pools, teardown
from fsmatrix.backends.testbed.cgroups import Limits
from fsmatrix.backends.testbed.home import Home, fresh_id
from fsmatrix.backends.testbed.options import BedOptions
from fsmatrix.backends.testbed.pools import FILESYSTEM
from fsmatrix.backends.testbed.steps import Step, Steps

__all__ = ["Bed", "BedOptions", "Limits", "down", "missing", "status", "up"]

STATUS_WITHIN = 5.0  # seconds for asking a cluster how it is
_PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "monmaptool", "osdmaptool")
_PACKAGES = "ceph-mon ceph-mgr ceph-osd ceph-mds ceph-fuse librados2 libcephfs2"


@dataclass(frozen=True)
class Bed:
    """A test bed that is up."""

    directory: str
    conf: str
    fsid: str
    options: BedOptions
    pools: dict[str, str]
    facts: dict[str, Any]
    steps: tuple[dict[str, Any], ...] = ()
    user: str = "admin"
    keyring: str = ""
    filesystem: str = FILESYSTEM
    _home: Home = field(default_factory=lambda: Home(Path()), repr=False, compare=False)

    @classmethod
    def open(cls, directory: Path | str) -> Self:
        """The bed in `directory`; BackendError if there is none or it is not whole."""
        home = Home.at(directory)
        known = home.read() if home.exists() else {}
        if not known:
            raise BackendError(f"{home.folder} holds no test bed")
        if not known.get("complete"):
            raise BackendError(f"{home.folder}: bringing this test bed up was interrupted: down")
        options = BedOptions.model_validate(known["options"])
        return cls(
            directory=str(home.folder),
            conf=str(home.conf),
            fsid=known["fsid"],
            options=options,
            pools=known["pools"],
            facts=known["facts"],
            steps=tuple(known["steps"]),
            keyring=str(home.folder / "keyring") if options.auth == "cephx" else "",
            _home=home,
        )

    def cluster(self, timeout: float = 10.0) -> Cluster:
        """A connection as client.admin."""
        return Cluster(self.conf, self.user, keyring=self.keyring, timeout=timeout)

    def pid(self, role: str) -> int:
        """The pid of "mon.a", "mgr.a", "mds.a" or "osd.0"."""
        return int(daemons.entry_of(self._home, role).facts["pid"])

    def kill_osd(self, osd: int) -> None:
        """SIGKILL; returns when it is gone."""
        daemons.kill(self._home, f"osd.{osd}")

    def restart_osd(self, osd: int) -> None:
        """Start it again, with the same drive and node; returns at once."""
        daemons.restart(self._home, f"osd.{osd}")

    def stop_osd(self, osd: int) -> None:
        """SIGSTOP: its I/O hangs."""
        daemons.stop(self._home, f"osd.{osd}")

    def cont_osd(self, osd: int) -> None:
        """SIGCONT."""
        daemons.signal_daemon(self._home, f"osd.{osd}", signal.SIGCONT)

    def kill_mds(self) -> None:
        """SIGKILL; returns when it is gone."""
        daemons.kill(self._home, "mds.a")

    def restart_mds(self) -> None:
        """Start it again; it replays its journal before it serves."""
        daemons.restart(self._home, "mds.a")

    def limit_drive(self, osd: int, limits: Limits) -> None:
        """Change what the OSD's emulated drive may do, at once; Limits(): everything."""
        for entry in self._home.journal.pending("cgroup", osd=osd):
            folder = Path(str(entry.facts["path"]))
            return cgroups.limit(folder, str(entry.facts["device"]), limits)
        raise BackendError(f"{self.directory}: OSD {osd} has no emulated drive")

    def stop_mon(self) -> None:
        """SIGSTOP: new clients and commands hang."""
        daemons.stop(self._home, "mon.a")

    def cont_mon(self) -> None:
        """SIGCONT."""
        daemons.signal_daemon(self._home, "mon.a", signal.SIGCONT)

    def wait_clean(self, seconds: float = 60.0) -> None:
        """Until all OSDs and the MDS serve and health is OK; CephError after `seconds`."""
        deadline = time.monotonic() + seconds
        reason = "no answer"
        with self.cluster() as cluster:
            while time.monotonic() < deadline:
                up_now = int(cluster.mon("osd stat")["num_up_osds"])
                raised = health.checks(cluster)
                if up_now == self.options.osds and not raised and health.serving(cluster):
                    wait_for_stats(cluster, range(self.options.osds), deadline)
                    if health.all_clean(cluster):
                        return
                reason = f"{up_now} of {self.options.osds} OSDs up; {'; '.join(raised.values())}"
                time.sleep(0.1)
        raise CephError(f"{self.directory}: not clean within {seconds:g} s", 0, reason)


def missing() -> str:
    """Why no Ceph can be brought up here (empty: it can); for skips and refusals."""
    if os.geteuid() != 0:
        return "a test bed needs root"
    for program in _PROGRAMS:
        if tools.find(program) is None:
            return f"{program} is missing: apt install {_PACKAGES}"
    return ""


def up(
    options: BedOptions,
    directory: Path | str,
    *,
    begun: Callable[[str], None] = lambda _: None,
    ended: Callable[[Step], None] = lambda _: None,
) -> Bed:
    """Bring a bed up; `begun` and `ended` tell of each step.

    BackendError if it is refused (then nothing was started) or fails (then what was made is
    taken down again).
    """
    reason = options.refusal() or missing()
    if reason:
        raise BackendError(reason)
    home = Home.at(directory)
    home.make()
    with home.locked():
        making = bringup.Making(home, options, Steps(begun, ended), fresh_id())
        known: dict[str, Any] = {
            "complete": False, "id": making.bed, "fsid": making.fsid, "made": time.time(),
            "options": options.model_dump(),
        }  # fmt: skip
        with _taken_down_on_failure(home):
            home.write(known)
            facts = making.bring_up()
            steps = [step.as_json() for step in making.steps.all]
            coded = options.copies.erasure_coded
            names = {
                "rados": pools.RADOS,
                "metadata": pools.METADATA,
                "data": pools.CODED if coded else pools.DATA,
                "default_data": pools.DATA,
            }
            home.write({**known, "complete": True, "facts": facts, "steps": steps, "pools": names})
    return Bed.open(directory)


@contextmanager
def _taken_down_on_failure(home: Home) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        left = [line for line in teardown.take_down(home) if line.startswith(teardown.LEFT)]
        for line in left:
            error.add_note(line)
        if left and isinstance(error, Exception):
            raise BackendError(f"{error}; {'; '.join(left)}") from error
        raise


def down(directory: Path | str) -> list[str]:
    """Take the bed in `directory` down, whole or not; [] if there is none."""
    home = Home.at(directory)
    if not home.exists():
        return []
    with home.locked():
        return teardown.take_down(home)


def status(directory: Path | str) -> dict[str, Any]:
    """How the bed is: `state` (none, interrupted, up, degraded), daemons, health, facts.

    Never waits longer than STATUS_WITHIN seconds for the cluster.
    """
    home = Home.at(directory)
    if not home.exists():
        return {"directory": str(home.folder), "state": "none"}
    known = home.read()
    found: dict[str, Any] = {
        "directory": str(home.folder),
        "conf": str(home.conf),
        "daemons": daemons.states(home),
        **{
            key: known[key]
            for key in ("fsid", "options", "pools", "facts", "steps")
            if key in known
        },
    }
    if not known.get("complete"):
        return {**found, "state": "interrupted"}
    found["health"] = _health(Bed.open(directory))
    running = all(one["state"] == "running" for one in found["daemons"])
    return {**found, "state": "up" if running and not found["health"] else "degraded"}


def _health(bed: Bed) -> list[str]:
    try:
        with bed.cluster(STATUS_WITHIN) as cluster:
            return [f"{code}: {text}" for code, text in sorted(health.checks(cluster).items())]
    except CephError as error:
        return [str(error)]
