"""The targets and workload entries of a campaign with their classes: names become things."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fsmatrix.backends.base import Backend
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.pace import Pace
from fsmatrix.results.evidence.values import JsonObject, Level
from fsmatrix.results.registry import UnknownName, did_you_mean
from fsmatrix.suite.campaign.campaign import Target, WorkloadEntry
from fsmatrix.suite.campaign.check import validate
from fsmatrix.suite.campaign.problems import Problem
from fsmatrix.suite.campaign.settings import Settings
from fsmatrix.suite.campaign.yamlio import KeyPath, flatten
from fsmatrix.suite.cases.engines import Engines
from fsmatrix.suite.cases.target import TargetMember as TargetMember
from fsmatrix.suite.cases.target import levels_of
from fsmatrix.suite.cases.testbeds import SYSTEMS, PlannedTestbed, assumed, placeholders
from fsmatrix.suite.registry import Lookup, Registries
from fsmatrix.suite.workloads.base import Workload

GEOMETRY = ("nodes", "processes_per_node", "threads")
COORDINATES = frozenset(
    {*GEOMETRY, "processes", "cache", "device_state", "target", "backend", "engine", "workload"}
)


@dataclass(frozen=True)
class EntryMember:
    """A workload entry, its workload's class and the engine."""

    name: str
    entry: WorkloadEntry
    workload: type[Workload]
    engine: str


@dataclass(frozen=True)
class Members:
    """All of a campaign, and what was wrong with it."""

    targets: tuple[TargetMember, ...]
    entries: tuple[EntryMember, ...]
    problems: tuple[Problem, ...]

    def unknown(self, settings: Settings, name: str, known: Iterable[str], what: str) -> str:
        """That a name names nothing (empty: it may be one of a target that is wrong itself)."""
        hint = did_you_mean(name, known, what)
        is_whole = len(self.targets) == len(settings.campaign.targets)
        return f"{name!r} names nothing{hint}" if is_whole or hint.startswith(" (") else ""

    def pace(self, target: str, level: Level) -> Pace:
        """What planning guesses of a target at a level.  KeyError if there is none."""
        return {member.name: member for member in self.targets}[target].pace(level)


def members(settings: Settings, registries: Registries) -> Members:
    """Look up every name and check every backend's options."""
    problems: list[Problem] = []
    targets = [
        _target(settings, registries, name, target, problems)
        for name, target in settings.campaign.targets.items()
    ]
    engines = Engines(settings.campaign.engines, registries.engines)
    entries = [
        _entry(settings, registries, engines, name, entry, problems)
        for name, entry in settings.campaign.workloads.items()
    ]
    known = {*registries.engines.names(), *(e for m in entries if m for e in m.workload.engines)}
    for name in settings.campaign.engines:
        if None not in entries and name not in known:
            message = f"unknown engine {name!r}{did_you_mean(name, sorted(known))}"
            problems.append(settings.tree.problem(("engines", name), message))
    launcher = settings.campaign.launcher.name
    if launcher != "auto":
        _load(settings, registries.launchers, launcher, ("launcher", "name"), problems, ("auto",))
    usable_targets = tuple(target for target in targets if target is not None)
    usable_entries = tuple(entry for entry in entries if entry is not None)
    problems += _attribute_problems(settings, usable_targets, usable_entries)
    return Members(usable_targets, usable_entries, tuple(problems))


def _load(
    settings: Settings,
    registry: Lookup,
    name: str,
    path: KeyPath,
    problems: list[Problem],
    also: Iterable[str] = (),
) -> type[Any] | None:
    try:
        return registry.load(name)
    except UnknownName:
        hint = did_you_mean(name, [*registry.names(), *also])
        what = path[-1] if path[-1] != "name" else path[0]
        problems.append(settings.tree.problem(path, f"unknown {what} {name!r}{hint}"))
    except ImportError as error:
        problems.append(settings.tree.problem(path, f"{name!r} cannot be loaded: {error}"))
    return None


def _target(
    settings: Settings,
    registries: Registries,
    name: str,
    target: Target,
    problems: list[Problem],
) -> TargetMember | None:
    where: KeyPath = ("targets", name)
    backend = _load(settings, registries.backends, target.backend, (*where, "backend"), problems)
    problems += _forbidden(settings, target, where)
    if backend is None:
        return None
    bed = None
    defaults: JsonObject = {}
    if target.testbed is not None:
        bed, wrong = _testbed(settings, backend, target, where)
        problems += wrong
        defaults = {**placeholders(backend), **assumed(backend)}
    options, wrong = validate(
        backend.Options, {**defaults, **target.options}, settings.tree, (*where, "options")
    )
    problems += wrong
    if options is None:
        return None
    member = TargetMember(name, target, backend, options, bed)
    problems += _declared_problems(settings, member, where)
    return member


