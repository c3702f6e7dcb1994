"""Which of a campaign's targets take part: asked of their backends on this machine, decided once.

The decision is stored with the campaign (campaign.json), so that its jobs and `--resume` keep it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsmatrix.backends.local import images
from fsmatrix.results.evidence.stored import Stored
from fsmatrix.suite.campaign.settings import Settings
from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.cases.cases import Planned
from fsmatrix.suite.cases.resolve import TargetMember
from fsmatrix.suite.plan.estimate import most_held, short_of_room

ENOUGH = 2  # targets to be compared: with fewer, fallbacks take part
STATE = "state"  # folder of a results directory for what backends keep there


@dataclass(frozen=True)
class Request:
    """What the user asked for beside the campaign itself."""

    sets: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    shard: tuple[int, int] = (1, 1)  # k of n
    seed: int | None = None  # wins over the campaign's; a resumed campaign gives the stored one
    blocks: range | None = None  # only these blocks
    targets: tuple[str, ...] = ()  # those that take part since the campaign began
    left_out: tuple[tuple[str, str], ...] = ()  # (target, reason) of those that do not
    skip_unusable: bool = False  # leave out targets that this machine cannot have

    @property
    def is_whole(self) -> bool:
        """Whether this is the campaign and not a part of it."""
        return self.only == () and self.shard == (1, 1) and self.blocks is None


@dataclass(frozen=True)
class LeftOut(Stored):
    """A target that does not take part."""

    target: str
    reason: str

    def __str__(self) -> str:
        return f"target {self.target} is left out: {self.reason}"


@dataclass(frozen=True)
class Choice:
    """The targets that take part, in the campaign's order, and those that do not."""

    members: tuple[TargetMember, ...]
    left_out: tuple[LeftOut, ...] = ()

    def without(self, reasons: Mapping[str, str]) -> Choice:
        """The same without these targets: name -> reason."""
        left = tuple(LeftOut(name, reason) for name, reason in reasons.items())
        kept = tuple(member for member in self.members if member.name not in reasons)
        return Choice(kept, (*self.left_out, *left))


@dataclass
class Machine:
    """This machine, asked once for each target whether it can be had here.

    `cases`: what is to be run.  `out`: the results directory that is to be made; None if it is
    there or is not known.
    """

    settings: Settings
    cases: Sequence[Planned]
    out: Path | None = None
    _answers: dict[str, str] = field(default_factory=dict)
    _kept: int = 0  # bytes that targets which can be had will keep in the state directory

    def refusal(self, member: TargetMember) -> str:
        """Why a target cannot be had on this machine, now, with these rights (empty: it can)."""
        if member.name not in self._answers:
            self._answers[member.name] = member.refusal() or self._state(member)
        return self._answers[member.name]

    def unfit(self, member: TargetMember) -> str:
        """Why it is not available here, or what its runs hold at once does not fit on it."""
        if reason := self.refusal(member):
            return reason
        needs = most_held(planned for planned in self.cases if planned.case.target == member.name)
        return "; ".join(short_of_room(*needs, member.room()))

    def refusals(self, members: Iterable[TargetMember]) -> dict[str, str]:
        """Name -> why this machine cannot have it, of those that something is to be run on."""
        needed = {planned.case.target for planned in self.cases}
        asked = {m.name: self.refusal(m) for m in members if m.name in needed}
        return {name: reason for name, reason in asked.items() if reason}

    def refuse(self, members: Iterable[TargetMember], needed: Collection[str]) -> None:
        """CampaignError that names those of `needed` that this machine cannot have."""
        refusals = self.refusals(member for member in members if member.name in needed)
        problems = [
            self.settings.tree.problem(
                ("targets", name),
                f"not available here: {reason} (--skip-unusable continues without it)",
            )
            for name, reason in refusals.items()
        ]
        if problems:
            raise CampaignError(problems)

    def _state(self, member: TargetMember) -> str:
        """Why what it keeps in the state directory cannot be there (empty: it can)."""
        own = member.foreseen()
        if self.out is None or member.testbed is not None or not own.state_bytes:
            return ""
        folder, size = self.out.absolute() / STATE, self._kept + own.state_bytes
        reason = images.folder_refusal(folder, size, own.state_direct)
        self._kept += 0 if reason else own.state_bytes
        return reason


def choose(
    everybody: Iterable[TargetMember],
    request: Request,
    root: bool,
    machine: Machine | None,
) -> Choice:
    """Those that take part: as it was decided when the campaign began, else now.

    `machine`: None if it is not asked; then the usable ones take part and no fallback does.
    """
    every = tuple(everybody)
    if request.targets:
        begun = tuple(member for member in every if member.name in request.targets)
        choice = Choice(begun, tuple(LeftOut(*left) for left in request.left_out))
    else:
        choice = _by_when(every, root, machine)
    if machine is None or not request.skip_unusable:
        return choice
    return choice.without(machine.refusals(choice.members))


def _by_when(every: Sequence[TargetMember], root: bool, machine: Machine | None) -> Choice:
    left: dict[str, str] = {}
    chosen = []
    for member in every:
        when = member.target.when
        if when in ("root", "not-root") and (when == "root") != root:
            left[member.name] = f"it is for {'root' if when == 'root' else 'other users than root'}"
        elif when == "usable" and machine is not None and (reason := machine.unfit(member)):
            left[member.name] = reason
        elif when != "fallback":
            chosen.append(member)
    if machine is not None and _competing(chosen) < ENOUGH:
        for member in every:
            if member.target.when != "fallback":
                continue
            if not member.reference and _competing(chosen) >= ENOUGH:
                continue
            if reason := machine.unfit(member):
                left[member.name] = reason
            else:
                chosen.append(member)
    chosen.sort(key=every.index)
    return Choice(tuple(chosen), tuple(LeftOut(name, reason) for name, reason in left.items()))


def _competing(members: Iterable[TargetMember]) -> int:
    return sum(not member.reference for member in members)
