"""The targets, workload entries and engines of a campaign: names become things.

Targets and entries get their classes; engines are found and probed once each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from fsmatrix.backends.contract import Backend, SpeedEstimate
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.player import lanes, player
from fsmatrix.backends.testbed.bed import TESTBEDS
from fsmatrix.results.evidence.stored import Json, JsonObject, Level
from fsmatrix.results.files.safefile import write_whole
from fsmatrix.results.record import canonical_json
from fsmatrix.results.registry import UnknownName, did_you_mean
from fsmatrix.suite.campaign.campaign import CacheState, Count, Target, WorkloadEntry
from fsmatrix.suite.campaign.check import describe, validate
from fsmatrix.suite.campaign.settings import Settings
from fsmatrix.suite.campaign.yamlio import KeyPath, Problem, flatten
from fsmatrix.suite.cases.target import PlannedTestbed, assumed, levels_of, placeholders
from fsmatrix.suite.cases.target import TargetMember as TargetMember
from fsmatrix.suite.engines.engine import Engine, EngineError, EngineKind
from fsmatrix.suite.registry import ENGINES, Lookup, Registries
from fsmatrix.suite.workloads.workload import Workload

PLAYER = "player"
VERSIONS = "engines.json"  # in a results directory: engine -> version that it was begun with

GEOMETRY = ("nodes", "processes_per_node", "threads")
COORDINATES = frozenset(
    {*GEOMETRY, "processes", "cache", "device_state", "target", "backend", "engine", "workload"}
)


class Engines:
    """Gives the engine behind a name."""

    def __init__(self, paths: Mapping[str, str], lookup: Lookup = ENGINES) -> None:
        """`paths`: engine -> program that the campaign or the site names for it."""
        self._paths = paths
        self._lookup = lookup
        self._found: dict[str, Engine | EngineError] = {}

    def get(self, name: str) -> Engine:
        """The engine; EngineError with the reason and the cure if it cannot be used here."""
        if name not in self._found:
            try:
                self._found[name] = self._probe(name)
            except EngineError as error:
                self._found[name] = error
        engine = self._found[name]
        if isinstance(engine, EngineError):
            raise engine
        return engine

    def reason(self, name: str) -> str:
        """Why it cannot be used here; empty if it can."""
        try:
            self.get(name)
        except EngineError as error:
            return str(error)
        return ""

    def usable(self, name: str) -> bool:
        """Whether it can be used here."""
        return not self.reason(name)

    def _probe(self, name: str) -> Engine:
        if name == PLAYER:
            return Engine(player.engine_name(), lanes.VERSION)
        if name not in self._lookup.names():
            return Engine(name, "")  # of another package's workload: nothing is known about it
        return kind_of(name, self._lookup).probe(self._paths.get(name, ""))


def kind_of(name: str, lookup: Lookup = ENGINES) -> EngineKind:
    """What is to be known about an external engine."""
    return cast("EngineKind", lookup.load(name))


def first_version(folder: Path, engine: Engine) -> str:
    """The version of this engine that the first run in a results directory used."""
    path = folder / VERSIONS
    try:
        versions = dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except ValueError:  # torn by a crash: the runs themselves have the versions
        versions = {}
    if engine.name not in versions:
        versions[engine.name] = engine.version
        write_whole(path, json.dumps(versions).encode())
    return str(versions[engine.name])


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

    def pace(self, target: str, level: Level) -> SpeedEstimate:
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
    for index, source in enumerate(settings.campaign.monitor.sources):
        _load(settings, registries.sources, source, ("monitor", "sources", index), problems)
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
        what = next(str(key) for key in path[::-1] if isinstance(key, str) and key != "name")
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
    kind = TESTBEDS.load(backend.testbed).Options
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


# Factors: what each of them varies, and its levels as values.


Varies = Literal["geometry", "cache", "device_state", "option", "level"]


@dataclass(frozen=True)
class Axis:
    """One factor as it applies to one workload entry: normal forms of its levels, in order."""

    factor: str
    varies: Varies
    levels: tuple[Json, ...]


@dataclass(frozen=True)
class Axes:
    """The axes of every workload entry (cluster levels: of every target), and the problems."""

    of_entry: dict[str, tuple[Axis, ...]]
    of_target: dict[str, tuple[Axis, ...]]
    problems: tuple[Problem, ...]

    def of(self, entry: str, target: str) -> tuple[Axis, ...]:
        """What varies where this entry meets this target."""
        return self.of_entry[entry] + self.of_target[target]

    def count(self, entry: str, target: str) -> int:
        """Number of combinations, without making them."""
        product = 1
        for axis in self.of(entry, target):
            product *= len(axis.levels)
        return product


def axes(settings: Settings, members: Members) -> Axes:
    """Find out what every factor varies; problems for those that name nothing."""
    problems: list[Problem] = []
    of_entry: dict[str, list[Axis]] = {entry.name: [] for entry in members.entries}
    of_target: dict[str, list[Axis]] = {target.name: [] for target in members.targets}
    for factor, levels in settings.campaign.factors.items():
        where: KeyPath = ("factors", factor)
        entries = [entry for entry in members.entries if _varies(factor, entry) is not None]
        targets = [t for t in members.targets if factor in t.level_factors]
        if entries and targets:
            message = f"an option of workload {entries[0].name!r} and a cluster factor of target"
            problems.append(settings.tree.problem(where, f"{message} {targets[0].name!r} at once"))
        elif not (entries or targets) and (
            text := members.unknown(settings, factor, _possible(members), "it could name")
        ):
            problems.append(settings.tree.problem(where, text))
        problems += _pinned(settings, factor, entries)
        for entry in entries:
            normal_levels = _normal(settings, factor, entry, levels, problems)
            of_entry[entry.name].append(
                Axis(factor, _varies(factor, entry) or "option", normal_levels)
            )
        if targets:
            problems += _twice(settings, factor, levels)
        for target in targets:
            of_target[target.name].append(Axis(factor, "level", tuple(levels)))
    return Axes(
        {name: tuple(its_axes) for name, its_axes in of_entry.items()},
        {name: tuple(its_axes) for name, its_axes in of_target.items()},
        tuple(dict.fromkeys(problems)),
    )


def option_problems(settings: Settings, members: Members) -> Iterator[Problem]:
    """Options of the workload entries that are unknown or have values that cannot be."""
    for entry in members.entries:
        model = entry.workload.Options
        for name, value in entry.entry.options.items():
            where: KeyPath = ("workloads", entry.name, "options", name)
            if name not in model.model_fields:
                hint = did_you_mean(name, model.model_fields)
                yield settings.tree.problem(where, f"unknown option {name!r}{hint}")
                continue
            try:
                normal_option(model, name, value)
            except ValidationError as error:
                message = describe(error.errors(include_url=False)[0])
                yield settings.tree.problem(where, message)


def normal_option(model: type[BaseModel], name: str, value: Json) -> Json:
    """JSON form of an option's value ("4KiB" -> 4096); ValidationError if it is none."""
    adapter = _adapter(model, name)
    return cast(Json, adapter.dump_python(adapter.validate_python(value), mode="json"))


