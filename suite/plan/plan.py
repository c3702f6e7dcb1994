"""The plan: everything that is known about a campaign before it runs."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from fsmatrix.backends.contract import Space, SpeedEstimate
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.local import underneath
from fsmatrix.backends.system import files
from fsmatrix.backends.system.trusted import temporary_refusal
from fsmatrix.results.evidence.stored import Json, JsonObject
from fsmatrix.results.record import digest
from fsmatrix.results.registry import did_you_mean
from fsmatrix.results.units import format_size, parse_size
from fsmatrix.suite.campaign.settings import Settings, Source, examine, find
from fsmatrix.suite.campaign.site import SiteFile
from fsmatrix.suite.campaign.yamlio import (
    CampaignError,
    KeyPath,
    Origin,
    Problem,
    Tree,
    dotted,
    flatten,
    refuse,
)
from fsmatrix.suite.cases.cases import Cases, Planned, expand
from fsmatrix.suite.cases.resolve import Members, TargetMember, default_options, members
from fsmatrix.suite.nodes.node_watch import Asked
from fsmatrix.suite.plan import order
from fsmatrix.suite.plan.choice import Choice, LeftOut, Machine, choose
from fsmatrix.suite.plan.choice import Request as Request
from fsmatrix.suite.plan.estimate import (
    Estimate,
    comparisons,
    estimate,
    exceeded,
    past_deadline,
    warnings,
)
from fsmatrix.suite.plan.matrix import Matrix, footprint, matrix
from fsmatrix.suite.registry import SOURCES, Registries, registries

# `--only`: cases chosen by their coordinates.


MOST_NAMED = 8  # values of a coordinate


def only(cases: Iterable[Planned], expressions: Sequence[str]) -> list[Planned]:
    """Cases that match: `key=value,key=value`, values with * and ?; sizes as 4KiB or 4096.

    Different keys must all match; of values given for one key any may.  `workload` is also
    the name of a workload entry, `case` the case's id.  CampaignError for an unknown key or
    a selection that leaves nothing.  What a load is a share of comes with it.
    """
    chosen = list(cases)
    if not expressions:
        return chosen
    source = f"--only {','.join(expressions)}"
    coordinates = {"case"}.union(*(planned.coordinates for planned in chosen))
    wanted = _wanted(expressions, source, coordinates)
    for key in wanted:
        if key not in coordinates:
            raise refuse(Origin(source), key, f"no such coordinate{did_you_mean(key, coordinates)}")
    kept = [
        planned
        for planned in chosen
        if all(_matches(planned, key, values) for key, values in wanted.items())
    ]
    if not kept:
        raise refuse(Origin(source), "", _nothing(chosen, wanted))
    ids = {planned.case.case_id for planned in kept} | {planned.closed_loop for planned in kept}
    return [planned for planned in chosen if planned.case.case_id in ids]


def _nothing(chosen: Sequence[Planned], wanted: Mapping[str, Sequence[str]]) -> str:
    """Why no case matches: the first key none of whose values is there, and those that are."""
    text = f"matches none of {len(chosen)} cases"
    for key, patterns in wanted.items():
        if key != "case" and not any(_matches(planned, key, patterns) for planned in chosen):
            values = sorted({_text(planned.coordinates.get(key)) for planned in chosen})
            more = f" and {len(values) - MOST_NAMED} more" if len(values) > MOST_NAMED else ""
            return f"{text}: {key} is {', '.join(values[:MOST_NAMED])}{more}"
    return text


def _wanted(
    expressions: Sequence[str], source: str, coordinates: Iterable[str]
) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for part in ",".join(expressions).split(","):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            keys = ", ".join(sorted(coordinates))
            raise refuse(Origin(source), "", f"{part!r} is not key=value (keys: {keys})")
        wanted.setdefault(key.strip(), []).append(value.strip())
    return wanted


def _matches(planned: Planned, key: str, patterns: Iterable[str]) -> bool:
    values: list[Json] = [planned.coordinates.get(key)]
    if key == "workload":
        values.append(planned.entry)
    elif key == "case":
        values = [planned.case.case_id]
    elif key not in planned.coordinates:
        return False
    return any(_one(value, pattern) for value in values for pattern in patterns)


def _one(value: Json, pattern: str) -> bool:
    if fnmatchcase(_text(value), pattern):
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return (parse_size(pattern) if isinstance(value, int) else float(pattern)) == value
    except (ValueError, OverflowError):
        return False


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# What lies below the targets, where that changes their numbers: said before anything runs.


def cautions(members: Iterable[TargetMember], out: Path) -> Iterator[str]:
    """Sentences with their remedies; `out`: the results directory, where images lie."""
    named: dict[str, tuple[Path, ...]] = {}
    targets_of: dict[str, list[str]] = {}
    for member in members:
        if member.testbed is not None:
            continue
        own = member.foreseen()
        with suppress(BackendError, OSError):  # a place that is refused for it
            named[member.name] = tuple(files.expand(place).resolve() for place in own.places)
            for place in named[member.name]:
                for text in underneath.cautions_of_place(place):
                    targets_of.setdefault(text, []).append(member.name)
            for text in underneath.cautions_of_image(out.absolute()) if own.state_bytes else ():
                targets_of.setdefault(text, []).append(member.name)
    for text, names in targets_of.items():
        yield f"{', '.join(dict.fromkeys(names))}: {text}"
    yield from _shared(named)


def _shared(named: dict[str, tuple[Path, ...]]) -> Iterator[str]:
    """Targets on the same path, or on one disk by different ones."""
    same: dict[Path, list[str]] = {}
    for name, places in named.items():
        for place in dict.fromkeys(places):
            same.setdefault(place, []).append(name)
    for place, names in same.items():
        if len(names) > 1:
            yield f"targets {' and '.join(names)} are on the same path {place}: is that meant?"
    on: dict[str, dict[str, Path]] = {}  # disk -> target -> its path there
    for name, places in named.items():
        for place in places:
            with suppress(BackendError, OSError):
                for disk in underneath.disks_of(place):
                    on.setdefault(disk, {})[name] = place
    said = set()
    for disk, paths in on.items():
        used = [*map(str, dict.fromkeys(paths.values()))]
        who = " and ".join(paths)
        if len(used) < 2 or (who, *used) in said:
            continue
        said.add((who, *used))
        kind = "file system" if disk.startswith("0:") else "disk"
        where = f"on one {kind} by different paths ({', '.join(used)})"
        yield f"targets {who} are {where}: is that meant?"


# The place where a plan is made: what stands there beside the campaign.


@dataclass(frozen=True)
class Installation:
    """What a plan takes from its place; None: as this process finds it."""

    site: SiteFile | Path | None = None
    user: Tree | None = None  # the user's settings
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    lookup: Registries | None = None
    root: bool | None = None  # whether the runs will have root's rights

    @property
    def is_root(self) -> bool:
        """Whether the runs will have root's rights; unless it is told, whether this process has."""
        return os.geteuid() == 0 if self.root is None else self.root


