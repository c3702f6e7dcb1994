"""The plan: everything that is known about a campaign before it runs."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fsmatrix.backends.base import Space
from fsmatrix.backends.pace import Pace
from fsmatrix.backends.system.files.trusted import temporary_refusal
from fsmatrix.results.case import digest
from fsmatrix.results.evidence.values import Json, JsonObject
from fsmatrix.suite.campaign.find import find
from fsmatrix.suite.campaign.problems import CampaignError, Origin, Problem, refuse
from fsmatrix.suite.campaign.settings import Settings, Source, examine
from fsmatrix.suite.campaign.yamlio import KeyPath, dotted, flatten
from fsmatrix.suite.cases.cases import Cases, Planned, expand
from fsmatrix.suite.cases.factors import default_options
from fsmatrix.suite.cases.resolve import Members, TargetMember, members
from fsmatrix.suite.plan import order
from fsmatrix.suite.plan.choice import Choice, LeftOut, Machine, choose, room
from fsmatrix.suite.plan.estimate import (
    Estimate,
    comparisons,
    estimate,
    exceeded,
    past_deadline,
    warnings,
)
from fsmatrix.suite.plan.foreseen import cautions
from fsmatrix.suite.plan.installation import Installation
from fsmatrix.suite.plan.matrix import Matrix, footprint, matrix
from fsmatrix.suite.plan.request import Request as Request
from fsmatrix.suite.plan.select import only
from fsmatrix.suite.registry import Registries, registries

CONTINUED = {
    "description",
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

    def draw(self, block: int) -> str:
        """What the random choices of a block are made of, such as the hosts of its levels."""
        return f"{self.order_seed}/{block}"

    def pace(self, planned: Planned) -> Pace:
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
    cost = _cost(settings, request, grouped, active, here)
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
            *(_overwritten(active, cost.space) if here else ()),
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
    settings: Settings, request: Request, grouped: order.Groups, active: Members, here: bool
) -> Estimate:
    """What the runs need; CampaignError if that is more than is allowed, or than there is."""
    block = settings.campaign.order.block
    cost = estimate(grouped, _repetitions(settings, request), block, active.pace)
    if problems := list(exceeded(settings, cost, _room(active) if here else {})):
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


def _room(active: Members) -> dict[str, Space]:
    return {target.name: room(target) for target in active.targets}


def _overwritten(active: Members, space: Mapping[str, int]) -> Iterator[str]:
    """What is lost by running this; `space`: bytes that targets need, of those that take part."""
    for target in active.targets:
        if target.name in space and (text := target.overwrites(space[target.name])):
            yield f"target {target.name} {text}"


def _agreements(running: Iterable[TargetMember]) -> dict[str, list[str]]:
    fields_of: dict[str, list[str]] = {}
    for target in running:
        if text := target.agreement():
            fields_of.setdefault(text, []).append(target.name)
    return fields_of