def default_options(model: type[BaseModel]) -> dict[str, Json]:
    """JSON forms of the defaults of all options that have one."""
    return {
        name: _adapter(model, name).dump_python(option.get_default(), mode="json")
        for name, option in model.model_fields.items()
        if not option.is_required() and option.default_factory is None
    }


@cache
def _adapter(model: type[BaseModel], name: str) -> TypeAdapter[Any]:
    field = model.model_fields[name]
    annotation: Any = field.annotation
    for metadata in field.metadata:
        annotation = Annotated[annotation, metadata]
    return TypeAdapter(annotation)


def _varies(factor: str, entry: EntryMember) -> Varies | None:
    if factor in GEOMETRY:
        return "geometry"
    if factor == "cache":
        return "cache"
    if factor == "device_state":
        return "device_state"
    return "option" if factor in entry.workload.Options.model_fields else None


_FIXED: dict[str, TypeAdapter[Any]] = {
    "geometry": TypeAdapter(Count),
    "cache": TypeAdapter(CacheState),
    "device_state": TypeAdapter(str),
}


def _normal(
    settings: Settings,
    factor: str,
    entry: EntryMember,
    levels: tuple[Json, ...],
    problems: list[Problem],
) -> tuple[Json, ...]:
    varies = _varies(factor, entry)
    normal_levels: list[Json] = []
    for index, level in enumerate(levels):
        try:
            if varies == "option":
                normal_levels.append(normal_option(entry.workload.Options, factor, level))
            else:
                normal_levels.append(_FIXED[str(varies)].validate_python(level))
        except ValidationError as error:
            message = describe(error.errors(include_url=False)[0])
            problems.append(settings.tree.problem(("factors", factor, index), message))
            normal_levels.append(level)
    problems += _twice(settings, factor, tuple(normal_levels))
    return tuple(normal_levels)


def _twice(settings: Settings, factor: str, levels: tuple[Json, ...]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for index, level in enumerate(levels):
        first = seen.setdefault(canonical_json(level), index)
        if first != index:
            message = f"the level {level!r} is there twice (items {first} and {index})"
            yield settings.tree.problem(("factors", factor, index), message)


def _pinned(settings: Settings, factor: str, entries: list[EntryMember]) -> Iterator[Problem]:
    """A factor that an entry fixes as well: nobody could say which of them counts."""
    for entry in entries:
        for section in ("options", "geometry", "cache"):
            path: KeyPath = ("workloads", entry.name, section)
            path = path if section == factor else (*path, factor)
            if section == "cache" and factor != "cache":
                continue
            if settings.tree.has(path):
                origin = settings.origin("factors", factor)
                yield settings.tree.problem(path, f"fixed here and varied by {origin}; choose one")


def _possible(members: Members) -> set[str]:
    options = {key for entry in members.entries for key in entry.workload.Options.model_fields}
    levels = {key for target in members.targets for key in target.level_factors}
    return {*GEOMETRY, "cache", "device_state", *options, *levels}
