"""Targets on a test bed: a real Ceph of this machine, brought up anew for each attachment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fsmatrix.backends.base import Backend, ProvisionContext
from fsmatrix.backends.ceph.levels.redundancy import parse_redundancy
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.pace import Pace
from fsmatrix.backends.testbed.ceph import CephTestbed, down, missing, up
from fsmatrix.backends.testbed.drives import limits_of
from fsmatrix.backends.testbed.options import CephTestbedOptions, parse_rate
from fsmatrix.results.process import Process

FOLDER = "bed"  # and whose it is (`folder`), in a target's state directory
_OWNER = re.compile(r"(?P<boot>[0-9a-f-]{36})-(?P<pid>\d+)-(?P<start>\d+)", re.ASCII)
# cluster factor -> option of the bed that makes its levels
FACTORS: Mapping[str, str] = {"storage_nodes": "nodes", "interface": "interface"}
PLAYED = (*FACTORS, "network")  # emulated, unless it is "none"
UP_SECONDS, OSD_SECONDS = 7.0, 1.0  # to bring a bed up and take it down, and for each OSD
UNKNOWN = "testbed"  # stands for what only a bed that is up can tell
# options of a backend on a cluster that is the suite's own, unless the user says otherwise
OWN_CLUSTER: Mapping[str, Any] = {"drop_server_caches": True}


@dataclass(frozen=True)
class PlannedTestbed:
    """What is needed to put a target on a bed."""

    options: CephTestbedOptions
    backend: type[Backend]
    given: Mapping[str, Any]  # options of the target

    def at(self, level: Mapping[str, Any]) -> CephTestbedOptions:
        """The bed at a level of the cluster factors; BackendError if there is none such."""
        named = {FACTORS[name]: value for name, value in level.items()}
        if isinstance(named.get("interface"), str):
            named["interface"] = named["interface"].lower()
        try:
            chosen = CephTestbedOptions.model_validate({**self.options.model_dump(), **named})
        except ValueError as error:
            raise BackendError(f"no test bed has {dict(level)}: {error}") from error
        if reason := chosen.refusal():
            raise BackendError(reason)
        return chosen

    def attributes(self, level: Mapping[str, Any]) -> dict[str, Any]:
        """Coordinates that the bed's options tell, at a level of the cluster factors.

        BackendError if there is no such bed.
        """
        bed = self.at(level)
        drives = bed.interface != "none"
        return {
            "storage_nodes": bed.nodes,
            "interface": bed.interface,
            "osds_per_node": bed.per_node,
            **({"drive_scale": bed.scale} if drives else {}),
            "network": bed.network,
            "redundancy": bed.redundancy,
            "failure_domain": bed.failure_domain,
        }

    def realised(self, level: Mapping[str, Any]) -> dict[str, str]:
        """Which of the attributes are emulated.  BackendError as `attributes`."""
        attributes = self.attributes(level)
        return {name: "emulated" for name in PLAYED if attributes[name] != "none"}

    def pace(self, level: Mapping[str, Any], pace: Pace) -> Pace:
        """A backend's pace on the bed at a level: it is brought up for each attachment, and its
        drives and its network may be slowed down.  BackendError as `attributes`.
        """
        bed = self.at(level)
        rates = [pace.bandwidth]
        if bed.interface != "none":
            drive = limits_of(bed)
            rates.append(min(drive.read_bytes, drive.write_bytes) * bed.osds)
        if bits := parse_rate(bed.network):
            rates.append(bits / 8 * bed.nodes)
        redundancy = parse_redundancy(bed.redundancy)
        written = redundancy.size / (redundancy.k or 1)  # bytes on OSDs for each of a client's
        attach = pace.attach + UP_SECONDS + bed.osds * OSD_SECONDS
        return replace(pace, attach=attach, bandwidth=min(rates) / written)

    def up(self, level: Mapping[str, Any], context: ProvisionContext) -> Backend:
        """Bring the bed up; the backend that works on it.  BackendError if it does not come."""
        bed = up(self.at(level), folder(context))
        options = {**assumed(self.backend), **self.given, **backend_options(self, bed)}
        return self.backend(self.backend.Options.model_validate(options))

    def down(self, context: ProvisionContext) -> None:
        """Take it down; harmless if it is not up."""
        down(folder(context))


def backend_options(plan: PlannedTestbed, bed: CephTestbed) -> dict[str, Any]:
    """Options of the backend that the bed knows."""
    return {
        option: bed.pools[what.removeprefix("pools.")]
        if what.startswith("pools.")
        else getattr(bed, what)
        for option, what in plan.backend.testbed_options.items()
    }


def assumed(backend: type[Backend]) -> dict[str, Any]:
    """Defaults of a backend's options that differ on a bed."""
    fields = backend.Options.model_fields
    return {name: value for name, value in OWN_CLUSTER.items() if name in fields}


def placeholders(backend: type[Backend]) -> dict[str, str]:
    """For planning, where no bed is up yet."""
    return {name: f"/{UNKNOWN}" if name == "conf" else UNKNOWN for name in backend.testbed_options}


def refusal() -> str:
    """Why no bed can be brought up on this machine (empty: it can)."""
    return missing()


def folder(context: ProvisionContext) -> Path:
    """Where this conductor's bed of a target is: called by host, boot, pid and start."""
    own = Process.of(os.getpid())
    assert own is not None
    owner = f"{own.boot_id}-{own.pid}-{own.start}"
    return context.state / f"{FOLDER}-{os.uname().nodename}-{owner}"


def down_all(state: Path) -> Iterator[str]:
    """Take down the beds that dead conductors left here; a sentence for each thing ended."""
    begin = f"{FOLDER}-{os.uname().nodename}-"
    for place in sorted(state.glob(f"*/{begin}*")):
        owner = _OWNER.fullmatch(place.name.removeprefix(begin))
        if owner is None:
            continue
        conductor = Process(int(owner["pid"]), int(owner["start"]), owner["boot"])
        if not conductor.runs:
            yield from down(place)
