"""A target of a campaign with its backend, its options and its test bed: what they tell of it."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsmatrix.backends.contract import (
    NO_LEVEL,
    Backend,
    BackendOptions,
    Foreseen,
    ProvisionContext,
    Space,
    SpeedEstimate,
)
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system.files import expand
from fsmatrix.backends.system.mounts import mount_of
from fsmatrix.backends.testbed.bed import LEFT, TESTBEDS, StorageOptions, StorageTestbed
from fsmatrix.results.evidence.stored import JsonObject, Level, LevelValue, Scalar
from fsmatrix.results.evidence.target import MEMORY_TYPES
from fsmatrix.results.process import Process
from fsmatrix.results.registry import BrokenEntry
from fsmatrix.suite.campaign.campaign import Target

# Targets on a test bed: a real system of this machine, brought up anew for each attachment.


FOLDER = "bed"  # and whose it is (`folder`), in a target's state directory
_OWNER = re.compile(r"(?P<boot>[0-9a-f-]{36})-(?P<pid>\d+)-(?P<start>\d+)", re.ASCII)
UNKNOWN = "testbed"  # stands for what only a bed that is up can tell
# options of a backend on a cluster that is the suite's own, unless the user says otherwise
OWN_CLUSTER: Mapping[str, bool] = {"drop_server_caches": True}


@dataclass(frozen=True)
class PlannedTestbed:
    """What is needed to put a target on a bed."""

    options: StorageOptions
    backend: type[Backend]
    given: JsonObject  # options of the target
    # variables of this process that the bed which is up changed, as they were
    _before: dict[str, str | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def system(self) -> type[StorageTestbed[Any]]:
        """What is brought up."""
        return TESTBEDS.load(self.backend.testbed)

    def at(self, level: Level) -> StorageOptions:
        """The bed at a level of the cluster factors; BackendError if there is none such."""
        named = {
            option: value.lower() if isinstance(value := level[factor], str) else value
            for factor, option in self.system.factors.items()
            if factor in level
        }
        try:
            chosen = type(self.options).model_validate({**self.options.model_dump(), **named})
        except ValueError as error:
            raise BackendError(f"no test bed has {dict(level)}: {error}") from error
        if reason := chosen.refusal():
            raise BackendError(reason)
        return chosen

    def rest(self, level: Level) -> dict[str, LevelValue]:
        """What the backend makes of a level when the bed is up."""
        return {name: level[name] for name in level.keys() - self.system.factors.keys()}

    def attributes(self, level: Level) -> dict[str, Scalar]:
        """Coordinates that the bed's options tell, at a level of the cluster factors.

        BackendError if there is no such bed.
        """
        return self.system.attributes(self.at(level))

    def realised(self, level: Level) -> dict[str, str]:
        """Which of the attributes are emulated.  BackendError as `attributes`."""
        attributes = self.attributes(level)
        played = (*self.system.factors, "network")
        return {name: "emulated" for name in played if attributes[name] != "none"}

    def pace(self, level: Level, pace: SpeedEstimate) -> SpeedEstimate:
        """What planning guesses at a level of the cluster factors.

        BackendError as `attributes`.
        """
        return self.system.pace(self.at(level), pace)

    def device_limit(self, level: Level) -> tuple[float, str]:
        """Bytes/s that its drives cannot exceed, and what says so; 0: no limit.

        BackendError as `attributes`.
        """
        return self.system.device_limit(self.at(level))

    def up(self, level: Level, context: ProvisionContext) -> tuple[Backend, StorageTestbed[Any]]:
        """Bring the bed up; the backend that works on it, and it.  BackendError if it does not
        come.

        What clients need in their environment is there until `down`: all of them descend from
        this process.
        """
        bed = self.system.up(self.at(level), folder(context))
        for name, value in bed.environment().items():
            self._before[name] = os.environ.get(name)
            os.environ[name] = value
        options = {**assumed(self.backend), **self.given, **backend_options(self, bed)}
        return self.backend(self.backend.Options.model_validate(options)), bed

    def down(self, context: ProvisionContext) -> None:
        """Take it down; harmless if it is not up."""
        for name, value in self._before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        self._before.clear()
        self.system.down(folder(context))


def backend_options(plan: PlannedTestbed, bed: StorageTestbed[Any]) -> dict[str, str]:
    """Options of the backend that the bed knows."""
    return {option: bed.offer(what) for option, what in plan.backend.testbed_options.items()}


def assumed(backend: type[Backend]) -> dict[str, bool]:
    """Defaults of a backend's options that differ on a bed."""
    fields = backend.Options.model_fields
    return {name: value for name, value in OWN_CLUSTER.items() if name in fields}


