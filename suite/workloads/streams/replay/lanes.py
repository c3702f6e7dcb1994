"""Who plays which thread of a trace: ranks get groups that do not depend, lanes get threads."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from fsmatrix.backends.player.ops import Place
from fsmatrix.suite.workloads.streams.replay.dependencies import Groups, Things
from fsmatrix.suite.workloads.streams.replay.survey import Integers, Survey, selected
from fsmatrix.suite.workloads.streams.replay.work import Work
from fsmatrix.traces.model import Operations


@dataclass(frozen=True)
class Lanes:
    """Arrays have one element for each thread of the trace; -1: not this rank's."""

    lane: Integers
    sharing: int  # threads that share a lane with one that lived at the same time
    threads: int  # of this rank


def lanes_of(trace: Operations, work: Work, survey: Survey, things: Things, place: Place) -> Lanes:
    """The lane of each of this rank's threads."""
    used = survey.thread_count > 0
    if not work.private and place.ranks > 1:
        used &= _ranks(trace, work, survey, things, place.ranks) == place.rank
    return _packed(survey, np.flatnonzero(used), place.threads)


def _ranks(trace: Operations, work: Work, survey: Survey, things: Things, ranks: int) -> Integers:
    """The rank of each thread: groups that depend stay together, the largest are dealt first."""
    groups = Groups(len(trace.threads))
    for block in trace.blocks(first=survey.first, stop=survey.stop):
        mask = selected(trace, work, survey.chosen, block)
        part = {name: values[mask] for name, values in block.items()}
        if things.moved_directory(part).any():
            groups.add_all()
            break
        groups.add(things.of(part, data=False), part["thread"])
    of = groups.of()
    size = np.bincount(of, weights=survey.thread_count, minlength=len(of)).astype(np.int64)
    order = sorted(np.flatnonzero(size).tolist(), key=lambda group: (-size[group], group))
    rank_of = np.full(len(of), -1, np.int64)
    loads = [(0, rank) for rank in range(ranks)]
    for group in order:
        load, rank = heapq.heappop(loads)
        rank_of[group] = rank
        heapq.heappush(loads, (load + int(size[group]), rank))
    return rank_of[of]


def _packed(survey: Survey, threads: Integers, lanes: int) -> Lanes:
    """A lane is free again when its thread has ended; without a free one, the least loaded."""
    lane = np.full(len(survey.thread_count), -1, np.int64)
    ends = np.full(lanes, -1, np.int64)
    load = np.zeros(lanes, np.int64)
    sharing = 0
    for thread in threads[np.argsort(survey.thread_first[threads], kind="stable")].tolist():
        free = np.flatnonzero(ends < survey.thread_first[thread])
        sharing += not len(free)
        choice = free if len(free) else np.arange(lanes)
        best = int(choice[np.argmin(load[choice])])
        lane[thread] = best
        ends[best] = max(ends[best], survey.thread_last[thread])
        load[best] += survey.thread_count[thread]
    return Lanes(lane, sharing, len(threads))
