"""The matrix workload x target: what can be run, and in words why something cannot."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fsmatrix.backends.access import DeviceAccess
from fsmatrix.backends.player import lanes, player
from fsmatrix.backends.player.ops import OR_POSIX, Driver, driver_of
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.results.record import canonical_json
from fsmatrix.suite.campaign.settings import Settings
from fsmatrix.suite.campaign.yamlio import KeyPath, Problem
from fsmatrix.suite.cases.cases import Planned
from fsmatrix.suite.cases.resolve import Engines, EntryMember, Members, TargetMember
from fsmatrix.suite.engines.engine import EngineError
from fsmatrix.suite.registry import Registries
from fsmatrix.suite.workloads.workload import Footprint

# type of access -> (what a workload speaks, what a target gives, the way out)
WORDS: Mapping[str, tuple[str, str, str]] = {
    "path": ("paths", "a path", "use a target that gives what it speaks"),
    "paths": ("several devices", "several devices", "use a target with one file system"),
    "dfs": ("DFS containers", "a DFS container", "use its DFUSE mount"),
    "daos": ("DAOS containers", "DAOS containers without files", "use daos-dfs or daos-dfuse"),
    "rados": ("RADOS pools", "a RADOS pool", "use a CephFS mount of the same cluster"),
    "cephfs": ("libcephfs roots", "a libcephfs root", "use the cephfs-kernel or cephfs-fuse mount"),
    "device": ("block devices", "a block device", "use a file system on it"),
}


@dataclass(frozen=True)
class Cell:
    """One workload entry on one target."""

    entry: str
    workload: str
    target: str
    cases: int
    impossible: int
    reasons: tuple[str, ...]  # why the impossible ones are
    notes: tuple[str, ...]  # what is to be known about the possible ones

    @property
    def ok(self) -> bool:
        """Whether every case can be run."""
        return not self.impossible

    def to_json(self) -> JsonObject:
        """The same as plain data for JSON."""
        return {**vars(self), "reasons": list(self.reasons), "notes": list(self.notes)}


@dataclass(frozen=True)
class Matrix:
    """All cells, the cases that can be run, and those that cannot with the reason."""

    cells: tuple[Cell, ...]
    possible: tuple[Planned, ...]
    impossible: tuple[tuple[Planned, str], ...]
    not_had: frozenset[str] = frozenset()  # reasons that are of a target, whatever is done on it

    def problems(self, settings: Settings) -> Iterator[Problem]:
        """Impossible cells as problems of their workload entries, or of their target alone."""
        left: dict[tuple[KeyPath, str], list[Cell]] = {}
        for cell in self.cells:
            for reason in cell.reasons:
                place = _place(settings, cell.entry, reason)
                if reason in self.not_had:
                    place, reason = ("targets", cell.target), reason.partition(": ")[2]
                left.setdefault((place, reason), []).append(cell)
        for (place, reason), cells in left.items():
            extent = f"{sum(c.impossible for c in cells)} of {sum(c.cases for c in cells)} cases"
            message = f"{reason} ('impossible: skip' would leave out {extent})"
            yield settings.tree.problem(place, message)


class Judge:
    """Says of a case why it cannot be run."""

    def __init__(
        self,
        settings: Settings,
        members: Members,
        registries: Registries,
        here: bool,
        refusals: Mapping[str, str],
    ) -> None:
        self.settings = settings
        self.registries = registries
        self.targets = {target.name: target for target in members.targets}
        self.entries = {entry.name: entry for entry in members.entries}
        self.engines = Engines(settings.campaign.engines, registries.engines) if here else None
        self.blocks: dict[str, int] = {}  # bytes, by target
        self.levels: dict[tuple[str, str], str] = {}
        self.forbidden: dict[tuple[str, int], str] = {}
        self.refusals = refusals
        self.not_had: set[str] = set()  # as of Matrix

    def reasons(self, planned: Planned, footprint: Footprint) -> Iterator[str]:
        """All reasons; none if the case can be run."""
        target, entry = self.targets[planned.case.target], self.entries[planned.entry]
        if reason := self.refusals.get(target.name):
            yield self._without(target, reason)
        yield from self._level(planned, target)
        yield from _access(entry, target)
        yield from _states(planned, target)
        if entry.engine == "player":
            yield from _driver(entry, target, footprint, self.registries.drivers)
            yield from self._player(planned, target, footprint)
            yield from _refused(planned, target, entry.engine)
        yield from self._engine(planned, entry, target)
        yield from self._launcher(planned)
        if planned.work is not None:
            refusal = planned.work.refusal(planned.case)
            if refusal:
                yield refusal

    def _level(self, planned: Planned, target: TargetMember) -> Iterator[str]:
        """A level that cannot be made; what is true of a level is asked once."""
        if target.testbed is None and self.engines is None:
            return  # to be asked where it will run
        key = (target.name, canonical_json(planned.case.level))
        if key not in self.levels:
            self.levels[key] = target.level_refusal(planned.case.level)
        if reason := self.levels[key]:
            yield self._without(target, reason)
            return
        places = target.foreseen(planned.case.level).root_count
        if (processes := planned.case.geometry.processes) % places:
            yield (
                f"target {target.name}: {places} devices cannot have the same number of "
                f"{processes} processes each: exclude it, or take a multiple"
            )

    def _without(self, target: TargetMember, reason: str) -> str:
        """That a target cannot be had."""
        text = f"target {target.name}: {reason}"
        self.not_had.add(text)
        return text

    def _player(self, planned: Planned, target: TargetMember, needs: Footprint) -> Iterator[str]:
        """A driver that only the C player has, where it is not built, or that is forbidden here."""
        driver = self.registries.drivers.get(driver_of(needs.io, target.backend.driver))
        if needs.io != "auto" and target.foreseen(planned.case.level).programs_speak:
            yield (
                f"io: {needs.io} goes by the kernel, not by the library that target {target.name} "
                "puts before it: use io: auto there"
            )
            return
        if self.engines is None or driver is None or not driver.native or needs.io == OR_POSIX:
            return
        if player.engine_name() != lanes.ENGINE_C:
            yield (
                f"target {target.name}: driver {driver.name} needs the C player, and only the "
                "Python one is here: install a C compiler and install fsmatrix again"
            )
        elif needs.io != "auto" and (reason := self._forbidden(driver.name, needs.depth)):
            yield f"io: {reason}; io: {OR_POSIX} would do without it"

    def _forbidden(self, driver: str, depth: int) -> str:
        """Why this machine has no such driver (empty: it has); asked once."""
        if (driver, depth) not in self.forbidden:
            self.forbidden[driver, depth] = player.driver_refusal(driver, depth)
        return self.forbidden[driver, depth]

    def _engine(self, planned: Planned, entry: EntryMember, target: TargetMember) -> Iterator[str]:
        if planned.work is None:
            return
        access = target.backend.access_type.type
        speaks = access in entry.workload.accesses
        refused = [*_refused(planned, target, entry.engine)] if entry.engine != "player" else []
        yield from refused
        if speaks and (reason := planned.work.misfit(planned.case, access)):
            yield reason
            return
        if self.engines is None:
            return
        yield from self._blocks(planned, target)
        try:
            engine = self.engines.get(entry.engine)
        except EngineError as error:
            yield f"engine {entry.engine}: {error}"
            return
        if speaks and (reason := planned.work.unsupported(planned.case, access, engine)):
            yield reason
        if engine.path and not refused:
            yield from _refused(planned, target, entry.engine, engine.path)

    def _blocks(self, planned: Planned, target: TargetMember) -> Iterator[str]:
        """Sizes that are no multiples of a bare device's block, which is asked for once."""
        if not issubclass(target.backend.access_type, DeviceAccess):
            return
        if target.name not in self.blocks:
            self.blocks[target.name] = target.room().block
        block = self.blocks[target.name]
        for name, size in planned.work.sizes(planned.case).items() if planned.work else ():
            if size % block:
                yield (
                    f"target {target.name}: its device works in blocks of {block} bytes: {name} "
                    f"is {size}, and must be a multiple"
                )

    def _launcher(self, planned: Planned) -> Iterator[str]:
        launcher, geometry = self.settings.campaign.launcher, planned.case.geometry
        if launcher.name != "auto":
            launcher_class = self.registries.launchers.load(launcher.name)
            if not getattr(launcher_class, "needs_mpi", True) and geometry.processes > 1:
                yield f"launcher {launcher.name} starts one process, not {geometry.processes}"
        nodes = launcher.emulated_nodes or len(launcher.hosts)
        if nodes and geometry.nodes > nodes:
            key = "emulated_nodes" if launcher.emulated_nodes else "hosts"
            yield f"{geometry.nodes} client nodes are needed; launcher.{key} gives {nodes}"