def placeholders(backend: type[Backend]) -> dict[str, str]:
    """For planning, where no bed is up yet."""
    paths = TESTBEDS.load(backend.testbed).paths if backend.testbed else frozenset()
    asked = backend.testbed_options.items()
    return {option: f"/{UNKNOWN}" if what in paths else UNKNOWN for option, what in asked}


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
            for name in TESTBEDS.names():
                try:
                    yield from TESTBEDS.load(name).down(place)
                except BrokenEntry as error:
                    yield f"{LEFT}{place}, if it is of that system: {error}"


@dataclass(frozen=True)
class TargetMember:
    """A target, its backend's class and the checked options."""

    name: str
    target: Target
    backend: type[Backend]
    options: BackendOptions
    testbed: PlannedTestbed | None = None

    def foreseen(self, level: Level = NO_LEVEL) -> Foreseen:
        """What its backend tells of a level before anything is asked or made."""
        return self.backend(self.options).foreseen(level)

    @property
    def level_factors(self) -> frozenset[str]:
        """Cluster factors that it can realise."""
        return self.foreseen().level_factors | (
            self.testbed.system.factors.keys() if self.testbed else frozenset()
        )

    def cluster_facts(self, level: Level) -> dict[str, Scalar]:
        """Coordinates of the cluster that the backend's options and the bed tell.

        BackendError if no bed can be at that level.
        """
        own = dict(self.foreseen(level).attributes)
        return own | (self.testbed.attributes(level) if self.testbed else {})

    def attributes(self, level: Level) -> dict[str, Scalar]:
        """Coordinates of the cluster: what was declared, and `cluster_facts`.

        BackendError as there.
        """
        return {**self.target.attributes, **self.cluster_facts(level)}

    def realised(self, level: Level) -> dict[str, str]:
        """Coordinate -> hardware or emulated, as declared, or as the bed or the backend makes it.

        BackendError as `cluster_facts`.
        """
        declared = self.testbed.realised(level) if self.testbed else self.foreseen(level).realised
        return {**self.target.realised, **declared}

    @property
    def reference(self) -> bool:
        """Shown for orientation only: declared so, or a reference by nature (memory)."""
        return self.target.reference or self.backend.reference

    def refusal(self) -> str:
        """Why it cannot be had on this machine, now, with these rights (empty: it can).

        In the words of `fsmatrix check`, with the cure.
        """
        if self.testbed is None:
            backend = self.backend(self.options)
            return backend.unusable() or self._no_storage()
        return self.testbed.system.missing() or self.backend.check().uninstalled

    def pace(self, level: Level) -> SpeedEstimate:
        """What planning guesses of its speed at a level of the cluster factors."""
        pace = self.backend.pace
        if self.testbed is None:
            return pace
        with suppress(BackendError):  # no such bed: the matrix says so
            return self.testbed.pace(level, pace)
        return pace

    def _no_storage(self) -> str:
        """Of storage that is none every run is invalid: the audit `memory-reference`."""
        if self.reference or not (fstype := _in_memory(self.foreseen().places)):
            return ""
        return (
            f"its files would lie in memory ({fstype}), so that no run is valid "
            "(memory-reference): say reference: true, or choose a place on storage"
        )

    def cluster_fact_names(self, factors: Mapping[str, Sequence[LevelValue]]) -> set[str]:
        """Coordinates of the cluster that bed or backend tell at any level."""
        names: set[str] = set()
        for level in levels_of(self, factors):
            with suppress(BackendError):  # no such bed: the matrix says so
                names |= self.cluster_facts(level).keys()
        return names

    def room(self) -> Space:
        """What may be written on it; of a bed that is not up nothing can be asked."""
        if self.testbed is not None:
            return Space(None, None, "unknown")
        return self.backend(self.options).space()

    def level_refusal(self, level: Level) -> str:
        """Why a level cannot be made (empty: it can)."""
        backend = self.backend(self.options)
        if self.testbed is None:
            return backend.level_refusal(level)
        try:
            return backend.level_refusal(self.testbed.rest(level), self.testbed.attributes(level))
        except BackendError as error:
            return str(error)

    def required_consent(self) -> str:
        """What the user must still agree to before it is used (empty: nothing)."""
        return "" if self.testbed else self.backend(self.options).required_consent()


def _in_memory(places: Iterable[str]) -> str:
    """Type of the file system of the first directory that lies in memory (empty: none does)."""
    for place in map(expand, places):
        if place.is_dir() and (fstype := mount_of(place).fstype) in MEMORY_TYPES:
            return fstype
    return ""


def levels_of(
    member: TargetMember, factors: Mapping[str, Sequence[LevelValue]]
) -> Iterator[dict[str, LevelValue]]:
    """Combinations of the cluster factors' levels that this target gets."""
    axes = {name: factors[name] for name in sorted(member.level_factors & factors.keys())}
    for picks in itertools.product(*axes.values()):
        yield dict(zip(axes, picks, strict=True))
