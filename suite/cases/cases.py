"""Expansion: from factors to cases.  The count is known, and bounded, before any is made."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.stored import Json, JsonObject, Level, LevelValue, Scalar
from fsmatrix.results.record import Case, Geometry, canonical_json
from fsmatrix.suite.campaign.check import describe, problem_of
from fsmatrix.suite.campaign.settings import Settings
from fsmatrix.suite.campaign.yamlio import MAX_SHOWN, CampaignError, KeyPath, Problem, shown
from fsmatrix.suite.cases.resolve import (
    COORDINATES,
    GEOMETRY,
    Axes,
    Axis,
    EntryMember,
    Members,
    TargetMember,
    axes,
    default_options,
    normal_option,
    option_problems,
)
from fsmatrix.suite.workloads.workload import Workload

# Combinations that the campaign leaves out.


@dataclass(frozen=True)
class Either:
    """A coordinate with more than one name: a workload entry and its kind of workload."""

    names: tuple[str, ...]


Coordinate: TypeAlias = Json | Either


@dataclass(frozen=True)
class Rule:
    """One item of `exclude` in the terms of one workload entry: key -> values that match."""

    index: int
    values: Mapping[str, tuple[Json, ...]]

    def matches(self, draft: Mapping[str, Coordinate]) -> bool:
        """Whether all its levels are those of `draft`."""
        return all(
            key in draft and any(_same(draft[key], value) for value in values)
            for key, values in self.values.items()
        )


class Exclusions:
    """All items of `exclude`, which of them matched something, and what is wrong with them."""

    def __init__(self, settings: Settings, members: Members) -> None:
        self.settings = settings
        self.members = members
        self.used: set[int] = set()
        self.problems = list(self._unknown())
        self._wrong: dict[KeyPath, list[str]] = {}
        self.rules = {entry.name: self._rules(entry) for entry in members.entries}
        for path, messages in self._wrong.items():
            if len(messages) == self._speakers(str(path[-1])):
                self.problems.append(settings.tree.problem(path, messages[0]))

    def excluded(self, entry: str, draft: Mapping[str, Coordinate]) -> bool:
        """Whether a combination is left out; `draft` holds its coordinates."""
        hits = [rule.index for rule in self.rules[entry] if rule.matches(draft)]
        self.used.update(hits)
        return bool(hits)

    def idle(self) -> Iterator[Problem]:
        """Items that matched nothing; to be asked after all combinations were."""
        wrong = {problem.where for problem in self.problems}
        for index, item in enumerate(self.settings.campaign.exclude):
            where: KeyPath = ("exclude", index)
            if index not in self.used and not any(w.startswith(f"exclude[{index}]") for w in wrong):
                yield self.settings.tree.problem(where, f"{shown(item)} matches no combination")

    def _rules(self, entry: EntryMember) -> list[Rule]:
        rules = []
        for index, item in enumerate(self.settings.campaign.exclude):
            values = {}
            for key, value in item.items():
                listed = value if isinstance(value, list) else [value]
                values[key] = tuple(self._values(entry, index, key, listed))
                if isinstance(value, list):
                    values[key] += (value,)  # an option may itself be a list
            rules.append(Rule(index, values))
        return rules

    def _values(
        self, entry: EntryMember, index: int, key: str, values: list[Json]
    ) -> Iterator[Json]:
        for value in values:
            if key not in entry.workload.Options.model_fields:
                yield value
                continue
            try:
                yield normal_option(entry.workload.Options, key, value)
            except ValidationError as error:
                message = describe(error.errors(include_url=False)[0])
                self._wrong.setdefault(("exclude", index, key), []).append(message)

    def _speakers(self, key: str) -> int:
        entries = self.members.entries
        return sum(key in entry.workload.Options.model_fields for entry in entries)

    def _unknown(self) -> Iterator[Problem]:
        names = set(COORDINATES) | set(self.settings.campaign.factors)
        for entry in self.members.entries:
            names |= entry.workload.Options.model_fields.keys()
        for target in self.members.targets:
            names |= {*target.target.attributes, *target.level_factors}
            names |= target.cluster_fact_names(self.settings.campaign.factors)
        for index, item in enumerate(self.settings.campaign.exclude):
            for key in item:
                if key not in names and (
                    text := self.members.unknown(self.settings, key, names, "allowed")
                ):
                    yield self.settings.tree.problem(("exclude", index, key), text)


def _same(level: Coordinate, value: Json) -> bool:
    if isinstance(level, Either):
        return value in level.names
    return isinstance(level, bool) == isinstance(value, bool) and bool(level == value)


@dataclass(frozen=True)
class Planned:
    """A case with all that is known about it before it runs."""

    case: Case
    entry: str  # name of the workload entry
    engine: str
    coordinates: JsonObject  # every factor, option, attribute; defaults filled in
    realised: Mapping[str, str] = field(default_factory=dict)  # coordinate -> hardware, emulated
    reference: bool = False
    closed_loop: str = ""  # id of the case that is run before, as its rate is a share of that one's
    work: Workload | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Cases:
    """All cases of a campaign, in the order in which the file tells them."""

    planned: tuple[Planned, ...]
    excluded: int  # combinations that `exclude` left out

    def __iter__(self) -> Iterator[Planned]:
        return iter(self.planned)

    def __len__(self) -> int:
        return len(self.planned)


def expand(settings: Settings, members: Members) -> Cases:
    """All cases; CampaignError with every problem of factors, exclusions and options."""
    factor_axes = axes(settings, members)
    exclusions = Exclusions(settings, members)
    problems = [*members.problems, *option_problems(settings, members)]
    problems += [*factor_axes.problems, *exclusions.problems]
    problems += _too_many(settings, members, factor_axes)
    if problems:
        raise CampaignError(problems)
    expansion = _Expansion(settings, factor_axes, exclusions)
    planned: dict[str, Planned] = {}
    for entry in members.entries:
        for target in members.targets:
            for item in expansion.pair(entry, target):
                earlier = planned.setdefault(item.case.case_id, item)
                if earlier is not item:
                    expansion.complain(("workloads", entry.name), _twin_text(earlier, item))
    planned = expansion.closed_loops | planned
    problems = list(expansion.problems.values()) or list(exclusions.idle())
    if not planned and not problems:
        problems.append(settings.tree.problem(("exclude",), "leaves no combination"))
    if problems:
        raise CampaignError(problems)
    return Cases(tuple(planned.values()), expansion.excluded)


def _too_many(settings: Settings, members: Members, all_axes: Axes) -> Iterator[Problem]:
    cases = sum(all_axes.count(e.name, t.name) for e in members.entries for t in members.targets)
    limits, repetitions = settings.campaign.limits, settings.campaign.repetitions
    if cases > limits.cases:
        message = f"{cases} cases before exclusions; limits.cases allows {limits.cases}"
        parts = _divided(settings, math.ceil(cases / limits.cases))
        yield settings.tree.problem(("factors",), f"{message}: {parts}")
    elif cases * repetitions > limits.runs:
        message = f"{cases} cases x {repetitions} repetitions = {cases * repetitions} runs"
        parts = _divided(settings, math.ceil(cases * repetitions / limits.runs))
        path: KeyPath = ("repetitions",)
        yield settings.tree.problem(path, f"{message}; limits.runs allows {limits.runs}: {parts}")


def _divided(settings: Settings, parts: int) -> str:
    """How to make that many campaigns of one: by the levels of the longest factor."""
    factors = settings.campaign.factors
    name = max(factors, key=lambda factor: len(factors[factor]), default="")
    if not name or len(factors[name]) < parts:
        return "name fewer levels"
    some = json.dumps(factors[name][: len(factors[name]) // parts][:2])[:-1]
    return (
        f"name fewer levels, or divide those of {name} among {parts} campaigns, each with its own "
        f"-o: --set 'factors.{name}={some}, ...]'"
    )


def _twin_text(earlier: Planned, item: Planned) -> str:
    where = f"workloads.{earlier.entry}" if earlier.entry != item.entry else "another combination"
    return f"gives the same case as {where} on target {item.case.target}: {item.case.canonical}"


@dataclass(frozen=True)
class _Work:
    """Checked options of one combination."""

    work: Workload
    differing: JsonObject  # options that are not the default
    options: JsonObject  # all of them, as they are shown


@dataclass(frozen=True)
class _Cluster:
    """A target at one level of the cluster factors."""

    level: Level
    attributes: Mapping[str, Scalar]
    realised: Mapping[str, str]


class _Expansion:
    """The combinations of workload entries and targets."""

    def __init__(self, settings: Settings, all_axes: Axes, exclusions: Exclusions) -> None:
        self.settings = settings
        self.axes = all_axes
        self.exclusions = exclusions
        self.excluded = 0
        self.problems: dict[KeyPath, Problem] = {}  # one for each place is enough
        self.closed_loops: dict[str, Planned] = {}  # case id -> what loads are shares of
        self.works: dict[tuple[str, tuple[tuple[str, int], ...]], _Work | None] = {}
        self.clusters: dict[tuple[str, str], _Cluster] = {}

    def complain(self, path: KeyPath, message: str) -> None:
        """Keep a problem; CampaignError once there are too many to be read."""
        self.problems.setdefault(path, self.settings.tree.problem(path, message))
        if len(self.problems) > MAX_SHOWN:
            raise CampaignError(self.problems.values())

    def pair(self, entry: EntryMember, target: TargetMember) -> Iterator[Planned]:
        """The cases of one workload entry on one target."""
        axes_here = self.axes.of(entry.name, target.name)
        fixed = self._fixed(entry, target)
        for picks in itertools.product(*(range(len(axis.levels)) for axis in axes_here)):
            levels = {a.factor: a.levels[i] for a, i in zip(axes_here, picks, strict=True)}
            cluster = self._cluster(target, _level(axes_here, levels))
            draft = fixed | dict(cluster.attributes) | levels
            geometry = Geometry(**{name: cast(int, draft[name]) for name in GEOMETRY})
            draft["processes"] = geometry.processes
            if self.exclusions.excluded(entry.name, draft):
                self.excluded += 1
                continue
            work = self._work(entry, axes_here, picks)
            if work is not None:
                planned = _planned(entry, target, cluster, draft, geometry, work)
                if (closed := work.work.closed_loop) is not None:
                    first = _planned(entry, target, cluster, draft, geometry, _checked(closed))
                    planned = replace(planned, closed_loop=first.case.case_id)
                    self.closed_loops[first.case.case_id] = first
                yield planned

    def _cluster(self, target: TargetMember, level: Level) -> _Cluster:
        """What the target is like at a level; a bed that cannot be is left to the matrix."""
        key = (target.name, canonical_json(level))
        if key not in self.clusters:
            try:
                cluster = _Cluster(level, target.attributes(level), target.realised(level))
            except BackendError:
                cluster = _Cluster(level, target.target.attributes, target.target.realised)
            self.clusters[key] = cluster
        return self.clusters[key]

    def _fixed(self, entry: EntryMember, target: TargetMember) -> dict[str, Coordinate]:
        """Coordinates of a pair before its factors are set, for exclusions."""
        campaign, model = self.settings.campaign, entry.workload.Options
        fixed: dict[str, Coordinate] = {**default_options(model)}
        for name, value in entry.entry.options.items():
            if name in model.model_fields:
                try:
                    fixed[name] = normal_option(model, name, value)
                except ValidationError:
                    fixed[name] = value  # reported when the options are checked
        for name in GEOMETRY:
            own = getattr(entry.entry.geometry, name)
            fixed[name] = getattr(campaign.geometry, name) if own is None else own
        return fixed | {
            "cache": entry.entry.cache or campaign.cache,
            "device_state": target.target.device_state,
            "target": target.name,
            "backend": target.target.backend,
            "engine": entry.engine,
            "workload": Either((entry.name, entry.entry.workload)),
        }

    def _work(
        self, entry: EntryMember, axes_here: tuple[Axis, ...], picks: tuple[int, ...]
    ) -> _Work | None:
        chosen = {
            axis.factor: pick
            for axis, pick in zip(axes_here, picks, strict=True)
            if axis.varies == "option"
        }
        key = (entry.name, tuple(chosen.items()))
        if key not in self.works:
            self.works[key] = self._check(entry, chosen)
        return self.works[key]

    def _check(self, entry: EntryMember, chosen: Mapping[str, int]) -> _Work | None:
        factors = self.settings.campaign.factors
        levels = {name: factors[name][pick] for name, pick in chosen.items()}
        try:
            options = entry.workload.Options.model_validate(entry.entry.options | levels)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                self._blame(entry, detail, chosen, levels)
            return None
        return _checked(entry.workload(options))

    def _blame(
        self,
        entry: EntryMember,
        detail: ErrorDetails,
        chosen: Mapping[str, int],
        levels: JsonObject,
    ) -> None:
        """Report a refused combination at the factor or option that its message names."""
        where: KeyPath = ("workloads", entry.name, "options")
        name = str(detail["loc"][0]) if detail["loc"] else ""
        if name and name not in chosen:
            model = entry.workload.Options
            problem = problem_of(model, detail, self.settings.tree, where)
            self.problems.setdefault((*where, name), problem)
            return
        message = describe(detail) if name else detail["msg"].removeprefix("Value error, ")
        words = [name] if name else re.findall(r"\w+", message)
        factor = next((word for word in words if word in chosen), None)
        option = next((word for word in words if word in entry.entry.options), None)
        if factor is not None:
            where = ("factors", factor, chosen[factor])
        elif option is not None:
            where = (*where, option)
        given = ", ".join(f"{key}: {value}" for key, value in levels.items())
        levels_text = f" with {given[:120]}" if given else ""
        self.complain(where, f"{message} (workload {entry.name}{levels_text})")


def _checked(work: Workload) -> _Work:
    options = work.options
    return _Work(
        work,
        options.model_dump(mode="json", exclude_defaults=True),
        options.model_dump(mode="json") | options.labels(),
    )


def _planned(
    entry: EntryMember,
    target: TargetMember,
    cluster: _Cluster,
    draft: Mapping[str, Coordinate],
    geometry: Geometry,
    work: _Work,
) -> Planned:
    case = Case(
        target=target.name,
        workload=entry.entry.workload,
        options=work.differing,
        geometry=geometry,
        cache=str(draft["cache"]),
        device_state=str(draft["device_state"]),
        level=cluster.level,
    )
    coordinates: dict[str, Json] = (
        dict(cluster.attributes)
        | dict(cluster.level)
        | dict(work.options)
        | {
            **vars(geometry),
            "processes": geometry.processes,
            "cache": case.cache,
            "device_state": case.device_state,
            "target": case.target,
            "backend": target.target.backend,
            "engine": entry.engine,
            "workload": case.workload,
        }
    )
    return Planned(
        case,
        entry.name,
        entry.engine,
        coordinates,
        cluster.realised,
        target.reference,
        work=work.work,
    )


def _level(axes_here: tuple[Axis, ...], levels: JsonObject) -> Level:
    """The levels of the cluster factors alone."""
    own = (axis.factor for axis in axes_here if axis.varies == "level")
    return {factor: cast(LevelValue, levels[factor]) for factor in own}
