"""The questions of a comparison in their order: all cells together, each pattern, each cell.

What holds over several cells is asked of their geometric mean, block by block.  All cells together
is the first question, over all pairs one family of max-T; the patterns and their cells of all pairs
are a second one, so that a claim about a pattern is corrected for all cells too.  No question needs
the one above it: two targets may differ in every pattern and not over all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsmatrix.analysis.comparison.cells import Match
from fsmatrix.analysis.comparison.parts import WorkPart
from fsmatrix.analysis.data.columns import Codes
from fsmatrix.analysis.data.roles import pattern_of
from fsmatrix.analysis.stats.estimates.intervals import Ratio, from_logs
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.testing import looks
from fsmatrix.analysis.stats.testing.signflips import Together
from fsmatrix.analysis.stats.testing.tests import correct
from fsmatrix.analysis.stats.testing.verdict import Kind, judge
from fsmatrix.analysis.units import labelled

Places = Sequence[int]  # columns of the differences


@dataclass(frozen=True)
class Asked:
    """Several cells of one pair; `named`: their pattern, "" all cells."""

    named: str
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """What is known of several cells together: geometric mean a / b over the blocks that have all.

    `p` is corrected over its family.
    """

    named: str
    columns: tuple[int, ...]
    ratio: Ratio
    p: float
    kind: Kind

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {
            "named": self.named,
            "cells": len(self.columns),
            "p": self.p,
            "kind": self.kind,
            "ratio": self.ratio.to_dict(),
        }


def of_pairs(pairs: Sequence[tuple[Sequence[Match], Mapping[WorkPart, Places]]]) -> list[Asked]:
    """Questions about each part of each pair; columns in the order of pairs and matches."""
    questions, first = [], 0
    for matches, parts in pairs:
        for places in parts.values():
            questions += asked(matches, places, first)
        first += len(matches)
    return questions


def asked(matches: Sequence[Match], places: Places, first: int) -> list[Asked]:
    """Questions about the cells at `places` of one pair, whose first column is `first`."""
    if len(places) < 2:
        return []
    every = {name for i in places for name in matches[i].levels}
    several = {n for n in every if len({matches[i].levels.get(n, "") for i in places}) > 1}
    patterns: dict[str, list[int]] = defaultdict(list)
    for i in places:
        key = pattern_of(matches[i].levels, several)
        patterns[", ".join(labelled(n, v) for n, v in key)].append(first + i)
    questions = [Asked("", tuple(first + i for i in places))]
    if len(patterns) > 1:
        questions += [
            Asked(name, tuple(columns)) for name, columns in patterns.items() if len(columns) > 1
        ]
    return questions


def together(
    differences: Floats, last: Codes, every: Sequence[Asked], turns: Sequence[int], alpha: float
) -> tuple[Together, Floats, Floats]:
    """(the cells' p, p of `every` question, their log ratios [block, question])."""
    means = np.array([differences[:, list(question.columns)].mean(axis=1) for question in every])
    means = means.reshape(len(every), len(differences)).T
    first = np.array([not question.named for question in every], dtype=bool)
    patterns, cells = means[:, ~first], differences.shape[1]
    groups = np.repeat([0, 1], [cells, patterns.shape[1]])
    every_test = looks.max_t(np.hstack([differences, patterns]), last, turns, alpha, groups)
    p = np.empty(len(every))
    p[first] = looks.max_t(means[:, first], last, turns, alpha).p
    p[~first] = every_test.p[cells:]
    return Together(every_test.p[:cells], every_test.share, differences), p, means


def answers(
    every: Sequence[Asked],
    p: Floats,
    means: Floats,
    x: float,
    level: float,
    interval: float,
    more_is_faster: bool,
) -> list[Question]:
    """The questions with their verdicts; `interval`: the level of the intervals."""
    ratios = [from_logs((column[~np.isnan(column)],), interval) for column in means.T]
    equal = correct([ratio.p_equal(x) for ratio in ratios])
    return [
        Question(
            question.named,
            question.columns,
            ratio,
            float(p[i]),
            judge(ratio, float(p[i]), float(equal[i]), x, level, more_is_faster),
        )
        for i, (question, ratio) in enumerate(zip(every, ratios, strict=True))
    ]
