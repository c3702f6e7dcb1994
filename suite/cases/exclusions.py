"""Combinations that the campaign leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import ValidationError

from fsmatrix.results.evidence.values import Json
from fsmatrix.suite.campaign.check import describe
from fsmatrix.suite.campaign.problems import Problem, shown
from fsmatrix.suite.campaign.settings import Settings
from fsmatrix.suite.campaign.yamlio import KeyPath
from fsmatrix.suite.cases.factors import normal_option
from fsmatrix.suite.cases.resolve import COORDINATES, EntryMember, Members


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