CONTINUED = {
    "description",
    "client_ceiling",
    "monitor",
    "limits",
    "repetitions",
    "engines",
    "slurm",
}  # may differ when a campaign is resumed


@dataclass(frozen=True)
class Plan:
    """A validated campaign, expanded, ordered and estimated."""

    settings: Settings
    members: Members
    source: Source
    request: Request
    seed: int
    matrix: Matrix  # of what was selected
    groups: order.Groups  # the cases to be run: possible, selected, of this shard
    estimate: Estimate
    excluded: int
    comparisons: int  # tests of the planned family
    warnings: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    agreements: Mapping[str, Sequence[str]]  # what must be agreed to first -> targets

    @cached_property
    def cases(self) -> tuple[Planned, ...]:
        """The cases to be run."""
        return tuple(planned for group in self.groups.values() for planned in group)

    @property
    def timed(self) -> bool:
        """Whether any case works for a fixed time."""
        return any(footprint(planned).seconds is not None for planned in self.cases)

    @property
    def order_seed(self) -> int:
        """Seed of the order alone: the campaign's own, or that of everything."""
        own = self.settings.campaign.order.seed
        return self.seed if own is None else own

    def plots(self) -> Iterator[order.Plot]:
        """The whole plots in the order of execution."""
        campaign = self.settings.campaign
        return order.plots(
            self.groups,
            campaign.repetitions,
            campaign.order.block,
            self.order_seed,
            self.request.blocks,
        )

    def system(self, target: str) -> str:
        """The storage system behind a target; "" where the campaign names none: one for all."""
        return self.settings.campaign.targets[target].system or ""

    def watched(self) -> list[str]:
        """What `monitor` will do, a line for each source that has something to watch."""
        monitor = self.settings.campaign.monitor
        asked = Asked(
            monitor.interval, monitor.nodes, prometheus=self.settings.site.site.prometheus or ""
        )
        beds = [each.name for each in self.members.targets if each.testbed is not None]
        return [
            f"{source}: {line}"
            for source in monitor.sources
            if source != "testbed" or beds
            for line in SOURCES.load(source).words(asked)
        ]

    def block_seed(self, block: int) -> str:
        """What the random choices of a block are made of, such as the hosts of its levels."""
        return f"{self.order_seed}/{block}"

    def pace(self, planned: Planned) -> SpeedEstimate:
        """What is guessed of a case's target at its level."""
        return self.members.pace(planned.case.target, planned.case.level)

    def target(self, name: str) -> TargetMember:
        """A target with its backend's class and options; KeyError if there is none."""
        return {target.name: target for target in self.members.targets}[name]

    def explain(self) -> list[tuple[str, Json, str]]:
        """(key path, value, origin) of every setting, with the defaults of all options."""
        rows = [row for row in self.settings.explain() if row[0] != "seed"]
        given = self.settings.campaign.seed
        drawn = "drawn" if self.request.seed is None else "--seed"
        unchanged = given == self.seed and self.request.seed is None
        rows.append(("seed", self.seed, str(self.settings.origin("seed")) if unchanged else drawn))
        for target in self.members.targets:
            dump = target.options.model_dump(mode="json")
            rows += self._defaults(("targets", target.name, "options"), dump)
        for entry in self.members.entries:
            dump = default_options(entry.workload.Options)
            rows += self._defaults(("workloads", entry.name, "options"), dump)
        return rows

    def _defaults(self, path: KeyPath, options: JsonObject) -> Iterator[tuple[str, Json, str]]:
        for name, value in options.items():
            if not self.settings.tree.has((*path, name)):
                factor = self.settings.tree.origin(("factors", name))
                varied = path[0] == "workloads" and name in self.settings.campaign.factors
                yield dotted((*path, name)), value, f"varied by {factor}" if varied else "default"

    @property
    def fingerprint(self) -> str:
        """Hash of the seed and of the settings that make the cases and their order.

        More repetitions and other limits continue the same campaign: the order of what was
        planned before does not change with them.
        """
        return digest([self.seed, _kept(self.settings)])


