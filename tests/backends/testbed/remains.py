"""What a Ceph bed leaves on a machine, if it leaves anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fsmatrix.backends.system import tools
from fsmatrix.backends.testbed import daemons
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed
from fsmatrix.backends.testbed.home import Home

QUICK: dict[str, Any] = {"nodes": 2, "pg_num": 32}


def running(directory: Path) -> list[str]:
    """Command lines of all processes that name the directory in any way, ours apart."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        seen = daemons.look(int(folder.name))
        if seen and seen.state not in "ZX" and seen.pid != os.getpid():
            line = " ".join(seen.argv)
            if str(directory) in line:
                found.append(line)
    return found


def traces() -> dict[str, set[str]]:
    """What of ours the kernel knows: links, namespaces, cgroups, loop devices on images."""
    loops = tools.run(["losetup", "--noheadings", "--output", "BACK-FILE"]).stdout
    places = list(Path("/sys/fs/cgroup").glob("**/fsmatrix-*"))
    return {
        "links": {path.name for path in Path("/sys/class/net").glob("fsm*")},
        "namespaces": {path.name for path in Path("/run/netns").glob("fsmatrix-*")},
        "cgroups": {path.name for path in places},
        "loops": {line.strip() for line in loops.splitlines() if "image." in line},
    }


def of_bed(directory: Path) -> dict[str, set[str]]:
    """The part of `traces` that belongs to one bed (other beds may run on this machine)."""
    recorded = Home.at(directory, CephTestbed.kind).read()
    assert recorded is not None
    identity = recorded.id
    found = traces()
    return {
        "links": {name for name in found["links"] if name.startswith(f"fsm{identity}")},
        "namespaces": {name for name in found["namespaces"] if identity in name},
        "cgroups": {name for name in found["cgroups"] if identity in name},
        "loops": {name for name in found["loops"] if str(directory) in name},
    }


def assert_gone(directory: Path, before: dict[str, set[str]]) -> None:
    """Nothing of the bed is left: neither in its directory, nor running, nor in the kernel."""
    assert not directory.exists()
    assert running(directory) == []
    now = traces()
    assert {kind: now[kind] & names for kind, names in before.items() if now[kind] & names} == {}
