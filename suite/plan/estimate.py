"""What a campaign will cost, and what its number of repetitions can decide.

The times are guesses for planning only; limits are checked on bytes, which are exact.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fsmatrix.backends.contract import Space, SpeedEstimate
from fsmatrix.results.evidence.evidence import Limits, Rank
from fsmatrix.results.evidence.stored import Level
from fsmatrix.results.record import Case
from fsmatrix.results.units import format_duration, format_size, plural
from fsmatrix.suite.campaign.campaign import Target
from fsmatrix.suite.campaign.settings import Settings
from fsmatrix.suite.campaign.site import Site
from fsmatrix.suite.campaign.yamlio import Problem
from fsmatrix.suite.cases.cases import Planned
from fsmatrix.suite.cases.resolve import TargetMember
from fsmatrix.suite.plan.matrix import footprint
from fsmatrix.suite.plan.order import Groups

# What storage and network cannot exceed: evidence for the audits `faster-than-...`.
#
# Device: what the campaign declares (`targets.X.limits`), else the drives of a test bed.  Network:
# what the campaign declares, else the site's fabric, else the link speeds that the nodes' kernels
# tell, over the client nodes of a run.


DEVICE, NETWORK = "device_bytes_per_second", "network_bytes_per_second"


def of_target(member: TargetMember, level: Level, site: Site, nodes: int) -> Limits | None:
    """Limits of a target at a level from `nodes` client nodes; None if nobody says any."""
    device: float | None = None
    network: float | None = None
    sources: dict[str, str] = {}
    declared: Target = member.target
    if declared.limits.device_bandwidth is not None:
        device, sources[DEVICE] = declared.limits.device_bandwidth, "campaign"
    elif member.testbed is not None:
        most, source = member.testbed.device_limit(level)
        if most:
            device, sources[DEVICE] = most, source
    if declared.limits.network_bandwidth is not None:
        network, sources[NETWORK] = declared.limits.network_bandwidth, "campaign"
    elif site.fabric.bandwidth is not None and member.testbed is None:
        network, sources[NETWORK] = site.fabric.bandwidth * nodes, "site"
    if not sources:
        return None
    return Limits(device_bytes_per_second=device, network_bytes_per_second=network, sources=sources)


def with_links(limits: Limits | None, ranks: Sequence[Rank]) -> Limits | None:
    """The limits, with the links of the ranks' kernels where nobody said more of the network."""
    speed = _links(ranks)
    if speed is None or (limits and limits.network_bytes_per_second is not None):
        return limits
    if limits is None:
        return Limits(network_bytes_per_second=speed, sources={NETWORK: "links"})
    sources = {**(limits.sources or {}), NETWORK: "links"}
    return replace(limits, network_bytes_per_second=speed, sources=sources)


def _links(ranks: Iterable[Rank]) -> float | None:
    """Bytes/s of all links of all kernels; None if one kernel does not tell."""
    kernels = {rank.boot_id: rank.links for rank in ranks}
    speeds = [speed for speed in kernels.values() if speed]
    return float(sum(speeds)) if speeds and len(speeds) == len(kernels) else None


ALPHA = 0.05
SHORTEST = 0.1  # seconds of a run's work
SESSION_SECONDS = 1.5  # to start and end a world of ranks, and for each rank
RANK_SECONDS = 0.05


@dataclass(frozen=True)
class Estimate:
    """Of all runs of a plan; bytes and seconds."""

    runs: int
    attachments: int
    seconds: float
    space: dict[str, int]  # target -> the most bytes that one attachment holds at once
    files: dict[str, int]  # target -> the most files, likewise
    written: int
    nodes: int  # most client nodes of a run


def estimate(
    plan: Groups,
    repetitions: int,
    block: int,
    pace_of: Callable[[str, Level], SpeedEstimate] = lambda _target, _level: SpeedEstimate(),
) -> Estimate:
    """Cost of a plan.  A run's files are removed before the next run starts.

    `pace_of`: what is guessed of a target at a level.
    """
    blocks = math.ceil(repetitions / block)
    seconds, written, runs = 0.0, 0, 0
    space: dict[str, int] = {}
    files: dict[str, int] = {}
    for key, cases in plan.items():
        pace = pace_of(key.target, cases[0].case.level)
        seconds += blocks * attach_seconds(cases, pace)
        for planned in cases:
            needs = footprint(planned)
            seconds += repetitions * run_seconds(planned, pace)
            written += repetitions * needs.written
            runs += repetitions
            space[key.target] = max(space.get(key.target, 0), needs.space)
            files[key.target] = max(files.get(key.target, 0), needs.files)
    nodes = max((key.nodes for key in plan), default=0)
    return Estimate(runs, blocks * len(plan), seconds, space, files, written, nodes)


def attach_seconds(cases: Iterable[Planned], pace: SpeedEstimate) -> float:
    """Guess of what an attachment takes beside its runs: bringing up, session, taking down."""
    ranks = max((planned.case.geometry.processes for planned in cases), default=0)
    return pace.attach + SESSION_SECONDS + RANK_SECONDS * ranks


def run_seconds(planned: Planned, pace: SpeedEstimate) -> float:
    """Guess of the time of one run, with what is made, settled and removed around its work."""
    needs = footprint(planned)
    work = needs.files / pace.files + needs.written / pace.bandwidth
    work += needs.seconds if needs.seconds is not None else needs.read / pace.bandwidth
    return pace.run + max(SHORTEST, work)