def build_plan(
    source: str | Path | Source,
    request: Request = Request(),
    *,
    installation: Installation = Installation(),
    here: bool = True,
    choose_here: bool | None = None,
    out: Path | None = None,
) -> Plan:
    """Plan a campaign; CampaignError with every problem found.

    `source`: a file, the name of a ready campaign, or a text.  `here`: this machine will run
    it, so that its backends may be asked whether they can.  `choose_here`: this machine decides
    which of the targets that depend on it take part (None: as `here`).  `out`: the results
    directory that is to be made.
    """
    if here and (reason := temporary_refusal()):
        raise refuse(Origin("TMPDIR"), "", reason)
    text = source if isinstance(source, Source) else find(source)
    lookup = installation.lookup or registries()
    settings, everybody, cases = _expanded(text, request, installation, lookup)
    machine = Machine(settings, only(cases.planned, request.only), out)
    asks = here if choose_here is None else choose_here
    choice = choose(everybody.targets, request, installation.is_root, machine if asks else None)
    active = Members(choice.members, everybody.entries, ())
    skips = here and settings.campaign.impossible == "skip"
    unfit = machine.refusals(choice.members) if skips else {}
    selected = only(_of(active, cases.planned), request.only) if choice.members else ()
    judged = matrix(settings, active, selected, lookup, here, unfit)
    chosen = _chosen(settings, choice, judged)
    grouped = _shard(settings, order.groups(chosen), request.shard)
    if here:
        machine.refuse(active.targets, {key.target for key in grouped})
    room = {target.name: target.room() for target in active.targets} if here else {}
    cost = _cost(settings, request, grouped, active, room)
    tests = comparisons(chosen)
    names = {planned.case.target for planned in chosen}
    running = [target for target in active.targets if target.name in names]
    agreements = _agreements(running) if here else {}
    return Plan(
        settings=settings,
        members=active,
        source=text,
        request=request,
        seed=_seed(settings, request),
        matrix=judged,
        groups=grouped,
        estimate=cost,
        excluded=cases.excluded,
        comparisons=tests,
        warnings=(
            *map(str, choice.left_out),
            *warnings(settings, len(judged.impossible), tests),
            *past_deadline(settings, grouped),
            *(f"{', '.join(names)}: {text}" for text, names in agreements.items()),
            *_overwritten(room, cost.space),
            *(cautions(running, out or Path.cwd()) if here else ()),
        ),
        left_out=choice.left_out,
        agreements=agreements,
    )