def _declared_problems(
    settings: Settings, member: TargetMember, where: KeyPath
) -> Iterator[Problem]:
    """Declared facts that bed or backend tell otherwise at a level, or that name nothing."""
    declared, factors = member.target, settings.campaign.factors
    names = {*declared.attributes, *member.level_factors}
    wrong: dict[KeyPath, str] = {}
    for level in levels_of(member, factors):
        try:
            attributes, realised = member.cluster_facts(level), member.realised(level)
        except BackendError:
            continue  # no such bed: the matrix says so, with the reason
        names |= attributes.keys()
        source = "the test bed" if member.testbed else f"backend {declared.backend}"
        for section, stated, real in (
            ("attributes", declared.attributes, attributes),
            ("realised", declared.realised, realised),
        ):
            for key in stated.keys() & real.keys():
                if stated[key] != real[key]:
                    wrong[(*where, section, key)] = f"{source} says {real[key]}: leave it out"
    for key in declared.realised.keys() - names:
        hint = did_you_mean(key, names)
        wrong[(*where, "realised", key)] = f"{key!r} is no attribute of this target{hint}"
    for path, message in wrong.items():
        yield settings.tree.problem(path, message)


def _testbed(
    settings: Settings, backend: type[Backend], target: Target, where: KeyPath
) -> tuple[PlannedTestbed | None, list[Problem]]:
    path: KeyPath = (*where, "testbed")
    if not backend.testbed:
        return None, [settings.tree.problem(path, f"{target.backend} has no test bed")]
    clash = sorted((backend.testbed_options.keys() | {"levels"}) & target.options.keys())
    if clash:
        message = f"options.{clash[0]} comes from the test bed: leave it out"
        return None, [settings.tree.problem(path, message)]
    kind = SYSTEMS[backend.testbed].Options
    options, wrong = validate(kind, target.testbed or {}, settings.tree, path)
    if options is None:
        return None, wrong
    return PlannedTestbed(options, backend, target.options), wrong


def _forbidden(settings: Settings, target: Target, where: KeyPath) -> Iterable[Problem]:
    for path, value in flatten(target.options, (*where, "options")):
        for text in value if isinstance(value, list) else [value]:
            reason = settings.site.forbidden(text) if isinstance(text, str) else ""
            if reason:
                yield settings.tree.problem(path, reason)


def _entry(
    settings: Settings,
    registries: Registries,
    engines: Engines,
    name: str,
    entry: WorkloadEntry,
    problems: list[Problem],
) -> EntryMember | None:
    where: KeyPath = ("workloads", name)
    path = (*where, "workload")
    workload = _load(settings, registries.workloads, entry.workload, path, problems)
    if workload is None:
        return None
    engine = entry.engine or workload.default_engine(engines.usable)
    if engine not in workload.engines:
        hint = did_you_mean(engine, workload.engines)
        message = f"{engine!r} is no engine of {entry.workload}{hint}"
        problems.append(settings.tree.problem((*where, "engine"), message))
        return None
    clash = sorted(COORDINATES & workload.Options.model_fields.keys())
    if clash:
        message = f"workload {entry.workload} names an option {clash[0]!r}: that is a coordinate"
        problems.append(settings.tree.problem(path, message))
    return EntryMember(name, entry, workload, engine)


def _attribute_problems(
    settings: Settings, targets: Iterable[TargetMember], entries: Iterable[EntryMember]
) -> Iterable[Problem]:
    """An attribute is a coordinate: its name must not be another coordinate's."""
    options = {key: entry.name for entry in entries for key in entry.workload.Options.model_fields}
    for member in targets:
        for key in member.target.attributes:
            path: KeyPath = ("targets", member.name, "attributes", key)
            if key in COORDINATES:
                message = f"{key!r} is the name of another coordinate; call it differently"
            elif key in options:
                message = f"{key!r} is an option of workload {options[key]!r}; call it differently"
            elif key in settings.campaign.factors:
                message = f"{key!r} is varied by factors.{key}; say it in one place"
            else:
                continue
            yield settings.tree.problem(path, message)
