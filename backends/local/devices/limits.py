"""Limits of operations per second on loop devices of ours: journalled, and lifted again.

The kernel keeps a limit under the number of a device also when another file is attached there.
So it is written down before it is made, and lifted only where the very limit that was written
down is in force on a loop device that is ours (or on which nothing is attached).
"""

from __future__ import annotations

import re
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import proof
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.journal.proof import Facts, Kind, NotProvenOurs, OwnershipScope, Stage
from fsmatrix.backends.system import devices, loopdev
from fsmatrix.backends.system.cgroups import throttle
from fsmatrix.backends.system.cgroups.throttle import Limits
from fsmatrix.results.evidence.values import JsonObject

KIND = "io-limit"
_LOOP = re.compile(r"/dev/loop\d+")


def refusal() -> str:
    """Why nothing can be limited in this process's cgroup (empty: it can)."""
    try:
        throttle.own(throttle.hierarchy())
    except BackendError as error:
        return str(error)
    return ""


def impose(device: str, limits: Limits, journal: Journal) -> None:
    """Limit what this process's cgroup does on a loop device; harmless if it is so already."""
    folder = throttle.own(throttle.hierarchy())
    facts: JsonObject = {"device": device, "cgroup": str(folder), "limits": vars(limits)}
    if not journal.pending(KIND, **facts):
        journal.begin(KIND, **facts)
    throttle.limit(folder, devices.number_of(device), limits)


def lift(device: str, journal: Journal) -> None:
    """Undo `impose`; nothing if there is no limit.  BackendError if another one is in force."""
    for entry in journal.pending(KIND, device=device):
        try:
            undo(entry.facts, True)
        except NotProvenOurs as reason:
            raise BackendError(str(reason)) from reason
        journal.end(entry)


def undo(facts: Facts, same_boot: bool) -> str:
    """Lift a limit if it is the recorded one."""
    device, folder = str(facts["device"]), Path(str(facts["cgroup"]))
    if not same_boot or not folder.exists() or not Path(device).exists():
        return ""
    number = devices.number_of(device)
    in_force = throttle.limits_of(folder, number)
    if in_force == Limits():
        return ""
    if vars(in_force) != facts["limits"]:
        raise NotProvenOurs(
            f"{device}: another limit than the recorded one is in force in {folder}"
        )
    throttle.limit(folder, number, Limits())
    return f"lifted the limit on {device}"


def prove(facts: Facts, ground: OwnershipScope) -> None:
    """A loop device of ours, or an empty one, and a cgroup where the kernel has them."""
    device, folder = str(facts["device"]), Path(str(facts["cgroup"]))
    if not _LOOP.fullmatch(device):
        raise NotProvenOurs(f"{device} is no loop device: its limit stays")
    if not proof.our_loop(device, ground) and loopdev.backing(device) is not None:
        raise NotProvenOurs(f"{device}: nothing proves that it is ours: its limit stays")
    root = throttle.hierarchy().root
    if not folder.is_relative_to(root) or folder.resolve() != folder:
        raise NotProvenOurs(f"{folder} is no cgroup below {root}: its limits stay")


IO_LIMIT = Kind(Stage.MOUNT, prove, undo, ends_with_boot=True)