def _expanded(
    text: Source, request: Request, installation: Installation, lookup: Registries
) -> tuple[Settings, Members, Cases]:
    """A campaign's settings, members and cases; CampaignError with every problem of them."""
    settings, refused = examine(
        text,
        request.sets,
        site=installation.site,
        user=installation.user,
        environ=installation.environ,
    )
    if settings is None:
        raise CampaignError(refused)
    resolved = members(settings, lookup)
    try:
        cases = expand(settings, resolved)
    except CampaignError as error:
        raise CampaignError([*refused, *error.problems]) from error
    if refused:
        raise CampaignError(refused)
    return settings, resolved, cases


def _of(active: Members, cases: Sequence[Planned]) -> list[Planned]:
    names = {target.name for target in active.targets}
    return [planned for planned in cases if planned.case.target in names]


def _chosen(settings: Settings, choice: Choice, judged: Matrix) -> tuple[Planned, ...]:
    """The cases that can be run; refused if that is not all, unless `impossible: skip`."""
    problems: list[Problem] = []
    if not choice.members:
        reasons = "; ".join(f"{left.target}: {left.reason}" for left in choice.left_out)
        message = f"no target is left on this machine for this user: {reasons}"
        problems.append(settings.tree.problem(("targets",), message))
    elif settings.campaign.impossible == "refuse" or not judged.possible:
        problems = list(judged.problems(settings))
        if not problems and not judged.possible:
            problems.append(settings.tree.problem(("exclude",), "leaves no case for this user"))
    if problems:
        raise CampaignError(problems)
    return judged.possible


def _shard(settings: Settings, plan: order.Groups, part: tuple[int, int]) -> order.Groups:
    targets = settings.campaign.targets
    try:
        return order.shard(plan, *part, lambda name: targets[name].system or "")
    except ValueError as error:
        raise refuse(Origin(f"--shard {part[0]}/{part[1]}"), "", str(error)) from error


def _cost(
    settings: Settings,
    request: Request,
    grouped: order.Groups,
    active: Members,
    room: Mapping[str, Space],
) -> Estimate:
    """What the runs need; CampaignError if that is more than is allowed, or than there is."""
    block = settings.campaign.order.block
    cost = estimate(grouped, _repetitions(settings, request), block, active.pace)
    if problems := list(exceeded(settings, cost, room)):
        raise CampaignError(problems)
    return cost


def _repetitions(settings: Settings, request: Request) -> int:
    """Repetitions in the blocks that were asked for."""
    repetitions, block = settings.campaign.repetitions, settings.campaign.order.block
    asked = request.blocks
    if asked is None:
        return repetitions
    there = order.blocks(repetitions, block)
    if asked.stop > there.stop:
        text = f"--blocks {asked.start}-{asked.stop - 1}"
        raise refuse(Origin(text), "", f"the campaign has the blocks 0 to {there.stop - 1}")
    return min(repetitions, asked.stop * block) - asked.start * block


def lasting(settings: Settings) -> Iterator[tuple[str, Json]]:
    """Key paths and values of what a resumed campaign must have in common."""
    for path, value in flatten(_kept(settings)):
        yield dotted(path), value


def _kept(settings: Settings) -> JsonObject:
    """What a resumed campaign must have in common; settings that a later version adds do not count
    while they are as they were."""
    return settings.campaign.model_dump(mode="json", exclude=CONTINUED, exclude_defaults=True)


def _seed(settings: Settings, request: Request) -> int:
    if request.seed is not None:
        return request.seed
    if settings.campaign.seed is not None:
        return settings.campaign.seed
    if request.shard != (1, 1) or request.blocks is not None:
        # all parts must come to the same one by themselves
        return int(digest(_kept(settings)), 16) >> 11
    return secrets.randbelow(2**53)


def _overwritten(room: Mapping[str, Space], space: Mapping[str, int]) -> Iterator[str]:
    """What is lost by running this; `space`: bytes that targets need, of those that take part."""
    for name, its in room.items():
        if name in space and its.overwritten:
            yield (
                f"target {name} DESTROYS what is on {its.overwritten}: its first "
                f"{format_size(space[name], 1)} are overwritten"
            )


def _agreements(running: Iterable[TargetMember]) -> dict[str, list[str]]:
    fields_of: dict[str, list[str]] = {}
    for target in running:
        if text := target.required_consent():
            fields_of.setdefault(text, []).append(target.name)
    return fields_of