def matrix(
    settings: Settings,
    members: Members,
    cases: Iterable[Planned],
    registries: Registries,
    here: bool = True,
    refusals: Mapping[str, str] = MappingProxyType({}),
) -> Matrix:
    """Judge every case.

    `here`: also ask backends and engines about this machine.  `refusals`: target -> why this
    machine cannot have it.
    """
    judge = Judge(settings, members, registries, here, refusals)
    judged = [(planned, list(judge.reasons(planned, footprint(planned)))) for planned in cases]
    pairs: dict[tuple[str, str], list[list[str]]] = {}
    for planned, reasons in judged:
        pairs.setdefault((planned.entry, planned.case.target), []).append(reasons)
    return Matrix(
        tuple(
            _cell(judge.entries[entry], judge.targets[target], its_cases)
            for (entry, target), its_cases in pairs.items()
        ),
        tuple(planned for planned, reasons in judged if not reasons),
        tuple((planned, "; ".join(reasons)) for planned, reasons in judged if reasons),
        frozenset(judge.not_had),
    )


def _cell(entry: EntryMember, target: TargetMember, cases: Sequence[Sequence[str]]) -> Cell:
    """One cell; `cases`: of each why it cannot be run (empty: it can)."""
    impossible = [reasons for reasons in cases if reasons]
    return Cell(
        entry.name,
        entry.entry.workload,
        target.name,
        len(cases),
        len(impossible),
        reasons=tuple(dict.fromkeys(itertools.chain(*impossible))),
        notes=tuple(_notes(target)) if len(impossible) < len(cases) else (),
    )


