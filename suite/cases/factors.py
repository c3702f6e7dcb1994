"""Factors: what each of them varies, and its levels as values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from fsmatrix.results.case import canonical_json
from fsmatrix.results.evidence.values import Json
from fsmatrix.results.registry import did_you_mean
from fsmatrix.suite.campaign.campaign import CacheState
from fsmatrix.suite.campaign.check import describe
from fsmatrix.suite.campaign.problems import Problem
from fsmatrix.suite.campaign.section import Count
from fsmatrix.suite.campaign.settings import Settings
from fsmatrix.suite.campaign.yamlio import KeyPath
from fsmatrix.suite.cases.resolve import GEOMETRY, EntryMember, Members

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