def exceeded(settings: Settings, cost: Estimate, room: Mapping[str, Space]) -> Iterator[Problem]:
    """Limits of the campaign, caps of the site and room on the targets that are too small."""
    yield from _limits(settings, cost)
    yield from _caps(settings, cost)
    for target, space in room.items():
        held = cost.space.get(target, 0), cost.files.get(target, 0)
        for message in short_of_room(*held, space):
            yield settings.tree.problem(("targets", target), message)


def short_of_room(size: int, files: int, room: Space) -> Iterator[str]:
    """Why that many bytes and files do not fit at once."""
    if room.bytes is not None and size > room.bytes:
        needed, free = format_size(size, 1), format_size(room.bytes, 1)
        yield f"must hold {needed} at once; {room.source} gives {free}"
    if room.inodes is not None and files > room.inodes:
        yield f"must hold {files} files at once; {room.source} gives {room.inodes}"


def most_held(cases: Iterable[Planned]) -> tuple[int, int]:
    """The most bytes and files that one run of these cases holds at once."""
    needs = [footprint(planned) for planned in cases]
    return max((n.space for n in needs), default=0), max((n.files for n in needs), default=0)


def _limits(settings: Settings, cost: Estimate) -> Iterator[Problem]:
    limits, tree = settings.campaign.limits, settings.tree
    for target, space in cost.space.items():
        if limits.space is not None and space > limits.space:
            message = (
                f"target {target} must hold {_size(space)}; the limit is {_size(limits.space)}"
            )
            yield tree.problem(("limits", "space"), message)
    if limits.bytes_written is not None and cost.written > limits.bytes_written:
        allowed = _size(limits.bytes_written)
        message = f"{_size(cost.written)} will be written; the limit is {allowed}"
        yield tree.problem(("limits", "bytes_written"), message)


def _caps(settings: Settings, cost: Estimate) -> Iterator[Problem]:
    caps, hours = settings.site.site.caps, cost.seconds / 3600
    for name, value, cap, text in (
        ("bytes", cost.written, caps.bytes, f"the campaign writes {_size(cost.written)}"),
        ("nodes", cost.nodes, caps.nodes, f"the campaign uses {cost.nodes} client nodes"),
        ("hours", hours, caps.hours, f"the campaign takes about {format_duration(cost.seconds)}"),
    ):
        if cap is not None and value > cap:
            allowed = _size(int(cap)) if name == "bytes" else f"{cap:g} {name}"
            yield settings.site.tree.problem(("caps", name), f"{text}; the site allows {allowed}")


def comparisons(cases: Iterable[Planned]) -> int:
    """Pairs of targets that do the same work: the cells of the planned family of tests.

    References take no part.  As in a comparison of targets, device states are never mixed, and
    targets meet at the same levels of the cluster; a factor that one has alone may differ.
    """
    works: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in (planned.case for planned in cases if not planned.reference):
        works[case.work_id, case.device_state].append(case)
    return sum(
        a.target != b.target
        and all(a.level[name] == b.level[name] for name in a.level.keys() & b.level.keys())
        for same in works.values()
        for a, b in itertools.combinations(same, 2)
    )


def smallest_p(n: int) -> float:
    """Smallest p of a comparison over n blocks, alone or with others (stats/signflips.py).

    2 / 2^n: all signs of the blocks' differences are alike, or all are the other way round.
    """
    return min(1.0, 2.0 ** (1 - n))


def deciding(alpha: float = ALPHA) -> int:
    """Fewest blocks at which a comparison of targets can be decided, however many there are."""
    n = 1
    while smallest_p(n) > alpha:
        n += 1
    return n


def warnings(settings: Settings, impossible: int, tests: int) -> Iterator[str]:
    """What a plan should say beside its numbers; `tests`: comparisons of the planned family."""
    campaign = settings.campaign
    if impossible:
        cases = plural(impossible, "case")
        yield f"left out as impossible: {cases} (see the matrix)"
    blocks = -(-campaign.repetitions // campaign.order.block)
    if blocks < campaign.order.attachments:
        extent = "of medians need 6" if blocks > 1 else "and tests hold within one session only"
        yield (
            f"{plural(blocks, 'independent attachment')}; order.attachments requests "
            f"{campaign.order.attachments}: intervals {extent}"
        )
    needed = deciding()
    if tests and blocks < needed:
        yield (
            f"{plural(blocks, 'block')} cannot decide any of "
            f"{plural(tests, 'comparison')} of targets at 5 %: at least {needed} are needed"
        )


def _size(size: int) -> str:
    return f"{format_size(size, 1)} ({size} bytes)" if size >= 1024 else f"{size} bytes"


def past_deadline(settings: Settings, plan: Groups) -> Iterator[str]:
    """Entries whose runs may work for longer than they may take: a sentence for each."""
    limit = settings.campaign.limits.time_per_run
    longest: dict[str, float] = {}
    for planned in itertools.chain(*plan.values()):
        seconds = footprint(planned).seconds or 0.0
        longest[planned.entry] = max(longest.get(planned.entry, 0.0), seconds)
    for entry, seconds in longest.items():
        if seconds >= limit:
            yield (
                f"workloads.{entry}: its runs may work for {format_duration(seconds)}, and "
                f"limits.time_per_run ends each after {format_duration(limit)}: allow more, or "
                "give them less time"
            )
