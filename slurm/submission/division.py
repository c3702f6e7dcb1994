"""How a campaign is divided into jobs.  Pure functions of the plan.

A job carries out some blocks of one shard: one client-node count on one storage system.  The
jobs of a block stand together and in random order, so that the geometry is confounded neither
with time nor with nodes; targets of one system share jobs, and so their nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

from fsmatrix.suite.plan import order
from fsmatrix.suite.plan.estimate import attach_seconds, run_seconds
from fsmatrix.suite.plan.plan import Plan

MOST_JOBS = 500  # more blocks per job than asked for beyond this
JOB_SECONDS = 5.0  # from a job's start to its first attachment: Python, the checks, the store
SHARED = "storage"  # names the system of targets that name none


@dataclass(frozen=True)
class Part:
    """What one job does."""

    shard: int  # from 1
    shards: int
    blocks: tuple[int, int]  # first and last
    system: str
    nodes: int
    tasks_per_node: int
    threads: int
    engines: tuple[str, ...]
    runs: tuple[tuple[str, int], ...]  # case id, repetition
    seconds: float  # estimated, of all its runs

    @property
    def key(self) -> str:
        """Name of the part, the same in every submission that divides alike."""
        first, last = self.blocks
        return f"s{self.shard}of{self.shards}-b{first}-{last}"

    @property
    def words(self) -> list[str]:
        """The arguments of `fsmatrix run` that choose it."""
        first, last = self.blocks
        return ["--shard", f"{self.shard}/{self.shards}", "--blocks", f"{first}-{last}"]


def divide(plan: Plan, blocks_per_job: int, speed: Mapping[str, float] | None = None) -> list[Part]:
    """The parts of a plan, in the order of submission.

    `speed`: measured seconds of a run / estimated ones, by entry of the campaign.
    """
    shards = _shards(plan)
    numbers = order.blocks(plan.settings.campaign.repetitions, plan.settings.campaign.order.block)
    most = max(1, MOST_JOBS // len(shards))
    step = max(blocks_per_job, math.ceil(len(numbers) / most))
    parts = []
    for start in numbers[::step]:
        blocks = range(start, min(start + step, numbers.stop))
        for k in order.shuffled(map(str, shards), plan.order_seed, "jobs", start):
            part = _part(plan, int(k), len(shards), shards[int(k)], blocks, speed or {})
            parts.append(part)
    return parts


def left(part: Part, done: Set[tuple[str, int]]) -> Part:
    """Without the runs (case id, repetition) in `done`, and their share of its time."""
    rest = tuple(run for run in part.runs if run not in done)
    return replace(part, runs=rest, seconds=part.seconds * len(rest) / max(len(part.runs), 1))


def _shards(plan: Plan) -> dict[int, order.Groups]:
    count = len(order.divisions(plan.groups, plan.system))
    return {k: order.shard(plan.groups, k, count, plan.system) for k in range(1, count + 1)}


def _part(
    plan: Plan,
    k: int,
    shards: int,
    groups: order.Groups,
    blocks: range,
    speed: Mapping[str, float],
) -> Part:
    cases = [planned for group in groups.values() for planned in group]
    geometries = [planned.case.geometry for planned in cases]
    repetitions = range(
        blocks.start * plan.settings.campaign.order.block,
        min(blocks.stop * plan.settings.campaign.order.block, plan.settings.campaign.repetitions),
    )
    seconds = JOB_SECONDS + len(blocks) * sum(
        attach_seconds(g, plan.pace(g[0])) for g in groups.values()
    )
    seconds += len(repetitions) * sum(
        run_seconds(planned, plan.pace(planned)) * speed.get(planned.entry, 1.0)
        for planned in cases
    )
    system = {plan.system(key.target) for key in groups}.pop()
    return Part(
        shard=k,
        shards=shards,
        blocks=(blocks.start, blocks.stop - 1),
        system=system or SHARED,
        nodes=max(geometry.nodes for geometry in geometries),
        tasks_per_node=max(geometry.processes_per_node for geometry in geometries),
        threads=max(geometry.threads for geometry in geometries),
        engines=tuple(sorted({planned.engine for planned in cases})),
        runs=tuple((p.case.case_id, repetition) for repetition in repetitions for p in cases),
        seconds=seconds,
    )


def lanes(parts: list[Part], parallel: int) -> Iterator[tuple[Part, str]]:
    """Each part with its job's name: of jobs with one name, one runs at a time.

    `parallel` names for each storage system, dealt out in turn.
    """
    seen: dict[str, int] = {}
    for part in parts:
        number = seen.get(part.system, 0)
        seen[part.system] = number + 1
        lane = f"-{number % parallel + 1}" if parallel > 1 else ""
        yield part, f"fsmatrix-{part.system}{lane}"