def _place(settings: Settings, entry: str, reason: str) -> KeyPath:
    """Where the option stands that a reason begins with ("nrfiles: ..."), or else the entry."""
    begin = re.match(r"(\w+):", reason)
    name = begin[1] if begin else ""
    for path in (("workloads", entry, "options", name), ("factors", name)):
        if name and settings.tree.has(path):
            return path
    return ("workloads", entry)


def footprint(planned: Planned) -> Footprint:
    """What one run of a case needs."""
    if planned.work is None:
        return Footprint(0, 0, 0)
    return planned.work.footprint(planned.case)


def _access(entry: EntryMember, target: TargetMember) -> Iterator[str]:
    given = target.backend.access_type.type
    if given in entry.workload.accesses:
        return
    spoken = " and ".join(WORDS.get(name, (name,))[0] for name in sorted(entry.workload.accesses))
    _, gives, advice = WORDS.get(given, ("", f"access of type {given}", "use another target"))
    name = entry.entry.workload
    yield f"{name} speaks only {spoken}; target {target.name} gives {gives}: {advice}"


def _refused(
    planned: Planned, target: TargetMember, engine: str, program: str = ""
) -> Iterator[str]:
    """An engine that cannot work on what the target gives at that level."""
    backend = target.backend(target.options)
    if reason := backend.engine_refusal(planned.case.level, engine, program):
        yield f"target {target.name}: {reason}"


def _states(planned: Planned, target: TargetMember) -> Iterator[str]:
    backend, case = target.backend, planned.case
    who = f"target {target.name} ({target.target.backend})"
    if case.cache not in backend.cache_states and not _memory(target):
        states = ", ".join(sorted(backend.cache_states))
        yield f"{who} cannot reach cache state {case.cache}; it can: {states}"
    if case.device_state not in backend.device_states:
        states = ", ".join(sorted(backend.device_states))
        yield f"{who} cannot make device state {case.device_state}; it can: {states}"


def _memory(target: TargetMember) -> bool:
    """A reference that has no other state than memory."""
    return target.backend.reference or (
        target.reference and "memory" in target.backend.cache_states
    )


def _notes(target: TargetMember) -> Iterator[str]:
    if _memory(target):
        yield "runs in memory whatever the cache state; reference only"


def _driver(
    entry: EntryMember, target: TargetMember, needs: Footprint, drivers: Mapping[str, Driver]
) -> Iterator[str]:
    name = entry.entry.workload
    if needs.io != "auto" and target.backend.driver != "posix":
        yield (
            f"io: {needs.io} works on paths and devices; the player speaks to target {target.name} "
            f"by driver {target.backend.driver}: use io: auto there"
        )
        return
    driver = drivers.get(driver_of(needs.io, target.backend.driver))
    if driver is None:
        yield (
            f"target {target.name}: the player has no driver {target.backend.driver!r}; use an "
            "engine that speaks to it (fsmatrix check)"
        )
        return
    missing = sorted({kind.lower() for kind in needs.kinds} - driver.kinds)
    if missing:
        kinds = ", ".join(missing)
        yield f"{name} needs operations that driver {driver.name} does not have: {kinds}"
    if needs.depth > driver.max_depth:
        yield (
            f"{name} needs {needs.depth} operations in flight; driver {driver.name} of target "
            f"{target.name} does {driver.max_depth}"
        )
