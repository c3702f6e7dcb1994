"""The backend `devices`: a directory on each of several devices, worked in side by side.

Its factor `ssds_per_hba` says how many of them take part.  Rank i of a run works on device i
modulo their number, so that each device has as many processes of its own.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from fsmatrix.backends import cache as page_cache
from fsmatrix.backends.access import Access, PathsAccess, expect
from fsmatrix.backends.contract import (
    NO_LEVEL,
    Availability,
    Backend,
    CacheMethod,
    Evidence,
    Foreseen,
    ProvisionContext,
    RunPlace,
    Settled,
    Space,
    choose_hosts,
)
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.journal import DATA, Journal, make_tree, release_tree
from fsmatrix.backends.local import images, provenance
from fsmatrix.backends.local.devices import emulated
from fsmatrix.backends.local.devices.emulated import Adapter, DevicesOptions, attempt
from fsmatrix.backends.local.directory import Directory, DirectoryOptions, space_of
from fsmatrix.backends.local.provenance import local_deployment
from fsmatrix.backends.system import devices
from fsmatrix.backends.system.files import expand
from fsmatrix.backends.system.mounts import mount_of
from fsmatrix.backends.system.trusted import shared_refusal
from fsmatrix.backends.system.workfolder import remove_tree
from fsmatrix.results.evidence.stored import (
    Json,
    JsonObject,
    Level,
    Scalar,
    positive,
    text,
    texts,
)
from fsmatrix.results.evidence.target import NONE, Deployment, EmulatedDevices

# Directories that the user names, each on a device of its own: ours are made in them.


def refusal(options: DevicesOptions) -> str:
    """Why they cannot be used (empty: they can): one that is not there, two on one device."""
    on: dict[int, str] = {}
    for path in options.paths:
        if reason := _each(options, path).refusal():
            return reason
        device = expand(path).stat().st_dev
        if device in on:
            return (
                f"{on[device]} and {path} are on the same file system ({mount_of(path).point}): "
                "each must be on its own device; is one of them not mounted?"
            )
        on[device] = path
    return ""


def _each(options: DevicesOptions, path: str) -> Directory:
    return Directory(DirectoryOptions(path=path, expect_fs=options.expect_fs))


def make(options: DevicesOptions, numbers: Sequence[int], context: ProvisionContext) -> JsonObject:
    """A tree of ours in each of these; details of an access."""
    trees: list[str] = []
    details: JsonObject = {"tag": context.tag, "host": socket.gethostname(), "trees": trees}
    try:
        for number in numbers:
            place = expand(options.paths[number]).resolve()
            trees.append(str(make_tree(place, context.tag, context.journal)))
    except BaseException:
        release(details, context.journal)
        raise
    return details


def device_paths(details: JsonObject) -> tuple[str, ...]:
    """Where runs work."""
    return tuple(str(Path(folder) / DATA) for folder in texts(details, "trees"))


def release(details: JsonObject, journal: Journal) -> None:
    """Remove every tree that is there; BackendError that names those that are not."""
    attempt(
        partial(release_tree, Path(folder), text(details, "tag"), journal)
        for folder in texts(details, "trees")
    )


def look(details: JsonObject) -> None:
    """BackendError unless this kernel sees the very trees that the conductor made."""
    for trouble in troubles(details):
        if trouble:
            raise BackendError(trouble)


def troubles(details: JsonObject) -> list[str]:
    """For each tree why it cannot be worked in (empty: it can)."""
    return [_trouble(Path(folder), details) for folder in texts(details, "trees")]


def _trouble(folder: Path, details: JsonObject) -> str:
    if tree.read_marker(folder) != details["tag"]:
        return (
            f"{folder}, made on host {details['host']}, is not seen on {socket.gethostname()}: is "
            "its device still mounted?"
        )
    if reason := shared_refusal(folder):
        return f"{reason} (on {socket.gethostname()})"
    mount = mount_of(folder)
    return f"{mount.point} has become read-only" if mount.read_only else ""


def space(options: DevicesOptions) -> Space:
    """Of all of them, each as full as the fullest."""
    return together({path: space_of(path) for path in options.paths})


def together(spaces: Mapping[str, Space]) -> Space:
    """Of devices that take the same each; by path."""
    sizes, inodes = [own.bytes for own in spaces.values()], [own.inodes for own in spaces.values()]
    size_of = {path: own.bytes for path, own in spaces.items() if own.bytes is not None}
    fullest = min(size_of, key=size_of.__getitem__, default="")
    source = f"{len(spaces)} times {spaces[fullest].source} of {fullest}" if fullest else "unknown"
    return Space(_times(sizes), _times(inodes), source)


def _times(values: Sequence[int | None]) -> int | None:
    counted = [value for value in values if value is not None]
    return min(counted) * len(values) if counted else None


FACTOR = "ssds_per_hba"


class Devices(Backend):
    """Directories of the user's, or emulated devices; see the module."""

    name = "devices"
    Options = DevicesOptions
    access_type = PathsAccess
    network = False

    @property
    def _chosen(self) -> DevicesOptions:
        return cast(DevicesOptions, self.options)

    # -- conductor ---------------------------------------------------------------------
    @classmethod
    def check(cls) -> Availability:
        """Always usable; paths and rights are looked at by `refusal`."""
        return Availability(True, f"kernel {os.uname().release}")

    def refusal(self) -> str:
        """A directory that cannot be used, two on one device, or nothing to emulate them by."""
        if self._chosen.emulated:
            return emulated.refusal(self._chosen.emulated)
        return refusal(self._chosen)

    def foreseen(self, level: Level = NO_LEVEL) -> Foreseen:
        """A root on each device that takes part; the directories, or the image of emulated ones."""
        chosen = self._chosen
        played = chosen.emulated
        return replace(
            super().foreseen(level),
            level_factors=frozenset({FACTOR}),
            realised={FACTOR: "emulated"} if played else {},
            places=tuple(chosen.paths),
            state_bytes=played.count * played.size if played else 0,
            state_direct=played is not None,
            root_count=positive(level.get(FACTOR)) or chosen.count,
        )

    def level_refusal(self, level: Level, bed: Mapping[str, Scalar] | None = None) -> str:
        """More devices than there are."""
        del bed
        if positive(level.get(FACTOR, 1)) is None:
            return f"{FACTOR}: {level[FACTOR]!r} is no number of devices"
        if (number := self.foreseen(level).root_count) > self._chosen.count:
            return f"{FACTOR}: {number} devices are asked for, and there are {self._chosen.count}"
        return ""

    def commands(self, level: Level, block_seed: str) -> list[str]:
        """Of emulated devices: their image and its parts."""
        chosen = self._chosen.emulated
        return emulated.commands(chosen, self._numbers(level, block_seed)) if chosen else []

    def _numbers(self, level: Level, block_seed: str) -> list[int]:
        width = len(str(self._chosen.count))
        names = [f"{number:0{width}}" for number in range(self._chosen.count)]
        return [
            int(name) for name in choose_hosts(names, self.foreseen(level).root_count, block_seed)
        ]

    def provision(self, level: Level, context: ProvisionContext) -> PathsAccess:
        """Draw the devices of the level, and make a place on each."""
        if reason := self.level_refusal(level) or self.refusal():
            raise BackendError(reason)
        numbers = self._numbers(level, context.block_seed)
        if self._chosen.emulated:
            details: JsonObject = emulated.make(self._chosen.emulated, numbers, context)
            paths = tuple(part.path for part in Adapter.of(details).parts)
        else:
            details = make(self._chosen, numbers, context)
            paths = device_paths(details)
        return PathsAccess(self.name, context.target, {**details, "numbers": numbers}, paths)

    def release(self, access: Access, context: ProvisionContext) -> None:
        """Unmount and detach emulated devices, or remove our directories."""
        if "emulated" in access.details:
            emulated.release(Adapter.of(access.details), context.journal)
        else:
            release(access.details, context.journal)

    def finish(self, context: ProvisionContext) -> None:
        """Remove the image."""
        images.remove_own(context)

    def describe(self, access: Access) -> dict[str, Json]:
        """Facts of the first file system, sums over all, and each device with its limits."""
        paths = _paths(access)
        each = [provenance.filesystem(path) for path in paths]
        together = replace(
            each[0],
            capacity=_sum(own.capacity for own in each),
            free=_sum(own.free for own in each),
            inodes=_sum(own.inodes for own in each),
            inodes_free=_sum(own.inodes_free for own in each),
            devices=tuple(device for own in each for device in own.devices),
        )
        facts: dict[str, Json] = together.document() | {
            "mount_points": [own.mount_point for own in each],
            "device_numbers": access.details["numbers"],
            "managed": "emulated" in access.details,
        }
        if "emulated" in access.details:
            adapter = Adapter.of(access.details)
            facts["emulated"] = EmulatedDevices(
                adapter_limits=adapter.adapter_limits, device_limits=adapter.device_limits
            ).document()
        return facts

    def deployment(self, described: JsonObject) -> Deployment:
        """On devices of this machine, with nothing between them."""
        own = Deployment(redundancy=NONE, failure_domain=NONE)
        attached = "devices" in described  # before: the level alone
        return own.completed(local_deployment(described if attached else {}))

    def space(self, access: Access | None = None) -> Space:
        """So often the fullest device as there are devices: each takes the same."""
        if access is not None:
            return together({path: provenance.space(path) for path in _paths(access)})
        if self._chosen.emulated:
            every = self._chosen.count * emulated.usable_bytes(self._chosen.emulated)
            return Space(every, None, "estimate from the image")
        return space(self._chosen)

    # -- node leaders --------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Mount and throttle emulated devices; look whether directories are the conductor's."""
        if "emulated" in access.details:
            emulated.mount(Adapter.of(access.details), access.target, journal)
        else:
            look(access.details)

    @classmethod
    def unmount(cls, access: Access, journal: Journal) -> None:
        """Lift the limits of emulated devices and unmount them."""
        if "emulated" in access.details:
            emulated.unmount(Adapter.of(access.details), journal)

    @classmethod
    def run_place(cls, access: Access, name: str) -> RunPlace:
        """One root on each device."""
        return RunPlace(tuple(str(Path(path) / name) for path in _paths(access)))

    @classmethod
    def make_run(cls, access: Access, name: str, programs: bool = False) -> None:
        """On each device; BackendError that names those that have gone."""
        del programs
        cls._refuse_trouble(access)
        for root in cls.run_place(access, name).roots:
            Path(root).mkdir(exist_ok=True)

    @classmethod
    def remove_run(cls, access: Access, name: str) -> None:
        """On each device that is there; BackendError that names those that have gone."""
        for path, trouble in zip(_paths(access), _troubles(access), strict=True):
            if not trouble:
                remove_tree(Path(path) / name)
        cls._refuse_trouble(access)

    @staticmethod
    def _refuse_trouble(access: Access) -> None:
        if trouble := [text for text in _troubles(access) if text]:
            raise BackendError("; ".join(trouble))

    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Each file on the device that has it; BackendError for one that none has."""
        evidence: list[Evidence] = []
        left = set(files)
        for path in _paths(access):
            here = [name for name in files if os.path.lexists(Path(path) / name)]
            left -= set(here)
            if here:
                evidence.append(page_cache.bring(Path(path), here, state, method))
        if left:
            raise BackendError(f"cache: {sorted(left)[0]} is not on any of the devices")
        return _together(evidence)

    @classmethod
    def counters(cls, access: Access) -> dict[str, float]:
        """Of all devices together, and the bytes of each by its number in the target."""
        paths, counters = _paths(access), dict[str, float]()
        numbers = [devices.devices_below(path) for path in paths]
        counters |= provenance.device_counters({n for several in numbers for n in several})
        own_numbers = cast(Sequence[int], access.details["numbers"])
        for number, below in zip(own_numbers, numbers, strict=True):
            if (stat := devices.total(below)) is not None:
                counters[f"device_{number}_read_bytes"] = stat.read_bytes
                counters[f"device_{number}_written_bytes"] = stat.written_bytes
        if "emulated" in access.details:
            adapter = devices.number_of(Adapter.of(access.details).device)
            own = provenance.device_counters([adapter])
            counters |= {name: own[name] for name in own if name.startswith("backing_")}
        return counters

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Write back all, and wait until every one is quiet."""
        began = time.monotonic()
        settled = Settled(True, 0.0)
        for path in _paths(access):
            left = max(0.0, timeout - (time.monotonic() - began))
            settled = provenance.settle(path, left)
            if not settled.reached:
                break
        return replace(settled, seconds=time.monotonic() - began)

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """Devices that have gone or become read-only."""
        return [text for text in _troubles(access) if text]


def _paths(access: Access) -> tuple[str, ...]:
    return expect(access, PathsAccess).paths


def _troubles(access: Access) -> list[str]:
    """For each device why it cannot be worked on (empty: it can)."""
    if "emulated" in access.details:
        return [emulated.trouble(part) for part in Adapter.of(access.details).parts]
    return troubles(access.details)


def _sum(values: Iterable[int | None]) -> int | None:
    """None where one is not known."""
    known = list(values)
    return sum(v for v in known if v is not None) if None not in known else None


def _together(evidence: Sequence[Evidence]) -> Evidence:
    """The state that all reached, and sums of what was counted."""
    states = {own.state for own in evidence}
    facts: dict[str, Json] = {}
    for own in evidence:
        for name, value in own.facts.items():
            before = facts.get(name)
            if bool not in (type(before), type(value)) and isinstance(value, int | float):
                value = before + value if isinstance(before, int | float) else value
            facts[name] = value
    state = states.pop() if len(states) == 1 else "unknown"
    return Evidence(state, evidence[0].method, facts)
