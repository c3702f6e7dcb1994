"""A trace looked through once, and what was seen of it kept for the next step.

Plan and ranks ask the same of a trace again and again; what they ask depends on the trace and on
what of it is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fsmatrix.suite.workloads.streams.replay.survey import Integers, Mask, Survey, survey
from fsmatrix.suite.workloads.streams.replay.tree import (
    State,
    Tree,
    nameable,
    state_at,
    tree_of,
)
from fsmatrix.suite.workloads.streams.replay.work import Work, opened_trace

KEPT = 64  # of the most recent works: all that a campaign has
ELSEWHERE = ("time_scale", "direct", "widened", "filled", "able")  # fields that change nothing


def exact_sum(values: Integers) -> int:
    """Of numbers from 0 on, also where 64 bits do not hold it: a trace may lie about sizes."""
    high, low = values >> 32, values & 0xFFFFFFFF
    return (int(high.sum()) << 32) + int(low.sum())


@dataclass(frozen=True)
class Prepared:
    """What is known of a work before it is played."""

    survey: Survey
    state: State
    tree: Tree
    nameable: Mask  # [file]

    @property
    def grown(self) -> int:
        """Bytes by which files grow beyond what they are at first, if none is made shorter."""
        size = np.zeros(len(self.nameable), np.int64)
        size[self.tree.files] = self.tree.sizes
        return exact_sum(np.maximum(self.survey.end - size, 0))


def prepared(work: Work) -> Prepared:
    """Look through the trace; ValueError for an empty window, ResultError for a bad trace."""
    plain = Work()
    return _prepared(replace(work, **{name: getattr(plain, name) for name in ELSEWHERE}))


@lru_cache(maxsize=KEPT)
def _prepared(work: Work) -> Prepared:
    with opened_trace(work) as trace:
        seen = survey(trace, work)
        state = state_at(trace, seen.first)
        possible = nameable(trace, work)
        return Prepared(seen, state, tree_of(trace, work, seen, state, possible), possible)
