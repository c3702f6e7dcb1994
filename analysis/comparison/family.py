"""The questions of a comparison in their order: all cells together, each pattern, each cell.

What holds over several cells is asked of the geometric mean of their ratios as they are shown
(`estimates/intervals.py`).  All questions about all pairs are one family, so that everything that
is said of a campaign is corrected for everything else.  A claim of several cells needs two tests:
max-T on the blocks' means, which occasional slow runs of one target move, and the mean of the
medians, which they do not, by Holm.  No question needs the one above it: two targets may differ in
every pattern and not over all of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions, Table, without_blocks
from fsmatrix.analysis.comparison.extension import Record
from fsmatrix.analysis.comparison.matched_cells import Match, Pair, WorkPart, differences_of
from fsmatrix.analysis.data.columns import Codes
from fsmatrix.analysis.data.factors import pattern_of, several
from fsmatrix.analysis.stats.estimates.intervals import Ratio, geometric_mean
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.testing import signflips
from fsmatrix.analysis.stats.testing.signflips import MaxTResult
from fsmatrix.analysis.stats.testing.tests import Correction, correct
from fsmatrix.analysis.stats.testing.verdict import CERTAINTY, Kind, Verdict, judge, verdicts
from fsmatrix.analysis.units import labelled
from fsmatrix.results.evidence.stored import Json

Places = Sequence[int]  # columns of the differences


@dataclass(frozen=True)
class Subject:
    """What a question is about: several cells of one pair; `named`: their pattern, "" all cells."""

    named: str
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """What is known of several cells together: geometric mean a / b over the blocks that have all.

    `p` is the larger one of its two tests, each corrected over its family.
    """

    named: str
    columns: tuple[int, ...]
    ratio: Ratio
    p: float
    kind: Kind

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers and strings."""
        return {
            "named": self.named,
            "cells": len(self.columns),
            "p": self.p,
            "kind": self.kind,
            "certainty": CERTAINTY[self.kind],
            "ratio": self.ratio.to_dict(),
        }


def of_pairs(pairs: Sequence[tuple[Sequence[Match], Mapping[WorkPart, Places]]]) -> list[Subject]:
    """Questions about each part of each pair; columns in the order of pairs and matches."""
    questions, first = [], 0
    for matches, parts in pairs:
        for places in parts.values():
            questions += subjects(matches, places, first)
        first += len(matches)
    return questions


def subjects(matches: Sequence[Match], places: Places, first: int) -> list[Subject]:
    """Questions about the cells at `places` of one pair, whose first column is `first`."""
    if len(places) < 2:
        return []
    apart = set(several([matches[i].levels for i in places]))
    patterns: dict[str, list[int]] = defaultdict(list)
    for i in places:
        key = pattern_of(matches[i].levels, apart)
        patterns[", ".join(labelled(n, v) for n, v in key)].append(first + i)
    questions = [Subject("", tuple(first + i for i in places))]
    if len(patterns) > 1:
        questions += [
            Subject(name, tuple(columns)) for name, columns in patterns.items() if len(columns) > 1
        ]
    return questions


def together(
    differences: Floats, last: Codes, every: Sequence[Subject], turns: Sequence[int], alpha: float
) -> tuple[MaxTResult, Floats]:
    """(the cells' p, p of `every` question), by max-T on the blocks' means."""
    means = np.array([differences[:, list(question.columns)].mean(axis=1) for question in every])
    means = means.reshape(len(every), len(differences)).T
    cells = differences.shape[1]
    # means of more cells have less variance: only like ones have it in common
    groups = np.repeat([0, 1], [cells, len(every)])
    tested = signflips.max_t_over_looks(np.hstack([differences, means]), last, turns, alpha, groups)
    return MaxTResult(tested.p[:cells], tested.share, differences), tested.p[cells:]


def answers(
    every: Sequence[Subject],
    differences: Floats,
    of_means: Floats,
    x: float,
    level: float,
    interval: float,
    more_is_faster: bool,
) -> list[Question]:
    """The questions with their verdicts; `interval`: the level of the intervals.

    `of_means`: their p by `together`.  Claims of equivalence: `verdicts`, over cells and questions.
    """
    ratios = [geometric_mean((differences[:, [*q.columns]],), interval).mean for q in every]
    claims = _claims(differences, every)
    equal = np.minimum([claims * ratio.p_equal(x) for ratio in ratios], 1.0)
    p = np.fmax(of_means, correct([ratio.p for ratio in ratios]))
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


def _claims(differences: Floats, every: Sequence[Subject]) -> int:
    """Of how many cells and questions it may be said that nothing differs."""
    return int(np.isfinite(differences).any(axis=0).sum()) + len(every)


@dataclass(frozen=True)
class Family:
    """What was tested together; cells in the order of pairs and matches."""

    correction: Correction
    verdicts: list[Verdict]
    cells: int  # of all that p is corrected over
    differences: Floats | None = None  # log ratios [block, cell]; None: not by max-T
    questions: Sequence[Question] = ()


def chosen(family: Family, columns: Sequence[int]) -> Family:
    """What a family says of some of its cells, in the order of `columns`.

    Of the questions those whose cells are all among them.
    """
    place = {column: number for number, column in enumerate(columns)}
    shown = [q for q in family.questions if set(q.columns) <= set(place)]
    return Family(
        family.correction,
        [family.verdicts[column] for column in columns],
        family.cells,
        None if family.differences is None else family.differences[:, [*columns]],
        [replace(q, columns=tuple(place[column] for column in q.columns)) for q in shown],
    )


def family_of(
    of: Table, pairs: Sequence[Pair], record: Record, rising: bool, options: ComparisonOptions
) -> Family:
    """All cells of all pairs; `rising`: more is better.

    max-T needs cells whose sides share blocks.  The others are tested by Holm, and each of the two
    has the part of alpha that its cells are of all.
    """
    ratios = [ratio for pair in pairs for ratio, *_ in pair.ratios]
    x, alpha = options.tolerance, options.alpha
    level, later = record.level(alpha), record.next_level(alpha)
    in_blocks = np.array([r.design == "paired by block" for r in ratios])
    tested = sum(not math.isnan(ratio.p) for ratio in ratios)
    cells = max(tested, 1) if options.correction != "none" else 1
    if options.correction != "max-t" or not in_blocks.any():
        correction = without_blocks(options.correction)
        judged = verdicts(ratios, x, level, correction, rising, later=later)
        return Family(correction, judged, cells)
    differences, last = differences_of(of, [pair.cells.matches for pair in pairs])
    groups = of_pairs([(pair.cells.matches, pair.parts) for pair in pairs])
    shared = np.where(in_blocks, differences, np.nan)
    joint, p = together(shared, last, groups, record.looks, alpha)
    part = float(in_blocks.mean())
    of_blocks = MaxTResult(joint.p[in_blocks], part * joint.share, shared[:, in_blocks])
    by_block = [r for r, paired in zip(ratios, in_blocks, strict=True) if paired]
    claims = _claims(shared, groups)
    first = iter(
        verdicts(by_block, x, part * level, "max-t", rising, of_blocks, part * later, claims)
    )
    apart, rest = [r for r, paired in zip(ratios, in_blocks, strict=True) if not paired], 1 - part
    held = verdicts(apart, x, rest * level, "holm", rising, later=rest * later) if apart else []
    second = iter(held)
    return Family(
        "max-t",
        [next(first if paired else second) for paired in in_blocks],
        cells,
        differences,
        answers(groups, shared, p, x, part * level, 1 - alpha, rising),
    )
